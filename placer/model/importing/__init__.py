"""Import of models that are quantized already: the float model behind them, scales, placement."""

from __future__ import annotations

from placer.model.importing.imported import Imported, Loss
from placer.model.importing.reader import import_model, is_quantized
from placer.model.importing.scales import ActivationScale, WeightScale
from placer.model.importing.tensorrt_check import Finding, check_pairs

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
