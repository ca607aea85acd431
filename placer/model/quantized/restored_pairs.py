"""Fake quantization that was exported as arithmetic: Q/DQ pairs again.

Quantization-aware training written by hand, and PyTorch's exporter with ``dynamo=True`` at first
(PyTorch issue 127167), trace to Div, Round, Clip and Mul, with a zero point and Casts among them.
Engines compute that in float.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
from onnx import ModelProto, NodeProto, TensorProto, helper, numpy_helper

from placer.graph.edit import remove_dead_nodes, sort_nodes, standard_opset
from placer.model.minimum_opset import HALF_OPSET
from placer.model.quantized.names import Names
from placer.model.quantized.pair_finder import ArithmeticPair, PairFinder
from placer.model.quantized.reader import is_quantized
from placer.model.quantized.scales import limits_of

_FIRST_OPSET = 13  # Scales along an axis; Clip of integers came before.


def restore_pairs(proto: ModelProto, base_dir: Path) -> tuple[str, ...]:
    """Replace what quantizes and dequantizes by arithmetic by pairs; the tensors they quantize.

    That is x / scale, rounded, clipped to a range of 4 to 8 bits, times the same scale, and
    integer weights that are cast and multiplied beside it, in a file that a quantizer made
    (``PairFinder.shows_quantizer``). Nothing is found in local functions: inline them before.
    Neither are pairs made of half precision below ``HALF_OPSET``: raise the opset before.
    ``base_dir``: of external data.
    """
    graph, found = proto.graph, _found(proto, base_dir)
    if standard_opset(proto) < HALF_OPSET:
        found = {k: pair for k, pair in found.items() if pair.scale.dtype == np.float32}
    if all(pair.stored for pair in found.values()):
        return ()
    names = Names({t for n in graph.node for t in (*n.input, *n.output)})
    nodes = list[NodeProto]()
    for node in graph.node:
        pair = found.get(node.output[0]) if node.output else None
        made, constants = ([node], []) if pair is None else _nodes(pair, node, names)
        nodes.extend(made)
        graph.initializer.extend(constants)
    del graph.node[:]
    graph.node.extend(nodes)
    sort_nodes(graph)
    remove_dead_nodes(graph)
    return tuple(dict.fromkeys(pair.source for pair in found.values() if not pair.stored))


def arithmetic_pairs(proto: ModelProto, base_dir: Path) -> tuple[tuple[NodeProto, str], ...]:
    """The last node of each pair that is arithmetic, and the tensor that it quantizes."""
    found = _found(proto, base_dir)
    pairs = ((node, found.get(node.output[0])) for node in proto.graph.node if node.output)
    return tuple((node, pair.source) for node, pair in pairs if pair and not pair.stored)


def _found(proto: ModelProto, base_dir: Path) -> Mapping[str, ArithmeticPair]:
    """By tensor the pair that writes it by arithmetic; none where no value is rounded."""
    if standard_opset(proto) < _FIRST_OPSET or all(n.op_type != "Round" for n in proto.graph.node):
        return {}
    finder = PairFinder(proto, base_dir)
    found = finder.pairs()
    if all(pair.stored for pair in found.values()):
        return {}
    return found if is_quantized(proto) or finder.shows_quantizer(found) else {}


def _nodes(
    pair: ArithmeticPair, last: NodeProto, names: Names
) -> tuple[list[NodeProto], list[TensorProto]]:
    """Q, a Clip where the range is narrower than the type, and DQ in the place of ``last``."""
    target = last.output[0]
    axes = [i - pair.scale.ndim for i, size in enumerate(pair.scale.shape) if size > 1]
    integer = helper.tensor_dtype_to_np_dtype(pair.dtype)
    scale = pair.scale.ravel() if axes else pair.scale.reshape(())
    zero_point = np.full(scale.shape, pair.zero_point, integer)
    parts = [names.unused(f"{target}/{part}") for part in ("scale", "zero_point", "quantized")]
    constants = [
        numpy_helper.from_array(a, n) for a, n in zip((scale, zero_point), parts, strict=False)
    ]
    dequantize = helper.make_node(
        "DequantizeLinear", [parts[2], *parts[:2]], [target], f"{target}/dequantize"
    )
    quantize = helper.make_node(
        "QuantizeLinear", [pair.source, *parts[:2]], [parts[2]], f"{target}/quantize"
    )
    for half in (quantize, dequantize):
        half.attribute.extend(helper.make_attribute("axis", axis) for axis in axes)
    if pair.stored:
        dequantize.input[0] = pair.source
        return [dequantize], constants
    bounds = (pair.lowest, pair.highest)
    if bounds == limits_of(pair.dtype):
        return [quantize, dequantize], constants
    limits = [names.unused(f"{target}/{part}") for part in ("lowest", "highest")]
    constants += [
        numpy_helper.from_array(np.asarray(v, integer), n)
        for v, n in zip(bounds, limits, strict=True)
    ]
    clipped = names.unused(f"{target}/clipped")
    clip = helper.make_node("Clip", [parts[2], *limits], [clipped], f"{target}/clip")
    dequantize.input[0] = clipped
    return [quantize, clip, dequantize], constants
