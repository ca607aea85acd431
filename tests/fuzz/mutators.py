"""Structured damage to models; everything follows from the ``Random`` given."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

from onnx import AttributeProto, GraphProto, ModelProto, NodeProto, TensorProto, helper

from tests.fuzz.documents import damaged_bytes

_INTEGERS = (
    0,
    1,
    -1,
    2,
    3,
    17,
    255,
    -129,
    2**20,
    2**31 - 1,
    2**31,
    2**40,
    2**62,
    2**63 - 1,
    -(2**63),
)
_FLOATS = (
    0.0,
    -0.0,
    1.0,
    -1.0,
    1e-45,
    1e-20,
    6e-5,
    1e38,
    float("inf"),
    float("-inf"),
    float("nan"),
)
_NAMES = (
    "",
    "x",
    "y",
    "w",
    "a" * 5000,
    "\u202egnp",
    "a\x00b",
    "a\nb",
    "../x",
    "ß字",
    "{x}",
    "[b]",
    "%s",
)
_OPS = """
    Relu Conv MatMul Gemm Add Reshape Concat Split Loop If Scan QuantizeLinear
    DequantizeLinear QLinearConv QLinearMatMul DynamicQuantizeLinear ConvInteger MatMulInteger
    QGemm Constant ConstantOfShape Expand Range Tile Shape Identity Cast Dropout
    BatchNormalization Resize Slice Gather TopK NonZero RandomNormal RandomNormalLike
    SequenceConstruct StringNormalizer LSTM Attention MaxPool Softmax Transpose Unsqueeze Pad
    Where Einsum NoSuchOp Mul Sub Div ReduceMean ConvTranspose GlobalAveragePool Optional
    scaled
""".split()
_DOMAINS = ("", "ai.onnx", "com.microsoft", "ai.onnx.ml", "f", "acme", "\x00")

Mutation = Callable[[ModelProto, Random], None]


def damaged_model(proto: ModelProto, random: Random) -> tuple[bytes, list[str]]:
    """A copy of ``proto`` with one to four things changed, serialized; and what was changed."""
    copy = ModelProto.FromString(proto.SerializeToString())
    classes = []
    for _ in range(random.choice((1, 1, 1, 2, 2, 3, 4))):
        mutation = random.choice(MUTATIONS)
        try:
            mutation(copy, random)
        except (IndexError, ValueError, TypeError):  # Nothing there to change, or protobuf objects.
            continue
        classes.append(mutation.__name__.strip("_").replace("_", " "))
    data = copy.SerializeToString()
    if random.random() < 0.05:
        data = damaged_bytes(data, random)
        classes.append("bytes")
    return data, classes


def _graph(proto: ModelProto, random: Random) -> GraphProto:
    """The graph or one of its subgraphs."""
    graphs = [proto.graph]
    for node in proto.graph.node:
        graphs += [a.g for a in node.attribute if a.type == AttributeProto.GRAPH]
    return proto.graph if random.random() < 0.8 else random.choice(graphs)


def _node(proto: ModelProto, random: Random) -> NodeProto:
    return random.choice(_graph(proto, random).node)


def _tensor(proto: ModelProto, random: Random) -> TensorProto:
    return random.choice(_graph(proto, random).initializer)


def _some_tensor_name(graph: GraphProto, random: Random) -> str:
    names = [v.name for v in (*graph.input, *graph.output)] + [t.name for t in graph.initializer]
    names += [name for node in graph.node for name in node.output]
    return random.choice([*names, *_NAMES]) if random.random() < 0.8 else random.choice(_NAMES)


def _drop_node(proto: ModelProto, random: Random) -> None:
    graph = _graph(proto, random)
    del graph.node[random.randrange(len(graph.node))]


def _repeat_node(proto: ModelProto, random: Random) -> None:
    graph = _graph(proto, random)
    copy = NodeProto.FromString(random.choice(graph.node).SerializeToString())
    if random.random() < 0.7:
        for i in range(len(copy.output)):
            copy.output[i] = f"{copy.output[i]}_again"
    graph.node.append(copy)


def _reconnect(proto: ModelProto, random: Random) -> None:
    graph = _graph(proto, random)
    node = random.choice(graph.node)
    node.input[random.randrange(len(node.input))] = _some_tensor_name(graph, random)


def _change_inputs(proto: ModelProto, random: Random) -> None:
    graph = _graph(proto, random)
    node = random.choice(graph.node)
    if random.random() < 0.6:
        del node.input[random.randrange(len(node.input))]
    else:
        node.input.append(_some_tensor_name(graph, random))


def _change_outputs(proto: ModelProto, random: Random) -> None:
    node = _node(proto, random)
    match random.randrange(3):
        case 0:
            del node.output[random.randrange(len(node.output))]
        case 1:
            node.output.append(random.choice(("", "extra", "x")))
        case _:
            node.output[0] = random.choice(_NAMES)


def _change_op(proto: ModelProto, random: Random) -> None:
    _node(proto, random).op_type = random.choice(_OPS)


def _change_domain(proto: ModelProto, random: Random) -> None:
    _node(proto, random).domain = random.choice(_DOMAINS)


def _rename_node(proto: ModelProto, random: Random) -> None:
    _node(proto, random).name = random.choice((*_NAMES, "c1", "mm"))


def _change_attribute(proto: ModelProto, random: Random) -> None:
    node = random.choice([n for n in _graph(proto, random).node if n.attribute])
    attribute = random.choice(node.attribute)
    match random.randrange(5):
        case 0:
            node.attribute.remove(attribute)
        case 1:
            attribute.CopyFrom(_random_attribute(attribute.name, random))
        case 2:
            attribute.type = random.randrange(0, 15)
        case 3:
            attribute.name = random.choice(("axis", "perm", "pads", "value", "body", *_NAMES))
        case _:
            node.attribute.append(attribute)


def _add_attribute(proto: ModelProto, random: Random) -> None:
    names = (
        "axis",
        "block_size",
        "group",
        "strides",
        "dilations",
        "to",
        "start",
        "end",
        "perm",
        "kernel_shape",
        "auto_pad",
        "transA",
        "alpha",
        "keepdims",
        "value",
        "value_ints",
        "sparse_value",
        "output_dtype",
        "saturate",
        "mode",
        "seed",
        "equation",
        "sizes",
    )
    _node(proto, random).attribute.append(_random_attribute(random.choice(names), random))


def _random_attribute(name: str, random: Random) -> AttributeProto:
    some_ints = [random.choice(_INTEGERS) for _ in range(random.randrange(1, 6))]
    values: tuple[Any, ...] = (
        random.choice(_INTEGERS),
        some_ints,
        random.choice(_FLOATS),
        [random.choice(_FLOATS)],
        random.choice(_NAMES),
        [random.choice(_NAMES), "x"],
        TensorProto(data_type=random.randrange(30), dims=some_ints[:2], raw_data=b"1234"),
    )
    return helper.make_attribute(name, random.choice(values))


def _change_dims(proto: ModelProto, random: Random) -> None:
    tensor = _tensor(proto, random)
    match random.randrange(3):
        case 0:
            tensor.dims.append(random.choice(_INTEGERS))
        case 1:
            tensor.dims[random.randrange(len(tensor.dims))] = random.choice(_INTEGERS)
        case _:
            del tensor.dims[:]


def _change_type(proto: ModelProto, random: Random) -> None:
    tensor = _tensor(proto, random)
    tensor.data_type = random.choice((*range(0, 30), 99, -1))


def _change_values(proto: ModelProto, random: Random) -> None:
    tensor = _tensor(proto, random)
    if tensor.float_data:
        for i in range(len(tensor.float_data)):
            if random.random() < 0.5:
                tensor.float_data[i] = random.choice(_FLOATS)
    else:
        tensor.raw_data = bytes(random.randrange(256) for _ in range(random.randrange(32)))


def _make_external(proto: ModelProto, random: Random) -> None:
    tensor = _tensor(proto, random)
    tensor.data_location = TensorProto.EXTERNAL
    places = ("data.npz", "../secret", "/etc/passwd", "", "nowhere.bin", "net.onnx", ".", "a\x00b")
    tensor.external_data.add(key="location", value=random.choice(places))
    for key in ("offset", "length", "checksum"):
        if random.random() < 0.5:
            value = random.choice((*map(str, _INTEGERS), "abc", "", "1e3", "9" * 5000))
            tensor.external_data.add(key=key, value=value)


def _rename_tensor(proto: ModelProto, random: Random) -> None:
    _tensor(proto, random).name = random.choice(_NAMES)


def _change_value_info(proto: ModelProto, random: Random) -> None:
    graph = proto.graph
    value = random.choice([*graph.input, *graph.output])
    tensor = value.type.tensor_type
    match random.randrange(7):
        case 0:
            tensor.elem_type = random.choice((*range(0, 30), 99, -1))
        case 1:
            random.choice(tensor.shape.dim).dim_value = random.choice(_INTEGERS)
        case 2:
            tensor.shape.dim.add(dim_param=random.choice(_NAMES))
        case 3:
            tensor.ClearField("shape")
        case 4:
            value.ClearField("type")
        case 5:
            value.name = _some_tensor_name(graph, random)
        case _:
            value.type.sequence_type.elem_type.tensor_type.elem_type = 1


def _change_interface(proto: ModelProto, random: Random) -> None:
    graph = proto.graph
    match random.randrange(5):
        case 0:
            del graph.output[random.randrange(len(graph.output))]
        case 1:
            del graph.input[random.randrange(len(graph.input))]
        case 2:
            graph.output.append(graph.input[0])
        case 3:
            graph.output.add(name=_some_tensor_name(graph, random))
        case _:
            tensor = random.choice(graph.initializer)
            graph.input.append(
                helper.make_tensor_value_info(tensor.name, tensor.data_type, tensor.dims)
            )


def _change_versions(proto: ModelProto, random: Random) -> None:
    match random.randrange(4):
        case 0:
            proto.ir_version = random.choice((0, 1, 3, 4, 8, 11, 13, 99, -1))
        case 1:
            versions = (0, 1, 6, 7, 9, 10, 11, 12, 13, 16, 18, 21, 23, 26, 99, -1, 2**62)
            proto.opset_import[0].version = random.choice(versions)
        case 2:
            del proto.opset_import[:]
        case _:
            proto.opset_import.append(helper.make_opsetid(random.choice(_DOMAINS), 1))


def _change_function(proto: ModelProto, random: Random) -> None:
    function = random.choice(proto.functions)
    match random.randrange(5):
        case 0:
            function.node[0].op_type, function.node[0].domain = function.name, function.domain
        case 1:
            del function.opset_import[:]
        case 2:
            function.output.append("nothing")
        case 3:
            function.name = random.choice((*_NAMES, "Relu"))
        case _:
            proto.functions.append(function)


def _hostile_node(proto: ModelProto, random: Random) -> None:
    """A node whose output is larger, or takes longer, than anything."""
    graph = proto.graph
    size = random.choice((2**20, 2**31, 2**33, 2**40, 2**62, -1))
    graph.initializer.append(helper.make_tensor("big", TensorProto.INT64, [2], [size, 4]))
    graph.initializer.append(helper.make_tensor("one", TensorProto.INT64, [], [1]))
    graph.initializer.append(helper.make_tensor("most", TensorProto.INT64, [], [size]))
    graph.initializer.append(helper.make_tensor("flt", TensorProto.FLOAT, [1], [1.0]))
    kinds = (
        helper.make_node("Expand", ["flt", "big"], ["huge"], "huge"),
        helper.make_node("ConstantOfShape", ["big"], ["huge"], "huge"),
        helper.make_node("Range", ["one", "most", "one"], ["huge"], "huge"),
        helper.make_node("RandomNormal", [], ["huge"], "huge", shape=[abs(size)]),
        helper.make_node("Tile", ["big", "big"], ["huge"], "huge"),
        helper.make_node("RandomNormalLike", ["flt"], ["huge"], "huge"),
        helper.make_node("Einsum", ["flt", "flt"], ["huge"], "huge", equation="i,j->ij"),
    )
    graph.node.append(random.choice(kinds))
    if random.random() < 0.7:
        graph.output.add(name="huge")


MUTATIONS: tuple[Mutation, ...] = (
    _drop_node,
    _repeat_node,
    _reconnect,
    _change_inputs,
    _change_outputs,
    _change_op,
    _change_domain,
    _rename_node,
    _change_attribute,
    _add_attribute,
    _change_dims,
    _change_type,
    _change_values,
    _make_external,
    _rename_tensor,
    _change_value_info,
    _change_interface,
    _change_versions,
    _change_function,
    _hostile_node,
)
