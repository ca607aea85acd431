"""Names, nodes and initializers that a candidate adds to its model."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

import numpy as np
from onnx import NodeProto, TensorProto, numpy_helper

from placer.errors import RunError
from placer.graph import Graph
from placer.graph.edit import subgraphs
from placer.graph.names import tensor_names
from placer.quantization.numerics import ScaleError

# Every name that a candidate adds is base/part or base/part_number.
_ADDED = re.compile(
    "(?s:(.*))/(?:quantized|dequantized|float|scale|zero_point|QuantizeLinear|DequantizeLinear)"
    r"(?:_(\d+))?"
)


class PairName(NamedTuple):
    """What the names of one pair or one quantized constant have in common."""

    base: str
    number: int

    def of(self, part: str) -> str:
        """Name of one part: base/part, with the number behind unless it is 0."""
        return f"{self.base}/{part}_{self.number}" if self.number else f"{self.base}/{part}"


def taken_names(graph: Graph) -> set[PairName]:
    """The model's own names that look like one that a candidate adds, those in bodies too."""
    matches = (_ADDED.fullmatch(name) for name in all_names(graph))
    return {PairName(m[1], int(m[2] or 0)) for m in matches if m}


def all_names(graph: Graph) -> set[str]:
    """Names of nodes and tensors, in bodies that are not entered as well."""
    names = {*graph.by_name, *graph.producer, *graph.initializers, *graph.inputs, *graph.types}
    bodies = (body for node in graph.nodes for body in subgraphs(node.proto))
    return names.union(*map(tensor_names, bodies))


def claim(base: str, taken: set[PairName], claimed: set[PairName]) -> PairName:
    """Claim the first name on ``base`` that neither the model nor the draft has."""
    number = 0
    while (name := PairName(base, number)) in taken or name in claimed:
        number += 1
    claimed.add(name)
    return name


@contextmanager
def naming(*tensors: str) -> Iterator[None]:
    """Raise RunError, which names ``tensors``, for a scale that their type cannot hold."""
    try:
        yield
    except ScaleError as error:
        names = ", ".join(repr(tensor) for tensor in tensors)
        raise RunError(f"{names} cannot be quantized: {error}; leave it float") from error


def pair_node(op: str, name: PairName, inputs: list[str], output: str) -> NodeProto:
    """A QuantizeLinear or DequantizeLinear."""
    return NodeProto(op_type=op, name=name.of(op), input=inputs, output=[output])


def new_tensor(name: str, values: np.ndarray) -> TensorProto:
    """An initializer."""
    tensor: TensorProto = numpy_helper.from_array(values, name)
    return tensor
