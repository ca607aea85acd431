"""placer: where Q/DQ pairs go in an ONNX model so that the engine is fast and accuracy holds.

``placer.optimize`` is the main job; ``docs/api.md`` says what else there is.
"""

from importlib import import_module
from importlib.metadata import version
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from placer.api import function_gate, optimize
    from placer.console import ConsoleObserver, QuietObserver
    from placer.errors import GateError, InputError, PlacerError, RunError
    from placer.result import Result
    from placer.shapes import ShapeRange
    from placer.task import Observer

__version__ = version("placer")

__all__ = [
    "ConsoleObserver",
    "GateError",
    "InputError",
    "Observer",
    "PlacerError",
    "QuietObserver",
    "Result",
    "RunError",
    "ShapeRange",
    "__version__",
    "function_gate",
    "optimize",
]

# Imported when first asked for: with them come ONNX Runtime and Optuna, which take seconds.
_MODULES = {
    "ConsoleObserver": "placer.console",
    "GateError": "placer.errors",
    "InputError": "placer.errors",
    "Observer": "placer.task",
    "PlacerError": "placer.errors",
    "QuietObserver": "placer.console",
    "Result": "placer.result",
    "RunError": "placer.errors",
    "ShapeRange": "placer.shapes",
    "function_gate": "placer.api",
    "optimize": "placer.api",
}

if not TYPE_CHECKING:  # A type checker reads the imports above and finds misspelt names.

    def __getattr__(name: str) -> object:
        if name not in _MODULES:
            raise AttributeError(f"module 'placer' has no attribute '{name}'")
        return getattr(import_module(_MODULES[name]), name)

    def __dir__() -> list[str]:
        return sorted({*globals(), *_MODULES})
