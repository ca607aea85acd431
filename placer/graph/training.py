"""Nodes that compute as in training, as a model exported without ``model.eval()`` has them."""

from __future__ import annotations

from collections.abc import Mapping

from onnx import NodeProto, TensorProto, numpy_helper

from placer.common.listed import listed
from placer.graph.external_data import is_external
from placer.graph.index import Graph
from placer.graph.operators import STANDARD_DOMAINS

_TRAINING_MODE = 2  # An input of Dropout; before opset 12 it has none and only hands on.


def is_training(node: NodeProto, constants: Mapping[str, TensorProto]) -> bool:
    """Whether a Dropout may drop values, or a BatchNormalization takes each batch's statistics."""
    if node.domain not in STANDARD_DOMAINS:
        return False
    if node.op_type == "Dropout":
        mode = node.input[_TRAINING_MODE] if len(node.input) > _TRAINING_MODE else ""
        return mode != "" and not (mode in constants and _is_false(constants[mode]))
    return node.op_type == "BatchNormalization" and any(
        a.name == "training_mode" and a.i for a in node.attribute
    )


def note_on_training(graph: Graph) -> str | None:
    """What the user is told of such nodes, in one sentence; None if there is none."""
    training = [node for node in graph.nodes if is_training(node.proto, graph.initializers)]
    if not training:
        return None
    shown = listed([f"'{node.name}' ({node.op})" for node in training], 1)
    return (
        "nodes compute as in training, by the statistics of each batch or at random: "
        f"{shown}; unless that is meant, export the model in evaluation mode (model.eval())"
    )


def _is_false(tensor: TensorProto) -> bool:
    if tensor.data_type != TensorProto.BOOL or is_external(tensor):
        return False
    return not numpy_helper.to_array(tensor).any()
