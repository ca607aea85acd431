"""Plugin libraries of the stand-in: text files that name operators, which copy their first input.

As TensorRT documents of its registry: there is one per process, and it refuses a library any of
whose plugins is registered. A real library registers what its string ``standin_operators`` names
when it is loaded into the process, whoever does that.
"""

import ctypes
from pathlib import Path


class PluginRegistry:
    """The operators of the libraries that were loaded."""

    def __init__(self) -> None:
        self.operators: set[str] = set()

    @property
    def all_creators(self) -> list[str]:
        for path in {line.split()[-1] for line in Path("/proc/self/maps").read_text().splitlines()}:
            if path.endswith("plugins.so"):
                names = ctypes.c_char_p.in_dll(ctypes.CDLL(path), "standin_operators").value
                self.operators |= set(names.decode().split())
        return sorted(self.operators)

    def load_library(self, path: str) -> object | None:
        try:
            operators = Path(path).read_text(encoding="utf-8").split()
        except UnicodeDecodeError:  # It exports no getCreators.
            return None
        if not all(map(str.isidentifier, operators)) or self.operators & set(operators):
            return None
        self.operators |= set(operators)
        return object()


registry = PluginRegistry()
