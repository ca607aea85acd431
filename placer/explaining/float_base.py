"""What an explanation says of a float32 file that is shown in half precision."""

from __future__ import annotations

from onnx import TensorProto

from placer.graph import Graph
from placer.plan import Plan
from placer.plan.plan import total_us
from placer.rules.pack import Pack
from placer.rules.target import Target

_HALVES = frozenset({TensorProto.FLOAT16, TensorProto.BFLOAT16})
# Of the engine's time, from which it is worth a sentence.
_LARGE_SHARE = 0.1


def float_base(graph: Graph, plan: Plan, base: str, pack: Pack, target: Target) -> str:
    """A sentence on layers of a quantized file that run in float32 as it is; empty if few do.

    Under strong typing an engine computes in the types of the file, so that one of float32 loses
    by its float layers what it gains by INT8 (Model-Optimizer issue 167, where FP16 took half of
    the time of such a file; ultralytics issue 26159). ``plan``: what is predicted with ``base``.
    """
    if pack.manifest.behaviour.pairs != "symmetric" or target.typing == "weak" or base == "float":
        return ""
    if any(graph.type_of(t).dtype in _HALVES for node in graph.nodes for t in node.outputs):
        return ""
    in_float = [layer for layer in plan.of_kind("compute") if base in layer.input_types]
    if total_us(in_float) <= _LARGE_SHARE * total_us(plan.layers):
        return ""
    one = len(in_float) == 1
    return (
        f"{len(in_float)} layer{'' if one else 's'} shown in {base} run{'s' if one else ''} in "
        "float32 if this file is built as it is with strong typing (TensorRT 11, TensorRT-RTX, "
        f"trtexec --stronglyTyped): convert it to {base} first, as placer optimize does; --base "
        "float shows the file as it is"
    )
