"""What an explanation says of products that read pairs and compute in float all the same."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

from placer.common.listed import listed
from placer.common.names import engine_title
from placer.explaining.integer_nodes import integer_nodes
from placer.graph import Edge, Graph, Node
from placer.graph.weights import WEIGHTED_OPS
from placer.plan import Plan
from placer.qdq.unfused_products import behind_moves
from placer.rules.pack import Pack
from placer.rules.schema import Rule

# Of a weight that is the first operand, of sessions of ONNX Runtime 1.32.
_OF_LEFT = (
    ": onnxruntime reads uint8 alone as the first operand; quantize this weight to uint8 with zero "
    "point 128"
)


def float_products(
    graph: Graph,
    types: Mapping[Edge, str],
    plan: Plan,
    pack: Pack,
    told: Collection[str],
) -> Iterator[str]:
    """Sentences on products with weights that no layer of ``plan`` computes on integers.

    ``types``: what the pairs of the file quantize to, by edge. ``told``: nodes of which the reason
    is said elsewhere.
    """
    of_integers = integer_nodes(plan).union(told)
    computed = {node for layer in plan.of_kind("compute") for node in layer.nodes}
    in_float, found = computed - of_integers, dict[str, list[Node]]()
    for node in graph.nodes:
        if node.op in WEIGHTED_OPS and node.name in in_float:
            reason = _reason_of_pairs(node, graph, types, pack)
            if reason is not None:
                found.setdefault(reason, []).append(node)
    for reason, nodes in found.items():
        shown = listed([f"'{node.name}' ({node.op})" for node in nodes])
        one = len(nodes) == 1
        yield (
            f"{shown} compute{'s' * one} in float though {'its' if one else 'their'} operands have "
            f"pairs, which gain no speed there{reason}"
        )


def _reason_of_pairs(node: Node, graph: Graph, types: Mapping[Edge, str], pack: Pack) -> str | None:
    """As ``_reason``; None where an operand has no pair, or what is built is not predicted."""
    data, weight = graph.edges_into(node)[:2]
    is_left = node.op == "MatMul" and data.tensor in graph.initializers
    if is_left:
        data, weight = weight, data
    data = behind_moves(data, types, graph)
    if data not in types or weight not in types or weight.tensor not in graph.initializers:
        return None
    if is_left and pack.manifest.behaviour.signed == "converted":
        return _OF_LEFT if types[weight] == "int8" else None
    return _reason(node, types[data], pack, not _is_quantized_behind(node, types, graph))


def _is_quantized_behind(node: Node, edges: Collection[Edge], graph: Graph) -> bool:
    """Whether what ``node`` writes has a pair of ``edges``, or what a Relu or Clip makes of it."""
    readers = graph.edges_of(node.outputs[0])
    clamping = [graph.by_name.get(edge.node) for edge in readers]
    outputs = [r.outputs[0] for r in clamping if r is not None and r.op in ("Relu", "Clip")]
    return not {*readers, *(e for t in outputs for e in graph.edges_of(t))}.isdisjoint(edges)


def _reason(node: Node, dtype: str, pack: Pack, is_open: bool) -> str:
    """Why ``node`` computes in float, where that is known, and what to do.

    ``is_open``: no pair is behind it.
    """
    engine = pack.manifest.engine
    ops = {op for rule in pack.rules for op in _ops_of(rule)}
    if node.op not in ops:
        return f": {engine} has no {node.op} of integers; take these pairs out"
    if pack.manifest.behaviour.signed != "converted":
        wanted = {op for rule in pack.rules if rule.symmetric for op in _ops_of(rule)}
        if node.op not in wanted or dtype != "int8":
            return ""
        return (
            f": {engine_title(engine)} multiplies int8 with zero point 0 alone here; quantize "
            "activations to uint8, which may have any"
        )
    if node.op == "Conv" and is_open:  # ONNX Runtime's QLinearConv writes integers.
        return (
            f": in {engine} a Conv of integers writes integers, so it needs a pair behind it, too"
        )
    # Its qdq_s8_to_u8.cc converts pairs of one reader, and there are no kernels of int8.
    if dtype == "int8":
        return (
            f": {engine} has kernels of uint8 alone and does not convert int8 here; quantize "
            "activations to uint8 (QuantType.QUInt8)"
        )
    return ""


def _ops_of(rule: Rule) -> Iterator[str]:
    return (op for step in rule.pattern.values() for op in step.op)
