"""The units of norms."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from placer.graph import Edge, Node
from placer.graph.weights import weight_input
from placer.prediction.kernels.flattened import MATRIX_RANK, batches
from placer.prediction.kernels.full_precision import is_mean_of_squares
from placer.prediction.kernels.norms import (
    GroupNorm,
    group_norms,
    is_of_groups,
    normalizes_groups,
)
from placer.prediction.kernels.parts import NORMED, NORMS, PRODUCTS, SQUARES, Unit, role_of
from placer.prediction.kernels.reductions import (
    is_large,
    reduction,
    reduction_axes,
    sums_places,
)
from placer.prediction.kernels.rows import Rows
from placer.prediction.kernels.views import readers_of
from placer.prediction.kernels.wiring import UnitGraph

_VIEWED_BACK = 3  # Nodes of a GroupNorm without a factor and a sum.


class NormUnits:
    """Adds the units of norms and sums of squares; ``rows``: which of them are moved behind.

    ``half``: whether what norms read is cast to FP32. ``of_groups``: GroupNorms that are known as
    such, by name of each node.
    """

    def __init__(self, made: UnitGraph, rows: Rows, half: bool) -> None:
        self._made, self._rows, self._half = made, rows, half
        self._graph, self._form = made.graph, made.form
        self.of_groups = self._group_norms()

    def add(self, node: Node) -> bool:
        """Add the units of ``node``; False if it is none of these, or one unit as others are."""
        if self._half and self._is_of_matrix(node):
            cast = self._made.add(node, "pointwise", self._made.edges(node), node.inputs[:1], False)
            cast.names, cast.casts = (node,), True
        if node.name in self.of_groups:
            norm = self.of_groups[node.name]
            if node is norm.nodes[-1]:
                self._add_group_norm(norm)
        elif node.op == "InstanceNormalization" and not is_of_groups(self._graph, node):
            self._add_instance_norm(node)
        elif normalizes_groups(self._graph, node):
            summed = self._made.add(node, "reduce", self._made.edges(node), tuple(node.outputs))
            summed.alone = not self._is_only_rounded_behind(node)
        elif node.op == "LRN":
            self._add_response_norm(node)
        elif len(self._siblings(node)) > 1:
            if node is self._siblings(node)[0]:
                self._add_siblings(self._siblings(node))
        elif node.op in NORMS and reduction(self._graph, node).is_shared:
            self._add_norm(node, self._add_mean(node))
        elif self._rows.are_split(node) or (
            node.op == "InstanceNormalization" and not reduction(self._graph, node).is_kept
        ):
            self._add_norm(node)
        else:
            return self._add_sums_of_squares(node)
        return True

    def _is_only_rounded_behind(self, norm: Node) -> bool:
        """Whether a pair is behind a norm of groups and none before it.

        Its kernel computes what follows then (six small graphs).
        """
        before = any(edge in self._form.scales for edge in self._made.edges(norm)[:1])
        behind = self._graph.edges_of(norm.outputs[0])
        return not before and any(edge in self._form.scales for edge in behind)

    def _add_sums_of_squares(self, node: Node) -> bool:
        """Add units of sums or means of squares; False if it is none, or one unit as others are."""
        if node.op in SQUARES:
            self._add_squares(node)
        elif self._is_modulated_mean(node):
            self._add_mean_of_squares(node)
        else:
            return False
        return True

    def is_whole(self, unit: Unit) -> bool:
        """Whether it is a GroupNorm in one kernel, which uses memory that is cleared before."""
        norm = self.of_groups.get(unit.node.name)
        return unit.role == "norm" and norm is not None and norm.whole

    def _is_of_matrix(self, norm: Node) -> bool:
        """Whether a product writes the rows that are normed, which are a map's, as one matrix.

        The norm is of the map, and its cast to FP32 is in the product's kernel, as in SwinV2 (16
        small graphs).
        """
        rank = len(self._graph.type_of(norm.inputs[0]).shape or ()) if norm.inputs else 0
        if norm.op != "LayerNormalization" or rank <= MATRIX_RANK:
            return False
        node: Node | None = norm
        while node is not None and not (node.op in PRODUCTS and len(self._made.edges(node)) == 1):
            edges = self._made.edges(node)
            if len(edges) != 1 or (node is not norm and role_of(node) != "pointwise"):
                return False
            read = [*self._graph.edges_of(edges[0].tensor)]
            if edges[0] in self._form.scales or len(read) > 1:
                return False
            node = self._graph.producer.get(edges[0].tensor)
        if node is None or self._made.reads_integers(node):
            return False
        return batches(self._graph, node) == 1

    def writes(self, tensor: str) -> bool:
        """Whether a kernel for InstanceNorm writes it."""
        writer = self._made.writer.get(tensor)
        return writer is not None and writer.role == "norm" and not self.is_whole(writer)

    def _siblings(self, norm: Node) -> Sequence[Node]:
        """The LayerNormalizations of the same rows, in order, which are one kernel (15 graphs).

        Parallel residuals have two, and what takes features of a transformer's blocks.
        """
        if norm.op != "LayerNormalization" or reduction(self._graph, norm).is_shared:
            return ()
        edges = self._graph.edges_of(norm.inputs[0])
        nodes = [self._graph.by_name[e.node] for e in edges if e.node and not e.input_index]
        same = [n for n in nodes if n.op == norm.op and _axis(n) == _axis(norm)]
        quantized = any(edge in self._form.scales for edge in edges)
        return () if quantized else sorted(same, key=lambda node: node.index)

    def _add_siblings(self, norms: Sequence[Node]) -> None:
        """One unit for several norms, or two where rows of any of them are moved then."""
        first, made = norms[0], tuple(tensor for node in norms for tensor in node.outputs[:1])
        if any(map(self._rows.are_split, norms)):
            scaled = self._add_norm(first)
            for _, sums in scaled.reads:
                if sums is not None:
                    sums.names = norms[-1:]
            scaled.outputs = made
            self._made.writer.update(dict.fromkeys(made, scaled))
        else:
            scaled = self._made.add(first, "reduce", self._made.edges(first), made)
        scaled.names = norms

    def _add_mean(self, node: Node) -> Edge:
        """The mean of a long norm, which a kernel of its own takes; returns what reads it."""
        mean = self._made.add(node, "reduce", self._made.edges(node), (f"{node.outputs[0]}/mean",))
        return Edge(mean.outputs[0], node.name, NORMED)

    def _add_norm(self, node: Node, mean: Edge | None = None) -> Unit:
        """A norm in two kernels: mean and variance, in FP32; scaling, with what follows."""
        edges = self._made.edges(node) if mean is None else [mean]
        sums = self._made.add(node, "reduce", edges, (f"{node.outputs[0]}/norm",))
        scaled = self._made.add(node, "pointwise", [], tuple(node.outputs), works=False)
        self._made.link(Edge(sums.outputs[0], node.name, NORMED), sums, scaled)
        return scaled

    def _is_modulated_mean(self, node: Node) -> bool:
        """Whether it is the mean of squares of rows that a row scales or shifts then."""
        if not is_mean_of_squares(self._graph, node):
            return False
        rank = len(self._graph.type_of(node.inputs[0]).shape or ())
        rows = reduction_axes(self._graph, node) == (rank - 1,)
        return rows and self._rows.are_modulated(node)

    def _add_mean_of_squares(self, node: Node) -> None:
        """The mean, in FP32, by a kernel that passes on what another one scales."""
        scaled = self._add_norm(node)
        ((_, sums),) = scaled.reads
        passed_on = f"{node.inputs[0]}/passed_on"
        self._made.shaped_as[passed_on] = node.inputs[0]
        if sums is not None:
            sums.outputs = (*sums.outputs, passed_on)
        self._made.link(Edge(passed_on, node.name, 0), sums, scaled)
        scaled.names = ()

    def _add_squares(self, node: Node) -> None:
        """Sums of squares, in FP32; but for those of rows, what reads them is another kernel.

        So it is for rows that are moved then.
        """
        axes = reduction_axes(self._graph, node)
        rank = len(self._graph.type_of(node.inputs[0]).shape or ())
        rows = axes in ((rank - 1,), (1,) if rank > 3 else (1, 2))
        if rows and not self._is_rooted_apart(node):  # Channels of maps are innermost.
            self._made.add(node, "reduce", self._made.edges(node), tuple(node.outputs))
            return
        edges = self._made.edges(node)
        turns = sums_places(self._graph, node) and is_large(self._graph, node.inputs[0])
        if turns:  # The kernel before squares a large map and turns it.
            squared = (f"{node.outputs[0]}/squares",)
            self._made.add(node, "move", edges, squared, works=False).names = (node,)
            edges = (Edge(squared[0], node.name, NORMED),)
        scaled = self._add_norm(node, edges[0] if turns else None)
        if turns or node.op != "ReduceL2":  # Without a root, nothing of it is left to do.
            scaled.names = ()

    def _is_rooted_apart(self, node: Node) -> bool:
        """Whether sums of squares of rows are left to another kernel, which takes the root.

        It is so where rows are moved then, for a single row, and where the kernel of the sums makes
        the rows as well and the roots are expanded, as PyTorch's ``normalize`` does (60 graphs).
        """
        writer = self._made.writer.get(node.inputs[0])
        computed = writer is not None and not self._is_of_product(writer)
        if self._rows.are_scaled_and_moved(node):
            return True
        if self._is_expanded(node):
            return computed
        return reduction(self._graph, node).rows == 1 and not computed and writer is not None

    def _is_of_product(self, writer: Unit) -> bool:
        """Whether a product or pool writes it, or what is computed of it element by element.

        What scales the sums of integers computes it itself, and what reads one of several products
        of the same tensor, which are one kernel.
        """
        if writer.role in ("product", "pool"):
            return not writer.leaves_sums
        if writer.role == "reduce":
            return writer.node.op in PRODUCTS
        before = [source for _, source in writer.reads if source is not None]
        joint = any(b.role == "product" and self._is_joint(b.node) for b in before)
        return writer.role == "pointwise" and not joint and any(map(self._is_of_product, before))

    def _is_joint(self, product: Node) -> bool:
        readers = readers_of(self._graph, product.inputs[0])
        weighted = [r for r in readers if r.op in PRODUCTS and weight_input(self._graph, r)]
        return product.op in PRODUCTS and len(weighted) > 1

    def _is_expanded(self, node: Node) -> bool:
        """Whether what is summed, or limited then, is expanded before anything else reads it."""
        reader = self._graph.sole_reader(node.outputs[0])
        if reader is None or reader.op == "Expand":
            return reader is not None
        return reader.op in ("Clip", "Add", "Max") and self._is_expanded(reader)

    def _group_norms(self) -> Mapping[str, GroupNorm]:
        """Those that no pair cuts, up to the factor or the sum with a pair (12 small graphs)."""
        found = {id(norm): norm for norm in group_norms(self._graph).values()}
        kept = [self._until_pair(norm) for norm in found.values()]
        return {node.name: norm for norm in kept if norm is not None for node in norm.nodes}

    def _until_pair(self, norm: GroupNorm) -> GroupNorm | None:
        """Its nodes before the first with a pair of its own; None if it is no norm then."""
        given = self._form.given
        quantized = [
            any(edge in given for edge in self._made.edges(node)) for node in norm.nodes[1:]
        ]
        count = 1 + (*quantized, True).index(True)
        return replace(norm, nodes=norm.nodes[:count]) if count >= _VIEWED_BACK else None

    def _add_group_norm(self, norm: GroupNorm) -> None:
        """A GroupNorm: one kernel, or the one for InstanceNorm between two generated ones."""
        first, last = norm.nodes[0], norm.nodes[-1]
        if norm.whole:
            self._made.add(
                last, "norm", self._made.edges(first), tuple(last.outputs)
            ).names = norm.nodes
            return
        turned = self._made.add(
            first, "move", self._made.edges(first), tuple(first.outputs), works=False
        )
        summed = self._made.add(norm.nodes[1], "norm", self._made.edges(norm.nodes[1]), ())
        scaled = self._made.add(last, "pointwise", [], tuple(last.outputs), works=False)
        self._made.link(Edge(norm.nodes[1].outputs[0], last.name, 0), summed, scaled)
        turned.alone = scaled.alone = (
            norm.viewed
        )  # Neither is computed as the line is (six graphs).
        for unit in (turned, summed, scaled):
            unit.names = norm.nodes

    def _add_instance_norm(self, node: Node) -> None:
        """Its kernel reads maps whose channels are stored first: what a Conv writes is turned."""
        self._turn(self._made.edges(node)[0])
        self._made.add(node, "norm", self._made.edges(node), tuple(node.outputs))

    def _add_response_norm(self, node: Node) -> None:
        """LRN: squares, their sum over channels next to each other, and what divides by that.

        In FP32, which what comes before casts to as well (eight small graphs).
        """
        (given,) = self._made.edges(node)
        squares, cast, sums = (f"{node.outputs[0]}/{n}" for n in ("squares", "given", "sums"))
        self._made.shaped_as.update(dict.fromkeys((squares, cast, sums), node.outputs[0]))
        made = (squares, cast) if self._half else (squares,)
        squared = self._made.add(node, "move", [given], made)
        summed = self._made.add(node, "pool", [given._replace(tensor=squares)], (sums,))
        squared.casts = summed.casts = True
        read = given._replace(tensor=cast) if self._half else given
        edges = [read, Edge(sums, node.name, NORMED)]
        self._made.add(node, "pointwise", edges, tuple(node.outputs))

    def _turn(self, edge: Edge) -> None:
        """A kernel without a node's name that stores a map otherwise for who reads it next."""
        writer = self._made.writer.get(edge.tensor)
        if writer is not None and not writer.generated:
            self._made.add(writer.node, "move", [edge], (edge.tensor,), works=False).names = ()


def _axis(norm: Node) -> int:
    return int(norm.attributes.get("axis", -1))
