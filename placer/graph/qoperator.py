"""The operators of the QOperator format, which read and write integers by definition."""

from __future__ import annotations

import re

_OPERATORS = re.compile(r"QLinear\w+|QGemm")


def is_qoperator(op: str) -> bool:
    """Whether ``op`` is one of them; its inputs have scales and zero points beside them."""
    return _OPERATORS.fullmatch(op) is not None
