"""Accuracy recovered in the model that a placement is applied to."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from placer.accuracy.evaluation import Run
from placer.apply.candidate import Scales, quantized_model
from placer.apply.transfer import Transferred
from placer.calibration.dataset import Dataset
from placer.engines.onnxruntime.engine import OnnxRuntimeModel
from placer.model import Model
from placer.optimizer.options.presets import load_preset
from placer.quantization import Scheme
from placer.recovery.constants import same_layers
from placer.recovery.recover import (
    StateEvaluator,
    Target,
    nothing,
    recover_state,
    split,
    too_little,
)
from placer.recovery.state import State
from placer.results.parts import RecoveryPart


@dataclass(frozen=True, eq=False)
class Recovered:
    """A model with other constants, its scales, and what each step did; None if none was tried."""

    model: Model
    scales: Scales
    part: RecoveryPart | None


def recover(
    model: Model,
    transferred: Transferred,
    scales: Scales,
    scheme: Scheme,
    data: Dataset,
    steps: Sequence[str],
) -> Recovered:
    """Try ``steps`` on half of ``data``; what helps on the other half stays.

    Candidates run on ONNX Runtime, what is not quantized in float. Raises RunError if ONNX Runtime
    refuses ``model``.
    """
    reason = too_little(data)
    if reason:
        return Recovered(model, scales, nothing(reason))

    def run_of(state: State) -> Run:
        tried = replace(scales, ranges=state.ranges)
        proto = quantized_model(state.model, transferred.placement, tried, scheme)
        return OnnxRuntimeModel(proto, model.base_dir, threads=1).run

    imported = model.imported.activations if model.imported else ()
    fixed = frozenset([*transferred.pinned, *imported])
    target = Target(State(model, model, scales.ranges), transferred.placement, scheme, fixed)
    samples = split(data, model.graph, load_preset("default").noise_samples)
    state, part = recover_state(target, StateEvaluator.of(model, run_of, 1), samples, steps)
    if not part.kept:
        return Recovered(model, scales, part)
    tried = replace(scales, ranges=state.ranges)
    before = quantized_model(model, transferred.placement, scales, scheme)
    if not same_layers(before, quantized_model(state.model, transferred.placement, tried, scheme)):
        reason = "what was changed would change the layers, too"
        return Recovered(model, scales, part.model_copy(update={"kept": False, "reason": reason}))
    return Recovered(state.model, tried, part)
