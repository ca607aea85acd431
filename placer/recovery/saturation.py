"""What a network computes before its last saturating functions.

A Softmax or Sigmoid hides most errors and blows up the few that turn a decision, so a score of what
comes behind it rests on a handful of samples. What goes into it tells whether a change helps from
far fewer samples.
"""

from __future__ import annotations

from collections.abc import Iterator

from placer.graph import Graph
from placer.graph.operators import OF_SHAPES
from placer.graph.weights import WEIGHTED_OPS
from placer.model.judged import with_graph_outputs

_SATURATING = frozenset({"Softmax", "LogSoftmax", "Sigmoid", "HardSigmoid", "Tanh"})


def before_saturation(graph: Graph) -> Graph:
    """``graph`` with what the last saturating functions read for outputs, where there are any.

    An output stays one if layers with weights lead to it without passing such a function.
    """
    names = dict.fromkeys(name for output in graph.outputs for name in _taps(graph, output))
    return with_graph_outputs(graph, tuple(names))


def _taps(graph: Graph, output: str) -> Iterator[str]:
    """What the last saturating functions before ``output`` read.

    With ``output`` itself where something else with weights leads to it, too.
    """
    pending, seen, taps = [output], set[str](), list[str]()
    is_other = False
    while pending:
        tensor = pending.pop()
        node = graph.producer.get(tensor)
        if tensor in seen or node is None:
            continue
        seen.add(tensor)
        if node.op in OF_SHAPES:  # No values, as where a Reshape gives back the shape of before.
            continue
        if node.op in WEIGHTED_OPS:
            is_other = True
        elif node.op in _SATURATING and graph.type_of(node.inputs[0]).is_float:
            taps.append(node.inputs[0])
        else:
            pending.extend(name for name in node.inputs if name)
    if is_other or not taps:
        yield output
    yield from taps
