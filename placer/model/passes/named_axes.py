"""Pads and Resizes that name their axes, written for all axes.

From opset 18 on both may name axes. ONNX Runtime 1.32 reorders neither axes nor what is given for
them where it moves Transposes to make integer Convs run with the channels last, also past float
nodes, and then refuses the model.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
from onnx import GraphProto, NodeProto, TensorProto, ValueInfoProto, helper, numpy_helper

from placer.graph.external_data import is_external
from placer.graph.names import UnusedNames, tensor_names

_PADS, _PAD_AXES = 1, 3  # Inputs of Pad.
_REGION, _SCALES, _SIZES = 1, 2, 3  # Inputs of Resize.


def write_out_axes(graph: GraphProto, infer: Callable[[], Mapping[str, ValueInfoProto]]) -> int:
    """Give Pads and Resizes a number for each axis; return of how many.

    Those stay of which rank, axes or numbers are not known, Resizes to sizes with other axes of
    unknown size, and those to a region or of a kept aspect ratio. ``infer``: returns types of
    tensors; called once if they matter.
    """
    nodes = [node for node in graph.node if not node.domain and _names_axes(node)]
    if not nodes:
        return 0
    writing = _Writing(graph, infer())
    return sum(map(writing.write_out, nodes))


def _names_axes(node: NodeProto) -> bool:
    if node.op_type == "Pad":
        return len(node.input) > _PAD_AXES and bool(node.input[_PAD_AXES])
    return node.op_type == "Resize" and any(a.name == "axes" for a in node.attribute)


class _Writing:
    def __init__(self, graph: GraphProto, values: Mapping[str, ValueInfoProto]) -> None:
        self._graph, self._values = graph, values
        self._constants = {tensor.name: tensor for tensor in graph.initializer}
        self._names = UnusedNames(tensor_names(graph))

    def write_out(self, node: NodeProto) -> bool:
        """Rewrite ``node`` in place if all that matters is known."""
        value = self._values.get(node.input[0])
        if value is None or not value.type.tensor_type.HasField("shape"):
            return False
        dims = value.type.tensor_type.shape.dim
        sizes = [dim.dim_value if dim.HasField("dim_value") else 0 for dim in dims]
        return self._pad(node, sizes) if node.op_type == "Pad" else self._resize(node, sizes)

    def _pad(self, node: NodeProto, sizes: Sequence[int]) -> bool:
        given, axes = self._array(node, _PADS), self._array(node, _PAD_AXES)
        if given is None or axes is None or given.size != 2 * axes.size:
            return False
        pads = np.zeros((2, len(sizes)), np.int64)
        pads[:, axes.ravel()] = given.reshape(2, -1)
        self._replace(node, _PADS, pads.ravel())
        del node.input[_PAD_AXES:]
        return True

    def _resize(self, node: NodeProto, sizes: Sequence[int]) -> bool:
        attributes = {a.name: helper.get_attribute_value(a) for a in node.attribute}
        index = _SCALES if self._array(node, _SCALES) is not None else _SIZES
        given, axes = self._array(node, index), list(attributes["axes"])
        others = {*range(len(sizes))} - {axis % len(sizes) for axis in axes}
        is_open = index == _SIZES and not all(sizes[axis] for axis in others)
        keeps_ratio = attributes.get("keep_aspect_ratio_policy", b"stretch") != b"stretch"
        if given is None or given.size != len(axes) or is_open or keeps_ratio:
            return False
        if node.input[_REGION]:
            return False
        whole = np.ones(len(sizes)) if index == _SCALES else np.array(sizes)
        whole = whole.astype(given.dtype)
        whole[axes] = given
        self._replace(node, index, whole)
        kept = [attribute for attribute in node.attribute if attribute.name != "axes"]
        del node.attribute[:]
        node.attribute.extend(kept)
        return True

    def _array(self, node: NodeProto, index: int) -> np.ndarray | None:
        name = node.input[index] if index < len(node.input) else ""
        tensor: TensorProto | None = self._constants.get(name)
        return None if tensor is None or is_external(tensor) else numpy_helper.to_array(tensor)

    def _replace(self, node: NodeProto, index: int, values: np.ndarray) -> None:
        name = self._names.unused(f"{node.input[index]}/all")
        self._graph.initializer.append(numpy_helper.from_array(values, name))
        node.input[index] = name
