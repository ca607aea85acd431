"""``placer rules``: list, test, lint, share and lock rule packs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Literal

import typer
import yaml
from rich.markup import escape
from rich.table import Table

from placer.cli.options import PlainReplace, option, shape_ranges_of
from placer.cli.terminal import output_console, table_of
from placer.common.files import check_writable
from placer.common.shapes import optima
from placer.errors import InputError, RunError
from placer.prediction.rule_tests import failures_of
from placer.rules.lint import lint
from placer.rules.pack import Pack
from placer.rules.pack_manifest import parse_requirement
from placer.rules.packaging.diff import diff_packs
from placer.rules.packaging.files import unread_rules
from placer.rules.packaging.install import build_archive, install
from placer.rules.packaging.load import builtin_pack_names, load_pack
from placer.rules.packaging.lock import LOCK_NAME, Lock
from placer.rules.packaging.new import new_pack
from placer.rules.packaging.store import Store
from placer.rules.schema import Rule

EXAMPLES = (
    "placer rules list tensorrt",
    "placer rules new my-pack --engine tensorrt --extends tensorrt",
    "placer rules test my-pack",
)

rules_app = typer.Typer(
    help="List, test, share and lock rule packs.", no_args_is_help=True, add_completion=False
)

PackOption = Annotated[str, typer.Option(help="A pack's name, folder or .zip file.")]
Packs = Annotated[list[str] | None, typer.Argument(help="Packs.", show_default="the built-in ones")]


@rules_app.command("list")
def list_packs(
    packs: Annotated[
        list[str] | None,
        typer.Argument(help="Packs whose rules to list.", show_default="the packs themselves"),
    ] = None,
) -> None:
    """List the built-in and the installed packs, or the rules of the packs given."""
    for name in packs or ():
        output_console().print(_rules_table(load_pack(name)))
    if packs:
        return
    table = Table()
    for column in ("pack", "version", "engine", "from", "rules", "hash"):
        table.add_column(column, no_wrap=column != "engine")
    for name in builtin_pack_names():
        table.add_row(*_pack_row(load_pack(name), "built in"))
    for installed in Store.default().installed():
        try:
            table.add_row(
                *_pack_row(load_pack(f"{installed.name}@{installed.version}"), "installed")
            )
        except InputError as error:  # One broken pack must not hide the others.
            typer.echo(f"{installed} cannot be loaded: {error}", err=True)
    output_console().print(table)


def _pack_row(pack: Pack, where: str) -> tuple[str, ...]:
    manifest = pack.manifest
    return (
        manifest.name,
        manifest.version,
        f"{manifest.engine} {manifest.engine_versions}",
        where,
        str(len(pack.rules)),
        pack.content_hash.removeprefix("sha256:")[:12],
    )


def _rules_table(pack: Pack) -> Table:
    extended = "".join(f", extends {one}" for one in pack.lineage[1:])
    title = f"{pack.name_and_version} for {pack.manifest.engine}{extended}"
    table = table_of("rule", "from", "layouts (default first)", "why", title=title)
    for rule in pack.rules:
        others = [layout for layout in rule.layouts if layout != rule.default_layout]
        layouts = ", ".join([rule.default_layout, *others])
        # A pack's own words are no markup.
        table.add_row(rule.id, str(pack.origins[rule.id][0]), layouts, escape(rule.why))
    return table


@rules_app.command("show")
def show_rule(
    rule_id: Annotated[str, typer.Argument(help="The rule's id, as placer rules list shows it.")],
    pack: PackOption = "onnxruntime",
) -> None:
    """Print a rule of a pack as YAML, with what it takes over from other packs."""
    loaded = load_pack(pack)
    rule = loaded.rule(rule_id)
    origin, *replaced = loaded.origins[rule_id]
    typer.echo(f"# from {origin}" + "".join(f", replaces that of {one}" for one in replaced))
    data = rule.model_dump(exclude_defaults=True)
    typer.echo(yaml.safe_dump(data, sort_keys=False, width=100), nl=False)


@rules_app.command("test")
def test_rules(packs: Packs = None) -> None:
    """Run the inline tests of the packs' own rules; exit code 1 if one fails, 2 without any."""
    count, failed = 0, []
    for name in packs or builtin_pack_names():
        pack = load_pack(name)
        tests = sum(len(rule.tests) for rule in pack.own_rules)
        if not tests:
            unread = "".join(f"; {text}" for text in _unread(name))
            raise InputError(f"{name}: no rule of its own has a test: nothing was tested{unread}")
        count += tests
        failed += list(failures_of(pack))
    for sentence in failed:
        typer.echo(sentence)
    if failed:
        raise RunError(f"{len(failed)} expectations of {count} tests do not hold")
    typer.echo(f"{count} {'test' if count == 1 else 'tests'} passed")


@rules_app.command("lint")
def lint_packs(packs: Packs = None) -> None:
    """Check packs' own rules for likely mistakes; exit code 2 if there is one."""
    findings = [
        f"{name}: {finding}"
        for name in packs or builtin_pack_names()
        for finding in (*lint(load_pack(name)), *_unread(name))
    ]
    for finding in findings:
        typer.echo(finding)
    if findings:
        count = f"{len(findings)} finding{'s' if len(findings) > 1 else ''}"
        raise InputError(f"{count}; fix the rules named above")
    typer.echo("no findings")


def _unread(name: str) -> list[str]:
    """Sentences on files of a pack's folder that its author may take for rules."""
    folder = Path(name)
    files = unread_rules(folder) if folder.is_dir() else []
    return [f"{file} is not read: rules are .yaml files beside pack.yaml" for file in files]


@rules_app.command("schema")
def print_schema() -> None:
    """Print the JSON Schema of a rule document."""
    typer.echo(json.dumps(Rule.model_json_schema(), indent=2))


@rules_app.command("new")
def new_command(
    name: Annotated[str, typer.Argument(help="Name of the pack and of its folder.")],
    engine: Annotated[str, typer.Option(help="Engine that the rules are for, e.g. tensorrt.")],
    extends: Annotated[
        str | None, typer.Option(help="Pack to take rules over from, e.g. tensorrt@>=0.2.")
    ] = None,
) -> None:
    """Start a pack in a new folder here: manifest, an example rule with its tests, README."""
    folder = new_pack(name, engine, extends, Path(), Store.default())
    typer.echo(f"wrote {folder}; see {folder / 'README.md'}")


@rules_app.command("learn")
def learn_command(
    candidate: Annotated[Path, typer.Argument(help="A float ONNX model, or one with Q/DQ pairs.")],
    source: Annotated[
        Literal["builder"],
        typer.Option("--from", help="Who builds: NVIDIA's TensorRT-RTX, without a GPU."),
    ],
    pack: PackOption = "tensorrt-rtx",
    placement: Annotated[
        Path | None,
        typer.Option(help="placement.yaml of a float model.", show_default="the pack's default"),
    ] = None,
    gpu: Annotated[str, typer.Option(help="GPU to build for, e.g. l4, or sm89.")] = "sm89",
    shape: Annotated[list[str] | None, option("shapes")] = None,
    output: Annotated[
        Path,
        typer.Option("--output", "-o", help="Pack of drafts, made if it is not there."),
    ] = Path("drafts"),
) -> None:
    """Draft the rule that is missing where a candidate is built otherwise than predicted.

    The difference is cut down to a minimal graph, which becomes the draft's test. Nothing is
    written where the plans agree, or where no rule can say what differs; a file that is there
    already is never written over. A person reviews the draft.
    """
    # Help is shown without what takes long to import.
    from placer.learning.candidate import LearningRequest, learn_from_builder  # noqa: PLC0415
    from placer.learning.learn import sentences_of  # noqa: PLC0415
    from placer.learning.write import drafts_or_pack, write_draft  # noqa: PLC0415

    del source  # The only one there is.
    loaded = drafts_or_pack(output, pack)
    shapes = optima(shape_ranges_of(shape or []))
    lesson = learn_from_builder(LearningRequest(candidate, placement, loaded, gpu, shapes))
    for sentence in sentences_of(lesson):
        typer.echo(sentence)
    if lesson.rule is None:
        return
    path = write_draft(lesson.rule, output, pack, loaded.manifest.engine)
    typer.echo(f"wrote {path}; review its pattern, `where`, `why` and `source`")
    drafts = load_pack(str(output.resolve()))
    failed, findings = list(failures_of(drafts)), list(lint(drafts))
    for sentence in (*failed, *findings):
        typer.echo(sentence)
    typer.echo(f"rules test: {len(failed)} failures; rules lint: {len(findings)} findings")


@rules_app.command("pack")
def pack_command(
    folder: Annotated[Path, typer.Argument(help="Folder of the pack.")],
    output: Annotated[
        Path,
        typer.Option("--output", "-o", help="Folder to write to.", show_default="this one"),
    ] = Path(),
    replace: PlainReplace = False,
) -> None:
    """Lint and test a pack and write NAME-VERSION.zip, the same bytes for the same files."""
    path, _, files = build_archive(folder, output, Store.default(), failures_of, replace=replace)
    if files.left_out:
        typer.echo(f"left out: {', '.join(map(ascii, files.left_out))}")
    typer.echo(f"wrote {path}, {files.content_hash}")


@rules_app.command("install")
def install_command(
    path: Annotated[Path, typer.Argument(help="A pack's .zip file or folder.")],
    expected: Annotated[
        str | None, typer.Option("--hash", help="Hash that it must have, sha256:...")
    ] = None,
) -> None:
    """Install a pack for this user; nothing in it is executed."""
    pack, is_new = install(path, Store.default(), expected)
    done = "installed" if is_new else "already installed:"
    typer.echo(f"{done} {pack.name_and_version}, {pack.content_hash}")


@rules_app.command("uninstall")
def uninstall_command(
    pack: Annotated[str, typer.Argument(help="NAME, or NAME@VERSION if there are several.")],
) -> None:
    """Remove an installed pack."""
    store = Store.default()
    try:
        wanted = parse_requirement(pack)
    except ValueError as error:
        raise InputError(str(error)) from error
    matching = [one for one in store.versions(wanted.name) if wanted.versions.contains(one.version)]
    if not matching:
        known = ", ".join(map(str, store.installed())) or "none"
        raise InputError(f"no pack {wanted} is installed; installed: {known}")
    if len(matching) > 1:
        versions = ", ".join(one.version for one in matching)
        raise InputError(f"{wanted} is installed as {versions}; name one, as {wanted.name}@VERSION")
    store.remove(matching[0])
    typer.echo(f"uninstalled {matching[0]}")


@rules_app.command("diff")
def diff_command(
    before: Annotated[str, typer.Argument(help="A pack: name, folder or .zip file.")],
    after: Annotated[str, typer.Argument(help="The pack to hold against it.")],
) -> None:
    """Show which rules of two packs were added, removed or changed, field by field."""
    lines = list(diff_packs(load_pack(before), load_pack(after)).lines())
    typer.echo("\n".join(lines) if lines else "no difference")


@rules_app.command("lock")
def lock_command(
    packs: Annotated[list[str], typer.Argument(help="The packs that the project uses.")],
    replace: PlainReplace = False,
) -> None:
    """Write placer.lock here, which `placer optimize` then holds its pack against."""
    check_writable(Path(LOCK_NAME), replace=replace)
    lock = Lock.of([load_pack(name) for name in packs])
    lock.save(Path(LOCK_NAME))
    pinned = ", ".join(f"{pin.name} {pin.version}" for pin in lock.packs)
    typer.echo(f"wrote {LOCK_NAME}: {pinned}")
