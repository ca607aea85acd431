"""Stripping: a candidate without its pairs is the float model again."""

from pathlib import Path

import numpy as np
import onnx
import onnx.checker
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import ModelProto, numpy_helper

from placer.errors import InputError
from placer.graph import Edge
from placer.graph.weights import weight_input
from placer.model import Model, load_model
from placer.qdq import Inserter
from placer.quantization import EMPTY, Placement, Range, Scheme
from tests.qdq.nets import (
    BRANCHES,
    ORT,
    RANGES,
    TENSORRT,
    Save,
    check,
    values,
    weighted,
)
from tests.qdq.strip import strip
from tests.reference_outputs import outputs


def rounded(model: Model, placement: Placement, scheme: Scheme) -> ModelProto:
    """The float model with the constants that ``placement`` quantizes rounded by hand."""
    proto = ModelProto()
    proto.CopyFrom(model.proto)
    quantized = Inserter(model, scheme).insert(placement, RANGES)
    made = {t.name: numpy_helper.to_array(t) for t in quantized.graph.initializer}
    for node in proto.graph.node:
        weight = weight_input(model.graph, model.graph.by_name[node.name])
        if weight is None or Edge(weight.tensor, node.name, 1) not in placement.edges:
            continue
        for index in (1, 2):
            reader = next(n for n in quantized.graph.node if n.name == node.name)
            name = reader.input[index] if index < len(reader.input) else ""
            base = name.removesuffix("/dequantized")
            if base == name:
                continue
            scale = made[f"{base}/scale"]
            scale = scale.reshape(-1, *(1,) * (made[f"{base}/quantized"].ndim - 1))
            new = (made[f"{base}/quantized"].astype(np.float32) * scale).astype(np.float32)
            proto.graph.initializer.append(numpy_helper.from_array(new, name))
            node.input[index] = name
    return proto


EDGES = [
    Edge("x", "conv1", 0),
    Edge("w1", "conv1", 1),
    Edge("c", "relu", 0),
    Edge("r", "conv2", 0),
    Edge("w2", "conv2", 1),
    Edge("r", "add", 0),
    Edge("d", "add", 1),
    Edge("r", "concat", 0),
    Edge("s", "concat", 1),
    Edge("y", "", 0),
    Edge("r", "", 1),
]


@settings(max_examples=30, deadline=None)
@given(
    edges=st.sets(st.sampled_from(EDGES)),
    shared=st.lists(st.sets(st.sampled_from("xcrdsy"), min_size=2), max_size=2),
    scheme=st.sampled_from([TENSORRT, ORT]),
)
def test_stripping_a_candidate_gives_the_float_model_with_rounded_weights(
    tmp_path_factory: pytest.TempPathFactory,
    edges: set[Edge],
    shared: list[set[str]],
    scheme: Scheme,
) -> None:
    path = tmp_path_factory.mktemp("net") / "model.onnx"
    proto = onnx.parser.parse_model(BRANCHES)
    rng = np.random.default_rng(0)
    for tensor in proto.graph.initializer:
        random = rng.standard_normal(tuple(tensor.dims)).astype(np.float32)
        tensor.CopyFrom(numpy_helper.from_array(random, tensor.name))
    onnx.save(proto, path)
    model = load_model(path)
    placement = Placement.of(edges, shared)
    candidate = Inserter(model, scheme).insert(placement, RANGES)
    check(candidate)
    again = Inserter(model, scheme).insert(placement, RANGES)
    assert candidate.SerializeToString() == again.SerializeToString()
    stripped = strip(candidate)
    onnx.checker.check_model(stripped, full_check=True)
    assert not any("QuantizeLinear" in n.op_type for n in stripped.graph.node)
    x = rng.standard_normal((1, 4, 6, 6)).astype(np.float32)
    expected = outputs(rounded(model, placement, scheme), x=x)
    for got, wanted in zip(outputs(stripped, x=x), expected, strict=True):
        np.testing.assert_array_equal(got, wanted)


def test_the_empty_placement_is_the_float_model(save: Save):
    model = load_model(save(BRANCHES))
    candidate = Inserter(model, ORT).insert(EMPTY, {})
    assert candidate.graph.node == model.proto.graph.node
    assert {t.name for t in candidate.graph.initializer} == set(model.graph.initializers)


def test_names_that_the_model_has_already_are_avoided(save: Save):
    text = """
    <ir_version: 9, opset_import: ["": 17]>
    g (float[1,4] x) => (float[1,4] y) <float[4,4] w = {1}> {
      [relu] r = Relu(x)
      ["r/QuantizeLinear"] "w/scale" = Neg(r)
      [matmul] y = MatMul("w/scale", w)
    }
    """
    model = load_model(save(text))
    placement = Placement.of([Edge("r", "r/QuantizeLinear", 0), Edge("w", "matmul", 1)])
    candidate = Inserter(model, TENSORRT).insert(placement, {"r": Range(0, 1)})
    check(candidate)
    assert [node.name for node in candidate.graph.node] == [
        "relu",
        "r/QuantizeLinear_1",
        "r/DequantizeLinear_1",
        "r/QuantizeLinear",
        "w/DequantizeLinear_1",
        "matmul",
    ]


FOREIGN = {
    "input to output": (
        "q = QuantizeLinear(x, s, z)  y = DequantizeLinear(q, s, z)",
        [("Identity", ["x"], ["y"])],
    ),
    "pair behind pair": (
        """r = Relu(x)  q = QuantizeLinear(r, s, z)  d = DequantizeLinear(q, s, z)
        p = QuantizeLinear(d, s, z)  y = DequantizeLinear(p, s, z)""",
        [("Relu", ["x"], ["y"])],
    ),
    "one Q, two DQ": (
        """q = QuantizeLinear(x, s, z)  d = DequantizeLinear(q, s, z)
        e = DequantizeLinear(q, s, z)  y = Add(d, e)""",
        [("Add", ["x", "x"], ["y"])],
    ),
    "no zero point": (
        "d = DequantizeLinear(w, s)  y = Add(x, d)",
        [("Add", ["x", "d"], ["y"])],
    ),
    "float weight behind a pair": (
        "q = QuantizeLinear(f, s)  d = DequantizeLinear(q, s)  y = Add(x, d)",
        [("Add", ["x", "f"], ["y"])],
    ),
    "integers that another node reads": (
        "q = QuantizeLinear(x, s, z)  i = Cast<to = 6>(q)  y = Cast<to = 1>(i)",
        [
            ("QuantizeLinear", ["x", "s", "z"], ["q"]),
            ("Cast", ["q"], ["i"]),
            ("Cast", ["i"], ["y"]),
        ],
    ),
}


@pytest.mark.parametrize("name", FOREIGN)
def test_stripping_models_that_others_quantized(name: str):
    nodes, expected = FOREIGN[name]
    stripped = strip(
        onnx.parser.parse_model(
            f"""
            <ir_version: 9, opset_import: ["": 19]>
            g (float[4] x) => (float[4] y)
            <float s = {{0.5}}, int8 z = {{0}}, int8[4] w = {{1, 2, 3, 4}},
             float[4] f = {{1, 2, 3, 4}}>
            {{ {nodes} }}
            """
        )
    )
    onnx.checker.check_model(stripped, full_check=True)
    found = [(n.op_type, list(n.input), list(n.output)) for n in stripped.graph.node]
    assert found == expected
    if name == "no zero point":
        assert values(stripped, "d").tolist() == [0.5, 1, 1.5, 2]


def test_constants_in_other_files_are_not_stripped(save: Save, tmp_path: Path):
    model = weighted(save, "conv")
    candidate = Inserter(model, TENSORRT).insert(Placement.of([Edge("w", "node", 1)]), {})
    onnx.save(candidate, tmp_path / "q.onnx", save_as_external_data=True, size_threshold=0)
    referring = onnx.load(tmp_path / "q.onnx", load_external_data=False)
    with pytest.raises(InputError, match="'w/quantized' is in another file"):
        strip(referring)
    stripped = strip(onnx.load(tmp_path / "q.onnx"))
    assert [node.name for node in stripped.graph.node] == ["node"]
