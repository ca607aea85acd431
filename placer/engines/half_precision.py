"""Run models with FP16 or BF16 tensors on ONNX Runtime's CPU provider, to judge their outputs.

It has few BF16 kernels. Where it refuses a model, the 16-bit tensors are computed in float32 and
rounded to their type after each node: what kernels do that accumulate in float32.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np
from onnx import GraphProto, ModelProto, NodeProto, TensorProto, helper, numpy_helper

from placer.common.processor import this_processor
from placer.engines.base import Tensors
from placer.engines.onnxruntime.engine import OnnxRuntimeModel
from placer.errors import RunError
from placer.graph.edit import every_node, subgraphs, without_initializers
from placer.graph.external_data import read_tensor
from placer.graph.names import UnusedNames, tensor_names
from placer.model.normalize import infer_values

log = logging.getLogger(__name__)

_HALF = (TensorProto.FLOAT16, TensorProto.BFLOAT16)
# Operators of files that multiply uint8 by int8 as they are.
_INTEGER_PRODUCTS = frozenset(
    {
        "DynamicQuantizeLSTM",
        "DynamicQuantizeMatMul",
        "MatMulInteger",
        "MatMulIntegerToFloat",
        "QAttention",
        "QGemm",
        "QLinearConv",
        "QLinearMatMul",
    }
)


class HalfPrecisionModel:
    """A model in an ONNX Runtime session that leaves its graph as it is.

    ONNX Runtime 1.31's optimizer makes invalid graphs of FP16 models with Q/DQ pairs. But it alone
    keeps products of integers exact where the processor's saturate, so models with such operators
    are optimized there. Inputs are converted to the model's types. Raises RunError if ONNX Runtime
    refuses the model either way.
    """

    def __init__(self, model: ModelProto, base_dir: Path, threads: int) -> None:
        self._base_dir, self._threads = base_dir, threads
        # What can still be computed in float32 instead.
        self._half = model if _has_half(model.graph) else None
        try:
            self._open(model)
        except RunError as error:
            self._widen(error)

    def run(self, inputs: Tensors) -> dict[str, np.ndarray]:
        """Return all graph outputs by name; raises RunError if ONNX Runtime fails."""
        given = {
            name: values.astype(self._types.get(name, values.dtype), copy=False)
            for name, values in inputs.items()
        }
        try:
            outputs = self._session.run(given)
        except RunError as error:  # Operators without a 16-bit kernel may load and not run.
            self._widen(error)
            return self.run(inputs)
        self._half = None
        return outputs

    def _open(self, model: ModelProto) -> None:
        optimized = self._half is None and _products_saturate(model)
        self._session = OnnxRuntimeModel(model, self._base_dir, self._threads, optimized=optimized)
        self._types = {
            value.name: helper.tensor_dtype_to_np_dtype(value.type.tensor_type.elem_type)
            for value in model.graph.input
        }

    def _widen(self, error: RunError) -> None:
        """Compute 16-bit tensors in float32; raises ``error`` if there are none or that is done."""
        half, self._half = self._half, None
        if half is None:
            raise error
        log.info("16-bit types are run in float32 and rounded: %s", error)
        self._open(in_float32(half, self._base_dir))


def _products_saturate(model: ModelProto) -> bool:
    """Whether products of integers in ``model`` do, or may, unless it is optimized."""
    return this_processor().exact_products is not True and any(
        node.op_type in _INTEGER_PRODUCTS for node in every_node(model.graph.node)
    )


def _has_half(graph: GraphProto) -> bool:
    values = (*graph.input, *graph.output)
    return any(t.data_type in _HALF for t in graph.initializer) or any(
        v.type.tensor_type.elem_type in _HALF for v in values
    )


def in_float32(model: ModelProto, base_dir: Path) -> ModelProto:
    """``model`` with float32 tensors that are rounded to the 16-bit types that they had.

    Graph inputs and outputs of such types become float32 too. Raises RunError for 16-bit types in
    a subgraph.
    """
    values = infer_values(model, {}, Path("the candidate"))
    types = {
        name: value.type.tensor_type.elem_type
        for name, value in values.items()
        if value.type.tensor_type.elem_type in _HALF
    }
    types |= {t.name: t.data_type for t in model.graph.initializer if t.data_type in _HALF}
    halves = [tensor for tensor in model.graph.initializer if tensor.name in types]
    wide = without_initializers(model, [tensor.name for tensor in halves])
    for tensor in halves:
        array = read_tensor(tensor, base_dir).astype(np.float32)
        wide.graph.initializer.append(numpy_helper.from_array(array, tensor.name))
    for value in (*wide.graph.input, *wide.graph.output, *wide.graph.value_info):
        if value.name in types:
            value.type.tensor_type.elem_type = TensorProto.FLOAT
    del wide.graph.node[:]
    names = UnusedNames(tensor_names(model.graph))
    inputs = [value.name for value in model.graph.input if value.name in types]
    rounded = {name: names.unused(f"{name}/rounded") for name in inputs}
    for name, made in rounded.items():
        wide.graph.node.extend(_round(name, made, types[name], names))
    for node in model.graph.node:
        wide.graph.node.extend(_wide(node, types, rounded, names))
    return wide


def _wide(
    node: NodeProto, types: Mapping[str, int], rounded: Mapping[str, str], names: UnusedNames
) -> Iterator[NodeProto]:
    """``node`` in float32, and the nodes that round its outputs.

    ``rounded``: what the graph's inputs are called once they are rounded.
    """
    if any(t.data_type in _HALF for g in subgraphs(node) for t in g.initializer) or any(
        t in types for g in subgraphs(node) for inner in g.node for t in inner.input
    ):
        raise RunError(f"node '{node.name}' has 16-bit types in a subgraph; they cannot be judged")
    copy = NodeProto()
    copy.CopyFrom(node)
    for attribute in copy.attribute:
        if attribute.name in ("to", "dtype", "output_dtype") and attribute.i in _HALF:
            attribute.i = TensorProto.FLOAT
    for index, tensor in enumerate(node.input):
        if tensor in rounded:
            copy.input[index] = rounded[tensor]
    rounding: list[NodeProto] = []
    for index, tensor in enumerate(node.output):
        if tensor in types:
            copy.output[index] = names.unused(f"{tensor}/unrounded")
            rounding += _round(copy.output[index], tensor, types[tensor], names)
    yield copy
    yield from rounding


def _round(source: str, target: str, dtype: int, names: UnusedNames) -> Iterator[NodeProto]:
    narrow = names.unused(f"{target}/narrow")
    yield helper.make_node("Cast", [source], [narrow], to=dtype)
    yield helper.make_node("Cast", [narrow], [target], to=TensorProto.FLOAT)
