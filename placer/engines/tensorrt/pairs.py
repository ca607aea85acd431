"""What TensorRT makes of a model's own pairs where their scales are none that its kernels take."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from onnx import ModelProto

from placer.common.listed import listed
from placer.graph import Edge, Graph
from placer.graph.edit import all_tensors
from placer.graph.external_data import data_folder
from placer.graph.weights import is_depthwise, weight_input
from placer.model.tensorrt_pairs import (
    Finding,
    alike,
    check_pairs,
    infinite_scales,
    misplaced_scales,
)
from placer.qdq.extract import ExtractedModel

_SHOWN = 2
_CONVS = ("Conv", "ConvTranspose")


def kept_in_float(extracted: ExtractedModel, graph: Graph) -> frozenset[Edge]:
    """Edges of convolutions in ``graph`` whose pairs round and are no reason to compute in INT8.

    Those are pairs with several scales on an activation, or on a weight along another axis than
    that of its output channels: TensorRT-RTX 1.7.1 computes the convolution in float, and matrix
    products with such pairs in INT8 (small graphs put to its builder, 2026-11-25).
    """
    return frozenset(
        edge for edge, axis in extracted.axes.items() if _is_misplaced(edge, axis, graph)
    )


def _is_misplaced(edge: Edge, axis: int, graph: Graph) -> bool:
    node = graph.by_name.get(edge.node)
    if node is None or node.op not in _CONVS:
        return False
    weight = weight_input(graph, node)
    if weight is None or edge.input_index != weight.index:
        return edge.input_index == 0
    dims = list(graph.initializers[weight.tensor].dims)
    channels = 0 if is_depthwise(dims, int(node.attributes.get("group", 1))) else weight.axis
    return axis % len(dims) != channels if dims else False


def _sentence(findings: Sequence[Finding]) -> str:
    """The first, and how many more there are."""
    more = f", {len(findings) - 1} more alike" if len(findings) > 1 else ""
    return f"{findings[0]} ({findings[0].verdict}{more})"


def refused_pairs(proto: ModelProto, path: Path) -> tuple[str, str]:
    """A sentence on the pairs of ``proto`` that TensorRT refuses, and one on those in doubt.

    Those in doubt it may compute otherwise, or some versions refuse them; they are told where it
    refuses none. A sentence on none is ``""``. Uses ``proto`` up; ``path`` is where its external
    data lies beside.
    """
    findings = check_pairs(proto, data_folder(all_tensors(proto.graph), path), path)
    refused = [finding for finding in findings if finding.verdict == "refused"]
    reasons = refused or list(findings)
    if not reasons:
        return "", ""
    shown = listed([_sentence(ones) for ones in alike(reasons)], _SHOWN, "; ")
    told = f"{shown}; see placer check --static"
    if refused:
        return f"TensorRT refuses this file as it is, so it builds no such plan: {told}", ""
    return "", f"TensorRT does not take all of these pairs as they are: {told}"


def unfit_scales(proto: ModelProto, path: Path) -> str:
    """A sentence on scales of ``proto`` that no engine takes, or ``""``.

    TensorRT-RTX 1.7.1, ONNX Runtime 1.32 and OpenVINO 2026.4.1 refuse each kind of them
    (tests/explaining/test_notes.py), but for those that are not finite: with these the latter two
    compute.
    """
    folder = data_folder(all_tensors(proto.graph), path)
    for found, what in (
        (misplaced_scales(proto, folder, path), "no engine runs this file as it is"),
        (infinite_scales(proto, folder, path), "this file has no result as it is"),
    ):
        nodes = {finding.node for finding in found}
        more = f" (and {len(nodes) - 1} more)" if len(nodes) > 1 else ""
        if found:
            return f"{what}: {found[0]}{more}"
    return ""
