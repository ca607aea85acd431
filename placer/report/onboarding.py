"""The report of an onboarding, from its summary.json."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from urllib.parse import quote

import plotly.graph_objects as go

from placer.report.page import figure_data, render
from placer.report.style import FLOAT, GOOD, INK, base_layout, number
from placer.results.documents import read_document
from placer.results.folder import OutputFolder
from placer.results.onboarding import DONE, NOTHING, STATE_OF, ModelSummary, Summary
from placer.results.verdict import Verdict

ESTIMATE = "#c98a1b"
# States in which a quantized candidate is the result.
_QUANTIZED = (STATE_OF[Verdict.FASTER], STATE_OF[Verdict.CANNOT_TELL])


@dataclass(frozen=True)
class Line:
    """A model in the table; ``link``: relative path of its own report, if there is one."""

    model: ModelSummary
    link: str | None

    @property
    def style(self) -> str:
        """Class of the state's cell."""
        return "pass" if self.model.state in DONE else "miss"

    @property
    def float_ms(self) -> str:
        """Latency, or inferences per second, of the float model."""
        return _ms(self.model.float_ms) or _rate(self.model.float_per_second)

    @property
    def best_ms(self) -> str:
        """Latency, or inferences per second, of the result."""
        return _ms(self.model.best_ms) or _rate(self.model.best_per_second)

    @property
    def speedup(self) -> str:
        """Speed-up with its interval."""
        if self.model.speedup is None:
            return ""
        low, high = self.model.speedup_interval or (self.model.speedup, self.model.speedup)
        return f"{self.model.speedup:.2f} ({low:.2f} to {high:.2f})"


def _ms(value: float | None) -> str:
    return "" if value is None else f"{value:.3f}"


def _rate(value: float | None) -> str:
    return "" if value is None else f"{value:.1f} per s"


def read_summary(path: Path) -> Summary:
    """Read summary.json; InputError if it cannot be read."""
    return read_document(Summary, path, "summary", "placer onboard")


def onboarding_page(folder: Path, summary: Summary) -> str:
    """The report of the onboarding whose output folder is ``folder`` as HTML."""
    lines = [Line(model, _link(folder, model)) for model in summary.models]
    counts = Counter[str](model.state for model in summary.models)
    measured = [model for model in summary.models if model.speedup is not None]
    done = sum(counts[state] for state in DONE)
    made = done - counts[NOTHING]
    return render(
        "onboarding.html.j2",
        title=f"Onboarding of {Path(summary.manifest).name}",
        summary=summary,
        lines=lines,
        counts=list(counts.items()),
        tone="good" if done == len(summary.models) else "bad",
        headline=f"{made} of {len(summary.models)} models have a result that meets its gates",
        sentence=_sentence(counts),
        estimates=_estimates(measured),
        figures={"speedups": figure_data(speedup_figure(measured))} if measured else {},
        versions=", ".join(f"{name} {version}" for name, version in summary.versions.items()),
        number=number,
        unit="ms or inferences" if any(m.float_per_second for m in summary.models) else "ms",
    )


def _estimates(models: Sequence[ModelSummary]) -> str:
    count = sum(bool(model.estimated) for model in models)
    return "" if not count else "ESTIMATES" if count == len(models) else "SOME ESTIMATES"


def _link(folder: Path, model: ModelSummary) -> str | None:
    page = OutputFolder(Path(model.folder)).report
    return quote(f"./{page.as_posix()}") if (folder / page).is_file() else None


def _sentence(counts: Counter[str]) -> str:
    shown = (Verdict.FASTER, Verdict.CANNOT_TELL, Verdict.NO_DIFFERENCE)
    faster, unclear, kept = (counts[STATE_OF[verdict]] for verdict in shown)
    return (
        f"{faster} {'is' if faster == 1 else 'are'} faster than float; "
        + (f"of {unclear} the gain is within the error of estimates; " if unclear else "")
        + f"of {kept} the float model "
        "was kept, since nothing that meets the gates is measurably faster"
        + (f"; {counts[NOTHING]} had nothing to quantize." if counts[NOTHING] else ".")
    )


def speedup_figure(models: Sequence[ModelSummary]) -> go.Figure:
    """Bars of the speed-ups, the largest first; ``models`` all have one."""
    ranked = sorted(models, key=lambda model: -(model.speedup or 0.0))
    above, below, colours = [], [], []
    for model in ranked:
        speedup = model.speedup or 0.0
        low, high = model.speedup_interval or (speedup, speedup)
        above.append(high - speedup)
        below.append(speedup - low)
        kept = FLOAT if model.state not in _QUANTIZED else GOOD
        colours.append(ESTIMATE if model.estimated and kept != FLOAT else kept)
    figure = go.Figure()
    figure.add_bar(
        x=[model.speedup for model in ranked],
        y=list(range(len(ranked))),
        orientation="h",
        marker={"color": colours},
        error_x={"type": "data", "symmetric": False, "array": above, "arrayminus": below},
        customdata=[escape(model.name) for model in ranked],
        hovertemplate="%{customdata}: %{x:.3f}<extra></extra>",
    )
    figure.add_vline(x=1, line={"color": INK, "dash": "dash", "width": 1})
    figure.update_layout(
        base_layout(
            90 + 26 * len(ranked),
            xaxis={"title": {"text": "speed-up"}, "rangemode": "tozero"},
            yaxis={
                "tickmode": "array",
                "tickvals": list(range(len(ranked))),
                "ticktext": [escape(model.name[-48:]) for model in ranked],
                "range": [len(ranked) - 0.4, -0.6],
                "ticks": "",
            },
            bargap=0.35,
            dragmode=False,
        )
    )
    return figure
