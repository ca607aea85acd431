"""The predictor of a pack: by its rules, or of generated kernels."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial

import numpy as np
from onnx import TensorProto

from placer.graph import Graph
from placer.graph.index import with_nodes
from placer.graph.signs import is_non_negative
from placer.prediction.kernels.predictor import KernelPredictor
from placer.prediction.layers.claims import FLOAT
from placer.prediction.layers.clamps import RELU, Bounds
from placer.prediction.layers.known_scales import KnownScales
from placer.prediction.layers.motion import Scale
from placer.prediction.layers.no_ops import equal_nodes, ranges_before
from placer.prediction.layers.predictor import Predictor
from placer.prediction.layers.shape_constants import cut_states
from placer.quantization import Range, Ranges, Scheme, union
from placer.quantization.numerics import activation_quantization
from placer.quantization.scheme import INT8_OR_UINT8
from placer.rules.matcher import Matches
from placer.rules.pack import Pack
from placer.rules.sites import find_sites
from placer.rules.target import Target

# What OpenVINO's ConvertPrecision makes of types.
_NARROW: Mapping[int | None, int] = {
    TensorProto.INT64: TensorProto.INT32,
    TensorProto.UINT64: TensorProto.INT32,
    TensorProto.UINT32: TensorProto.INT32,
    TensorProto.BOOL: TensorProto.UINT8,
    TensorProto.DOUBLE: TensorProto.FLOAT,
}
_STEPS = 255  # Between the lowest and the highest of 8 bits.
AnyPredictor = Predictor | KernelPredictor


def make_predictor(
    graph: Graph,
    pack: Pack,
    target: Target,
    base: str,
    matches: Matches | None = None,
    ranges: Ranges | None = None,
    stored: Mapping[str, str] | None = None,
    types: Mapping[str, str] | None = None,
) -> AnyPredictor:
    """The predictor of plans of ``graph`` for the engine of ``pack``.

    ``base``: ONNX name of the type of float tensors inside the engine, e.g. ``float16``.
    ``matches``: of ``graph``, where they are known. ``ranges``: what activations are quantized
    with; without them a scheme whose type follows from the range goes by the operators. ``stored``:
    see ``BuildTarget``. ``types``: of activations that are quantized, by tensor, in a file with
    pairs of its own; by default the scheme's, in a candidate.
    """
    behaviour, scheme = pack.manifest.behaviour, pack.manifest.scheme
    if behaviour.wide_types == "narrowed":
        graph = _narrowed(graph)
    if behaviour.types == "chosen":
        target = replace(target, typing=None)
    equal = _equal(graph, pack, target)
    known = ranges_before(graph, ranges or {}, equal)
    if behaviour.kernels == "generated":
        return KernelPredictor(
            graph, pack.rules, target, base, scheme.integer, matches, stored, ranges=known
        )
    has_zero_point = None
    if behaviour.repeats == "requantized" and not scheme.symmetric:
        has_zero_point = partial(_has_zero_point, graph, known, types or {})
    clamps = behaviour.clamps == "kept" and not scheme.symmetric
    scales = KnownScales(
        integers=_integers(graph, scheme, known, types),
        has_zero_point=has_zero_point,
        exceeds=partial(_exceeds, graph, known, scheme) if clamps else None,
        outlasts=partial(_outlasts, graph, known, scheme) if clamps else None,
        alike=_by_range(known, types or {}) if behaviour.equal_scales == "one" else None,
    )
    return Predictor(
        graph,
        pack.rules,
        target,
        base,
        scheme.integer,
        matches,
        behaviour=behaviour,
        equal=equal,
        stored=stored,
        stores_biases=scheme.bias == "int32" and base == FLOAT and types is None,
        scales=scales,
    )


def _equal(graph: Graph, pack: Pack, target: Target) -> Mapping[str, str]:
    """The nodes that the engine computes once, by those that compute the same."""
    merged = pack.manifest.behaviour.equal
    if merged == "kept":
        return {}
    equal = equal_nodes(graph)
    if merged == "states":
        decided = cut_states(graph)
        return {name: kept for name, kept in equal.items() if name in decided}
    if merged == "unquantized" and equal:
        return equal_nodes(graph, apart=_quantized(graph, pack, target))
    return equal


def _quantized(graph: Graph, pack: Pack, target: Target) -> frozenset[str]:
    """Names of the nodes that may have pairs of their own, which do not move past them."""
    return frozenset(
        edge.node
        for site in find_sites(graph, pack.rules, target)
        if site.match.rule.motion is None
        for layout in site.layouts.values()
        for edge in layout.own
    )


def _integers(
    graph: Graph, scheme: Scheme, ranges: Ranges, types: Mapping[str, str] | None
) -> Callable[[Scale], str] | None:
    """What tells the type that a scale quantizes to, where it is not the scheme's own alone."""
    integers: Callable[[Scale], str] | None = None
    if scheme.activation == INT8_OR_UINT8:
        integers = partial(_integer, graph, scheme, ranges)
    elif not scheme.is_float8:
        integers = partial(_format, scheme)
    if types:
        return partial(_own, types, integers or (lambda _: scheme.integer))
    return integers


def _narrowed(graph: Graph) -> Graph:
    """``graph`` with the types that OpenVINO's CPU plugin computes in (its ConvertPrecision)."""
    narrow = {
        tensor: kind._replace(dtype=_NARROW[kind.dtype])
        for tensor, kind in graph.types.items()
        if kind.dtype in _NARROW
    }
    return with_nodes(graph, graph.nodes, types=narrow) if narrow else graph


def _by_range(ranges: Ranges, types: Mapping[str, str]) -> Callable[[Scale], Scale]:
    """What makes scales of tensors whose integers and known ranges are the same one.

    Of a tensor that has several scales only the range of all is known, so they stay as they are.
    """
    tensors_of: dict[tuple[Range, str | None], set[str]] = {}
    for tensor, found in ranges.items():
        tensors_of.setdefault((_with_zero([found]), types.get(tensor)), set()).add(tensor)
    alike = {key: frozenset(tensors) for key, tensors in tensors_of.items()}

    def of(scale: Scale) -> Scale:
        known = [ranges[tensor] for tensor in scale.tensors if tensor in ranges]
        own = {types.get(tensor) for tensor in scale.tensors}
        if scale.variant or len(known) < len(scale.tensors) or len(own) != 1:
            return scale
        tensors = alike.get((_with_zero(known), own.pop()), scale.tensors)
        return scale._replace(tensors=tensors)

    return of


def _with_zero(ranges: Sequence[Range]) -> Range:
    """The smallest range that holds all and zero, which scales are made for."""
    return union([*ranges, Range(0.0, 0.0)])


def _integer(graph: Graph, scheme: Scheme, ranges: Ranges, scale: Scale) -> str:
    """The type of what is quantized with one scale, by the common range of its tensors."""
    return scheme.of(min(_low(graph, ranges, tensor) for tensor in scale.tensors)).activation


def _exceeds(graph: Graph, ranges: Ranges, scheme: Scheme, scale: Scale, bounds: Bounds) -> bool:
    """Whether the integers of one scale stand for numbers outside of ``bounds``.

    ONNX Runtime quantizes the bounds, in float32 (IsClipMadeRedundantByQ in qdq_util.cc).
    """
    low = min(_low(graph, ranges, tensor) for tensor in scale.tensors)
    known = [ranges[tensor].high for tensor in scale.tensors if tensor in ranges]
    if len(known) < len(scale.tensors):
        return low < 0 <= bounds.low
    scheme = scheme.of(low)
    step, zero = activation_quantization(Range(low, max(0.0, *known)), scheme)
    lowest = np.iinfo(scheme.activation).min
    first, last = np.rint(np.array(bounds, np.float32) / np.float32(step)) + zero
    return bool(first > lowest or last < lowest + _STEPS)


def _outlasts(graph: Graph, ranges: Ranges, scheme: Scheme, scale: Scale, bounds: Bounds) -> bool:
    """Whether a clamp stays before Q of one scale: it would quantize numbers outside of ``bounds``.

    Compared in float32, without rounding (clip_quantizelinear.cc).
    """
    low = min(_low(graph, ranges, tensor) for tensor in scale.tensors)
    known = [ranges[tensor].high for tensor in scale.tensors if tensor in ranges]
    if len(known) < len(scale.tensors) or bounds == RELU:
        return low < 0 <= bounds.low
    scheme = scheme.of(low)
    step, zero = activation_quantization(Range(low, max(0.0, *known)), scheme)
    first = int(np.iinfo(scheme.activation).min) - zero
    lowest, highest = np.float32(step) * np.array([first, first + _STEPS], np.float32)
    within = np.finfo(np.float32).eps
    return bool(bounds.low - lowest > within or highest - bounds.high > within)


def _own(types: Mapping[str, str], otherwise: Callable[[Scale], str], scale: Scale) -> str:
    """The type of what a file quantizes with one scale."""
    if scale.format is not None:
        return scale.format
    known = {types[tensor] for tensor in scale.tensors if tensor in types}
    return known.pop() if len(known) == 1 else otherwise(scale)


def _format(scheme: Scheme, scale: Scale) -> str:
    """The type of what is quantized with one scale, by its format."""
    return scheme.integer if scale.format is None else scale.format


def _has_zero_point(graph: Graph, ranges: Ranges, types: Mapping[str, str], scale: Scale) -> bool:
    """Whether one scale has a zero point other than 0, in the type that its reader gets.

    uint8 has one if its tensors go below 0, but 128 less where a reader makes int8 of it.
    """
    signed = [t for t in scale.tensors if (scale.signed or types.get(t) == "int8") and t in ranges]
    if signed:
        return any(not _is_symmetric(ranges[tensor]) for tensor in signed)
    return min(_low(graph, ranges, tensor) for tensor in scale.tensors) < 0


def _is_symmetric(values: Range) -> bool:
    """Whether int8 of a range, from -128 to 127 steps, has the zero point 0."""
    step = (values.high - values.low) / 255
    return abs(values.low + 128 * step) < step / 2


def _low(graph: Graph, ranges: Ranges, tensor: str) -> float:
    """Where the range of ``tensor`` begins, or its sign where that is not known."""
    if tensor in ranges:
        return ranges[tensor].low
    return 0.0 if is_non_negative(tensor, graph) else -1.0
