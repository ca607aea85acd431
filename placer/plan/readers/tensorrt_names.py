"""The ONNX nodes behind the names and metadata of TensorRT's layers."""

from __future__ import annotations

import re

from placer.plan.dtypes import dtype_name

# Pairs as exporters call them (tf2onnx: QuantLinearNode__838; NNCF: QuantizeLinear_, the tensor and
# a number), and copies that TensorRT makes.
PAIR = re.compile(
    r"(Quant|Dequant)(ize)?Linear(Node)?(_+\d+)?(_clone_\d+)?$|_(de)?quantize_scale_node$"
    r"|^(Quantize|Dequantize)Linear_"
)

# Kernels that the compiler generates are called after what they do, e.g. __myl_CastMulConc_myl0_3.
COPY = re.compile(r"__myl_((Cast|Move)+)_myl\d+_\d+$")  # Casts or moves what a layer computed.
# Of no node: a map is stored otherwise, and the bias of the product that wrote it added on the way.
STORED_OTHERWISE = re.compile(r"__myl_(Add)?(Tran|Resh)+_myl\d+_\d+$")


def split_format(phrase: str) -> tuple[str, str]:
    """Split TensorRT's ``Format/Datatype`` into the type's ONNX name and the memory format.

    ``Channel major FP16 format where channel % 8 == 0`` is ``float16`` in the format
    ``Channel major format where channel % 8 == 0``. The type is empty where none is named.
    """
    for match in re.finditer(r"\w+", phrase):
        if dtype_name(match[0]):
            rest = f"{phrase[: match.start()]} {phrase[match.end() :]}"
            return dtype_name(match[0]), " ".join(rest.split()).rstrip(".")
    return "", phrase


_MARK = "[ONNX Layer: "
_CONSTANT = re.compile(
    r"^onnx::|(^|[._/:])(weight|bias)(_quantized)?$|(^|/)Constant(_\d+)?(_output_0)?$"
    r"|^const_fold_opt__\d+(:0)?$"
)
_GENERATED = re.compile(
    r"^\(Unnamed Layer\* |^(copied_)?(un)?squeeze_(node_)?after_|^(reshape|shuffle|transpose)_"
    r"(after|before|between)_|^__my[el]|^ONNXTRT_|^Reformatting CopyNode|( copy|_copy_output)$"
)
_KERNEL = re.compile(r"(?<=.)_myl\d+_\d+$")
_FOREIGN = re.compile(r"\{ForeignNode\[(?P<first>.*?)(\.\.\.(?P<last>.*))?\]\}")


def metadata_nodes(metadata: str) -> tuple[str, ...]:
    r"""Names in ``[ONNX Layer: x]`` entries, which ``\x1e`` and ``\x1f`` may separate.

    Names may hold brackets of their own, as long as these are balanced.
    """
    return tuple(_bracketed(part) for part in metadata.split(_MARK)[1:])


def _bracketed(part: str) -> str:
    depth = 0
    for position, character in enumerate(part):
        depth += {"[": 1, "]": -1}.get(character, 0)
        if depth < 0:
            return part[:position]
    return part.rstrip("\x1e\x1f ]")


def name_parts(name: str) -> tuple[str, ...]:
    """The names that TensorRT joined to a layer's name, in order.

    ``a + PWN(PWN(b), c)`` names a, b and c; ``{ForeignNode[a...b]}`` names the first and the last
    node of a subgraph, whose other nodes cannot be told; ``a_myl0_3`` is a kernel for a.
    """
    name = _KERNEL.sub("", name)
    foreign = _FOREIGN.fullmatch(name)
    if foreign is not None:
        return tuple(part for end in (foreign["first"], foreign["last"]) for part in _ends(end))
    parts = _split_at_top(name, (" + ", " || "))
    if len(parts) > 1:
        return tuple(inner for part in parts for inner in name_parts(part))
    if name.startswith("PWN(") and name.endswith(")"):
        operands = _split_at_top(name[4:-1], (", ",))
        return tuple(inner for part in operands for inner in name_parts(part))
    return (name,)


def _ends(end: str | None) -> tuple[str, ...]:
    return name_parts(end) if end else ()


def _split_at_top(text: str, separators: tuple[str, ...]) -> list[str]:
    """Split ``text`` at separators outside brackets."""
    parts, start, depth, position = [], 0, 0, 0
    while position < len(text):
        depth += {"(": 1, "[": 1, "{": 1, ")": -1, "]": -1, "}": -1}.get(text[position], 0)
        separator = next((s for s in separators if text.startswith(s, position)), "")
        if separator and depth <= 0:
            parts.append(text[start:position])
            start = position + len(separator)
        position += len(separator) or 1
    return [*parts, text[start:]]


def is_compute_node(name: str) -> bool:
    """Whether a name is not known to be a Q/DQ node, a constant or TensorRT's own."""
    return not (PAIR.search(name) or _CONSTANT.search(name) or _GENERATED.search(name))
