"""``placer fit`` from start to end: measure, predict, fit, leave out, write."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from os import PathLike
from pathlib import Path

from placer.common.counts import MOST_ROUNDS, MOST_THREADS, check_count
from placer.common.files import check_writable, make_folder, temporary_folder, write_text
from placer.engines.abilities import target_of
from placer.engines.base import Engine
from placer.engines.doctor import diagnose
from placer.engines.isolation import IsolatedEngine
from placer.engines.rounds import TIMING
from placer.engines.select import select_engine
from placer.errors import InputError, PlacerError, RunError
from placer.fitting.evidence import GIVEN, evidence
from placer.fitting.leave_out import (
    LEAST_BUILDS,
    LEAST_NETWORKS,
    LeftOut,
    conformal_quantile,
    leave_out,
)
from placer.fitting.measure import Measurer, model_paths
from placer.fitting.networks import (
    ARCHITECTURE,
    mixed_order,
    network_names,
    write_network,
)
from placer.fitting.predicted import PredictedNetwork, counts_moves, in_steadier_times, predict
from placer.fitting.progress import Progress
from placer.fitting.records import Records
from placer.fitting.rules import rule_evidence
from placer.graph.structure import structure_of
from placer.model import Model, load_model
from placer.prediction.select import make_predictor
from placer.prediction.times.fitted import FORMAT, Fit, FittedEngine
from placer.prediction.times.intervals import COVERAGE
from placer.qdq.bases import Base, parse_base

# How engines tell what layers take, said beside measurements: those told otherwise do not compare.
_LAYERS = "of single inferences"
# What a given model counts for, whose placements are to be estimated. Those of networks of which
# the float and the default build were known were closer with OpenVINO than where each counted as 1.
GIVEN_WEIGHT = 4.0
# What a well-known architecture counts for, where a generated network counts as 1: networks that
# are deployed are more like it.
_ARCHITECTURE_WEIGHT = 4.0
# Copies of one model that differ by more make a machine too noisy to tell placements apart.
TOO_NOISY = 0.05
# Networks of which the engine builds none, or in float alone, after which it will not build others.
_HOPELESS = 20


@dataclass(frozen=True)
class FitOptions:
    """What is measured and how; ``networks``: generated ones. See ``fit``."""

    engine: str
    models: Path | None
    threads: int
    device: str | None
    base: str | None
    engine_options: Mapping[str, str]
    networks: int
    placements: int
    rounds: int
    names: bool
    timeout: float | None


def fit(
    engine: str,
    output: str | PathLike[str],
    *,
    models: str | PathLike[str] | None = None,
    threads: int = 1,
    device: str | None = None,
    base: str | None = None,
    engine_options: Mapping[str, str] | None = None,
    networks: int = 280,
    placements: int = 4,
    rounds: int = 15,
    names: bool = False,
    timeout: float | None = None,
    replace: bool = False,
    on_network: Callable[[str], None] = lambda _: None,
) -> Fit:
    """Measure known and generated networks and the ONNX files in ``models``; fit layer costs.

    Each is built in float, by the rules' default layouts and with ``placements`` random placements,
    which are measured in turn in ``rounds``. What was measured is kept in ``OUTPUT.builds``, where
    a run that was interrupted goes on. After ``timeout`` seconds no further network is measured,
    and costs are fitted to those that were. ``output`` holds no weights and, without ``names``, no
    name of a model. ``replace``: whether a file that no run of placer wrote may be written over.
    ``on_network`` is told of each network that is ready, in a sentence.

    Raises InputError for wrong options or files, RunError if the engine cannot run here or too
    little was measured to tell how far off the costs are.
    """
    options = FitOptions(
        engine=engine,
        models=None if models is None else Path(models),
        threads=threads,
        device=device,
        base=base,
        engine_options=engine_options or {},
        networks=networks,
        placements=placements,
        rounds=rounds,
        names=names,
        timeout=timeout,
    )
    _check(options)
    check_writable(Path(output), replace=replace)  # Else that is noticed when all is measured.
    with _measurer(options) as measurer, temporary_folder() as folder:
        run = _Run(options, measurer, Path(f"{output}.builds"), on_network)
        fitted = run.fitted(Path(folder))
    make_folder(Path(output).parent)
    write_text(Path(output), fitted.to_text())
    return fitted


def _check(options: FitOptions) -> None:
    check_count("networks", options.networks, 0)
    check_count("placements", options.placements, 1)
    check_count("rounds", options.rounds, 3, MOST_ROUNDS)
    check_count("threads", options.threads, 1, MOST_THREADS)
    if options.timeout is not None and not options.timeout > 0:
        raise InputError(f"`timeout` is {options.timeout:g}; give some seconds")
    if options.models is None:
        _check_count(options.networks)
        return
    if not options.models.is_dir():
        raise InputError(f"{options.models} is not a folder; give one that holds ONNX models")
    if not model_paths(options.models):
        raise InputError(f"{options.models} holds no .onnx file; give a folder that does")
    _check_count(options.networks + len(model_paths(options.models)))


def _check_count(networks: int) -> None:
    if networks < LEAST_NETWORKS:
        raise InputError(
            f"{networks} networks are too few to tell how far off a fit is for others: measure "
            f"{LEAST_NETWORKS} or more, by `networks` and `models`"
        )


@contextmanager
def _measurer(options: FitOptions) -> Iterator[Measurer]:
    engine, pack, _ = select_engine(
        options.engine,
        threads=options.threads,
        base=options.base,
        device=options.device,
        extra=options.engine_options,
        measures=True,
    )
    try:
        base = _base(engine, options.base)
        yield Measurer(engine, pack, base, options.rounds, options.placements)
    finally:
        if isinstance(engine, IsolatedEngine):
            engine.close()


def network_weight(name: str) -> float:
    """What the network ``name`` counts for in a fit."""
    if name.startswith(GIVEN):
        return GIVEN_WEIGHT
    return _ARCHITECTURE_WEIGHT if name.startswith(f"{ARCHITECTURE}-") else 1.0


def _without_advice(error: PlacerError) -> str:
    """What ``error`` says, without advice to give options that a fit does not have."""
    if str(error) == error.problem:
        return error.problem
    return f"{error.problem}; a fit takes models of fixed shapes that bear random inputs"


def _base(engine: Engine, asked: str | None) -> Base:
    """The type of what is not quantized, as in a search."""
    if asked is not None:
        return parse_base(asked)
    return "float16" if engine.remainder == "built" else "float"


class _Run:
    """One run of ``fit``."""

    def __init__(
        self, options: FitOptions, measurer: Measurer, folder: Path, tell: Callable[[str], None]
    ) -> None:
        self._options = options
        self._measurer = measurer
        self._tell = tell
        engine = measurer.engine
        self._records = Records(
            folder,
            {
                "engine": engine.name,
                "version": engine.version,
                "device": engine.device,
                "clock": engine.clock,
                "timing": TIMING,
                "layers": _LAYERS,
                "base": measurer.base,
                "engine options": dict(options.engine_options),
                "placements": measurer.placements,
                "rounds": measurer.rounds,
            },
        )
        self._remarks: list[str] = []
        self._failed: list[str] = []  # What the engine refused, and models that are no such.
        self._given: dict[str, str] = {}  # By structure the first given model of it.
        self._moves = counts_moves(measurer.pack, options.engine_options)
        self._ends = math.inf if options.timeout is None else time.monotonic() + options.timeout
        self._count = self._not_measured = 0  # Networks, and those after time was up.

    def fitted(self, folder: Path) -> Fit:
        """Measure what was not measured yet, and fit; ``folder`` is for generated networks."""
        others = self._records.others()
        if others:
            remark = "builds measured with other options are kept and take no part"
            names = ", ".join(path.name for path in others)
            self._remark(remark, sentence=f"{remark}: {names} in {others[0].parent}")
        generated = network_names(self._options.networks)
        models = model_paths(self._options.models) if self._options.models else []
        self._count = len(generated) + len(models)
        progress = Progress(self._count, self._tell)
        # Given ones first: what is wrong with one is told at once, not behind all others.
        given = [n for p in models for n in self._network(f"{GIVEN}{p.stem}", p, progress)]
        networks = []
        for number, name in enumerate(mixed_order(generated), start=1):
            path = write_network(name, folder)
            networks += self._network(name, path, progress)
            path.unlink()
            if number == _HOPELESS:
                self._check_any([*networks, *given])
        place = {name: number for number, name in enumerate(generated)}
        networks.sort(key=lambda network: place[network.record.network])
        if self._not_measured:
            self._remark(f"time was up with {self._left}; the same command again goes on with them")
        self._tell("fitting, each kind of network estimated without it")
        return self._fit(in_steadier_times([*networks, *given]))

    @property
    def _left(self) -> str:
        return f"{self._not_measured} of {self._count} networks not measured"

    def _is_copy(self, name: str, model: Model) -> bool:
        """Whether a given model differs from one before it in weights and names at most.

        Left out, it would still be among those fitted to, and errors of one network would count
        as those of several.
        """
        if not name.startswith(GIVEN):
            return False
        first = self._given.setdefault(structure_of(model.graph).digest, name)
        if first != name:
            sentence = f"{name} has the layers of {first} and is left out"
            self._remark("models with the same layers count once", sentence=sentence)
        return first != name

    def _network(self, name: str, path: Path, progress: Progress) -> list[PredictedNetwork]:
        """The builds of one network, measured now or before; none if the engine refuses it."""
        measurer = self._measurer
        progress.begin()
        try:
            model = load_model(path)
        except InputError as error:
            sentence = _without_advice(error)
            self._remark("a given model cannot be read and is left out", sentence=sentence)
            self._failed.append(sentence)
            return []
        if self._is_copy(name, model):
            return []
        record = self._records.load(name, model.fingerprint)
        if record is not None:
            progress.tell(f"{name}: {len(record.builds)} builds were measured before")
        elif time.monotonic() >= self._ends:
            self._not_measured += 1
            return []
        else:
            try:
                record = measurer.measure(name, model)
            except PlacerError as error:
                sentence = f"{name}: {_without_advice(error)}"
                self._remark("a network that cannot be built is left out", sentence=sentence)
                self._failed.append(sentence)
                return []
            self._records.keep(record)
            progress.tell_measured(f"{name}: {len(record.builds)} builds measured")
        if record.refused:
            sentence = f"{name}: the engine refused {len(record.refused)}: {record.refused[0]}"
            self._remark("some builds that the engine refused are left out", sentence=sentence)
            self._failed.append(sentence)
        predictor = make_predictor(
            model.graph, measurer.pack, target_of(measurer.engine), measurer.base
        )
        return [predict(record, model.graph, predictor, self._moves, network_weight(name))]

    def _check_any(self, networks: list[PredictedNetwork]) -> None:
        """Raise RunError if no network has builds to compare; all others would take hours."""
        if (
            self._failed
            and not self._not_measured
            and not any(len(n.costs.builds) >= LEAST_BUILDS for n in networks)
        ):
            raise RunError(
                f"of the first {_HOPELESS} networks none could be measured both in float and "
                f"quantized; {self._failed[0]}"
            )

    def _left_out(self, networks: list[PredictedNetwork]) -> LeftOut:
        try:
            return leave_out(networks, self._tell)
        except RunError as error:
            why = [f"What failed first: {self._failed[0]}"] if self._failed else []
            if self._not_measured:
                why.append(f"Time was up with {self._left}")
            raise RunError(". ".join([str(error), *why])) from error

    def _remark(self, remark: str, sentence: str = "") -> None:
        """Keep ``remark`` for the file, once, and tell the user, who may know names and paths."""
        self._tell(sentence or remark)
        if remark not in self._remarks:
            self._remarks.append(remark)

    def _fit(self, networks: list[PredictedNetwork]) -> Fit:
        left = self._left_out(networks)
        noise = conformal_quantile([network.noise for network in networks], COVERAGE)
        if noise > TOO_NOISY:
            self._remark(
                f"this machine was too noisy: two builds of one model differed by {noise:.0%} "
                "(80% of networks); measure again while nothing else runs, or give more rounds"
            )
        if not any(build.built.layers for network in networks for build in network.builds):
            self._remark("the engine tells no layers; costs rest on whole builds alone")
        machine = diagnose()
        engine = self._measurer.engine
        fit = Fit(
            format=FORMAT,
            name=f"{engine.name} on {engine.device}",
            engine=self._engine(),
            versions=dict(machine.packages),
            system=machine.system,
            noise=noise,
            errors=left.errors,
            remarks=tuple(self._remarks),
            costs=left.table.costs,
            many_weights_mb=left.table.many_weights_mb,
            rules=rule_evidence(build for network in networks for build in network.builds),
            networks=tuple(evidence(networks, left, self._options.names)),
        )
        return fit.signed()

    def _engine(self) -> FittedEngine:
        engine, pack = self._measurer.engine, self._measurer.pack
        target = target_of(engine)
        return FittedEngine(
            name=engine.name,
            version=engine.version,
            device=engine.device,
            clock=engine.clock,
            base=self._measurer.base,
            pack=pack.manifest.name,
            pack_version=pack.name_and_version,
            pack_fingerprint=pack.fingerprint,
            engine_version=target.engine_version,
            compute_capability=target.compute_capability,
            typing=target.typing,
            processor=target.processor,
            moves=self._moves,
        )
