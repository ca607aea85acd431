"""Metrics: exact sums over batches, and the parts of an output that count by themselves."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from placer.accuracy.channel_groups import ChannelGroup, Span, channel_groups
from placer.accuracy.metrics import ClassCounts, GroupSums, decibels, finite
from placer.graph.text import graph_of_text


def sums(reference: list[float], candidate: list[float], dtype: type = np.float32) -> GroupSums:
    found = GroupSums()
    found.add(np.array(reference, dtype), np.array(candidate, dtype))
    return found


def spans_of(text: str) -> list[tuple[Span, ...]]:
    """The parts of the graph's outputs in order, () for a whole output."""
    graph = graph_of_text(f'<ir_version: 9, opset_import: ["": 17]> {text}')
    return [group.spans for group in channel_groups(graph)]


@pytest.mark.parametrize(
    ("reference", "candidate", "sqnr", "cosine", "max_abs"),
    [
        ([3, 4], [3, 4], math.inf, 1.0, 0.0),
        ([3, 4], [3, 3], 10 * math.log10(25), 21 / math.sqrt(25 * 18), 1.0),
        ([3, 4], [0, 0], 0.0, 0.0, 4.0),
        ([0, 0], [0, 0], math.inf, 1.0, 0.0),
        ([0, 0], [1, 0], -math.inf, 0.0, 1.0),
    ],
)
def test_metrics_of_a_signal(
    reference: list[float], candidate: list[float], sqnr: float, cosine: float, max_abs: float
):
    found = sums(reference, candidate)
    assert found.sqnr == pytest.approx(sqnr)
    assert found.cosine == pytest.approx(cosine)
    assert found.max_abs == max_abs


def test_half_precision_is_summed_in_double():
    found = sums([60000] * 100, [59968] * 100, np.float16)
    assert found.reference == 100 * 60000.0**2
    assert found.max_abs == 32.0


def test_the_sign_of_zero_decibels():
    assert math.copysign(1, decibels(1.0)) == 1


@given(st.lists(st.integers(1, 5), min_size=1, max_size=4), st.integers(0, 1000))
def test_batches_add_up_to_the_whole(sizes: list[int], seed: int):
    rng = np.random.default_rng(seed)
    reference = rng.standard_normal((sum(sizes), 3))
    candidate = reference + rng.normal(0, 0.5, reference.shape)
    labels = rng.integers(0, 3, len(reference))
    parts, whole = GroupSums(), GroupSums()
    part_counts, whole_counts = ClassCounts(), ClassCounts()
    whole.add(reference, candidate)
    whole_counts.add(reference, candidate, labels)
    start = 0
    for size in sizes:
        batch = slice(start, start + size)
        parts.add(reference[batch], candidate[batch])
        part_counts.add(reference[batch], candidate[batch], labels[batch])
        start += size
    assert parts.sqnr == pytest.approx(whole.sqnr)
    assert parts.cosine == pytest.approx(whole.cosine)
    assert parts.max_abs == whole.max_abs
    assert part_counts == whole_counts


@given(st.integers(0, 1000))
def test_the_worst_part_is_never_better_than_the_whole(seed: int):
    rng = np.random.default_rng(seed)
    reference = rng.standard_normal((2, 6)) * [320, 320, 320, 1, 1, 1]
    candidate = reference + rng.standard_normal((2, 6))
    found = []
    for group in (
        ChannelGroup("o"),
        ChannelGroup("o", (Span(1, 0, 3),)),
        ChannelGroup("o", (Span(1, 3, 6),)),
    ):
        part = GroupSums()
        part.add(group.cut(reference), group.cut(candidate))
        found.append(part.sqnr)
    assert min(found[1:]) <= found[0] + 1e-9


def test_classes_lie_along_the_last_axis():
    reference = np.array([[[1, 2], [4, 3], [0, 9]]], np.float32)
    candidate = np.array([[[1, 2], [3, 4], [0, 9]]], np.float32)
    counts = ClassCounts()
    counts.add(reference, candidate, np.array([[1, 0, 0]]))
    assert counts.agreement == 2 / 3
    assert counts.top1 == 1 / 3
    assert counts.top1_drop == 1 / 3


@pytest.mark.parametrize(
    ("scores", "agreement"),
    [
        ([0, 1], 1.0),
        ([0, math.nan], 0.0),
        ([0, math.inf], 0.0),
        ([-math.inf, 1], 1.0),  # a masked class
        ([-math.inf, -math.inf], 0.0),
    ],
)
def test_a_best_score_that_is_not_finite_names_no_class(scores: list[float], agreement: float):
    counts = ClassCounts()
    counts.add(np.array([[0, 1]], np.float32), np.array([scores], np.float32), None)
    assert counts.agreement == agreement


def test_outputs_without_class_axis_have_no_agreement():
    counts = ClassCounts()
    for shape in [(), (4,), (4, 0)]:
        counts.add(np.zeros(shape, np.float32), np.zeros(shape, np.float32), None)
    assert math.isnan(counts.agreement)


def test_heads_are_found_behind_transpose_and_scaling():
    assert spans_of("""
    g (float[1,4,10] boxes, float[1,2,10] scores) => (float[1,10,6] out) <float two = {2.0}> {
      scaled = Mul(boxes, two)
      probabilities = Sigmoid(scores)
      joined = Concat<axis = 1>(scaled, probabilities)
      half = Div(joined, two)
      out = Transpose<perm = [0, 2, 1]>(half)
    }
    """) == [(), (Span(2, 0, 4),), (Span(2, 4, 6),)]


def test_concats_of_concats_along_one_axis_are_taken_apart():
    assert spans_of("""
    g (float[1,2,4] a, float[1,3,4] b, float[1,1,4] c) => (float[1,6,4] out) {
      ab = Concat<axis = 1>(a, b)
      r = Relu(ab)
      out = Concat<axis = -2>(r, c)
    }
    """) == [(), (Span(1, 0, 2),), (Span(1, 2, 5),), (Span(1, 5, 6),)]


def test_heads_within_strides_as_yolox_joins_them():
    # Per stride, boxes and scores by channel; the strides by anchor.
    assert spans_of("""
    g (float[1,4,2,2] box8, float[1,3,2,2] score8, float[1,4,1,1] box16, float[1,3,1,1] score16)
    => (float[1,5,7] out) <int64[3] flat = {1, 7, -1}> {
      stride8 = Concat<axis = 1>(box8, score8)
      flat8 = Reshape(stride8, flat)
      stride16 = Concat<axis = 1>(box16, score16)
      flat16 = Reshape(stride16, flat)
      joined = Concat<axis = 2>(flat8, flat16)
      out = Transpose<perm = [0, 2, 1]>(joined)
    }
    """) == [
        (),
        (Span(1, 0, 4), Span(2, 0, 4)),
        (Span(1, 0, 4), Span(2, 4, 7)),
        (Span(1, 4, 5), Span(2, 0, 4)),
        (Span(1, 4, 5), Span(2, 4, 7)),
    ]


def test_heads_along_the_last_axis_as_yolov5_joins_them():
    """ONNX Runtime issue 14233: all scores were 0, which boxes of hundreds hide in the whole."""
    assert spans_of("""
    g (float[1,3,2,2,4] box8, float[1,3,2,2,5] score8, float[1,3,1,1,4] box16,
       float[1,3,1,1,5] score16) => (float[1,15,9] out) <int64[3] flat = {1, -1, 9}> {
      stride8 = Concat<axis = -1>(box8, score8)
      flat8 = Reshape(stride8, flat)
      stride16 = Concat<axis = -1>(box16, score16)
      flat16 = Reshape(stride16, flat)
      out = Concat<axis = 1>(flat8, flat16)
    }
    """) == [
        (),
        (Span(1, 0, 12), Span(2, 0, 4)),
        (Span(1, 0, 12), Span(2, 4, 9)),
        (Span(1, 12, 15), Span(2, 0, 4)),
        (Span(1, 12, 15), Span(2, 4, 9)),
    ]


def test_heads_that_are_written_into_slices_as_pytorch_exports_assignments():
    """y[..., 0:1] = xy; y[..., 1:2] = wh: what is written and the scores that are left."""
    assert spans_of("""
    g (float[1,2,5] y, float[1,2,1] xy, float[1,2,1] wh) => (float[1,2,5] out)
    <int64[1,2,1,3] first = {0,0,0, 0,1,0}, int64[1,2,1,3] second = {0,0,1, 0,1,1}> {
      boxes = ScatterND(y, first, xy)
      out = ScatterND(boxes, second, wh)
    }
    """) == [(), (Span(2, 0, 1),), (Span(2, 1, 2),), (Span(2, 2, 5),)]


def test_single_elements_that_are_written_are_no_heads():
    assert spans_of("""
    g (float[1,2,5] y, float[1,2] some) => (float[1,2,5] out)
    <int64[1,2,3] places = {0,0,0, 0,1,1}> {
      out = ScatterND(y, places, some)
    }
    """) == [()]


@pytest.mark.parametrize(
    "body",
    [
        "j = Concat<axis = 1>(a, b) out = Add(j, j)",
        "j = Concat<axis = 1>(a, b) out = Softmax<axis = 1>(j)",
        "j = Concat<axis = 1>(a, b) t = Transpose(j) s = Constant<value_ints = [4, 2]>() "
        "out = Reshape(t, s)",
        "out = Relu(a)",
    ],
)
def test_outputs_that_do_not_keep_their_parts_count_as_a_whole(body: str):
    assert spans_of(f"g (float[2,2] a, float[2,2] b) => (float[N,M] out) {{ {body} }}") == [()]


def test_a_reshape_that_merges_the_joined_axis_hides_the_parts():
    assert spans_of("""
    g (float[2,2] a, float[2,3] b) => (float[10] out) <int64[1] all = {-1}> {
      joined = Concat<axis = 1>(a, b)
      out = Reshape(joined, all)
    }
    """) == [()]


def test_parts_are_named_by_indices_and_axes():
    group = ChannelGroup("out", (Span(1, 0, 64), Span(2, 4, 5)))
    assert group.name == "out[0:64, axis 1; 4:5, axis 2]"
    assert ChannelGroup("out").name == "out"


def test_json_has_no_infinity():
    assert [finite(v) for v in (1.5, math.inf, -math.inf, math.nan)] == [1.5, None, None, None]
