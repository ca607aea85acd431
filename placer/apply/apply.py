"""Apply a placement to another file of its network: retrained, re-exported, with other names."""

from __future__ import annotations

import difflib
import logging
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import onnx
import onnx.helper

from placer.accuracy.evaluator import Evaluator
from placer.apply.matching import Correspondence, correspond
from placer.calibration.collect import METHODS, calibrate
from placer.calibration.dataset import Dataset
from placer.calibration.methods import threshold
from placer.common.names import unknown
from placer.engines.onnxruntime import OnnxRuntimeModel
from placer.errors import InputError, RunError
from placer.graph import Edge, Graph
from placer.graph.structure import GRAPH_OUTPUT, Structure, structure_of
from placer.model import Model
from placer.qdq import Inserter
from placer.qdq.bases import Base, InputOutputTypes
from placer.qdq.mixed_precision import MixedPrecision
from placer.quantization import Placement, Range, Ranges, Scheme, union
from placer.quantization.placement import grouped
from placer.quantization.placement_file import Pin, PlacementFile

log = logging.getLogger(__name__)

AUTO = "auto"
MAX_CANDIDATES = 3


@dataclass(frozen=True)
class Found:
    """An edge of the placement file and the model's edge that it is.

    ``by_name``: the node is called the same in both. ``operators``: what its operator was and is,
    where exporters write one for the other; None where it is the same, or the file does not tell.
    """

    source: Edge
    edge: Edge
    operators: tuple[str, str] | None = None

    @property
    def by_name(self) -> bool:
        """See the class."""
        if self.edge.is_graph_output:
            return self.source.tensor == self.edge.tensor
        return self.source.node == self.edge.node


@dataclass(frozen=True)
class Lost:
    """An edge of the placement file that the model does not have.

    ``operator``: of its node; empty if the file does not tell. ``candidates``: nodes of the model
    that it might have become, the most likely first.
    """

    edge: Edge
    operator: str
    reason: str
    candidates: tuple[str, ...]


@dataclass(frozen=True)
class BrokenGroup:
    """A scale group of which only a part is found: it shares its scale with fewer edges."""

    kept: tuple[Edge, ...]
    lost: tuple[Edge, ...]


@dataclass(frozen=True, eq=False)
class Applied:
    """What ``apply_placement`` finds.

    ``ranges``: the file's, by the model's tensors; they are those of the other weights.
    ``pinned``: of these tensors, what the user gave (``placer.quantization.overrides``).
    ``is_exact``: the models have the same structure, node by node; None if the file does not tell.
    ``new_nodes``: nodes of the model that correspond to none, in order; none if ``is_exact`` is
    None.
    """

    placement: Placement
    ranges: Ranges
    pinned: Mapping[str, Pin]
    found: tuple[Found, ...]
    lost: tuple[Lost, ...]
    broken: tuple[BrokenGroup, ...]
    is_exact: bool | None
    new_nodes: tuple[str, ...]


def apply_placement(file: PlacementFile, model: Model) -> Applied:
    """Find the edges of ``file`` in ``model``, by name and by structure.

    With the structure in the file, nodes are matched by what is around them, and names only
    decide between nodes that are alike. Files of earlier versions have none: there, names alone.
    Raises InputError if the file contradicts itself, or if it has edges and the model none of them.
    """
    finder = _Finder(file, model.graph)
    found: list[Found] = []
    lost: list[Lost] = []
    groups: set[frozenset[Edge]] = set()
    broken: list[BrokenGroup] = []
    ranges: dict[str, Range] = {}
    pinned: dict[str, Pin] = {}
    per_tensor: set[Edge] = set()
    for group in sorted(file.groups, key=lambda g: sorted(g.edges)):
        results = [finder.find(edge) for edge in sorted(group.edges)]
        here = [result for result in results if isinstance(result, Found)]
        gone = [result for result in results if isinstance(result, Lost)]
        found += here
        lost += gone
        if not here:
            continue
        edges = grouped((f.edge for f in here), group.format)
        groups.add(edges)
        per_tensor.update(f.edge for f in here if f.source in group.per_tensor)
        if gone:
            broken.append(BrokenGroup(tuple(sorted(edges)), tuple(x.edge for x in gone)))
        if group.range is not None:
            for tensor in {edge.tensor for edge in edges}:
                known = [ranges[tensor]] if tensor in ranges else []
                ranges[tensor] = union([group.range, *known])
                if group.pinned is not None:
                    pinned[tensor] = group.pinned
    if lost and not found:
        raise InputError(
            f"{file.path}: none of its {len(lost)} edges is found in {model.path}; "
            "give the placement of this network, or run placer optimize"
        )
    matched = finder.correspondence
    base = None if file.base == "float" else file.base
    return Applied(
        placement=Placement(frozenset(groups), frozenset(per_tensor), base),
        ranges=ranges,
        pinned=pinned,
        found=tuple(found),
        lost=tuple(lost),
        broken=tuple(broken),
        is_exact=None if matched is None else matched.is_exact,
        new_nodes=() if matched is None else tuple(_new_nodes(matched)),
    )


def _new_nodes(matched: Correspondence) -> Iterator[str]:
    partners = set(matched.pairs.values())
    for name, position in matched.target.nodes.items():
        if position not in partners:
            yield name


class _Finder:
    """Finds edges of a file in a graph."""

    def __init__(self, file: PlacementFile, graph: Graph) -> None:
        self._file = file
        self._graph = graph
        self._target = structure_of(graph)
        self.correspondence = (
            None if file.structure is None else correspond(file.structure, self._target)
        )

    def find(self, edge: Edge) -> Found | Lost:
        """The model's edge, or why there is none."""
        if self.correspondence is None:
            return self._by_name(edge)
        source = self._position(edge, self.correspondence.source)
        vertex = self.correspondence.source.vertices[source]
        operator = "" if vertex.op == GRAPH_OUTPUT else vertex.op
        partner = self.correspondence.pairs.get(source)
        if partner is None:
            alike = self._unpaired(vertex.kind)
            return Lost(edge, operator, "no node corresponds to its own", _closest(edge, alike))
        name = self._target.vertices[partner].name
        index = self.correspondence.input_index(source, edge.input_index)
        if index is None:
            return Lost(edge, operator, f"node '{name}' has no such input", (name,))
        if vertex.op == GRAPH_OUTPUT:
            found = Edge(name, "", self._target.outputs.index(partner))
        else:
            found = Edge(self._target.vertices[partner].inputs[index], name, index)
        return self._checked(edge, found, operator, self._target.vertices[partner].op)

    def _position(self, edge: Edge, source: Structure) -> int:
        if edge.is_graph_output and edge.input_index < len(source.outputs):
            return source.outputs[edge.input_index]
        position = source.nodes.get(edge.node)
        if position is None or edge.input_index >= len(source.vertices[position].inputs):
            raise InputError(
                f"{self._file.path}: field 'structure' does not have the edge {edge}; "
                "let placer write the file"
            )
        return position

    def _by_name(self, edge: Edge) -> Found | Lost:
        reads = self._graph.outputs if edge.is_graph_output else ()
        if edge.node in self._graph.by_name:
            reads = self._graph.by_name[edge.node].inputs
        if edge.input_index >= len(reads) or not reads[edge.input_index]:
            reason = "the model has no such node or input, and the file tells no structure"
            return Lost(edge, "", reason, _closest(edge, list(self._graph.by_name)))
        found = Edge(reads[edge.input_index], edge.node, edge.input_index)
        return self._checked(edge, found, "", "")

    def _checked(self, edge: Edge, found: Edge, was: str, operator: str) -> Found | Lost:
        if self._graph.type_of(found.tensor).is_quantizable:
            is_other = was and was != operator
            return Found(edge, found, (was, operator) if is_other else None)
        return Lost(edge, was, f"'{found.tensor}' is not a float32, float16 or bfloat16 tensor", ())

    @cached_property
    def _unpaired_by_kind(self) -> Mapping[str, list[str]]:
        by_kind: dict[str, list[str]] = {}
        if self.correspondence is not None:
            for name in _new_nodes(self.correspondence):
                vertex = self._target.vertices[self._target.nodes[name]]
                by_kind.setdefault(vertex.kind, []).append(name)
        return by_kind

    def _unpaired(self, kind: str) -> list[str]:
        return self._unpaired_by_kind.get(kind, [])


def _closest(edge: Edge, names: list[str]) -> tuple[str, ...]:
    if edge.is_graph_output:
        return ()
    return tuple(difflib.get_close_matches(edge.node, names, MAX_CANDIDATES, cutoff=0.5))


# --- from the placement to a model ----------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Scales:
    """What a placement is inserted with. ``sqnr``: in dB, on calibration data; None without."""

    ranges: Ranges
    method: str
    sqnr: float | None
    calibrated: bool


def kept_scales(applied: Applied, file: PlacementFile, model: Model) -> Scales:
    """The file's own ranges; raises InputError if it has none of a quantized activation."""
    missing = sorted(_activations(applied.placement, model) - applied.ranges.keys())
    if missing:
        raise InputError(f"{file.path} has no range of tensor '{missing[0]}'; give `data`")
    return Scales(applied.ranges, "kept", None, file.calibrated)


def calibrated_scales(
    applied: Applied,
    model: Model,
    scheme: Scheme,
    data: Dataset,
    method: str = AUTO,
    cache_dir: Path | None = None,
) -> Scales:
    """Ranges of ``model`` on ``data`` by ``method``, one of ``METHODS``.

    ``auto``: the one with the highest SQNR against the float model on ``data``, as run by ONNX
    Runtime. Tensors that the user pinned keep the file's range or
    their own method. Raises InputError for an unknown method, RunError if ONNX Runtime refuses the
    model.
    """
    if method not in (AUTO, *METHODS):
        raise InputError(unknown("calibration", method, (AUTO, *METHODS)))
    activations = _activations(applied.placement, model)
    calibration = calibrate(model, activations, data, cache_dir)
    # The file tells of tensors in a body that runs on no sample.
    unseen = (set(activations) - calibration.statistics.keys()) & applied.ranges.keys()
    kept = {tensor: applied.ranges[tensor] for tensor in sorted(unseen)}
    inserter = Inserter(model, scheme)
    reference = OnnxRuntimeModel(model.proto, model.base_dir, threads=1)
    evaluator = Evaluator(model.graph, (), data, reference.run)
    # Entropy and MSE weigh the 255 even steps of INT8, which FP8 does not have.
    some = METHODS[:2] if scheme.has_float8 else METHODS
    pinned = {
        tensor: applied.ranges[tensor]
        if pin == "range"
        else threshold(calibration.statistics[tensor], pin, scheme)
        for tensor, pin in applied.pinned.items()
        if tensor in calibration.statistics
    }
    tried = {
        name: {**kept, **calibration.ranges(name, scheme), **pinned}
        for name in (some if method == AUTO else (method,))
    }
    scores = {}
    for name, ranges in tried.items():
        proto = inserter.insert(applied.placement, ranges)
        try:
            run = OnnxRuntimeModel(proto, model.base_dir, threads=1).run
            scores[name] = evaluator.evaluate(run).sqnr
        except RunError as error:  # The engine that the model is for may still run it.
            log.warning("calibration %s: %s", name, error)
            scores[name] = -math.inf
    best = max(scores, key=lambda name: scores[name])
    sqnr = scores[best] if math.isfinite(scores[best]) else None
    return Scales(tried[best], best, sqnr, not data.synthetic)


def _activations(placement: Placement, model: Model) -> set[str]:
    return {edge.tensor for edge in placement.edges} - model.graph.initializers.keys()


def quantized_model(
    model: Model,
    placement: Placement,
    scales: Scales,
    scheme: Scheme,
    base: Base = "float",
    io_type: InputOutputTypes = "keep",
) -> onnx.ModelProto:
    """``model`` with the pairs of ``placement``; ``base`` and ``io_type``: see ``precision``.

    Raises InputError if the pairs cannot be inserted or the rest cannot be converted.
    """
    if base == "float":
        proto = Inserter(model, scheme).insert(placement, scales.ranges)
    else:
        inserter = Inserter(model, scheme)
        remainder = MixedPrecision.of(inserter, base, io_type, scales.ranges, placement.edges)
        proto = remainder.insert(placement)
    properties = {entry.key: entry.value for entry in proto.metadata_props}
    properties["placer.placement"] = placement.id
    properties["placer.calibrated"] = str(scales.calibrated).lower()
    onnx.helper.set_model_props(proto, properties)
    return proto
