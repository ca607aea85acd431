"""What the first screen of a report says: what changed, which trial it is, what was written."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Container, Iterator, Mapping
from dataclasses import dataclass

from placer.graph.bodies import BODY_OPS, NOT_ENTERED
from placer.report.plans import changes, has_times
from placer.report.run_folder import Run
from placer.results.folder import OutputFolder
from placer.results.parts import SitePart
from placer.results.result import Result

MOST_RULES = 5
DEFAULT = "default"  # Kind of the trial of the pack's default placement.
LEFT_FLOAT, IN_NO_SITE, CONVERSIONS = "left float", "in no site", "conversions"
# The lines behind those of rules, in their order.
BESIDE_RULES = (LEFT_FLOAT, IN_NO_SITE, CONVERSIONS)
_MODELS = ("*.onnx", "*.onnx.data", "*.engine", "*.plan", "*.xml", "*.bin", "placement.yaml")


@dataclass(frozen=True)
class ChangeLine:
    """Sites of a rule: how many read integers, and the time of their layers, µs, if it is known.

    ``sites`` is 0 for conversions and for what is in no site.
    """

    name: str
    quantized: int
    sites: int
    before_us: float | None
    after_us: float | None
    why: str = ""


def what_changed(run: Run, limit: int = MOST_RULES) -> list[ChangeLine]:
    """Sites and time by rule, what saves most time first; then what stays float, and the rest.

    ``limit``: how many lines rules take whose sites are quantized; the others share the last one.
    """
    if run.topology is None or not run.result.site_decisions:
        return []
    quantized = {edge.node for edge in run.topology.quantized}
    times = _times(run)
    lines = _lines_of_rules(run.result, quantized, times)
    lines.sort(key=lambda line: (-((line.before_us or 0) - (line.after_us or 0)), -line.quantized))
    kept = [line for line in lines if not line.quantized]
    lines = [line for line in lines if line.quantized]
    if len(lines) > limit:
        lines[limit - 1 :] = [_together("other rules", lines[limit - 1 :], bool(times))]
    if kept:
        lines.append(_together(LEFT_FLOAT, kept, bool(times)))
    if times:
        beside = [name for name in (IN_NO_SITE, CONVERSIONS) if any(times[name])]
        lines += [ChangeLine(name, 0, 0, *times[name]) for name in beside]
    return lines


def _lines_of_rules(
    result: Result, quantized: Container[str], times: Mapping[str, tuple[float, float]]
) -> list[ChangeLine]:
    """A line for each rule. ``quantized``: names of nodes; ``times``: as of ``_times``."""
    sites: dict[str, list[SitePart]] = defaultdict(list)
    for site in result.site_decisions:
        sites[site.rule].append(site)
    return [
        ChangeLine(
            name=rule,
            quantized=sum(any(node in quantized for node in site.nodes) for site in of_rule),
            sites=len(of_rule),
            before_us=times[rule][0] if times else None,
            after_us=times[rule][1] if times else None,
            why=_first_sentence(result, rule),
        )
        for rule, of_rule in sites.items()
    ]


def _together(name: str, lines: list[ChangeLine], timed: bool) -> ChangeLine:
    """One line for several rules."""
    before = sum(line.before_us or 0.0 for line in lines) if timed else None
    after = sum(line.after_us or 0.0 for line in lines) if timed else None
    sites, quantized = sum(line.sites for line in lines), sum(line.quantized for line in lines)
    rules = ", ".join(line.name for line in lines)
    return ChangeLine(name, quantized, sites, before, after, f"Sites of {rules}.")


def _times(run: Run) -> dict[str, tuple[float, float]]:
    """Microseconds in float and in the result by rule and beside rules; or nothing."""
    before, after = run.float_plan, run.plan
    if before is None or after is None or not (has_times(before) and has_times(after)):
        return {}
    times_of: dict[str, list[float]] = defaultdict(lambda: [0.0, 0.0])
    quantized = set() if run.topology is None else {edge.node for edge in run.topology.quantized}
    for change in changes(before, after):
        key = _rule_of(change.nodes, run, quantized)
        times_of[key][0] += change.before_us
        times_of[key][1] += change.after_us
    times = {key: (pair[0], pair[1]) for key, pair in times_of.items()}
    return defaultdict(lambda: (0.0, 0.0), times)


def _rule_of(nodes: Collection[str], run: Run, quantized: Container[str]) -> str:
    """The rule whose sites hold most of a layer's ``nodes``, or what the layer is beside rules."""
    held = [node for node in nodes if node in run.sites_by_node]
    # A layer that several sites share is that of what is quantized in it.
    decisive = [node for node in held if node in quantized] or held
    rules = Counter(run.sites_by_node[node].rule for node in decisive)
    if rules:
        return rules.most_common(1)[0][0]
    return IN_NO_SITE if nodes else CONVERSIONS


def _first_sentence(result: Result, rule: str) -> str:
    why = result.rules[rule].why if rule in result.rules else ""
    sentence, point, _ = " ".join(why.split()).partition(". ")
    return sentence + ("." if point else "")


def chosen(result: Result) -> str:
    """Which trial the result is, and why that one; empty where it is none."""
    if result.best is None or result.best.trial is None:
        return ""
    number = result.best.trial
    passing = {
        trial.number: trial.ratio_to_float
        for trial in result.trials
        if trial.state == "complete" and trial.ratio_to_float is not None
    }
    picked = next((t for t in result.trials if t.number == number), None)
    if picked is None or number not in passing:
        return f"It is the placement of trial {number}."
    counted = (
        f"It is trial {number} ({picked.kind}), at {passing[number]:.1%} of float's time: of "
        f"{len(result.trials)} trials {len(passing)} meet the gates"
    )
    first = min(passing, key=lambda n: passing[n])
    is_first = passing[first] == passing[number]
    if result.engine.estimated:
        if is_first:
            return f"{counted}, and it was the fastest of these by estimate."
        why = "was not kept; placer.log says why"
        if picked.kind == DEFAULT:
            why = "by less than estimates can tell, so the rules' default is the result"
        return f"{counted}. Trial {first} is faster by estimate ({passing[first]:.1%}), but {why}."
    text = (
        f"{counted}, and it was the fastest of these when the finalists were measured again in "
        "turn."
    )
    if is_first:
        return text
    return (
        f"{text} Trial {first} looked faster when it was tried ({passing[first]:.1%}); one trial "
        "is noisier than the race of the finalists."
    )


def files(run: Run) -> list[tuple[str, str]]:
    """Models and placements in the run's folder, with their sizes."""
    folder = OutputFolder(run.folder).path
    names = sorted({path for pattern in _MODELS for path in folder.glob(pattern)})
    return [(path.name, size_text(path.stat().st_size)) for path in names if path.is_file()]


def size_text(size: int) -> str:
    """Bytes with three digits that count."""
    for unit, name in ((1e9, "GB"), (1e6, "MB"), (1e3, "kB")):
        if size >= unit:
            return f"{size / unit:.3g} {name}"
    return f"{size} bytes"


def in_bodies(run: Run) -> str:
    """What share of the float model's time is in If, Loop and Scan; empty if rules see it all."""
    share = None if run.float_plan is None else run.float_plan.time_share(BODY_OPS)
    if not share or not any(NOT_ENTERED in text for text in run.result.warnings):
        return ""
    return (
        f"{share:.0%} of the float model's time is in If, Loop and Scan, whose bodies no rule "
        "enters; --fix makes a model for one value of an input that decides an If."
    )


def shown_metrics(run: Run) -> Iterator[tuple[str, float | None, float | None]]:
    """Name, float model's and result's value of each metric that means something."""
    result = run.result
    if result.best is None or result.baseline is None:
        return
    for name, value in result.shown_metrics(run.classifiers).items():
        yield name, result.baseline.metrics.get(name), value
