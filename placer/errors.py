"""The one exception hierarchy of placer; each class knows the exit code the CLI ends with."""

from __future__ import annotations


class PlacerError(Exception):
    """Base class. The message is one sentence that names the file, node or field and the fix.

    ``problem``: the message without ``advice``, for commands that lack the option it names.
    """

    exit_code = 1

    def __init__(self, problem: str = "", advice: str = "") -> None:
        super().__init__(f"{problem}; {advice}" if advice else problem)
        self.problem = problem


class InputError(PlacerError):
    """The user's input (file, flag, rule, data) is wrong: exit code 2."""

    exit_code = 2


class NothingToQuantizeError(InputError):
    """No rule matches a node of the model, which is as it should be: exit code 2 in a shell.

    ``child_code``: the exit code of a process that ``placer onboard`` starts, where such a model is
    no fault.
    """

    child_code = 4


class RunError(PlacerError):
    """The input was fine but the run failed (an engine, the disk): exit code 1."""

    exit_code = 1


class LimitError(RunError):
    """A run of a model took more time or memory than it may: exit code 1."""


class GateError(PlacerError):
    """No candidate met the gates: exit code 3."""

    exit_code = 3
