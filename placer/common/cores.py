"""How many CPU cores this process may use at once."""

from __future__ import annotations

import os
from pathlib import Path

# What a container may use in a period, in microseconds: "200000 100000", or "max 100000".
_QUOTA = Path("/sys/fs/cgroup/cpu.max")
# Which logical CPUs are one core, for each of them, as in "0,4".
_SYSTEM = Path("/sys/devices/system/cpu")


def usable_cores(quota: Path = _QUOTA, system: Path = _SYSTEM) -> int:
    """Cores that the scheduler and the control group (version 2) leave to this process, at least 1.

    Logical CPUs of one core count once, since what runs on one slows down the other. ``quota``:
    where the group's limit is told. ``system``: where the kernel describes CPUs.
    """
    if hasattr(os, "sched_getaffinity"):
        cores = len({_core_of(cpu, system) for cpu in os.sched_getaffinity(0)})
    else:
        cores = os.cpu_count() or 1
    try:
        allowed, period = quota.read_text(encoding="ascii").split()
    except (OSError, ValueError):
        return cores
    return cores if allowed == "max" else max(1, min(cores, int(allowed) // int(period)))


def _core_of(cpu: int, system: Path) -> str:
    """The logical CPUs of the core that ``cpu`` is one of, or ``cpu`` where that is not told."""
    try:
        siblings = system / f"cpu{cpu}" / "topology" / "thread_siblings_list"
        return siblings.read_text(encoding="ascii").strip()
    except (OSError, ValueError):
        return str(cpu)
