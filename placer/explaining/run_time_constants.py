"""What an explanation says of constants that TensorRT-RTX computes in every run."""

from __future__ import annotations

from placer.common.listed import listed
from placer.graph import Graph
from placer.graph.randomness import RANDOM_OPS
from placer.rules.pack import Pack


def run_time_constants(graph: Graph, pack: Pack) -> str:
    """A sentence on reductions of constants, as those of a weight norm; empty without any.

    TensorRT-RTX 1.7.1 folds what is computed element by element, moved or cast, and no reduction:
    what is behind it is computed, and quantized, anew in every run (small graphs put to it).
    """
    if pack.manifest.behaviour.kernels != "generated":
        return ""
    constant, found = set(graph.initializers), list[str]()
    for node in graph.nodes:
        if node.op in RANDOM_OPS or not node.inputs:
            continue
        if constant.issuperset(filter(None, node.inputs)):
            constant.update(node.outputs)
            if node.op.startswith("Reduce"):
                found.append(f"'{node.name}' ({node.op})")
    if not found:
        return ""
    return (
        f"{listed(found)} of constants {'is' if len(found) == 1 else 'are'} computed in every run, "
        "and so is what is behind, such as the quantization of weights: fold constants before, as "
        "placer optimize and placer import do"
    )
