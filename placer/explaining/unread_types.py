"""What an explanation says of activations quantized to types that no kernel reads."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from placer.common.listed import in_quotes
from placer.quantization.scheme import FLOAT8_TYPES, WIDE_TYPES
from placer.rules.pack import Pack

UNREAD = WIDE_TYPES | FLOAT8_TYPES  # By no kernel of a CPU.


def unread_types(types: Mapping[str, str], pack: Pack) -> Iterator[str]:
    """Sentences on activations of int8, FP8 and 16 bits; ``types``: those of pairs, by tensor.

    int8 of engines that convert it (ONNX Runtime's qdq_s8_to_u8.cc), and have kernels of uint8
    alone; FP8 of CPUs; 16 bits of all but TensorRT, which refuses them.
    """
    if pack.manifest.behaviour.pairs == "symmetric":
        return
    wide = [tensor for tensor, dtype in types.items() if dtype in WIDE_TYPES]
    float8 = [tensor for tensor, dtype in types.items() if dtype in FLOAT8_TYPES]
    unread = {"16 bits, which no integer kernel": wide, "FP8 values, which no kernel": float8}
    for what, tensors in unread.items():
        if tensors:
            yield (
                f"pairs on {in_quotes(tensors)} have {what} reads, so the nodes between them "
                "compute in float; quantize activations to uint8, as placer optimize does"
            )
    signed = [tensor for tensor, dtype in types.items() if dtype == "int8"]
    if signed and pack.manifest.behaviour.signed == "converted":
        yield (
            f"pairs on {in_quotes(signed)} are int8: kernels for x86 read uint8 and convert int8 "
            "first, and a Q with zero point 0 does not absorb a Relu or Clip before it; quantize "
            "activations to uint8 with zero points, as placer optimize does"
        )
