"""Whether a normalised float model is still the function of the file that it was made from.

Everything later is compared with the normalised model, so an error of normalisation would be seen
nowhere else.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

import numpy as np
from onnx import ModelProto, TensorProto

from placer.accuracy.metrics import GroupSums
from placer.calibration.dataset import Dataset
from placer.engines.base import Tensors
from placer.engines.half_precision import HalfPrecisionModel
from placer.errors import InputError, RunError
from placer.graph.node_names import node_title
from placer.graph.randomness import random_outputs
from placer.importing.source_model import NOTHING, Source, inputs_of, is_float
from placer.model import Model
from placer.model.judged import add_outputs, judged_by

log = logging.getLogger(__name__)

# On how many samples the two are compared: what is wrong is wrong on any.
SAMPLES = 1
# Rounding in another order left 87 dB and more of 24 float networks. Half precision rounds to 11
# bits, bfloat16 to 8, at each node.
LEAST_DB = 40.0
LEAST_HALF_DB = 20.0
# What no ratio is computed of: an output of zeros has no signal.
_RELATIVE, _ABSOLUTE = 1e-3, 1e-6


def check_same_function(model: Model, data: Dataset) -> str | None:
    """Raise InputError if the float ``model`` computes something else than its file on ``data``.

    Returns a sentence on why they were not compared, if ONNX Runtime does not run the file or it
    has no float output, or on outputs that are not finite there; None otherwise, also where
    normalising changed nothing. Raises RunError if it refuses ``model``.
    """
    if model.imported is not None or not model.notes:
        return None
    samples = list(inputs_of(model, data.limit(SAMPLES)))
    try:
        wanted = _of_file(model, samples)
    except (RunError, InputError) as error:
        return f"what placer makes of {model.path} is not compared with the file: {error}"
    judged = judged_by(model, has_copy=False).model.proto
    run = HalfPrecisionModel(judged, model.base_dir, threads=1).run
    computed = [run(inputs) for inputs in samples]
    limit = LEAST_HALF_DB if _has_half(model) else LEAST_DB
    for name in wanted[0]:
        kept = _kept([w[name] for w in wanted], [c.get(name) for c in computed])
        if kept < limit:
            raise InputError(
                f"{model.path}: the model that placer makes of it computes something else: output "
                f"'{name}' keeps {kept:.1f} dB of the file's{_where(model, samples[0], limit)}; "
                "export the model with a recent opset, and please report this"
            )
    text = f"what placer makes of {model.path} is not compared with the file"
    if not wanted[0]:
        return f"{text}: {NOTHING}"
    unknown = [name for name in wanted[0] if not any(_has_finite(w[name]) for w in wanted)]
    if not unknown:
        return None
    at = f"{text} at {', '.join(unknown)}"
    return f"{at}: no value there is finite on the input that was tried"


def _has_finite(values: np.ndarray) -> bool:
    """Whether there is something to compare, or nothing at all."""
    return values.size == 0 or bool(np.isfinite(values).any())


def _of_file(model: Model, samples: Sequence[Tensors]) -> list[Tensors]:
    """The float outputs of the file that are not drawn at random; its session is gone then."""
    source = Source.of(model)
    left_out = source.swapped | random_outputs(model.graph).keys()
    return [
        {
            name: values
            for name, values in source.run(inputs).items()
            if name in source.outputs - left_out and is_float(values)
        }
        for inputs in samples
    ]


def _kept(wanted: Sequence[np.ndarray], computed: Sequence[np.ndarray | None]) -> float:
    """SQNR in dB over all samples, of values that are finite in the file; infinite if equal."""
    sums = GroupSums()
    for one, other in zip(wanted, computed, strict=True):
        if other is None or other.shape != one.shape:
            return -np.inf
        finite = np.isfinite(one)
        first, second = one[finite], other[finite]
        is_equal = np.allclose(second, first, _RELATIVE, _ABSOLUTE)
        sums.add(first, first if is_equal else second)
    return sums.sqnr


def _where(model: Model, inputs: Tensors, limit: float) -> str:
    """Which node is the first whose values differ, in half a sentence; nothing if unknown."""
    try:
        source = Source.of(model)
        written = {tensor for node in source.proto.graph.node for tensor in node.output if tensor}
        nodes = [(n, t) for n in model.proto.graph.node for t in n.output if t in written]
        names = [tensor for _, tensor in nodes]
        wanted = _run_with(source.proto, names, model, inputs)
        computed = _run_with(model.proto, names, model, inputs)
    except (RunError, InputError) as error:
        log.info("no node is named: %s", error)
        return ""
    for node, tensor in nodes:
        if is_float(wanted[tensor]) and _kept([wanted[tensor]], [computed[tensor]]) < limit:
            return f", and values differ from {node_title(node)} on"
    return ""


def _run_with(proto: ModelProto, names: Sequence[str], model: Model, inputs: Tensors) -> Tensors:
    seen = ModelProto()
    seen.CopyFrom(proto)
    add_outputs(seen, names)
    return HalfPrecisionModel(seen, model.base_dir, threads=1).run(inputs)


def _has_half(model: Model) -> bool:
    types = (model.graph.type_of(tensor) for node in model.graph.nodes for tensor in node.outputs)
    return any(one.dtype in (TensorProto.FLOAT16, TensorProto.BFLOAT16) for one in types)
