"""Every option is defined once: all who name it agree, and wrong values are refused at once."""

import inspect
import math
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal, get_args, get_origin, get_type_hints

import pytest
import typer

import placer
from placer.accuracy.latency_gates import BEATS
from placer.calibration.methods import METHODS
from placer.cli.app import app
from placer.engines.estimated.fusion_model import BASES
from placer.graph.text import parse_model
from placer.onboarding.manifest_fields import Options
from placer.optimizer.options.request import CommandName, Request, options
from placer.qdq.bases import InputOutputTypes
from tests.conftest import DIGITS, Finished

Placer = Callable[..., Finished]

MODEL = DIGITS / "digits.onnx"
ROOT = Path(__file__).parents[2]
OPTIONS = options()
# Options of the program itself.
TERMINAL = {"--quiet", "--json", "--debug", "--project", "--profile"}
# What the manifest has besides.
ONBOARDING = {"priority", "time_limit"}


def of_command(command: CommandName) -> set[str]:
    return {keyword for keyword, known in OPTIONS.items() if command in known.option.commands}


def choices(hint: Any) -> set[str]:
    """The values of every Literal in a type."""
    if get_origin(hint) is Literal:
        return set(get_args(hint))
    return {value for part in get_args(hint) for value in choices(part)}


# --- agreement ------------------------------------------------------------------------------


def test_choices_are_those_of_the_modules_that_take_them():
    presets = {path.stem for path in (ROOT / "configs" / "presets").glob("*.yaml")}
    assert set(OPTIONS["preset"].choices) == presets
    assert OPTIONS["calibration"].choices == ("auto", *METHODS)
    assert OPTIONS["base"].choices == ("auto", *BASES)
    assert OPTIONS["beats"].choices == BEATS
    assert OPTIONS["io_type"].choices == get_args(InputOutputTypes)
    for known in OPTIONS.values():
        missing = [name for name in known.choices if name not in known.option.help]
        assert missing in ([], ["convert"], ["keep"]), known.keyword


def test_the_python_api_has_every_option_with_its_default_and_choices():
    parameters = inspect.signature(placer.optimize).parameters
    hints = get_type_hints(inspect.unwrap(placer.optimize))
    assert set(parameters) == {"model", "observer", *of_command("optimize")}
    for keyword, known in OPTIONS.items():
        default = getattr(Request(Path("m.onnx")), known.field)
        expected = True if keyword == "cache" else default
        assert (parameters[keyword].default or None) == (expected or None), keyword
        assert choices(hints[keyword]) == set(known.choices), keyword


@pytest.mark.parametrize("command", ["optimize", "worker"])
def test_the_command_line_has_every_option_with_its_help_and_group(command: CommandName):
    loaded = typer.main.get_command(app).commands[command].load()
    flags = {param.opts[0]: param for param in loaded.params if param.opts[0].startswith("--")}
    own = {"--model", "--function", "--wait"} if command == "worker" else set()
    expected = {OPTIONS[keyword].flag for keyword in of_command(command)}
    assert flags.keys() - TERMINAL - own == expected
    for keyword in of_command(command):
        known = OPTIONS[keyword]
        param = flags[known.flag]
        assert param.rich_help_panel == known.option.group
        if command == "optimize":
            assert param.help == known.option.help
            default = True if keyword == "cache" else getattr(Request(Path("m")), known.field)
            assert (param.default or None) == (default or None), keyword


def test_the_manifest_has_every_option_with_its_choices():
    hints = get_type_hints(Options, include_extras=False)
    assert set(Options.model_fields) == of_command("onboard") | ONBOARDING
    for keyword in of_command("onboard") - {"beats"}:  # Which its own reader checks.
        assert choices(hints[keyword]) == set(OPTIONS[keyword].choices), keyword


def test_the_guide_lists_every_option():
    table = (ROOT / "docs" / "api.md").read_text().partition("## Keywords")[2].partition("\n## ")[0]
    keywords, flags = set(), set()
    for row in re.findall(r"^\| (`.*?) \| (.*?) \|", table, re.MULTILINE):
        keywords |= set(re.findall(r"`(\w+)`", row[0]))
        flags |= set(re.findall(r"`(--[\w-]+)`", row[1]))
    assert keywords == {"model", "observer", *OPTIONS}
    assert flags == {known.flag for known in OPTIONS.values()}


# --- wrong values ---------------------------------------------------------------------------

# What is typed, what is given in Python, and a part of the sentence that refuses both.
WRONG: dict[str, tuple[str, object, str]] = {
    "shapes": ("image=0x1x32x32", {"image": (0, 1, 32, 32)}, "at least 1"),
    "fix": ("rate=1", {"rate": 1}, "unknown input 'rate'"),
    "custom_ops": ("missing.so", "missing.so", "the library missing.so of"),
    "data": ("missing.npz", "missing.npz", "missing.npz"),
    "eval_data": ("missing.npz", "missing.npz", "missing.npz"),
    "gates": ("sqnt>=20", "sqnt>=20", "unknown metric 'sqnt'; use one of: "),
    "beats": ("floats", "floats", "unknown beat 'floats'; use one of: float, implicit; did you"),
    "calibration": ("max", "max", "unknown calibration 'max'; use one of: auto, minmax"),
    "recover": ("bias", "bias", "unknown recover 'bias'; use one of: none, auto, cross-layer-"),
    "ranges": ("kept", "kept", "unknown ranges 'kept'; use one of: imported, calibrated"),
    "overrides": (
        "tensor=imge,method=minmax",
        "tensor=imge,method=minmax",
        "field 'tensor': no rule",
    ),
    "engine": ("onnxruntme", "onnxruntme", "did you mean 'onnxruntime'?"),
    "gpu": ("a100", "a100", "goes with engine fusion-model or tensorrt-rtx-build"),
    "build_for": ("sm89", "sm89", "goes with engine fusion-model"),
    "threads": ("0", 0, "is 0; give 1 or more"),
    "objective": ("power", "power", "unknown objective 'power'; use one of: latency, throughput"),
    "device": ("1", "1", "chooses a GPU"),
    "devices": ("0,0", ["0", "0"], "names a device twice"),
    "engine_options": ("turbo=1", {"turbo": "1"}, "unknown engine option 'turbo'"),
    "pack": ("onnxruntim", "onnxruntim", "did you mean 'onnxruntime'?"),
    "scheme": ("fp3", "fp3", "pack 'onnxruntime' has no scheme 'fp3', only its own"),
    "weight_range": ("half", "half", "unknown weight range 'half'; use one of: auto, full, red"),
    "base": ("float61", "float61", "did you mean 'float16'?"),
    "export": ("onnx", "onnx", "unknown export 'onnx'; use one of: openvino"),
    "io_type": ("kep", "kep", "unknown io type 'kep'; use one of: keep, convert; did you"),
    "exclude": ("/head", "/head", "'/head' selects no node of the model"),
    "only": ("op:Cnv", "op:Cnv", "unknown operator 'Cnv'; use one of: Add, "),
    "force": ("op:Cnv", "op:Cnv", "unknown operator 'Cnv'; use one of: Add, "),
    "preset": ("quik", "quik", "did you mean 'quick'?"),
    "budget": ("-1", -1, "is -1; give 1 or more"),
    "timeout": ("nan", math.nan, "nan"),
    "sampler": ("foo", "foo", "unknown sampler 'foo'; use one of: surrogate, tpe"),
    "front": ("1", 1, "is 1; give 2 or more"),
    "warm_starts": ("earlier", "earlier", "warm start earlier: there is no such file"),
    "storage": ("database", "database", "is not the URL of a database"),
    "study": ("mine", "mine", "names study 'mine' in a storage"),
    "seed": ("-1", -1, "is -1; give 0 or more"),
    "output": ("taken", "taken", "taken is not a folder"),
}


def test_wrong_values_are_tried_for_every_option():
    assert WRONG.keys() | {"cache"} == OPTIONS.keys()


@pytest.mark.parametrize("keyword", WRONG)
def test_the_command_line_refuses(placer: Placer, keyword: str):
    text, _, expected = WRONG[keyword]
    Path("taken").write_text("a file")
    flag = OPTIONS[keyword].flag
    finished = placer("optimize", MODEL, "--engine", "onnxruntime", f"{flag}={text}")
    assert finished.code == 2
    assert finished.err.startswith("placer: error: ")
    assert finished.err.count("\n") == 1
    assert expected in finished.err
    assert "`" not in finished.err
    assert [path.name for path in Path().iterdir()] == ["taken"]


@pytest.mark.parametrize(
    ("short", "meant"),
    [
        ("ort", "onnxruntime"),
        ("OV", "openvino"),
        ("trt", "tensorrt"),
        ("trt-rtx", "tensorrt-rtx"),
        ("rtx", "tensorrt-rtx"),
    ],
)
def test_short_names_of_engines_are_understood_in_suggestions(
    placer: Placer, short: str, meant: str
):
    finished = placer("optimize", MODEL, "--engine", short)
    assert finished.code == 2
    assert finished.out == ""  # Nothing was begun.
    assert f"unknown engine '{short}'; use one of: auto, " in finished.err
    assert finished.err.endswith(f"; did you mean '{meant}'?\n")


@pytest.mark.parametrize("keyword", WRONG)
def test_the_python_api_refuses_without_a_word_of_flags(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, keyword: str
):
    monkeypatch.chdir(tmp_path)
    _, value, expected = WRONG[keyword]
    Path("taken").write_text("a file")
    given: dict[str, Any] = {"engine": "onnxruntime", keyword: value}
    with pytest.raises(placer.InputError, match=re.escape(expected)) as error:
        placer.optimize(MODEL, **given)
    assert "--" not in str(error.value)
    assert [path.name for path in Path().iterdir()] == ["taken"]


@pytest.mark.parametrize(
    ("keyword", "value"),
    [
        ("timeout", math.inf),
        ("timeout", 0.0),
        ("timeout", "10m"),
        ("budget", 2.5),
        ("budget", True),
        ("threads", None),
        ("threads", "2"),
        ("gpu", ""),
        ("engine", None),
        ("sampler", None),
        ("shapes", {"image": placer.ShapeRange((4, 1), (2, 1), (1, 1))}),
        ("engine_options", {"target": 1}),
    ],
)
def test_the_python_api_refuses_what_cannot_be_typed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, keyword: str, value: object
):
    monkeypatch.chdir(tmp_path)
    named = keyword.replace("_", " ").rstrip("s")  # One shape, one engine option.
    with pytest.raises(placer.InputError, match=named):
        placer.optimize(MODEL, **{keyword: value})
    assert not list(tmp_path.iterdir())


def test_models_in_memory_are_written_only_if_all_else_is_right(tmp_path: Path):
    proto = parse_model('<ir_version: 9, opset_import: ["": 17]> g () => () {}')
    with pytest.raises(placer.InputError, match="unknown sampler"):
        placer.optimize(proto, output=tmp_path / "out", sampler="foo")  # type: ignore[arg-type]
    assert not list(tmp_path.iterdir())


def text_of(keyword: str) -> str:
    """A wrong value as YAML; of a text, which only a run can refuse, an empty one."""
    known = OPTIONS[keyword]
    if keyword in ("gates", "timeout") or known.choices or known.option.least is not None:
        return WRONG[keyword][0]
    return {"shapes": "{image: 0x1:1x1:2x2}", "engine_options": "{a: []}"}.get(keyword, '""')


@pytest.mark.parametrize("keyword", sorted(of_command("onboard") - {"cache"}))
def test_the_manifest_refuses(placer: Placer, keyword: str):
    text = f"models:\n  - model: {MODEL}\n    {keyword}: {text_of(keyword)}\n"
    Path("models.yaml").write_text(text)
    finished = placer("onboard", "models.yaml")
    assert finished.code == 2
    assert finished.err.count("\n") == 1
    assert re.match(rf"placer: error: models.yaml:\d+: .*{keyword}", finished.err), finished.err
    assert [path.name for path in Path().iterdir()] == ["models.yaml"]


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("--storage", "database"), "--storage is not the URL of a database"),
        (("--storage", "sqlite:///s.db"), "sqlite:///s.db holds no studies"),
    ],
)
def test_a_worker_refuses(placer: Placer, words: tuple[str, ...], expected: str):
    finished = placer("worker", "--study", "s", *words)
    assert finished.code == 2
    assert expected in finished.err
