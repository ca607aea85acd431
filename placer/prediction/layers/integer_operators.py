"""Operators that read and write integers by definition, as files in the QOperator format have."""

from __future__ import annotations

import re
from collections.abc import Sequence

from placer.graph import Node

_OPERATORS = re.compile(r"QLinear\w+|QGemm")


def is_integer_operator(nodes: Sequence[Node]) -> bool:
    """Whether ``nodes`` are one such operator; half of the pair before or behind it is its own."""
    return len(nodes) == 1 and _OPERATORS.fullmatch(nodes[0].op) is not None
