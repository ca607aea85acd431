"""The command line: a thin layer over the library."""

from __future__ import annotations

import sys
import traceback
from typing import Annotated

import typer

from placer.cli.apply import apply_command
from placer.cli.bench import bench_command
from placer.cli.check import check_command
from placer.cli.doctor import doctor_command
from placer.cli.explain import explain_command
from placer.cli.import_ import import_command
from placer.cli.onboard import onboard_command
from placer.cli.optimize import optimize_command
from placer.cli.plan import plan_app
from placer.cli.report import report_command
from placer.cli.rules import rules_app
from placer.cli.worker import worker_command
from placer.errors import PlacerError
from placer.version import __version__

app = typer.Typer(
    help="Decide where Q/DQ pairs go in an ONNX model.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
app.add_typer(plan_app, name="plan")
app.add_typer(rules_app, name="rules")
app.command("apply")(apply_command)
app.command("bench")(bench_command)
app.command("check")(check_command)
app.command("doctor")(doctor_command)
app.command("explain")(explain_command)
app.command("import")(import_command)
app.command("onboard")(onboard_command)
app.command("optimize")(optimize_command)
app.command("report")(report_command)
app.command("worker")(worker_command)


def _version(show: bool) -> None:
    if show:
        typer.echo(f"placer {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    _: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    """Options that come before the command."""


def main() -> None:
    """Run the command line; errors become one sentence and an exit code."""
    debug = "--debug" in sys.argv
    try:
        app()
    except PlacerError as error:
        if debug:
            traceback.print_exc()
        print(f"placer: error: {error}", file=sys.stderr)
        raise SystemExit(error.exit_code) from None
    except KeyboardInterrupt:
        print("placer: interrupted; run the same command again to resume", file=sys.stderr)
        raise SystemExit(1) from None
