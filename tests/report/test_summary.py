"""The first screen of a report: what changed, which trial it is, what was written."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from placer.graph import Edge
from placer.graph.bodies import Bodies
from placer.plan import Layer, Plan, Port
from placer.report import summary
from placer.report.run_folder import Run, load_run
from placer.results.parts import GatePart, SitePart, TrialPart


@pytest.fixture(scope="module")
def run(estimated: Path) -> Run:
    return load_run(estimated)


@pytest.fixture(scope="module")
def quantized(run: Run) -> Run:
    """The same with a pair on every edge that a Conv, MaxPool or Add reads."""
    ops = {node.name: node.op for node in run.topology.nodes}
    edges = [e for e in run.topology.edges() if ops.get(e.node) in {"Conv", "MaxPool", "Add"}]
    return replace(run, topology=replace(run.topology, quantized=frozenset(edges)))


def test_what_changed_adds_up_to_both_plans(run: Run):
    lines = summary.what_changed(run)
    for plan, times in (
        (run.float_plan, [line.before_us for line in lines]),
        (run.plan, [line.after_us for line in lines]),
    ):
        total = sum(layer.time_us or 0.0 for layer in plan.layers)
        assert sum(time or 0.0 for time in times) == pytest.approx(total)
    assert sum(line.sites for line in lines) == len(run.result.site_decisions)


def test_sites_that_read_quantized_values_are_counted(quantized: Run):
    nodes = {edge.node for edge in quantized.topology.quantized}
    sites = [s for s in quantized.result.site_decisions if not nodes.isdisjoint(s.nodes)]
    counted = sum(line.quantized for line in summary.what_changed(quantized))
    assert counted == len(sites) > 0


def test_rules_beyond_the_limit_share_a_line(quantized: Run):
    every = summary.what_changed(quantized, limit=100)
    lines = [line for line in every if line.quantized]
    assert len(lines) > 2
    first, others, *_ = summary.what_changed(quantized, limit=2)
    assert first == lines[0]
    assert (others.name, others.quantized) == (
        "other rules",
        sum(line.quantized for line in lines[1:]),
    )
    assert others.why == f"Sites of {', '.join(line.name for line in lines[1:])}."


def test_without_times_sites_are_counted_all_the_same(run: Run):
    lines = summary.what_changed(replace(run, float_plan=None))
    assert {line.before_us for line in lines} == {None}
    assert sum(line.sites for line in lines) == len(run.result.site_decisions)


def trial(number: int, ratio: float | None, state: str = "complete") -> TrialPart:
    return TrialPart.model_construct(
        number=number, kind="explore", ratio_to_float=ratio, state=state
    )


def test_the_chosen_trial_and_why(run: Run):
    trials = [trial(0, 1.0), trial(1, 0.5), trial(2, 0.6), trial(3, 0.1, "gate missed")]
    best = run.result.best.model_copy(update={"trial": 1})
    engine = run.result.engine.model_copy(update={"estimated": False})
    result = run.result.model_copy(update={"trials": trials, "best": best, "engine": engine})
    first = (
        "It is trial 1 (explore), at 50.0% of float's time: of 4 trials 3 meet the gates, and it "
        "was the fastest of these when the finalists were measured again in turn."
    )
    assert summary.chosen(result) == first
    other = result.model_copy(update={"best": best.model_copy(update={"trial": 2})})
    assert "Trial 1 looked faster when it was tried (50.0%)" in summary.chosen(other)
    assert (result.looked_faster(), other.looked_faster()) == (
        "",
        "trial 1 looked faster (x2.00) while searching; the result is trial 2, the fastest when "
        "the best ones were measured again in turn",
    )
    estimate = result.model_copy(update={"engine": run.result.engine})
    assert summary.chosen(estimate).endswith("fastest of these by estimate.")
    faster = "of 4 trials 3 meet the gates. Trial 1 is faster by estimate (50.0%), but "
    left = other.model_copy(update={"engine": run.result.engine})
    assert summary.chosen(left).endswith(f"{faster}was not kept; placer.log says why.")
    trials[2] = trials[2].model_copy(update={"kind": "default"})
    assert summary.chosen(left.model_copy(update={"trials": trials})).endswith(
        f"{faster}by less than estimates can tell, so the rules' default is the result."
    )
    kept = result.model_copy(update={"best": best.model_copy(update={"trial": None})})
    assert summary.chosen(kept) == ""


def test_the_files_of_the_result_have_sizes(estimated: Path, tmp_path: Path):
    folder = Path(shutil.copytree(estimated, tmp_path / "digits.placer"))
    size = (folder / "optimized.onnx").stat().st_size
    found = dict(summary.files(load_run(folder)))
    assert set(found) == {"optimized.onnx", "placement.yaml"}
    assert found["optimized.onnx"] == f"{size / 1e3:.3g} kB"


@pytest.mark.parametrize(
    ("size", "text"), [(999, "999 bytes"), (1_234_567, "1.23 MB"), (2_500_000_000, "2.5 GB")]
)
def test_sizes(size: int, text: str):
    assert summary.size_text(size) == text


def test_agreement_of_classes_is_shown_of_outputs_that_may_hold_classes(run: Run):
    assert run.classifiers == {"logits"}
    metrics = {
        "sqnr logits": 20.0,
        "argmax_agreement logits": 1.0,
        "argmax_agreement boxes": 0.3,
        "top1 labels": 0.9,
        "argmax_agreement labels": 0.9,
    }
    best = run.result.best.model_copy(update={"metrics": metrics})
    changed = replace(run, result=run.result.model_copy(update={"best": best}))
    names = [name for name, _, _ in summary.shown_metrics(changed)]
    assert names == [name for name in metrics if "boxes" not in name]
    assert "argmax_agreement logits" not in changed.result.shown_metrics()
    for gate in ("argmax_agreement>=0.9", "argmax_agreement>=0.9@boxes"):
        part = GatePart(gate=gate, value=1.0, where="boxes", passed=True)
        asked = best.model_copy(update={"gates": [part]})
        shown = run.result.model_copy(update={"best": asked}).shown_metrics()
        assert "argmax_agreement boxes" in shown


def test_time_in_bodies_is_told(run: Run):
    port = Port("x", "float")
    layers = (
        Layer("a", "Conv", ("a",), (port,), (port,), time_us=30.0),
        Layer("b", "If", ("b",), (port,), (port,), time_us=90.0),
    )
    assert summary.in_bodies(replace(run, float_plan=Plan(layers))) == ""  # Rules saw it all.
    told = Bodies(("If 'b'",), nodes=3, total=4).sentence()
    run = replace(run, result=run.result.model_copy(update={"warnings": [told]}))
    assert summary.in_bodies(run) == ""
    found = summary.in_bodies(replace(run, float_plan=Plan(layers)))
    assert found.startswith("75% of the float model's time is in If, Loop and Scan")
    untimed = tuple(replace(layer, time_us=0.0) for layer in layers)
    assert summary.in_bodies(replace(run, float_plan=Plan(untimed))) == ""


def test_a_layer_that_two_sites_share_is_that_of_the_quantized_one(run: Run):
    """A Conv with the Add behind it: one layer, in which the Conv alone reads integers."""
    shared = ("conv", "add")
    sites = [
        SitePart(rule="residual", nodes=["add"], layout="float"),
        SitePart(rule="convolution", nodes=["conv"], layout="quantized"),
    ]
    plan = Plan((Layer("both", "Conv", shared, time_us=7.0),))
    found = replace(
        run,
        result=run.result.model_copy(update={"site_decisions": sites}),
        topology=replace(run.topology, quantized=frozenset({Edge("x", "conv", 0)})),
        float_plan=plan,
        actual=plan,
    )
    lines = {line.name: line.before_us for line in summary.what_changed(found)}
    assert (lines["convolution"], lines["left float"]) == (7.0, 0.0)
    nodes_in_turn = replace(plan, layers=(replace(plan.layers[0], nodes=shared[::-1]),))
    other = replace(found, float_plan=nodes_in_turn, actual=nodes_in_turn)
    assert summary.what_changed(other) == summary.what_changed(found)
