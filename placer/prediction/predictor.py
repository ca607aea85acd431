"""Predict an engine's layers: which nodes fuse, what they read and write, which pairs remain.

``placer.prediction.claims`` says which nodes become one layer; here the layers get their types and
the conversions that they need. What a layer needs depends on the pairs near it and on what is there
of the tensors it reads. So a placement is predicted from another one's prediction by looking only
at what changed, and at what follows from that.
"""

from __future__ import annotations

import heapq
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from operator import itemgetter
from typing import NamedTuple

from onnx import TensorProto

from placer.graph import Edge, Graph, Node
from placer.plan import Kind, Layer, Plan, Port
from placer.prediction.claims import FLOAT, Claim, LayerCandidate, Region, find_regions
from placer.prediction.motion import (
    Link,
    NormalForm,
    Scale,
    Scales,
    find_links,
    find_passages,
    move_pairs,
    scale_of,
)
from placer.prediction.settled import without_settled_nodes
from placer.quantization import EMPTY, Placement
from placer.rules.schema import Rule
from placer.rules.target import Target

UNKNOWN = "unknown"  # Type of a tensor that inference found none for.
NO_OP = "NoOp"
# No layer but a reformat of each input that its producer does not write into the joined tensor.
IN_PLACE_CONCAT = "ConcatInPlace"
KEPT_STEPS = 1 << 15


@dataclass(frozen=True, eq=False)
class PredictedLayer:
    """A layer of the predicted plan and where it comes from.

    ``claim`` is None for a node that no rule covers and for conversions. ``edges``: for a
    conversion, the edges that it serves; else all data edges that the layer reads. ``ordinal``:
    for a conversion, how many of its kind and tensor come before it.
    """

    layer: Layer
    nodes: tuple[Node, ...]
    claim: Claim | None
    edges: tuple[Edge, ...]
    ordinal: int = 0


class Conversion(NamedTuple):
    """A conversion of ``tensor``: type written, and the scales that what it reads or writes has."""

    tensor: str
    dtype: str
    scales: Scales
    kind: Kind
    ordinal: int


class TensorFormats(NamedTuple):
    """What there is of a float tensor.

    ``ready``: types by the scales that the tensor went through; what was written comes first.
    ``forced``: a kernel that reads INT8 wrote FP32 though the engine computes in FP16.
    """

    ready: tuple[tuple[Scales, str], ...]
    conversions: tuple[Conversion, ...] = ()
    forced: bool = False


@dataclass(frozen=True, eq=False)
class Step:
    """What a candidate adds to the plan.

    ``layers``: those of the ``conversions`` that nothing before the candidate needed, which have
    the first edge that they serve, then the candidate's own. ``served``: further edges of
    conversions, also of earlier ones. ``formats``: what there is afterwards, of
    ``LayerCandidate.format_tensors``.
    """

    candidate: LayerCandidate
    layers: tuple[PredictedLayer, ...]
    conversions: tuple[Conversion, ...]
    served: tuple[tuple[Conversion, Edge], ...]
    formats: Mapping[str, TensorFormats]


FormatHistory = tuple[
    tuple[int, TensorFormats], ...
]  # What there is of a tensor behind each position.


@dataclass(frozen=True, eq=False)
class Prediction:
    """The predicted layers in execution order and the motion-normal form they follow from.

    ``given``: scales before motion. ``steps``: by position; the same object in two predictions adds
    the same layers. ``histories``: by float tensor, in order of positions. ``changed``: positions
    whose step is another one than in the prediction that it was made from.
    """

    placement: Placement
    given: Mapping[Edge, Scale]
    form: NormalForm
    steps: Mapping[int, Step]
    histories: Mapping[str, FormatHistory]
    changed: tuple[int, ...] = ()

    @cached_property
    def layers(self) -> tuple[PredictedLayer, ...]:
        """The layers in execution order."""
        found: list[PredictedLayer] = []
        made: dict[Conversion, int] = {}
        for _, step in sorted(self.steps.items(), key=itemgetter(0)):
            made.update({c: i for i, c in enumerate(step.conversions, start=len(found))})
            found += step.layers
            for conversion, edge in step.served:
                known = found[made[conversion]]
                found[made[conversion]] = replace(known, edges=(*known.edges, edge))
        return tuple(found)

    @property
    def plan(self) -> Plan:
        """The layers without times."""
        layers = tuple(predicted.layer for predicted in self.layers)
        return Plan(layers, "predicted from rules", estimated=True)


_BLANK = Prediction(EMPTY, {}, NormalForm({}, {}), {}, {})


class Predictor:
    """Predicts plans of one model for one target; made once, used for every placement.

    What the given shapes settle is constant in an engine and no layer here.

    ``base``: ONNX name of the type of float tensors inside the engine, e.g. ``float16``. Graph
    inputs and outputs keep the model's types.
    """

    def __init__(
        self, graph: Graph, rules: Sequence[Rule], target: Target, base: str, integer: str
    ) -> None:
        graph = without_settled_nodes(graph)
        self._target = _Target(graph, target, base, integer)
        rules = [rule for rule in rules if target.meets(rule.when)]
        links = find_links(find_passages(graph, rules))
        self._links: Mapping[Edge, Link] = {edge: link for link in links for edge in link.edges}
        self._regions = find_regions(graph, rules, target)
        self._step = lru_cache(maxsize=KEPT_STEPS)(self._make_step)

    def predict(self, placement: Placement, near: Prediction | None = None) -> Prediction:
        """Predict the plan of ``placement``, which must be of the predictor's graph.

        ``near``: a prediction of this predictor. It changes nothing but the time taken, which is
        that for what ``placement`` changes of it.
        """
        given, form, changed = self._move(placement, near or _BLANK)
        new = Prediction(placement, given, form, {}, {})
        if near is None:
            return self._continue(_BLANK, new, self._regions)
        regions = {region for edge in changed for region in self._regions_at.get(edge, ())}
        return self._continue(near, new, regions)

    @cached_property
    def _regions_at(self) -> Mapping[Edge, tuple[Region, ...]]:
        """The regions in which it matters what pair an edge carries."""
        found: dict[Edge, tuple[Region, ...]] = {}
        for region in self._regions:
            for edge in region.edges:
                found[edge] = (*found.get(edge, ()), region)
        return found

    def _move(
        self, placement: Placement, near: Prediction
    ) -> tuple[dict[Edge, Scale], NormalForm, set[Edge]]:
        """Scales before motion, the form, and the edges that the form has other scales at."""
        gone = {edge for group in near.placement.groups - placement.groups for edge in group}
        groups = placement.groups - near.placement.groups
        come = {edge: scale for group in groups for scale in [scale_of(group)] for edge in group}
        given = _replaced(near.given, gone, come)
        edges = {e for e in gone | come.keys() if given.get(e) != near.given.get(e)}
        moved = {edge: given[edge] for edge in edges if edge in given}
        second: dict[Edge, Scale] = {}
        for link in {self._links[edge] for edge in edges if edge in self._links}:
            form = move_pairs({e: given[e] for e in link.edges if e in given}, link.passages)
            edges |= link.edges
            moved.update(form.scales)
            second.update(form.second)
        form = NormalForm(
            _replaced(near.form.scales, edges, moved), _replaced(near.form.second, edges, second)
        )
        return given, form, {edge for edge in edges if form.chain(edge) != near.form.chain(edge)}

    def _continue(self, near: Prediction, new: Prediction, regions: Iterable[Region]) -> Prediction:
        """``new`` with its steps, which outside ``regions`` differ from ``near``'s only by what
        there is of the tensors that they read.
        """
        steps, histories = dict(near.steps), dict(near.histories)
        due: dict[int, LayerCandidate | None] = {}
        for region in regions:
            due.update(dict.fromkeys(candidate.position for candidate in region.alone))
            due.update(region.candidates(new.form))
        waiting = sorted(due)
        seen: set[int] = set()
        while waiting:
            position = heapq.heappop(waiting)
            seen.add(position)
            old = steps.pop(position, None)
            candidate = due.get(position, None if old is None else old.candidate)
            step = None if candidate is None else self._take(candidate, new.form, histories)
            if step is not None:
                steps[position] = step
            if step is not old:
                for later in _update_history(near.histories, histories, position, old, step):
                    heapq.heappush(waiting, later)
        changed = tuple(i for i in sorted(seen) if steps.get(i) is not near.steps.get(i))
        return replace(new, steps=steps, histories=histories, changed=changed)

    def _take(
        self, candidate: LayerCandidate, form: NormalForm, histories: Mapping[str, FormatHistory]
    ) -> Step:
        formats = tuple(
            _behind(histories.get(t, ()), candidate.position - 1) for t in candidate.format_tensors
        )
        return self._step(
            candidate,
            tuple(map(form.chain, candidate.reads)),
            candidate.output_scale(form),
            self._feeds_float_conv(candidate, form),
            formats,
        )

    def _feeds_float_conv(self, candidate: LayerCandidate, form: NormalForm) -> bool:
        """Whether a Conv reads in float what the candidate writes; asked under weak typing only."""
        nodes = self._target.graph.by_name
        return self._target.target.typing == "weak" and any(
            edge not in form.scales and edge.node in nodes and nodes[edge.node].op in _CONVS
            for edge in candidate.readers
        )

    def _make_step(
        self,
        candidate: LayerCandidate,
        chains: tuple[Scales, ...],
        scale: Scale | None,
        feeds_float_conv: bool,
        formats: tuple[TensorFormats | None, ...],
    ) -> Step:
        draft = _Draft(
            candidate,
            self._target,
            feeds_float_conv,
            dict(zip(candidate.reads, chains, strict=True)),
            {
                tensor: available or TensorFormats((((), _type_name(self._target.graph, tensor)),))
                for tensor, available in zip(candidate.format_tensors, formats, strict=True)
            },
        )
        if candidate.nodes:
            draft.add_layer(scale)
        else:
            draft.write_output()
        return draft.step()


def _replaced(
    old: Mapping[Edge, Scale], edges: Iterable[Edge], new: Mapping[Edge, Scale]
) -> dict[Edge, Scale]:
    """``old`` with ``new`` instead of what it has of ``edges``."""
    found = dict(old)
    for edge in edges:
        found.pop(edge, None)
    found.update(new)
    return found


def _behind(history: FormatHistory, position: int) -> TensorFormats | None:
    """What there is behind ``position``, None where nothing before has dealt with the tensor."""
    index = bisect_right(history, position, key=itemgetter(0))
    return history[index - 1][1] if index else None


def _update_history(
    before: Mapping[str, FormatHistory],
    histories: dict[str, FormatHistory],
    position: int,
    old: Step | None,
    new: Step | None,
) -> Iterator[int]:
    """Put ``new`` instead of ``old`` into ``histories``.

    Yields the next position of each tensor of which there is something else now than ``before``.
    """
    formats = {} if new is None else new.formats
    for tensor in formats.keys() | ({} if old is None else old.formats).keys():
        history = histories.get(tensor, ())
        start = bisect_left(history, position, key=itemgetter(0))
        rest = history[start:]
        if rest and rest[0][0] == position:
            rest = rest[1:]
        own = ((position, formats[tensor]),) if tensor in formats else ()
        histories[tensor] = (*history[:start], *own, *rest)
        now = _behind(histories[tensor], position)
        if rest and now != _behind(before.get(tensor, ()), position):
            yield rest[0][0]


@dataclass(frozen=True)
class _Target:
    """What layers are predicted for."""

    graph: Graph
    target: Target
    base: str
    integer: str


@dataclass
class _Draft:
    """The step of one candidate as it grows.

    ``feeds_float_conv``: a Conv reads in float what is written. ``chains``: by edge that the
    candidate reads. ``formats``: of all float tensors of the candidate.
    """

    candidate: LayerCandidate
    target: _Target
    feeds_float_conv: bool
    chains: Mapping[Edge, Scales]
    formats: dict[str, TensorFormats]
    layers: list[PredictedLayer] = field(default_factory=list)
    conversions: list[Conversion] = field(default_factory=list)
    served: list[tuple[Conversion, Edge]] = field(default_factory=list)

    def step(self) -> Step:
        """What was added."""
        return Step(
            self.candidate,
            tuple(self.layers),
            tuple(self.conversions),
            tuple(self.served),
            self.formats,
        )

    def add_layer(self, scale: Scale | None) -> None:
        """Add the layer, which writes integers of ``scale``, and the conversions before it."""
        nodes, claim = self.candidate.nodes, self.candidate.claim
        reads = {edge: self._read(edge, claim) for edge in self.candidate.reads}
        if _takes_any(claim):
            reads = self._alike(reads)
        op = _operator(nodes, claim)
        if op == IN_PLACE_CONCAT:
            reads = {edge: self._copied(edge, port) for edge, port in reads.items()}
        outputs = []
        for tensor in self.candidate.writes:
            port = Port(self._output_type(tensor, claim, reads, scale), tensor=tensor)
            if tensor in self.formats:
                ready = (() if scale is None else (scale,), port.dtype)
                forced = port.dtype == FLOAT and _reads_integers(claim) and not _is_like(claim)
                self.formats[tensor] = self.formats[tensor]._replace(ready=(ready,), forced=forced)
            outputs.append(port)
        layer = Layer(
            name="+".join(node.name for node in nodes),
            op=op,
            nodes=tuple(node.name for node in nodes),
            inputs=tuple(reads.values()),
            outputs=tuple(outputs),
            kind="no-op" if op in (NO_OP, IN_PLACE_CONCAT) else "compute",
        )
        self.layers.append(PredictedLayer(layer, nodes, claim, self.candidate.reads))

    def write_output(self) -> None:
        """Convert what leaves the graph to the type it declares."""
        (edge,) = self.candidate.reads
        port = self._float(edge)
        declared = _type_name(self.target.graph, edge.tensor)
        if port.dtype != declared:
            self._reformat(edge, port, declared)

    def _port(self, tensor: str) -> Port:
        """What was written of ``tensor``; a graph input is there in its declared type."""
        available = self.formats.get(tensor)
        return Port(
            _type_name(self.target.graph, tensor) if available is None else available.ready[0][1],
            tensor=tensor,
        )

    def _read(self, edge: Edge, claim: Claim | None) -> Port:
        if edge.tensor not in self.formats:
            return self._port(edge.tensor)
        if claim is not None and edge in claim.demanded and claim.fusion.inputs != FLOAT:
            return self._integers(edge)
        is_like = claim is not None and claim.like == edge
        port = self._float(edge, is_like)
        wanted = self._computes_in(edge)
        if port.dtype == wanted or (_takes_any(claim) and wanted == self.target.base):
            return port
        if is_like and self._is_dequantized(edge):
            return port
        return self._reformat(edge, port, wanted)

    def _computes_in(self, edge: Edge) -> str:
        """The float type that the layer computes in, as far as it depends on ``edge``.

        Under weak typing a float Conv stays in the FP32 that a kernel reading INT8 had to write
        (hehern bevfusion: Conv_144), and a Softmax in front of a graph output computes in its type
        (ResNet50 on RTX 3090).
        """
        nodes, claim = self.candidate.nodes, self.candidate.claim
        if self.target.target.typing != "weak":
            return self.target.base
        if nodes and nodes[-1].op in _SOFTMAX and _all_leave(self.candidate.readers):
            return _type_name(self.target.graph, nodes[-1].outputs[0])
        is_conv = any(node.op in _CONVS for node in nodes) and not _reads_integers(claim)
        return FLOAT if is_conv and self.formats[edge.tensor].forced else self.target.base

    def _copied(self, edge: Edge, port: Port) -> Port:
        """What a Concat joins: ``port``, copied unless what writes it writes it in place.

        A conversion writes in place, and so does a producer that nothing else reads (hehern
        bevfusion: inputs read elsewhere, and Resizes, are copied).
        """
        available = self.formats.get(edge.tensor)
        if available is None:
            return port
        chain = self.chains[edge]
        if any((c.dtype, c.scales) == (port.dtype, chain) for c in available.conversions):
            return port
        producer = self.target.graph.producer.get(edge.tensor)
        alone = len(self.target.graph.edges_of(edge.tensor)) == 1
        if producer is not None and alone and producer.op not in _OWN_BUFFER:
            return port
        return self._convert(edge, "reformat", port, port.dtype, chain)

    def _alike(self, reads: dict[Edge, Port]) -> dict[Edge, Port]:
        """One float type for a layer that takes any."""
        floats = {port.dtype for port in reads.values() if port.dtype in _FLOATS}
        if len(floats) <= 1:
            return reads
        return {
            edge: self._reformat(edge, port, self.target.base)
            if port.dtype in floats - {self.target.base}
            else port
            for edge, port in reads.items()
        }

    def _integers(self, edge: Edge) -> Port:
        """The tensor in the scale that ``edge`` has, through the conversions it takes."""
        integer = self.target.integer
        chain = self.chains[edge]
        for length in range(1, len(chain) + 1):
            ready = dict(self.formats[edge.tensor].ready)
            scales = chain[:length]
            if scales in ready:
                self._serve(edge, integer, scales)
                continue
            source = ready[scales[:-1]] if length > 1 else next(iter(ready.values()))
            kind: Kind = "quantize" if source != integer else "requantize"
            self._convert(edge, kind, Port(source, tensor=edge.tensor), integer, scales)
            available = self.formats[edge.tensor]
            self.formats[edge.tensor] = available._replace(
                ready=(*available.ready, (scales, integer))
            )
        return Port(dict(self.formats[edge.tensor].ready)[chain], tensor=edge.tensor)

    def _is_dequantized(self, edge: Edge) -> bool:
        return bool(self.chains[edge]) or () not in dict(self.formats[edge.tensor].ready)

    def _float(self, edge: Edge, is_like: bool = False) -> Port:
        """The tensor in float: as written, or through the DQ of the pair on ``edge``."""
        port = self._port(edge.tensor)
        chain = self.chains[edge]
        if not chain and port.dtype != self.target.integer:
            return port
        source = self._integers(edge) if chain else port
        scales = chain or self.formats[edge.tensor].ready[0][0]
        # Under weak typing DQ writes the type of its scale, FP32, where a residual is added;
        # elsewhere the type that its reader computes in.
        dtype = FLOAT if is_like and self.target.target.typing == "weak" else self.target.base
        if edge.is_graph_output:
            dtype = _type_name(self.target.graph, edge.tensor)
        known = self._serve(edge, dtype, scales)
        return known or self._convert(edge, "dequantize", source, dtype, scales)

    def _reformat(self, edge: Edge, source: Port, dtype: str) -> Port:
        return self._serve(edge, dtype, ()) or self._convert(edge, "reformat", source, dtype, ())

    def _convert(self, edge: Edge, kind: Kind, source: Port, dtype: str, scales: Scales) -> Port:
        port = Port(dtype, tensor=edge.tensor)
        available = self.formats[edge.tensor]
        ordinal = sum(known.kind == kind for known in available.conversions)
        conversion = Conversion(edge.tensor, dtype, scales, kind, ordinal)
        self.formats[edge.tensor] = available._replace(
            conversions=(*available.conversions, conversion)
        )
        layer = Layer(f"{kind} {edge.tensor}", "Reformat", (), (source,), (port,), kind)
        self.conversions.append(conversion)
        self.layers.append(PredictedLayer(layer, (), None, (edge,), ordinal))
        return port

    def _serve(self, edge: Edge, dtype: str, scales: Scales) -> Port | None:
        """What an earlier conversion wrote for other edges, noting that it serves ``edge`` too."""
        for known in self.formats[edge.tensor].conversions:
            if (known.dtype, known.scales) == (dtype, scales):
                self.served.append((known, edge))
                return Port(dtype, tensor=edge.tensor)
        return None

    def _output_type(
        self,
        tensor: str,
        claim: Claim | None,
        reads: Mapping[Edge, Port],
        scale: Scale | None,
    ) -> str:
        if tensor not in self.formats:
            return _type_name(self.target.graph, tensor)
        if scale is not None:
            return self.target.integer
        floats = [port.dtype for port in reads.values() if port.dtype in _FLOATS]
        if claim is None or claim.fusion.outputs == "same":
            return floats[0] if floats else self.target.base
        if claim.like is not None and claim.like in reads:
            like = reads[claim.like].dtype
            return like if like in _FLOATS else self.target.base
        if claim.fusion.float_type is not None:
            return claim.fusion.float_type
        if self.target.target.typing == "weak":
            return self._weak_type(tensor, claim, reads)
        return self.target.base

    def _weak_type(self, tensor: str, claim: Claim, reads: Mapping[Edge, Port]) -> str:
        """The float type that the builder chooses where it may."""
        leaves = _all_leave(self.target.graph.edges_of(tensor))
        if leaves and (claim.demanded or claim.nodes[-1].op in _SOFTMAX):
            return _type_name(self.target.graph, tensor)
        if claim.demanded:
            # Kernels that read INT8 write FP32 as well: for a float Conv, which does not read the
            # format in which they write FP16; a ConvTranspose's always (hehern bevfusion).
            up = any(node.op == "ConvTranspose" for node in claim.nodes)
            return FLOAT if up or self.feeds_float_conv else self.target.base
        forced = any(self.formats[e.tensor].forced for e in reads if e.tensor in self.formats)
        return FLOAT if forced and FLOAT in {p.dtype for p in reads.values()} else self.target.base


_FLOATS = frozenset({"float", "float16", "bfloat16", "double"})
_CONVS = frozenset({"Conv", "ConvTranspose"})
_SOFTMAX = frozenset({"Softmax", "LogSoftmax"})
_OWN_BUFFER = frozenset({"Resize"})  # Operators whose layers do not write into a joined tensor.


def _is_like(claim: Claim | None) -> bool:
    return claim is not None and claim.like is not None


def _reads_integers(claim: Claim | None) -> bool:
    return claim is not None and bool(claim.demanded)


def _takes_any(claim: Claim | None) -> bool:
    """Whether the layer computes in the float type that it gets."""
    return claim is None or claim.fusion.outputs == "same"


def _all_leave(edges: Iterable[Edge]) -> bool:
    return all(edge.is_graph_output for edge in edges)


def _type_name(graph: Graph, tensor: str) -> str:
    dtype = graph.type_of(tensor).dtype
    return UNKNOWN if dtype is None else str(TensorProto.DataType.Name(dtype)).lower()


def _operator(nodes: Sequence[Node], claim: Claim | None) -> str:
    if claim is None:
        return nodes[0].op
    names = claim.fusion.op
    if len(names) == 1:
        return names[0]
    # One name per operator that the pattern's first fused node may have.
    first = claim.fusion.nodes[0]
    alternatives = claim.match.rule.pattern[first].op
    return dict(zip(alternatives, names, strict=False)).get(claim.match.nodes[first].op, names[0])
