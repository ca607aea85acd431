"""The program as a whole: what it imports, its list of commands, completion."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import typer

from placer.cli.app import COMMANDS, RESUMING, app
from placer.cli.options import with_flags
from placer.cli.unforeseen import unforeseen
from placer.optimizer.worker import WorkDone
from tests.conftest import DIGITS, Finished

PROGRAM = """
import sys
from placer.cli.app import main
heavy = "onnx", "onnxruntime", "optuna", "sqlalchemy", "plotly", "pydantic", "numpy"
for words in {lines}:
    sys.argv = ["placer", *words]
    try:
        main()
    except SystemExit as end:
        assert not end.code, end.code
    print("imported:", *(name for name in heavy if name in sys.modules))
"""


def imported(*lines: tuple[str, ...]) -> list[list[str]]:
    """Libraries, of those that take long, that a process has imported after each command line."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM.format(lines=lines)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    said = (line for line in done.stdout.splitlines() if line.startswith("imported:"))
    return [line.split()[1:] for line in said]


def test_help_and_version_import_no_library_that_takes_long():
    assert imported(("--version",), ("-V",), ("--help",)) == [[], [], []]


def test_the_list_of_commands_says_what_their_own_help_says():
    commands = typer.main.get_command(app).commands
    assert len(commands) >= 12
    for name, command in commands.items():
        first = command.load().help.partition("\n\n")[0]
        assert " ".join(first.split()) == command.help, name


def test_a_closed_standard_output_is_no_error():
    program = [sys.executable, "-m", "placer", "--version"]
    done = subprocess.run(
        ["sh", "-c", 'exec "$@" >&-', "sh", *program],
        stderr=subprocess.PIPE,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_options_with_an_equals_sign_take_the_home_folder(
    placer: Callable[..., Finished], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("HOME", "/home/of/nobody")
    finished = placer("eval", DIGITS / "digits.onnx", DIGITS / "digits.onnx", "--data=~/x.npz")
    assert "/home/of/nobody/x.npz does not exist" in finished.err


def test_a_misspelt_command_is_corrected(placer):
    finished: Finished = placer("optimise")
    assert finished.code == 2
    assert "Did you mean 'optimize'?" in finished.err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (
            ("optimize", "a.onnx", "--threads", "two"),
            "Invalid value for '--threads': give a whole number "
            "(placer optimize --help tells more)",
        ),
        (("bench",), "Missing argument 'models' (placer bench --help tells more)"),
        (
            ("optimize", "a.onnx", "--force"),
            "Option '--force' requires an argument (placer optimize --help tells more)",
        ),
        (("rules", "nope"), "No such command 'nope' (placer rules --help tells more)"),
    ],
)
def test_a_wrong_command_line_is_one_sentence(
    placer: Callable[..., Finished], words: tuple[str, ...], said: str
):
    finished = placer(*words)
    assert (finished.code, finished.out) == (2, "")
    assert finished.err == f"placer: error: {said}\n"


@pytest.mark.parametrize("group", ["rules", "plan"])
def test_a_group_of_commands_alone_shows_its_help_and_no_error(
    placer: Callable[..., Finished], group: str
):
    finished = placer(group)
    assert (finished.code, finished.err) == (2, "")
    assert f"Usage: placer {group}" in finished.out


METRIC = """
import ctypes, os

def noisy(outputs, batch):
    ctypes.CDLL(None).printf(b"from the C library's buffer\\n")
    os.write(1, b"from the descriptor\\n")
    return 1.0
"""


@pytest.mark.slow
def test_json_stays_json_where_a_native_library_prints(tmp_path: Path):
    (tmp_path / "noise.py").write_text(METRIC)
    model, data = DIGITS / "digits.onnx", DIGITS / "evaluation.npz"
    program = [sys.executable, "-c", "from placer.cli.app import program; program()"]
    done = subprocess.run(
        [*program, "eval", model, model, "--data", data, "--metric", "noise:noisy", "--json"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )
    metrics = json.loads(done.stdout)["models"][0]["metrics"]
    assert {one["value"] for one in metrics if one["metric"] == "noise:noisy"} == {1.0}
    assert "from the C library's buffer" in done.stderr
    assert "from the descriptor" in done.stderr


@pytest.mark.parametrize(
    ("shell", "words", "expected"),
    [
        ("bash", "placer opt", "optimize"),
        ("bash", "placer plan d", "diff"),
        ("zsh", "placer optimize --eval", "--eval-data"),
    ],
)
def test_the_shell_completes_commands_and_options(shell: str, words: str, expected: str):
    environment = {
        **os.environ,
        "_PLACER_COMPLETE": f"complete_{shell}",
        "COMP_WORDS": words,
        "COMP_CWORD": str(len(words.split(" ")) - 1),
        "_TYPER_COMPLETE_ARGS": words,
    }
    program = "import sys; sys.argv = ['placer']; from placer.cli.app import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", program],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert expected in done.stdout


def test_ctrl_c_outside_of_a_search_is_a_sentence(
    placer: Callable[..., Finished], monkeypatch: pytest.MonkeyPatch
):
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("placer.calibration.sources.read_arrays", interrupted)
    data = DIGITS / "calibration.npz"
    finished = placer("optimize", DIGITS / "digits.onnx", "--data", data, "--no-cache")
    assert finished.code == 130
    assert finished.err.endswith("placer: interrupted; run the same command again to resume\n")


def test_a_worker_that_ctrl_c_ends_has_the_exit_code_of_every_command(
    placer: Callable[..., Finished], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("placer.work", lambda *_, **__: WorkDone((), 4, "interrupted"))
    finished = placer("worker", "--study", "s", "--storage", "sqlite:///s.db")
    assert finished.code == 130
    assert "0 trials; the study holds 4 trials, and ended here by: interrupted" in finished.out
    assert finished.err == "placer: interrupted; run the same command again to resume\n"


def test_the_commands_that_resume_are_commands():
    assert {*RESUMING} < {name for name, _, _ in COMMANDS}


def test_what_nobody_foresaw_is_a_sentence_and_a_file(
    placer: Callable[..., Finished], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    for error, code, expected in (
        (KeyError("odd"), 1, "this should not happen, please report it (traceback in"),
        (MemoryError(), 1, "the memory is exhausted"),
        (RecursionError(), 2, "nested too deeply"),
        (OSError(36, "File name too long", "x" * 5000), 2, "check the path"),
    ):

        def failing(*_: object, error: Exception = error, **__: object) -> None:
            raise error

        monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
        monkeypatch.setattr("placer.engines.tensorrt.check.read_model", failing)
        finished = placer("check", DIGITS / "digits.onnx", "--static")
        assert finished.code == code
        assert expected in finished.err
        assert finished.err.count("\n") == 1
        assert len(finished.err) <= 620
    assert "KeyError" in "".join(f.read_text() for f in tmp_path.glob("placer-error-*.txt"))


def test_a_library_that_cannot_be_imported_is_told(
    placer: Callable[..., Finished], monkeypatch: pytest.MonkeyPatch
):
    """ONNX Runtime's as a rule, which nearly every module needs, as does what tells of errors."""
    monkeypatch.setitem(sys.modules, "placer.cli.unforeseen", None)
    finished = placer("check", "nowhere.onnx")
    assert finished.code == 1
    assert finished.err.startswith("placer: error: a library that placer needs cannot be imported")
    assert finished.err.endswith("; install placer again\n")


def test_a_name_that_is_not_utf8_is_told():
    with pytest.raises(UnicodeEncodeError) as refused:
        os.fsdecode(b"n\xff.onnx").encode()
    told = unforeseen(refused.value)
    assert told.exit_code == 2
    assert str(told) == "a file's or folder's name is not UTF-8: n\udcff.onnx; rename it"


@pytest.mark.parametrize("command", ["check", "optimize"])
def test_a_model_whose_name_is_not_utf8_is_refused_at_once(
    placer: Callable[..., Finished], tmp_path: Path, command: str
):
    """NVIDIA's parser takes no such name, and result.json cannot hold it."""
    model = tmp_path / os.fsdecode(b"m\xff.onnx")
    shutil.copy(DIGITS / "digits.onnx", model)
    engine = ("--engine", "fusion-model", "--gpu", "t4", "--budget", 1, "-o", tmp_path / "out")
    finished = placer(command, model, *(engine if command == "optimize" else ()))
    assert finished.code == 2
    assert "name is not UTF-8: " in finished.err
    assert finished.err.rstrip().endswith("m[U+DCFF].onnx; rename it")


def test_the_file_of_an_unforeseen_error_has_no_password(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    url = "postgresql://me:secret:/word@host/studies?sslpassword=hidden&sslmode=require"
    monkeypatch.setattr("sys.argv", ["placer", "optimize", f"--storage={url}"])
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    unforeseen(KeyError("odd"))
    (written,) = tmp_path.glob("placer-error-*.txt")
    shown = "postgresql://me:***@host/studies?sslpassword=***&sslmode=require"
    assert f"arguments: ['optimize', '--storage={shown}']" in written.read_text()


def test_the_help_of_a_command_imports_no_engine():
    commands = ("optimize", "worker", "apply", "import", "explain", "extract", "check", "bench")
    found = dict(zip(commands, imported(*((name, "--help") for name in commands)), strict=True))
    for name in commands:
        assert found[name] in ([], ["pydantic"]), name  # Which Typer reads options with.


@pytest.mark.parametrize("name", [name for name, _, _ in COMMANDS])
def test_the_help_of_every_command_ends_with_examples(placer, name: str):
    finished: Finished = placer(name, "--help")
    text = " ".join(finished.out.replace("│", " ").split())
    _, _, examples = text.partition("Examples: ")
    assert examples.startswith(f"placer {name}")


def test_defaults_in_words_are_shown_and_flags_replace_the_names_of_options(placer):
    finished: Finished = placer("optimize", "--help")
    text = " ".join(finished.out.replace("│", " ").split())
    assert "[default: (MODEL.placer)]" in text
    assert "Examples: placer optimize model.onnx" in text
    assert "╭─ Search" in finished.out
    assert with_flags("raise `budget` or relax `gates`") == "raise --budget or relax --gate"
    assert with_flags("`redo_model`") == "--redo-model"


STILL_AT_WORK = """
import sys
import threading
import numpy as np
import onnxruntime
from placer.cli.app import program
from placer.graph.text import parse_model

model = parse_model('''
<ir_version: 9, opset_import: ["": 17]>
g (float[400,400] x) => (float[400,400] y) { y = MatMul(x, x) }
''')
session = onnxruntime.InferenceSession(model.SerializeToString())
feeds = {"x": np.ones((400, 400), np.float32)}

def work():
    while True:
        session.run(None, feeds)

threading.Thread(target=work, daemon=True).start()
sys.argv = ["placer", "--version"]
program()
"""


def test_a_thread_that_works_in_a_library_does_not_abort_the_end():
    done = subprocess.run(
        [sys.executable, "-c", STILL_AT_WORK], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")


ENDED_BY_A_TEXT = """
import sys
import threading
from placer.cli import app

threading.Thread(target=threading.Event().wait, daemon=True).start()
app.main = lambda as_child: sys.exit("stopped by a plugin")
app.program()
"""


def test_an_end_with_a_text_has_the_exit_code_of_failures():
    done = subprocess.run(
        [sys.executable, "-c", ENDED_BY_A_TEXT], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (1, "stopped by a plugin\n")
