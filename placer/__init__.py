"""placer: where Q/DQ pairs go in an ONNX model so that the engine is fast and accuracy holds.

``placer.optimize`` is the main job; ``docs/api.md`` says what else there is.
"""

import os
from importlib import import_module
from typing import TYPE_CHECKING

from placer.version import __version__

# ONNX Runtime reads it when it is imported, whoever does so first: see SECURITY.md.
if not os.environ.get("PLACER_ONNXRUNTIME_TELEMETRY"):
    os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")

if TYPE_CHECKING:
    from placer.apply.api import AppliedModel, apply_placement
    from placer.apply.training import TrainingPlacement, export_qat
    from placer.calibration.region import Region, extract_region
    from placer.checkup.run import Checkup, check_up
    from placer.cli.console import ConsoleObserver
    from placer.common.custom_ops import custom_ops
    from placer.engines.bench import BenchResult, bench
    from placer.engines.doctor import diagnose
    from placer.engines.tensorrt.check import CheckReport, check
    from placer.errors import GateError, InputError, PlacerError, RunError
    from placer.evaluation.evaluate import evaluate
    from placer.evaluation.results import EvalResult
    from placer.explaining.api import ModelExplanation, explain
    from placer.fitting.run import fit
    from placer.graph.shapes import ShapeRange
    from placer.importing.api import ImportedModel, import_model
    from placer.importing.fixed_file import FixedModel, fix_inputs
    from placer.onboarding.api import onboard, plan_onboarding
    from placer.optimizer.api import function_gate, optimize, work
    from placer.optimizer.observer import Observer, QuietObserver
    from placer.optimizer.options.project_draft import init_project
    from placer.plan.diff_files import diff_plans
    from placer.probing.api import sensitivity
    from placer.report import write_comparison, write_report
    from placer.results.result import Result
    from placer.results.sensitivity import Sensitivity

__all__ = [
    "AppliedModel",
    "BenchResult",
    "CheckReport",
    "Checkup",
    "ConsoleObserver",
    "EvalResult",
    "FixedModel",
    "GateError",
    "ImportedModel",
    "InputError",
    "ModelExplanation",
    "Observer",
    "PlacerError",
    "QuietObserver",
    "Region",
    "Result",
    "RunError",
    "Sensitivity",
    "ShapeRange",
    "TrainingPlacement",
    "__version__",
    "apply_placement",
    "bench",
    "check",
    "check_up",
    "custom_ops",
    "diagnose",
    "diff_plans",
    "evaluate",
    "explain",
    "export_qat",
    "extract_region",
    "fit",
    "fix_inputs",
    "function_gate",
    "import_model",
    "init_project",
    "onboard",
    "optimize",
    "plan_onboarding",
    "sensitivity",
    "work",
    "write_comparison",
    "write_report",
]

# Imported when first asked for: with them come ONNX Runtime and Optuna, which take seconds.
_MODULES = {
    "AppliedModel": "placer.apply.api",
    "BenchResult": "placer.engines.bench",
    "CheckReport": "placer.engines.tensorrt.check",
    "Checkup": "placer.checkup.run",
    "ConsoleObserver": "placer.cli.console",
    "EvalResult": "placer.evaluation.results",
    "FixedModel": "placer.importing.fixed_file",
    "GateError": "placer.errors",
    "ImportedModel": "placer.importing.api",
    "InputError": "placer.errors",
    "ModelExplanation": "placer.explaining.api",
    "Observer": "placer.optimizer.observer",
    "PlacerError": "placer.errors",
    "QuietObserver": "placer.optimizer.observer",
    "Region": "placer.calibration.region",
    "Result": "placer.results.result",
    "RunError": "placer.errors",
    "Sensitivity": "placer.results.sensitivity",
    "ShapeRange": "placer.graph.shapes",
    "TrainingPlacement": "placer.apply.training",
    "apply_placement": "placer.apply.api",
    "bench": "placer.engines.bench",
    "check": "placer.engines.tensorrt.check",
    "check_up": "placer.checkup.run",
    "custom_ops": "placer.common.custom_ops",
    "diagnose": "placer.engines.doctor",
    "diff_plans": "placer.plan.diff_files",
    "evaluate": "placer.evaluation.evaluate",
    "explain": "placer.explaining.api",
    "export_qat": "placer.apply.training",
    "extract_region": "placer.calibration.region",
    "fit": "placer.fitting.run",
    "fix_inputs": "placer.importing.fixed_file",
    "function_gate": "placer.optimizer.api",
    "import_model": "placer.importing.api",
    "init_project": "placer.optimizer.options.project_draft",
    "onboard": "placer.onboarding.api",
    "optimize": "placer.optimizer.api",
    "plan_onboarding": "placer.onboarding.api",
    "sensitivity": "placer.probing.api",
    "work": "placer.optimizer.api",
    "write_comparison": "placer.report",
    "write_report": "placer.report",
}

if not TYPE_CHECKING:  # A type checker reads the imports above and finds misspelt names.

    def __getattr__(name: str) -> object:
        if name not in _MODULES:
            raise AttributeError(f"module 'placer' has no attribute '{name}'")
        return getattr(import_module(_MODULES[name]), name)

    def __dir__() -> list[str]:
        return sorted({*globals(), *_MODULES})
