"""Predicted layers of placements, as counts of layer signatures.

Layers of one signature do the same work on the same types, so an engine takes the same time for
them wherever they stand: what is measured in one candidate holds for others and other models.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from threading import Lock
from typing import NamedTuple

from placer.graph import Graph, Node
from placer.prediction.layers.conversions import PredictedLayer
from placer.prediction.layers.fixed_properties import FixedProperties
from placer.prediction.layers.prediction import Prediction
from placer.prediction.layers.predictor import KEPT_STEPS, Predictor
from placer.prediction.layers.steps import Step
from placer.prediction.select import AnyPredictor
from placer.prediction.times.work import Work, layer_work
from placer.quantization import Placement
from placer.quantization.placement import Change as PlacementChange


@dataclass(frozen=True)
class Signature:
    """What decides how long a layer takes.

    ``id``: 16 hex digits over operators, attributes, shapes, types and bytes moved. ``kind``: what
    signatures of unequal shapes have in common, by which one tells of the other. ``work``: None for
    a layer that does nothing.
    """

    id: str
    kind: str
    work: Work | None


class Entry(NamedTuple):
    """A layer as it is counted.

    ``key``: unique among the layers of a placement and the same for the same layer of another
    placement. ``signature``: the signature's number. ``node``: index of the first node in the
    model's graph.
    """

    key: tuple[str, ...]
    signature: int
    node: int


class Change(NamedTuple):
    """``sign`` layers of one signature more, at a node."""

    signature: int
    node: int
    sign: int


@dataclass(frozen=True, eq=False)
class PredictedLayers:
    """The layers of one placement."""

    prediction: Prediction = field(repr=False)
    _counts: Counter[int]

    @property
    def layers(self) -> tuple[PredictedLayer, ...]:
        """The layers in execution order."""
        return self.prediction.layers

    @cached_property
    def form(self) -> int:
        """Hash of the motion-normal form; placements of one form are one to the engine."""
        form = self.prediction.form
        formats = frozenset(
            (is_second, edge, scale.format)
            for is_second, edges in enumerate((form.scales, form.second))
            for edge, scale in edges.items()
            if scale.format is not None
        )
        return hash((form.canonical(), formats))

    def counts(self) -> Counter[int]:
        """How many layers there are of each signature number."""
        return self._counts.copy()


class LayerModel:
    """Predicts the layers of placements of one model; numbers signatures as they appear.

    Several threads may use it at once.
    """

    def __init__(self, graph: Graph, predictor: AnyPredictor) -> None:
        self.graph = graph
        self.signatures: list[Signature] = []
        self._predictor = predictor
        self._with_pairs = predictor.with_pairs if isinstance(predictor, Predictor) else predictor
        self._numbers: dict[str, int] = {}
        self._known: dict[tuple[object, ...], int] = {}
        self._numbering = Lock()
        self._entries = lru_cache(maxsize=KEPT_STEPS)(self._count)

    @property
    def spans(self) -> tuple[frozenset[str], ...]:
        """Nodes, by name, of which however many may become one layer."""
        return self._predictor.spans

    @property
    def linked(self) -> tuple[frozenset[str], ...]:
        """By name, nodes of one long layer, and nodes that a pair is next to wherever it moves."""
        return self._predictor.linked

    @property
    def regional(self) -> Predictor | None:
        """The predictor, if it decides region by region; None if it looks at the whole model.

        It predicts as if some activation carried a pair.
        """
        return self._with_pairs if isinstance(self._with_pairs, Predictor) else None

    @property
    def asking(self) -> Predictor | None:
        """The predictor, if layers depend on whether any activation carries a pair."""
        predictor = self._predictor
        if isinstance(predictor, Predictor) and predictor.asks_for_pairs:
            return predictor
        return None

    @property
    def fixed_properties(self) -> FixedProperties | None:
        """What the predictor knows of nodes and tensors; None if changes depend on more."""
        return None if self.regional is None else self.regional.fixed_properties

    def predict(self, placement: Placement, near: PredictedLayers | None = None) -> PredictedLayers:
        """Return the layers of ``placement``.

        ``near``: the layers of a similar placement, from which it takes less time to get there.
        """
        return self._predict(self._predictor, placement, near)

    def with_pairs(self, predicted: PredictedLayers) -> PredictedLayers:
        """The layers that the placement of ``predicted`` had if some activation carried a pair."""
        placement, asking = predicted.prediction.placement, self.asking
        if asking is None or asking.has_pairs(placement):
            return predicted
        return self._predict(self._with_pairs, placement, None)

    def _predict(
        self, predictor: AnyPredictor, placement: Placement, near: PredictedLayers | None
    ) -> PredictedLayers:
        before = near.prediction if near else None
        prediction = predictor.predict(placement, before)
        changed = {i: prediction.steps.get(i) for i in prediction.changed}
        counts = near.counts() if near else Counter()
        for signature, _, sign in self._changes(before.steps if before else {}, changed):
            counts[signature] += sign
        # In order of numbers, so that sums over them do not depend on ``near``.
        sums = Counter({n: counts[n] for n in sorted(+counts)})
        return PredictedLayers(prediction, sums)

    def changes(self, change: PlacementChange, near: PredictedLayers) -> list[Change]:
        """What ``change`` of the placement of ``near`` does to its layers, without their counts.

        ``near``: see ``with_pairs``, as if some activation carried a pair after it, too.
        """
        return self.differences(near, self._with_pairs.vary(near.prediction, change))

    def differences(self, near: PredictedLayers, steps: Mapping[int, Step | None]) -> list[Change]:
        """What layers ``steps``, by position, add to those that ``near`` has instead, or take."""
        return self._changes(near.prediction.steps, steps)

    def _changes(
        self, before: Mapping[int, Step], after: Mapping[int, Step | None]
    ) -> list[Change]:
        """The layers that only one of both has, or has with another signature.

        ``after``: the steps, by position, that are others than those of ``before``.
        """
        old = {e.key: e for i in after if i in before for e in self._entries(before[i])}
        new = {e.key: e for step in after.values() if step is not None for e in self._entries(step)}
        changes = []
        for entries, other, sign in ((old, new, -1), (new, old, 1)):
            for entry in entries.values():
                if entry.key not in other or other[entry.key].signature != entry.signature:
                    changes.append(Change(entry.signature, entry.node, sign))
        return changes

    def _count(self, step: Step) -> tuple[Entry, ...]:
        return tuple(
            Entry(_key(layer), self.number(layer), self._node(layer)) for layer in step.layers
        )

    def number(self, predicted: PredictedLayer) -> int:
        """The signature number of a layer."""
        layer = predicted.layer
        key = (layer.name, layer.op, layer.kind, layer.inputs, layer.outputs)
        number = self._known.get(key)
        if number is None:
            signature = _signature(predicted, self.graph)
            with self._numbering:
                number = self._numbers.setdefault(signature.id, len(self.signatures))
                if number == len(self.signatures):
                    self.signatures.append(signature)
            self._known[key] = number
        return number

    def _node(self, predicted: PredictedLayer) -> int:
        """The position of a layer's first node, else of what writes or reads a tensor of it."""
        # By name: where the given shapes settle nodes, the predictor numbers the others anew.
        # Of a layer without nodes, those named are the ones whose weights it prepares.
        names = [node.name for node in predicted.nodes] or list(predicted.layer.nodes)
        edges = predicted.edges[:1]
        for name in names or [edge.node for edge in edges]:
            if name in self.graph.by_name:
                return self.graph.by_name[name].index
        # A graph output, or Casts that the engine inserts.
        written = [tensor for node in predicted.nodes for tensor in node.outputs]
        tensors = [*written, *(edge.tensor for edge in edges)]
        producers = (self.graph.producer[t] for t in tensors if t in self.graph.producer)
        readers = (e.node for t in tensors for e in self.graph.edges_of(t) if not e.is_graph_output)
        near = (*producers, *(self.graph.by_name[name] for name in readers))
        return near[0].index if near else 0


def _key(predicted: PredictedLayer) -> tuple[str, ...]:
    # No node's name is empty, so no conversion is taken for a layer of nodes.
    # Generated kernels may have the same nodes; their names tell them apart.
    nodes = predicted.layer.nodes
    return (
        (*nodes, predicted.layer.name)
        if nodes
        else ("", predicted.layer.name, str(predicted.ordinal))
    )


def _signature(predicted: PredictedLayer, graph: Graph) -> Signature:
    layer, work = predicted.layer, layer_work(predicted, graph)
    ports = [f"{p.dtype}{graph.type_of(p.tensor).shape}" for p in (*layer.inputs, *layer.outputs)]
    nodes = [_describe(node, graph) for node in predicted.nodes]
    moved = None if work is None else [work.name, work.dtype, work.ops, work.bytes]
    text = json.dumps([layer.op, layer.kind, layer.input_types, ports, nodes, moved])
    kind = layer.kind if work is None else f"{layer.kind} {work.name} {work.dtype}"
    return Signature(hashlib.sha256(text.encode()).hexdigest()[:16], kind, work)


def _describe(node: Node, graph: Graph) -> str:
    attributes = ",".join(f"{k}:{v}" for k, v in sorted(node.attributes.items()))
    return f"{node.op}({attributes})[{[graph.type_of(t).shape for t in node.inputs]}]"
