"""Pairs of activations in a quantized model as it was given, and the model without some of them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

import numpy as np
from onnx import ModelProto, TensorProto, helper, numpy_helper

from placer.graph.edit import standard_opset
from placer.model.quantized.clamping import ends_at_six


class SourcePair(NamedTuple):
    """What a QuantizeLinear writes and reads, and what the DequantizeLinear nodes of it write.

    ``clamps``: whether it keeps what a node writes from being negative, as the Relu does that the
    importer puts back, and ``ceiling`` what it keeps it below then, as the Clip of a ReLU6 does.
    """

    integers: str
    source: str
    targets: tuple[str, ...]
    clamps: bool
    ceiling: np.ndarray | None = None


def source_pairs(proto: ModelProto) -> Iterator[SourcePair]:
    """Pairs of activations whose integers nothing else reads."""
    constants = {tensor.name: tensor for tensor in proto.graph.initializer}
    outputs = {value.name for value in proto.graph.output}
    written = {tensor for node in proto.graph.node for tensor in node.output}
    readers: dict[str, list[tuple[str, str]]] = {}
    for node in proto.graph.node:
        for tensor in node.input:
            readers.setdefault(tensor, []).append((node.op_type, node.output[0]))
    for node in proto.graph.node:
        if node.op_type != "QuantizeLinear" or node.input[0] in constants:
            continue
        read = readers.get(node.output[0], [])
        targets = tuple(target for _, target in read)
        if not read or any(op != "DequantizeLinear" for op, _ in read):
            continue
        if node.output[0] not in outputs:
            zero_point = constants.get(node.input[2]) if len(node.input) > 2 else None
            clamps = node.input[0] in written and _is_lowest(zero_point)
            ceiling = _ceiling(constants.get(node.input[1])) if clamps else None
            yield SourcePair(node.output[0], node.input[0], targets, clamps, ceiling)


def _is_lowest(zero_point: TensorProto | None) -> bool:
    if zero_point is None or zero_point.data_type == TensorProto.UINT8:
        return zero_point is None or not numpy_helper.to_array(zero_point).any()
    values = numpy_helper.to_array(zero_point)
    return values.dtype == np.int8 and bool((values == -128).all())


def _ceiling(scale: TensorProto | None) -> np.ndarray | None:
    """6, of the type of ``scale``, if the 255 steps of 8 bits end there."""
    values = np.empty(0) if scale is None else numpy_helper.to_array(scale)
    is_six = values.size == 1 and ends_at_six(255 * float(values.item()))
    return np.array(6, values.dtype) if is_six else None


def without_pairs(proto: ModelProto, pairs: Iterable[SourcePair]) -> ModelProto:
    """``proto`` with readers of each of ``pairs`` reading what that reads."""
    copy = ModelProto()
    copy.CopyFrom(proto)
    del copy.graph.node[:]
    has_bounds = standard_opset(proto) >= 11  # Before, those of a Clip are attributes.
    by_integers = {pair.integers: pair for pair in pairs}
    instead = {t: f"{pair.integers}/instead" for pair in by_integers.values() for t in pair.targets}
    for node in proto.graph.node:
        output = node.output[0]
        if node.op_type == "QuantizeLinear" and output in by_integers:
            pair = by_integers[output]
            op, inputs = "Relu" if pair.clamps else "Identity", [pair.source]
            if pair.ceiling is not None and has_bounds:
                op, names = "Clip", [f"{output}/lowest", f"{output}/highest"]
                bounds = zip(names, (pair.ceiling * 0, pair.ceiling), strict=True)
                copy.graph.initializer.extend(numpy_helper.from_array(v, n) for n, v in bounds)
                inputs += names
            made = helper.make_node(op, inputs, [f"{output}/instead"])
        elif output in instead:
            made = helper.make_node("Identity", [instead[output]], [output])
        else:
            made = node
        copy.graph.node.append(made)
    return copy
