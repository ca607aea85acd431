"""``placer rules``: look at rule packs, run their tests, lint them."""

from __future__ import annotations

import json
from typing import Annotated

import typer
import yaml
from rich.console import Console
from rich.table import Table

from placer.errors import InputError, RunError
from placer.rules.lint import lint
from placer.rules.loader import builtin_pack_names, load_pack
from placer.rules.schema import Rule
from placer.rules.testing import failures

rules_app = typer.Typer(help="Rule packs: list, show, test, lint.", no_args_is_help=True)

PackOption = Annotated[str, typer.Option(help="A built-in pack's name or a pack's folder.")]
Packs = Annotated[list[str] | None, typer.Argument(help="Packs [default: the built-in ones].")]


@rules_app.command("list")
def list_rules(packs: Packs = None) -> None:
    """List the rules of packs with their layouts."""
    for name in packs or builtin_pack_names():
        pack = load_pack(name)
        table = Table(title=f"{pack.name_and_version} for {pack.manifest.engine}")
        for column in ("rule", "layouts (default first)", "why"):
            table.add_column(column)
        for rule in pack.rules:
            others = [layout for layout in rule.layouts if layout != rule.default_layout]
            table.add_row(rule.id, ", ".join([rule.default_layout, *others]), rule.why)
        Console().print(table)


@rules_app.command("show")
def show_rule(rule_id: str, pack: PackOption = "onnxruntime") -> None:
    """Print a rule as YAML."""
    rule = load_pack(pack).rule(rule_id)
    data = rule.model_dump(exclude_defaults=True)
    typer.echo(yaml.safe_dump(data, sort_keys=False, width=100), nl=False)


@rules_app.command("test")
def test_rules(packs: Packs = None) -> None:
    """Run the inline tests of packs; exit code 1 if one fails."""
    count, failed = 0, []
    for name in packs or builtin_pack_names():
        pack = load_pack(name)
        for rule in pack.rules:
            count += len(rule.tests)
            failed += list(failures(rule, pack))
    for sentence in failed:
        typer.echo(sentence)
    if failed:
        raise RunError(f"{len(failed)} expectations of {count} tests do not hold")
    typer.echo(f"{count} tests passed")


@rules_app.command("lint")
def lint_packs(packs: Packs = None) -> None:
    """Check packs for rules that cannot be meant; exit code 2 if there are any."""
    findings = [
        f"{name}: {finding}"
        for name in packs or builtin_pack_names()
        for finding in lint(load_pack(name))
    ]
    for finding in findings:
        typer.echo(finding)
    if findings:
        raise InputError(f"{len(findings)} findings; fix the rules named above")
    typer.echo("no findings")


@rules_app.command("schema")
def print_schema() -> None:
    """Print the JSON Schema of a rule document."""
    typer.echo(json.dumps(Rule.model_json_schema(), indent=2))
