"""Plugin libraries of the stand-in: text files that name operators, which copy their first input.

As TensorRT documents of its registry: there is one per process, and it refuses a library any of
whose plugins is registered.
"""

from pathlib import Path


class PluginRegistry:
    """The operators of the libraries that were loaded."""

    def __init__(self) -> None:
        self.operators: set[str] = set()

    def load_library(self, path: str) -> object | None:
        operators = Path(path).read_text(encoding="utf-8").split()
        if not all(map(str.isidentifier, operators)) or self.operators & set(operators):
            return None
        self.operators |= set(operators)
        return object()


registry = PluginRegistry()
