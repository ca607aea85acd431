"""What the rules make of a model: the use of ``placer explain``, without what it prints."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from os import PathLike
from pathlib import Path
from typing import Any

from placer.common.collector import without_collection
from placer.common.files import write_text
from placer.common.names import unknown
from placer.common.shapes import GivenShape, given_ranges, optima
from placer.engines.estimated.fusion_model import BASES
from placer.engines.tensorrt.pairs import kept_in_float, refused_pairs
from placer.errors import InputError
from placer.graph import Graph
from placer.graph.bodies import Bodies, bodies_of
from placer.graph.flat import flatten
from placer.graph.scopes import Scopes
from placer.model import is_quantized_file, load_model, load_quantized, quantizes_at_run_time
from placer.model.validate import parse_model
from placer.plan import Plan
from placer.plan.json_format import plan_json
from placer.plan.readers.read import read_plan
from placer.prediction.explanation.explain import Explainer, Explanation
from placer.prediction.explanation.explanation_json import explanation_json
from placer.prediction.explanation.site_outcomes import SiteOutcome, compare_sites
from placer.prediction.explanation.unpredicted import unpredicted
from placer.prediction.layers.norms import without_norms
from placer.prediction.select import make_predictor
from placer.prediction.times.devices import (
    Device,
    base_of,
    device_for,
    make_estimator,
    pack_of,
    target_on,
)
from placer.prediction.times.fitted import Fit
from placer.qdq.extract import extract_placement
from placer.qdq.integer_ports import with_float_ports
from placer.qdq.moved_weights import move_weights
from placer.qdq.origin import named_pack
from placer.qdq.own_pairs import OwnPairs, own_pairs, signed_apart
from placer.quantization import FLOAT8, Format, Placement, Range
from placer.quantization.placement_file import (
    Pin,
    PlacementFile,
    load_placement,
    placement_text,
    read_placement,
)
from placer.rules.matcher import Matches
from placer.rules.pack import Pack
from placer.rules.packaging.load import is_builtin, load_pack
from placer.rules.sites import place
from placer.rules.target import Target

_RUN_TIME = (
    "this file quantizes at run time (DynamicQuantizeLinear): its own layers are not predicted; "
    "what is shown is the pack's default placement of its float model"
)


@dataclass(frozen=True)
class _Subject:
    """What is explained: a float graph, a placement on it (None: the pack's default) and where
    that comes from. ``pins``: what the user pinned, with the range, by tensor. ``stored``: types of
    graph inputs and outputs that are integers. ``own``: what the pairs of a quantized file say.
    """

    graph: Graph
    placement: Placement | None
    source: str
    fingerprint: str
    bodies: Bodies
    pinned: tuple[str, ...] = ()
    pins: Mapping[str, tuple[Pin, Range]] = field(default_factory=dict)
    scopes: Scopes = field(default_factory=dict)
    refused: str = ""
    stored: Mapping[str, str] = field(default_factory=dict)
    own: OwnPairs | None = None


@dataclass(frozen=True, eq=False, repr=False)
class ModelExplanation:
    """Decisions and the predicted plan of a placement; every time is an estimate for ``gpu``.

    Without one, times and remedies, which rest on them, are not known: layers have none, and all
    others are 0.
    ``source``: where the placement comes from. ``built``: the engine's own plan, where one was
    given, and ``outcomes`` what became of each site in it.
    """

    source: str
    explanation: Explanation
    gpu: Device | None
    base: str
    pack: Pack
    built: Plan | None
    outcomes: tuple[SiteOutcome, ...]
    _subject: _Subject

    def __repr__(self) -> str:
        gpu = "" if self.gpu is None else f", gpu={self.gpu.name!r}"
        layers = f"{len(self.explanation.plan.layers)} layers"
        pack = f"pack={self.pack.name_and_version!r}, base={self.base!r}"
        return f"ModelExplanation({self.source!r}, {layers}, {pack}{gpu})"

    @property
    def inside(self) -> str:
        """A sentence on what is in bodies of If, Loop and Scan; empty if nothing is."""
        inside = self._subject.bodies.sentence()
        return f"{inside}. Their time is not in the estimates" if inside else ""

    @property
    def in_bodies(self) -> str:
        """A sentence on nodes in bodies, which may run never or often; empty if none is."""
        scopes, total = self._subject.scopes, len(self._subject.graph.nodes)
        if not scopes:
            return ""
        owners = sorted({scope[0].owner for scope in scopes.values()})
        more = f" and {len(owners) - 1} more" if len(owners) > 1 else ""
        return (
            f"{len(scopes)} of {total} nodes are in the bodies of '{owners[0]}'{more}; each is "
            "shown, and counts in every sum of times, once, however often it runs"
        )

    @property
    def unpredicted(self) -> tuple[str, ...]:
        """Sentences on nodes whose layers the engine's predicted plan cannot tell."""
        sentences = unpredicted(self._subject.graph, self.pack.manifest)
        return tuple(text for text in (self._subject.refused, *sentences) if text)

    @property
    def pinned(self) -> tuple[str, ...]:
        """What the user pinned in the placement, a sentence for each tensor."""
        return self._subject.pinned

    def to_json(self) -> dict[str, Any]:
        """For ``json.dumps``; times in microseconds."""
        bodies = self._subject.bodies
        document = {
            "gpu": None if self.gpu is None else self.gpu.name,
            "nodes_in_bodies": {"nodes": bodies.nodes, "of": bodies.total},
            **explanation_json(self.explanation, timed=self.gpu is not None),
            "plan": plan_json(self.explanation.plan),
            "pinned": list(self.pinned),
        }
        if self.built is not None:
            estimated = self.built.estimated or self.built.estimated_times
            document["actual"] = [_outcome(outcome, estimated) for outcome in self.outcomes]
        return document

    def write_plan(self, path: str | PathLike[str]) -> None:
        """Write the predicted plan, which ``diff_plans`` compares with an engine's."""
        text = json.dumps(plan_json(self.explanation.plan), indent=2)
        write_text(Path(path), text + "\n")

    def write_improved(self, path: str | PathLike[str]) -> None:
        """Write placement.yaml with all remedies applied; InputError where none is known."""
        if self.gpu is None:
            raise InputError(
                f"nothing estimates what pairs cost engine {self.pack.manifest.engine}, so no "
                "remedy is known; leave out `improved`, or give `gpu` a file of placer fit"
            )
        improved = self.explanation.improved
        if self._subject.placement is not None:
            improved = improved.with_weights(self._subject.placement.per_tensor)
        text = _placement_text(improved, self._subject, self.pack)
        write_text(Path(path), text)


def explain(
    model: str | PathLike[str],
    placement: str | PathLike[str] | None = None,
    *,
    gpu: str | None = None,
    base: str | None = None,
    weak: bool = False,
    pack: str | None = None,
    shapes: Mapping[str, GivenShape] | None = None,
    actual: str | PathLike[str] | None = None,
    profile: str | PathLike[str] | None = None,
) -> ModelExplanation:
    """Match rules, decide each site, predict the plan and find the conversions that stay layers.

    ``placement``: a placement.yaml; by default the model's own pairs, or the pack's default.
    ``gpu``: a GPU, a file that describes one, or one that ``placer fit`` wrote; by default a100,
    and none with the ``pack`` of an engine other than TensorRT, for which nothing is estimated.
    ``pack``: by default the fit's, the built-in one that a placement or a model written by placer
    names, where no ``gpu`` is given, or tensorrt. ``base``: by default float16 on a GPU, else
    float, or the fit's.
    ``weak``: weak typing, as TensorRT up to 10 may have. ``actual``: the engine's own plan, and
    ``profile`` its trtexec profile. Nothing is built or run.

    Raises InputError for wrong input.
    """
    path, source = Path(model), None if placement is None else Path(placement)
    if pack is None and gpu is None:
        pack = _built_in_pack(path, source)
    device = device_for(gpu, pack)
    rules = load_pack(pack or pack_of(device, default="tensorrt"))
    if isinstance(device, Fit):
        device.check_pack(rules)
        device.check_base(base)
    base = base or base_of(device)
    if base not in BASES:
        raise InputError(unknown("base", base, BASES))
    target = target_on(device, weak)
    given = optima(given_ranges(shapes))
    with without_collection():
        subject = _subject(path, source, given, rules)
        explainer = _explainer(subject, rules, device, target, base)
        if subject.placement is None:
            explanation = explainer.explain(place(explainer.sites, {}))
        else:
            explanation = explainer.explain(subject.placement)
    times = None if profile is None else Path(profile)
    built = None if actual is None else read_plan(Path(actual), times)
    outcomes = compare_sites(explanation.decisions, explanation.plan, built) if built else ()
    if built is not None and not outcomes:
        raise InputError(
            f"{actual} names no node of {path}; give the plan of an engine built from this file"
        )
    return ModelExplanation(
        subject.source, explanation, device, base, rules, built, tuple(outcomes), subject
    )


def _built_in_pack(model: Path, placement: Path | None) -> str | None:
    """The built-in pack that the placement, or a model with pairs, says it was made with."""
    named = None
    if is_quantized_file(model):
        named = named_pack(parse_model(model))
    elif placement is not None:
        named = read_placement(placement).pack
    name = named.split()[0] if named and named.strip() else ""
    return name if is_builtin(name) else None


def _subject(
    model: Path,
    placement: Path | None,
    shapes: Mapping[str, tuple[int, ...]],
    pack: Pack,
) -> _Subject:
    bodies, scheme = pack.enters_bodies, pack.manifest.scheme
    at_run_time = quantizes_at_run_time(model)
    known = pack.manifest.behaviour.run_time_scales == "predicted"
    if is_quantized_file(model) or (at_run_time and known):
        if placement is not None:
            raise InputError(
                f"{model} has Q/DQ pairs already; give the float model or no placement"
            )
        quantized = load_quantized(model)
        inside = flatten(quantized.graph) if bodies else {}
        move_weights(quantized.graph)
        extracted = extract_placement(quantized, scheme)
        graph, stored = with_float_ports(extracted, extracted.graph(shapes, model))
        scopes: Scopes = {n: scope for n, scope in inside.items() if n in graph.by_name}
        left = bodies_of(extracted.proto, scopes)
        source = "the model's own Q/DQ pairs"
        chosen, refused = extracted.placement, ""
        if pack.manifest.engine == "tensorrt":
            chosen = chosen.without(kept_in_float(extracted, graph))
            if pack.manifest.behaviour.kernels != "generated":  # Those compute what others fold.
                graph = without_norms(graph, chosen)
            refused = refused_pairs(load_quantized(model), model)
        pairs = own_pairs(extracted)
        if pack.manifest.behaviour.signed == "converted":
            chosen, pairs = signed_apart(extracted, pairs)
        return _Subject(
            graph,
            chosen,
            source,
            "",
            left,
            scopes=scopes,
            refused=refused,
            stored=stored,
            own=pairs,
        )
    plugins = pack.manifest.behaviour.foreign == "plugins"
    loaded = load_model(model, shapes, bodies=bodies, plugins=plugins).as_written()
    left = bodies_of(loaded.flat(), loaded.graph.scopes)
    if placement is None:
        source = "the pack's default placement"
        return _Subject(
            loaded.graph,
            None,
            source,
            loaded.fingerprint,
            left,
            scopes=loaded.graph.scopes,
            refused=_RUN_TIME if at_run_time else "",
        )
    file = read_placement(placement)
    chosen = load_placement(placement, loaded.graph).translated(file.scheme, scheme)
    source, pins = f"placement {placement}", _pins(file, loaded.graph)
    pinned = tuple(file.pinned)
    scopes = loaded.graph.scopes
    return _Subject(loaded.graph, chosen, source, loaded.fingerprint, left, pinned, pins, scopes)


def _pins(file: PlacementFile, graph: Graph) -> dict[str, tuple[Pin, Range]]:
    """What ``file``, of which ``graph`` has all edges, pins of activations."""
    pins: dict[str, tuple[Pin, Range]] = {}
    for group in file.groups:
        if group.pinned is not None and group.range is not None:
            for edge in group.edges:
                reads = graph.by_name[edge.node].inputs if edge.node else graph.outputs
                pins[reads[edge.input_index]] = group.pinned, group.range
    return pins


def _explainer(
    subject: _Subject, pack: Pack, device: Device | None, target: Target, base: str
) -> Explainer:
    graph, matches = subject.graph, Matches(subject.graph)
    pairs = subject.own
    ranges, types = (None, None) if pairs is None else (pairs.ranges, pairs.types)
    predictor = make_predictor(graph, pack, target, base, matches, ranges, subject.stored, types)
    estimator = make_estimator(graph, device)
    formats = _formats(subject.placement)
    gains = pack.manifest.behaviour.gains
    return Explainer(matches, pack.rules, target, predictor, estimator, formats, gains)


def _formats(placement: Placement | None) -> tuple[Format, ...]:
    """The formats that ``placement`` has beside the scheme's own."""
    formats = set() if placement is None else {*placement.formats.values()}
    return tuple(sorted(formats & {FLOAT8}))


def _placement_text(placement: Placement, subject: _Subject, pack: Pack) -> str:
    scheme = pack.manifest.scheme
    formats = _formats(placement)
    return placement_text(
        placement,
        {tensor: known for tensor, (_, known) in subject.pins.items()},
        scheme.model_copy(update={"formats": formats}) if formats else scheme,
        model=subject.fingerprint,
        pack=pack.name_and_version,
        calibrated=False,
        graph=subject.graph,
        pinned={tensor: pin for tensor, (pin, _) in subject.pins.items()},
    )


def _outcome(outcome: SiteOutcome, estimated: bool) -> dict[str, object]:
    times = "estimated_us" if estimated else "measured_us"
    return {
        "site": outcome.decision.site.name,
        "agrees": outcome.agrees,
        "predicted": [layer.name for layer in outcome.predicted],
        "built": [layer.name for layer in outcome.actual],
        times: [layer.time_us for layer in outcome.actual],
    }
