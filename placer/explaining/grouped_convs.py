"""What an explanation says of grouped Convs in INT8, which may gain nothing by it."""

from __future__ import annotations

from placer.common.listed import in_quotes
from placer.explaining.integer_nodes import integer_nodes
from placer.graph import Graph
from placer.plan import Plan
from placer.rules.pack import Pack


def grouped_convs(graph: Graph, plan: Plan, pack: Pack) -> str:
    """A sentence on those that are not depthwise; empty if there are none.

    Of packs that take them to be no faster than in half precision: TensorRT issue 4529.
    """
    if pack.manifest.behaviour.grouped_convs != "half":
        return ""
    on_integers = integer_nodes(plan, dtypes=("int8", "uint8"))
    found = [
        node.name
        for node in graph.by_op.get("Conv", ())
        if node.name in on_integers
        and 1 < int(node.attributes.get("group", 1)) < _inputs_of(graph, node.inputs[0])
    ]
    if not found:
        return ""
    return (
        f"{in_quotes(found)} (grouped Conv) may be slower in INT8 than in FP16, according to "
        "one report (TensorRT issue 4529), which the estimates ignore: also measure the file "
        "without pairs before them"
    )


def _inputs_of(graph: Graph, tensor: str) -> int:
    shape = graph.type_of(tensor).shape or ()
    return int(shape[1] or 0) if len(shape) > 1 else 0
