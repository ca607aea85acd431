"""Import of models that are quantized already: the float model behind them, scales, placement."""

from __future__ import annotations

from placer.model.quantized.imported import Imported, Loss
from placer.model.quantized.reader import is_quantized, take_apart
from placer.model.quantized.restored_pairs import restore_pairs
from placer.model.quantized.scales import ActivationScale, WeightScale

__all__ = [
    "ActivationScale",
    "Imported",
    "Loss",
    "WeightScale",
    "is_quantized",
    "restore_pairs",
    "take_apart",
]
