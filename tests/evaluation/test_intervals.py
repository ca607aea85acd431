"""How sure a comparison of two models is, by the samples that it rests on."""

from __future__ import annotations

import numpy as np
import pytest

from placer.accuracy.channel_groups import ChannelGroup
from placer.accuracy.intervals import measures
from placer.accuracy.metrics import Comparison


def test_intervals_cover_what_other_samples_give():
    """Of 100 draws of 50 samples, about 95% of the intervals hold the SQNR of the population."""
    rng = np.random.default_rng(0)
    group = ChannelGroup("y")
    held = 0
    for _ in range(100):
        samples = [Comparison.of((group,)) for _ in range(50)]
        for sample in samples:
            exact = rng.normal(size=8)
            noise = rng.normal(size=8) / 10  # 20 dB below the signal.
            sample.add({"y": exact}, {"y": exact + noise}, None)
        (sqnr,) = (m for m in measures(samples) if m.metric == "sqnr")
        held += sqnr.interval[0] <= 20 <= sqnr.interval[1]
    assert 90 <= held <= 99


def scored(before: int, after: int, count: int) -> list[Comparison]:
    """Samples of two classes: the float model gets ``before`` right, the other one ``after``."""
    samples = [Comparison.of((ChannelGroup("y"),)) for _ in range(count)]
    right, wrong = np.array([[1.0, 0.0]]), np.array([[0.0, 1.0]])
    for place, sample in enumerate(samples):
        outputs = (right if place < n else wrong for n in (before, after))
        sample.add(*({"y": output} for output in outputs), np.array([0]))
    return samples


@pytest.mark.parametrize(
    ("metric", "before", "after", "interval"),
    [
        # The "rule of three": none of 400 wrong leaves 0.9% possible.
        ("top1", 400, 400, (0.9908, 1.0)),
        ("top1", 360, 360, (0.8663, 0.9276)),
        ("argmax_agreement", 400, 390, (0.9545, 0.9879)),
        # By hand: (0.5 - 0.5) / 402 with a standard error of sqrt(1) / 402.
        ("top1_drop", 400, 400, (-0.0049, 0.0049)),
        # By hand: 10 / 402 with a standard error of sqrt(11 - 100 / 402) / 402.
        ("top1_drop", 400, 390, (0.0089, 0.0409)),
    ],
)
def test_the_interval_of_a_share_is_not_empty_where_all_samples_agree(
    metric: str, before: int, after: int, interval: tuple[float, float]
):
    (found,) = (m for m in measures(scored(before, after, 400)) if m.metric == metric)
    assert found.interval == pytest.approx(interval, abs=1e-4)


def test_the_positions_of_one_sample_are_one_observation_where_all_agree():
    """Four images of 100 pixels each tell less than 400 images: one of four may yet be wrong."""
    sample = Comparison.of((ChannelGroup("y"),))
    scores = np.tile([1.0, 0.0], (100, 1))
    sample.add({"y": scores}, {"y": scores}, None)
    (found,) = (m for m in measures([sample] * 4) if m.metric == "argmax_agreement")
    assert found.interval == pytest.approx((0.3976, 1.0), abs=1e-4)


def test_one_wrong_position_does_not_make_an_interval_narrower():
    """A bootstrap of four samples draws the one that is not all right in two of three cases."""
    right, wrong = Comparison.of((ChannelGroup("y"),)), Comparison.of((ChannelGroup("y"),))
    scores = np.tile([1.0, 0.0], (100, 1))
    other = scores.copy()
    other[0] = [0.0, 1.0]
    right.add({"y": scores}, {"y": scores}, None)
    wrong.add({"y": scores}, {"y": other}, None)
    all_but_one = [right, right, right, wrong]
    (found,) = (m for m in measures(all_but_one) if m.metric == "argmax_agreement")
    assert found.value == 0.9975
    assert found.interval == pytest.approx((0.3976, 1.0), abs=1e-4)


def test_one_sample_has_no_interval():
    sample = Comparison.of((ChannelGroup("y"),))
    sample.add({"y": np.ones(3)}, {"y": np.ones(3) * 1.1}, None)
    assert all(one.interval is None for one in measures([sample]))


def test_where_nothing_compares_there_is_no_angle():
    sample = Comparison.of((ChannelGroup("y"),))
    sample.add({"y": np.full(3, np.nan)}, {"y": np.full(3, np.nan)}, None)
    assert [one.metric for one in measures([sample]) if np.isnan(one.value)] == [
        "sqnr",
        "cosine",
        "max_abs",
    ]


def test_two_samples_have_an_interval_between_both():
    samples = [Comparison.of((ChannelGroup("y"),)) for _ in range(2)]
    for sample, error in zip(samples, (0.1, 0.01), strict=True):
        sample.add({"y": np.ones(3)}, {"y": np.ones(3) * (1 + error)}, None)
    (sqnr,) = (one for one in measures(samples) if one.metric == "sqnr")
    assert sqnr.interval == pytest.approx((20, 40))
