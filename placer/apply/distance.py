"""Whether the model with a placement is still the function that was given."""

from __future__ import annotations

import onnx

from placer.accuracy.sanity import MIN_SQNR_DB
from placer.calibration.dataset import Dataset
from placer.engines.half_precision import HalfPrecisionModel
from placer.errors import InputError, LimitError, RunError
from placer.importing.source_model import NOTHING, Source, inputs_of, scaled_to
from placer.model import Model
from placer.model.judged import add_outputs
from placer.quantization import Ranges


def distance(
    model: Model, result: onnx.ModelProto, data: Dataset, ranges: Ranges, notes: list[str]
) -> float | None:
    """SQNR in dB of the outputs of ``result`` against those of the file of ``model``.

    None, with a note, if ONNX Runtime does not run both, or where there is nothing to compare.
    Raises InputError if the result would be another function, LimitError if a run takes too much.
    """
    inputs = inputs_of(model, data)
    if data.synthetic:
        inputs = scaled_to(inputs, ranges)
    try:
        source = Source.of(model, data)
        seen = onnx.ModelProto()
        seen.CopyFrom(result)
        add_outputs(seen, source.outputs)
        run = HalfPrecisionModel(seen, model.base_dir, threads=1).run
        comparison = source.compared(run, inputs)
    except LimitError:
        raise
    except RunError as error:
        notes.append(f"the result is not compared with {model.path}: {error}")
        return None
    if comparison is None:
        notes.append(f"the result is not compared with {model.path}: {NOTHING}")
        return None
    sqnr = comparison.sqnr
    if not sqnr >= MIN_SQNR_DB:
        lost = f"; {comparison.left_out}" if comparison.left_out else ""
        raise InputError(
            f"with this placement the outputs of {model.path} would differ too much "
            f"({sqnr:.1f} dB{lost}"
            + (
                " on random inputs); give `data` to calibrate it"
                if data.synthetic
                else "); check the placement's ranges, or calibrate on other data"
            )
        )
    notes += comparison.notes(model.path)
    return sqnr
