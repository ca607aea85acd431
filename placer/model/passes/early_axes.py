"""Several scales before opset 13, whose Q and DQ have one scale by the standard.

pytorch-quantization wrote such files (TensorRT issue 1406), which do not say where the scales lie.
TensorRT-RTX 1.7.1 takes them along axis 0, and the default of later opsets, 1, from opset 13 on.
"""

from __future__ import annotations

import math

from onnx import ModelProto, helper

from placer.graph.edit import all_tensors, every_node, standard_opset
from placer.graph.operators import PAIR_OPS

FIRST_WITH_AXIS = 13


def name_axes(proto: ModelProto) -> None:
    """Write axis 0 into the Q and DQ of ``proto`` that have several scales and name none."""
    if standard_opset(proto) >= FIRST_WITH_AXIS:
        return
    several = {t.name for t in all_tensors(proto.graph) if math.prod(t.dims) > 1}
    for node in every_node(proto.graph.node):
        known = any(attribute.name == "axis" for attribute in node.attribute)
        is_pair = node.op_type in PAIR_OPS and not node.domain  # Contrib operators default to 1.
        if is_pair and not known and node.input[1] in several:
            node.attribute.append(helper.make_attribute("axis", 0))
