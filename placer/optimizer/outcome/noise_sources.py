"""Where the accuracy of a result went: its rules and groups, each quantized alone."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from placer.accuracy.metrics import finite
from placer.common.interrupts import dealt_with
from placer.errors import RunError
from placer.optimizer.observer import Observer
from placer.optimizer.outcome.end_costs import rest_s
from placer.optimizer.outcome.finals import Final
from placer.optimizer.outcome.missed_gates import closest
from placer.optimizer.setup.task import Task
from placer.optimizer.setup.trial_setup import TrialSetup
from placer.optimizer.trials.costs import TrialCosts
from placer.optimizer.trials.proposer import PROBE
from placer.quantization import Placement
from placer.results.parts import NoiseSourcePart
from placer.results.sensitivity import worst
from placer.search.out_of_time import OutOfTime
from placer.search.records import TrialRecord
from placer.search.space import PER_SITE, Choices, Group, Space, site_key
from placer.search.study.study import Study

log = logging.getLogger(__name__)

# What measuring where the accuracy went may take, in parts of the run's time limit.
SHARE_OF_TIME = 0.1
LATE = "the time limit ended measuring where accuracy is lost: some rules and groups are missing"
INTERRUPTED = "interrupted measuring where accuracy is lost; the result is kept (again to quit)"

Noises = dict[str, float | None]
Progress = Callable[[int, int], None]


@dataclass(frozen=True, eq=False)
class NoiseSources:
    """Measures rules and groups of ``space`` alone; ``measure``: noise of a placement by part.

    What is measured is kept with ``study`` and counts as probes. ``pack``: fingerprint of the
    rule pack, whose scheme it is measured in; the result may be in another one than the trials.
    After ``deadline``, a ``time.monotonic`` time, only what is kept is told, and what is not is
    ``left_out``.
    """

    space: Space
    measure: Callable[[Placement], Mapping[str, float]]
    study: Study
    pack: str = ""
    deadline: float | None = None
    left_out: list[str] = field(default_factory=list)

    def find(
        self, choices: Choices, most: int, progress: Progress | None = None
    ) -> list[NoiseSourcePart]:
        """The sources of noise of the placement of ``choices``, the noisiest first.

        At most ``most`` are measured: rules first, then the groups of the noisiest rules, which
        stand in their rule's place. Rules that the engine refuses alone are left out, and so are
        those for which no time is left; a rule whose groups are not all known keeps its place.
        """
        rules = self._rules(choices)
        measured = 0

        def measure(name: str, groups: Sequence[Group]) -> NoiseSourcePart | None:
            nonlocal measured
            measured += 1
            if progress is not None:
                progress(min(measured, most), most)
            return self._part(name, groups, choices)

        by_rule: dict[str, NoiseSourcePart] = {}
        with suppress(OutOfTime):
            for rule, groups_of_rule in list(rules.items())[:most]:
                part = measure(rule, groups_of_rule)
                if part is not None:
                    by_rule[rule] = part
        rows: list[NoiseSourcePart] = []
        for rule, part in sorted(by_rule.items(), key=lambda pair: -_worst(pair[1])):
            groups = rules[rule]
            if 1 < len(groups) <= most - measured:
                with suppress(OutOfTime):
                    parts = [measure(group.name, [group]) for group in groups]
                    rows += [part for part in parts if part is not None]
                    continue
            rows.append(part)
        return sorted(rows, key=lambda row: -_worst(row))

    def _rules(self, choices: Choices) -> dict[str, list[Group]]:
        """Groups of which the placement quantizes anything, by rule."""
        groups_of: dict[str, list[Group]] = {}
        for group in self.space.groups:
            if any(self._quantizes(group, layout) for layout in _layouts(group, choices)):
                groups_of.setdefault(group.sites[0].match.rule.id, []).append(group)
        return groups_of

    def _quantizes(self, group: Group, layout: str) -> bool:
        return bool(group.sites[0].layouts[layout].quantize)

    def _part(self, name: str, groups: Sequence[Group], choices: Choices) -> NoiseSourcePart | None:
        # Beside float, as other probes are.
        alone = dict(self.space.floats)
        for group in groups:
            keys = (group.name, *(site_key(site) for site in group.sites))
            alone.update({key: choices[key] for key in keys if key in choices})
            alone.setdefault(group.name, group.default)
        placement = self.space.placement(alone).computed_in(None)
        key = f"{PROBE}{placement.id} {self.pack} by part"
        noises = self.study.attribute(key, Noises)
        if noises is None:
            if self.deadline is not None and time.monotonic() >= self.deadline:
                self.left_out.append(name)
                raise OutOfTime
            try:
                noise_of = self.measure(placement)
            except RunError as error:
                log.info("%s alone is refused: %s", name, error)
                return None
            noises = {part: finite(noise) for part, noise in noise_of.items()}
            self.study.set_attribute(key, noises)
        return NoiseSourcePart(
            name=name,
            rule=groups[0].sites[0].match.rule.id,
            sites=sum(
                self._quantizes(group, layout)
                for group in groups
                for layout in _layouts(group, choices)
            ),
            noises=noises,
        )


def _layouts(group: Group, choices: Choices) -> Iterator[str]:
    """The layout of each site of ``group``."""
    layout = choices.get(group.name, group.default)
    for site in group.sites:
        yield choices.get(site_key(site), group.default) if layout == PER_SITE else layout


def _worst(part: NoiseSourcePart) -> float:
    return worst(part.noises)[0]


def noise_sources(
    task: Task,
    setup: TrialSetup,
    study: Study,
    records: Sequence[TrialRecord],
    final: Final[TrialRecord] | None,
    observer: Observer,
) -> list[NoiseSourcePart]:
    """Where the accuracy of ``final`` went, or without one that of the closest candidate.

    Empty if the float model is the result, or if the preset spends nothing on it. Ctrl-C ends only
    this: the result is written already, and only its result.json is not.
    """
    entry = closest(records) if final is None else final.entry if final.is_faster else None
    most = task.preset.noise_sources
    if entry is None or not most:
        return []
    observer.stage("measuring where the accuracy went")
    limit = task.request.timeout
    deadline = None
    if limit is not None:
        costs = TrialCosts.of(records, setup, task)
        end = task.limit.end - rest_s(costs, task) - costs.build
        deadline = min(time.monotonic() + SHARE_OF_TIME * limit, end)
    pack = task.pack.fingerprint
    sources = NoiseSources(task.space, setup.noise.by_part, study, pack, deadline)
    try:
        parts = sources.find(entry.choices, most, observer.progress)
    except KeyboardInterrupt:
        dealt_with()
        observer.warn(INTERRUPTED)
        return []
    if sources.left_out:
        observer.warn(LATE)
    return parts
