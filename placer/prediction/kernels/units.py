"""The units of generated kernels: nodes or parts of nodes, and which unit reads which output."""

from __future__ import annotations

import math
from collections.abc import Container, Mapping, Sequence
from dataclasses import replace

from placer.graph import Edge, Graph, Node
from placer.graph.kept import kept
from placer.prediction.kernels.attention import MASKS, scale_behind
from placer.prediction.kernels.attention_units import AttentionUnits
from placer.prediction.kernels.factors import factors
from placer.prediction.kernels.fan_outs import (
    FanOut,
    are_quantized_alike,
    fan_outs,
    has_gelu,
    has_views,
    is_quantized,
    is_quantized_before,
    is_sorted,
)
from placer.prediction.kernels.in_place import InPlace
from placer.prediction.kernels.norm_units import NormUnits
from placer.prediction.kernels.parts import (
    CONVS,
    IN_FLOAT32,
    PLACES,
    POOLS,
    PRODUCTS,
    SORTS,
    VIEWS,
    Unit,
    is_identity,
    role_of,
)
from placer.prediction.kernels.product_units import ProductUnits
from placer.prediction.kernels.reductions import is_written_out, reduction_axes
from placer.prediction.kernels.rows import Rows
from placer.prediction.kernels.scaled_pairs import is_absorbed
from placer.prediction.kernels.shared_operands import Joined
from placer.prediction.kernels.turned_back import turned_back
from placer.prediction.kernels.turned_operands import turned_operands
from placer.prediction.kernels.views import free_nodes, keeps_all
from placer.prediction.kernels.wiring import UnitGraph
from placer.prediction.layers.claims import FLOAT
from placer.prediction.layers.conversions import type_name
from placer.prediction.layers.motion import NormalForm

_ALONE = ("CumSum", "If", "Loop", "Scan")  # Nothing else is generated in their kernels.


class Units(UnitGraph):
    """The units of one placement.

    ``base``: ONNX name of the type of float tensors inside the engine. ``attentions``: those that
    may be one kernel, by name of their first node; ``apart``: products that are
    almost of one. ``float32``: tensors that have not its type;
    ``flat``: names of products of rows that were flattened. ``stored``: types of graph inputs and
    outputs that are integers outside, by tensor. ``branches``: see ``branches_last_first``.
    """

    def __init__(
        self,
        graph: Graph,
        form: NormalForm,
        attentions: Mapping[str, tuple[Node, ...]],
        apart: Container[str],
        base: str,
        float32: frozenset[str],
        flat: frozenset[str],
        stored: Mapping[str, str],
        per_tensor: Container[Edge],
        integer: str,
        branches: Mapping[str, int],
        joined: Mapping[str, Joined],
    ) -> None:
        super().__init__(graph, form, per_tensor, integer)
        self.branches, self._joined = branches, joined
        self._base, self.float32, self.flat, self.stored = base, float32, flat, stored
        self._free = free_nodes(graph, form.scales)
        fans = {
            name: fan
            for name, fan in fan_outs(graph).items()
            if not (self.reads_integers(graph.by_name[name]) and not is_sorted(graph, fan))
            and are_quantized_alike(graph, fan, form.scales)
            and not is_quantized_before(graph, fan, form.given)
        }
        self.made_heads = {name for name, fan in fans.items() if has_views(fan)}
        self._pools: dict[object, Unit] = {}  # By what they are computed of.
        self._means: dict[object, Unit] = {}
        self._halved = {name for name, fan in fans.items() if has_gelu(graph, fan)}
        self._apart = {n.name: fan for fan in fans.values() for n in (*fan.chain, *fan.tails)}
        joint = {name for name, fan in fans.items() if all(n.op != "Add" for n in fan.chain)}
        self._attentions = AttentionUnits(self, attentions, joint)
        self._in_place = InPlace(self, self._attentions, joint)
        turned = turned_back(graph, form.scales, self._attentions.has)
        self._turns = {turn.name for turn in turned.values()}
        self.columns = frozenset(turn.outputs[0] for turn in turned.values())
        self.rows = Rows(graph, self._free, self._attentions.has, self._in_place.are_made_of)
        self._norms = NormUnits(self, self.rows, base != FLOAT)
        self._factors = factors(graph, form, self._attentions.has, apart)
        multiplied = {product.name for product in self._factors.values()}
        self._products = ProductUnits(self, self._norms, fans, multiplied)
        self.is_whole_norm, self.of_groups = self._norms.is_whole, self._norms.of_groups
        self._add_units()
        for unit in self.units:
            unit.group = unit.index
            unit.turned = unit.role == "product" and (
                unit.node.name in turned or self._reads_turned(unit)
            )
            if unit.works or unit.names is not None:
                unit.views += self._factors_of(unit.node)
            if unit.role == "product":
                unit.views += scale_behind(graph, unit.node)

    def _add_units(self) -> None:
        for tensor in self.graph.inputs:
            self._add_input_cast(tensor)
        for node in self.graph.nodes:
            if node.name in self._halved or self._is_constant(node):
                continue
            if node.name in self._free or is_identity(node) or self._keeps_size(node):
                self._pass_on(node)
            elif self._is_no_unit(node):
                self._skip(node)
            elif self._is_pooled_again(node):
                self._pool_once(node)
            elif self._is_averaged_again(node):
                self._average_once(node)
            elif node.name in self._apart:
                self._add_apart(node, self._apart[node.name])
            elif is_written_out(self.graph, node) and not self._has_own_kernel(node):
                self.add(node, "pointwise", self.edges(node), tuple(node.outputs))
            elif not (self._attentions.add(node) or self._norms.add(node)):
                self._add_node(node)
        for index, tensor in enumerate(self.graph.outputs):
            writer = self.writer.get(tensor)
            if writer is not None and self._is_cast(tensor):
                self.add(writer.node, "cast", [Edge(tensor, "", index)], (), works=False)

    def _is_no_unit(self, node: Node) -> bool:
        """Whether the products that read what it makes read what that is made of.

        What some of them read in another type is turned.
        """
        if node.name in turned_operands(self.graph):
            edges = self.graph.edges_of(node.outputs[0])
            return len({self.form.scales.get(edge) for edge in edges}) == 1
        if is_absorbed(self.graph, node, self.form.scales):
            return True
        return node.name in (*self._factors, *self._turns) or self._in_place.has(node)

    def _reads_turned(self, product: Unit) -> bool:
        """Whether a float product reads rows that a Transpose would have turned, as they are.

        Those that another product writes are one matrix all the same.
        """
        turn = self.graph.producer.get(product.node.inputs[0])
        if turn is None or product.integers or turn.name not in turned_operands(self.graph):
            return False
        before = self.graph.producer.get(turn.inputs[0])
        while before is not None and role_of(before) == "pointwise" and before.op not in PRODUCTS:
            before = self.graph.producer.get(before.inputs[0])
        return before is None or before.op not in PRODUCTS

    def _is_constant(self, node: Node) -> bool:
        """Whether it reads constants alone: the builder computes it."""
        return any(node.inputs) and not self.edges(node)

    def _add_node(self, node: Node) -> None:
        """The units of a node that is neither a norm nor part of an attention."""
        joined = self._joined.get(node.name)
        if joined is not None and self._is_one_kernel(joined):
            if node.name == joined.products[0].name:
                self._products.add_joined(joined)
        elif node.op in CONVS:
            self._products.add_convolution(node)
        elif node.op in PRODUCTS:
            self._products.add_matrix_product(node)
        elif node.op in ("Split", "Slice") and (parts := self._products.cuts_matrix(node)):
            self._cut_matrix(node, parts)
        elif node.op == "Split":
            for tensor in node.outputs:
                self.add(node, "move", self.edges(node), (tensor,))
        else:
            cast = self._cast_for(node) if node.op in IN_FLOAT32 and self._base != FLOAT else None
            unit = self.add(node, role_of(node), self.edges(node), tuple(node.outputs))
            if cast is not None:
                self.relink(unit, cast.reads[0][0], cast)
            unit.alone = node.op in _ALONE or (node.op in SORTS and self._sorts_alone(node))
            if node.op == "Expand":
                unit.names = self._expanded(node)
            if unit.role == "pool":
                self._pools[self._pooled_as(node)] = unit
            if node.op == "ReduceMean":
                self._means[self._mean_as(node)] = unit

    def _is_one_kernel(self, joined: Joined) -> bool:
        """Whether none of the products is quantized or part of an attention in one kernel."""
        edges = [edge for product in joined.products for edge in self.edges(product)]
        attends = any(self._attentions.has(product) for product in joined.products)
        return not attends and self.form.scales.keys().isdisjoint(edges)

    def _cast_for(self, node: Node) -> Unit | None:
        """What casts to FP32 for a sort; the sort's kernel does where it can (30 small graphs)."""
        edge = self.edges(node)[0]
        before = self.graph.producer.get(edge.tensor)
        if (
            before is None
            or before.op in IN_FLOAT32
            or not self.graph.type_of(edge.tensor).is_float
        ):
            return None
        return self.add(node, "cast", [edge], (), works=False)

    def _sorts_alone(self, node: Node) -> bool:
        """Whether views and sums are computed before it is sorted (30 small graphs)."""
        writer = self.graph.producer.get(node.inputs[0])
        return writer is not None and (writer.op in VIEWS or role_of(writer) == "reduce")

    def _cut_matrix(self, node: Node, parts: Sequence[Node]) -> None:
        """One unit for ``parts``, when the first of them comes."""
        if node is parts[0]:
            made = tuple(tensor for part in parts for tensor in part.outputs)
            unit = self.add(node, "move", self.edges(node), made)
            unit.alone, unit.names = True, parts

    def _expanded(self, node: Node) -> tuple[Node, ...]:
        """An Expand, with what limits the sums of several rows, which is done anew for each."""
        limit = self.graph.producer.get(node.inputs[0])
        rows = math.prod(self.graph.type_of(node.inputs[0]).shape or (1,))
        if limit is None or limit.op != "Clip" or rows == 1:
            return (node,)
        return limit, node

    def _has_own_kernel(self, node: Node) -> bool:
        """Whether it multiplies integers or is part of an attention that one kernel computes."""
        multiplies = node.op in PRODUCTS and self.reads_integers(node)
        return multiplies or self._attentions.has(node)

    def _keeps_size(self, node: Node) -> bool:
        """Whether it resizes, cuts or pads to the size that there is, and nothing quantizes it."""
        known = node.op in ("Resize", "Slice", "Pad") and keeps_all(self.graph, node)
        if not known or node.outputs[0] in self.graph.outputs:
            return False
        edges = (*self.edges(node)[:1], *self.graph.edges_of(node.outputs[0]))
        return len({self.form.scales.get(e) for e in edges}) == 1

    def _is_pooled_again(self, node: Node) -> bool:
        return node.op in POOLS and self._pooled_as(node) in self._pools

    def _pooled_as(self, node: Node) -> object:
        """What a pool is computed of and how: pools that have it in common are one."""
        attributes = tuple(sorted((k, str(v)) for k, v in node.attributes.items()))
        edges = [(edge.tensor, self.form.scales.get(edge)) for edge in self.edges(node)]
        scales = frozenset(self.form.scales.get(e) for e in self.graph.edges_of(node.outputs[0]))
        return node.op, attributes, scales, *edges

    def _pool_once(self, node: Node) -> None:
        """Let a pool that is like one before be that one, which is named after the last of them."""
        unit = self._pools[self._pooled_as(node)]
        unit.names = (node,)
        self.writer[node.outputs[0]] = unit

    def _is_averaged_again(self, node: Node) -> bool:
        """Whether another mean of the same tensor keeps the dimensions that it takes away."""
        if node.op != "ReduceMean" or self._mean_as(node) not in self._means:
            return False
        known = self._means[self._mean_as(node)].node
        return bool(known.attributes.get("keepdims", 1) != node.attributes.get("keepdims", 1))

    def _mean_as(self, node: Node) -> object:
        """What a mean is taken of, over which axes."""
        edge = self.edges(node)[0]
        return edge.tensor, self.form.scales.get(edge), reduction_axes(self.graph, node)

    def _average_once(self, node: Node) -> None:
        """Let two means be the one that keeps all dimensions; the other is a view where it is read.

        (25 small graphs of means and deviations.)
        """
        unit, made = self._means[self._mean_as(node)], node.outputs[0]
        keeps, view = node, unit.node
        if not node.attributes.get("keepdims", 1):
            keeps, view = unit.node, node
        unit.node, unit.outputs = keeps, (*unit.outputs, made)
        self.writer[made] = unit
        self.views[view.outputs[0]] = (view,)

    def _skip(self, node: Node) -> None:
        """Let the readers of what a node makes read what it is made of."""
        given = self.edges(node)[0].tensor
        for made in node.outputs:
            if given in self.writer:  # Nothing writes a graph input that has the engine's type.
                self.writer[made] = self.writer[given]
            self.views[made] = self.views.get(given, ())

    def _factors_of(self, product: Node) -> tuple[Node, ...]:
        """What multiplies an operand of a product."""
        names = [name for name, multiplied in self._factors.items() if multiplied is product]
        return tuple(self.graph.by_name[name] for name in names)

    def _pass_on(self, node: Node) -> None:
        """Let the readers of a view read what it is of."""
        given, made = node.inputs[0], node.outputs[0]
        named = (node,) if node.op == "Transpose" else ()
        writer = self.writer.get(given)
        if writer is not None:
            self.writer[made] = writer
            cuts = writer.role == "move" and writer.node.op in ("Split", "Slice")
            sources = [w for _, w in writer.reads if w is not None] if cuts else [writer]
            if any(map(self.scales_integers, sources)):  # It writes tokens itself.
                writer.views += named
                named = ()
        self.views[made] = (*self.views.get(given, ()), *named)

    def scales_integers(self, unit: Unit) -> bool:
        """Whether it scales what an INT8 product sums, or computes of that element by element."""
        if unit.role != "pointwise":
            return False
        sources = [writer for _, writer in unit.reads if writer is not None]
        if any(w.role == "product" and w.leaves_sums for w in sources):
            return not unit.works
        return any(map(self.scales_integers, sources))

    def _add_apart(self, node: Node, fan: FanOut) -> None:
        """The units of one branch of a joint product, when its last node comes."""
        if node not in fan.tails:
            return
        first = fan.chain[0] if fan.chain else node
        product = next(self.graph.producer[t] for t in first.inputs if t in self.graph.producer)
        if product.name in self._halved:
            self._add_halves(product, first, node)
            return
        source = next(t for t in first.inputs if t in self.writer)
        biased = any(part.op == "Add" for part in fan.chain)
        for tensor in node.outputs:
            writer = self.writer[source]
            # What quantizes it is called after what is moved (25 graphs), not after columns that
            # are cut out as the product writes them (six graphs).
            quantized = is_quantized(self.graph, tensor, self.form.scales)
            named, cut = quantized and not biased and bool(fan.chain), quantized and not fan.chain
            for part in (*fan.chain, node):
                made = (tensor,) if part is node else tuple(part.outputs)
                unit = Unit(len(self.units), part, role_of(part), True, made)
                if part is first and named:
                    unit.views = (product,)
                if cut:
                    unit.names = ()
                self.units.append(unit)
                edges = self.edges(part)
                self.link(edges[0], writer, unit)
                writer = unit
            self.writer[tensor] = writer

    def _add_halves(self, product: Node, bias: Node, tail: Node) -> None:
        """A product and its bias for each part, which is a part of the weight's columns."""
        for tensor in tail.outputs:
            summed = self.add(
                _part(self.graph, product.name, tensor),
                "product",
                self.edges(product),
                (f"{tensor}/sum",),
            )
            self.shaped_as[summed.outputs[0]] = tensor
            added = self.add(_part(self.graph, bias.name, tensor), "pointwise", [], (tensor,))
            self.link(Edge(summed.outputs[0], bias.name, 0), summed, added)

    def _is_cast(self, tensor: str) -> bool:
        """Whether a tensor of the graph's interface has another float type inside the engine."""
        node = self.graph.producer.get(tensor)
        if node is not None and node.op in SORTS:  # Of maxima the places are integers of 32 bits.
            return node.op in PLACES
        return self._base != FLOAT and self.outside(tensor) == FLOAT

    def outside(self, tensor: str) -> str:
        """ONNX's name of the type that a graph input or output has outside of the engine."""
        return self.stored.get(tensor) or type_name(self.graph, tensor)

    def _add_input_cast(self, tensor: str) -> None:
        # What a body reads is no input of the node that has the body: no kernel is seen to read it.
        # Integers that several nodes read are copied for all of them (12 small graphs).
        nodes = [n for n in self.graph.nodes if tensor in n.inputs]
        read = [node for node in nodes if node.op not in VIEWS]
        copied = len(read) > 1 and not self.graph.type_of(tensor).is_float
        if nodes and (copied or self._is_cast(tensor)):
            node = nodes[0]
            unit = self.add(node, "cast", [], (tensor,), works=False)
            self.link(Edge(tensor, node.name, -3), None, unit)

    def is_mha(self, unit: Unit) -> bool:
        """Whether the unit is a whole attention."""
        return self._attentions.has(unit.node)

    def masks(self, edge: Edge, unit: Unit) -> bool:
        """Whether an attention in one kernel reads what it masks scores with, always in float."""
        return self.is_mha(unit) and self.graph.by_name[edge.node].op in MASKS

    def nodes_of(self, unit: Unit) -> Sequence[Node]:
        """The nodes that a unit computes."""
        return self._attentions.named(unit.node) if self.is_mha(unit) else (unit.node,)


@kept
def _part(graph: Graph, name: str, tensor: str) -> Node:
    """The part of the node called ``name`` that writes ``tensor``."""
    return replace(graph.by_name[name], outputs=(tensor,))
