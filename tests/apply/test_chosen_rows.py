"""Networks with layers behind rows that NonMaxSuppression or Unique chose are no other function."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest

from placer.engines.onnxruntime import OnnxRuntimeModel
from placer.importing.source_model import Comparison, OutputSums
from placer.model import load_model
from placer.model.judged import with_outputs
from placer.qdq import Inserter
from placer.quantization import Range
from placer.rules.packaging.load import load_pack
from tests.apply.placements import default, file_of
from tests.conftest import Finished
from tests.optimizer.test_chosen_rows import BY_VALUE, SECOND_STAGE, write


@pytest.mark.parametrize(
    ("text", "is_judged"), [(SECOND_STAGE, True), (BY_VALUE, False)], ids=["second stage", "unique"]
)
def test_apply_and_import_take_what_swaps_rows(
    text: str, is_judged: bool, placer: Callable[..., Finished]
):
    write(text)
    pack, model = load_pack("onnxruntime"), load_model(Path("net.onnx"))
    placement = default(model.graph, pack)
    tensors = sorted({e.tensor for e in placement.edges} - model.graph.initializers.keys())
    seen = with_outputs(model, tensors)
    run = OnnxRuntimeModel(seen.proto, Path(), 1).run
    samples = np.load("data.npz")["image"][:, None]
    found = [{"image": sample, **run({"image": sample})} for sample in samples]
    ranges = {
        tensor: Range(
            min(0.0, *(float(one[tensor].min()) for one in found)),
            max(0.0, *(float(one[tensor].max()) for one in found)),
        )
        for tensor in tensors
    }
    file_of(placement, model.graph, Path(), "onnxruntime", ranges)
    onnx.save(Inserter(model, pack.manifest.scheme).insert(placement, ranges), "quantized.onnx")
    data = ("--data", "data.npz")
    applied = placer("apply", "placement.yaml", "net.onnx", *data, "-o", "applied")
    assert applied.code == 0, applied.err
    assert "outputs keep" in applied.out or not is_judged
    recovered = placer("import", "quantized.onnx", *data, "-o", "float.onnx")
    assert recovered.code == 0, recovered.err
    assert "outputs agree" in recovered.out or not is_judged


def test_rows_count_as_long_as_the_same_are_chosen():
    def sums(error: float) -> OutputSums:
        return OutputSums(reference=1.0, error=error)

    agreeing = Comparison([{"scores": sums(1e-4), "rows": sums(1e-3)}], frozenset({"rows"}))
    assert agreeing.sqnr == pytest.approx(30)
    swapping = Comparison([{"scores": sums(1e-4), "rows": sums(1.0)}], frozenset({"rows"}))
    assert swapping.sqnr == pytest.approx(40)
    # Where nothing else is compared, nothing is known.
    assert not Comparison([{"rows": sums(1.0)}], frozenset({"rows"})).shares
    wrong = Comparison([{"scores": sums(1.0), "rows": sums(1.0)}], frozenset({"rows"}))
    assert wrong.sqnr == pytest.approx(0)
