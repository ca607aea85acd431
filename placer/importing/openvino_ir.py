"""What NNCF has quantized in an OpenVINO IR, carried over onto the ONNX model behind it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path

from onnx import ModelProto

from placer.accuracy.sanity import MIN_SQNR_DB
from placer.common.files import temporary_folder
from placer.engines.base import Tensors
from placer.engines.openvino.export import with_further_outputs
from placer.engines.openvino.factory import OpenVinoFactory
from placer.engines.registry import EngineOptions
from placer.errors import InputError
from placer.importing.fake_quantize import read_ir
from placer.importing.ir_matching import Matched, match_ir
from placer.importing.source_model import Comparison, Distance, output_sums
from placer.model import Model, load_model
from placer.model.judged import add_outputs, has_tensors, judged_by
from placer.qdq import Inserter
from placer.rules.packaging.load import load_pack

SUFFIX = ".xml"


def carried_over(
    ir: Path, float_model: Path, shapes: Mapping[str, tuple[int, ...]]
) -> tuple[Model, ModelProto, Matched]:
    """The float model with the scales and the placement of ``ir``, and the Q/DQ model of both.

    Raises InputError if ``float_model`` is quantized, if OpenVINO does not read ``ir``, for scales
    that are not positive, and if nothing of ``ir`` is found in ``float_model``.
    """
    model = load_model(float_model, shapes)
    if model.imported is not None:
        raise InputError(
            f"{float_model} is quantized; give the float model that {ir} was made from"
        )
    quantized = read_ir(ir)
    if not (quantized.activations or quantized.weights or quantized.unsupported):
        raise InputError(f"{ir} quantizes no activations; give what nncf.quantize has written")
    matched = match_ir(quantized, model, ir)
    if not matched.imported.placement.edges:
        raise InputError(
            f"nothing that {ir} quantizes is found in {float_model}; give the ONNX model that it "
            f"was made from ({matched.unmatched[0]})"
        )
    model = replace(model, imported=matched.imported)
    scheme = load_pack("openvino").manifest.scheme
    ranges = matched.imported.ranges(scheme)
    return model, Inserter(model, scheme).insert(matched.imported.placement, ranges), matched


def distance(ir: Path, model: Model, quantized: ModelProto, samples: Iterable[Tensors]) -> Distance:
    """SQNR in dB of the outputs of ``quantized`` against those of ``ir``, both on OpenVINO.

    Where rows are chosen by value, what they are chosen from stands for these outputs
    (``placer.model.judged``), if the IR has tensors of these names.
    Raises InputError if one has more outputs than the other or less than ``MIN_SQNR_DB`` is left,
    and RunError if OpenVINO fails.
    """
    options = EngineOptions(load_pack("openvino"), shapes=dict(model.input_shapes))
    names, judged = model.graph.outputs, judged_by(model, has_copy=False)
    sums = []
    with temporary_folder() as folder, OpenVinoFactory().create(options) as engine:
        compared = set(names)
        if judged.rows is not None and has_tensors(quantized, judged.rows.sources):
            further = [name for name in judged.rows.sources if name not in names]
            written = with_further_outputs(ir, further, Path(folder))
            if written is not None:
                added = ModelProto()
                added.CopyFrom(quantized)
                add_outputs(added, further)
                ir, quantized = written, added
                names, compared = (*names, *further), set(judged.graph.outputs)
        source, converted = engine.load(ir), engine.compile(quantized, model.base_dir)
        for inputs in samples:
            expected, actual = source.run(inputs), converted.run(inputs)
            if len(expected) != len(names):
                raise InputError(
                    f"the ONNX model has {len(names)} outputs ({', '.join(names)}), {ir} has "
                    f"{len(expected)} ({', '.join(expected)}); give the ONNX model that the IR was "
                    "made from"
                )
            # The IR may call its outputs otherwise; their order is the ONNX model's.
            named = dict(zip(names, expected.values(), strict=True))
            sums.append(output_sums({n: named[n] for n in names if n in compared}, actual))
    comparison = Comparison(sums, judged.swapped)
    sqnr = comparison.sqnr
    if sqnr < MIN_SQNR_DB:
        raise InputError(
            f"with the scales of {ir}, the ONNX model's outputs agree with the IR's to {sqnr:.1f} "
            "dB only: it is another function; give the ONNX model that the IR was made from"
        )
    return Distance(sqnr, notes=comparison.notes(ir))
