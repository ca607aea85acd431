"""Which tensors a model file leaves open, whatever shapes are given for its inputs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from onnx import ModelProto, ValueInfoProto

from placer.graph import tensor_type


def open_tensors(
    proto: ModelProto, names: Iterable[str], infer: Callable[[], Mapping[str, ValueInfoProto]]
) -> frozenset[str]:
    """Those of ``names`` of which ``proto`` itself does not fix every dimension.

    ``infer``: types of its tensors where no shape is given for any input. It is asked only if an
    input has a dimension that the file leaves open.
    """
    if all(tensor_type(value).shape is not None for value in proto.graph.input):
        return frozenset()
    inferred = infer()
    return frozenset(
        n for n in names if n not in inferred or tensor_type(inferred[n]).shape is None
    )
