"""Epilogues: what kernels of norms compute behind them."""

from __future__ import annotations

from collections.abc import Sequence

from placer.prediction.kernels.parts import Unit
from placer.prediction.kernels.units import Units


def epilogue_of_norm(made: Units, norm: Unit) -> Sequence[Unit]:
    """Relu behind the kernel of a norm, and behind a GroupNorm's SiLU too unless it is cast."""
    whole = made.is_whole_norm(norm)
    readers = [r for e, r in norm.readers if e not in made.form.scales]
    if len(readers) != len(norm.readers) or set(norm.outputs) & set(made.graph.outputs):
        return []
    ops = [reader.node.op for reader in readers]
    if ops == ["Relu"]:
        epilogue = readers
        if not whole and any(_is_float_product(r) for _, r in epilogue[0].readers):
            return []
    elif whole and sorted(ops) == ["Mul", "Sigmoid"]:
        epilogue = sorted(readers, key=lambda unit: unit.index)
        inside = [(e, w) for e, w in epilogue[1].reads if e not in made.form.scales]
        if [w for _, w in inside if w in (norm, epilogue[0])] != [w for _, w in epilogue[1].reads]:
            return []
    else:
        return []
    casts = any(reader.role == "cast" for _, reader in epilogue[-1].readers)
    return [] if whole and casts else epilogue


def _is_float_product(unit: Unit) -> bool:
    return unit.role == "product" and not unit.integers
