"""What is made of the time between two events, without a GPU: the events are stand-ins."""

import numpy as np
import pytest

from placer.engines.cuda import timing
from placer.engines.cuda.timing import Effort, Launch, time_launches


class StandIn:
    """A stream, on which time passes as launches say, or an event that remembers when it was."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def __enter__(self) -> "StandIn":
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def synchronize(self) -> None:
        pass

    def record(self, stream: "StandIn") -> None:
        self.seconds = stream.seconds

    def seconds_since(self, earlier: "StandIn") -> float:
        return self.seconds - earlier.seconds


def test_figures_are_per_launch_however_many_a_batch_has(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(timing, "Stream", StandIn)
    monkeypatch.setattr(timing, "Event", StandIn)
    counts = [0, 0]

    def launching(index: int, seconds: float) -> Launch:
        def launch(stream: StandIn) -> None:
            counts[index] += 1
            stream.seconds += seconds

        return launch

    launches = [launching(0, 0.25), launching(1, 0.5)]  # No rounding in sums of these.
    effort = Effort(warm_up_s=0.0, interval_s=5e-3, graphs=False)
    timed = time_launches(launches, 3, effort)
    assert np.array_equal(timed.seconds, [[0.25, 0.5]] * 3)
    # Beside 11 before the batches and one before each there were many.
    assert min(counts) > 11 + 3 * 10
