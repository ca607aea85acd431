"""Costs of layers that ``placer fit`` measured on a device, as estimates for other networks.

One file holds the costs, the device and engine that they are of, and what they rest on. It names
its format and carries a checksum, so that an edited or damaged one is refused.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import Any, Literal

from pydantic import Field, ValidationError

from placer.common.processor import UNKNOWN_PROCESSOR, Processor
from placer.errors import InputError
from placer.graph import Graph
from placer.prediction.layers.conversions import PredictedLayer
from placer.prediction.layers.prediction import Prediction
from placer.prediction.times.costs import Cost, CostTable, Document
from placer.prediction.times.estimator import Estimator
from placer.prediction.times.intervals import NetworkErrors, errors_of_size
from placer.prediction.times.layer_parts import WEIGHTS, layer_parts
from placer.prediction.times.plan_parts import plan_parts
from placer.prediction.times.work import float_weight_bytes
from placer.rules.pack import Pack
from placer.rules.target import Target

FORMAT = "placer-fit/12"


class FittedEngine(Document):
    """What was measured: the engine as it names itself, and what its rules were predicted with.

    ``processor``: what was known of it. ``moves``: whether the costs are of ``plan_parts`` with
    what is moved between memory layouts.
    """

    name: str
    version: str
    device: str
    clock: str
    base: str
    pack: str
    pack_version: str
    pack_fingerprint: str
    engine_version: str | None = None
    compute_capability: str | None = None
    typing: Literal["strong", "weak"] | None = None
    processor: Processor = UNKNOWN_PROCESSOR
    moves: bool = False


class FitErrors(Document):
    """How far estimates are off for networks that took no part in the fit.

    ``latency``, ``ratio``: relative errors that 80% of latencies, and of ratios of two builds, of
    a further network stay within. ``ratio_median``, ``ratio_95``: those of half and of 95% of its
    ratios. ``ordered``: share of the pairs in the right order, of the ``pairs_apart`` that differ
    by more than noise; None where none does. ``training_ratio``: as ``ratio``, by a fit to all
    networks. Each network counts the same, however many builds it has; in ``ordered`` each pair.
    """

    networks: int
    builds: int
    pairs: int
    latency: float = Field(gt=0)
    ratio: float = Field(gt=0)
    ratio_median: float
    ratio_95: float
    pairs_apart: int
    ordered: float | None
    training_ratio: float


class BuildEvidence(Document):
    """One build: measured, and estimated by a fit without its network.

    ``ratio``: to the float build; ``ratio_interval``: 95%. ``kinds``: parts of its predicted
    layers as name, type, how often, million operations, megabytes read and written.
    """

    label: str
    measured_us: float
    estimated_us: float
    ratio: float
    ratio_interval: tuple[float, float]
    estimated_ratio: float
    kinds: tuple[tuple[str, str, float, float, float, float], ...]


class NetworkEvidence(Document):
    """One network. ``noise``: how far the float model was from a copy of itself."""

    name: str
    noise: float
    builds: tuple[BuildEvidence, ...]

    @property
    def errors(self) -> NetworkErrors:
        """How far its estimates were off."""
        measured = [build.measured_us for build in self.builds]
        estimated = [build.estimated_us for build in self.builds]
        weights_mb = sum(kind[4] for kind in self.builds[0].kinds if kind[:2] == WEIGHTS)
        return NetworkErrors.of(weights_mb, measured, estimated)


class RuleEvidence(Document):
    """Predicted layers of one rule, and of them those that the engine built so.

    ``otherwise``: what it built instead, in operators and types, with how often.
    """

    rule: str
    predicted: int
    built: int
    same_types: int
    otherwise: tuple[tuple[str, int], ...] = ()


class Fit(Document):
    """A fit file; ``name`` is what it calls the device. ``remarks``: what its user should know.

    ``many_weights_mb``: from how many 10**6 bytes of weights on layers take more; None: none do.
    """

    format: str
    name: str
    engine: FittedEngine
    versions: Mapping[str, str | None]
    system: str
    noise: float
    errors: FitErrors
    remarks: tuple[str, ...]
    costs: tuple[Cost, ...]
    many_weights_mb: float | None = Field(default=None, gt=0)
    rules: tuple[RuleEvidence, ...]
    networks: tuple[NetworkEvidence, ...]
    checksum: str = ""

    @cached_property
    def target(self) -> Target:
        """What was built for."""
        engine = self.engine
        return Target(
            engine.engine_version,
            engine.compute_capability,
            engine.typing,
            processor=engine.processor,
        )

    @cached_property
    def left_out(self) -> tuple[NetworkErrors, ...]:
        """Errors of each network, estimated by a fit without it."""
        return tuple(network.errors for network in self.networks)

    @property
    def fingerprint(self) -> str:
        """16 hex digits of the checksum."""
        return self.checksum[:16]

    def signed(self) -> Fit:
        """The same with the checksum of its content."""
        return self.model_copy(update={"checksum": self._digest()})

    def is_intact(self) -> bool:
        """Whether nothing was changed since it was signed."""
        return self.checksum == self._digest()

    def to_text(self) -> str:
        """The file."""
        return json.dumps(self.model_dump(mode="json"), indent=1) + "\n"

    def check_pack(self, pack: Pack) -> None:
        """Raise InputError if ``pack`` is not the one, in the scheme, that was measured with."""
        if pack.fingerprint == self.engine.pack_fingerprint:
            return
        if pack.in_alternative:
            raise InputError(
                f"the costs of {self.name} were measured in the formats that are pack "
                f"{self.engine.pack}'s own; leave out `scheme`"
            )
        if pack.name_and_version == self.engine.pack_version:
            raise InputError(
                f"pack {pack.name_and_version} was edited since the costs of {self.name} were "
                "fitted; run placer fit again, which keeps what was measured"
            )
        raise InputError(
            f"the costs of {self.name} were fitted with pack {self.engine.pack_version}; pack "
            f"{pack.name_and_version} predicts other layers: run placer fit again, which keeps "
            "what was measured, or take that pack"
        )

    def check_base(self, base: str | None) -> None:
        """Raise InputError if ``base`` is given and not what was built."""
        if base not in (None, self.engine.base):
            raise InputError(
                f"the costs of {self.name} are of base {self.engine.base}, not {base}; leave "
                "`base` out, or fit builds of that base"
            )

    def _digest(self) -> str:
        content = self.model_dump(mode="json", exclude={"checksum"})
        return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def parse_fit(text: str, name: str) -> Fit:
    """Read a fit file; ``name`` stands for it in messages.

    Raises InputError if it is of another version, damaged or edited.
    """
    again = "run placer fit again, or take the file as it was written"
    try:
        document: Any = json.loads(text)
    except ValueError as error:
        raise InputError(f"{name}: not valid JSON: {error}; {again}") from error
    given_format = document.get("format") if isinstance(document, dict) else None
    if given_format != FORMAT:
        raise InputError(f"{name}: format {given_format!r} is not {FORMAT}; {_other(given_format)}")
    try:
        fit = Fit.model_validate(document)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        field = ".".join(map(str, first["loc"]))
        raise InputError(f"{name}: field '{field}': {first['msg']}; {again}") from error
    if not fit.is_intact():
        raise InputError(f"{name} was changed after placer fit wrote it; {again}")
    return fit


def _other(given: object) -> str:
    """What to do about a file of the format ``given``, which is not this version's."""
    name, _, number = str(given).rpartition("/")
    ours, _, own_number = FORMAT.rpartition("/")
    if name == ours and number.isdecimal() and int(number) > int(own_number):
        return "a newer version of placer wrote it: use that one, or run placer fit again"
    return "run placer fit again, which keeps what was measured"


class FittedEstimator(Estimator):
    """Estimates the layers of one model by the costs of a fit."""

    def __init__(self, graph: Graph, fit: Fit) -> None:
        source = f"predicted from rules, costs fitted on {fit.name}"
        super().__init__(source, *errors_of_size(fit.left_out, float_weight_bytes(graph) / 1e6))
        self._graph = graph
        self._costs = CostTable(fit.costs, fit.many_weights_mb)
        self._moves = fit.engine.moves

    def layer_us(self, predicted: PredictedLayer) -> float:
        """Estimated time of one layer in microseconds; 0 for a no-op.

        Without what is moved between memory layouts and what layers take in a network with many
        weights: these take the layers around it to tell.
        """
        return self._costs.layer_us(layer_parts(predicted, self._graph))

    def _times(self, prediction: Prediction) -> Iterator[float]:
        return iter(self._costs.plan_us(plan_parts(prediction, self._graph, self._moves)))
