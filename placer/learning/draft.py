"""Drafts of rules that would explain a minimal difference between a predicted and a built plan.

Each is a guess of one kind, to be tried: a node that pairs move past, a product that is not
computed in integers whatever its pairs, a layer that the engine builds of several nodes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from placer.graph import Edge, Graph, Node
from placer.learning.builder import BASE
from placer.learning.case import Case
from placer.plan import Layer, Plan
from placer.plan.dtypes import is_float, is_quantized
from placer.prediction.times.built import products_of
from placer.rules.pack_manifest import Manifest

_PRIORITY = 60  # Above the rules that quantize: of overlapping matches the higher one decides.


@dataclass(frozen=True)
class Guess:
    """A rule as YAML has it, without its evidence and tests.

    ``kind``: ``float``, ``motion`` or ``fusion``. ``reason``: the start of its ``why``. ``layout``:
    the one that its test is about. ``floats``: the nodes that it leaves without pairs, ``nodes``
    those that its pattern binds.
    """

    kind: str
    reason: str
    layout: str
    nodes: tuple[Node, ...]
    fields: Mapping[str, Any]
    floats: tuple[Node, ...] = ()


def guesses(case: Case, built: Plan, manifest: Manifest) -> Iterator[Guess]:
    """All guesses about ``case``, the simplest first.

    ``manifest``: of the pack that lacks the rule; where its engine generates kernels, which no rule
    describes, layers are not guessed.
    """
    graph, generates = case.model.graph, manifest.behaviour.kernels == "generated"
    integer = "" if generates else manifest.scheme.integer
    yield from _floats(case, built)
    if case.placement.edges:
        for node in graph.nodes:
            yield from _motions(node, graph, integer)
    if not generates:
        for layer in built.of_kind("compute"):
            yield from _fusions(layer, case, built)


def _floats(case: Case, built: Plan) -> Iterator[Guess]:
    """Products with pairs on both operands, none of whose layers reads integers."""
    graph = case.model.graph
    computing = products_of(built.layers, graph)
    for index, nodes in computing.items():
        if any(is_quantized(dtype) for dtype in built.layers[index].input_types):
            continue
        for node in nodes:
            edges = [Edge(node.inputs[i], node.name, i) for i in (0, 1)]
            if not case.placement.edges.issuperset(edges):
                continue
            names = [_references(node)[edge.input_index] for edge in edges]
            yield Guess(
                "float",
                f"This {node.op} computes in float though both operands carry pairs, which then "
                "only cost accuracy and conversions",
                "float",
                (node,),
                {
                    "priority": _PRIORITY,
                    **_pattern([node], graph),
                    "layouts": {"float": {"keep_float": names, "default": True}},
                },
                (node,),
            )


def _motions(node: Node, graph: Graph, integer: str) -> Iterator[Guess]:
    """Pairs move past a node with one float input, in both directions or in one.

    ``integer``: the type of which the node is a layer, then; empty where no rule describes layers.
    """
    inputs = [t for t in node.inputs if t and t not in graph.initializers]
    if len(inputs) != 1 or len(node.outputs) != 1:
        return
    before, after = inputs[0], node.outputs[0]
    layer = {"nodes": [node.name], "op": node.op, "outputs": "same"}
    reads = [f"{node.name}.{before}"]
    layers = [
        {**layer, "inputs": integer, "reads": reads},
        {**layer, "inputs": "float", "reads": []},
    ]
    layout = {"share_scale": [[before, after]], "default": True}
    follow = layout | ({"fuses": layers} if integer else {})
    for only in (None, "backward", "forward"):
        which = {"backward": "QuantizeLinear", "forward": "DequantizeLinear"}.get(only or "", "")
        motion = {"before": before, "after": after} | ({"only": only} if only else {})
        yield Guess(
            "motion",
            f"{which or 'A pair'} moves past this {node.op}, where all edges have one scale",
            "follow",
            (node,),
            {
                **_pattern([node], graph),
                "layouts": {"follow": follow},
                "motion": motion,
            },
        )


def _fusions(layer: Layer, case: Case, built: Plan) -> Iterator[Guess]:
    """The nodes of a built layer are one layer, if no other built layer has one of them."""
    graph = case.model.graph
    nodes = [node for node in graph.nodes if node.name in layer.nodes]
    others = {n for x in built.of_kind("compute") if x is not layer for n in x.nodes}
    if not nodes or not others.isdisjoint(node.name for node in nodes):
        return
    yield Guess(
        "fusion",
        f"Nodes of these operators are one layer here: {', '.join(node.op for node in nodes)}",
        "built",
        tuple(nodes),
        {
            "priority": _PRIORITY,
            **_pattern(nodes, graph),
            "layouts": {"built": _fusing_layout(nodes, layer, case)},
        },
    )


def _fusing_layout(nodes: Sequence[Node], layer: Layer, case: Case) -> dict[str, Any]:
    """The layout with the pairs that ``nodes`` have in this case, which fuses them as built."""
    graph, names = case.model.graph, {node.name for node in nodes}
    made = {t for node in nodes for t in node.outputs}
    edges = [e for e in sorted(case.placement.edges) if e.node in names]
    fusion: dict[str, Any] = {"nodes": [node.name for node in nodes], "op": nodes[0].op}
    fusion |= _types(layer)
    layout: dict[str, Any] = {"default": True}
    if quantize := [_reference(e, graph) for e in edges if e.tensor not in made]:
        layout["quantize"] = quantize
    if absorbs := [_reference(e, graph) for e in edges if e.tensor in made]:
        fusion["absorbs"] = absorbs
    return {**layout, "fuses": [fusion]}


def _types(layer: Layer) -> dict[str, str]:
    """What a layer reads and writes in the words of a rule; a float type that is not the base."""
    types = {
        "inputs": next(filter(is_quantized, layer.input_types), "float"),
        "outputs": next(filter(is_quantized, layer.output_types), "float"),
    }
    written = next(filter(is_float, layer.output_types), BASE)
    if types["outputs"] == "float" and written != BASE:
        types["float_type"] = written
    return types


def _pattern(nodes: Sequence[Node], graph: Graph) -> dict[str, Any]:
    """``pattern`` and ``where``: these nodes, with constants where they have constants."""
    pattern = {}
    for node in nodes:
        output = node.outputs[0] if len(node.outputs) == 1 else list(node.outputs)
        inputs = _references(node, owner=False)
        pattern[node.name] = {"op": node.op, "inputs": inputs, "output": output}
    constants = [t for node in nodes for t in node.inputs if t in graph.initializers]
    where = [{"is_initializer": t} for t in dict.fromkeys(constants)]
    return {"pattern": pattern, **({"where": where} if where else {})}


def _references(node: Node, *, owner: bool = True) -> list[str]:
    """The inputs of a node in the words of a rule; an absent one is bound to nothing."""
    return [(f"{node.name}.{t}" if owner else t) if t else "_?" for t in node.inputs]


def _reference(edge: Edge, graph: Graph) -> str:
    return _references(graph.by_name[edge.node])[edge.input_index]
