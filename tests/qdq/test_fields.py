"""Nodes and initializers of a candidate, joined as bytes."""

import numpy as np
from onnx import GraphProto, TensorProto, helper, numpy_helper

from placer.qdq.fields import SMALL, Initializers, Nodes, add_initializers, add_nodes


def tensor(name: str, size: int) -> TensorProto:
    return numpy_helper.from_array(np.arange(size, dtype=np.float32), name)


def test_nodes_and_initializers_stand_in_the_order_in_which_they_are_added():
    graph = GraphProto(name="candidate")
    first, second = (helper.make_node("Relu", [name], ["y"], name=name) for name in "ab")
    # Those that are larger than SMALL are copied one by one, between the others.
    tensors = [tensor(name, size) for name, size in zip("abcd", (1, SMALL, 2, 3), strict=True)]
    add_nodes(graph, (Nodes(first, second).field, Nodes(first).field))
    add_initializers(graph, [Initializers(tensors[:1]), Initializers(tensors[1:])])
    assert list(graph.node) == [first, second, first]
    assert list(graph.initializer) == tensors
    assert graph.name == "candidate"
