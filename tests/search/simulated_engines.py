"""Engines without error: latency is the sum of hidden costs of the predicted layers."""

import itertools
from collections.abc import Callable, Sequence
from zlib import crc32

from placer.search.landscape.landscape import Landscape, State
from placer.search.landscape.layer_signatures import Signature
from placer.search.proposals.surrogate import SurrogateProposer
from placer.search.records import TrialRecord, by_latency
from placer.search.samplers import Proposal
from placer.search.space import Choices
from tests.search.outcomes import judgement, measurement

Noise = Callable[[Choices], float]


def cost(signature: Signature, salt: int) -> float:
    """Microseconds: what there is to do, times a factor from 0.6 to 1.4 that is the layer's own.

    The factor depends on the work alone: ids change with whatever predictions tell of a layer.
    """
    work = signature.work
    if work is None:
        return 0.0
    drawn = crc32(f"{salt} {work.dtype} {work.ops:.6g} {work.bytes:.6g}".encode()) / 2**32
    return (0.6 + 0.8 * drawn) * (2 + work.bytes / 5e5)


class Engine:
    """Makes trials. ``refuses``: sites and layouts that no candidate may have together."""

    profiles = True

    def __init__(
        self,
        land: Landscape,
        *,
        salt: int = 0,
        noise: Noise | None = None,
        limit: float = 1.0,
        refuses: Sequence[tuple[int, int]] = (),
    ) -> None:
        self.land = land
        self.limit = limit
        self._salt, self._noise, self._refuses = salt, noise, refuses

    def noise(self, choices: Choices) -> float:
        return 0.0 if self._noise is None else self._noise(choices)

    def ratio(self, state: State) -> float | None:
        if self._refuses and all(state[site] == layout for site, layout in self._refuses):
            return None
        return self._latency(state) / self._latency(self.land.state(self.land.space.floats))

    def layers(self, state: State) -> dict[str, float]:
        """What a profiler tells: microseconds by signature id."""
        if not self.profiles:
            return {}
        signatures = self.land.layers.signatures
        own = (signatures[number] for number in self.land.predict(state).counts())
        return {signature.id: cost(signature, self._salt) for signature in own}

    def _latency(self, state: State) -> float:
        counts = self.land.predict(state).counts()
        signatures = self.land.layers.signatures
        return sum(cost(signatures[n], self._salt) * count for n, count in counts.items())

    def trial(self, number: int, proposal: Proposal) -> TrialRecord:
        state = self.land.state(proposal.choices)
        ratio, noise = self.ratio(state), self.noise(proposal.choices)
        excess = -1.0 if self._noise is None else noise - self.limit
        return TrialRecord(
            number=number,
            kind=proposal.kind,
            choices=proposal.choices,
            placement_id=self.land.space.placement(proposal.choices).id,
            measurement=None if ratio is None else measurement(ratio, self.layers(state)),
            judgement=None if ratio is None else judgement(excess, noise),
            error=None if ratio is not None else "the engine refuses the model",
            seconds=0.0,
            skipped=proposal.skipped,
        )

    def proposer(self, seed: int = 0, **options: bool) -> SurrogateProposer:
        return SurrogateProposer(self.land, seed, self.noise, **options)

    def optimum(self) -> float:
        """The least ratio of all states that the engine takes and that hold the limit."""
        layouts = (range(len(names)) for names in self.land.names)
        held = (s for s in itertools.product(*layouts) if self._holds(s))
        return min(ratio for ratio in map(self.ratio, held) if ratio is not None)

    def _holds(self, state: State) -> bool:
        return self._noise is None or self.noise(self.land.choices(state)) <= self.limit


class EdgeEngine(Engine):
    """Each quantized edge makes the model 2% faster, and no profiler tells of layers."""

    profiles = False

    def _latency(self, state: State) -> float:
        return 1 - 0.02 * len(self.land.space.placement(self.land.choices(state)).edges)


def search(engine: Engine, trials: int, seed: int = 0) -> list[TrialRecord]:
    proposer, records = engine.proposer(seed), list[TrialRecord]()
    while len(records) < trials:
        proposal = proposer.propose(records)
        if proposal is None:
            break
        records.append(engine.trial(len(records), proposal))
    return records


def best(records: Sequence[TrialRecord]) -> TrialRecord:
    return by_latency(records)[0]


def noisy_conv1(land: Landscape) -> Noise:
    """One site of a group of two makes nearly all noise."""

    def noise(choices: Choices) -> float:
        edges = land.space.placement(choices).edges
        return sum(1.0 if str(edge) == "w1 -> conv1[1]" else 0.01 for edge in edges)

    return noise
