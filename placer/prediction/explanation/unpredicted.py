"""Sentences about what a predicted plan leaves out of the engine's."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from placer.common.listed import listed
from placer.common.names import engine_title
from placer.graph import Graph, Node
from placer.graph.edit import every_node
from placer.graph.operators import MICROSOFT, RECURRENT
from placer.graph.qoperator import is_qoperator
from placer.model.check_operators import is_foreign_quantizer
from placer.rules.pack_manifest import Manifest

# Of NVIDIA's exporters, which TensorRT's parser reads without a plugin.
_OWN = re.compile(r"\.TRT_(INT4|INT8|FP4|FP8|MXFP8)(Dynamic)?(Quantize|Dequantize)(Linear)?$")


def unpredicted(graph: Graph, manifest: Manifest) -> Iterator[str]:
    """Sentences on nodes of ``graph`` whose layers the pack of ``manifest`` cannot tell."""
    if told := lacking(graph, manifest):
        yield told
    if manifest.behaviour.foreign == "plugins":
        yield from _foreign(graph, engine_title(manifest.engine))
    recurrent = [op for op in RECURRENT if any(node.op == op for node in graph.nodes)]
    if recurrent and manifest.behaviour.kernels == "generated":
        yield (
            f"TensorRT-RTX unrolls {' and '.join(recurrent)} into dozens of kernels that are not "
            "predicted: do not rely on these layers and times; build with placer check"
        )


def _foreign(graph: Graph, engine: str) -> Iterator[str]:
    """Sentences on operators of other domains than ONNX's, of which ``engine`` knows few."""
    named = sorted({_named(node) for node in graph.nodes if node.domain})
    quantizers = {_named(node) for node in graph.nodes if is_foreign_quantizer(node.proto)}
    own = [name for name in named if _OWN.search(name)]
    of_ort = [name for name in named if name.startswith(f"{MICROSOFT}.")]
    foreign = [name for name in named if name not in (*own, *of_ort, *quantizers)]
    if own:
        yield f"layers and times of {', '.join(own)} are not known; placer check builds them"
    yield from _of_onnx_runtime(of_ort, engine)
    if quantizers:
        yield (
            f"{listed(sorted(quantizers))}: a training tool's simulation of quantization, of which "
            "no layers and times are known; have the tool export Q/DQ pairs"
        )
    if foreign:
        yield (
            f"{engine} needs plugins for {listed(foreign)}, whose layers and times are not known"
        )


def _named(node: Node) -> str:
    return f"{node.domain}.{node.op}"


def _of_onnx_runtime(names: Sequence[str], engine: str) -> Iterator[str]:
    """Sentences on operators ``names`` of ONNX Runtime's own domain."""
    integers = [name for name in names if is_qoperator(name.rpartition(".")[2])]
    for some, what_to_do in (
        (
            [name for name in names if name not in integers],
            "export the model without ONNX Runtime's fusions",
        ),
        (integers, "quantize in the Q/DQ format (QuantFormat.QDQ)"),
    ):
        if some:
            yield (
                f"{engine} has no {listed(some)}, of ONNX Runtime, whose layers and times are not "
                f"known; {what_to_do}"
            )


def lacking(graph: Graph, manifest: Manifest) -> str:
    """A sentence on operators of ``graph`` that the engine does not have; empty if it has all."""
    nodes = every_node(node.proto for node in graph.nodes)
    found = {
        op for node in nodes if not node.domain and (op := node.op_type) in manifest.behaviour.lacks
    }
    if not found:
        return ""
    return (
        f"{engine_title(manifest.engine)} has no {listed(sorted(found))}, so it cannot build "
        "this model, and the estimates are of an engine that cannot exist; export the model without"
    )
