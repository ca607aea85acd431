"""What is taken over from a quantized model: scales, the placement, and what could not be kept."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from onnx import ModelProto, NodeProto, numpy_helper

from placer.graph import Edge, Graph
from placer.graph.edit import every_node, subgraphs
from placer.graph.external_data import digest
from placer.graph.signs import is_non_negative
from placer.graph.weights import bias_input, weight_input
from placer.model.passes.affine_folding import FoldedWeight
from placer.model.quantized.scales import ActivationScale, WeightScale
from placer.quantization import Placement, Range, Ranges, Scheme
from placer.quantization.placement import ScaleGroup

_REMOVED = "{} dropped: normalising removed the nodes that read them"
_INSIDE = "{} dropped in bodies of If, Loop and Scan, which no rule of this engine enters"
# They hand values on, or the largest of them, so that a range before them holds behind them.
_KEEPS_RANGE = frozenset(
    "MaxPool Reshape Flatten Squeeze Unsqueeze Transpose Identity Cast DepthToSpace SpaceToDepth "
    "Expand Tile".split()
)


@dataclass(frozen=True)
class Loss:
    """What a tensor loses where a scheme cannot have the source's zero point or type.

    ``step_growth``: the scheme's quantization step over the source's, above 1.
    """

    tensor: str
    source: ActivationScale
    step_growth: float

    @property
    def decibel(self) -> float:
        """By how much the noise of rounding grows: 20 log10 of the growth of the step."""
        return 20 * math.log10(self.step_growth)


@dataclass(frozen=True, eq=False)
class Imported:
    """A quantized model taken apart.

    ``proto``: the float model, weights dequantized, not yet normalised. ``source``: the formats
    that were seen, e.g. ``QDQ, uint8 activations``. ``activations``: the source's scale by float
    tensor; ``weights``: by float constant. ``placement``: the edges that had pairs, grouped by
    equal scales. ``notes``: a sentence for everything that was changed or could not be kept.
    ``non_negative``: those of symmetric int8 that hold nothing below zero.
    ``restored_count``: how many tensors the source quantizes by arithmetic.
    """

    proto: ModelProto
    source: str
    activations: Mapping[str, ActivationScale]
    weights: Mapping[str, WeightScale]
    placement: Placement
    notes: tuple[str, ...]
    non_negative: frozenset[str] = frozenset()
    restored_count: int = 0

    @property
    def is_float8(self) -> bool:
        """Whether all activations that it quantizes are FP8."""
        are_float8 = [source.is_float8 for source in self.activations.values()]
        return bool(are_float8) and all(are_float8)

    def ranges(self, scheme: Scheme) -> Ranges:
        """Range by float tensor for ``scheme``.

        Where symmetric int8 held nothing below zero, it begins there under a scheme with zero
        points: steps become half as large, and a Q with the lowest zero point takes a Relu along.
        """
        by_tensor = {name: scale.range(scheme) for name, scale in self.activations.items()}
        if scheme.symmetric:
            return by_tensor
        return {
            k: r._replace(low=0.0) if k in self.non_negative else r for k, r in by_tensor.items()
        }

    def summary(self, path: Path, scheme: Scheme, keep: bool) -> str:
        """One sentence for the user; ``keep``: whether the scales are used."""
        opening = f"{path} is quantized already ({self.source}) and was taken apart"
        if not keep:
            return f"{opening}; its scales are not used"
        losses = self.losses(scheme)
        worst = f", at worst {losses[0].decibel:.1f} dB more noise" if losses else ""
        return (
            f"{opening}: {_number(len(self.activations), 'scale')} of activations kept, "
            f"{len(losses)} of them coarser in this scheme{worst}; "
            f"{_number(len(self.notes), 'remark')}, shown by placer import"
        )

    def losses(self, scheme: Scheme) -> tuple[Loss, ...]:
        """Tensors whose quantization step grows under ``scheme``, the worst first."""
        lost, ranges = [], self.ranges(scheme)
        for tensor, source in self.activations.items():
            growth = _step(ranges[tensor], scheme) / source.scale
            stays = scheme.is_float8 or (source.is_float8 and scheme.has_float8)
            if not stays and growth > 1 + 1e-6:
                lost.append(Loss(tensor, source, growth))
        return tuple(sorted(lost, key=lambda loss: -loss.step_growth))

    def weight_scale(
        self, tensor: str, axis: int | None, shape: tuple[int, ...]
    ) -> np.ndarray | None:
        """The source's scale of a constant, shape (), or (channels,) for channels along ``axis``.

        None if the source has none, or none that fits INT8: FP8 goes further than 127 steps.
        """
        weight = self.weights.get(tensor)
        if weight is None or weight.is_float8:
            return None
        if axis is None:
            return weight.scale.reshape(()) if weight.scale.size == 1 else None
        if weight.scale.size == 1:
            return np.full(shape[axis], weight.scale.item())
        axis = axis % len(shape)
        fits = weight.axis == axis and weight.scale.shape == (shape[axis],)
        return weight.scale if fits else None

    def restricted(self, graph: Graph, folded: Mapping[str, FoldedWeight]) -> Imported:
        """What of this still holds in ``graph``, the normalised float model; the rest is noted.

        Ranges also spread over operators that hand on their input's values. ``folded``: weights by
        name that others were folded into; their scales are multiplied by the same factors, so that
        their integers stay as they were, but for signs. Those of a channel with a -128 whose sign
        changes are rounded again.
        """
        tensors = {*graph.producer, *graph.inputs, *graph.initializers}
        kept = {n: s for n, s in self.activations.items() if n in tensors}
        _spread(kept, graph)
        weights = {n: s for n, s in self.weights.items() if _is_same(graph, n, s)}
        multiplied = dict(self._multiplied(graph, folded))
        weights |= multiplied
        moved = (
            ScaleGroup(frozenset(_found(group.edges, graph)), group.format)
            for group in self.placement.groups
        )
        placement = Placement(frozenset(group for group in moved if group.edges))
        restricted = replace(
            self,
            activations=kept,
            weights=weights,
            placement=placement,
            non_negative=frozenset(
                name
                for name, scale in kept.items()
                if scale.type == "int8" and scale.is_symmetric and is_non_negative(name, graph)
            ),
        )
        followed = _followed(len(multiplied))
        return replace(
            restricted, notes=(*self.notes, *followed, *_losses(self, restricted, graph))
        )

    def _multiplied(
        self, graph: Graph, folded: Mapping[str, FoldedWeight]
    ) -> Iterator[tuple[str, WeightScale]]:
        for name, weight in folded.items():
            scale, now = self.weights.get(weight.source), graph.initializers.get(name)
            if now is None or scale is None or scale.digest != weight.digest:
                continue
            is_along = scale.scale.size == 1 or scale.axis == weight.axis
            if is_along and weight.factors.all():
                multiplied = scale.multiplied(weight.factors, weight.axis)
                reaching = multiplied.reaching(numpy_helper.to_array(now))  # Folding wrote it here.
                yield name, replace(reaching, digest=digest(now))


def _followed(count: int) -> Iterator[str]:
    """A sentence on scales of ``count`` weights that others were folded into."""
    if count:
        yield (
            f"scales of {count} weight{'s' if count > 1 else ''} multiplied by what is folded into "
            "them, such as BatchNormalization: their integers stay what they were, but for signs"
        )


def _losses(source: Imported, kept: Imported, graph: Graph) -> Iterator[str]:
    """Sentences on what of ``source`` does not hold in ``graph``, where ``kept`` does."""
    inside = _not_entered(graph)
    made = {tensor for node in inside.values() for tensor in node.output}
    read = {tensor for node in inside.values() for tensor in node.input}
    for name in source.activations:
        if name not in kept.activations and name not in made:
            yield f"scale of '{name}' dropped: normalising removed the tensor"
    for name in source.weights:
        if name not in kept.weights and name in graph.initializers:
            yield f"scales of weight '{name}' dropped: another node was folded in"
    left = sum(edge.node in inside for edge in source.placement.edges)
    gone = len(source.placement.edges) - len(kept.placement.edges) - left
    if gone:
        yield _REMOVED.format(_number(gone, "pair"))
    if left:
        yield _INSIDE.format(_number(left, "pair"))
    weights = {name: scale for name, scale in kept.weights.items() if name not in read}
    yield from _other_constants(graph, weights)


def _step(value_range: Range, scheme: Scheme) -> float:
    low, high = min(value_range.low, 0.0), max(value_range.high, 0.0)
    return max(-low, high) / 127 if scheme.of(low).symmetric else (high - low) / 255


def _spread(scales: dict[str, ActivationScale], graph: Graph) -> None:
    for node in graph.nodes:
        if node.op in _KEEPS_RANGE and node.inputs[0] in scales and node.domain == "":
            dtype = graph.type_of(node.outputs[0])
            if dtype.is_float:
                scales.setdefault(node.outputs[0], scales[node.inputs[0]])
    for node in reversed(graph.nodes):
        # MaxPool may skip values of its input, so its output's range says less.
        if node.op in _KEEPS_RANGE - {"MaxPool"} and node.outputs[0] in scales:
            source = node.inputs[0]
            if graph.type_of(source).is_float and source not in graph.initializers:
                scales.setdefault(source, scales[node.outputs[0]])


def _not_entered(graph: Graph) -> dict[str, NodeProto]:
    """Nodes in bodies that ``graph`` does not hold as its own, by their names."""
    bodies = (body for node in graph.nodes for body in subgraphs(node.proto))
    return {node.name: node for body in bodies for node in every_node(body.node) if node.name}


def _is_same(graph: Graph, name: str, scale: WeightScale) -> bool:
    tensor = graph.initializers.get(name)
    return tensor is not None and digest(tensor) == scale.digest


def _found(edges: Iterable[Edge], graph: Graph) -> Iterator[Edge]:
    """``edges`` by node and input: a tensor may be called otherwise by now."""
    for edge in edges:
        reads = graph.by_name[edge.node].inputs if edge.node in graph.by_name else ()
        if not edge.node:
            reads = graph.outputs
        if edge.input_index < len(reads):
            yield Edge(reads[edge.input_index], edge.node, edge.input_index)


def _other_constants(graph: Graph, weights: Mapping[str, WeightScale]) -> list[str]:
    """Constants with a scale that placer will choose itself."""
    used = set()
    for node in graph.nodes:
        weight, bias = weight_input(graph, node), bias_input(node)
        used |= {weight.tensor} if weight else set()
        used |= {node.inputs[bias]} if bias is not None else set()
    others = [f"'{name}'" for name in weights if name not in used]
    if not others:
        return []
    return [
        f"scales of {_number(len(others), 'constant')} dropped, which are not weights, so that "
        f"their values give them: {', '.join(others)}"
    ]


def _number(count: int, what: str) -> str:
    return f"{count} {what}" if count == 1 else f"{count} {what}s"
