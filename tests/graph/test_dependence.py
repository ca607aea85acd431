"""Which tensors are data."""

from dataclasses import replace

from placer.graph.dependence import data_tensors
from placer.graph.index import index_nodes
from placer.graph.text import graph_of_text


def test_where_pairs_are_taken_out_nodes_depend_on_what_is_left():
    """Their protos still name what the pairs wrote."""
    graph = graph_of_text(
        """
        <ir_version: 9, opset_import: ["": 17]>
        g (float[2] x) => (float[2] y) { [pair] c = Identity(x) [relu] y = Relu(c) }
        """
    )
    (relu,) = graph.by_op["Relu"]
    left = index_nodes([replace(relu, inputs=("x",))], {}, ("x",), ("y",), graph.types)
    assert data_tensors(left) == {"x", "y"}
