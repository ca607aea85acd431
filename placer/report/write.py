"""Write the report of a folder."""

from __future__ import annotations

from os import PathLike
from pathlib import Path
from typing import Any

from placer.common.files import check_writable, write_text
from placer.errors import InputError
from placer.plan import Layer
from placer.report import summary, tables
from placer.report.accuracy_costs import next_decibel, source_lines
from placer.report.accuracy_figures import accuracy_figure
from placer.report.graph_figure import graph_figure
from placer.report.node_details import node_details
from placer.report.onboarding import onboarding_page, read_summary
from placer.report.page import figure_data, render, shown
from placer.report.plans import STATES
from placer.report.run_folder import Run, load_run
from placer.report.style import number
from placer.report.time_figure import remaining, time_figure
from placer.report.trial_figures import trials_figure
from placer.results.folder import OnboardingFolder, OutputFolder


def write_report(
    folder: str | PathLike[str],
    output: str | PathLike[str] | None = None,
    *,
    replace: bool = False,
) -> Path:
    """Write the report of a run's or an onboarding's output folder; returns where it is.

    ``output``: by default ``report.html`` in the folder. ``replace``: whether a file that no run of
    placer wrote may be written over. Raises InputError if ``folder`` is none of
    these, if a file in it is damaged or another run's, or if ``output`` is one of the run's files.
    """
    folder, given = Path(folder), None if output is None else Path(output)
    check_writable(given, replace=replace)  # Else that is noticed when all is read.
    path = given or OutputFolder(folder).report
    OutputFolder(folder).check_is_no_part(path)
    onboarded = OnboardingFolder(folder).summary
    if not folder.is_dir():
        raise InputError(f"{folder} is not a folder; give the output folder of placer optimize")
    if given is None:
        check_writable(path, replace=replace)
    if onboarded.is_file():
        page = onboarding_page(folder, read_summary(onboarded))
    else:
        page = run_page(load_run(folder))
    write_text(path, page)
    return path


def run_page(run: Run) -> str:
    """The report of a run as HTML."""
    figures = {
        "trials": trials_figure(run.result),
        "accuracy": accuracy_figure(run.result),
        "graph": graph_figure(run),
        "times": time_figure(run),
    }
    values: dict[str, Any] = {
        "title": Path(run.result.model.path).name,
        "result": run.result,
        "estimated": run.result.engine.estimated,
        "throughput": run.result.objective == "throughput",
        "verdict": tables.verdict(run.result),
        "metrics": list(summary.shown_metrics(run)),
        "changed": summary.what_changed(run),
        "chosen": summary.chosen(run.result),
        "given": run.result.beside_source(),
        "files": summary.files(run),
        "in_bodies": summary.in_bodies(run),
        "figures": {
            name: figure_data(figure, zoom=name == "graph")
            for name, figure in figures.items()
            if figure is not None
        },
        "unmeasured": any(t.ratio_to_float is None or t.skipped for t in run.result.trials),
        "number": number,
        "decisions": tables.decisions(run.result),
        "rules": tables.rule_shares(run.result),
        "sources": source_lines(run.result),
        "next_decibel": next_decibel(run.result),
        "facts": tables.facts(run),
        "study": tables.study_command(run),
    }
    return render("run.html.j2", **values, **_of_layers(run))


def _of_layers(run: Run) -> dict[str, Any]:
    """What the report says of nodes and layers."""
    table = tables.plan_rows(run)
    # With several requests in flight, no sum of layers is the time of an inference.
    loaded = run.result.objective == "throughput"
    return {
        "plans": [p for p in ("actual", "predicted") if getattr(run, p) is not None],
        "details": [] if run.topology is None else shown(node_details(run.topology)),
        "nodes": 0 if run.topology is None else len(run.topology.nodes),
        "table": table,
        "states": [state for state in STATES if any(row.state == state for row in table)],
        "agreement": tables.agreement(table),
        "times": {
            "predicted": "" if loaded else tables.total_time(run.predicted),
            "actual": "" if loaded else tables.total_time(run.actual),
        },
        "remaining": remaining(run),
        "types": tables.types,
        "time": _time,
    }


def _time(layer: Layer) -> str:
    return "" if layer.time_us is None else f"{layer.time_us:.1f} µs"
