"""The command line: a thin layer over the library."""

from __future__ import annotations

import atexit
import os
import signal
import sys
import threading
import traceback
from contextlib import AbstractContextManager, nullcontext, suppress
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from placer.cli.lazy import LazyCommand
from placer.common.display import safe_output, sentence
from placer.common.interrupts import settle
from placer.errors import NothingToQuantizeError, PlacerError
from placer.optimizer.time_limit import with_the_process
from placer.version import __version__

# How a command ends that Ctrl-C stopped, as shells have it: 128 and the signal's number.
INTERRUPTED = 130
# Those that go on where they were; the others begin again.
RESUMING = ("optimize", "worker", "onboard", "fit", "sensitivity")

# What pydantic, which reads options for typer, says of words that are no number.
_PLAIN = {
    "Input should be a valid integer, unable to parse string as an integer": "give a whole number",
    "Input should be a valid number, unable to parse string as a number": "give a number",
}

# Name, what it is and what it does: the first line of its own help, as a test checks.
COMMANDS = (
    (
        "optimize",
        "placer.cli.optimize:optimize_command",
        "Find the fastest Q/DQ placement that meets the gates.",
    ),
    (
        "init",
        "placer.cli.init:init_command",
        "Write a commented placer.yaml after a look at the model, its data and this machine.",
    ),
    (
        "worker",
        "placer.cli.worker:worker_command",
        "Run trials of a shared study until none is left.",
    ),
    (
        "onboard",
        "placer.cli.onboard:onboard_command",
        "Optimize many models; running it again redoes only what has changed.",
    ),
    (
        "report",
        "placer.cli.report:report_command",
        "Write the report of a finished run again, or compare runs: one HTML file.",
    ),
    (
        "apply",
        "placer.cli.apply:apply_command",
        "Apply a placement to a retrained or re-exported model, whatever its nodes are called.",
    ),
    (
        "export-qat",
        "placer.cli.export_qat:export_qat_command",
        "Write what a placement quantizes, for quantization-aware training.",
    ),
    (
        "import",
        "placer.cli.import_:import_command",
        "Write the float model behind a quantized one, and its scales as placement.yaml.",
    ),
    (
        "explain",
        "placer.cli.explain:explain_command",
        "Show the decision at each site, the predicted layers, and the pairs that do not fuse.",
    ),
    (
        "extract",
        "placer.cli.extract:extract_command",
        "Write the part of a model between tensors or around a node, to examine it alone.",
    ),
    (
        "check",
        "placer.cli.check:check_command",
        "Parse and build a model with TensorRT-RTX, no GPU needed, and show its layers.",
    ),
    (
        "bench",
        "placer.cli.bench:bench_command",
        "Measure models in turn on one engine: medians, spread, and ratios to the first.",
    ),
    (
        "fit",
        "placer.cli.fit:fit_command",
        "Measure what layers cost on an engine: a file for --gpu, or to send to the maintainers.",
    ),
    (
        "eval",
        "placer.cli.eval_:eval_command",
        "Compare models with their float model by all metrics, and layer by layer.",
    ),
    (
        "sensitivity",
        "placer.cli.sensitivity:sensitivity_command",
        "Show the noise that each site, group and rule causes at the outputs, and what it saves.",
    ),
    (
        "plan",
        "placer.cli.plan:plan_app",
        "Compare predicted layers with those that an engine built.",
    ),
    ("rules", "placer.cli.rules:rules_app", "List, test, share and lock rule packs."),
    (
        "doctor",
        "placer.cli.doctor:doctor_command",
        "Show versions, GPUs, the engines that run here, and what the others lack.",
    ),
)


class _Commands(TyperGroup):
    """All commands, none of them imported."""

    def __init__(self, **attributes: Any) -> None:
        super().__init__(**attributes)
        for name, target, summary in COMMANDS:
            self.add_command(LazyCommand(name, target, summary))

    def parse_args(self, context: Any, args: list[str]) -> list[str]:
        """As of any group, with the ``~`` of ``--data=~/images``, which shells leave as it is."""
        return super().parse_args(context, [_with_home(word) for word in args])


def _with_home(word: str) -> str:
    option, equals, value = word.partition("=")
    if not (option.startswith("--") and value.startswith("~")):
        return word
    return f"{option}{equals}{os.path.expanduser(value)}"  # noqa: PTH111 Maybe no path.


app = typer.Typer(
    cls=_Commands,
    help="Decide where Q/DQ pairs go in an ONNX model.",
    no_args_is_help=True,
    rich_markup_mode=None,  # The list of commands is plain: importing rich takes longer than it.
    pretty_exceptions_enable=False,
)


def _version(show: bool) -> None:
    if show:
        typer.echo(f"placer {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    _: Annotated[
        bool,
        typer.Option("--version", "-V", callback=_version, is_eager=True, help="Show the version."),
    ] = False,
) -> None:
    """Options that come before the command."""


def program(as_child: bool = False) -> None:
    """The process ``placer``: ``main``, and an end that neither Ctrl-C nor a hung run disturbs."""
    settle()
    ending = _Ending()
    atexit.register(ending)
    code: int | str | None = INTERRUPTED
    try:
        try:
            with with_the_process():
                main(as_child)
        except SystemExit as ended:
            code = ended.code
        # What is left to do takes no time, and Python would show a traceback.
        signal.signal(signal.SIGINT, signal.SIG_IGN)
    except KeyboardInterrupt:  # Another one, while the first was told.
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        _tell_interrupted()
    # As Python ends: a text is shown, and the code is 1.
    ending.code = 1 if isinstance(code, str) else code or 0
    raise SystemExit(code)


class _Ending:
    """Ends the process with ``code`` where threads are left that Python would not wait for.

    One that returns from a library's C++ while Python ends makes it abort. What is registered
    first at exit is called last.
    """

    code = 0

    def __call__(self) -> None:
        if not any(thread.daemon for thread in threading.enumerate()):
            return
        for stream in (sys.stdout, sys.stderr):
            with suppress(AttributeError, OSError, ValueError):  # None, gone, or closed.
                stream.flush()
        os._exit(self.code)


def main(as_child: bool = False) -> None:
    """Run the command line; whatever goes wrong becomes one sentence and an exit code.

    ``as_child``: the one who reads them is ``placer onboard``.
    """
    with _json_alone() if "--json" in sys.argv else nullcontext(), safe_output():
        try:
            code = app(prog_name="placer", standalone_mode=False, obj=as_child)
            if sys.stdout is not None:
                sys.stdout.flush()  # Here, so that a reader that is gone is told by the exit code.
            if code == INTERRUPTED:
                _tell_interrupted()
            raise SystemExit(code)
        except KeyboardInterrupt:
            _tell_interrupted()
            raise SystemExit(INTERRUPTED) from None
        except BrokenPipeError:
            raise SystemExit(1) from None
        except typer.TyperException as error:
            raise SystemExit(_tell_usage(error)) from None
        except Exception as error:
            if "--debug" in sys.argv:
                traceback.print_exc()
            raise SystemExit(_tell(error, as_child)) from None


def _tell_interrupted() -> None:
    resume = "; run the same command again to resume" if _command() in RESUMING else ""
    _say(f"interrupted{resume}", "")


def _command() -> str:
    """The command in the words of the command line; empty if there is none."""
    return next((word for word in sys.argv[1:] if not word.startswith("-")), "")


def _json_alone() -> AbstractContextManager[None]:
    # Imported only now, like all that the list of commands does not need.
    from placer.cli.native_output import native_output_aside  # noqa: PLC0415

    return native_output_aside()


def _tell_usage(error: typer.TyperException) -> int:
    """Say in a sentence what is wrong with the words of the command line; return the exit code."""
    text = error.format_message()
    if "Choose from:" in text:  # A line for each choice.
        text = " ".join(text.split())
    # A command without any words ends in its help, which groups of commands have printed already.
    if not text or "\n" in text:
        if text:
            print(text, file=sys.stderr)
        return error.exit_code
    for technical, plain in _PLAIN.items():
        text = text.replace(technical, plain)
    context = getattr(error, "ctx", None)  # Errors of the parser alone have none.
    command = context.command_path if context else f"placer {_command()}".rstrip()
    _say(f"{text.rstrip('.')} ({command} --help tells more)")
    return error.exit_code


def _tell(error: Exception, as_child: bool) -> int:
    """Say what went wrong, by the names that options have here; return the exit code.

    In a manifest options have the names that they have in Python.
    """
    try:
        # Imported only now: the list of commands is to come at once.
        from placer.cli.options import with_flags  # noqa: PLC0415
        from placer.cli.unforeseen import unforeseen  # noqa: PLC0415
    except ImportError as broken:
        _say(f"a library that placer needs cannot be imported: {broken}; install placer again")
        return 1

    foreseen = error if isinstance(error, PlacerError) else unforeseen(error)
    _say(str(foreseen) if as_child else with_flags(str(foreseen)))
    nothing_to_do = as_child and isinstance(foreseen, NothingToQuantizeError)
    return NothingToQuantizeError.child_code if nothing_to_do else foreseen.exit_code


def _say(text: str, kind: str = "error: ") -> None:
    print(f"placer: {kind}{sentence(text)}", file=sys.stderr)
