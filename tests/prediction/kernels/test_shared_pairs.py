"""Pairs that several readers share: NVIDIA's builder quantizes, and dequantizes, once."""

from pathlib import Path
from types import ModuleType

import pytest

from placer.graph import Edge
from placer.quantization import Placement
from tests.prediction.kernels.building import check_built, model_of, predicted, text_of

WEIGHTS = """float[32,32,1,1] w0 = {1}, float[32,32,1,1] w1 = {1}, float[32,32,1,1] w2 = {1},
     float[32,64,1,1] w3 = {1}, float[32,32,1,1] w4 = {1}"""
RELU = "[conv0] y = Conv(x, w0) [relu0] t = Relu(y)"
SILU = "[conv0] y = Conv(x, w0) [gate0] s = Sigmoid(y) [mul0] t = Mul(y, s)"
READERS = {
    "float Conv": "[conv1] a = Conv(t, w1)",
    "INT8 Conv": "[conv2] b = Conv(t, w2)",
    "Add": "[add] c = Add(t, z)",
    "Tanh": "[tanh] d = Tanh(t)",
    "joined": "[conv4] p = Conv(t, w4) [join] j = Concat<axis = 1>(t, p) [conv3] e = Conv(j, w3)",
    "joined last": """
      [conv4] p = Conv(t, w4) [join] j = Concat<axis = 1>(p, t) [conv3] e = Conv(j, w3)""",
    "beside": "[conv4] p = Conv(z, w4) [join] j = Concat<axis = 1>(t, p) [conv3] e = Conv(j, w3)",
    "resized": """
      [conv4] p = Conv<strides = [2, 2]>(z, w4)
      [up] u = Resize<mode = "nearest", coordinate_transformation_mode = "asymmetric",
                      nearest_mode = "floor">(p, , twice)
      [join] j = Concat<axis = 1>(t, u) [conv3] e = Conv(j, w3)""",
}
OUTPUT = {"float Conv": "a", "INT8 Conv": "b", "Add": "c", "Tanh": "d"}  # Others: e.
FIRST = "x->conv0 w0->conv0"
MADE = "t->conv2 w2->conv2"
JOINED = "t->join p->join j->conv3 w3->conv3"


def graph(writer: str, *readers: str) -> str:
    outputs = [OUTPUT.get(reader, "e") for reader in readers]
    return f"""
    (float[1,32,16,16] x, float[1,32,16,16] z) => ({", ".join(f"float {o}" for o in outputs)})
    <{WEIGHTS}> {{
      twice = Constant<value = float[4] {{1.0, 1.0, 2.0, 2.0}}>()
      {writer}
      {" ".join(READERS[reader] for reader in readers)}
    }}"""


GRAPHS = {
    "a generated kernel quantizes for an INT8 Conv as well": (
        f"{MADE} t->add",
        graph(RELU, "INT8 Conv", "Add"),
    ),
    "and dequantizes for a Conv that computes in float": (
        "t->conv1 t->add",
        graph(RELU, "float Conv", "Add"),
    ),
    "all generated kernels that read the pair are one": (
        "t->tanh t->add",
        graph(RELU, "Add", "Tanh"),
    ),
    "a Concat reads integers, where others read floats of them": (
        f"{FIRST} t->conv4 t->join p->join j->conv3",
        graph(RELU, "joined"),
    ),
    "a part of joined integers is dequantized by a kernel of its own": (
        f"{FIRST} t->conv4 {JOINED}",
        graph(RELU, "joined"),
    ),
    "so it is where a prepared kernel writes the part": (
        f"t->conv4 {JOINED}",
        graph(RELU, "joined"),
    ),
    "or by a generated kernel that reads it": (
        f"{FIRST} t->add t->conv4 {JOINED}",
        graph(RELU, "Add", "joined"),
    ),
    "what is joined depends on the floats of its part, which is quantized then": (
        f"{FIRST} {JOINED}",
        graph(SILU, "joined"),
    ),
    "a Q that moves there from behind stays with the part": (
        f"{FIRST} j->conv3 w3->conv3",
        graph(SILU, "joined"),
    ),
    "but not if what is joined before it depends on its floats": (
        f"{FIRST} j->conv3 w3->conv3",
        graph(SILU, "joined last"),
    ),
    "a product reads a copy of a part of two": (
        f"{FIRST} {MADE} {JOINED}",
        graph(RELU, "INT8 Conv", "beside"),
    ),
    "integers are not joined in place if a part is resized": (
        "t->join u->join j->conv3 w3->conv3",
        graph(RELU, "resized"),
    ),
    "nor if all are scaled sums": (
        f"{FIRST} z->conv4 w4->conv4 {JOINED}",
        graph(RELU, "beside"),
    ),
    "but a SiLU of a float Conv is enough": (
        f"z->conv4 w4->conv4 {JOINED}",
        graph(SILU, "beside"),
    ),
    "the kernel of what leaves the graph does not wait for a pair": (
        MADE,
        graph(SILU, "INT8 Conv").replace("float b)", "float b, float t)"),
    ),
}


def placement(pairs: str) -> Placement:
    """One scale for what is joined and for each other tensor."""
    edges = []
    for text in pairs.split():
        tensor, node = text.split("->")
        weight = tensor.startswith("w")
        index = 1 if weight or (node == "join" and tensor != "t") else 0
        edges.append(Edge(tensor, node, index))
    return Placement.of(edges, shared=[{"t", "p", "u", "j"} if "->join" in pairs else set()])


@pytest.mark.builder
@pytest.mark.parametrize("shown", GRAPHS)
def test_shared_pairs(shown: str, tmp_path: Path, builder: ModuleType):
    pairs, text = GRAPHS[shown]
    check_built(model_of(text_of(text, 17), tmp_path), placement(pairs), builder)


def test_a_part_of_joined_integers_is_there_in_no_other_type(tmp_path: Path):
    model = model_of(text_of(graph(RELU, "joined"), 17), tmp_path)
    plan = predicted(model.graph, placement(f"{FIRST} t->conv4 {JOINED}"))
    (part,) = (layer for layer in plan.of_kind("compute") if "relu0" in layer.nodes)
    assert part.output_types == ("int8",)
    assert [layer.name for layer in plan.of_kind("dequantize")] == ["dequantize t"]


def test_a_generated_kernel_writes_integers_for_a_product_beside_it(tmp_path: Path):
    model = model_of(text_of(graph(RELU, "INT8 Conv", "Add"), 17), tmp_path)
    plan = predicted(model.graph, placement(f"{MADE} t->add"))
    (added,) = (layer for layer in plan.of_kind("compute") if "add" in layer.nodes)
    assert set(added.output_types) == {"float", "int8"}
    assert not any(layer.inputs[0].tensor == "t" for layer in plan.of_kind("quantize"))
