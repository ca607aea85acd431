"""CastLikes, written as the Casts that they are.

PyTorch's newer exporter writes the zeros of a Conv without a bias as a CastLike of a constant if
its optimizer is off (2.13). As Casts they are constants, and BatchNormalizations behind are folded.
"""

from __future__ import annotations

from collections.abc import Mapping

from onnx import GraphProto, ValueInfoProto, helper


def has_cast_likes(graph: GraphProto) -> bool:
    """Whether ``write_casts`` may find any."""
    return any(node.op_type == "CastLike" and not node.domain for node in graph.node)


def write_casts(graph: GraphProto, values: Mapping[str, ValueInfoProto]) -> int:
    """Make a Cast of each CastLike whose type ``values``, inferred ones, know; return how many."""
    count = 0
    for node in graph.node:
        if node.op_type != "CastLike" or node.domain or node.output[0] not in values:
            continue
        made = values[node.output[0]].type.tensor_type.elem_type
        if made:
            node.op_type, count = "Cast", count + 1
            del node.input[1:]
            node.attribute.append(helper.make_attribute("to", made))
    return count
