"""What the rules make of a model: the use of ``placer explain``, without what it prints."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from os import PathLike
from pathlib import Path
from typing import Any

from onnx import TensorProto

from placer.common.collector import without_collection
from placer.common.files import write_text
from placer.common.listed import in_quotes
from placer.common.names import unknown
from placer.common.processor import PROCESSORS, Processor, kind_of, this_processor
from placer.common.shapes import GivenShape, given_ranges, optima
from placer.engines.estimated.fusion_model import BASES
from placer.errors import InputError
from placer.explaining.fitted_formats import fitted_formats
from placer.explaining.float4 import float4_sentence
from placer.explaining.float8 import float8_sentences
from placer.explaining.float_base import float_base
from placer.explaining.float_casts import float_casts
from placer.explaining.float_products import float_products
from placer.explaining.foldable import foldable
from placer.explaining.grouped_convs import grouped_convs
from placer.explaining.idle_constants import idle_constants
from placer.explaining.mixed_types import mixed_types
from placer.explaining.output_pairs import output_pairs
from placer.explaining.padded_channels import padded_channels
from placer.explaining.placed_model import PlacedModel, placed_model
from placer.explaining.placeholder_scales import placeholder_scales
from placer.explaining.run_time_constants import run_time_constants
from placer.explaining.run_time_convs import run_time_convs
from placer.explaining.saturating import saturating
from placer.explaining.several_scales import scales_by_channel, scales_by_reader
from placer.explaining.squared_norms import squared_norms
from placer.explaining.unfused import shifted, summed, unfused
from placer.explaining.unread_types import UNREAD, unread_types
from placer.explaining.weights_only import weights_only
from placer.explaining.written_file import Source, WrittenFile, written_file
from placer.graph import Graph
from placer.model import is_quantized_file
from placer.model.validate import parse_model
from placer.plan import Plan
from placer.plan.json_format import plan_json
from placer.plan.readers.read import read_plan
from placer.prediction.explanation.explain import Explainer, Explanation
from placer.prediction.explanation.explanation_json import explanation_json, first_change_json
from placer.prediction.explanation.first_changes import FirstChange, first_changes
from placer.prediction.explanation.site_outcomes import SiteOutcome, compare_sites
from placer.prediction.explanation.unpredicted import unpredicted
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
from placer.prediction.times.gpus import Gpu
from placer.qdq.origin import named_pack
from placer.quantization import FLOAT8, Format, Placement, Ranges
from placer.quantization.placement_file import placement_text, read_placement
from placer.rules.matcher import Matches
from placer.rules.pack import Pack
from placer.rules.packaging.load import is_builtin, load_pack
from placer.rules.sites import place
from placer.rules.target import Target


@dataclass(frozen=True, eq=False, repr=False)
class ModelExplanation:
    """Decisions and the predicted plan of a placement; every time is an estimate for ``gpu``.

    Without one, times and remedies, which rest on them, are not known: layers have none, and all
    others are 0.
    ``source``: where the placement comes from. ``built``: the engine's own plan, where one was
    given, and ``outcomes`` what became of each site in it. ``scheme``: None is the pack's own.
    """

    source: str
    explanation: Explanation
    gpu: Device | None
    base: str
    pack: Pack
    built: Plan | None
    outcomes: tuple[SiteOutcome, ...]
    target: Target
    _placed: PlacedModel
    _file: Source
    scheme: str | None = None

    def __repr__(self) -> str:
        gpu = "" if self.gpu is None else f", gpu={self.gpu.name!r}"
        layers = f"{len(self.explanation.plan.layers)} layers"
        pack = f"pack={self.pack.name_and_version!r}, base={self.base!r}"
        return f"ModelExplanation({self.source!r}, {layers}, {pack}{gpu})"

    @property
    def processor(self) -> str:
        """What the processor is taken to have; empty where nothing depends on it."""
        if self.target.compute_capability is not None or not self.pack.asks_for_processor:
            return ""
        kind = kind_of(self.target.processor)
        return "a CPU of an unknown kind" if kind is None else f"a CPU of the kind {kind}"

    @property
    def inside(self) -> str:
        """A sentence on what is in bodies of If, Loop and Scan; empty if nothing is."""
        inside = self._placed.bodies.sentence()
        return f"{inside}. Their time is not in the estimates" if inside else ""

    @property
    def in_bodies(self) -> str:
        """A sentence on nodes in bodies, which may run never or often; empty if none is."""
        scopes, total = self._placed.scopes, len(self._placed.graph.nodes)
        if not scopes:
            return ""
        owners = sorted({scope[0].owner for scope in scopes.values()})
        return (
            f"{len(scopes)} of {total} nodes are in the bodies of {in_quotes(owners, 1)}; each is "
            "shown once and counts once in every sum of times, however often it runs"
        )

    @property
    def not_built(self) -> tuple[str, ...]:
        """Sentences on why no engine for the GPU has the layers shown."""
        float4 = float4_sentence(self.gpu) if self._placed.has_float4 else ""
        return tuple(text for text in (self._placed.refused, float4) if text)

    @property
    def unpredicted(self) -> tuple[str, ...]:
        """Sentences on nodes whose layers the engine's predicted plan cannot tell."""
        return (*self.not_built, *self._doubted, *self._untold)

    @property
    def _doubted(self) -> tuple[str, ...]:
        """A sentence on pairs that the engine may take otherwise, which builds such a plan."""
        return (self._placed.doubted,) if self._placed.doubted else ()

    @property
    def _untold(self) -> tuple[str, ...]:
        sentences = unpredicted(self._placed.graph, self.pack.manifest)
        float8 = float8_sentences(self._placed, self.pack, self.target, self.gpu)
        placed, plan = self._placed, self.explanation.plan
        bare = ""
        if not (placed.refused or placed.doubted):
            bare = weights_only(placed.graph, placed.placement, placed.idle, plan)
        return tuple(text for text in (bare, *float8, *sentences) if text)

    @property
    def notes(self) -> tuple[str, ...]:
        """Sentences on what the decisions and layers leave out or cannot tell.

        The first are those of ``not_built``.
        """
        wide = self._saturating
        unread = unread_types(self._placed.quantized_to, self.pack)
        graph, plan = self._placed.graph, self.explanation.plan
        own = self._placed.own
        convs = (
            *(() if own is None else foldable(graph, own.nodes)),
            run_time_convs(graph, self.pack),
            "" if own is None else run_time_constants(graph, self.pack),
            grouped_convs(graph, plan, self.pack),
            padded_channels(graph, plan, self.pack),
        )
        floats = (
            float_casts(graph, self.pack),
            idle_constants(graph, self._placed.placement, self._placed.shared, plan, self.pack),
            squared_norms(graph, plan, self.base, self.pack),
        )
        scales = "" if own is None else placeholder_scales(own.ranges)
        several = (
            scales_by_channel(self._placed.by_channel, self.pack),
            "" if own is None else scales_by_reader(graph, self._placed.placement, self.pack),
        )
        returned = "" if own is None else output_pairs(self._placed.types)
        fit = self.gpu if isinstance(self.gpu, Fit) else None
        unfitted = "" if fit is None else fitted_formats(self._placed, fit, self.pack)
        first = (
            unfitted,
            self._placed.open,
            scales,
            self.inside,
            self.in_bodies,
            wide,
            *several,
            returned,
        )
        given = (graph, plan, self.base, self.pack, self.target)
        stored = "" if own is None else float_base(*given)
        off, apart = self._placed.shifted, self._placed.summed
        of_channels = (e for t in self._placed.by_channel for e in graph.edges_of(t))
        told = {one.node for one in self._placed.unfused}
        told |= {edge.node for edge in (*off, *apart, *of_channels)}
        # Products in FP4 are not predicted, so they are not said to compute in float.
        types = {} if self._placed.has_float4 else self._placed.types
        idle = float_products(graph, types, plan, self.pack, told)
        mixed = mixed_types(graph, types, plan, self.pack, told)
        # Where no kernel reads the type, other pairs behind or biases would change nothing.
        read = [p for p in self._placed.unfused if types.get(p.edge) not in UNREAD]
        in_float = (*unfused(read), shifted(off), summed(apart), *idle, *mixed)
        said = (*in_float, *first, *unread, *convs, *floats, *self._untold, stored)
        return (*self.not_built, *self._doubted, *(text for text in said if text))

    @property
    def has_own_pairs(self) -> bool:
        """Whether what is explained are the pairs of the file itself."""
        return self._placed.own is not None

    @property
    def default_advice(self) -> str:
        """How to get the pack's default where no remedies come near it; else empty."""
        if self.gpu is None or not self.explanation.default_is_faster:
            return ""
        own = self.has_own_pairs
        model = "FLOAT_MODEL" if own else "MODEL"
        if self.explanation.float_by_default:
            how = "as it quantizes nothing, it is the float model"
            how += ", which placer import MODEL -o FLOAT_MODEL writes" if own else ""
        else:
            first = "placer import MODEL -o FLOAT_MODEL, then " if own else ""
            how = (
                f"to get it, run {first}placer explain {model} --improved FILE with the same "
                f"options, and placer apply FILE {model} --data DATA"
            )
        return (
            f"the pack's default placement: {self.explanation.default_us / 1e3:.3f} ms, an "
            f"estimate, which no remedies of these pairs come near; {how}"
        )

    @property
    def first_changes(self) -> tuple[FirstChange, ...]:
        """The changes of a file's pairs that save most, the largest first.

        Empty without estimates, and where no engine takes the pairs as they are (``not_built``).
        """
        if self.gpu is None or not self.has_own_pairs or self.not_built:
            return ()
        return first_changes(self.explanation)

    @property
    def _saturating(self) -> str:
        placed, plan = self._placed, self.explanation.plan
        return saturating(placed.wide, placed.wide_operators, plan, self.pack, self.target)

    @property
    def pinned(self) -> tuple[str, ...]:
        """What the user pinned in the placement, a sentence for each tensor."""
        return self._placed.pinned

    def to_json(self) -> dict[str, Any]:
        """For ``json.dumps``; times in microseconds."""
        bodies = self._placed.bodies
        document = {
            "gpu": None if self.gpu is None else self.gpu.name,
            "nodes_in_bodies": {"nodes": bodies.nodes, "of": bodies.total},
            **explanation_json(self.explanation, timed=self.gpu is not None),
            "plan": plan_json(self.explanation.plan),
            "pinned": list(self.pinned),
            "pack": self.pack.name_and_version,
            "scheme": self.scheme,
            "base": self.base,
            "processor": self.processor or None,
            "notes": list(self.notes),
            "change_first": [first_change_json(change) for change in self.first_changes],
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
        """Write placement.yaml with all remedies applied; InputError where none is known.

        Of a quantized file it has the ranges; ``apply`` needs data for other tensors: see
        ``apply_command``.
        """
        if self.gpu is None:
            raise InputError(
                f"what pairs cost on engine {self.pack.manifest.engine} is not estimated, so no "
                "remedy is known; leave out `improved`, or give `gpu` a file of placer fit"
            )
        improved = self.explanation.improved
        if self._placed.placement is not None:
            improved = improved.with_weights(self._placed.placement.per_tensor)
        text = _placement_text(improved, self._placed, self.pack, self._known, self._missing)
        write_text(Path(path), text)

    @property
    def apply_command(self) -> str:
        """How ``placer apply`` makes the model of what ``write_improved`` writes to FILE.

        Pairs in FP8 cannot always be taken out of a file, so that needs the float model. ``base``
        is named where it is not what ``apply`` converts to: else another model is written than the
        estimate is of.
        """
        model = "FLOAT_MODEL" if self._placed.has_float8 else "MODEL"
        data = " --data DATA" if self._missing else ""
        kept = " --ranges kept" if data and len(self._missing) < len(self._activations) else ""
        is_written = self.pack.manifest.behaviour.types == "written"
        base = f" --base {self.base}" if is_written and self.base != "float16" else ""
        return f"placer apply FILE {model}{data}{kept}{base}"

    @cached_property
    def written(self) -> WrittenFile | None:
        """What ``apply_command`` writes is estimated to take; None where that is ``improved_us``.

        It differs where the file is float32 and the estimate of half precision: what is written
        keeps some float32 behind Casts. Reads the file once more.
        """
        if self.gpu is None:
            return None
        placement = self.explanation.improved
        return written_file(
            self._file, placement, self._known, self.base, self.pack, self.gpu, self.target
        )

    @property
    def _known(self) -> Ranges:
        """Ranges that the pairs of a quantized file have, and those that the user pinned."""
        own = self._placed.own
        found = {} if own is None else own.ranges_in(self.pack.manifest.scheme)
        return {**found, **{tensor: known for tensor, (_, known) in self._placed.pins.items()}}

    @property
    def _activations(self) -> frozenset[str]:
        constants = self._placed.graph.initializers
        return frozenset(e.tensor for e in self.explanation.improved.edges) - constants.keys()

    @property
    def _missing(self) -> frozenset[str]:
        """Activations that the improved placement quantizes, of which no range is known."""
        return self._activations - self._known.keys()


def explain(
    model: str | PathLike[str],
    placement: str | PathLike[str] | None = None,
    *,
    gpu: str | None = None,
    base: str | None = None,
    weak: bool = False,
    pack: str | None = None,
    scheme: str | None = None,
    shapes: Mapping[str, GivenShape] | None = None,
    fix: Mapping[str, float] | None = None,
    actual: str | PathLike[str] | None = None,
    profile: str | PathLike[str] | None = None,
    processor: str | None = None,
) -> ModelExplanation:
    """Match rules, decide each site, predict the plan and find the conversions that stay layers.

    ``placement``: a placement.yaml; by default the model's own pairs, or the pack's default.
    ``gpu``: a GPU, a file that describes one, or one that ``placer fit`` wrote; by default a100,
    and none with the ``pack`` of an engine other than TensorRT, for which nothing is estimated.
    ``pack``: by default the fit's, the built-in one that a placement or a model written by placer
    names, where no ``gpu`` is given, or tensorrt. ``scheme``: a number format other than the
    pack's own, for a model without pairs, as in ``optimize``; with a placement that which it was
    made in. ``base``: by default float16 on a GPU, bfloat16 there if the file is, else float, or
    the fit's.
    ``fix``: values of inputs that become constants, as in ``optimize``.
    ``weak``: weak typing, as TensorRT up to 10 may have. ``actual``: the engine's own plan, and
    ``profile`` its trtexec profile. Nothing is built or run.
    ``processor``: the kind of CPU that will run the model, one of ``PROCESSORS``, where what the
    pack predicts depends on it; by default the fit's, or this machine's.

    Raises InputError for wrong input.
    """
    path, source = Path(model), None if placement is None else Path(placement)
    if profile is not None and actual is None:
        raise InputError("`profile` has the times of an engine's plan; give the plan by `actual`")
    if pack is None and gpu is None:
        pack = _built_in_pack(path, source)
    device = device_for(gpu, pack)
    rules = load_pack(pack or pack_of(device, default="tensorrt"))
    if base is not None and base not in BASES:
        raise InputError(unknown("base", base, BASES))
    target = target_on(device, weak, _processor(processor, device, rules))
    if scheme is not None:
        rules = _with_scheme(rules, scheme, target, source)
    if isinstance(device, Fit):
        device.check_pack(rules)
        device.check_base(base)
    given = optima(given_ranges(shapes))
    with without_collection():
        placed = placed_model(path, source, given, fix, rules)
        if scheme is not None and placed.placement is not None and source is None:
            raise InputError(f"{path} has pairs, whose formats are its own; leave out `scheme`")
        base = base or _stored_base(placed.graph, device)
        explainer = _explainer(placed, rules, device, target, base)
        if placed.placement is None:
            explanation = explainer.explain(place(explainer.sites, {}))
        else:
            explanation = explainer.explain(placed.placement, placed.idle)
    if placed.own is not None:
        explanation = replace(explanation, pairs=placed.own.nodes)
    built, outcomes = _built(explanation, path, actual, profile)
    return ModelExplanation(
        placed.source,
        explanation,
        device,
        base,
        rules,
        built,
        outcomes,
        target,
        placed,
        Source(path, given, fix),
        scheme,
    )


def _built(
    explanation: Explanation,
    path: Path,
    actual: str | PathLike[str] | None,
    profile: str | PathLike[str] | None,
) -> tuple[Plan | None, tuple[SiteOutcome, ...]]:
    """The engine's own plan ``actual``, and what became of each site in it."""
    if actual is None:
        return None, ()
    built = read_plan(Path(actual), None if profile is None else Path(profile))
    outcomes = tuple(compare_sites(explanation.decisions, explanation.plan, built))
    if not outcomes:
        raise InputError(
            f"{actual} names no node of {path}; give the plan of an engine built from this file"
        )
    return built, outcomes


def _with_scheme(rules: Pack, name: str, target: Target, placement: Path | None) -> Pack:
    """``rules`` in the scheme ``name``; InputError if ``placement`` is in other formats."""
    rules = rules.with_scheme(name, target)
    if placement is None:
        return rules
    of_file, asked = read_placement(placement).scheme, rules.manifest.scheme
    if (of_file.activation, of_file.weight) != (asked.activation, asked.weight):
        raise InputError(
            f"{placement} was made for activations in {of_file.activation} and weights in "
            f"{of_file.weight}, which scheme '{name}' does not have; leave out `scheme`, or give "
            "the one that the placement was made with"
        )
    return rules


def _stored_base(graph: Graph, device: Device | None) -> str:
    """The base of ``device``; of a GPU, bfloat16 where most float tensors of the file are."""
    types = Counter(graph.type_of(t).dtype for node in graph.nodes for t in node.outputs)
    others = types[TensorProto.FLOAT] + types[TensorProto.FLOAT16]
    if isinstance(device, Gpu) and types[TensorProto.BFLOAT16] > others:
        return "bfloat16"
    return base_of(device)


def _processor(kind: str | None, device: Device | None, rules: Pack) -> Processor | None:
    """That of ``kind``; else this machine's, or None where that of ``device`` counts."""
    if kind is None:
        return this_processor() if device is None else None
    if kind not in PROCESSORS:
        raise InputError(unknown("processor", kind, PROCESSORS))
    if isinstance(device, Gpu) or not rules.asks_for_processor:
        raise InputError(
            f"what pack {rules.name_and_version} predicts does not depend on the CPU; leave out "
            "`processor`, or give `pack` onnxruntime or openvino without a GPU"
        )
    return PROCESSORS[kind]


def _built_in_pack(model: Path, placement: Path | None) -> str | None:
    """The built-in pack that the placement, or a model with pairs, says it was made with."""
    named = None
    if is_quantized_file(model):
        named = named_pack(parse_model(model))
    elif placement is not None:
        named = read_placement(placement).pack
    name = named.split()[0] if named and named.strip() else ""
    return name if is_builtin(name) else None


def _explainer(
    placed: PlacedModel, pack: Pack, device: Device | None, target: Target, base: str
) -> Explainer:
    graph, matches = placed.graph, Matches(placed.graph, target.processor)
    pairs = placed.own
    ranges, types = (None, None) if pairs is None else (pairs.ranges, pairs.types)
    predictor = make_predictor(graph, pack, target, base, matches, ranges, placed.stored, types)
    estimator = make_estimator(graph, device, pack.manifest.behaviour, base)
    formats = _formats(placed.placement)
    own = pack.target(target)
    gains = pack.manifest.behaviour.gains_on(own)
    return Explainer(matches, pack.rules, own, predictor, estimator, formats, gains)


def _formats(placement: Placement | None) -> tuple[Format, ...]:
    """The formats that ``placement`` has beside the scheme's own."""
    formats = set() if placement is None else {*placement.formats.values()}
    return tuple(sorted(formats & {FLOAT8}))


def _placement_text(
    placement: Placement, placed: PlacedModel, pack: Pack, known: Ranges, missing: Collection[str]
) -> str:
    scheme = pack.manifest.scheme
    formats = _formats(placement)
    return placement_text(
        placement,
        known,
        scheme.model_copy(update={"formats": formats}) if formats else scheme,
        model=placed.fingerprint,
        pack=pack.name_and_version,
        calibrated=placed.own is not None and not missing,
        graph=placed.graph,
        pinned={tensor: pin for tensor, (pin, _) in placed.pins.items()},
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
