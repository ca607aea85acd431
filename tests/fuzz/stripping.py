"""Without its pairs, a written model is the model that was given."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from pathlib import Path

import numpy as np
import onnx
from onnx import ModelProto, numpy_helper

from placer.errors import PlacerError
from placer.graph.edit import rename_tensors, subgraphs
from placer.model import load_model
from tests.qdq.strip import strip

_DEQUANTIZED = re.compile(r"/dequantized(_\d+)?$")


def differs_in_structure(source: Path, written: Path) -> str:
    """What is left of ``written`` without pairs that ``source`` does not have, or what is lost.

    Nodes and their connections must be those of the normalised source, and weights the same up to
    half a step of their scales.
    """
    try:
        expected = load_model(source).proto
    except PlacerError as error:
        return f"the source was optimized, and does not load: {error}"
    proto = onnx.load(written)
    steps = _steps(proto)
    found = strip(proto)
    constants = {tensor.name for tensor in expected.graph.initializer}
    for node in found.graph.node:
        rename_tensors(node, lambda tensor: _original(tensor, constants))
    problem = _other_nodes(expected, found)
    return problem or _other_weights(expected, found, steps)


def _original(tensor: str, constants: Collection[str]) -> str:
    """The weight of the source that a dequantized one stands for."""
    name = _DEQUANTIZED.sub("", tensor)
    return name if name in constants else tensor


def _other_nodes(expected: ModelProto, found: ModelProto) -> str:
    wanted = [_plain(node) for node in expected.graph.node]
    got = [_plain(node) for node in found.graph.node]
    for node in wanted:
        if node not in got:
            return f"without its pairs the model lacks {node}"
    for node in got:
        if node not in wanted:
            return f"without its pairs the model has {node} more"
    return ""


def _plain(node: onnx.NodeProto) -> str:
    copy = onnx.NodeProto()
    copy.CopyFrom(node)
    copy.ClearField("name")
    attributes = sorted(copy.attribute, key=lambda a: a.name)
    del copy.attribute[:]
    copy.attribute.extend(attributes)
    for graph in subgraphs(copy):
        del graph.value_info[:]
    return str(copy)


def _steps(proto: ModelProto) -> dict[str, float]:
    """Largest step of each constant that DequantizeLinear reads, by the tensor that it writes."""
    constants = {t.name: t for t in proto.graph.initializer}
    written = {t: n for n in proto.graph.node if n.op_type == "QuantizeLinear" for t in n.output}
    steps = {}
    for node in proto.graph.node:
        if node.op_type == "DequantizeLinear" and node.input[1] in constants:
            step = float(numpy_helper.to_array(constants[node.input[1]]).max())
            steps[node.output[0]] = step
            if node.input[0] in written:
                steps[written[node.input[0]].input[0]] = step
    return steps


def _other_weights(expected: ModelProto, found: ModelProto, steps: Mapping[str, float]) -> str:
    """Weights by the place where nodes read them; names may differ."""
    wanted = {t.name: t for t in expected.graph.initializer}
    got = {t.name: t for t in found.graph.initializer}
    for name, tensor in got.items():
        original = wanted.get(_original(name, wanted))
        if original is None:
            return f"without its pairs the model has the weight '{name}' more"
        one, other = (numpy_helper.to_array(t) for t in (original, tensor))
        if one.shape != other.shape or one.dtype != other.dtype:
            return f"weight '{name}' has another type or shape"
        if one.dtype.kind != "f":
            same = np.array_equal(one, other)
        else:
            with np.errstate(all="ignore"):
                far = np.where(one == other, 0, np.abs(one.astype("f8") - other.astype("f8")))
            same = bool(np.all(far <= 0.51 * steps.get(name, 0.0)))
        if not same:
            return f"weight '{name}' is another one"
    return ""
