"""Import of models that are quantized already: the float model behind them, scales, placement."""

from __future__ import annotations

from placer.model.quantized.imported import Imported, Loss
from placer.model.quantized.older_tensorrt import refused_by_tensorrt_8
from placer.model.quantized.reader import is_quantized, take_apart
from placer.model.quantized.restored_pairs import restore_pairs
from placer.model.quantized.scales import ActivationScale, WeightScale
from placer.model.quantized.tensorrt_check import Finding, check_pairs

__all__ = [
    "ActivationScale",
    "Finding",
    "Imported",
    "Loss",
    "WeightScale",
    "check_pairs",
    "is_quantized",
    "refused_by_tensorrt_8",
    "restore_pairs",
    "take_apart",
]
