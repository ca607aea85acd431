"""On which samples noise is measured beside the trials."""

from collections.abc import Iterator, Mapping

import numpy as np
import pytest

from placer.accuracy.evaluator import Evaluator
from placer.graph.text import graph_of_text
from placer.optimizer.setup.noise_meter import factor_of, noisiest

NET = """
<ir_version: 10, opset_import: ["" : 21]>
net (float[1, 4] x) => (float[1, 4] y, float[1, 4] z) { y = Relu(x) z = Neg(x) }
"""


class Data:
    """Samples of ones, twos and so on."""

    def __init__(self, *values: float) -> None:
        self._values = values

    def __iter__(self) -> Iterator["Data.Sample"]:
        return (Data.Sample(value) for value in self._values)

    class Sample:
        labels = None
        origin = "a sample of the test"

        def __init__(self, value: float) -> None:
            self.inputs = {"x": np.full((1, 4), value, np.float32)}


def floats(inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    return {"y": np.maximum(inputs["x"], 0), "z": -inputs["x"]}


def rounded(inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """A step of 2 in y and of 1 in z."""
    return {"y": 2 * np.round(floats(inputs)["y"] / 2), "z": np.round(-inputs["x"])}


def test_errors_and_signals_of_samples_sum_up_to_the_noise_of_all():
    evaluator = Evaluator(graph_of_text(NET), (), Data(2.0, 3.0, 4.5), floats)
    sums = evaluator.by_sample(rounded)
    assert sums["y"].tolist() == [[0, 16], [4, 36], [1, 81]]
    assert sums["z"].tolist() == [[0, 16], [0, 36], [1, 81]]
    noises = evaluator.evaluate(rounded).noises
    assert noises == {part: own[:, 0].sum() / own[:, 1].sum() for part, own in sums.items()}


def test_the_samples_with_most_of_the_noise_of_any_part_are_taken():
    y = np.array([[0.0, 10], [5, 10], [1, 10], [0, 10]])
    z = np.array([[0.2, 1.0], [0, 1], [0, 1], [0, 1]])
    assert noisiest({"y": y, "z": z}, 2).tolist() == [0, 1]
    assert noisiest({"y": y}, 2).tolist() == [1, 2]


def test_a_sample_that_overflows_is_the_noisiest():
    sums = np.array([[1.0, 1.0], [np.inf, 1], [np.nan, 1], [2, 1]])
    assert noisiest({"y": sums}, 2).tolist() == [1, 2]


@pytest.mark.parametrize(
    ("errors", "factor"), [([6.0, 2, 0, 0], 0.5), ([0.0, 0, 0, 1], 1.0), ([np.inf, 1, 1, 1], 1.0)]
)
def test_noise_on_all_samples_is_told_by_that_on_the_noisy_ones(errors: list[float], factor: float):
    """Where these have none, or no finite one, it is taken as it is."""
    sums = np.column_stack([errors, np.ones(4)])
    assert factor_of(sums, np.array([0, 1])) == factor
