"""What an explanation says of norms whose squares are computed in half precision."""

from __future__ import annotations

from placer.common.listed import in_quotes
from placer.graph import Graph, Node
from placer.graph.neutral import is_all
from placer.plan import Plan
from placer.rules.pack import Pack

_MEANS = ("ReduceMean", "ReduceSum")


def squared_norms(graph: Graph, plan: Plan, base: str, pack: Pack) -> str:
    """A sentence on squares of differences from a mean in float16; empty if there are none.

    Before opset 17 exporters write LayerNormalization in this way. A square overflows from 256 on;
    the operator itself TensorRT computes in FP32 (TensorRT issue 2781). ``base``: the type of what
    is not quantized.
    """
    if base != "float16" or pack.manifest.behaviour.pairs != "symmetric":
        return ""
    shown = {node for layer in plan.layers for node in layer.nodes}
    found = [
        node.name
        for op in ("Pow", "Mul")
        for node in graph.by_op.get(op, ())
        if node.name in shown and _is_of_norm(node, graph)
    ]
    if not found:
        return ""
    return (
        f"squares of a norm may overflow in float16, as 256 squared does: {in_quotes(found)}; from "
        "opset 17 on exporters write LayerNormalization, which TensorRT computes in FP32; "
        "placer optimize keeps in float32 what overflows on its data"
    )


def _is_of_norm(node: Node, graph: Graph) -> bool:
    """Whether ``node`` squares a difference from a mean, and a mean of the squares follows."""
    if not _is_square(node, graph):
        return False
    difference = graph.producer.get(node.inputs[0])
    if difference is None or difference.op != "Sub" or not node.outputs:
        return False
    mean = graph.producer.get(difference.inputs[1])
    readers = [graph.by_name[edge.node] for edge in graph.edges_of(node.outputs[0]) if edge.node]
    is_averaged = any(reader.op in _MEANS for reader in readers)
    return mean is not None and mean.op in _MEANS and is_averaged


def _is_square(node: Node, graph: Graph) -> bool:
    if node.op == "Mul":
        return len(set(node.inputs)) == 1
    exponent = graph.initializers.get(node.inputs[1])
    return exponent is not None and is_all(exponent, 2)
