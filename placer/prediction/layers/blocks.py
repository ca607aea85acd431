"""What ONNX Runtime computes in blocks of channels on a CPU: nchwc_transformer.cc."""

from __future__ import annotations

from collections.abc import Iterable

from placer.graph import Graph, Node

_BLOCK, _ALIGNED = 16, 4  # Channels of a block with AVX-512; of which a float Conv takes multiples.
# Float operators that go on in blocks.
_IN_BLOCKS = frozenset(
    "Add AveragePool Concat GlobalAveragePool GlobalMaxPool MaxPool Mul Relu Resize Sigmoid Sum "
    "Tanh".split()
)
_IMAGE = 4  # Dimensions of what is held in blocks.


def is_blocked_conv(main: Node | None, graph: Graph) -> bool:
    """Whether the node ``main`` of a float layer is a Conv whose channels fill blocks."""
    shape = None if main is None or main.op != "Conv" else graph.type_of(main.inputs[1]).shape
    if main is None or shape is None or len(shape) != _IMAGE:
        return False
    groups = _groups(main)
    if groups == 1:
        return shape[1] < _BLOCK or shape[1] % _ALIGNED == 0
    depthwise = shape[1] == 1 and shape[0] == groups
    aligned = shape[1] % _ALIGNED == 0 and (shape[0] // groups) % _ALIGNED == 0
    return shape[0] % _ALIGNED == 0 and (depthwise or aligned)


def reads_image(main: Node | None, graph: Graph) -> bool:
    """Whether a Conv in blocks reads channels that are fewer than a block, row-major."""
    if main is None or main.op != "Conv" or _groups(main) != 1:
        return False
    return (graph.type_of(main.inputs[1]).shape or (0, _BLOCK))[1] < _BLOCK


def _groups(node: Node) -> int:
    groups = node.attributes.get("group", 1)
    return groups if isinstance(groups, int) else 1


def goes_on_in_blocks(main: Node, tensors: Iterable[str], graph: Graph) -> bool:
    """Whether ``main``, which reads ``tensors`` in blocks, writes blocks."""
    shapes = [graph.type_of(tensor).shape for tensor in tensors]
    if main.op not in _IN_BLOCKS:
        return False
    if main.op == "Concat":
        whole = all(shape is not None and shape[1] % _BLOCK == 0 for shape in shapes)
        return whole and main.attributes.get("axis") in (1, 1 - _IMAGE)
    if main.op == "Resize":
        return _resizes_in_blocks(main)
    return all(shape == shapes[0] for shape in shapes)


def _resizes_in_blocks(resize: Node) -> bool:
    """Whether the kernel for blocks has the Resize's rule for where pixels come from."""
    transformation = resize.attributes.get("coordinate_transformation_mode", "half_pixel")
    if resize.attributes.get("mode", "nearest") == "linear":
        return transformation in ("align_corners", "asymmetric", "half_pixel")
    rounding = resize.attributes.get("nearest_mode", "round_prefer_floor")
    return (transformation, rounding) == ("asymmetric", "floor")
