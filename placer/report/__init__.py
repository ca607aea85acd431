"""The report of a run, or of an onboarding: one HTML file that needs nothing else."""

from __future__ import annotations

from placer.report.write import write_report

__all__ = ["write_report"]
