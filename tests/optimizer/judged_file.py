"""A run whose file is the one that was judged, and which its placement makes again."""

from pathlib import Path

import onnx

import placer
from placer.results.verdict import Verdict


def optimized_and_applied(model: Path, data: Path, engine: str, folder: Path) -> onnx.ModelProto:
    """The file of a short run on ``model``, of which ``placer apply`` makes the same bytes."""
    out, applied = folder / "out", folder / "applied"
    result = placer.optimize(
        model,
        data=str(data),
        engine=engine,
        gates="sqnr>=10",
        budget=2,
        preset="quick",
        calibration="minmax",
        output=out,
        cache=False,
    )
    assert result.verdict is Verdict.FASTER
    found = placer.apply_placement(out / "placement.yaml", model, output=applied)
    assert not found.applied.lost
    assert (applied / "optimized.onnx").read_bytes() == (out / "optimized.onnx").read_bytes()
    return onnx.load(out / "optimized.onnx")
