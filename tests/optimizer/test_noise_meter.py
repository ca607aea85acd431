"""On which samples noise is measured beside the trials."""

from collections.abc import Iterator, Mapping

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from placer.accuracy.evaluator import Evaluator
from placer.graph.text import graph_of_text
from placer.optimizer.setup.noise_meter import FewSamples, draw, sizes_of

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


def test_what_samples_add_to_the_noise_is_that_of_the_part_where_it_is_the_most():
    y = np.array([[0.0, 10], [5, 10], [1, 10], [0, 10]])
    z = np.array([[0.2, 1.0], [0, 1], [0, 1], [0, 1]])
    assert sizes_of({"y": y, "z": z}, 4).tolist() == [0.2 / 4, 5 / 40, 1 / 40, 0]
    assert sizes_of({}, 2).tolist() == [0, 0]


def test_a_sample_that_overflows_is_taken():
    sums = np.column_stack([[1.0] * 9 + [np.inf], np.ones(10)])
    chosen, weights = draw(sizes_of({"y": sums}, 10), 4)
    assert 9 in chosen
    assert weights[chosen.tolist().index(9)] == 1


@settings(deadline=None, max_examples=50)
@given(
    sizes=st.lists(st.floats(0, 1e6), min_size=4, max_size=24),
    errors=st.lists(st.floats(0, 1), min_size=24, max_size=24),
    count=st.integers(1, 4),
)
def test_noise_on_few_samples_expects_that_on_all(sizes, errors, count):
    """The mean over all that may be drawn is the sum over all samples, whatever the errors are.

    And no sample counts for more than twice what it does in a simple random choice.
    """
    own, found = np.array(errors[: len(sizes)]), []
    for start in (np.arange(400) + 0.5) / 400:
        chosen, weights = draw(np.array(sizes), count, start)
        assert len(set(chosen.tolist())) == count
        assert weights.max() <= 2 * len(sizes) / count + 1e-6
        found.append(weights @ own[chosen])
    # One start of 400 is on either side of each of the places where the choice changes.
    assert np.mean(found) == pytest.approx(own.sum(), abs=2 * len(sizes) * len(sizes) / 400)


def test_without_errors_all_samples_are_as_likely():
    chosen, weights = draw(np.zeros(12), 4)
    assert weights.tolist() == [3.0] * 4
    assert np.diff(chosen).tolist() == [3] * 3


def test_noise_is_told_in_terms_of_all_samples():
    """A sample that stands for two; the signal is that of all."""
    samples = Data(2.0, 3.0, 4.5)
    evaluator = Evaluator(graph_of_text(NET), (), samples, floats)
    few = FewSamples(evaluator.on(Data(3.0, 4.5), [1, 2]), np.array([2.0, 1.0]))
    assert few.noises(rounded) == {"y": (2 * 4 + 1) / 133, "z": 1 / 133}
    assert few.noises(lambda inputs: {"y": inputs["x"] * np.nan, "z": -inputs["x"]}) == {
        "y": np.inf,
        "z": 0,
    }
