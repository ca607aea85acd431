"""A model with other values in its initializers: the same nodes, names, types and shapes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
from onnx import ModelProto, TensorProto, numpy_helper

from placer.graph import index_graph
from placer.graph.edit import without_initializers
from placer.graph.external_data import MAX_INLINE_BYTES, is_external, tensor_bytes
from placer.model import Model


def with_constants(model: Model, values: Mapping[str, np.ndarray]) -> Model:
    """``model`` with ``values`` by the name of an initializer, converted to that one's type.

    The order of initializers stays; those that change are no longer external. Raises ValueError for
    another shape or values that the type cannot hold: either would change the layers; and for
    values that are too large for one message.
    """
    if not values:
        return model
    known = model.graph.initializers
    inline = (t for name, t in known.items() if name in values or not is_external(t))
    size = sum(tensor_bytes(tensor) for tensor in inline)
    if size > MAX_INLINE_BYTES:
        raise ValueError(
            f"the model with changed constants would take {size / 1e9:.1f} GB in one message, "
            f"which may hold {MAX_INLINE_BYTES / 1e9:.1f} GB"
        )
    proto = without_initializers(model.proto, known.keys())
    proto.graph.initializer.extend(
        _tensor(model, name, values[name]) if name in values else tensor
        for name, tensor in known.items()
    )
    before = model.graph
    graph = index_graph(proto.graph, before.types, open_tensors=before.open_tensors)
    return replace(model, proto=proto, graph=graph)


def _tensor(model: Model, name: str, values: np.ndarray) -> TensorProto:
    old = model.array(name)
    with np.errstate(over="ignore"):
        new = np.asarray(values.astype(old.dtype), order="C")
    if new.shape != old.shape:
        raise ValueError(f"initializer '{name}' has shape {old.shape}, not {new.shape}")
    if not np.isfinite(new.astype(np.float64)).all():
        raise ValueError(f"initializer '{name}' would hold values beyond {old.dtype}")
    tensor: TensorProto = numpy_helper.from_array(new, name)
    return tensor


def same_layers(one: ModelProto, other: ModelProto) -> bool:
    """Whether two models differ in values of initializers alone.

    Nodes with their attributes, inputs, outputs, and the types and shapes of initializers are
    compared, so an engine that builds by structure builds the same layers of both.
    """
    return _structure(one) == _structure(other)


def _structure(model: ModelProto) -> tuple[object, ...]:
    graph = model.graph
    values = (graph.node, graph.input, graph.output)
    return (
        *([value.SerializeToString(deterministic=True) for value in listed] for listed in values),
        sorted((t.name, t.data_type, tuple(t.dims)) for t in graph.initializer),
        sorted((entry.domain, entry.version) for entry in model.opset_import),
    )
