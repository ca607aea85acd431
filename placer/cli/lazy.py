"""Commands that are imported when they are asked for, so that help and version come at once."""

from __future__ import annotations

import inspect
from importlib import import_module
from pathlib import Path
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup

from placer.common.files import real_path
from placer.errors import InputError

# Parameters that name a file or folder to be written. All others are read, or are no paths.
WRITTEN = frozenset({"output", "plan_file", "improved", "html", "figure", "markdown"})


class LazyCommand(TyperCommand):
    """Stands for a command in the list of all until it runs or its own help is shown.

    ``target``: ``module:function``, or ``module:app`` for a group of commands. ``summary``: the
    first line of its help. ``EXAMPLES`` of its module, command lines, end its help.
    """

    def __init__(self, name: str, target: str, summary: str) -> None:
        super().__init__(name, help=summary)
        self._target = target

    def get_short_help_str(self, limit: int = 45) -> str:  # noqa: ARG002
        """The whole summary, which is wrapped rather than cut off."""
        return self.help or ""

    def load(self) -> TyperCommand | TyperGroup:
        """Import the command itself."""
        module_name, _, attribute = self._target.partition(":")
        module = import_module(module_name)
        command = getattr(module, attribute)
        examples = _paragraphs("Examples:", *module.EXAMPLES)
        if isinstance(command, typer.Typer):
            app = command
            app.info.epilog = examples
        else:
            app = typer.Typer(add_completion=False)
            help_text = _paragraphs(*(inspect.getdoc(command) or "").split("\n\n"))
            app.command(self.name, help=help_text, epilog=examples)(command)
        loaded = typer.main.get_command(app)
        assert isinstance(loaded, TyperCommand | TyperGroup)
        return loaded

    def make_context(
        self, info_name: str | None, args: list[str], parent: Any = None, **extra: Any
    ) -> Any:
        """The context of the command itself: what runs, shows help or completes is that one.

        Raises InputError if a file is to be written over one that the command reads or writes.
        """
        context = self.load().make_context(info_name, args, parent, **extra)
        _refuse_to_overwrite(context)
        return context


def _refuse_to_overwrite(context: Any) -> None:
    shown = {
        parameter.name: next((one for one in parameter.opts if one[0] == "-"), None)
        or parameter.name.upper()
        for parameter in context.command.params
    }
    for name in sorted(WRITTEN & context.params.keys()):
        target = context.params[name]
        for other, value in context.params.items():
            values = value if isinstance(value, list | tuple) else [value]
            paths = [Path(one) for one in values if isinstance(one, str | Path)]
            if target is None or other == name:
                continue
            if any(_is_same_file(path, Path(target), other in WRITTEN) for path in paths):
                raise InputError(
                    f"{shown[name]} would overwrite {target}, which {shown[other]} names, too; "
                    "choose another file"
                )


def _is_same_file(path: Path, target: Path, written: bool) -> bool:
    """Whether ``target`` is the file ``path``, which need not exist if it is ``written``, too."""
    try:
        if target.is_file():
            return path.samefile(target)
        return written and not target.is_dir() and real_path(path) == real_path(target)
    except (OSError, ValueError):  # It is no path, or none of a file.
        return False


def _paragraphs(*texts: str) -> str:
    """Each text on a line of its own, however wide the terminal is."""
    return "\n\n".join(" ".join(text.split()) for text in texts)
