"""Parts of nodes, each computed by one generated kernel."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from placer.graph import Edge, Graph, Node
from placer.graph.weights import weight_input
from placer.prediction.layers.motion import NormalForm

# ``product``: a convolution or matrix product, a kernel of its own. ``pool``: MaxPool and
# AveragePool, and ``norm``: InstanceNorm and GroupNorm of maps, as well. All others are generated:
# ``reduce`` sums over dimensions, ``cast`` makes the engine's float type of a graph input, or the
# model's of what becomes a graph output. ``plugin``: an operator that ONNX does not have, whose
# kernel is not NVIDIA's, so that nothing becomes part of it.
# ``pair`` quantizes, and dequantizes, for several readers.
Role = (
    Literal["product", "pool", "norm", "plugin"]
    | Literal["pointwise", "reduce", "move", "quantize", "pair", "cast"]
)

CONVS = ("Conv", "ConvTranspose")
PRODUCTS = ("MatMul", "Gemm")
MAP_RANK = 4  # Samples, channels, rows and columns.
POOLS = ("MaxPool", "AveragePool")
REDUCE = frozenset(
    {"GlobalAveragePool", "GlobalMaxPool", "ReduceMean", "ReduceMax", "ReduceSum", "Softmax"}
    | {"LayerNormalization", "InstanceNormalization", "LogSoftmax", "ReduceMin", "ArgMax", "ArgMin"}
    | {"ReduceL1", "ReduceL2", "ReduceSumSquare", "ReduceLogSumExp", "ReduceProd"}
)
PLACES = ("ArgMax", "ArgMin")
SORTS = (*PLACES, "TopK")
IN_FLOAT32 = ("TopK", "CumSum")  # These read and write FP32, whatever the engine's type is.
NORMS = ("LayerNormalization", "InstanceNormalization")
SQUARES = ("ReduceL2", "ReduceSumSquare")
VIEWS = frozenset({"Reshape", "Flatten", "Squeeze", "Unsqueeze", "Identity"})
_MOVES = VIEWS | frozenset(
    {"Concat", "Resize", "Transpose", "Slice", "Split", "Pad", "Gather", "Expand", "Tile"}
    | {"DepthToSpace", "SpaceToDepth"}
)
# What a prepared convolution kernel does behind the sum, after adding a residual at most; all
# else makes it a generated one.
ACTIVATIONS = frozenset({"Relu", "Clip", "Sigmoid", "Tanh"})
EPILOGUE = ACTIVATIONS | {"Add"}
CUT = -5  # The input index of what takes padding off.
NORMED = -4  # The input index of what the second kernel of a norm reads.
TINY_CHANNELS = 4
TRANSPOSED_CHANNELS = 8  # Of ConvTransposes, whose kernels compute multiples of these.
EVEN_CHANNELS = 4  # Others get channels of zeros before; in float any multiple of 2 is read.


@dataclass(eq=False)
class Unit:
    """A part of a node that one kernel does; ``reads``: edges with the unit that writes each.

    ``in_place``: a Concat of integers whose parts are written where they belong; ``views``: nodes
    that cost nothing and are named after it; ``names``: nodes that the builder names instead of
    its own; ``alone``: nothing else is generated in its kernel; ``grouped``: a Conv of several
    groups of several channels, whose kernel is generated; ``depthwise``: a Conv that computes each
    channel by itself; ``unpacks_weight``: a joint product whose
    INT8 weight another kernel dequantizes and sorts by the parts that are taken of it; ``casts``: a
    norm's cast to FP32; ``scales``: a product of integers whose own kernel scales what it sums;
    ``dequantizes``: a product of floats whose own kernel dequantizes its weight, and does no more
    than a Relu; ``turned``: a product of columns, or one that writes its rows as such, see
    ``turned_operands`` and ``turned_back``; ``cast_behind``: a product in one kernel
    with others whose result is cast to FP32 by what reads it.
    """

    index: int
    node: Node
    role: Role
    works: bool
    outputs: tuple[str, ...] = ()
    reads: list[tuple[Edge, Unit | None]] = field(default_factory=list)
    readers: list[tuple[Edge, Unit]] = field(default_factory=list)
    integers: bool = False
    group: int = 0
    in_place: bool = False
    views: tuple[Node, ...] = ()
    names: Sequence[Node] | None = None
    alone: bool = False
    grouped: bool = False
    depthwise: bool = False
    unpacks_weight: bool = False
    casts: bool = False
    scales: bool = False
    dequantizes: bool = False
    turned: bool = False
    cast_behind: bool = False

    @property
    def leaves_sums(self) -> bool:
        """Whether it is a product of integers whose sums the kernel behind it scales."""
        return self.integers and not self.scales

    @property
    def pads_integers(self) -> bool:
        """Whether it only pads what a product reads as integers."""
        padded = self.role == "move" and not self.works
        return padded and all(reader.integers for _, reader in self.readers)

    @property
    def pads_floats(self) -> bool:
        """Whether it only pads what a product reads in float."""
        padded = self.role == "move" and not self.works and bool(self.readers)
        return padded and all(
            reader.role == "product" and not reader.integers for _, reader in self.readers
        )

    def writes_integers(self, reader: Unit) -> bool:
        """Whether what quantizes leaves integers to ``reader``, and does not dequantize as well.

        Floats are there for prepared kernels that compute in float, and for all if nothing else
        reads integers.
        """
        if not any(other.integers or other.in_place for _, other in self.readers):
            return False
        return reader.generated or reader.integers

    def writes_other(self, edge: Edge, form: NormalForm) -> bool:
        """Whether what it computes for ``edge`` is quantized for others with another scale.

        What is only moved is so for each scale anew.
        """
        if self.role == "move":
            return False
        scale = form.scales.get(edge)
        others = (form.scales.get(e) for e, _ in self.readers if e.tensor == edge.tensor)
        return any(other not in (None, scale) for other in others)

    def is_quantized_for_others(self, edge: Edge, form: NormalForm) -> bool:
        """Whether a product or pool reads integers of the same scale as at ``edge``."""
        scale = form.scales.get(edge)
        return any(r.integers and form.scales.get(e) == scale for e, r in self.readers)

    @property
    def pools_integers(self) -> bool:
        """Whether it is a MaxPool of integers."""
        return self.role == "pool" and self.integers

    @property
    def sorts(self) -> bool:
        """Whether it finds the largest or least values, which ends its kernel (30 small graphs)."""
        return self.node.op in SORTS and self.role != "cast"

    @property
    def casts_for_float32(self) -> bool:
        """Whether it casts what is sorted or summed up in FP32 alone."""
        return self.role == "cast" and self.node.op in IN_FLOAT32

    @property
    def generated(self) -> bool:
        """Whether its kernel is generated, so that others may be part of it."""
        return self.role in ("pointwise", "reduce", "move", "pair", "cast")


def is_square(node: Node) -> bool:
    """Whether it is a power, or multiplies a tensor by itself."""
    return node.op == "Pow" or (node.op == "Mul" and len(set(node.inputs)) == 1)


def role_of(node: Node) -> Role:
    """What a node is that is one unit."""
    if node.op != node.qualified_op:
        return "plugin"
    if node.op in POOLS:
        return "pool"
    if node.op in REDUCE:
        return "reduce"
    return "move" if node.op in _MOVES else "pointwise"


def is_identity(node: Node) -> bool:
    """Whether it is a pool of single elements or a Concat of one tensor, which are taken away."""
    if node.op == "Concat":
        return len(node.inputs) == 1
    sizes = [node.attributes.get(name, (1,)) for name in ("kernel_shape", "strides")]
    pads = node.attributes.get("pads", ())
    pools = node.op in POOLS and len(node.outputs) == 1
    return pools and all(set(size) == {1} for size in sizes) and not any(pads)


def multiplies_weight(graph: Graph, node: Node) -> bool:
    """Whether it is a product of matrices of which one is a weight."""
    return node.op in PRODUCTS and weight_input(graph, node) is not None


def has_float_weight(graph: Graph, form: NormalForm, product: Unit) -> bool:
    """Whether a product multiplies by a constant without a pair."""
    weight = weight_input(graph, product.node)
    if weight is None:
        return False
    edge = Edge(product.node.inputs[weight.index], product.node.name, weight.index)
    return edge not in form.scales


def is_padded(graph: Graph, product: Unit) -> bool:
    """Whether it is a ConvTranspose whose kernel computes more channels than there are."""
    if product.role != "product" or product.node.op != "ConvTranspose":
        return False
    made = graph.type_of(product.node.outputs[0]).shape
    return made is not None and made[1] % TRANSPOSED_CHANNELS != 0


def is_not_generated(unit: Unit) -> bool:
    """Whether its kernel is none that is generated."""
    return not unit.generated


def is_sum(unit: Unit) -> bool:
    """Whether it sums over dimensions."""
    return unit.role == "reduce"


def is_concat(unit: Unit) -> bool:
    """Whether it joins tensors."""
    return unit.role == "move" and unit.node.op == "Concat"


def is_scaled(writer: Unit | None) -> bool:
    """Whether what generates a tensor also casts a graph input or scales an INT8 product."""
    waiting, seen = [writer], set[Unit]()  # Once each: paths to a unit may be many.
    while waiting:
        unit = waiting.pop()
        if unit is None or unit.role == "cast" or unit in seen:
            continue
        seen.add(unit)
        if unit.generated:
            waiting += [source for _, source in unit.reads]
        elif not (unit.leaves_sums and unit.role == "product"):
            return False
    return True


def is_turned(unit: Unit) -> bool:
    """Whether what it makes was transposed, and then computed element by element at most."""
    waiting, seen = [unit], {unit}  # Once each: paths to a unit may be many.
    while waiting:
        unit = waiting.pop()
        if unit.role == "move" and unit.node.op == "Transpose":
            return True
        if unit.role == "pointwise" and not sums_few(unit):
            before = {writer for _, writer in unit.reads if writer is not None} - seen
            seen |= before
            waiting += before
    return False


def sums_few(unit: Unit) -> bool:
    """Whether it is a product or sum of so few elements that each is an operand."""
    return unit.works and unit.node.op in (*CONVS, *PRODUCTS, *REDUCE)


def resizes(unit: Unit) -> bool:
    """Whether it makes a map of another size."""
    return unit.role == "move" and unit.node.op == "Resize"
