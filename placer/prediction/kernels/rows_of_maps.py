"""Maps of float Convs that products of activations read, and so as rows.

A Conv's kernel stores channels last. What a product reads of it is copied by a kernel of its own:
it has the name of the Reshape that makes the rows, or none where a Transpose turns them, or where
nothing does either.

Evidence: layers that the builder of TensorRT-RTX 1.7.1 logs for sm89, of 25 small graphs that
reshape and turn maps for one or two products, and of SHViT and EfficientViT.
"""

from __future__ import annotations

from placer.graph import Edge, Graph
from placer.graph.transposes import order_of
from placer.graph.weights import weight_input
from placer.prediction.kernels.groups import Groups
from placer.prediction.kernels.parts import MAP_RANK, VIEWS, Unit, multiplies_weight
from placer.prediction.kernels.views import SWAPPED
from placer.prediction.layers.motion import NormalForm

_RANK = 3  # Heads are moved by kernels that are named after what moves them.


class RowsOfMaps:
    """Adds what copies maps for products to the kernels of one placement."""

    def __init__(self, groups: Groups) -> None:
        self._groups, self._made = groups, groups.made
        self._graph, self._form = groups.made.graph, groups.made.form

    def add(self) -> None:
        """Add or name the copies; each map is copied once."""
        made: dict[str, Unit] = {}
        ordered: list[Unit] = []
        for unit in self._groups.units:
            for edge, writer in list(unit.reads) if self._multiplies(unit) else ():
                if writer is None or edge in self._form.scales:
                    continue
                if writer.role == "move":
                    self._copy_in(writer)
                elif self._is_map(writer) and self._is_of(edge, writer):
                    if edge.tensor not in made:
                        made[edge.tensor] = self._copy(edge, writer)
                        ordered.append(made[edge.tensor])
                    self._made.relink(unit, edge, made[edge.tensor])
                    unit.views = tuple(v for v in unit.views if edge.tensor not in v.outputs)
            ordered.append(unit)
        self._groups.reorder([unit for unit in ordered if not self._is_replaced(unit)])

    def _multiplies(self, unit: Unit) -> bool:
        """Whether it is a float product of activations that is no attention in one kernel."""
        if unit.role != "product" or unit.integers or unit.node.op != "MatMul":
            return False
        rank = len(self._graph.type_of(unit.node.outputs[0]).shape or ())
        weighted = weight_input(self._graph, unit.node) is not None
        return rank == _RANK and not weighted and not self._made.is_mha(unit)

    def _is_map(self, writer: Unit) -> bool:
        return any(self._groups.writes_map(tensor, writer) for tensor in writer.outputs)

    def _is_of(self, edge: Edge, writer: Unit) -> bool:
        """Whether views alone lie between what ``writer`` makes and what is read."""
        tensor = edge.tensor
        while tensor not in writer.outputs:
            node = self._graph.producer.get(tensor)
            if node is None or node.op not in (*VIEWS, "Transpose"):
                return False
            tensor = node.inputs[0]
        return True

    def _copy(self, edge: Edge, writer: Unit) -> Unit:
        copy = Unit(0, writer.node, "move", False, (edge.tensor,), names=(), alone=True)
        self._groups.start(copy)
        self._made.link(edge, writer, copy)
        return copy

    def _copy_in(self, view: Unit) -> None:
        """Let a Reshape of a map be the copy, or the Transpose behind it."""
        if view.names is not None or len(view.reads) != 1:
            return
        edge, writer = view.reads[0]
        turns = view.node.op == "Transpose"
        if turns and writer is not None and writer.role == "move" and writer.node.op in VIEWS:
            edge, writer = writer.reads[0]
        if writer is None or edge in self._form.scales or not self._is_map(writer):
            return
        if not turns and view.node.op not in VIEWS:
            return
        view.names, view.alone = () if turns else (view.node,), True
        if turns:
            self._made.relink(view, view.reads[0][0], writer)

    def _is_replaced(self, unit: Unit) -> bool:
        """Whether nothing reads a Reshape any more, as its map is turned; it is taken away."""
        kept = unit.readers or set(unit.outputs) & set(self._graph.outputs)
        if kept or unit.role != "move" or unit.node.op not in VIEWS:
            return False
        for edge, writer in unit.reads:
            if writer is not None:
                writer.readers.remove((edge, unit))
        del self._groups.by_number[unit.group]
        return True


def makes_rows(graph: Graph, form: NormalForm, unit: Unit) -> bool:
    """Whether ``unit`` flattens one sample's map whose rows products with weights alone read.

    The kernel that turns it computes the activation of a Conv then; one that the Conv's own
    prepared kernel knows stays there (30 small graphs).
    """
    shape = graph.type_of(unit.node.inputs[0]).shape or ()
    if unit.node.op not in VIEWS or len(shape) != MAP_RANK or shape[0] != 1:
        return False
    turns = [reader for _, reader in unit.readers]
    read = [(edge, reader) for turn in turns for edge, reader in turn.readers]
    return (
        bool(read)
        and all(order_of(graph, turn.node) == SWAPPED for turn in turns)
        and all(
            reader.role == "product"
            and edge not in form.scales
            and multiplies_weight(graph, reader.node)
            for edge, reader in read
        )
    )
