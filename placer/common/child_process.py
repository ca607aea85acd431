"""The environment of processes that placer starts in Python."""

from __future__ import annotations

import os
import sys
from pathlib import Path


def importing_alike() -> dict[str, str]:
    """This process's environment, for a process that is to import the same modules."""
    path = os.pathsep.join(entry or str(Path.cwd()) for entry in sys.path)
    # Without the second, -m and -c would put the current folder before all others.
    return {**os.environ, "PYTHONPATH": path, "PYTHONSAFEPATH": "1"}
