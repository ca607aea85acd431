"""Raise the operator set of a model that is in memory."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from functools import partial

import onnx
import onnx.version_converter
from onnx import helper

from placer.common.ort_session import one_line
from placer.errors import InputError
from placer.graph import index_graph, tensor_type
from placer.graph.edit import adopt, standard_opset, without_initializers, without_large_tensors
from placer.model import Model
from placer.model.normalize import infer_values, tidy_quantized
from placer.model.open_tensors import open_tensors

FLOAT8_OPSET = 19  # From here on QuantizeLinear takes FP8.


def with_opset(model: Model, opset: int) -> Model:
    """Return ``model`` raised to ``opset`` of ONNX's operators, itself if it is there already.

    Raises InputError if ONNX's version converter cannot do it.
    """
    old = standard_opset(model.proto)
    if old >= opset:
        return model
    try:
        raised = onnx.version_converter.convert_version(without_large_tensors(model.proto), opset)
    except (RuntimeError, onnx.version_converter.ConvertError) as error:
        raise InputError(
            f"{model.path}: opset {old} cannot be raised to {opset}: {one_line(error)}; "
            f"export the model with opset {opset} or later"
        ) from error
    tidy_quantized(raised)  # The converter turns attributes into Constants.
    proto = without_initializers(model.proto, ())
    adopt(proto, raised)
    return with_proto(model, proto, [f"opset {old} raised to {opset}"])


def with_proto(model: Model, proto: onnx.ModelProto, notes: Collection[str]) -> Model:
    """``model`` as ``proto`` has it, types inferred anew, with ``notes`` beside its own."""
    minimum: int = helper.find_min_ir_version_for(proto.opset_import, ignore_unknown=True)
    proto.ir_version = max(proto.ir_version, minimum)
    values = infer_values(proto, model.input_shapes, model.path)
    types = {name: tensor_type(value) for name, value in values.items()}
    all_notes = tuple(dict.fromkeys((*model.notes, *notes)))
    left_open = open_tensors(proto, types, partial(infer_values, proto, {}, model.path))
    graph = index_graph(proto.graph, types, open_tensors=left_open)
    return replace(model, proto=proto, graph=graph, notes=all_notes)
