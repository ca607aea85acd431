"""What the inline tests of a rule may hold, checked before any of it is made."""

from __future__ import annotations

from collections.abc import Sequence

from placer.errors import InputError
from placer.graph.text import check_values, values_of_text
from placer.rules.pack import Pack
from placer.rules.schema import Rule, RuleTest


def check_tests(rule: Rule, pack: Pack) -> None:
    """Raise InputError, which names the file, if the tests of ``rule`` hold too many values.

    ``rule`` is one of the pack's own. All tests together count, since each of a file's many short
    tests may fill its initializers.
    """
    check_values(_values(rule.tests), f"{pack.path / rule.id}.yaml: the tests have initializers")


def _values(tests: Sequence[RuleTest]) -> int:
    values = 0
    for test in tests:
        try:
            values += values_of_text(test.model)
        except InputError:
            continue  # The test itself fails and says so.
    return values
