"""Recovery of one placement: samples to learn from and to judge on, and what is kept."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from placer.accuracy.evaluation import Run
from placer.accuracy.evaluator import Evaluator
from placer.accuracy.metrics import finite
from placer.calibration.dataset import Dataset
from placer.engines.onnxruntime.engine import OnnxRuntimeModel
from placer.errors import InputError
from placer.graph import Graph
from placer.model import Model
from placer.model.judged import Judged, judged_by, with_outputs
from placer.quantization import Placement, Scheme
from placer.recovery.crossfit import mean_signals, noises_in, score
from placer.recovery.methods import mean_noises
from placer.recovery.saturation import before_saturation
from placer.recovery.state import State, Work
from placer.recovery.steps import STEPS, Attempt, Judge, Noises, try_steps
from placer.recovery.walk import peak_bytes
from placer.results.parts import RecoveryPart, RecoveryStepPart

# Samples that steps learn from, and that they are judged on: at most so many for each of the
# preset's ``noise_samples``, and half of the calibration data.
_TIMES_NOISE_SAMPLES = 8
_LEAST_SAMPLES = 8
# Samples that the variants of one step are compared on.
_LOSS_SAMPLES = 16
# What the float tensors of the samples learned from may take at once, as they go through the
# network together; corrections keep those of the candidate beside them.
_BUDGET_BYTES = 2**30
# A seed of its own: folders are often sorted by class, and the split is not to follow that.
_SEED = 0x5EC0


@dataclass(frozen=True, eq=False)
class StateEvaluator:
    """Judges states by what a network computes before its outputs saturate.

    ``by``: what the network is judged by. ``graph``: with its outputs, or what stands for them.
    ``judged``: with what is judged for outputs. ``run_of``: the candidate of a state, which has
    outputs beside its own; raises RunError if it cannot be run.
    """

    by: Judged
    graph: Graph
    judged: Graph
    reference: Run
    run_of: Callable[[State], Run]

    @staticmethod
    def of(model: Model, run_of: Callable[[State], Run], threads: int) -> StateEvaluator:
        """Errors are those to ``model`` on ONNX Runtime."""
        by = judged_by(model)
        judged = before_saturation(by.graph)
        seen = with_outputs(by.model, judged.outputs)
        reference = OnnxRuntimeModel(seen.proto, model.base_dir, threads).run
        return StateEvaluator(by, by.graph, judged, reference, run_of)

    def of_outputs(self) -> StateEvaluator:
        """Judges the network's own outputs."""
        return replace(self, judged=self.graph)

    def judge(self, data: Dataset) -> Judge:
        """Tells the noises of a state on ``data``, by sample."""
        batches = self.batches(data)
        return lambda state: self.noises(state, batches)

    def judge_outputs(self, data: Dataset) -> Judge | None:
        """As ``judge``, of the network's own outputs; None if that is what ``judge`` tells."""
        is_same = set(self.judged.outputs) == set(self.graph.outputs)
        return None if is_same else self.of_outputs().judge(data)

    def batches(self, data: Dataset) -> list[Evaluator]:
        """One for each sample."""
        return [
            Evaluator(self.judged, (), data.choose([index]), self.reference, tell_silent=False)
            for index in range(len(data))
        ]

    def noises(self, state: State, batches: Sequence[Evaluator]) -> Noises:
        """By batch, over the mean signal of all; raises RunError if the candidate cannot be run."""
        seen = with_outputs(self.by.of(state.model), self.judged.outputs)
        run = self.run_of(State(seen, state.reference, state.ranges))
        signals = mean_signals(batches)
        return [noises_in(batch, run, signals) for batch in batches]


@dataclass(frozen=True, eq=False)
class Target:
    """What is recovered: a placement of ``state`` under a scheme. ``fixed``: ranges that stay."""

    state: State
    placement: Placement
    scheme: Scheme
    fixed: frozenset[str] = frozenset()


def steps_of(asked: Sequence[str]) -> tuple[str, ...]:
    """The steps that ``asked`` stands for, in the order in which they are tried.

    Raises InputError for a step that there is not, and for none or auto beside others.
    """
    unknown = sorted({*asked} - {*STEPS, "auto", "none"})
    if unknown:
        raise InputError(
            f"unknown recover '{unknown[0]}'; use one of: auto, none, {', '.join(STEPS)}"
        )
    if len(asked) > 1 and {"none", "auto"} & set(asked):
        raise InputError("`recover` has none or auto beside other steps; give either alone")
    return tuple(name for name in STEPS if name in asked or "auto" in asked)


def split(data: Dataset, graph: Graph, noise_samples: int) -> tuple[Dataset, Dataset]:
    """Samples to learn from, and as many to judge on."""
    most = min(len(data) // 2, _TIMES_NOISE_SAMPLES * noise_samples)
    most = max(1, min(most, _BUDGET_BYTES // max(1, peak_bytes(graph))))
    order = np.random.default_rng(_SEED).permutation(len(data)).tolist()
    return data.choose(order[:most]), data.choose(order[most : 2 * most])


def too_little(data: Dataset) -> str:
    """Why ``data`` recovers nothing; empty if it may."""
    if not data.synthetic and len(data) >= _LEAST_SAMPLES:
        return ""
    what = "random inputs" if data.synthetic else f"{len(data)} calibration samples"
    return f"{what} tell too little; give `data` of {_LEAST_SAMPLES} or more"


def recover_state(
    target: Target,
    evaluator: StateEvaluator,
    samples: tuple[Dataset, Dataset],
    steps: Sequence[str],
) -> tuple[State, RecoveryPart]:
    """The state behind what helps of ``steps``; ``samples``: see ``split``."""
    learned, held = samples
    few = evaluator.batches(learned.limit(_LOSS_SAMPLES))

    def loss(state: State) -> float:
        return -score(mean_noises(evaluator.noises(state, few)))

    work = Work(target.placement, target.scheme, learned, loss, target.fixed)
    state, attempts = try_steps(
        target.state, steps, work, evaluator.judge(held), outputs=evaluator.judge_outputs(held)
    )
    kept = any(attempt.kept for attempt in attempts)
    return state, RecoveryPart(
        samples=len(learned),
        held_back=len(held),
        kept=kept,
        reason="" if kept else "no step helps on samples held back",
        steps=[_step_part(attempt) for attempt in attempts],
    )


def nothing(reason: str) -> RecoveryPart:
    """No step was tried."""
    return RecoveryPart(samples=0, held_back=0, kept=False, reason=reason, steps=[])


def _step_part(attempt: Attempt) -> RecoveryStepPart:
    held_back = None
    if attempt.before is not None and attempt.after is not None:
        held_back = [finite(attempt.before), finite(attempt.after)]
    return RecoveryStepPart(
        step=attempt.step,
        kept=attempt.kept,
        layers=attempt.layers,
        held_back_sqnr=held_back,
        reason=attempt.reason,
    )
