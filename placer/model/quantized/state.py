"""What a pass over a quantized model knows so far."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path

from onnx import ModelProto, NodeProto

from placer.errors import InputError
from placer.graph.edit import readers_by_tensor
from placer.model.quantized.dynamic import Bias, Factor, Product
from placer.model.quantized.float_graph import FloatGraphBuilder
from placer.model.quantized.operators import DEQUANTIZE
from placer.model.quantized.quantized_tensors import Quantized, Records
from placer.model.quantized.scales import BIAS_TYPES


class ImportState:
    """The float graph so far, the scales seen, and what each tensor read so far stands for.

    ``types``, ``shapes``: ONNX element type and sizes by tensor, as far as known, but for those of
    initializers. ``kept``: what those QuantizeLinear
    nodes write whose rounding and saturation are part of the function: they stay, as arithmetic.
    ``origins``: by node of the float graph the node of the quantized one that it was written for;
    none of those that only give outputs their names back. ``visiting``: the node that is being
    taken apart. ``path`` is for messages.
    """

    def __init__(
        self,
        proto: ModelProto,
        types: Mapping[str, int],
        shapes: Mapping[str, tuple[int | None, ...]],
        base_dir: Path,
        path: Path,
        kept: Collection[str] = (),
    ) -> None:
        self.path = path
        self.kept = frozenset(kept)
        self.types = types
        self.shapes = shapes
        self.readers = readers_by_tensor(proto.graph.node)
        self.quantized: dict[str, Quantized] = {}
        self.pairs: dict[str, Quantized] = {}  # by what a DequantizeLinear writes
        self.alias: dict[str, str] = {}  # float tensor by its name in the quantized model
        self.dequantized: dict[tuple[str, ...], str] = {}
        # Float rows of quantized tables by tensor, scale and zero point.
        self.rows: dict[tuple[str, ...], Quantized] = {}
        # Float weights that were packed, by what they were made of.
        self.unpacked: dict[tuple[str | int, ...], str] = {}
        self.factors: dict[str, Factor] = {}  # products with a scale computed at run time
        self.run_time_zeros: dict[str, str] = {}  # zero point by scale, both computed at run time
        self.products: dict[str, Product] = {}  # int32 results that lack their scales
        self.biases: dict[str, Bias] = {}  # divided by scales computed at run time
        self.expanded: set[str] = set()
        self.origins: dict[str, str] = {}
        self.visiting: NodeProto | None = None
        self.casts = 0
        self.draft = FloatGraphBuilder(proto, base_dir)
        self.records = Records()

    def refuse(self, node: NodeProto, why: str) -> InputError:
        """The error that says why ``node``, or the node that it is a part of, cannot be."""
        whole = self.visiting
        op = whole.op_type if whole is not None and whole.name == node.name else node.op_type
        return InputError(f"{self.path}: node '{node.name}' ({op}) {why}; give the float model")

    def refuse_run_time(self, tensor: str, reader: str) -> None:
        """Raise InputError where ``reader`` reads a part of a dynamic quantization as such."""
        if tensor in self.products or tensor in self.factors or tensor in self.biases:
            raise InputError(
                f"{self.path}: {reader} '{tensor}', part of a dynamic quantization that placer "
                "cannot take apart; give the float model"
            )

    def read(self, tensor: str, node: str, index: int) -> str:
        """Float tensor that the input ``index`` of ``node`` reads, of no node if that is empty."""
        if tensor in self.pairs and node:
            self.draft.mark(self.pairs[tensor], node, index)
        self.refuse_run_time(tensor, f"node '{node}' reads" if node else "a node reads")
        return self.alias.get(tensor, tensor)

    def stand_for(self, target: str, info: Quantized) -> None:
        """Remember that ``target``, dequantized, is the float tensor of ``info``."""
        self.alias[target] = info.tensor
        if info.dtype not in BIAS_TYPES:  # A bias is quantized by what it is added to.
            self.pairs[target] = info

    def name_of_float(self, integers: str) -> str:
        """Name for the float tensor that ``integers`` stands for."""
        readers = [n for n in self.readers[integers] if n.op_type in DEQUANTIZE]
        dequantized = readers[0].output[0] if len(readers) == 1 else ""
        return self.draft.names.of_float(integers, dequantized)
