"""Integers of data that a model looks up, such as token ids, against what there is to look up."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

import numpy as np

from placer.calibration.sample import Sample
from placer.errors import InputError
from placer.graph import Graph, Node
from placer.graph.operators import STANDARD_DOMAINS

# Operators that read indices along one axis, as their second input.
_LOOK_UP = frozenset({"Gather", "GatherElements"})
_INDICES = 1
# Operators that hand all values of their first input on.
_KEEP_VALUES = frozenset("Cast Identity Reshape Flatten Squeeze Unsqueeze Transpose".split())


class Bound(NamedTuple):
    """A node that looks values of an input up along an axis of so many elements."""

    node: Node
    size: int


Bounds = Mapping[str, Bound]


def index_bounds(graph: Graph) -> Bounds:
    """By graph input, the node that has the fewest elements to look its values up in.

    Only inputs that a node reads as they are, but for shape and type, and only axes of known size.
    Nodes in bodies of If, Loop and Scan, which may not run, do not count.
    """
    tightest = {}
    for name in graph.inputs:
        bounds = list(_bounds(graph, name))
        if bounds:
            tightest[name] = min(bounds, key=lambda bound: bound.size)
    return tightest


def _bounds(graph: Graph, tensor: str) -> Iterator[Bound]:
    for edge in graph.edges_of(tensor):
        node = graph.by_name.get(edge.node)
        if node is None or node.name in graph.scopes or node.domain not in STANDARD_DOMAINS:
            continue
        if node.op in _KEEP_VALUES and edge.input_index == 0:
            yield from _bounds(graph, node.outputs[0])
        elif node.op in _LOOK_UP and edge.input_index == _INDICES:
            shape = graph.type_of(node.inputs[0]).shape
            if shape:
                yield Bound(node, shape[node.attributes.get("axis", 0)])


def check_indices(sample: Sample, bounds: Bounds) -> None:
    """Raise InputError, naming array, node and range, for a value that cannot be looked up.

    Engines fail on it or read whatever memory there is. Indices below zero count from the end
    (operators Gather and GatherElements of ONNX).
    """
    for name, (node, size) in bounds.items():
        values = sample.inputs[name]
        wrong = values[(values < -size) | (values >= size)]
        if wrong.size:
            raise InputError(
                f"{sample.origin}: array '{name}' holds {int(np.ravel(wrong)[0])}, and node "
                f"'{node.name}' ({node.op}) takes indices from {-size} to {size - 1}; give data "
                "made for this model, such as tokens of its own tokenizer"
            )
