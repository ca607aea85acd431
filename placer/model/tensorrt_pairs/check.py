"""Every node of a model that quantizes or dequantizes, as TensorRT's parser reads it."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from onnx import ModelProto, NodeProto, numpy_helper

from placer.graph.external_data import is_external
from placer.graph.flat import flatten
from placer.model.normalize import infer_values, tidy_quantized
from placer.model.passes.constant_folding import fold_constants
from placer.model.passes.constant_nodes import constants_to_initializers
from placer.model.quantized.operators import DEQUANTIZE, FAKE_QUANTIZE, QUANTIZE, is_of_amd
from placer.model.quantized.restored_pairs import arithmetic_pairs
from placer.model.tensorrt_pairs.finding import Finding, finding
from placer.model.tensorrt_pairs.missing_kernels import check_kernels
from placer.model.tensorrt_pairs.number_types import (
    check_cast,
    check_dequantized,
    check_float4,
    check_format,
    check_opset,
    check_quantized,
)
from placer.model.tensorrt_pairs.operators import unknown_operator
from placer.model.tensorrt_pairs.pair_graph import FP4_QUANTIZER, PairGraph
from placer.model.tensorrt_pairs.scale_axes import check_axis
from placer.model.tensorrt_pairs.scales import check_halves, check_scale
from placer.model.tensorrt_pairs.stored_constants import readers_of_constants


def check_pairs(proto: ModelProto, base_dir: Path, path: Path) -> tuple[Finding, ...]:
    """Look at every node of ``proto`` that quantizes or dequantizes; uses ``proto`` up.

    Nodes in bodies of If, Loop and Scan are nodes like any other. ``base_dir`` is where external
    data lies, ``path`` is for messages.
    """
    tidy_quantized(proto)
    if flatten(proto.graph):
        constants_to_initializers(proto.graph)
    # Folding removes them.
    before = list(readers_of_constants(PairGraph(proto, base_dir, path)))
    before.extend(_arithmetic(proto, base_dir))
    values = infer_values(proto, {}, path)
    fold_constants(proto, values, keep=QUANTIZE | DEQUANTIZE | FAKE_QUANTIZE)
    return (*before, *_in_node_order(PairGraph(proto, base_dir, path, values)))


def misplaced_scales(proto: ModelProto, base_dir: Path, path: Path) -> tuple[Finding, ...]:
    """Nodes of ``proto`` whose scales do not fit what they quantize by ONNX's own definition.

    No engine runs them. Only stored scales are looked at; ``proto`` is tidy, ``base_dir`` and
    ``path`` are as above.
    """
    graph = PairGraph(proto, base_dir, path)
    several = [(node, count) for node in graph.nodes if (count := _scales(graph, node)) > 1]
    if any(graph.source(node) not in graph.constants for node, _ in several):
        graph = PairGraph(proto, base_dir, path, infer_values(proto, {}, path))
    found = [one for node, count in several for one in check_axis(graph, node, count)]
    return tuple(one for one in found if one.verdict == "refused")


def infinite_scales(proto: ModelProto, base_dir: Path, path: Path) -> tuple[Finding, ...]:
    """Nodes of ``proto`` with a stored scale that is NaN or infinite: engines compute NaN there.

    Arguments as of ``misplaced_scales``; external scales are not read.
    """
    graph, found = PairGraph(proto, base_dir, path), []
    for node in graph.nodes:
        if not _scales(graph, node) or is_external(graph.constants[node.input[1]]):
            continue
        values = numpy_helper.to_array(graph.constants[node.input[1]]).astype(np.float32)
        if np.isfinite(values).all():
            continue
        shown = values[~np.isfinite(values)].flat[0]
        reason = f"its scale is {shown:g}, which makes NaN of every value"
        found.append(finding(node, "altered", reason, "calibrate again with other data"))
    return tuple(found)


def _scales(graph: PairGraph, node: NodeProto) -> int:
    """How many scales are stored for ``node``; 0 of any that is no Q or DQ."""
    if node.op_type not in QUANTIZE | DEQUANTIZE or is_of_amd(node):
        return 0
    scales = graph.constants.get(node.input[1])
    return 0 if scales is None else math.prod(scales.dims)


def _arithmetic(proto: ModelProto, base_dir: Path) -> Iterator[Finding]:
    reason = "Round, Clip and Mul quantize it, which TensorRT computes in float"
    for node, source in arithmetic_pairs(proto, base_dir):
        yield Finding(node.name, node.op_type, source, "float", reason, "export Q/DQ pairs")


def _in_node_order(graph: PairGraph) -> Iterator[Finding]:
    """All findings in node order; what is wrong with Q and DQ alike is said of Q."""
    said: set[tuple[str, str]] = set()
    for node in graph.nodes:
        behind = graph.quantizer_behind(node)
        for one in _check(graph, node):
            if (behind, one.reason) not in said:
                said.add((node.name, one.reason))
                yield one


def _check(graph: PairGraph, node: NodeProto) -> Iterator[Finding]:
    if node.op_type in QUANTIZE | DEQUANTIZE and not is_of_amd(node):
        yield from _check_half(graph, node)
    elif node.op_type == FP4_QUANTIZER:
        yield from check_float4(graph, node)
    elif (unknown := unknown_operator(node)) is not None:
        yield unknown
    else:
        yield from check_cast(graph, node)


def _check_half(graph: PairGraph, node: NodeProto) -> Iterator[Finding]:
    """The checks of a Q or DQ."""
    yield from check_scale(graph, node)
    yield from check_opset(graph, node)
    if node.op_type in DEQUANTIZE:
        yield from check_dequantized(graph, node)
        yield from check_halves(graph, node)
    else:
        yield from check_quantized(graph, node)
        yield from check_kernels(graph, node)
    yield from check_format(graph, node)
