"""LayerNormalization in files that ONNX Runtime optimized at opsets that do not define it.

Its fusion writes the operator into ONNX's own domain at any opset, with the attributes and inputs
that opset 17 gave it. Until the opset is raised it is one of ONNX Runtime's domain.
"""

from __future__ import annotations

from onnx import ModelProto, helper

from placer.graph.edit import every_node, standard_opset
from placer.graph.operators import MICROSOFT

_NORM, _NORM_OPSET = "LayerNormalization", 17


def set_apart(proto: ModelProto) -> None:
    """Move the operator to ONNX Runtime's domain, which has no schemas and is never converted."""
    if not 0 < standard_opset(proto) < _NORM_OPSET:
        return
    norms = [n for n in every_node(proto.graph.node) if n.op_type == _NORM and not n.domain]
    for node in norms:
        node.domain = MICROSOFT
    if norms and all(entry.domain != MICROSOFT for entry in proto.opset_import):
        proto.opset_import.append(helper.make_opsetid(MICROSOFT, 1))


def put_back(proto: ModelProto) -> None:
    """Move it back once the opset defines it."""
    for node in every_node(proto.graph.node):
        if node.op_type == _NORM and node.domain == MICROSOFT:
            node.domain = ""
