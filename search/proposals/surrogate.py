"""The search that learns from every build: predicted latency under predicted gates."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace

from placer.common.collector import without_collection
from placer.search.landscape.landscape import Cancelled, Landscape
from placer.search.models.latency_model import TOTAL_FLOOR
from placer.search.models.noise_limits import allowed_noise
from placer.search.models.observe import exactly, measured_as
from placer.search.pareto import noise_targets
from placer.search.proposals.knowledge import Knowledge
from placer.search.proposals.pools import NO_PLAN, Plan
from placer.search.proposals.round import Round
from placer.search.records import Measurement, TrialRecord
from placer.search.samplers import Proposal, TpeProposer
from placer.search.space import Choices, Space

# Latencies are as expected up to so many standard deviations from the prediction.
SURPRISE = 2.0
# What is prepared for besides: so many standard deviations less, which makes a new best placement
# with changes of its own, and more.
SURPRISES = (-2.5, 2.5)
# Before a search for a front ends, it looks at the limits of noise of so many cycles.
CYCLES = 4
# The kind of the trial of the pack's default placement.
DEFAULT = "default"

Probe = Callable[[Choices], float]


def seed_proposals(space: Space, *, hurries: bool = False) -> Iterator[Proposal]:
    """Where every search begins: nothing but what is forced, the pack's default, everything.

    And the default in the other formats that there are. ``hurries``: the default first, since the
    time may not suffice for more.
    """
    least = Proposal("none" if space.least == space.floats else "forced", space.least)
    default = Proposal(DEFAULT, space.defaults)
    yield from (default, least) if hurries else (least, default)
    yield Proposal("everything", space.everything)
    for chosen in space.formats:
        yield Proposal(f"default in {chosen}", space.defaults_in(chosen))


class SurrogateProposer:
    """Proposes the placement with the least predicted latency among those predicted to hold.

    Predictions come from the layers that the rules predict, whose costs every trial teaches
    (``LatencyModel``), and from the noise of sites, which is measured once gates are missed
    (``NoiseModel``). Every other proposal draws the costs from what is still possible instead of
    expecting the mean (Thompson 1933), which tries what is uncertain and promising. Whole groups
    are changed first, single sites once groups have no more to give.

    For a front of latency and accuracy, proposals look in turn for the fastest placement that holds
    the gates and for the fastest ones within stricter limits of noise (the epsilon-constraint
    method of Haimes, Lasdon and Wismer 1971), which follow from the trials.
    """

    def __init__(
        self,
        landscape: Landscape,
        seed: int,
        probe: Probe,
        *,
        warm_starts: Sequence[Proposal] = (),
        remembered: Mapping[str, float] | None = None,
        per_site: bool = True,
        noise_limit: float | None = None,
        levels: int = 0,
        reserve: Callable[[int], int] | None = None,
        hurries: bool = False,
    ) -> None:
        """``landscape``: with the base precision decided, if it is a decision; of trials in another
        one it learns what may be gained, and nothing about layers and noise. ``probe``: measures
        the noise power of a placement, or remembers it, without what the base precision adds to it.
        ``remembered``: costs by signature id, as parts of the float model's latency.
        ``per_site``: whether groups may be split. ``noise_limit``: what the gates allow, where
        they say it in terms of noise; else it is learned. ``levels``: how many stricter limits of
        noise to look at besides; see ``placer.search.pareto.noise_targets``. ``reserve``: gives a
        proposal a number, at least the one that it is given, that no other worker's has; without
        it that is the number of trials. ``hurries``: see ``seed_proposals``.
        """
        self._known = Knowledge(
            landscape, seed, probe, remembered or {}, per_site, noise_limit, levels
        )
        self._reserve = reserve
        self._seeds = (*warm_starts, *seed_proposals(landscape.space, hurries=hurries))
        self._ids = [landscape.space.placement(seed.choices).id for seed in self._seeds]

    @property
    def landscape(self) -> Landscape:
        """What it proposes placements of."""
        return self._known.landscape

    def informed(
        self, layers: Mapping[str, float], reserve: Callable[[int], int] | None = None
    ) -> SurrogateProposer:
        """The same proposer where ``layers``, costs by signature id, are remembered too.

        ``reserve``: see the constructor; its proposals get numbers by it.
        """
        copied = copy.copy(self)
        copied._reserve = reserve
        copied._known = replace(self._known, remembered={**self._known.remembered, **layers})
        return copied

    def own(self, trials: Sequence[TrialRecord]) -> list[TrialRecord]:
        """Those of ``trials`` in this base precision."""
        return self._known.own(trials)

    def floats(self, trials: Sequence[TrialRecord]) -> TrialRecord | None:
        """The trial of the float model in this base precision, if there is one."""
        return self._known.floats(trials)

    def expected(self, trials: Sequence[TrialRecord], choices: Choices) -> tuple[float, float]:
        """Predicted latency of ``choices`` and its standard deviation, of the float model's."""
        return self._known.latency(self.own(trials)).predict(self.landscape.state(choices))

    @without_collection()
    def propose(self, trials: Sequence[TrialRecord], plan: Plan = NO_PLAN) -> Proposal | None:
        """See ``placer.search.samplers.Proposer``. ``plan``: where to look, see ``planned``."""
        for seed in self.untried_seeds(trials):
            return seed
        known = self._with_pending(trials)
        counted = self.own(known)
        if not any(trial.ratio is not None for trial in counted):
            return TpeProposer(self.landscape.space, self._known.seed).propose(counted)
        turn = len(trials) if self._reserve is None else self._reserve(len(trials))
        return self._first_to_offer(known, turn, plan)

    def _with_pending(self, trials: Sequence[TrialRecord]) -> Sequence[TrialRecord]:
        """``trials``, of which those that others are running have the latency that is predicted.

        Ginsbourger, Le Riche and Carraro 2010, Kriging is well-suited to parallelize optimization.
        """
        if not any(trial.running for trial in self.own(trials)):
            return trials
        latency = self._known.latency(self.own(trials))

        def believed(trial: TrialRecord) -> TrialRecord:
            if not trial.running or not self.own([trial]):
                return trial
            expected, _ = latency.predict(self.landscape.state(trial.choices))
            return replace(trial, measurement=exactly(expected))

        return [believed(trial) for trial in trials]

    def untried_seeds(self, trials: Sequence[TrialRecord]) -> Iterator[Proposal]:
        """What it begins with, as far as that was not tried."""
        tried = {trial.placement_id for trial in trials}
        return (
            seed
            for seed, placement_id in zip(self._seeds, self._ids, strict=True)
            if placement_id not in tried
        )

    @without_collection()
    def rehearse(self, trials: Sequence[TrialRecord], running: Proposal) -> Plan:
        """Predict what the next proposal will look at if ``running`` turns out as predicted.

        Returns where it is to look, if it is ``planned``. Else what it finds is dropped: the next
        proposal is the same without a rehearsal, and sooner made with one. Measures no noise: what
        was not measured is guessed. Ends early once ``landscape.cancel`` is set.
        """
        rehearsing = self._guessing(trials)
        with suppress(Cancelled):
            expected = self._as_expected(trials, [running])
            if self.plans(expected):
                return rehearsing._plan(expected)
            # The first proposals are given; that after them takes longest.
            seeds = list(self.untried_seeds(expected))
            rehearsing.propose(self._as_expected(expected, seeds))
        return NO_PLAN

    @without_collection()
    def rehearse_surprises(
        self, trials: Sequence[TrialRecord], running: Proposal, plan: Plan
    ) -> None:
        """Predict what the next proposal will look at besides what ``rehearse`` has looked at.

        First sites one by one: once nothing that whole groups promise is a gain any more, a search
        for these begins that ``plan`` may know nothing of. Then what it looks at if ``running`` is
        no more as predicted and ``plan`` is of no use. What is found is dropped, as in
        ``rehearse``. Nothing is prepared for where nothing is planned, nor in a vast landscape,
        where it would take longer than trials.
        """
        with suppress(Cancelled):
            *before, last = self._as_expected(trials, [running])
            if self.landscape.is_vast or not self.plans([*before, last]):
                return
            mean, deviation = self.expected(before, last.choices)
            errors = [_error(trial.measurement) for trial in before if trial.measurement]
            deviation = math.hypot(deviation, max(errors))
            rehearsing = self._guessing(trials)
            if True not in plan:
                rehearsing._round([*before, last], plan).look_at_sites()
            for surprise in SURPRISES:
                ratio = max(mean + surprise * deviation, TOTAL_FLOOR)
                rehearsing.propose([*before, replace(last, measurement=exactly(ratio))])

    def _guessing(self, trials: Sequence[TrialRecord]) -> SurrogateProposer:
        """The same proposer, for rehearsals after ``trials``."""
        rehearsing = copy.copy(self)
        rehearsing._known, rehearsing._reserve = self._known.guessing(trials), None
        return rehearsing

    @without_collection()
    def planned(self, trials: Sequence[TrialRecord]) -> Plan:
        """Where to look next by all of ``trials`` but the outcome of the last, see ``plans``."""
        return self._plan(self._as_expected(trials[:-1], [proposal_of(trials[-1])]))

    def _plan(self, expected: Sequence[TrialRecord]) -> Plan:
        return self._round(expected, NO_PLAN).plan()

    def _round(self, expected: Sequence[TrialRecord], plan: Plan) -> Round:
        """The next proposal after ``expected``, of which the last has not ended."""
        turn = len(expected)
        explores = turn % 2 == 1
        return Round(
            self._known, expected, math.inf, turn, explores=explores, plan=plan, expected=1
        )

    def plans(self, trials: Sequence[TrialRecord]) -> bool:
        """Whether the proposal after ``trials`` may look where it was planned to by all but the
        outcome of the last.

        Not where that changes what is looked for, nor where noise has to be measured for the plan.
        """
        before, last = trials[:-1], trials[-1]
        alone = self._reserve is None and not any(trial.running for trial in trials)
        if not alone or self._known.levels or self.landscape.space.bases:
            return False
        if last.error is not None or not any(trial.ratio is not None for trial in before):
            return False
        binds = [
            not math.isinf(allowed_noise(seen, self._known.noise_limit))
            for seen in (before, trials)
        ]
        is_given = next(self.untried_seeds(before), None) is not None
        return binds[0] == binds[1] and not (
            next(self.untried_seeds(trials), None) is not None or (is_given and binds[0])
        )

    def is_expected(self, trial: TrialRecord, before: tuple[float, float]) -> bool:
        """Whether ``trial`` took what was predicted, by ``expected`` of the trials before it."""
        if trial.measurement is None:
            return True
        mean, deviation = before
        error = _error(trial.measurement)
        return abs(trial.measurement.ratio.median - mean) <= SURPRISE * math.hypot(deviation, error)

    def _as_expected(
        self, trials: Sequence[TrialRecord], running: Sequence[Proposal]
    ) -> list[TrialRecord]:
        """``trials``, and those of ``running`` as if their latency was what is predicted."""
        latency = self._known.latency(self.own(trials))
        expected_trials = list(trials)
        for proposal in running:
            expected, _ = latency.predict(self.landscape.state(proposal.choices))
            expected_trials.append(
                measured_as(expected, len(expected_trials), proposal, self.landscape.space)
            )
        return expected_trials

    def _first_to_offer(
        self, trials: Sequence[TrialRecord], turn: int, plan: Plan
    ) -> Proposal | None:
        """What the target whose turn it is proposes; one that expects a gain goes before it."""
        count = 1 + len(noise_targets(trials, self._known.levels, 0))
        cycle, first = divmod(turn, count)
        targets = (math.inf, *noise_targets(trials, self._known.levels, cycle))
        rounds = []
        for target in (*targets[first:], *targets[:first]):
            explores = cycle % 2 == 1
            rounds.append(Round(self._known, trials, target, turn, explores=explores, plan=plan))
            proposal = rounds[-1].propose(only_gains=True)
            if proposal is not None:
                return proposal
        for next_round in rounds:
            proposal = next_round.propose(only_gains=False)
            if proposal is not None:
                return proposal
        between = self._between(trials, cycle, turn) or self._hoped(trials, turn)
        last = Round(self._known, trials, math.inf, turn, explores=False)
        return between or last.unsure() or last.doubtful() or last.check()

    def _hoped(self, trials: Sequence[TrialRecord], turn: int) -> Proposal | None:
        """A gain if layouts are quieter than expected, before a search ends where gates bind.

        What a layout was expected to make of noise may be far above what it makes, and nothing that
        is predicted to hold would ever tell. One measurement of noise does.
        """
        if math.isinf(allowed_noise(self.own(trials), self._known.noise_limit)):
            return None
        hoping = Round(self._known, trials, math.inf, turn, explores=False, hopes=True)
        proposal = hoping.propose(only_gains=True)
        if proposal is not None:
            return proposal
        return Round(self._known, trials, math.inf, turn, explores=False).hoped()

    def _between(self, trials: Sequence[TrialRecord], cycle: int, turn: int) -> Proposal | None:
        """A gain at the limits of later cycles, before the search ends."""
        for later in range(cycle + 1, cycle + CYCLES):
            for target in noise_targets(trials, self._known.levels, later):
                between = Round(self._known, trials, target, turn, explores=False)
                proposal = between.propose(only_gains=True)
                if proposal is not None:
                    return proposal
        return None


def _error(measurement: Measurement) -> float:
    """Standard deviation of the error of a latency."""
    ratio = measurement.ratio
    return max((ratio.high - ratio.low) / 4, TOTAL_FLOOR)


def proposal_of(trial: TrialRecord) -> Proposal:
    """What ``trial`` was proposed as."""
    return Proposal(trial.kind, trial.choices, trial.skipped)
