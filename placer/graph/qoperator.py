"""The operators of the QOperator format, which read and write integers by definition."""

from __future__ import annotations

import re

from onnx import NodeProto

_OPERATORS = re.compile(r"QLinear\w+|QGemm")
_INTEGERS = "placer.integers"  # Metadata of a node.


def is_qoperator(op: str) -> bool:
    """Whether ``op`` is one of them; its inputs have scales and zero points beside them."""
    return _OPERATORS.fullmatch(op) is not None


def with_integers(node: NodeProto) -> NodeProto:
    """A copy of ``node`` that says that it reads and writes integers, as a plugin may."""
    copy = NodeProto()
    copy.CopyFrom(node)
    copy.metadata_props.add(key=_INTEGERS)
    return copy


def has_integers(node: NodeProto) -> bool:
    """Whether ``node`` is such a copy."""
    return any(entry.key == _INTEGERS for entry in node.metadata_props)
