"""Datasets: what may be given as data, what is refused and how, and how data is split."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from placer.calibration.dataset import calibration_and_evaluation, load_dataset, synthetic_dataset
from placer.errors import InputError
from placer.model import Model
from tests.calibration.conftest import IMAGE, error_of, images, model_of, numbers, saved

VOICE = """
<ir_version: 8, opset_import: ["" : 17]>
voice (float[1,8] frame, float[2,1,3] state, int64 rate) => (float[1,8] y, float[2,1,3] z) {
  r = Cast<to = 1>(rate)
  y = Mul(frame, r)
  z = Identity(state)
}
"""


def test_strings_are_text(tmp_path: Path) -> None:
    model = model_of(
        '<ir_version: 8, opset_import: ["": 17]>'
        "g (string[1,2] s) => (string[1,2] y) { y = Identity(s) }",
        tmp_path,
    )
    rows = np.array([["a", "bc"], ["ü", ""]])
    dataset = load_dataset(saved(tmp_path / "words.npz", s=rows), model)
    found = [sample.inputs["s"] for sample in dataset]
    assert [array.tolist() for array in found] == [[["a", "bc"]], [["ü", ""]]]
    assert {array.dtype for array in found} == {np.dtype(object)}
    again = load_dataset(saved(tmp_path / "again.npz", s=rows.copy()), model)
    assert dataset.fingerprint == again.fingerprint
    numbered = saved(tmp_path / "numbers.npz", s=np.ones((1, 2), np.int64))
    assert "has type int64 but the model needs text; save it as an array of str" in error_of(
        numbered, model
    )


# What may be given


def test_npz_is_cut_into_batches_with_their_labels(batched: Model, tmp_path: Path) -> None:
    source = saved(tmp_path / "data.npz", x=images(8), labels=np.arange(8))
    dataset = load_dataset(source, batched)
    assert len(dataset) == 2
    assert dataset.has_labels
    assert not dataset.synthetic
    assert dataset.notes == ()
    first, second = dataset
    assert second.inputs["x"].shape == (4, 3, 2, 2)
    np.testing.assert_array_equal(second.inputs["x"], images(4, first=4))
    np.testing.assert_array_equal(first.labels, [0, 1, 2, 3])
    np.testing.assert_array_equal(second.labels, [4, 5, 6, 7])


def test_samples_may_be_stacked_along_an_axis_of_their_own(batched: Model, tmp_path: Path) -> None:
    stacked = images(8).reshape(2, 4, 3, 2, 2)
    source = saved(tmp_path / "stacked.npz", x=stacked, labels=np.arange(8).reshape(2, 4))
    flat = saved(tmp_path / "flat.npz", x=images(8), labels=np.arange(8))
    fingerprints = {load_dataset(one, batched).fingerprint for one in (source, flat)}
    assert len(fingerprints) == 1


def test_data_of_a_voice_detector_as_people_have_it(tmp_path: Path) -> None:
    """Frames in a row, a state whose leading dimension is no batch, one sampling rate for all."""
    voice = model_of(VOICE, tmp_path)
    frames, states = np.zeros((5, 8), np.float32), np.zeros((5, 2, 1, 3), np.float32)
    states[3, 1, 0, 2] = 7
    for rate in (np.array(16000), np.array([16000]), np.full(5, 16000)):
        source = saved(tmp_path / "voice.npz", frame=frames, state=states, rate=rate)
        dataset = load_dataset(source, voice)
        third = list(dataset)[3].inputs
        assert (len(dataset), third["state"][1, 0, 2], third["rate"]) == (5, 7, 16000)
        assert third["rate"].shape == ()
    one_state = saved(tmp_path / "one.npz", frame=frames, state=states[3], rate=np.array(16000))
    dataset = load_dataset(one_state, voice)
    assert {sample.inputs["state"][1, 0, 2] for sample in dataset} == {7}
    assert dataset.notes == (
        f"{one_state}: array 'state' holds one sample, which is used with all 5",
        f"{one_state}: array 'rate' holds one sample, which is used with all 5",
    )


def test_npy_serves_a_model_with_one_input(image: Model, tmp_path: Path) -> None:
    np.save(tmp_path / "data.npy", images(3))
    dataset = load_dataset(str(tmp_path / "data.npy"), image)
    assert numbers(dataset) == [0, 1, 2]
    assert not dataset.has_labels
    assert [sample.labels for sample in dataset] == [None, None, None]


def test_folder_is_read_in_the_order_of_names(image: Model, tmp_path: Path) -> None:
    folder = tmp_path / "data"
    folder.mkdir()
    saved(folder / "b.npz", x=images(2, first=5))
    np.save(folder / "a.npy", images(1))
    (folder / "README.txt").write_text("ignored")
    assert numbers(load_dataset(str(folder), image)) == [0, 5, 6]


def test_iterating_twice_gives_the_same_samples(image: Model, tmp_path: Path) -> None:
    dataset = load_dataset(saved(tmp_path / "data.npz", x=images(3)), image)
    iterator = iter(dataset)
    assert int(next(iterator).inputs["x"].flat[0]) == 0
    assert numbers(dataset) == numbers(dataset) == [0, 1, 2]


def test_datasets_too_large_for_memory_are_streamed(image: Model, tmp_path: Path) -> None:
    dataset = load_dataset(saved(tmp_path / "data.npz", x=images(5)), image)
    large = replace(dataset, sample_bytes=1 << 30)
    first, again = iter(large), iter(large)
    assert next(first) is not next(again)
    assert numbers(large) == [0, 1, 2, 3, 4]
    assert numbers(large.limit(2)) == numbers(dataset.limit(2))


def test_rows_beyond_the_last_batch_are_dropped_with_a_note(batched: Model, tmp_path: Path) -> None:
    source = saved(tmp_path / "data.npz", x=images(6), labels=np.arange(6))
    dataset = load_dataset(source, batched)
    assert len(dataset) == 1
    assert dataset.notes == (
        f"{source}: 2 of 6 rows of array 'x' are dropped, they fill no batch of 4",
    )


def test_images_beside_arrays_are_not_used_and_a_note_says_so(image: Model, tmp_path: Path) -> None:
    saved(tmp_path / "data.npz", x=images(3))
    (tmp_path / "photo.png").write_bytes(b"")
    dataset = load_dataset(str(tmp_path), image)
    assert len(dataset) == 3
    assert dataset.notes == (
        f"{tmp_path} holds arrays and images (such as photo.png), of which only the arrays are "
        "used; keep them in folders of their own",
    )


def test_float64_is_converted_with_one_note(image: Model, tmp_path: Path) -> None:
    source = saved(tmp_path / "data.npz", x=images(3).astype(np.float64))
    dataset = load_dataset(source, image)
    assert {sample.inputs["x"].dtype for sample in dataset} == {np.dtype(np.float32)}
    assert dataset.notes == (f"{source}: array 'x' is float64 and was converted to float32",)


def test_integers_of_another_width_are_converted_if_they_fit(text: Model, tmp_path: Path) -> None:
    mask = np.ones((1, 4), bool)
    source = saved(tmp_path / "data.npz", ids=np.array([[1, 2, 3, 4]]), mask=mask)
    (sample,) = load_dataset(source, text)
    assert sample.inputs["ids"].dtype == np.int32
    np.testing.assert_array_equal(sample.inputs["ids"], [[1, 2, 3, 4]])
    large = saved(tmp_path / "large.npz", ids=np.array([[1, 2, 3, 2**40]]), mask=mask)
    assert error_of(large, text) == (
        f"{large}, sample 0: array 'ids' (int64) has values that do not fit the model's int32; "
        "correct them"
    )


# Splitting and limiting


def test_one_source_is_split_into_disjoint_halves(image: Model, tmp_path: Path) -> None:
    dataset = load_dataset(saved(tmp_path / "data.npz", x=images(9)), image)
    calibration, evaluation = calibration_and_evaluation(dataset, None, seed=3)
    assert (len(calibration), len(evaluation)) == (4, 5)
    assert sorted(numbers(calibration) + numbers(evaluation)) == list(range(9))
    assert calibration.fingerprint != evaluation.fingerprint
    again, _ = calibration_and_evaluation(None, dataset, seed=3)
    assert numbers(again) == numbers(calibration)
    other, _ = calibration_and_evaluation(dataset, None, seed=4)
    assert numbers(other) != numbers(calibration)


def test_the_same_file_twice_is_split_with_a_note(image: Model, tmp_path: Path) -> None:
    source = saved(tmp_path / "data.npz", x=images(4))
    calibration, evaluation = calibration_and_evaluation(
        load_dataset(source, image), load_dataset(source, image), seed=0
    )
    assert sorted(numbers(calibration) + numbers(evaluation)) == [0, 1, 2, 3]
    assert evaluation.notes == (
        f"{source} and {source} hold the same samples: one random half calibrates, the other "
        "evaluates",
    )


def test_two_sources_are_used_as_they_are(image: Model, tmp_path: Path) -> None:
    first = load_dataset(saved(tmp_path / "a.npz", x=images(3)), image)
    second = load_dataset(saved(tmp_path / "b.npz", x=images(3, first=3)), image)
    assert calibration_and_evaluation(first, second, seed=0) == (first, second)


def test_samples_that_both_sources_hold_are_noted(image: Model, tmp_path: Path) -> None:
    first = load_dataset(saved(tmp_path / "a.npz", x=images(4)), image)
    second = load_dataset(saved(tmp_path / "b.npz", x=images(3, first=2)), image)
    _, evaluation = calibration_and_evaluation(first, second, seed=0)
    assert numbers(evaluation) == [2, 3, 4]
    assert evaluation.notes == (
        f"calibration data ({first.source}) and evaluation data ({second.source}) share 2 "
        "identical samples; the accuracy may look better than it is",
    )


def test_one_sample_cannot_be_split(image: Model, tmp_path: Path) -> None:
    dataset = load_dataset(saved(tmp_path / "data.npz", x=images(1)), image)
    with pytest.raises(InputError) as caught:
        calibration_and_evaluation(dataset, None, seed=0)
    assert str(caught.value) == (
        f"{dataset.source} holds one batch only, too few to calibrate and to evaluate on; give at "
        "least two"
    )
    with pytest.raises(InputError, match="neither calibration nor evaluation data is given"):
        calibration_and_evaluation(None, None, seed=0)


def test_samples_that_are_all_the_same_are_refused(image: Model, tmp_path: Path) -> None:
    """Such as images that a loader left empty: on them everything is accurate."""
    good = load_dataset(saved(tmp_path / "good.npz", x=images(16)), image)
    copies = np.repeat(images(1), 16, axis=0)
    same = load_dataset(saved(tmp_path / "same.npz", x=copies), image)
    for sources in ((same, None), (same, good), (good, same)):
        with pytest.raises(InputError) as caught:
            calibration_and_evaluation(*sources, seed=0)
        assert str(caught.value) == (
            f"all 16 samples of {same.source} are the same, so they would say nothing "
            "of other inputs; give samples that differ as they do in use"
        )


def test_a_single_sample_is_taken_unless_it_is_constant(image: Model, tmp_path: Path) -> None:
    good = load_dataset(saved(tmp_path / "good.npz", x=images(16)), image)
    noise = np.random.default_rng(0).random(images(1).shape, np.float32)
    one = load_dataset(saved(tmp_path / "one.npz", x=noise), image)
    assert calibration_and_evaluation(one, good, seed=0)[0] is one
    zero = load_dataset(saved(tmp_path / "zero.npz", x=0 * images(1)), image)
    with pytest.raises(InputError, match=r"zero\.npz holds one value in each input"):
        calibration_and_evaluation(zero, good, seed=0)


@given(rows=st.integers(1, 40), limit=st.integers(1, 50))
@settings(max_examples=25, deadline=None)
def test_limit_takes_the_same_random_samples_in_order(
    tmp_path_factory: pytest.TempPathFactory, rows: int, limit: int
) -> None:
    folder = tmp_path_factory.mktemp("limit")
    image = model_of(IMAGE.format(batch=1), folder)
    dataset = load_dataset(saved(folder / "data.npz", x=images(rows)), image)
    chosen = numbers(dataset.limit(limit))
    assert len(chosen) == min(rows, limit)
    assert chosen == sorted(set(chosen))
    assert numbers(dataset.limit(limit)) == chosen
    assert set(chosen) <= set(range(rows))


def test_limit_of_zero(image: Model, tmp_path: Path) -> None:
    dataset = load_dataset(saved(tmp_path / "data.npz", x=images(1)), image)
    with pytest.raises(InputError, match="a limit of 0 leaves no sample; give at least 1"):
        dataset.limit(0)


# Synthetic data


def test_synthetic_images_are_smooth_and_reproducible(tmp_path: Path) -> None:
    model = model_of(
        '<ir_version: 8, opset_import: ["" : 17]>'
        "g (float[1,3,64,48] x) => (float[1,3,64,48] y) { y = Relu(x) }",
        tmp_path,
    )
    dataset = synthetic_dataset(model, 3, seed=7)
    assert dataset.synthetic
    assert len(dataset) == 3
    assert dataset.fingerprint == synthetic_dataset(model, 3, seed=7).fingerprint
    assert dataset.fingerprint != synthetic_dataset(model, 3, seed=8).fingerprint
    for sample in dataset:
        values = sample.inputs["x"]
        assert values.dtype == np.float32
        assert -1 <= values.min() < -0.5 < 0.5 < values.max() <= 1
        # Neighbours are at most one grid cell of 63/7 pixels apart: 2 / 9 per pixel.
        assert np.abs(np.diff(values, axis=2)).max() <= 2 / 9 + 1e-6


def test_synthetic_integers_are_zero_or_one(text: Model) -> None:
    dataset = synthetic_dataset(text, 8, seed=0)
    ids = np.concatenate([sample.inputs["ids"] for sample in dataset])
    masks = np.concatenate([sample.inputs["mask"] for sample in dataset])
    assert ids.dtype == np.int32
    assert masks.dtype == np.bool_
    assert set(ids.flat) == {0, 1}
    assert set(masks.flat) == {False, True}


@pytest.mark.parametrize(("dtype", "low", "high"), [("uint8", 0, 255), ("int8", -128, 127)])
def test_synthetic_images_of_8_bits_fill_their_range(
    dtype: str, low: int, high: int, tmp_path: Path
) -> None:
    """Of 0 and 1 alone they were black; other integers of 8 bits may be masks or indices."""
    model = model_of(
        '<ir_version: 8, opset_import: ["" : 17]>'
        f"g ({dtype}[1,24,24,3] x, {dtype}[4,800] i) => (float[1,24,24,3] y, float[4,800] z) {{"
        " y = Cast<to = 1>(x) z = Cast<to = 1>(i) }",
        tmp_path,
    )
    samples = [sample.inputs for sample in synthetic_dataset(model, 8, seed=0)]
    values = np.stack([inputs["x"] for inputs in samples])
    assert values.dtype == dtype
    assert low <= values.min() < low + 20
    assert high - 20 < values.max() <= high
    assert set(samples[0]["i"].flat) == {0, 1}


def test_synthetic_data_needs_a_sample(text: Model) -> None:
    with pytest.raises(InputError, match="0 synthetic samples are too few; ask for at least 1"):
        synthetic_dataset(text, 0, seed=0)


# Indices

EMBEDDING = """
<ir_version: 9, opset_import: ["": 17]>
g (int64[1,4] ids, int64[1,4] types) => (float[4,8] y)
<float[50,8] words = {0}, float[2,8] kinds = {0}, int64[1] flat = {-1}> {
  [row] r = Reshape(ids, flat)
  [word] w = Gather(words, r)
  [kind] k = Gather(kinds, types)
  [one] s = Squeeze(k)
  [sum] y = Add(w, s)
}
"""


def test_token_ids_lie_within_the_embedding(tmp_path: Path) -> None:
    """-50 to 49 by ONNX's operator Gather: what is below zero counts from the end."""
    model = model_of(EMBEDDING, tmp_path)
    ids = np.array([[0, 1, 2, -50], [3, 4, 5, 49]])
    types = np.array([[0, 1, -2, -1]] * 2)
    good = saved(tmp_path / "good.npz", ids=ids, types=types)
    assert len(load_dataset(good, model)) == 2
    for value in (50, -51):
        ids[1, 2] = value
        source = saved(tmp_path / "bad.npz", ids=ids, types=types)
        assert error_of(source, model) == (
            f"{source}, sample 1: array 'ids' holds {value}, and node 'word' (Gather) takes "
            "indices from -50 to 49; give data made for this model, such as tokens of its own "
            "tokenizer"
        )
