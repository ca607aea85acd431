"""Run the tests that rules carry inline."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from placer.errors import InputError
from placer.graph import Edge, Graph
from placer.graph.text import graph_of_text
from placer.plan import Layer
from placer.prediction.select import make_predictor
from placer.quantization import Placement
from placer.rules.match import Match
from placer.rules.matcher import match_rules
from placer.rules.pack import Pack
from placer.rules.schema import Rule, RuleTest
from placer.rules.sites import find_sites, place
from placer.rules.sizes_of_tests import check_tests
from placer.rules.target import Target


def failures_of(pack: Pack) -> Iterator[str]:
    """One sentence per expectation of an inline test of the pack's own rules that does not hold."""
    for rule in pack.own_rules:
        yield from failures(rule, pack)


def failures(rule: Rule, pack: Pack) -> Iterator[str]:
    """Yield one sentence per expectation of ``rule.tests`` that does not hold.

    Layers are predicted with all rules of ``pack``, in which ``rule`` is. Raises InputError if
    the tests hold more values than the limits allow.
    """
    check_tests(rule, pack)
    for number, test in enumerate(rule.tests, start=1):
        for problem in _test_failures(rule, test, pack):
            yield f"{rule.id}: test {number}: {problem}"


def _test_failures(rule: Rule, test: RuleTest, pack: Pack) -> Iterator[str]:
    try:
        graph = graph_of_text(test.model)
    except InputError as error:
        yield str(error)
        return
    matches = [_bound(match) for match in match_rules(graph, [rule])]
    if matches != test.matches:
        yield f"expected matches {test.matches}, found {matches}"
        return
    sites = find_sites(graph, [rule], rule.target)
    if test.quantized and not sites:
        yield "'quantized' needs a match that reads an input of the graph, not constants alone"
        return
    for layout, expected in test.quantized.items():
        if layout not in rule.layouts:
            yield f"'quantized' names unknown layout '{layout}'"
            continue
        # A layout that quantizes only beside others is missing where there are none.
        offered = sites[0].layouts.get(layout)
        edges = offered.quantize if offered else frozenset()
        if {edge_text(edge) for edge in edges} != set(expected):
            got = sorted(edge_text(edge) for edge in edges)
            yield f"layout '{layout}': expected {sorted(expected)}, found {got}"
    for layout, lines in test.layers.items():
        if layout not in rule.layouts:
            yield f"'layers' names unknown layout '{layout}'"
            continue
        unknown = sorted(set(test.pairs) - {edge_text(edge) for edge in _all_edges(graph)})
        if unknown:
            yield f"'pairs' names the unknown edge '{unknown[0]}'"
            return
        predicted = predicted_lines(graph, rule, layout, pack, test.pairs)
        if predicted != lines:
            yield f"layout '{layout}': expected layers {lines}, predicted {predicted}"


def _all_edges(graph: Graph) -> Iterator[Edge]:
    return (edge for edges in graph.consumers.values() for edge in edges)


def predicted_lines(
    graph: Graph, rule: Rule, layout: str, pack: Pack, pairs: Sequence[str]
) -> list[str]:
    """The plan where every match of ``rule`` has ``layout``, with ``pairs`` quantized besides.

    Float tensors are FP16 inside the engine, types are strong.
    """
    sites = find_sites(graph, [rule], rule.target)
    placed = place(sites, {site.name: layout for site in sites})
    tied = [tuple(edge.tensor for edge in group.edges) for group in placed.groups]
    more = [edge for edge in _all_edges(graph) if edge_text(edge) in pairs]
    placement = Placement.of([*placed.edges, *more], tied)
    predictor = make_predictor(graph, pack, Target(typing="strong"), "float16")
    return [layer_line(layer) for layer in predictor.predict(placement).plan.layers]


def layer_line(layer: Layer) -> str:
    """A layer as tests write it, e.g. ``conv1+relu1: int8, float -> int8``."""
    return f"{layer.name}: {', '.join(layer.input_types)} -> {', '.join(layer.output_types)}"


def _bound(match: Match) -> dict[str, str]:
    return {name: node.name for name, node in match.nodes.items()}


def edge_text(edge: Edge) -> str:
    """An edge as the inline tests of rules write it."""
    return f"{edge.tensor}->{edge.node or 'output'}[{edge.input_index}]"
