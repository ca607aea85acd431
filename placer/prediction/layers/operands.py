"""How a sum or product of two tensors reads an operand that carries a pair, on OpenVINO.

LPT keeps the integers of one operand at most, by what computes the two, and rounds the other in
the kernel that writes it. From plans of OpenVINO 2026.4.1 of all combinations of eight writers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from placer.graph import Edge, Graph, Node
from placer.prediction.layers.motion import NormalForm, Scale

_UNARY = frozenset({"Relu", "Clip", "LeakyRelu", "Elu", "Sigmoid", "Tanh", "HardSwish", "Gelu"})
_BIASED = frozenset({"Add", "Mul", "Sub", "Div"})
FOLLOWING = _UNARY | _BIASED  # What products take along.
_TWO = frozenset({"Add", "Mul"})
_POINTWISE = FOLLOWING | {"Abs", "Neg", "Exp", "Erf", "Sqrt", "Softplus", "Mish", "PRelu"}
_ROWS = 3  # Dimensions of what a linear layer writes with Q in its kernel.


@dataclass(frozen=True, eq=False, slots=True)
class Kernel:
    """What computes an operand; ``joined``: a Concat, before which Q moves.

    ``operands``: of a product, the edges that make it INT8. ``inner``: those behind it, to what it
    takes along. ``is_bare``: nothing follows it, a bias neither. ``rank``: of what it writes.
    """

    kind: Literal["conv", "linear", "pointwise", "joined", "other"]
    operands: tuple[Edge, ...] = ()
    is_bare: bool = False
    rank: int = 0
    inner: tuple[Edge, ...] = ()

    def is_int8(self, form: NormalForm) -> bool:
        """Whether it is a product of integers."""
        return bool(self.operands) and all(edge in form.scales for edge in self.operands)

    def is_cut(self, form: NormalForm) -> bool:
        """Whether a pair behind the product hides it from what adds the result to something."""
        return any(edge in form.scales for edge in self.inner)


@dataclass(frozen=True, eq=False, slots=True)
class Operand:
    """One of two operands of a sum or product; ``other``: the other one.

    ``beside``: the other edges of its tensor. ``is_other_shared``: whether something else reads
    the other one, too.
    """

    edge: Edge
    other: Edge
    op: str
    kernel: Kernel
    other_kernel: Kernel
    beside: tuple[Edge, ...] = ()
    is_other_shared: bool = False

    @property
    def edges(self) -> tuple[Edge, ...]:
        """On whose pairs it depends how the operand is read."""
        kernels = (*self.kernel.operands, *self.other_kernel.operands)
        return (self.edge, self.other, *kernels, *self.kernel.inner, *self.beside)

    def is_read_as_integers(
        self, form: NormalForm, has_zero_point: Callable[[Scale], bool]
    ) -> bool | None:
        """Whether the paired operand is read as integers, or rounded before; None: no rule says."""
        if self.op == "Mul" and self.other not in form.scales:
            shifts = has_zero_point(form.scales[self.edge])
            if self.kernel.kind == "pointwise":
                return self._of_pointwise(form, shifts)
            if not shifts and not self._is_apart(form) and self._is_alone(form):
                return self.kernel.kind == "joined"
        return self.is_kept(form)

    def is_kept(self, form: NormalForm) -> bool | None:
        """The same where what computes the operand may be one kernel with the sum or product."""
        both = self.other in form.scales
        if self.op == "Mul":
            return self._of_product(form, both)
        if self.kernel.kind == "conv":
            return False if both or self.other_kernel.kind == "conv" else None
        if self.kernel.kind == "linear":
            return self._of_linear(form, both)
        return True if both and self.other_kernel.kind == "conv" else None

    def _of_product(self, form: NormalForm, both: bool) -> bool | None:
        if not both and self._is_apart(form):
            return True
        other = self.other_kernel
        return False if both or (other.is_bare and other.is_int8(form)) else None

    def _of_pointwise(self, form: NormalForm, has_zero_point: bool) -> bool:
        """Of an element-wise kernel before a product without another pair (plans of all orders)."""
        if not has_zero_point:
            return self.other_kernel.is_bare and self.other_kernel.is_int8(form)
        return self._is_alone(form) and self.edge.input_index == 1

    def _is_alone(self, form: NormalForm) -> bool:
        """Whether nothing else reads the tensor in the scale of the operand."""
        scale = form.scales[self.edge]
        return all(form.scales.get(edge) != scale for edge in self.beside)

    def _is_apart(self, form: NormalForm) -> bool:
        """Whether a kernel that takes no Q along is quantized by a layer of its own."""
        kernel = self.kernel
        return (
            kernel.kind == "linear"
            and kernel.is_bare
            and kernel.rank > _ROWS
            and kernel.is_int8(form)
        )

    def _of_linear(self, form: NormalForm, both: bool) -> bool | None:
        is_int8, other = self.kernel.is_int8(form), self.other_kernel
        if not both:
            return True if self._is_apart(form) else None
        if other.kind == "conv":
            return not (is_int8 and self.kernel.is_bare)
        if other.kind in ("pointwise", "joined", "other"):
            if self.kernel.is_cut(form) and not self.beside:
                return self.edge.input_index == 1 and not self.is_other_shared
            return True if self._is_apart(form) else None
        if is_int8 != other.is_int8(form):
            return is_int8
        if is_int8 and self.kernel.is_bare != other.is_bare:
            return self.kernel.is_bare
        return self.edge.input_index == 1


def find_operands(graph: Graph, nodes: Iterable[Node]) -> Mapping[Edge, Operand]:
    """The operands of those of ``nodes`` that add or multiply two tensors of one shape."""
    operand_of = {}
    for node in nodes:
        edges = [e for e in graph.edges_into(node) if e.tensor not in graph.initializers]
        if node.op not in _TWO or len(edges) != 2 or edges[0].tensor == edges[1].tensor:
            continue
        for edge, other in (edges, edges[::-1]):
            kernel, theirs = (_kernel(e.tensor, graph) for e in (edge, other))
            beside = tuple([e for e in graph.edges_of(edge.tensor) if e != edge])
            is_shared = len(graph.edges_of(other.tensor)) > 1
            operand_of[edge] = Operand(edge, other, node.op, kernel, theirs, beside, is_shared)
    return operand_of


def _kernel(tensor: str, graph: Graph) -> Kernel:
    """The product that writes ``tensor``, through what it takes along."""
    start, inner = tensor, list[Edge]()
    readers = 1
    while len(graph.edges_of(tensor)) == readers and tensor in graph.producer:
        node = graph.producer[tensor]
        data = [t for t in node.inputs if t and t not in graph.initializers]
        if node.op in ("Conv", "MatMul", "Gemm"):
            return _product(node, start, tensor, inner, graph)
        gated = _gated(data, graph) if node.op == "Mul" else []
        data = gated or data
        if len(data) != 1 or node.op not in FOLLOWING:
            break
        tensor, readers = data[0], 2 if gated else 1
        inner += graph.edges_of(tensor)
    writer = graph.producer.get(start)
    if writer is not None and writer.op == "Concat":
        return Kernel("joined")
    return Kernel("pointwise" if writer is not None and writer.op in _POINTWISE else "other")


def _product(node: Node, start: str, written: str, inner: Sequence[Edge], graph: Graph) -> Kernel:
    """The kernel of the product ``node`` that writes ``start``, from ``written`` over ``inner``."""
    if node.inputs[1] not in graph.initializers:
        return Kernel("other")
    kind: Literal["conv", "linear"] = "conv" if node.op == "Conv" else "linear"
    is_bare = written == start and not any(node.inputs[2:])
    rank = len(graph.type_of(start).shape or ())
    return Kernel(kind, graph.edges_into(node)[:2], is_bare, rank, tuple(inner))


def _gated(data: list[str], graph: Graph) -> list[str]:
    """What a SiLU of two nodes reads whose Mul reads ``data``; nothing if there is none."""
    for value, gate in (data, data[::-1]) if len(data) == 2 else ():
        node = graph.producer.get(gate)
        if node is not None and node.op == "Sigmoid" and node.inputs[0] == value:
            return [value]
    return []
