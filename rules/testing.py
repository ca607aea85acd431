"""Run the tests that rules carry inline."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import onnx
import onnx.checker
import onnx.parser
import onnx.shape_inference

from placer.errors import InputError
from placer.graph import Edge, Graph, index_graph, tensor_type
from placer.placement import Placement
from placer.plan import Layer
from placer.rules.fusion import Predictor
from placer.rules.loader import Pack
from placer.rules.matcher import Match, match_rules
from placer.rules.schema import Rule, RuleTest
from placer.rules.sites import find_sites, place
from placer.rules.target import Target


def failures(rule: Rule, pack: Pack) -> Iterator[str]:
    """Yield one sentence per expectation of ``rule.tests`` that does not hold.

    Layers are predicted with all rules of ``pack``, in which ``rule`` is.
    """
    for number, test in enumerate(rule.tests, start=1):
        for problem in _test_failures(rule, test, pack):
            yield f"{rule.id}: test {number}: {problem}"


def _test_failures(rule: Rule, test: RuleTest, pack: Pack) -> Iterator[str]:
    try:
        graph = graph_of_text(test.model)
    except InputError as error:
        yield str(error)
        return
    found = [_bound(match) for match in match_rules(graph, [rule])]
    if found != test.matches:
        yield f"expected matches {test.matches}, found {found}"
        return
    for layout, expected in test.quantized.items():
        if layout not in rule.layouts:
            yield f"'quantized' names unknown layout '{layout}'"
            continue
        edges = find_sites(graph, [rule])[0].layouts[layout].quantize
        if {_text(edge) for edge in edges} != set(expected):
            got = sorted(_text(edge) for edge in edges)
            yield f"layout '{layout}': expected {sorted(expected)}, found {got}"
    for layout, lines in test.layers.items():
        if layout not in rule.layouts:
            yield f"'layers' names unknown layout '{layout}'"
            continue
        unknown = sorted(set(test.pairs) - {_text(edge) for edge in _all_edges(graph)})
        if unknown:
            yield f"'pairs' names the unknown edge '{unknown[0]}'"
            return
        predicted = predicted_lines(graph, rule, layout, pack, test.pairs)
        if predicted != lines:
            yield f"layout '{layout}': expected layers {lines}, predicted {predicted}"


def _all_edges(graph: Graph) -> Iterator[Edge]:
    return (edge for edges in graph.consumers.values() for edge in edges)


def predicted_lines(
    graph: Graph, rule: Rule, layout: str, pack: Pack, pairs: Sequence[str] = ()
) -> list[str]:
    """The plan where every match of ``rule`` has ``layout``, with ``pairs`` quantized besides.

    Float tensors are FP16 inside the engine, types are strong.
    """
    sites = find_sites(graph, [rule])
    placed = place(sites, {site.name: layout for site in sites})
    tied = [tuple(edge.tensor for edge in group) for group in placed.groups]
    more = [edge for edge in _all_edges(graph) if _text(edge) in pairs]
    placement = Placement.of([*placed.edges, *more], tied)
    integer = pack.manifest.scheme.activation
    predictor = Predictor(graph, pack.rules, Target(typing="strong"), "float16", integer)
    return [_line(layer) for layer in predictor.predict(placement).plan.layers]


def _line(layer: Layer) -> str:
    return f"{layer.name}: {', '.join(layer.input_types)} -> {', '.join(layer.output_types)}"


def _bound(match: Match) -> dict[str, str]:
    return {name: node.name for name, node in match.nodes.items()}


def _text(edge: Edge) -> str:
    return f"{edge.tensor}->{edge.node or 'output'}[{edge.input_index}]"


def parse_model(text: str) -> onnx.ModelProto:
    """Parse an ONNX text model; an initializer given one value is filled with it.

    Raises InputError if the text is not a valid model.
    """
    try:
        proto = onnx.parser.parse_model(text)
        for tensor in proto.graph.initializer:
            _fill(tensor)
        onnx.checker.check_model(proto, full_check=True)
    except (onnx.parser.ParseError, onnx.checker.ValidationError) as error:
        raise InputError(f"not a valid ONNX text model: {error}") from error
    except onnx.shape_inference.InferenceError as error:
        raise InputError(f"shapes of the ONNX text model do not fit: {error}") from error
    return proto


def _fill(tensor: onnx.TensorProto) -> None:
    """Repeat the only value of a float tensor, so that rule files need not spell out weights."""
    if len(tensor.float_data) == 1:
        tensor.float_data.extend([tensor.float_data[0]] * (math.prod(tensor.dims) - 1))


def graph_of_text(text: str) -> Graph:
    """Parse an ONNX text model and index it; raises InputError if it is not a valid model."""
    inferred = onnx.shape_inference.infer_shapes(parse_model(text), data_prop=True)
    graph = inferred.graph
    values = [*graph.input, *graph.value_info, *graph.output]
    return index_graph(graph, {value.name: tensor_type(value) for value in values})
