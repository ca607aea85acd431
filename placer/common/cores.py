"""How many CPU cores this process may use at once."""

from __future__ import annotations

import os
from pathlib import Path

# What a container may use in a period, in microseconds: "200000 100000", or "max 100000".
_QUOTA = Path("/sys/fs/cgroup/cpu.max")


def usable_cores(quota: Path = _QUOTA) -> int:
    """Cores that the scheduler and the control group (version 2) leave to this process, at least 1.

    ``quota``: where the group's limit is told.
    """
    if hasattr(os, "sched_getaffinity"):
        found = len(os.sched_getaffinity(0))
    else:
        found = os.cpu_count() or 1
    try:
        allowed, period = quota.read_text(encoding="ascii").split()
    except (OSError, ValueError):
        return found
    return found if allowed == "max" else max(1, min(found, int(allowed) // int(period)))
