"""What an explanation says of float32 between Casts in a model of half precision."""

from __future__ import annotations

from onnx import TensorProto

from placer.common.listed import listed
from placer.graph import Graph, Node
from placer.rules.pack import Pack

_HALVES = frozenset({TensorProto.FLOAT16, TensorProto.BFLOAT16})
# What kernels before them take along.
_ACTIVATIONS = frozenset(
    "Clip Elu Erf Exp Gelu HardSigmoid HardSwish LeakyRelu Mish Relu Sigmoid Softplus Tanh".split()
)


def float_casts(graph: Graph, pack: Pack) -> str:
    """A sentence on activations that Casts keep in float32; empty if there are none.

    As tools write that leave such operators out of a conversion to half precision: Sigmoid of all
    SiLUs in ultralytics pull request 25920, where that took 13 to 18% of the time. Of packs of
    TensorRT, which fuses no Cast with a Conv.
    """
    if pack.manifest.behaviour.pairs != "symmetric":
        return ""
    found = [n for n in graph.nodes if n.op in _ACTIVATIONS and _is_between_casts(n, graph)]
    if not found:
        return ""
    shown = listed([f"'{node.name}' ({node.op})" for node in found])
    compute, them = ("computes", "it") if len(found) == 1 else ("compute", "them")
    return (
        f"{shown} {compute} in float32 between Casts of a half-precision model, which keep {them} "
        f"out of the kernels before {them}: take these Casts out"
    )


def _is_between_casts(node: Node, graph: Graph) -> bool:
    before = graph.producer.get(node.inputs[0])
    behind = [graph.by_name[edge.node] for edge in graph.edges_of(node.outputs[0]) if edge.node]
    return (
        before is not None
        and before.op == "Cast"
        and graph.type_of(before.inputs[0]).dtype in _HALVES
        and graph.type_of(node.inputs[0]).dtype == TensorProto.FLOAT
        and bool(behind)
        and all(
            one.op == "Cast" and graph.type_of(one.outputs[0]).dtype in _HALVES for one in behind
        )
    )
