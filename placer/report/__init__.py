"""The report of a run, or of an onboarding: one HTML file that needs nothing else."""

from __future__ import annotations

from placer.report.comparison import write_comparison
from placer.report.write import write_report

__all__ = ["write_comparison", "write_report"]
