"""Which decisions mattered for latency."""

import itertools

import pytest

from placer.search.importance import by_rule, importances
from placer.search.records import TrialRecord
from placer.search.space import PER_SITE, Choices
from tests.search.landscapes import space
from tests.search.outcomes import measurement

SPACE = space()
CONVS, CONV2, ADD, SOFTMAX = (group.name for group in SPACE.groups)


def trial(number: int, choices: Choices, ratio: float | None) -> TrialRecord:
    return TrialRecord(
        number=number,
        kind="random",
        choices=choices,
        placement_id=SPACE.placement(choices).id,
        measurement=None if ratio is None else measurement(ratio),
        error=None if ratio is not None else "refused",
        seconds=1.0,
    )


def every_combination() -> list[TrialRecord]:
    """All placements of whole groups: CONV2 brings 30%, CONVS 5%, the Softmax costs 1%."""
    found = []
    names = [group.name for group in SPACE.groups]
    for number, layouts in enumerate(itertools.product(*(g.layouts for g in SPACE.groups))):
        choices = dict(zip(names, layouts, strict=True))
        floats = SPACE.floats
        gain = 0.3 * (choices[CONV2] != floats[CONV2]) + 0.05 * (choices[CONVS] != floats[CONVS])
        found.append(trial(number, choices, 1 - gain + 0.01 * (layouts[3] != floats[SOFTMAX])))
    return found


def test_the_decision_that_matters_has_the_largest_importance():
    found = importances(SPACE, every_combination())
    assert max(found, key=lambda name: found[name]) == CONV2
    assert found[CONV2] > 0.5
    assert found.keys() <= {CONVS, CONV2, ADD, SOFTMAX}
    assert sum(found.values()) == pytest.approx(1)


def test_few_trials_say_nothing():
    assert importances(SPACE, every_combination()[:5]) == {}


def test_trials_that_are_all_alike_say_nothing():
    alike = [trial(t.number, t.choices, 1.0) for t in every_combination()]
    assert importances(SPACE, alike) == {}


def test_failed_trials_and_split_groups_are_left_out():
    split = {**SPACE.defaults, CONVS: PER_SITE, "site conv-act:conv0": "integer"}
    split["site conv-act:conv1"] = "float"
    whole = every_combination()
    others = [trial(100, split, 0.1), trial(101, SPACE.everything, None)]
    assert importances(SPACE, [*whole, *others]) == importances(SPACE, whole)


def test_importances_of_a_rule_are_those_of_its_groups():
    found = by_rule(SPACE, {CONVS: 0.2, CONV2: 0.3, ADD: 0.4})
    assert found == pytest.approx({"conv-act": 0.5, "elementwise": 0.4})
    assert list(found) == ["conv-act", "elementwise"]
