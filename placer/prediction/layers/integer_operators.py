"""Layers of operators that read and write integers, as files in the QOperator format have.

So do plugins that read what a Q writes (TensorRT issue 1616): no pair moves past them.
"""

from __future__ import annotations

from collections.abc import Sequence

from placer.graph import Node
from placer.graph.qoperator import has_integers, is_qoperator


def is_integer_operator(nodes: Sequence[Node]) -> bool:
    """Whether ``nodes`` are one such operator; half of the pair before or behind it is its own."""
    return len(nodes) == 1 and (is_qoperator(nodes[0].op) or has_integers(nodes[0].proto))
