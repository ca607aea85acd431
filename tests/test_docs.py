"""The documentation is true: links, command lines, recipes, the generated reference."""

import doctest
import importlib
import re
import shlex
from collections.abc import Callable, Iterator
from pathlib import Path

import click
import pytest
import typer

from placer.cli.app import app
from placer.cli.lazy import WRITTEN, LazyCommand
from tests.conftest import Finished
from tests.generated import generated
from tests.recipe_models import write_models

ROOT = Path(__file__).parents[1]
DOCS = sorted((ROOT / "docs").rglob("*.md"))
PAGES = [*sorted(ROOT.glob("*.md")), *DOCS]
FENCED = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
COMPARISON = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE


def name_of(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


def prose(page: Path) -> str:
    return FENCED.sub("", page.read_text(encoding="utf-8"))


def anchors(page: Path) -> set[str]:
    """Names of a page's headings, as GitHub makes them."""
    headings = re.findall(r"^#+ (.*)$", prose(page), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def shell_lines(page: Path) -> Iterator[str]:
    """Lines of a page's shell code, continued ones joined; of a console, what was typed."""
    for language, text in FENCED.findall(page.read_text(encoding="utf-8")):
        for line in text.replace("\\\n", " ").splitlines():
            if language in ("bash", "sh"):
                yield line
            elif language == "console" and line.startswith("$ "):
                yield line.removeprefix("$ ")


def command_lines(page: Path) -> Iterator[list[str]]:
    """Every ``placer`` command of the page's code blocks, in words."""
    for line in shell_lines(page):
        for part in re.split(r"&&|;", line):
            program, *words = shlex.split(part, comments=True) or [""]
            if Path(program).name == "placer":
                yield words


def parse(words: list[str]) -> None:
    """Parse the words as the command line does; raises an error for unknown ones."""
    command = typer.main.get_command(app)
    while hasattr(command, "commands") and not words[0].startswith("-"):
        assert words[0] in command.commands, f"No such command '{words[0]}'"
        command, words = command.commands[words[0]], words[1:]
        command = command.load() if isinstance(command, LazyCommand) else command
    command.make_context("placer", list(words)).close()


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_links_within_the_repository_lead_somewhere(page: Path):
    for target in re.findall(r"\]\(([^)\s]+)\)", prose(page)):
        if target.startswith(("http://", "https://")):
            continue
        path, _, anchor = target.partition("#")
        file = (page.parent / path).resolve() if path else page
        assert file.exists(), f"{page.name} links to {target}"
        assert not anchor or anchor in anchors(file), f"{page.name} links to {target}"


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_command_lines_have_the_options_of_the_program(page: Path):
    for words in command_lines(page):
        parse(words)


def look_up(words: list[str]) -> None:
    """Find the command and the options of words that need not be complete, as in a sentence."""
    command = typer.main.get_command(app)
    while hasattr(command, "commands") and words and not words[0].startswith(("-", "[")):
        assert words[0] in command.commands, f"No such command '{words[0]}'"
        command, words = command.commands[words[0]], words[1:]
        command = command.load() if isinstance(command, LazyCommand) else command
    known = {name for parameter in command.params for name in parameter.opts} | {"--help"}
    named = {word.strip("[]").partition("=")[0] for word in words}
    unknown = {word for word in named if re.fullmatch("--?[a-z][a-z-]*", word)} - known
    assert not unknown, f"No such option {unknown}"


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_commands_in_sentences_have_the_options_of_the_program(page: Path):
    for code in re.findall(r"`placer ([^`]+)`", prose(page)):
        look_up(re.split(r",? +", code))


def test_a_command_line_that_does_not_parse_is_found():
    parse(shlex.split("optimize model.onnx --budget 5"))
    for wrong in ("optimize model.onnx --budjet 5", "optimise model.onnx", "explain"):
        with pytest.raises(Exception, match=r"(?i)no such|missing"):
            parse(wrong.split())
    for wrong in ("explain --figure page.html", "rules learns", "rules lock --packs"):
        with pytest.raises(AssertionError, match="No such"):
            look_up(wrong.split())


def options_of(command: click.Command) -> Iterator[str]:
    """The long options of a command and of those below it."""
    command = command.load() if isinstance(command, LazyCommand) else command
    for below in getattr(command, "commands", {}).values():
        yield from options_of(below)
    for parameter in command.params:
        yield from (name for name in parameter.opts if name.startswith("--"))


def test_every_option_is_on_a_page():
    text = "\n".join(page.read_text(encoding="utf-8") for page in PAGES)
    written = set(re.findall(r"--[a-z][a-z-]*", text))
    assert set(options_of(typer.main.get_command(app))) - written == {
        "--version",
        "--show-completion",
    }


def test_options_that_write_a_file_are_known_as_such():
    """The others are taken for files that are read, which none of these may overwrite."""
    commands = typer.main.get_command(app).commands.values()
    loaded = [command.load() for command in commands if isinstance(command, LazyCommand)]
    options = [one for c in loaded for one in c.params if one.param_type_name == "option"]
    texts = {one.name: one.help or "" for one in options if not one.is_flag}
    written = {name for name, text in texts.items() if re.match("Write (the|a) ", text)}
    assert written == WRITTEN - {"output"}


@pytest.mark.parametrize(
    ("index", "pages"),
    [("README.md", "docs/*.md"), ("docs/measured/index.md", "docs/measured/*.md")],
)
def test_every_page_is_listed(index: str, pages: str):
    text = (ROOT / index).read_text(encoding="utf-8")
    targets = {page.relative_to((ROOT / index).parent) for page in ROOT.glob(pages)}
    missing = {page for page in targets if f"({page.as_posix()})" not in text}
    assert missing - {Path("index.md")} == set()


def test_the_site_lists_every_page():
    """``nox -s docs`` refuses a page that no part of the navigation leads to."""
    navigation = re.findall(r"([\w/-]+\.md)$", (ROOT / "mkdocs.yml").read_text(), re.MULTILINE)
    pages = [page.relative_to(ROOT / "docs").as_posix() for page in DOCS]
    assert [page for page in pages if page not in navigation] == []


def test_the_public_names_of_the_stability_page_can_be_imported():
    """Each row of its table names a module and what plug-ins and scripts may take from it."""
    text = (ROOT / "docs" / "stability.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `(placer\.[\w.]+)` \| (.*) \|$", text, re.MULTILINE)
    assert "placer.engines.base" in dict(rows)
    for module, names in rows:
        imported = importlib.import_module(module)
        for name in re.findall(r"`(\w+)`", names):
            assert hasattr(imported, name), f"{module} has no {name}"


def test_the_rule_reference_and_the_schemas_are_current():
    """If not, ``python -m tests.generated`` writes them."""
    for path, text in generated().items():
        assert (ROOT / path).read_text(encoding="utf-8") == text, path


def console_lines(page: Path) -> Iterator[tuple[list[str], str]]:
    """The commands of a page's console blocks with what each prints."""
    for language, text in FENCED.findall(page.read_text(encoding="utf-8")):
        if language == "console":
            for part in re.split(r"^\$ ", text, flags=re.MULTILINE)[1:]:
                command, _, printed = part.partition("\n")
                yield shlex.split(command), printed


@pytest.mark.slow
def test_the_recipes_print_what_they_show(
    placer: Callable[..., Finished], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("COLUMNS", "96")
    write_models(Path())
    for (program, *words), printed in console_lines(ROOT / "docs" / "recipes.md"):
        assert program == "placer"
        finished = placer(*words)
        refused = words == ["check", "torch_eager.onnx", "--static"]
        assert finished.code == (1 if refused else 0), finished.err
        matches = doctest.OutputChecker().check_output(printed, finished.out, COMPARISON)
        assert matches, f"placer {shlex.join(words)} printed\n{finished.out}"


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_tables_have_a_head_and_end_with_a_blank_line(page: Path) -> None:
    tables = re.findall(r"((?:^\|.*\n)+)(.*)", f"{prose(page)}\n", re.MULTILINE)
    for table, behind in tables:
        assert re.search(r"\A.*\n\|[-:| ]+\|\n", table), f"no head: {table}"
        assert not behind.strip(), f"not a line of the table before it: {behind}"


def test_each_dockerfile_has_its_list_of_what_the_context_leaves_out() -> None:
    folder = ROOT / "docker"
    dockerfiles = [path for path in folder.iterdir() if path.suffix != ".dockerignore"]
    lists = {folder / f"{path.name}.dockerignore" for path in dockerfiles}
    assert lists == set(folder.glob("*.dockerignore"))
    assert len({path.read_text(encoding="utf-8") for path in lists}) == 1
