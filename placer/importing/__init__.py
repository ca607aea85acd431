"""Import of models that are quantized already: the float model behind them, scales, placement."""

from __future__ import annotations

from placer.importing.check import Finding, check_pairs
from placer.importing.imported import ActivationScale, Imported, Loss, WeightScale
from placer.importing.reader import import_model, is_quantized

__all__ = [
    "ActivationScale",
    "Finding",
    "Imported",
    "Loss",
    "WeightScale",
    "check_pairs",
    "import_model",
    "is_quantized",
]
