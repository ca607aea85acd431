"""Plans as the report shows them: predicted beside actual, float beside optimized."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from placer.plan import Layer, Plan
from placer.plan.diff import diff_plans, with_predicted_names
from placer.plan.diff_result import PlanDiff
from placer.plan.plan import total_us

State = Literal[
    "same", "other type", "other layers", "predicted only", "actual only", "not compared"
]
STATES: tuple[State, ...] = (
    "same",
    "other type",
    "other layers",
    "predicted only",
    "actual only",
    "not compared",
)


@dataclass(frozen=True)
class Row:
    """One line of the table: layers of both plans that do the same, or what only one plan has."""

    state: State
    predicted: tuple[Layer, ...]
    actual: tuple[Layer, ...]

    @property
    def kind(self) -> str:
        """Kind of the first layer."""
        return (*self.predicted, *self.actual)[0].kind


def rows(predicted: Plan | None, actual: Plan | None) -> list[Row]:
    """All layers of both plans, in the order of the predicted one; what only runs comes behind the
    layer that it runs behind.
    """
    if predicted is None or actual is None:
        only = predicted or actual
        layers = () if only is None else only.layers
        left = predicted is not None
        return [Row("not compared", (x,) if left else (), () if left else (x,)) for x in layers]
    actual = with_predicted_names(actual, predicted)
    diff = diff_plans(predicted, actual)
    row_of = _by_predicted(diff)
    ordered = _unique(row_of.get(id(x), _alone(x, "predicted only")) for x in predicted.layers)
    shown = {id(layer) for row in ordered for layer in row.actual}
    behind: dict[int | None, list[Row]] = defaultdict(list)
    last: int | None = None
    for layer in actual.layers:
        if id(layer) in shown:
            last = id(layer)
        else:
            behind[last].append(_alone(layer, "actual only"))
    table = list(behind[None])
    for row in ordered:
        table.append(row)
        for layer in row.actual:
            table += behind[id(layer)]
    return table


def _by_predicted(diff: PlanDiff) -> dict[int, Row]:
    """Rows of the layers that have a counterpart, by the identity of each predicted layer."""
    row_of: dict[int, Row] = {}
    for fusion in diff.fusions:
        row = Row("other layers", fusion.parts, (fusion.whole,))
        row_of.update({id(part): row for part in fusion.parts})
    for split in diff.splits:
        row_of[id(split.whole)] = Row("other layers", (split.whole,), split.parts)
    for pair in (*diff.matched, *diff.other_types):
        state: State = "same" if pair.same_types else "other type"
        row_of[id(pair.predicted)] = Row(state, (pair.predicted,), (pair.actual,))
    for conversion in diff.conversions:
        for one, other in conversion.shared:
            row_of[id(one)] = Row("same", (one,), (other,))
    return row_of


def _alone(layer: Layer, only: State) -> Row:
    """The row of a layer without a counterpart in the other plan; no-ops are not compared."""
    state = only if layer.kind != "no-op" else "not compared"
    return Row(state, (layer,), ()) if only == "predicted only" else Row(state, (), (layer,))


def _unique(rows: Iterable[Row]) -> list[Row]:
    return list({id(row): row for row in rows}.values())


@dataclass(frozen=True)
class Change:
    """Layers that compute the same nodes before and after, and their times in microseconds.

    ``nodes`` is empty for all layers that only convert tensors.
    """

    nodes: tuple[str, ...]
    before: tuple[Layer, ...]
    after: tuple[Layer, ...]

    @property
    def before_us(self) -> float:
        """Time of the float model's layers."""
        return total_us(self.before)

    @property
    def after_us(self) -> float:
        """Time of the optimized model's layers."""
        return total_us(self.after)


def changes(before: Plan, after: Plan) -> list[Change]:
    """Layers of both plans by the nodes that they compute, the longest first; conversions apart."""
    groups = _Groups()
    sides = [[x for x in plan.layers if x.nodes] for plan in (before, after)]
    for layer in (*sides[0], *sides[1]):
        groups.join(layer.nodes)
    nodes: dict[str, dict[str, None]] = defaultdict(dict)
    for layer in (*sides[0], *sides[1]):
        nodes[groups.find(layer.nodes[0])].update(dict.fromkeys(layer.nodes))
    by_group = [_grouped(side, groups) for side in sides]
    changed = [
        Change(tuple(names), *(tuple(side.get(group, ())) for side in by_group))
        for group, names in nodes.items()
    ]
    converting = [tuple(x for x in plan.layers if not x.nodes) for plan in (before, after)]
    if any(converting):
        changed.append(Change((), *converting))
    return sorted(changed, key=lambda change: -max(change.before_us, change.after_us))


def has_times(plan: Plan | None) -> bool:
    """Whether any layer has a time."""
    return plan is not None and any(layer.time_us is not None for layer in plan.layers)


def _grouped(layers: Sequence[Layer], groups: _Groups) -> Mapping[str, list[Layer]]:
    layers_of: dict[str, list[Layer]] = defaultdict(list)
    for layer in layers:
        layers_of[groups.find(layer.nodes[0])].append(layer)
    return layers_of


class _Groups:
    """Disjoint sets of nodes."""

    def __init__(self) -> None:
        self._parent: dict[str, str] = {}

    def find(self, node: str) -> str:
        root = node
        while self._parent.get(root, root) != root:
            root = self._parent[root]
        self._parent[node] = root
        return root

    def join(self, nodes: Sequence[str]) -> None:
        for node in nodes:
            self._parent[self.find(node)] = self.find(nodes[0])
