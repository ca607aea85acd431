"""Nodes in the names and metadata that TensorRT gives its layers."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from placer.plan.readers.tensorrt_names import metadata_nodes, name_parts
from tests.plan.conftest import LINEAR, Save, entry, read_layer

GEMM = (
    "fc.weight + QuantizeLinear_255 + Gemm_257 + fc.bias + (Unnamed Layer* 306) [Shuffle] + "
    "unsqueeze_node_after_fc.bias + (Unnamed Layer* 306) [Shuffle]_(Unnamed Layer* 306) "
    "[Shuffle]_output + (Unnamed Layer* 307) [ElementWise]"
)


@pytest.mark.parametrize(
    ("name", "nodes"),
    [
        ("Conv_0 + Relu_1", ("Conv_0", "Relu_1")),
        (GEMM, ("Gemm_257",)),
        ("onnx::Conv_193 + /a/conv/Conv", ("/a/conv/Conv",)),
        ("stem.weight_quantized + stem:0 Conv", ("stem:0 Conv",)),
        ("PWN(Sigmoid_3, Mul_4)", ("Sigmoid_3", "Mul_4")),
        ("PWN(PWN(PWN(/a/Sigmoid), /a/Mul), /b/Add)", ("/a/Sigmoid", "/a/Mul", "/b/Add")),
        ("Conv_1 + PWN(PWN(Sigmoid_2), Mul_3)", ("Conv_1", "Sigmoid_2", "Mul_3")),
        ("PWN(b.bias + (Unnamed Layer* 5) [Shuffle], Add_7)", ("Add_7",)),
        ("Conv_1 || Conv_2", ("Conv_1", "Conv_2")),
        ("{ForeignNode[/a/MatMul.../b/Add]}", ("/a/MatMul", "/b/Add")),
        ("{ForeignNode[onnx::MatMul_9 + (Unnamed Layer* 4) [Shuffle].../b/Add]}", ("/b/Add",)),
        ("reshape_after_Gemm_48", ()),
        ("__myl_MulAddRelu_myl0_2", ()),
    ],
)
def test_nodes_in_names(write: Save, name: str, nodes: tuple[str, ...]):
    assert read_layer(write, **entry(name, "Any", LINEAR, LINEAR)).nodes == nodes


@pytest.mark.parametrize(
    ("metadata", "nodes"),
    [
        ("", ()),
        ("[ONNX Layer: a]", ("a",)),
        ("[ONNX Layer: a[0]/Conv]\x1f[ONNX Layer: b]", ("a[0]/Conv", "b")),
        ("[ONNX Layer: a][ONNX Layer: b] [ONNX Layer: c]", ("a", "b", "c")),
        ("[ONNX Subgraph: s [ONNX Layer: a]]\x1e[ONNX Layer: b]", ("a", "b")),
    ],
)
def test_nodes_in_metadata(metadata: str, nodes: tuple[str, ...]):
    assert metadata_nodes(metadata) == nodes


WORD = st.text("abC_/.:0", min_size=1, max_size=6)


@given(st.lists(WORD, min_size=1, max_size=6))
def test_joined_names_come_apart(names: list[str]):
    nested = names[0]
    for name in names[1:]:
        nested = f"PWN({nested}, {name})"
    assert name_parts(" + ".join(names)) == tuple(names)
    assert name_parts(nested) == tuple(names)
    assert metadata_nodes("\x1e".join(f"[ONNX Layer: {n}]" for n in names)) == tuple(names)
