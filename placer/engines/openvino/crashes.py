"""Where OpenVINO is known to crash, so that the model is refused before it is compiled.

A Q that alone reads a Concat and has a zero point moves before it (MoveFakeQuantize of the low
precision transformations), and so does what follows its DQ if the next Q takes that along. Where
both are there OpenVINO 2026.4.1 ends with a segmentation fault, in any model that has them
(tests/engines/test_openvino_crashes.py), also where the nodes between the two pairs are all ones
that it removes. With zero point 0, or where the Concat or what follows is read elsewhere, it does
not.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Container

import numpy as np
from onnx import GraphProto, NodeProto, TensorProto, numpy_helper

_TAKEN = frozenset({"Relu", "Clip", "Add", "Sub", "Mul", "Div", "BatchNormalization"})
_REMOVED = frozenset({"Identity", "Dropout"})
_MAY_BE_REMOVED = frozenset(
    {"Cast", "Transpose", "Slice", "Pad", "Expand", "Tile", "Reshape", "Max", "Min", *_REMOVED}
)
_SCALING = frozenset({"Mul", "Div", "BatchNormalization"})  # Q takes along what keeps the order.


def crashing_nodes(graph: GraphProto, no_ops: Collection[int] = ()) -> tuple[str, str] | None:
    """A Concat and a node between two Q behind it with which OpenVINO crashes, by name.

    Those without one are called by what they write.
    ``no_ops``: the numbers of nodes that are known to hand on what they read.
    """
    places = _Places(graph, {graph.node[number].output[0] for number in no_ops})
    for concat in (node for node in graph.node if node.op_type == "Concat"):
        quantize = places.next_of(concat, ("QuantizeLinear",))
        if quantize is None or not places.has_zero_point(quantize):
            continue
        last = places.next_of(quantize, ("DequantizeLinear",))
        taken = None if last is None else places.taken_behind(last) or places.removed_behind(last)
        if taken is not None and places.next_of(taken, ("QuantizeLinear",)) is not None:
            return concat.name or concat.output[0], taken.name or taken.output[0]
    return None


class _Places:
    def __init__(self, graph: GraphProto, no_ops: Container[str]) -> None:
        self._no_ops = no_ops  # What they write: nodes may have no names.
        self._constants = {tensor.name: tensor for tensor in graph.initializer}
        self._outputs = {value.name for value in graph.output}
        self._readers: dict[str, list[NodeProto]] = defaultdict(list)
        for node in graph.node:
            for tensor in node.input:
                self._readers[tensor].append(node)

    def next_of(self, node: NodeProto, operators: Container[str]) -> NodeProto | None:
        """What alone reads ``node``, if it is one of ``operators``."""
        tensor = node.output[0]
        readers = self._readers[tensor]
        if tensor in self._outputs or len(readers) != 1 or readers[0].op_type not in operators:
            return None
        return readers[0]

    def taken_behind(self, node: NodeProto) -> NodeProto | None:
        """The last of the nodes behind ``node`` that a Q behind them takes along."""
        following = self.next_of(node, _TAKEN)
        if following is None or not self._is_taken(following, node.output[0]):
            return None
        return self.taken_behind(following) or following

    def removed_behind(self, node: NodeProto) -> NodeProto:
        """The last of the nodes behind ``node`` that OpenVINO removes, else ``node``.

        ``node`` writes float.
        """
        following = self.next_of(node, _MAY_BE_REMOVED)
        if following is None or not self._does_nothing(following):
            return node
        return self.removed_behind(following)

    def has_zero_point(self, quantize: NodeProto) -> bool:
        """Whether it is not 0."""
        point = self._values(quantize.input[2]) if len(quantize.input) > 2 else None
        return point is not None and bool(np.any(point != 0))

    def _is_taken(self, node: NodeProto, data: str) -> bool:
        """Whether all but ``data`` is constant, and no sign turns."""
        others = [tensor for tensor in node.input if tensor and tensor != data]
        if any(tensor not in self._constants for tensor in others):
            return False
        if node.op_type not in _SCALING:
            return True
        factor = self._values(others[0])
        return factor is not None and bool(np.all(factor > 0))

    def _does_nothing(self, node: NodeProto) -> bool:
        """Whether ``node``, one of those that may, hands on the float values that it reads."""
        if node.output[0] in self._no_ops or node.op_type in _REMOVED:
            return True
        if node.op_type in ("Max", "Min"):
            return len(node.input) == 1
        if node.op_type == "Transpose":
            return any(a.name == "perm" and list(a.ints) == sorted(a.ints) for a in node.attribute)
        return any(a.name == "to" and a.i == TensorProto.FLOAT for a in node.attribute)

    def _values(self, tensor: str) -> np.ndarray | None:
        constant: TensorProto | None = self._constants.get(tensor)
        return None if constant is None else numpy_helper.to_array(constant)
