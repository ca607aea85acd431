"""What the optional dependencies of this distribution are, as users install them."""

from __future__ import annotations

import shlex
from importlib.metadata import requires

from packaging.requirements import Requirement


def install_command(extra: str) -> str:
    """``pip install`` with what ``extra`` requires, versions included.

    Spelled out, since the extra's own name works in a copy of the sources only.
    """
    wanted = [
        f"{one.name}{one.specifier}"
        for one in map(Requirement, requires("placer") or ())
        if one.marker
        and one.marker.evaluate({"extra": extra})
        and not one.marker.evaluate({"extra": ""})
    ]
    return shlex.join(("pip", "install", *wanted))
