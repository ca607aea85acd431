"""Which tensors a model file leaves open, whatever shapes are given for its inputs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from onnx import ModelProto, ValueInfoProto

from placer.graph import tensor_type
from placer.graph.index import Dimensions, dimensions, names_of_dimensions


def open_tensors(
    proto: ModelProto, names: Iterable[str], infer: Callable[[], Mapping[str, ValueInfoProto]]
) -> dict[str, Dimensions]:
    """Those of ``names`` of which ``proto`` itself does not fix every dimension, with those.

    ``infer``: types of its tensors where no shape is given for any input. It is asked only if an
    input has a dimension that the file leaves open.
    """
    if all(tensor_type(value).shape is not None for value in proto.graph.input):
        return {}
    inferred, own = infer(), names_of_dimensions(proto.graph)
    return {
        name: dimensions(inferred[name], own) if name in inferred else ()
        for name in names
        if name not in inferred or tensor_type(inferred[name]).shape is None
    }
