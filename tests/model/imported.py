"""Small quantized models, imported, and what is asked of them."""

from collections.abc import Callable
from pathlib import Path

from placer.model import Model, load_model
from placer.model.quantized import ActivationScale
from placer.quantization import Scheme

Save = Callable[..., Path]

TENSORRT = Scheme(activation="int8", symmetric=True, bias="float")
ORT = Scheme(activation="uint8", symmetric=False, bias="int32")

HEAD = '<ir_version: 8, opset_import: ["": 17, "com.microsoft": 1, "qonnx.custom_op.general": 1]>'
WEIGHT = "float[4,4,1,1] w = {0.5}"


def model_of(save: Save, body: str, constants: str, io: str = "") -> Model:
    """Import a model from x, float[1,4,8,8] unless ``io`` says otherwise, to y."""
    io = io or "(float[1,4,8,8] x) => (float[1,4,8,8] y)"
    return load_model(save(f"{HEAD} g {io} <{constants}, {WEIGHT}> {{ {body} }}"))


def nodes_of(model: Model) -> list[tuple[str, tuple[str, ...], tuple[str, ...]]]:
    return [(node.op, node.inputs, node.outputs) for node in model.graph.nodes]


def edges_of(model: Model) -> set[str]:
    return {str(edge) for edge in model.imported.placement.edges}


def scales_of(model: Model) -> dict[str, ActivationScale]:
    return dict(model.imported.activations)


def notes_of(model: Model) -> tuple[str, ...]:
    return model.imported.notes


def int8(scale: float, zero_point: int = 0) -> ActivationScale:
    return ActivationScale(scale, zero_point, -128, 127, "int8")
