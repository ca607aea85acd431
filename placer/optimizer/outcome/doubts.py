"""Doubts about a result: little data, estimates that cannot tell, rounds that disagree."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from placer.accuracy.sanity import DOUBTFUL_SQNR_DB
from placer.common.listed import in_quotes
from placer.engines.estimated.error import EstimateError
from placer.errors import RunError
from placer.graph.dependence import data_tensors
from placer.optimizer.outcome.finals import Final
from placer.optimizer.outcome.ties import tie_with_default
from placer.optimizer.setup.task import Task
from placer.optimizer.setup.trial_setup import TrialSetup
from placer.quantization import Placement
from placer.search.records import TrialRecord

log = logging.getLogger(__name__)

# Fewer samples may well miss what the network meets in use.
FEW_SAMPLES = 8


def calibration_warnings(task: Task, setup: TrialSetup, placement: Placement) -> list[str]:
    """Sentences on ranges of ``placement`` that its calibration data say little of."""
    sentences = list(setup.calibration.shortened)
    count = setup.calibration.samples
    if not task.calibration_data.synthetic and count < FEW_SAMPLES:
        sentences.append(
            f"ranges rest on {count} calibration samples only; give at least {FEW_SAMPLES}"
        )
    tensors = sorted({edge.tensor for edge in placement.edges} & setup.ranges.keys())
    single = [name for name in tensors if setup.ranges[name].low == setup.ranges[name].high]
    # What comes from shapes alone, such as an LSTM's first state, is one value in use, too.
    from_data = data_tensors(task.model.graph) if single else frozenset()
    constant = [name for name in single if name in from_data]
    if constant:
        sentences.append(
            "one value only in all calibration samples: "
            f"{in_quotes(constant)}; "
            "give samples in which these tensors vary, or their range is a guess"
        )
    return sentences


def output_warnings(task: Task, setup: TrialSetup) -> list[str]:
    """A sentence on float outputs that do not depend on the data, where no candidate is wrong."""
    count = len({digest.inputs for digest in task.evaluation_data.digests})
    if count == 1 or not setup.evaluator.is_constant:
        return []
    return [
        f"the float model's outputs are the same on all {len(task.evaluation_data)} samples, so "
        "gates say nothing about accuracy; check the data, how it is scaled, and the model"
    ]


def engine_warnings(task: Task, setup: TrialSetup) -> list[str]:
    """A sentence on a float model that the engine computes unlike ONNX Runtime."""
    try:
        sqnr, output = setup.candidates.agreement(task.float_placement, setup.baseline, task.inputs)
    except RunError as error:
        log.info("the float model is not compared with ONNX Runtime: %s", error)
        return []
    if sqnr >= DOUBTFUL_SQNR_DB:
        return []
    return [
        f"output '{output}' of the float model on {task.engine.name} agrees with ONNX Runtime's to "
        f"{sqnr:.1f} dB only; gates compare with what {task.engine.name} computes, so check that"
    ]


def precision_warnings(setup: TrialSetup) -> list[str]:
    """A sentence on the nodes that stay float32 whatever ``base`` says."""
    kept = setup.candidates.kept_float
    if not kept:
        return []
    reason, verb = next(iter(kept.values())), "stay" if len(kept) > 1 else "stays"
    return [f"node {in_quotes([*kept], 1)} {verb} float32: {reason}"]


def final_warnings(
    task: Task, records: Sequence[TrialRecord], final: Final[TrialRecord] | None
) -> list[str]:
    """Sentences on a final that ties with the default placement, or that is not clearly faster."""
    if final is None:
        return []
    sentences = []
    tie = tie_with_default(task, records)
    if tie is not None and final.entry.number == tie.default.number:
        sentences.append(str(tie))
    doubt = doubt_sentence(task, final)
    return sentences if doubt is None else [*sentences, doubt]


def doubt_sentence(task: Task, final: Final[TrialRecord]) -> str | None:
    """Why the float model is the result, or that an estimate cannot tell it from a faster one."""
    if not final.is_faster:
        return no_difference_sentence(task, final)
    if not within_error(task, final):
        return None
    low, high = _speedup_interval(task, final)
    return (
        f"the result is estimated to be {1 / final.ratio.median:.3f} times as fast as the float "
        f"model (80% interval {low:.2f} to {high:.2f}), too close to 1 for the estimate to tell; "
        "measure both"
    )


def within_error(task: Task, final: Final[TrialRecord]) -> bool:
    """Whether the interval of an estimated speed-up reaches 1; never where latency is measured."""
    return task.engine.estimated and _speedup_interval(task, final)[0] <= 1


def _speedup_interval(task: Task, final: Final[TrialRecord]) -> list[float]:
    ratio = final.ratio
    return EstimateError.of(task.engine).interval(1 / ratio.high, 1 / ratio.low)


def no_difference_sentence(task: Task, final: Final[TrialRecord]) -> str:
    """Why the float model is the result."""
    comparison = _compared(task, final)
    if final.inconclusive:
        return (
            "the measurements that were to confirm the fastest candidate disagree too much, also "
            f"when repeated: {comparison}; the float model is kept; run the same command on a "
            "quiet machine"
        )
    if task.request.objective == "throughput":
        does = "makes"
    else:
        does = "is estimated to take" if task.engine.estimated else "takes"
    return (
        f"the fastest candidate that meets the gates {does} {comparison}, which is not a "
        "clear gain; the float model is the result"
    )


def _compared(task: Task, final: Final[TrialRecord]) -> str:
    """The winner's latency or throughput as a part of the float model's, with its interval."""
    ratio = final.ratio
    share, what = ratio.median, "time"
    low, high = EstimateError.of(task.engine).interval(ratio.low, ratio.high)
    if task.request.objective == "throughput":
        share, low, high = 1 / ratio.median, 1 / high, 1 / low
        what = "inferences per second"
    interval = f"{80 if task.engine.estimated else 95}% interval {low:.3f} to {high:.3f}"
    interval = f", {interval}" if final.inconclusive else f" ({interval})"
    return f"{share:.3f} of the float model's {what}{interval}"
