"""What ONNX Runtime computes in blocks of channels on a CPU: nchwc_transformer.cc."""

from __future__ import annotations

from collections.abc import Sequence

from placer.graph import Graph, Node
from placer.rules.block_sizes import equal_in_blocks

# Float operators that go on in blocks.
_IN_BLOCKS = frozenset(
    "Add AveragePool Concat GlobalAveragePool GlobalMaxPool MaxPool Mul Relu Resize Sigmoid Sum "
    "Tanh".split()
)
_IMAGE = 4  # Dimensions of what is held in blocks.


def goes_on_in_blocks(main: Node, tensors: Sequence[str], graph: Graph, block: int) -> bool:
    """Whether ``main``, which reads ``tensors`` in blocks of so many channels, writes blocks."""
    shapes = [graph.type_of(tensor).shape for tensor in tensors]
    if main.op not in _IN_BLOCKS:
        return False
    whole = all(shape is not None and shape[1] % block == 0 for shape in shapes)
    if main.op == "Concat":
        return whole and main.attributes.get("axis") in (1, 1 - _IMAGE)
    if main.op.endswith("Pool"):
        return whole
    if main.op == "Resize":
        return _resizes_in_blocks(main)
    if main.op == "Mul":
        return all(equal_in_blocks(tensors[0], tensor, graph, block) for tensor in tensors)
    # Sums of shapes that are not known to be equal have Reshapes around them.
    return len({shape and shape[1] for shape in shapes}) == 1


def _resizes_in_blocks(resize: Node) -> bool:
    """Whether the kernel for blocks has the Resize's rule for where pixels come from."""
    transformation = resize.attributes.get("coordinate_transformation_mode", "half_pixel")
    if resize.attributes.get("mode", "nearest") == "linear":
        return transformation in ("align_corners", "asymmetric", "half_pixel")
    rounding = resize.attributes.get("nearest_mode", "round_prefer_floor")
    return (transformation, rounding) == ("asymmetric", "floor")
