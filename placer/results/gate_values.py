"""How values of gates read, wherever they are shown."""

from __future__ import annotations


def gate_value(value: float | None, *, passed: bool, digits: int = 4) -> str:
    """A gate's value; None is one that is not finite, as the SQNR of outputs that are equal."""
    if value is None:
        return "exact" if passed else "not finite"
    return f"{value:.{digits}g}"
