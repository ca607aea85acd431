"""Predict the kernels of an engine that generates them: TensorRT-RTX.

Its compiler does not choose among prepared fusions. Convolutions and matrix products are kernels of
their own, what follows them fuses into them where they compute in float, and everything else,
quantizing and dequantizing included, is generated: one kernel for all connected nodes between two
products. A Conv that reads INT8 writes FP32, and the kernel behind it scales, adds the bias and
quantizes; so a node may be part of several layers.

Evidence: layers that the builder of TensorRT-RTX 1.7.1 logs for sm89
(benchmarks/plans/tensorrt_rtx.py).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property, lru_cache

from placer.graph import Edge, Graph
from placer.plan import Layer
from placer.prediction.kernels.attention import attentions, kept_apart, repeated
from placer.prediction.kernels.dissolved import dissolved, moved, moved_placement
from placer.prediction.kernels.folded_pads import folded_pads
from placer.prediction.kernels.full_precision import float32_tensors
from placer.prediction.kernels.fusion import Kernels
from placer.prediction.kernels.layers import KernelLayers
from placer.prediction.kernels.order import branches_last_first, depth_first_from_inputs
from placer.prediction.kernels.parts import POOLS, PRODUCTS
from placer.prediction.kernels.same_values import sources
from placer.prediction.kernels.scaled_pairs import number_passages, scaled_pairs
from placer.prediction.kernels.shared_operands import joined_products
from placer.prediction.kernels.units import Units
from placer.prediction.kernels.wiring import is_volume
from placer.prediction.layers.claims import FLOAT
from placer.prediction.layers.conversions import PredictedLayer, type_name
from placer.prediction.layers.layer_candidate import LayerCandidate
from placer.prediction.layers.motion import (
    NormalForm,
    Passage,
    Scale,
    move_pairs,
    scale_of,
    scales_of,
)
from placer.prediction.layers.no_ops import (
    dissolved_for_kernels,
    equal_nodes,
    undone_transposes,
    without_no_ops,
)
from placer.prediction.layers.paired_candidate import PairedCandidate
from placer.prediction.layers.passages import find_links, find_passages, linked_nodes
from placer.prediction.layers.prediction import Prediction
from placer.prediction.layers.shape_constants import with_shapes_folded
from placer.prediction.layers.steps import Step
from placer.quantization import Placement, Range
from placer.quantization.placement import Change
from placer.quantization.scheme import FLOAT8
from placer.rules.matcher import Matches
from placer.rules.schema import Rule
from placer.rules.target import Target

# Products of one tensor are one kernel, equal or not; pools see ``Units``.
_APART = frozenset({*PRODUCTS, *POOLS})
# Descents and remedies try a placement again and again, of few at a time.
_RECENT = 8


class KernelPredictor:
    """Predicts plans of one model; the counterpart of ``Predictor`` for generated kernels.

    ``base``: ONNX name of the type of float tensors inside the engine. ``matches``: of the graph,
    where they are known. ``stored``: see ``BuildTarget``. ``ranges``: what activations are
    quantized with, where that is known.
    """

    def __init__(
        self,
        graph: Graph,
        rules: Sequence[Rule],
        target: Target,
        base: str,
        integer: str,
        matches: Matches | None = None,
        stored: Mapping[str, str] | None = None,
        ranges: Mapping[str, Range] | None = None,
    ) -> None:
        self._model = with_shapes_folded(graph)
        repeated = equal_nodes(self._model, _APART)
        self._left = without_no_ops(
            self._model,
            dissolved_for_kernels,
            repeated,
            folded=folded_pads(self._model),
            undone=undone_transposes(self._model),
        )
        # Of nodes that compute the same, the builder names the last one.
        self._last = {name: twins[-1] for name, twins in self._left.twins.items()}
        self._dissolved = dissolved(self._left.graph)
        given = self._dissolved.graph
        cast = [t for t in given.inputs if base != FLOAT and type_name(given, t) == FLOAT]
        joined = joined_products(given)  # As they are listed.
        self._graph = depth_first_from_inputs(
            given, cast, {name: one.products for name, one in joined.items()}
        )
        self._float32 = float32_tensors(self._model) if base == "float16" else frozenset[str]()
        if matches is None or matches.graph is not self._graph:
            matches = Matches(self._graph)
        self._base, self._integer, self._stored = base, integer, stored or {}
        rules = [rule for rule in rules if target.meets(rule.when)]
        self._attentions = attentions(self._graph, self._float32)
        passages = [*find_passages(matches, rules), *self._gathers(), *self._repeats()]
        self._passages = self._known(sorted(passages, key=self._place))
        self._apart = kept_apart(self._graph, self._float32)
        self._sources = sources(self._graph, ranges or {})
        self._branches = branches_last_first(given)  # As they are listed, not as they run.
        self._joined = joined
        self._predicted = lru_cache(maxsize=_RECENT)(self._predict)

    def _known(self, passages: Sequence[Passage]) -> tuple[Passage, ...]:
        """``passages``, where FP8 does not move past pools, which have it not, and Concats.

        Nothing moves past pools of three dimensions. DQ does not move past a pool that something
        with a pair reads, which has a Q that moves (45 small graphs).
        """
        passages = tuple(p for p in passages if not self._pools_volume(p))
        passages = tuple(replace(p, whole=True) if self._op_of(p) in POOLS else p for p in passages)
        ends = {id(p) for p in passages if self._op_of(p) in (*POOLS, "Concat")}
        if self._integer == FLOAT8:
            return tuple(p for p in passages if id(p) not in ends)
        return tuple(replace(p, without=(FLOAT8,)) if id(p) in ends else p for p in passages)

    def _gathers(self) -> Iterator[Passage]:
        """Gathers of constant places, behind which DQ moves, as of queries, keys and values."""
        for node in self._graph.nodes:
            known = node.op == "Gather" and node.inputs[1] in self._graph.initializers
            made = self._graph.edges_of(node.outputs[0])
            if known and made and not any(edge.is_graph_output for edge in made):
                given = [e for e in self._graph.edges_into(node) if e.input_index == 0]
                if given:
                    yield Passage(tuple(given), tuple(made), backward=False)

    def _repeats(self) -> Iterator[Passage]:
        """What repeats keys and values for groups of heads, past which both Q and DQ move."""
        for nodes in self._attentions.values():
            for node in repeated(self._graph, nodes):
                made = self._graph.edges_of(node.outputs[0])
                if node.op == "Expand":
                    yield Passage((self._graph.edges_into(node)[0],), tuple(made))

    def _place(self, passage: Passage) -> int:
        return self._graph.by_name[passage.before[0].node].index

    def _pools_volume(self, passage: Passage) -> bool:
        node = self._graph.by_name[passage.before[0].node]
        return node.op in POOLS and is_volume(self._graph, node)

    def _op_of(self, passage: Passage) -> str:
        return self._graph.by_name[passage.before[0].node].op

    @property
    def spans(self) -> tuple[frozenset[str], ...]:
        """See ``Predictor.spans``; how far generated kernels reach is not known beforehand."""
        return ()

    @cached_property
    def linked(self) -> tuple[frozenset[str], ...]:
        """See ``Predictor.linked``."""
        linked = linked_nodes(find_links(self._passages, self._graph), self._graph)
        return tuple(names.intersection(self._model.by_name) for names in linked)

    def predict(self, placement: Placement, near: Prediction | None = None) -> Prediction:
        """Predict the plan of ``placement``, which must be of the predictor's graph.

        ``near``: a prediction of this predictor, which the new one's ``changed`` refers to.
        """
        made = self._predicted(placement)
        count = max(len(made.steps), len(near.steps) if near else 0)
        return replace(made, changed=tuple(range(count)))

    def _predict(self, placement: Placement) -> Prediction:
        given = scales_of(placement)
        left = moved_placement(self._left.placed(placement), self._graph)
        scales = scaled_pairs(self._graph, self._scales(left))
        numbers = number_passages(self._graph, scales)
        form = move_pairs(scales, sorted([*self._passages, *numbers], key=self._place))
        units = Units(
            self._graph,
            form,
            self._attentions,
            self._apart,
            self._base,
            self._float32,
            self._dissolved.flat,
            self._stored,
            left.per_tensor,
            self._integer,
            self._branches,
            self._joined,
        )
        kernels = Kernels(units)
        layers = KernelLayers(units, kernels, self._base, self._integer).layers()
        steps = {i: self._step(layer) for i, layer in enumerate(layers)}
        form_of_model = NormalForm(self._of_model(form.scales), self._of_model(form.second))
        return Prediction(placement, given, form_of_model, steps, {})

    def _scales(self, placement: Placement) -> dict[Edge, Scale]:
        """Of each edge with a pair; those of tensors with the same values and range are one."""
        scales: dict[Edge, Scale] = {}
        for group in placement.groups:
            scale = scale_of(group)
            held = frozenset(self._sources.get(tensor, tensor) for tensor in scale.tensors)
            scales.update(dict.fromkeys(group.edges, scale._replace(tensors=held)))
        return scales

    def vary(self, near: Prediction, change: Change) -> Mapping[int, Step | None]:
        """See ``Predictor.vary``; every kernel is predicted anew."""
        after = self.predict(near.placement.changed(change), near)
        return {position: after.steps.get(position) for position in after.changed}

    def _step(self, predicted: PredictedLayer) -> Step:
        """A kernel as a step, with the nodes and edges of the model."""
        layer = predicted.layer
        named = tuple(sorted(self._last.get(n, n) for n in self._dissolved.names(layer.nodes)))
        known = self._model.by_name
        predicted = replace(
            predicted,
            layer=layer if named == layer.nodes else _renamed(layer, named),
            nodes=tuple(known[node.name] for node in predicted.nodes if node.name in known),
            edges=tuple(moved(edge, self._model) for edge in predicted.edges),
        )
        position = predicted.nodes[-1].index if predicted.nodes else 0
        candidate = LayerCandidate(position, predicted.nodes, None, self._model)
        return Step(PairedCandidate(candidate), (predicted,), (), (), {})

    def _of_model(self, scales: Mapping[Edge, Scale]) -> Mapping[Edge, Scale]:
        """``scales`` by edges of the model."""
        return {moved(edge, self._model): scale for edge, scale in scales.items()}


def _renamed(layer: Layer, names: tuple[str, ...]) -> Layer:
    """``layer`` of the nodes called ``names``; without any it only moves data."""
    moves = not names and layer.kind == "compute"
    return replace(layer, nodes=names, kind="reformat" if moves else layer.kind)
