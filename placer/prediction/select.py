"""The predictor of a pack: by its rules, or of generated kernels."""

from __future__ import annotations

from placer.graph import Graph
from placer.prediction.kernels import KernelPredictor
from placer.prediction.predictor import Predictor
from placer.rules.matcher import Matches
from placer.rules.pack import Pack
from placer.rules.target import Target

AnyPredictor = Predictor | KernelPredictor


def make_predictor(
    graph: Graph, pack: Pack, target: Target, base: str, matches: Matches | None = None
) -> AnyPredictor:
    """The predictor of plans of ``graph`` for the engine of ``pack``.

    ``base``: ONNX name of the type of float tensors inside the engine, e.g. ``float16``.
    ``matches``: of ``graph``, where they are known.
    """
    manifest, integer = pack.manifest, pack.manifest.scheme.integer
    if manifest.kernels == "generated":
        return KernelPredictor(graph, pack.rules, target, base, integer, matches)
    return Predictor(
        graph,
        pack.rules,
        target,
        base,
        integer,
        matches,
        dequantizes_once=manifest.dequantizes != "each",
        folds_constants=manifest.constants != "dequantized",
    )
