"""What the report of a run says, from the run's output folder alone."""

from __future__ import annotations

import hashlib
import html
import itertools
import json
import re
import shlex
import shutil
from collections.abc import Callable
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import onnx
import optuna
import pytest
import typer

from placer.cli.app import app
from placer.errors import InputError, RunError
from placer.graph.scopes import Body
from placer.graph.shapes import ShapeRange
from placer.optimizer.observer import QuietObserver
from placer.optimizer.options.command import command_of
from placer.optimizer.run import Request, optimize
from placer.plan import Layer, Plan, Port
from placer.plan.json_format import plan_json
from placer.qdq.origin import name_origin
from placer.report import write_report
from placer.report.accuracy_figures import accuracies, accuracy_figure
from placer.report.graph_figure import graph_figure
from placer.report.node_details import node_details
from placer.report.plans import changes, rows
from placer.report.run_folder import load_run
from placer.report.tables import verdict
from placer.report.time_figure import time_figure
from placer.report.trial_figures import trials_figure
from placer.results.result import Result
from tests.conftest import DIGITS, Finished, two_convs, with_random_weights
from tests.report.conftest import digits, put_model

Placer = Callable[..., Finished]


class Text(HTMLParser):
    """The text that a page shows, and the scripts that it runs."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.shown: list[str] = []
        self.scripts: list[str] = []
        self._inside: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag in ("script", "style"):
            self._inside.append("data" if dict(attrs).get("type") else tag)

    def handle_endtag(self, tag: str) -> None:
        if tag in ("script", "style"):
            self._inside.pop()

    def handle_data(self, data: str) -> None:
        if not self._inside:
            self.shown.append(data)
        elif self._inside[-1] == "script":
            self.scripts.append(data)

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.shown).split())


@pytest.fixture
def copy(estimated: Path, tmp_path: Path) -> Path:
    """The estimated run's folder, to be changed."""
    return Path(shutil.copytree(estimated, tmp_path / "digits.placer"))


def page(folder: Path) -> Text:
    return Text(write_report(folder).read_text())


def change(folder: Path, edit: Callable[[dict], None]) -> None:
    document = json.loads((folder / "result.json").read_text())
    edit(document)
    (folder / "result.json").write_text(json.dumps(document))


def test_a_run_ends_with_its_report(measured: Path):
    text = Text((measured / "report.html").read_text()).text
    assert text.startswith("digits.onnx - placer")
    result = Result.read(measured)
    assert verdict(result).headline in text
    assert "top1_drop<=0.01 0 logits met" in text
    assert "ESTIMATE" not in text
    assert shlex.quote(result.model.path) in text


def test_the_report_needs_the_folder_only_and_is_made_again_the_same(
    placer: Placer, estimated: Path, tmp_path: Path
):
    finished = placer("report", estimated, "--output", tmp_path / "again.html")
    assert finished.code == 0, finished.err
    assert (tmp_path / "again.html").read_bytes() == (estimated / "report.html").read_bytes()


def test_estimates_are_called_estimates(estimated: Path):
    text = page(estimated).text
    assert text.count("ESTIMATE") >= 3
    assert "estimated speed-up" in text
    assert "nothing was run" in text


def test_float_kept(estimated: Path, copy: Path):
    result = Result.read(estimated)
    kept = {
        "verdict": "no difference",
        "best": {
            **result.best.model_dump(),
            "trial": None,
            "speedup": 1,
            "speedup_interval": [1, 1],
            "quantized_edges": 0,
        },
        "warnings": ["the float model is the result"],
    }
    change(copy, lambda document: document.update(kept))
    text = page(copy).text
    assert "Float model kept" in text
    assert "Warnings the float model is the result" in text


def test_gate_not_met(missed: Path):
    text = Text((missed / "report.html").read_text()).text
    assert "Gate not met ESTIMATE None of 2 quantized trials meets sqnr>=90." in text
    # Trial 0 quantizes nothing.
    values = accuracies(Result.read(missed))[0].values
    closest = max(value for trial, value in values.items() if trial > 0)
    assert re.search(rf"sqnr>=90 {closest:.4g} dB closest: trial \d missed", text)
    assert "No placement meets the gates, so there is none to draw." in text
    assert accuracies(Result.read(missed))[0].title == "sqnr, dB (gate sqnr>=90)"


def test_a_gate_that_is_refused_today_is_told_of_an_earlier_run(missed: Path):
    text = (missed / "result.json").read_text().replace("sqnr>=90", "top1_drop<=1")
    earlier = accuracies(Result.model_validate_json(text))
    assert "top1_drop (gate top1_drop<=1)" in {metric.title for metric in earlier}


def test_warnings_and_what_is_not_calibrated_come_with_the_verdict(copy: Path):
    change(copy, lambda d: d.update(calibrated=False, warnings=["the GPU throttled & more"]))
    text = page(copy).text
    assert text.index("calibrated: false.") < text.index("Latency over trials")
    assert text.index("the GPU throttled & more") < text.index("Latency over trials")


def test_results_of_earlier_versions_have_a_report(measured: Path, tmp_path: Path):
    folder = tmp_path / "old.placer"
    shutil.copytree(measured, folder)
    (folder / "plan_predicted.json").unlink()

    def age(document: dict) -> None:
        for name in ("command", "rules", "site_decisions"):
            del document[name]
        for trial in document["trials"]:
            del trial["noise"], trial["skipped"]

    change(folder, age)
    text = page(folder).text
    assert "did not record its command" in text
    assert "No predicted plan is in the folder." in text


def test_a_folder_with_a_result_alone_has_a_report(measured: Path, tmp_path: Path):
    shutil.copy(measured / "result.json", tmp_path)
    text = page(tmp_path).text
    assert "The folder has no optimized.onnx to draw." in text
    assert "The folder holds no plan of the result." in text


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("result.json", "{}", "result.json is no result of this version of placer"),
        ("plan_predicted.json", '{"layers": 3}', "plan_predicted.json"),
        ("optimized.onnx", "not a model", "cannot read"),
    ],
)
def test_a_damaged_file_is_named(placer: Placer, copy: Path, name: str, content: str, words: str):
    (copy / name).write_text(content)
    finished = placer("report", copy)
    assert finished.code == 2
    assert words in finished.err
    assert len(finished.err.splitlines()) == 1


def test_another_model_is_not_reported_as_the_result(placer: Placer, copy: Path):
    path = copy / "optimized.onnx"
    assert Result.read(copy).best.model_sha256 == hashlib.sha256(path.read_bytes()).hexdigest()
    proto = onnx.load(path)
    proto.graph.initializer[0].doc_string = "retrained"
    onnx.save(proto, path)
    finished = placer("report", copy)
    assert finished.code == 2
    assert f"{path} is not the file that this run wrote (its SHA-256 is not the one" in finished.err
    change(copy, lambda document: document["best"].pop("model_sha256"))  # Of an earlier version.
    assert load_run(copy).topology is not None
    name_origin(proto, "0123456789ab", "tensorrt 1.0.0", calibrated=True)
    onnx.save(proto, path)
    words = f"has placement 0123456789ab, but {copy / 'result.json'} is about"
    with pytest.raises(InputError, match=re.escape(words)):
        load_run(copy)


def test_other_external_data_are_not_taken_for_those_of_the_run(copy: Path):
    (copy / "optimized.onnx.data").write_bytes(b"retrained")
    load_run(copy)  # The run wrote none: the file is not part of the model.
    change(copy, lambda document: document["best"].update(data_sha256="0" * 64))
    with pytest.raises(InputError, match=r"optimized\.onnx\.data is not the file that this run"):
        load_run(copy)


@pytest.mark.slow
def test_the_hash_of_external_data_is_kept(tmp_path: Path):
    model, folder = tmp_path / "net.onnx", tmp_path / "run"
    proto = with_random_weights(two_convs(16, 8))
    external = {"save_as_external_data": True, "location": "w.bin", "size_threshold": 0}
    onnx.save(proto, model, **external)
    only = (proto.graph.node[0].name,)  # The other's weights stay as they are.
    request = Request(
        model, engine="onnxruntime", preset="quick", budget=2, only=only, output=folder
    )
    optimize(request, QuietObserver())
    data = (folder / "optimized.onnx.data").read_bytes()
    assert Result.read(folder).best.data_sha256 == hashlib.sha256(data).hexdigest()


def test_a_report_is_not_written_over_a_file_of_the_run(placer: Placer, copy: Path):
    before = (copy / "result.json").read_bytes()
    finished = placer("report", copy, "-o", copy / "result.json")
    assert finished.code == 2
    assert "result.json belongs to the run; choose another output" in finished.err
    assert (copy / "result.json").read_bytes() == before


def test_a_folder_that_is_none(placer: Placer):
    finished = placer("report", "nowhere")
    assert (finished.code, finished.err) == (
        2,
        "placer: error: nowhere is not a folder; give the output folder of placer optimize\n",
    )


@pytest.mark.slow
@pytest.mark.parametrize("reason", ["is a folder", "cannot write"])
def test_a_report_that_cannot_be_written_costs_a_warning_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reason: str
):
    def full(folder: Path) -> None:
        raise RunError(f"cannot write {folder / 'report.html'}: No space left on device")

    class Warnings(QuietObserver):
        def __init__(self) -> None:
            self.texts: list[str] = []

        def warn(self, text: str) -> None:
            self.texts.append(text)

    images = np.load(DIGITS / "calibration.npz")["image"][:4]
    np.savez(tmp_path / "few.npz", image=images)
    folder = tmp_path / "digits.placer"
    if reason == "is a folder":
        (folder / "report.html").mkdir(parents=True)
    else:
        monkeypatch.setattr("placer.optimizer.run.write_report", full)
    observer = Warnings()
    few = {"data": str(tmp_path / "few.npz"), "engine": "fusion-model", "gpu": "a100"}
    result = optimize(digits(folder, budget=2, **few), observer)
    assert Result.read(folder) == result
    (text,) = [text for text in observer.texts if "report.html" in text]
    assert text.startswith("no report.html: ")
    assert reason in text
    few_samples = "ranges rest on 4 calibration samples only; give at least 8"
    assert few_samples in result.warnings
    assert observer.texts.count(few_samples) == 1


# --- what models say is text ----------------------------------------------------------------

HOSTILE = "</script><script>alert(1)</script><img src=x onerror=alert(2)>&\u2028"


def test_nothing_that_a_model_says_becomes_markup(copy: Path):
    def poison(value: object) -> object:
        if isinstance(value, dict):
            return {key: poison(item) for key, item in value.items()}
        if isinstance(value, list):
            return [poison(item) for item in value]
        return value.replace("/Concat", HOSTILE) if isinstance(value, str) else value

    proto = onnx.load(copy / "optimized.onnx")
    for node in proto.graph.node:
        node.name = node.name.replace("/Concat", HOSTILE)
    put_model(copy, proto)
    for name in ("result.json", "plan_predicted.json", "plan_float_predicted.json"):
        document = poison(json.loads((copy / name).read_text()))
        (copy / name).write_text(json.dumps(document))
    change(copy, lambda d: d.update(warnings=[HOSTILE], command=f"placer {HOSTILE}"))

    source = write_report(copy).read_text()
    found = Text(source)
    assert HOSTILE.split("\u2028", maxsplit=1)[0] in "".join(found.shown)
    assert not any("alert(" in script for script in found.scripts if "sourceMapping" not in script)
    assert "<script>alert" not in source
    assert "<img" not in re.sub(r"<script>.*?</script>", "", source, flags=re.S)
    # What plotly shows on hover is a small markup of its own.
    data = json.loads(re.search(r'id="figures">(.*?)</script>', source, re.S)[1])
    hovers = [h for t in data["graph"]["data"] for h in t.get("customdata", ())]
    assert any(html.escape("<img src=x") in hover for hover in hovers)
    assert not any("<img" in hover for hover in hovers)
    # The panel of a node finds it by the name that the graph shows.
    nodes = json.loads(re.search(r'id="nodes">(.*?)</script>', source, re.S)[1])
    shown = {name for t in data["graph"]["data"] for name in t.get("ids", ())}
    assert {name for name, *_ in nodes} <= shown


def test_a_viewer_without_scripts_says_why_there_are_no_figures(estimated: Path):
    source = write_report(estimated).read_text()
    told = re.search(r"<noscript>(.*?)</noscript>", source, re.S)[1]
    assert "Figures, filters and details of nodes need JavaScript" in told


def test_the_page_asks_for_nothing(estimated: Path):
    source = write_report(estimated).read_text()
    policy = re.search(r'http-equiv="Content-Security-Policy" content="([^"]*)"', source)[1]
    assert "default-src &#39;none&#39;" in policy
    without_scripts = re.sub(r"<script>.*?</script>", "", source, flags=re.S)
    assert not re.search(r'(?:src|href)="?(?:https?:)?//', without_scripts)


# --- figures --------------------------------------------------------------------------------


def test_every_trial_is_drawn_once_beside_the_chosen_one(estimated: Path):
    result = Result.read(estimated)
    shown = [
        x
        for trace in trials_figure(result).data
        if trace.mode == "markers" and trace.name != "chosen"
        for x in trace.x
    ]
    assert sorted(shown) == [trial.number for trial in result.trials]


def test_failed_trials_stand_in_the_strip_below(copy: Path):
    def fail(document: dict) -> None:
        none = dict.fromkeys(("latency_ms", "latency", "ratio_to_float", "ratio_interval", "noise"))
        failed = {"state": "failed", "error": "the engine refused it", "gates": [], **none}
        document["trials"][-1].update(failed)

    change(copy, fail)
    figure = trials_figure(Result.read(copy))
    (strip,) = [trace for trace in figure.data if trace.name == "failed, not measured"]
    assert strip.x == (3,)
    assert "the engine refused it" in strip.text[0]
    others = [y for t in figure.data if t.mode == "markers" and t is not strip for y in t.y]
    assert strip.y[0] < min(others)


def test_what_was_skipped_stands_before_its_trial(copy: Path):
    change(copy, lambda document: document["trials"][2].update(skipped=5))
    figure = trials_figure(Result.read(copy))
    (skipped,) = [trace for trace in figure.data if trace.name == "skipped as too noisy"]
    assert (skipped.x, skipped.text) == ((1.5,), ("5 skipped before trial 2: too noisy",))


def test_the_front_holds_what_nothing_beats_in_both(estimated: Path):
    result = Result.read(estimated)
    figure = accuracy_figure(result)
    front = figure.data[0]
    points = list(zip(front.x, front.y, strict=True))
    assert "SQNR of all outputs, dB" in {metric.title for metric in accuracies(result)}
    assert points == sorted(points)
    assert all(one[1] < other[1] for one, other in itertools.pairwise(points))
    assert {trace.name for trace in figure.data[1:]} <= {
        "meets the gates",
        "misses a gate",
        "ruled out",
        "chosen",
    }


def test_the_graph_has_every_node_once_per_plan_in_few_traces(measured: Path):
    run = load_run(measured)
    figure = graph_figure(run)
    assert len(figure.data) < 30
    plans = {trace.meta for trace in figure.data} - {None}
    assert plans == {"actual", "predicted"}
    for plan in plans:
        shown = [
            name
            for trace in figure.data
            if trace.meta == plan and trace.ids is not None and trace.text is not None
            for name in trace.ids
        ]
        assert sorted(shown) == sorted(node.name for node in run.topology.nodes)


def test_a_node_in_a_body_that_is_reported_as_one_layer_is_in_that_layer(measured: Path):
    run = load_run(measured)
    owner, *others, last = (layer for layer in run.actual.layers if layer.nodes)
    gone = last.nodes
    scopes = dict.fromkeys(gone, (Body(owner.nodes[0], "body"),))
    plan = replace(run.actual, layers=(owner, *others))
    drawn = replace(run, actual=plan, topology=replace(run.topology, scopes=scopes))
    shown = {t.name: t.ids for t in graph_figure(drawn).data if t.meta == "actual" and t.ids}
    assert set(shown["in the layer of the If, Loop or Scan around it"]) == set(gone)
    assert set(gone).isdisjoint(shown.get("in no layer that the plan names", ()))


def test_hovering_a_node_tells_its_layer_and_its_decision(estimated: Path):
    run = load_run(estimated)
    hovers = {
        name: hover
        for trace in graph_figure(run).data
        if trace.ids is not None
        for name, hover in zip(trace.ids, trace.customdata, strict=True)
    }
    hover = hovers["/plain/plain.0/first/first.0/Conv"]
    assert "<br>Conv<br>predicted layer: " in hover
    assert re.search(r"reads \w+, writes \w+<br>\d+\.\d µs<br>decision: ", hover)


# --- plans ----------------------------------------------------------------------------------


def layer(name: str, nodes: str, dtype: str = "int8", **more: object) -> Layer:
    tensors = {"inputs": (Port(dtype, tensor=f"{name}_in"),), "outputs": (Port(dtype),)}
    return Layer(name, "Op", tuple(nodes.split()), **{**tensors, **more})


def test_rows_put_layers_of_the_same_nodes_side_by_side():
    a, bc, d = layer("a", "a"), layer("b+c", "b c"), layer("d", "d")
    e, f = layer("e", "e"), layer("f", "f")
    own_a, b, c = layer("A", "a"), layer("B", "b"), layer("C", "c")
    own_d, ef = layer("D", "d", "float"), layer("EF", "e f")
    stray = layer("stray", "", kind="reformat")
    missing = layer("missing", "", kind="quantize")
    table = rows(Plan((a, bc, missing, d, e, f)), Plan((own_a, stray, b, c, own_d, ef)))
    assert [(row.state, row.predicted, row.actual) for row in table] == [
        ("same", (a,), (own_a,)),
        ("actual only", (), (stray,)),
        ("other layers", (bc,), (b, c)),
        ("predicted only", (missing,), ()),
        ("other type", (d,), (own_d,)),
        ("other layers", (e, f), (ef,)),
    ]


def test_rows_put_the_numbered_layers_of_a_split_beside_it():
    """TensorRT calls the layers of one Split's outputs Split, Split_6 and so on."""
    cut = replace(layer("split", "split"), op="Split")
    (row,) = rows(Plan((cut,)), Plan((layer("split_6", "split_6"),)))
    assert (row.state, row.predicted, [one.name for one in row.actual]) == (
        "same",
        (cut,),
        ["split_6"],
    )


def test_rows_of_one_plan_are_not_compared():
    a = layer("a", "a")
    assert [(row.state, row.actual) for row in rows(None, Plan((a,)))] == [("not compared", (a,))]
    assert rows(None, None) == []


def test_times_before_and_after_are_those_of_the_same_nodes():
    before = Plan((layer("ab", "a b", time_us=8.0), layer("c", "c", time_us=3.0)))
    conversion = layer("q", "", kind="quantize", time_us=1.0)
    parts = (layer("a", "a", time_us=2.0), layer("b", "b", time_us=2.5), layer("c", "c"))
    found = changes(before, Plan((conversion, *parts)))
    assert [(set(c.nodes), c.before_us, c.after_us) for c in found] == [
        ({"a", "b"}, 8.0, 4.5),
        ({"c"}, 3.0, 0.0),
        (set(), 0.0, 1.0),
    ]


def test_plans_without_times_have_no_bars(copy: Path):
    (copy / "plan_predicted.json").write_text(json.dumps(plan_json(Plan((layer("a", "a"),)))))
    assert time_figure(load_run(copy)) is None
    assert "Time per layer" not in page(copy).text


# --- to reproduce ---------------------------------------------------------------------------


def test_the_command_sets_every_option_that_was_set():
    request = Request(
        Path("a model.onnx"),
        output=Path("out"),
        shape_ranges={"x": ShapeRange((1, 3), (8, 3), (16, 3))},
        data="calibration",
        evaluation_data="module:samples",
        engine="tensorrt",
        devices=("0", "1"),
        engine_options={"target": "cuda"},
        gates=("sqnr>=20", "top1_drop<=0.01"),
        beats=("implicit",),
        timeout=90.5,
        seed=7,
        front=4,
        warm_starts=(Path("earlier"),),
        storage="postgresql://me:secret@host/db",
    )
    words = shlex.split(command_of(request))
    assert words[:3] == ["placer", "optimize", "a model.onnx"]
    command = typer.main.get_command(app).commands["optimize"]
    given = {
        name: value
        for name, value in command.make_context("optimize", words[2:]).params.items()
        if name in " ".join(words).replace("-", "_")
    }
    assert (
        given.items()
        >= {
            "output": Path("out"),
            "shape": ["x=1x3:8x3:16x3"],
            "data": "calibration",
            "eval_data": "module:samples",
            "engine": "tensorrt",
            "devices": "0,1",
            "engine_option": ["target=cuda"],
            "gate": ["sqnr>=20", "top1_drop<=0.01"],
            "beat": ["implicit"],
            "timeout": "90.5",
            "seed": 7,
            "front": 4,
            "warm_start": [Path("earlier")],
            "storage": "postgresql://me:***@host/db",
            "cache": False,
        }.items()
    )


def test_options_that_were_not_set_are_left_out():
    request = Request(Path("m.onnx"), cache_dir=Path("cache"))
    assert command_of(request) == "placer optimize m.onnx"


def test_the_study_opens_in_optuna(estimated: Path):
    assert "optuna-dashboard sqlite:///digits.placer/study.db" in page(estimated).text
    storage = f"sqlite:///{estimated / 'study.db'}"
    (name,) = optuna.get_all_study_names(storage)
    trials = optuna.load_study(study_name=name, storage=storage).trials
    assert len(trials) == len(Result.read(estimated).trials)


def test_nodes_have_types_shapes_ranges_and_attributes(estimated: Path):
    topology = load_run(estimated).topology
    details = {name: rest for name, *rest in node_details(topology)}
    assert len(details) == len(topology.nodes)
    attributes, inputs, outputs = details["/head/Gemm"]
    assert "transB = 1" in attributes
    assert [(tensor, found) for tensor, found, _ in inputs][1:] == [
        ("head.weight", "float16 10x128"),
        ("head.bias", "float16 10"),
    ]
    assert outputs == [["logits/float16", "float16 1x10"]]
    ranges = [span for _, ins, _ in details.values() for _, _, span in ins if span]
    assert ranges
    assert all(float(low) <= float(high) for low, high in (span.split(" to ") for span in ranges))
