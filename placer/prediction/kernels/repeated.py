"""Pools and moves that run once more for each pair that reads them.

Evidence: small graphs built by TensorRT-RTX 1.7.1.
"""

from __future__ import annotations

from placer.prediction.kernels.groups import Groups
from placer.prediction.kernels.parts import VIEWS, Unit, is_concat
from placer.prediction.layers.motion import Scale

_WIDE = 128  # Channels of pools that the builder does not take for one.
_MOVED = ("Split", "Slice", "DepthToSpace", "SpaceToDepth", "Pad", "Transpose")
_AGAIN = (*VIEWS, "Transpose")  # Moved once more for what is rounded.


class RepeatedUnits:
    """Adds to the units of one placement those that repeat others for single readers."""

    def __init__(self, groups: Groups) -> None:
        self._groups = groups
        self._graph, self._form = groups.made.graph, groups.made.form

    def add_pools(self) -> None:
        """Let MaxPools of integers run once for each Q that moved before them from a reader.

        A Q that was given is one for all its readers. Pools of fewer channels are one again, as in
        the pooling pyramid of a narrow YOLO (35 small graphs of one to four pools in turn).
        """
        ordered: list[Unit] = []
        for unit in reversed(self._groups.units):
            again = self._repeated(unit) if self._is_wide_pool(unit) else []
            ordered += [unit, *again]
        ordered.reverse()
        self._groups.reorder(ordered)

    def add_moves(self) -> None:
        """Let maps of Convs and pools be cut, turned or padded once more for each pair.

        Where something reads what comes of it without a pair as well: a Q moves before that node
        (360 small graphs).
        """
        ordered: list[Unit] = []
        for unit in self._groups.units:
            ordered.append(unit)
            if unit.role == "move" and unit.node.op in _MOVED and len(unit.reads) == 1:
                ordered += self._moved_for_pairs(unit)
            if unit.role == "move" and unit.node.op in _AGAIN and len(unit.reads) == 1:
                ordered += self._viewed_again(unit)
        self._groups.reorder(ordered)

    def _moved_for_pairs(self, move: Unit) -> list[Unit]:
        """New units of ``move`` for products, pools and Concats that read its integers."""
        ((given, writer),) = move.reads
        if writer is None or given in self._form.scales:
            return []
        if not self._groups.writes_map(given.tensor, writer) or self._cuts_places(move):
            return []
        if all(edge in self._form.scales for edge, _ in move.readers):
            return []
        made: dict[Scale, Unit] = {}
        for edge, reader in list(move.readers):
            scale = self._form.scales.get(edge)
            if scale is None or not (reader.integers or is_concat(reader)):
                continue
            if scale not in made:
                made[scale] = Unit(0, move.node, "move", True, move.outputs, views=move.views)
                self._groups.start(made[scale])
                self._groups.made.link(given, writer, made[scale])
            self._groups.made.relink(reader, edge, made[scale])
        return list(made.values())

    def _viewed_again(self, view: Unit) -> list[Unit]:
        """New units of ``view`` for generated kernels that round what others read as it is.

        A Q moves before a view for each reader by itself; before a Transpose, too, unless a
        generated kernel makes what that turns (144 small graphs).
        """
        ((given, writer),) = view.reads
        rounded = [(e, r) for e, r in view.readers if e in self._form.scales]
        if given in self._form.scales or len(rounded) == len(view.readers):
            return []
        if view.node.op not in VIEWS and self._is_computed_alone(writer):
            return []
        made: dict[Scale, Unit] = {}
        for edge, reader in rounded:
            if not reader.generated or reader.integers or is_concat(reader):
                continue
            scale = self._form.scales[edge]
            if scale not in made:
                made[scale] = Unit(0, view.node, "move", True, view.outputs, views=view.views)
                self._groups.start(made[scale])
                if writer is not None:
                    self._groups.made.link(given, writer, made[scale])
                else:
                    made[scale].reads.append((given, None))
            self._groups.made.relink(reader, edge, made[scale])
        return list(made.values())

    def _is_computed_alone(self, writer: Unit | None) -> bool:
        """Whether a generated kernel computes it, and does not only cast what enters."""
        if writer is None or writer.role == "cast":
            return False
        return all(unit.generated for unit in self._groups.of(writer))

    def _cuts_places(self, move: Unit) -> bool:
        """Whether it cuts out places of a map rather than channels, which was not asked."""
        shapes = [self._graph.type_of(t).shape or () for t in (move.node.inputs[0], *move.outputs)]
        return move.node.op in ("Split", "Slice") and len({shape[2:] for shape in shapes}) > 1

    def _is_wide_pool(self, unit: Unit) -> bool:
        pooled = unit.node.outputs[0] if unit.pools_integers else ""
        shape = self._graph.type_of(pooled).shape if pooled else None
        return shape is not None and len(shape) > 1 and shape[1] >= _WIDE

    def _repeated(self, pool: Unit) -> list[Unit]:
        """New units of ``pool`` for all Qs of its readers but one."""
        moved = [read for read in pool.readers if read[0] in self._form.back]
        if len(moved) == len(pool.readers):
            moved = moved[1:]
        made = []
        for edge, reader in moved:
            unit = Unit(0, pool.node, "pool", True, pool.outputs, integers=True, views=pool.views)
            self._groups.start(unit)
            for given, writer in pool.reads:
                self._groups.made.link(given, writer, unit)
            self._groups.made.relink(reader, edge, unit)
            made.append(unit)
        return made
