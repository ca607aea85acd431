"""How fast the quantized file that was given runs beside the result that takes its place."""

from __future__ import annotations

import logging

from placer.common.statistics import Ratio, paired_ratio
from placer.engines.times import measured_seconds
from placer.errors import RunError
from placer.model.load import load_as_is
from placer.optimizer.observer import Observer
from placer.optimizer.outcome.finals import Final
from placer.optimizer.setup.task import Task
from placer.optimizer.setup.trial_setup import TrialSetup
from placer.search.records import TrialRecord

log = logging.getLogger(__name__)


def ratio_to_given(
    task: Task, setup: TrialSetup, final: Final[TrialRecord] | None, observer: Observer
) -> Ratio | None:
    """The result's time over that of the quantized file that the run was given, on its engine.

    A search starts from the float model, which need not be faster than the file; where the file is
    the faster one, ``observer`` is warned. None without such a file or a result, where times are
    estimates, and where the engine refuses the file.
    """
    if final is None or not task.from_quantized or task.engine.estimated:
        return None
    result = final.compiled if final.is_faster else setup.baseline
    path = task.model.path
    try:
        file = load_as_is(path, task.model.input_shapes)
        given = task.engine.compile(file.proto, file.base_dir)
        seconds = measured_seconds(
            task.engine, [result, given], task.inputs, task.preset.confirm_rounds
        )
    except RunError as error:
        log.info("the file that was given is not measured: %s", error)
        return None
    ratio = paired_ratio(seconds[:, 0], seconds[:, 1])
    if ratio.low > 1:
        observer.warn(
            f"the result takes {ratio.median:.3g} times as long as {path}, the quantized file that "
            f"was given (95% interval {ratio.low:.3g} to {ratio.high:.3g}); keep that file unless "
            "you want the result's accuracy"
        )
    return ratio
