"""What the report says in words and tables."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from placer.common.durations import duration_text
from placer.plan import Layer, Plan
from placer.report.accuracy_figures import accuracies
from placer.report.plans import STATES, Row, rows
from placer.report.run_folder import Run
from placer.report.style import gate_number, milliseconds, per_second
from placer.results.folder import OutputFolder
from placer.results.parts import BaselinePart, BestPart, StopReason
from placer.results.result import Result
from placer.results.verdict import Verdict

FLOAT_TRIAL = "none"  # Kind of the trial that quantizes nothing.
Tone = Literal["good", "neutral", "bad"]


@dataclass(frozen=True)
class Card:
    """One number of the verdict."""

    title: str
    value: str
    note: str = ""


@dataclass(frozen=True)
class GateLine:
    """A gate with its value; ``where``: the output, or the trial that came closest."""

    gate: str
    value: str
    where: str
    passed: bool


@dataclass(frozen=True)
class VerdictSection:
    """What the run found, first of all."""

    tone: Tone
    headline: str
    sentence: str
    cards: tuple[Card, ...]
    gates: tuple[GateLine, ...]


@dataclass(frozen=True)
class DecisionLine:
    """A group of sites and what was decided there; ``importance`` is in percent."""

    group: str
    rule: str
    sites: int
    layout: str
    default: str
    importance: float | None
    why: str
    source: str


_ADVICE: dict[StopReason, str] = {
    "budget": "Relax the gate, raise the budget or give better calibration data.",
    "timeout": "Relax the gate, raise the timeout or give better calibration data.",
    "converged": "Relax the gate or give better calibration data: nothing is left to try.",
    "interrupted": "Run the same command again to go on, or relax the gate.",
}


def verdict(result: Result) -> VerdictSection:
    """The run's verdict; numbers are called estimates where they are."""
    word = "estimated " if result.engine.estimated else ""
    best, baseline = result.best, result.baseline
    if best is None or baseline is None:
        return VerdictSection(
            "bad",
            "Gate not met",
            f"{_missed(result)} {_ADVICE[result.budget.stopped]}",
            (),
            tuple(_closest(result)),
        )
    low, high = best.speedup_interval
    estimated = result.engine.estimated
    interval = f"{80 if estimated else 95}% interval {low:.2f} to {high:.2f}"
    if result.verdict in (Verdict.FASTER, Verdict.CANNOT_TELL):
        tone, headline = "good", f"{best.speedup:.2f} times as fast"
        sentence = (
            "Confirmed afresh, in turn with the float model: the median of the rounds' ratios, "
            f"{interval}."
        )
        if estimated:
            sentence = f"An estimate from {_layers(result)} layers: nothing was measured."
        if result.verdict is Verdict.CANNOT_TELL:
            tone, headline = "neutral", f"{headline}, within the error of estimates"
    elif result.verdict is Verdict.INCONCLUSIVE:
        tone, headline = "neutral", "Inconclusive"
        sentence = "The rounds disagree too much, even when taken again; the float model is kept."
    else:
        tone, headline = "neutral", "Float model kept"
        sentence = "No quantized candidate that meets the gates is measurably faster."
    layers = _layers(result) if estimated else ""
    cards = (
        Card(f"{word}speed-up", f"{best.speedup:.2f}", interval),
        Card(f"float, {word}{result.objective}", *_measured(baseline, layers)),
        Card(f"result, {word}{result.objective}", *_measured(best, layers)),
        Card("quantized edges", str(best.quantized_edges), _placement(best)),
    )
    gates = tuple(
        GateLine(g.gate, gate_number(g.gate, g.value), g.where, g.passed) for g in best.gates
    )
    return VerdictSection("good" if tone == "good" else "neutral", headline, sentence, cards, gates)


def _placement(best: BestPart) -> str:
    """The placement's name, and how many edges have each format, where there are several."""
    formats = "".join(f", {edges} in {name}" for name, edges in best.formats.items())
    return f"placement {best.placement}{formats}"


def _missed(result: Result) -> str:
    quantized = [trial for trial in result.trials if trial.kind != FLOAT_TRIAL]
    if any(trial.state == "complete" for trial in quantized):
        return "What met the gates in its trial missed one when it was confirmed."
    return f"None of {len(quantized)} quantized trials meets {' and '.join(result.gates)}."


def _layers(result: Result) -> str:
    """What the layers are that an estimate is of."""
    return "predicted" if result.engine.predicts else "built"


def _measured(measured: BaselinePart | BestPart, layers: str) -> tuple[str, str]:
    """Latency or throughput, whichever was measured, and its spread.

    ``layers``: of an estimate, what it is of; empty where it was measured.
    """
    part, rate = measured.latency, measured.throughput
    if part is None:
        low, high = rate.batches_per_s_interval or (rate.batches_per_s, rate.batches_per_s)
        spread = f"p10 to p90: {low:.1f} to {high:.1f}, {rate.rounds} rounds"
        return per_second(rate.batches_per_s), spread
    spread = f"p10 to p90: {part.p10_ms:.3f} to {part.p90_ms:.3f}, {part.rounds} rounds"
    if layers:
        spread = f"of {layers} layers, 80% interval {part.p10_ms:.3f} to {part.p90_ms:.3f}"
    return milliseconds(part.median_ms), spread


def _closest(result: Result) -> Iterator[GateLine]:
    """For each gate the quantized trial that came closest to it."""
    quantized = {trial.number for trial in result.trials if trial.kind != FLOAT_TRIAL}
    for metric in accuracies(result):
        values = {n: v for n, v in metric.values.items() if n in quantized}
        if metric.limit is not None and values:
            pick = max if metric.higher else min
            trial = pick(values, key=lambda n: values[n])
            met = values[trial] >= metric.limit if metric.higher else values[trial] <= metric.limit
            gate = metric.title.partition("(gate ")[2].removesuffix(")")
            yield GateLine(gate, gate_number(gate, values[trial]), f"closest: trial {trial}", met)


def plan_rows(run: Run) -> list[Row]:
    """Predicted beside actual layers."""
    return rows(run.predicted, run.actual)


def agreement(table: list[Row]) -> str:
    """How many rows are as predicted, in a sentence; empty if there is nothing to compare."""
    states = Counter(row.state for row in table)
    compared = sum(states.values()) - states["not compared"]
    if not compared:
        return ""
    others = [f"{states[state]} {state}" for state in STATES[1:] if states[state]]
    rest = f"; {', '.join(others)}" if others else ""
    return f"{states['same']} of {compared} as predicted (nodes and types){rest}"


def total_time(plan: Plan | None) -> str:
    """Sum of the layers' times, empty if there are none."""
    if plan is None:
        return ""
    times = [layer.time_us for layer in plan.layers if layer.time_us is not None]
    return milliseconds(sum(times) / 1e3) if times else ""


def types(layer: Layer) -> str:
    """Types read and written."""
    reads = ", ".join(dict.fromkeys(layer.input_types)) or "?"
    writes = ", ".join(dict.fromkeys(layer.output_types)) or "?"
    return f"{reads} → {writes}"


def decisions(result: Result) -> list[DecisionLine]:
    """Groups of sites, those that mattered most first."""
    ranked = sorted(result.decisions, key=lambda d: -(d.importance or 0.0))
    return [
        DecisionLine(
            group=part.group,
            rule=part.rule,
            sites=part.sites,
            layout=part.layout or ("per site" if result.best is not None else ""),
            default=part.default,
            importance=None if part.importance is None else 100 * part.importance,
            why=result.rules[part.rule].why if part.rule in result.rules else "",
            source=result.rules[part.rule].source if part.rule in result.rules else "",
        )
        for part in ranked
    ]


def rule_shares(result: Result) -> list[tuple[str, float]]:
    """Importance of rules in percent, the largest first; those below a percent left out."""
    return [(name, 100 * x) for name, x in result.importance_by_rule.items() if x >= 0.01]


def _times(seconds: Mapping[str, float]) -> str:
    return ", ".join(f"{what} {spent:.1f} s" for what, spent in seconds.items())


def facts(run: Run) -> Mapping[str, str]:
    """What has to be the same to repeat the run."""
    result = run.result
    shapes = {name: "x".join(map(str, s)) for name, s in result.model.input_shapes.items()}
    budget = [] if result.budget.trials is None else [f"{result.budget.trials} trials"]
    budget += [] if result.budget.timeout_s is None else [duration_text(result.budget.timeout_s)]
    data, evaluation = result.calibration, result.evaluation
    return {
        "model": result.model.path,
        "model fingerprint": result.model.fingerprint,
        "input shapes": ", ".join(f"{name} {shape}" for name, shape in shapes.items()),
        "engine": f"{result.engine.name} {result.engine.version}",
        "device": result.engine.device,
        f"{result.objective} is": result.engine.clock,
        "rule pack": f"{result.pack.name} {result.pack.version}",
        "pack fingerprint": result.pack.fingerprint,
        "calibration": f"{data.data or 'random inputs'}, {data.samples} samples, {data.method}"
        + ("" if data.requested_method == data.method else f" by {data.requested_method}"),
        **({"pinned": "; ".join(data.pinned)} if data.pinned else {}),
        "evaluation": f"{evaluation.data or 'random inputs'}, {evaluation.samples} samples"
        + (", with labels" if evaluation.labels else ""),
        "gates": ", ".join(result.gates),
        "seed": str(result.seed),
        "sampler": result.sampler,
        "noise measured beside the trials": f"{result.probes} times, on a few samples",
        "budget": f"{' or '.join(budget) or 'none'}; stopped: {result.budget.stopped}",
        **({"time": _times(result.budget.spent_s)} if result.budget.spent_s else {}),
        "versions": ", ".join(f"{name} {version}" for name, version in result.versions.items()),
    }


def study_command(run: Run) -> str | None:
    """What opens Optuna's dashboard on the run's study; None if it is elsewhere."""
    url = OutputFolder(Path(run.folder.name)).study_url
    return f"optuna-dashboard {shlex.quote(url)}" if run.study else None
