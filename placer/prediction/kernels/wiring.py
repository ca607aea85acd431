"""Units connected to the units whose outputs they read."""

from __future__ import annotations

import math
from collections.abc import Container, Sequence

from placer.graph import Edge, Graph, Node
from placer.graph.kept import kept
from placer.prediction.kernels.parts import CONVS, MAP_RANK, Role, Unit
from placer.prediction.layers.motion import NormalForm
from placer.quantization.scheme import FLOAT8

_FLOAT8_WINDOW = 32


class UnitGraph:
    """Units in the order of their nodes.

    ``writer``: of each tensor the unit that writes it; ``views``: of each tensor the nodes that
    cost nothing and that it went through; ``shaped_as``: by name of what no node writes, the tensor
    whose shape it has. ``per_tensor``: edges of weights that have one scale. ``integer``: ONNX's
    name of the type of what has no format of its own.
    """

    def __init__(
        self, graph: Graph, form: NormalForm, per_tensor: Container[Edge], integer: str
    ) -> None:
        self.graph, self.form = graph, form
        self._per_tensor, self._integer = per_tensor, integer
        self._integers: dict[str, bool] = {}  # Of each product whether it reads integers.
        self.units: list[Unit] = []
        self.writer: dict[str, Unit] = {}
        self.views: dict[str, tuple[Node, ...]] = {}
        self.shaped_as: dict[str, str] = {}

    def add(
        self,
        node: Node,
        role: Role,
        edges: Sequence[Edge],
        outputs: tuple[str, ...],
        works: bool = True,
    ) -> Unit:
        """Append a unit that reads ``edges`` and writes ``outputs``."""
        unit = Unit(len(self.units), node, role, works, outputs)
        if role == "pool":
            unit.integers = self._pools_integers(node)
        self.units.append(unit)
        unit.views = tuple(v for edge in edges for v in self.views.get(edge.tensor, ()))
        for edge in edges:
            self.link(edge, self.writer.get(edge.tensor), unit)
        self.writer.update(dict.fromkeys(outputs, unit))
        return unit

    def _pools_integers(self, node: Node) -> bool:
        """Whether a pool reads and writes integers.

        A MaxPool that is read in integers by some and in float by others runs once for each, but
        computes in float behind a DQ to whose readers a Q has moved (24 small graphs). An
        AveragePool that does not count what pads it computes in float, but for windows of 3 and 7
        elements and stride 1 (TensorRT-RTX 1.7.1, 50 small graphs of windows from 2 to 16), and so
        does any of a line.
        """
        edge = Edge(node.inputs[0], node.name, 0)
        given = None if self.is_float8(edge) else self.form.scales.get(edge)
        written = {self.form.scales.get(e) for t in node.outputs for e in self.graph.edges_of(t)}
        if given is None or len(written) > 1 or self.pools_floats(node):
            return False
        strides, windows = (set(node.attributes.get(n, (1,))) for n in ("strides", "kernel_shape"))
        counts = node.attributes.get("count_include_pad", 0) == 1
        line = len(self.graph.type_of(node.inputs[0]).shape or ()) < MAP_RANK
        averages = not line and (counts or (strides == {1} and windows in ({3}, {7})))
        if node.op == "MaxPool":  # Of one scale: it passes on what it reads.
            return written <= {given, None}
        return None not in written and averages

    def pools_floats(self, pool: Node) -> bool:
        """Whether it computes in float whatever is quantized: three dimensions of places.

        So do pools behind a DQ that stays there, where a Q has moved to what reads them, or more
        than one of those that something reads besides the Q (60 small graphs).
        """
        if is_volume(self.graph, pool):
            return True
        behind = [edge for tensor in pool.outputs for edge in self.graph.edges_of(tensor)]
        given = Edge(pool.inputs[0], pool.name, 0)
        if given not in self.form.scales or given in self.form.back:
            return False
        floats = [edge for edge in behind if edge not in self.form.scales]
        beside = len(floats) + sum(map(self._pools_twice, floats)) > 1
        return not self.form.back.isdisjoint(behind) or (len(floats) < len(behind) and beside)

    def _pools_twice(self, edge: Edge) -> bool:
        """Whether a MaxPool that reads floats there runs once more for what has a pair."""
        node = self.graph.by_name.get(edge.node)
        if node is None or node.op != "MaxPool":
            return False
        return any(e in self.form.scales for t in node.outputs for e in self.graph.edges_of(t))

    def relink(self, unit: Unit, edge: Edge, writer: Unit) -> None:
        """Let ``unit`` read at ``edge`` what ``writer`` makes of it."""
        for index, (known, old) in enumerate(unit.reads):
            if known == edge:
                if old is not None:
                    old.readers.remove((edge, unit))
                unit.reads[index] = (edge, writer)
                writer.readers.append((edge, unit))

    def link(self, edge: Edge, writer: Unit | None, reader: Unit) -> None:
        """Let ``reader`` read ``edge``, which ``writer`` writes; None for a graph input."""
        reader.reads.append((edge, writer))
        if writer is not None:
            writer.readers.append((edge, reader))

    def edges(self, node: Node) -> tuple[Edge, ...]:
        """Where a node reads what is not constant."""
        return _edges(self.graph, node)

    def reads_integers(self, node: Node) -> bool:
        """Whether both operands of a product have a pair, and there is a kernel for integers."""
        known = self._integers.get(node.name)
        if known is None:
            edges = [Edge(node.inputs[i], node.name, i) for i in (0, 1)]
            known = all(edge in self.form.scales for edge in edges)
            if known and node.op in CONVS and self.is_float8(edges[1]):
                known = not self._is_wide(node)
            self._integers[node.name] = known
        return known

    def is_float8(self, edge: Edge) -> bool:
        """Whether what is quantized at ``edge``, if it is, is FP8."""
        scale = self.form.scales.get(edge)
        return scale is not None and (scale.format or self._integer) == FLOAT8

    def _is_wide(self, conv: Node) -> bool:
        """Whether the window has too many places for kernels of FP8 (13 windows of 1 to 256)."""
        window = (self.graph.type_of(conv.inputs[1]).shape or ())[2:]
        return math.prod(window) > _FLOAT8_WINDOW

    def has_one_scale(self, product: Node) -> bool:
        """Whether all sums of a product have one scale, which its kernel applies."""
        edge = Edge(product.inputs[1], product.name, 1)
        return edge in self._per_tensor or edge.tensor not in self.graph.initializers

    def add_epilogue(self, node: Node, product: Unit) -> None:
        """Append what scales the sums of a product and adds its bias."""
        unit = self.add(node, "pointwise", [], tuple(node.outputs), works=False)
        self.link(Edge(product.outputs[0], node.name, -1), product, unit)

    def sum_of(self, node: Node) -> str:
        """What a product writes for the kernel that scales it."""
        name = f"{node.outputs[0]}/sum"
        self.shaped_as[name] = node.outputs[0]
        return name

    def padded(self, made: tuple[str, ...]) -> tuple[str, ...]:
        """What a product of padded operands writes."""
        name = f"{made[0]}/padded"
        self.shaped_as[name] = made[0]
        return (name,)


@kept
def is_volume(graph: Graph, node: Node) -> bool:
    """Whether what it reads has three dimensions of places or more."""
    return len(graph.type_of(node.inputs[0]).shape or ()) > MAP_RANK


@kept
def _edges(graph: Graph, node: Node) -> tuple[Edge, ...]:
    """Those of the bodies of an If, Loop or Scan too, which are read by the node that has them."""
    return tuple(edge for edge in graph.reads[node.name] if edge.tensor not in graph.initializers)
