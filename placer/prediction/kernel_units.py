"""What generated kernels consist of: nodes, or parts of them, and who reads whose output."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from placer.graph import Edge, Graph, Node
from placer.graph.weights import weight_input
from placer.prediction.claims import FLOAT
from placer.prediction.conversions import type_name
from placer.prediction.kernel_attention import is_padded
from placer.prediction.kernel_norms import GroupNorm, group_norms, is_of_groups
from placer.prediction.kernel_parts import (
    CONVS,
    CUT,
    EVEN_CHANNELS,
    NORMED,
    NORMS,
    PRODUCTS,
    SQUARES,
    TINY_CHANNELS,
    Role,
    Unit,
    role_of,
)
from placer.prediction.kernel_views import FanOut, fan_outs, free_nodes, is_split_norm
from placer.prediction.motion import NormalForm
from placer.prediction.reductions import reduction, reduction_axes


class Units:
    """The units of one placement.

    ``base``: ONNX name of the type of float tensors inside the engine. ``whole``: by name of a
    node, the attention that it is part of. ``shaped_as``: by name of a sum, the tensor whose shape
    it has.
    """

    def __init__(
        self,
        graph: Graph,
        form: NormalForm,
        attentions: Mapping[str, tuple[Node, ...]],
        base: str,
    ) -> None:
        self.graph, self.form, self._base = graph, form, base
        self.units: list[Unit] = []
        self._writer: dict[str, Unit] = {}
        self._views: dict[str, tuple[Node, ...]] = {}
        self._free, self._fans = free_nodes(graph, form.scales), fan_outs(graph)
        self.whole = {n.name: nodes for nodes in attentions.values() for n in nodes}
        self._apart = {n.name: fan for fan in self._fans.values() for n in (*fan.chain, *fan.tails)}
        self.shaped_as: dict[str, str] = {}
        self.group_norms = self._group_norms()
        self._add_units()
        for unit in self.units:
            unit.group = unit.index

    def _add_units(self) -> None:
        for tensor in self.graph.inputs:
            self._add_input_cast(tensor)
        for node in self.graph.nodes:
            if node.name in self._free:
                self._pass_on(node)
            elif self._is_strided(node):
                self._writer[node.outputs[0]] = self._writer[node.inputs[0]]
            elif node.name in self._apart:
                self._add_apart(node, self._apart[node.name])
            elif node.name in self.whole and self._is_whole(self.whole[node.name]):
                nodes = self.whole[node.name]
                if node is nodes[-1]:
                    self._add_attention(nodes)
            elif node.name in self.group_norms:
                norm = self.group_norms[node.name]
                if node is norm.nodes[-1]:
                    self._add_group_norm(norm)
            else:
                self._add_node(node)
        for index, tensor in enumerate(self.graph.outputs):
            writer = self._writer.get(tensor)
            if writer is not None and self._is_cast(tensor):
                self._add(writer.node, "cast", [Edge(tensor, "", index)], (), works=False)

    def _add_node(self, node: Node) -> None:
        """The units of a node that is seen for itself."""
        if node.op in CONVS and self._is_tiny(node):
            self._add(node, "pointwise", self._edges(node), tuple(node.outputs))
        elif node.op in CONVS:
            self._add_convolution(node)
        elif node.op in PRODUCTS:
            self._add_product(node)
        elif node.op == "InstanceNormalization" and not is_of_groups(self.graph, node):
            self._add_instance_norm(node)
        elif node.op == "InstanceNormalization" and self._channels_of(node) > 1:
            self._add(node, "reduce", self._edges(node), tuple(node.outputs)).alone = True
        elif node.op in NORMS and reduction(self.graph, node).is_shared:
            self._add_norm(node, self._add_mean(node))
        elif is_split_norm(self.graph, node, self._free) or (
            node.op == "InstanceNormalization" and not reduction(self.graph, node).is_kept
        ):
            self._add_norm(node)
        elif node.op in SQUARES:
            self._add_squares(node)
        elif node.op == "Split":
            for tensor in node.outputs:
                self._add(node, "move", self._edges(node), (tensor,))
        else:
            self._add(node, role_of(node), self._edges(node), tuple(node.outputs))

    def _pass_on(self, node: Node) -> None:
        """Let the readers of a view read what it is of."""
        given, made = node.inputs[0], node.outputs[0]
        named = (node,) if node.op == "Transpose" else ()
        writer = self._writer.get(given)
        if writer is not None:
            self._writer[made] = writer
            if writer.role == "pointwise":  # What scales the sums of an INT8 Conv writes tokens.
                writer.views += named
                named = ()
        self._views[made] = (*self._views.get(given, ()), *named)

    def _add_apart(self, node: Node, fan: FanOut) -> None:
        """The units of one branch of a joint product, when its last node comes."""
        if node not in fan.tails:
            return
        first = fan.chain[0] if fan.chain else node
        source = next(t for t in first.inputs if t in self._writer)
        for tensor in node.outputs:
            writer = self._writer[source]
            for part in (*fan.chain, node):
                made = (tensor,) if part is node else tuple(part.outputs)
                unit = Unit(len(self.units), part, role_of(part), True, made)
                self.units.append(unit)
                edges = self._edges(part)
                self.link(edges[0], writer, unit)
                writer = unit
            self._writer[tensor] = writer

    def _add_mean(self, node: Node) -> Edge:
        """The mean of a long norm, which a kernel of its own takes; returns what reads it."""
        mean = self._add(node, "reduce", self._edges(node), (f"{node.outputs[0]}/mean",))
        return Edge(mean.outputs[0], node.name, NORMED)

    def _add_norm(self, node: Node, mean: Edge | None = None) -> Unit:
        """A norm in two kernels: mean and variance, in FP32; scaling, with what follows."""
        edges = self._edges(node) if mean is None else [mean]
        sums = self._add(node, "reduce", edges, (f"{node.outputs[0]}/norm",))
        scaled = self._add(node, "pointwise", [], tuple(node.outputs), works=False)
        self.link(Edge(sums.outputs[0], node.name, NORMED), sums, scaled)
        return scaled

    def _add_squares(self, node: Node) -> None:
        """Sums of squares, in FP32; but for those of rows, what reads them is another kernel."""
        axes = reduction_axes(self.graph, node)
        rank = len(self.graph.type_of(node.inputs[0]).shape or ())
        if axes in ((rank - 1,), (1,) if rank > 3 else (1, 2)):  # Channels of maps are innermost.
            self._add(node, "reduce", self._edges(node), tuple(node.outputs))
            return
        scaled = self._add_norm(node)
        if node.op != "ReduceL2":  # Without a root, nothing of it is left to do.
            scaled.names = ()

    def _group_norms(self) -> Mapping[str, GroupNorm]:
        """Those without a pair inside."""
        found = group_norms(self.graph)
        inside = {id(n): self._inside(n) for n in found.values()}
        return {
            name: norm
            for name, norm in found.items()
            if not any(edge in self.form.scales for edge in inside[id(norm)])
        }

    def _inside(self, norm: GroupNorm) -> list[Edge]:
        """The edges between its nodes; a pair before the first may have moved past it."""
        given, moved = (self._edges(node)[0] for node in norm.nodes[:2])
        edges = [edge for node in norm.nodes[2:] for edge in self._edges(node)]
        same = self.form.scales.get(given) == self.form.scales.get(moved)
        return edges if same else [moved, *edges]

    def _add_group_norm(self, norm: GroupNorm) -> None:
        """A GroupNorm: one kernel, or the one for InstanceNorm between two generated ones."""
        first, last = norm.nodes[0], norm.nodes[-1]
        if norm.whole:
            self._add(last, "norm", self._edges(first), tuple(last.outputs)).names = norm.nodes
            return
        turned = self._add(first, "move", self._edges(first), tuple(first.outputs), works=False)
        summed = self._add(norm.nodes[1], "norm", self._edges(norm.nodes[1]), ())
        scaled = self._add(last, "pointwise", [], tuple(last.outputs), works=False)
        self.link(Edge(norm.nodes[1].outputs[0], last.name, 0), summed, scaled)
        for unit in (turned, summed, scaled):
            unit.names = norm.nodes

    def _add_instance_norm(self, node: Node) -> None:
        """Its kernel reads maps whose channels are stored first: what a Conv writes is turned."""
        self._turn(self._edges(node)[0])
        self._add(node, "norm", self._edges(node), tuple(node.outputs))

    def _channels_of(self, node: Node) -> int:
        return (self.graph.type_of(node.inputs[0]).shape or (0, 0))[1]

    def _turn(self, edge: Edge) -> None:
        """A kernel without a node's name that stores a map otherwise for who reads it next."""
        writer = self._writer.get(edge.tensor)
        if writer is not None and not writer.generated:
            self._add(writer.node, "move", [edge], (edge.tensor,), works=False).names = ()

    def _is_normed(self, tensor: str) -> bool:
        """Whether a kernel for InstanceNorm writes it."""
        writer = self._writer.get(tensor)
        return writer is not None and writer.role == "norm" and not self.is_whole_norm(writer)

    def is_whole_norm(self, unit: Unit) -> bool:
        """Whether it is a GroupNorm in one kernel, which uses memory that is cleared before."""
        norm = self.group_norms.get(unit.node.name)
        return unit.role == "norm" and norm is not None and norm.whole

    def _is_cast(self, tensor: str) -> bool:
        """Whether a tensor of the graph's interface has another float type inside the engine."""
        return self._base != FLOAT and type_name(self.graph, tensor) == FLOAT

    def _add_input_cast(self, tensor: str) -> None:
        # What a body reads is no input of the node that has the body: no kernel is seen to read it.
        nodes = [n for n in self.graph.nodes if tensor in n.inputs]
        if nodes and self._is_cast(tensor):
            node = nodes[0]
            unit = self._add(node, "cast", [], (tensor,), works=False)
            self.link(Edge(tensor, node.name, -3), None, unit)

    def _is_whole(self, nodes: Sequence[Node]) -> bool:
        """Whether an attention is one kernel: in float, or all of it from INT8 to INT8."""
        edges = [e for n in (nodes[0], nodes[-1]) for e in self._edges(n)]
        count = sum(edge in self.form.scales for edge in edges)
        written = self.graph.edges_of(nodes[-1].outputs[0])
        return not count or (count == len(edges) and all(e in self.form.scales for e in written))

    def _is_tiny(self, node: Node) -> bool:
        """Whether a generated kernel multiplies: few channels, pixel by pixel."""
        shape = self.graph.type_of(node.inputs[0]).shape or ()
        window = (self.graph.type_of(node.inputs[1]).shape or ())[2:]
        single = (1, 1) in (shape[2:], window)
        if node.attributes.get("group", 1) != 1 or self._reads_integers(node):
            return shape[2:] == (1, 1) and shape[1] <= TINY_CHANNELS
        strided = set(node.attributes.get("strides", (1,))) != {1}
        return len(shape) == 4 and single and shape[1] <= TINY_CHANNELS and not strided

    def _add_attention(self, nodes: Sequence[Node]) -> None:
        written = {t for node in nodes for t in node.outputs}
        edges = [e for n in nodes for e in self._edges(n) if e.tensor not in written]
        pads = is_padded(self.graph, nodes[0])
        ends = {edge for node in (nodes[0], nodes[-1]) for edge in self._edges(node)}
        moved: dict[Edge, Unit] = {}
        for edge in edges:
            if pads and edge in ends:
                moved[edge] = self._add(nodes[-1], "move", [edge], (), works=False)
                moved[edge].names = nodes
        made = tuple(nodes[-1].outputs)
        unit = self._add(nodes[-1], "product", edges, self._padded(made) if pads else made)
        unit.integers = any(edge in self.form.scales for edge in edges)
        for edge, move in moved.items():
            self.relink(unit, edge, move)
        if pads:
            cut = self._add(nodes[-1], "move", [], made, works=False)
            self.link(Edge(unit.outputs[0], nodes[-1].name, CUT), unit, cut)
            cut.names = nodes

    def _padded(self, made: tuple[str, ...]) -> tuple[str, ...]:
        """What a product of padded operands writes."""
        name = f"{made[0]}/padded"
        self.shaped_as[name] = made[0]
        return (name,)

    def _is_strided(self, node: Node) -> bool:
        """Whether an attention reads what a product writes, without a bias, where it lies."""
        writer = self._writer.get(node.inputs[0])
        if node.op not in ("Reshape", "Transpose") or writer is None or writer.integers:
            return False
        if writer.role != "product" or writer.node.op != "MatMul" or writer.node.name in self.whole:
            return False
        while node.op in ("Reshape", "Transpose"):
            readers = self.graph.edges_of(node.outputs[0])
            if len(readers) != 1 or not readers[0].node or readers[0] in self.form.scales:
                return False
            node = self.graph.by_name[readers[0].node]
        return node.name in self.whole and self._is_whole(self.whole[node.name])

    def _add_convolution(self, node: Node) -> None:
        edges = self._edges(node)
        integers = node.op == "Conv" and self._reads_integers(node)
        channels = _channels(self.graph, node)
        depthwise = node.op == "Conv" and 1 < node.attributes.get("group", 1) == channels
        uneven = channels % (EVEN_CHANNELS if integers else 2) != 0
        padded = uneven or (integers and depthwise)
        if padded:
            self._add(node, "move", edges[:1], (f"{node.inputs[0]}/{node.name}",), works=False)
        elif not integers and self._is_normed(edges[0].tensor):
            self._add(node, "move", edges[:1], (f"{node.inputs[0]}/{node.name}",), False).names = ()
        first = self.units[-1]
        product = self._add(node, "product", edges, (self._sum(node),))
        product.integers = integers
        product.grouped = node.op == "Conv" and 1 < node.attributes.get("group", 1) < channels
        if first.outputs == (f"{node.inputs[0]}/{node.name}",):
            self.relink(product, edges[0], first)
        self._finish(product, node)

    def _add_product(self, node: Node) -> None:
        shape = self.graph.type_of(node.outputs[0]).shape or ()
        rows = math.prod(shape[:-1]) if shape else 0
        weighted = weight_input(self.graph, node) is not None
        if weighted and not self._reads_integers(node) and (rows == 1 or shape[-1:] == (1,)):
            product = self._add(node, "reduce", self._edges(node), tuple(node.outputs))
            if rows == 1 and len(node.inputs) > 2 and node.inputs[2]:
                product.outputs = (self._sum(node),)
                self._add_epilogue(node, product)
            return
        if not weighted and node.op == "MatMul" and not self._reads_integers(node):
            self._add_odd_product(node)
            return
        edges = self._edges(node)
        pads = weighted and self._pads_columns(node)
        if pads:
            self._add(node, "move", edges[:1], (f"{node.inputs[0]}/{node.name}",), works=False)
        padded = self.units[-1] if pads else None
        product = self._add(node, "product", edges, (self._sum(node),))
        product.integers = self._reads_integers(node)
        if padded is not None:
            self.relink(product, edges[0], padded)
        self._finish(product, node)

    def _pads_columns(self, node: Node) -> bool:
        """Whether what splits or joins an odd number of columns pads them for a product."""
        writer = self._writer.get(node.inputs[0])
        columns = (self.graph.type_of(node.inputs[0]).shape or (0,))[-1]
        if writer is None or writer.node.op not in ("Split", "Concat"):
            return False
        return columns % 2 == 1 and not self._reads_integers(node)

    def _add_odd_product(self, node: Node) -> None:
        """A product of activations: odd rows and columns are padded by kernels of their own."""
        shapes = [self.graph.type_of(t).shape or (0, 0) for t in node.inputs]
        inner, columns = shapes[0][-1] % 2, shapes[1][-1] % 2
        edges = self._edges(node)
        moved = {}
        for edge in edges:
            if inner or (columns and edge.input_index == 1):
                moved[edge] = self._add_alone(node, [edge], ())
        made = tuple(node.outputs)
        product = self._add(node, "product", edges, self._padded(made) if columns else made)
        for edge, move in moved.items():
            self.relink(product, edge, move)
        if columns:
            cut = self._add_alone(node, [], made)
            self.link(Edge(product.outputs[0], node.name, CUT), product, cut)

    def _add_alone(self, node: Node, edges: Sequence[Edge], made: tuple[str, ...]) -> Unit:
        unit = self._add(node, "move", edges, made, works=False)
        unit.names, unit.alone = (node,), True
        return unit

    def _sum(self, node: Node) -> str:
        """What a product writes for the kernel that scales it."""
        name = f"{node.outputs[0]}/sum"
        self.shaped_as[name] = node.outputs[0]
        return name

    def _finish(self, product: Unit, node: Node) -> None:
        biased = product.grouped and len(node.inputs) > 2 and bool(node.inputs[2])
        if (product.integers or biased) and node.name not in self._fans:
            self._add_epilogue(node, product)
        else:
            product.outputs = tuple(node.outputs)
            self._writer[node.outputs[0]] = product

    def _add_epilogue(self, node: Node, product: Unit) -> None:
        edge = Edge(product.outputs[0], node.name, -1)
        unit = self._add(node, "pointwise", [], tuple(node.outputs), works=False)
        self.link(edge, product, unit)

    def _add(
        self,
        node: Node,
        role: Role,
        edges: Sequence[Edge],
        outputs: tuple[str, ...],
        works: bool = True,
    ) -> Unit:
        unit = Unit(len(self.units), node, role, works, outputs)
        if role == "pool":
            unit.integers = self._pools_integers(node)
        self.units.append(unit)
        unit.views = tuple(v for edge in edges for v in self._views.get(edge.tensor, ()))
        for edge in edges:
            self.link(edge, self._writer.get(edge.tensor), unit)
        self._writer.update(dict.fromkeys(outputs, unit))
        return unit

    def _pools_integers(self, node: Node) -> bool:
        """Whether a pool reads and writes integers.

        A MaxPool that is read in integers by some and in float by others runs once for each; an
        AveragePool of another stride than 1 computes in float (TensorRT-RTX 1.7.1, small graphs).
        """
        given = self.form.scales.get(Edge(node.inputs[0], node.name, 0))
        written = {self.form.scales.get(e) for t in node.outputs for e in self.graph.edges_of(t)}
        if given is None or len(written) > 1:
            return False
        strides = node.attributes.get("strides", (1,))
        return node.op == "MaxPool" or (None not in written and set(strides) == {1})

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

    def _edges(self, node: Node) -> list[Edge]:
        constants = self.graph.initializers
        found = [Edge(t, node.name, i) for i, t in enumerate(node.inputs) if t]
        return [edge for edge in found if edge.tensor not in constants]

    def _reads_integers(self, node: Node) -> bool:
        return all(Edge(node.inputs[i], node.name, i) in self.form.scales for i in (0, 1))

    def is_mha(self, unit: Unit) -> bool:
        """Whether the unit is a whole attention."""
        return unit.node.name in self.whole and self._is_whole(self.whole[unit.node.name])


def _channels(graph: Graph, node: Node) -> int:
    shape = graph.type_of(node.inputs[0]).shape
    return shape[1] if shape is not None and len(shape) > 2 else EVEN_CHANNELS
