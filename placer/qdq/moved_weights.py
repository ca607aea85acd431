"""Weights that a Q/DQ model transposes or reshapes behind their pair, as exporters of Linear do.

Engines move such constants when they build (TensorRT issue 1604): TensorRT names the Transpose
among what a product fused. A pair computes element by element, so it may as well stand behind it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
from onnx import GraphProto, NodeProto, TensorProto, helper, numpy_helper

from placer.graph.external_data import is_external
from placer.graph.operators import PAIR_OPS, STANDARD_DOMAINS

_ORIGIN = "placer.pair"  # Metadata of a copy: the name of the node in the file.


def move_weights(graph: GraphProto, *, transposes_alone: bool = False) -> frozenset[str]:
    """Replace nodes that only move the elements of a constant by the constant that they make.

    ``transposes_alone``: only Transposes of what has a zero point, as ONNX Runtime does, whose
    session of 1.32 reads what others move in float (transpose_optimizer).

    Returns the names of constants that other nodes still read as they were, through the same pair.
    Pairs in front of them are put behind them. Nodes are to be in topological order. External data
    is not read: such a constant is left where it is, with the shape that it gets.
    """
    constants = {tensor.name: tensor for tensor in graph.initializer}
    kept = {value.name for value in graph.output}
    pairs: dict[str, NodeProto] = {}
    renamed: dict[str, str] = {}
    sources: dict[str, str] = {}
    nodes: list[NodeProto] = []
    for node in graph.node:
        for index, tensor in enumerate(node.input):
            node.input[index] = renamed.get(tensor, tensor)
        if node.op_type in PAIR_OPS:
            pairs[node.output[0]] = node
        pair_row = tuple(_row(node.input[0], pairs)) if node.input else ()
        is_left = transposes_alone and not _is_transposed_pair(node, pair_row)
        result = None
        if node.output[0] not in kept and not is_left:
            result = _moved_with_pairs(node, pair_row, constants)
        if result is None:
            nodes.append(node)
            continue
        source, moved, behind = result
        sources[node.input[0]] = source
        constants[moved.name] = moved
        graph.initializer.append(moved)
        for pair in behind:
            nodes.append(pair)
            pairs[pair.output[0]] = pair
            renamed[moved.name] = pair.output[0]
    del graph.node[:]
    graph.node.extend(nodes)
    read = {tensor for node in nodes for tensor in node.input}
    return frozenset(source for tensor, source in sources.items() if tensor in read)


def _moved_with_pairs(
    node: NodeProto, pair_row: tuple[NodeProto, ...], constants: Mapping[str, TensorProto]
) -> tuple[str, TensorProto, list[NodeProto]] | None:
    """The constant before ``pair_row``, what ``node`` makes of it, and the pairs behind that.

    None if there is no such constant, or the pairs cannot stand behind ``node``.
    """
    source = next((tensor for n in (*pair_row[-1:], node) for tensor in n.input[:1]), "")
    moved = _moved(node, constants[source], constants) if source in constants else None
    if moved is None:
        return None
    shape = tuple(constants[source].dims)
    axes = [_axis_behind(node, pair, shape, moved.dims, constants) for pair in pair_row]
    return None if None in axes else (source, moved, list(_behind(moved.name, pair_row, axes)))


def name_in_file(pair: NodeProto) -> str:
    """What the Q or DQ is called in the file, also where ``move_weights`` put it elsewhere."""
    return next((str(p.value) for p in pair.metadata_props if p.key == _ORIGIN), str(pair.name))


def _row(tensor: str, pairs: Mapping[str, NodeProto]) -> Iterator[NodeProto]:
    """The Q/DQ nodes before ``tensor``, the nearest first."""
    while tensor in pairs:
        yield pairs[tensor]
        tensor = pairs[tensor].input[0]


def _axis_behind(
    node: NodeProto,
    pair: NodeProto,
    shape: tuple[int, ...],
    moved: Sequence[int],
    constants: Mapping[str, TensorProto],
) -> int | None:
    """Along which axis of what ``node`` makes the scales of ``pair`` lie; None if along none.

    ``shape``: of what ``node`` reads. Scales of blocks, and one for all, stay as they are.
    """
    axis = _axis(pair)
    scale = constants.get(pair.input[1])
    has_several = scale is not None and len(scale.dims) == 1 and scale.dims[0] > 1
    if not has_several or not -len(shape) <= axis < len(shape):
        return axis
    axis %= len(shape)
    if node.op_type == "Transpose":
        given = next((a.ints for a in node.attribute if a.name == "perm"), range(len(shape))[::-1])
        return [place % len(shape) for place in given].index(axis)
    before = math.prod(shape[:axis])  # All others keep the order of the elements.
    places = (i for i, size in enumerate(moved) if size == shape[axis])
    return next((i for i in places if math.prod(moved[:i]) == before), None)


def _axis(pair: NodeProto) -> int:
    return int(next((a.i for a in pair.attribute if a.name == "axis"), 1))


def _behind(
    constant: str, row: tuple[NodeProto, ...], axes: Sequence[int | None]
) -> Iterator[NodeProto]:
    """Copies of ``row`` that read ``constant``, whose scales lie along ``axes``."""
    tensor = constant
    for pair, axis in zip(reversed(row), reversed(axes), strict=True):
        made = f"{constant}/{pair.op_type}"
        copy = NodeProto()
        copy.CopyFrom(pair)
        copy.name, copy.input[0], copy.output[0] = f"{pair.name}/{constant}", tensor, made
        copy.metadata_props.add(key=_ORIGIN, value=name_in_file(pair))
        if axis is not None and axis != _axis(pair):
            others = [attribute for attribute in pair.attribute if attribute.name != "axis"]
            del copy.attribute[:]
            copy.attribute.extend([*others, helper.make_attribute("axis", axis)])
        yield copy
        tensor = made


def _is_transposed_pair(node: NodeProto, pair_row: Sequence[NodeProto]) -> bool:
    """Whether ``node`` transposes what pairs with zero points dequantize, or no pair does."""
    has_zero_points = all(any(pair.input[2:3]) for pair in pair_row)
    return not pair_row or (node.op_type == "Transpose" and has_zero_points)


def _moved(
    node: NodeProto, constant: TensorProto, constants: Mapping[str, TensorProto]
) -> TensorProto | None:
    """What ``node`` makes of ``constant``; None if it does more than move elements."""
    more = [constants.get(name) for name in node.input[1:]]
    known = [tensor for tensor in more if tensor is not None and not is_external(tensor)]
    if node.domain not in STANDARD_DOMAINS or len(known) < len(more):
        return None
    if is_external(constant):
        values = np.empty(tuple(constant.dims), np.int8)
    else:
        values = numpy_helper.to_array(constant)
    try:
        result = _apply(node, values, [numpy_helper.to_array(tensor) for tensor in known])
    except ValueError:  # The model contradicts itself; type inference says where.
        return None
    if result is None:
        return None
    if not is_external(constant):
        return numpy_helper.from_array(np.ascontiguousarray(result), node.output[0])
    moved = TensorProto()
    moved.CopyFrom(constant)
    del moved.dims[:]
    moved.dims.extend(result.shape)
    moved.name = node.output[0]
    return moved


def _apply(node: NodeProto, values: np.ndarray, more: list[np.ndarray]) -> np.ndarray | None:
    attributes = {a.name: helper.get_attribute_value(a) for a in node.attribute}
    axes = more[0].ravel().tolist() if more else attributes.get("axes")
    result: np.ndarray | None = None
    match node.op_type:
        case "Transpose":
            result = values.transpose(attributes.get("perm"))
        case "Reshape" if more and not attributes.get("allowzero"):
            shape = [values.shape[i] if n == 0 else n for i, n in enumerate(more[0].tolist())]
            result = values.reshape(shape)
        case "Flatten":
            axis = attributes.get("axis", 1)
            result = values.reshape((int(np.prod(values.shape[:axis])), -1))
        case "Squeeze":
            result = values.squeeze(None if axes is None else tuple(axes))
        case "Unsqueeze" if axes is not None:
            result = np.expand_dims(values, tuple(axes))
    return result
