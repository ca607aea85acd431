"""placer: where Q/DQ pairs go in an ONNX model so that the engine is fast and accuracy holds.

``placer.optimize`` is the main job; ``docs/api.md`` says what else there is.
"""

from importlib import import_module
from typing import TYPE_CHECKING

from placer.version import __version__

if TYPE_CHECKING:
    from placer.calibration.region import Region, extract_region
    from placer.cli.console import ConsoleObserver
    from placer.errors import GateError, InputError, PlacerError, RunError
    from placer.graph.shapes import ShapeRange
    from placer.optimizer.api import function_gate, optimize
    from placer.optimizer.observer import Observer, QuietObserver
    from placer.results.result import Result

__all__ = [
    "ConsoleObserver",
    "GateError",
    "InputError",
    "Observer",
    "PlacerError",
    "QuietObserver",
    "Region",
    "Result",
    "RunError",
    "ShapeRange",
    "__version__",
    "extract_region",
    "function_gate",
    "optimize",
]

# Imported when first asked for: with them come ONNX Runtime and Optuna, which take seconds.
_MODULES = {
    "ConsoleObserver": "placer.cli.console",
    "GateError": "placer.errors",
    "InputError": "placer.errors",
    "Observer": "placer.optimizer.observer",
    "PlacerError": "placer.errors",
    "QuietObserver": "placer.optimizer.observer",
    "Region": "placer.calibration.region",
    "Result": "placer.results.result",
    "RunError": "placer.errors",
    "ShapeRange": "placer.graph.shapes",
    "extract_region": "placer.calibration.region",
    "function_gate": "placer.optimizer.api",
    "optimize": "placer.optimizer.api",
}

if not TYPE_CHECKING:  # A type checker reads the imports above and finds misspelt names.

    def __getattr__(name: str) -> object:
        if name not in _MODULES:
            raise AttributeError(f"module 'placer' has no attribute '{name}'")
        return getattr(import_module(_MODULES[name]), name)

    def __dir__() -> list[str]:
        return sorted({*globals(), *_MODULES})
