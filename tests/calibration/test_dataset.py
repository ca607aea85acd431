"""Datasets: what may be given as data, what is refused and how, and how data is split."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from placer.calibration.dataset import (
    Dataset,
    calibration_and_evaluation,
    load_dataset,
    synthetic_dataset,
)
from placer.errors import InputError
from placer.model import Model
from tests.calibration.conftest import model_of

IMAGE = """
<ir_version: 8, opset_import: ["" : 17]>
image (float[{batch},3,2,2] x) => (float[{batch},3,2,2] y) {{ y = Relu(x) }}
"""
TEXT = """
<ir_version: 8, opset_import: ["" : 17]>
text (int32[1,4] ids, bool[1,4] mask) => (int32[1,4] y) {
  zeros = Sub(ids, ids)
  y = Where(mask, ids, zeros)
}
"""
VOICE = """
<ir_version: 8, opset_import: ["" : 17]>
voice (float[1,8] frame, float[2,1,3] state, int64 rate) => (float[1,8] y, float[2,1,3] z) {
  r = Cast<to = 1>(rate)
  y = Mul(frame, r)
  z = Identity(state)
}
"""


@pytest.fixture
def image(tmp_path: Path) -> Model:
    """One float input 'x' of shape (1, 3, 2, 2)."""
    return model_of(IMAGE.format(batch=1), tmp_path)


@pytest.fixture
def batched(tmp_path: Path) -> Model:
    """One float input 'x' of shape (4, 3, 2, 2)."""
    return model_of(IMAGE.format(batch=4), tmp_path)


@pytest.fixture
def text(tmp_path: Path) -> Model:
    """Inputs 'ids' (int32) and 'mask' (bool), both of shape (1, 4)."""
    return model_of(TEXT, tmp_path)


def images(rows: int, first: int = 0) -> np.ndarray:
    """Row i holds the number first + i everywhere, so that a sample tells where it came from."""
    numbers = np.arange(first, first + rows, dtype=np.float32)
    return np.tile(numbers[:, None, None, None], (1, 3, 2, 2))


def saved(path: Path, **arrays: np.ndarray) -> str:
    np.savez(path, allow_pickle=True, **arrays)
    return str(path)


def numbers(dataset: Dataset) -> list[int]:
    return [int(sample.inputs["x"].flat[0]) for sample in dataset]


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


def error_of(source: str, model: Model) -> str:
    with pytest.raises(InputError) as caught:
        load_dataset(source, model)
    return str(caught.value)


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


# What is refused


def test_missing_file(image: Model, tmp_path: Path) -> None:
    path = tmp_path / "none.npz"
    assert error_of(str(path), image) == (
        f"{path} does not exist; give an .npz or .npy file, a folder of them or of images, or "
        "module:function"
    )


@pytest.mark.parametrize("source", ["https://host/data.npz", "s3://bucket/images"])
def test_urls(image: Model, source: str) -> None:
    assert error_of(source, image).startswith(f"{source} is a URL; download it and give an .npz")


def test_unsupported_suffix(image: Model, tmp_path: Path) -> None:
    path = tmp_path / "data.csv"
    path.write_text("1,2")
    assert error_of(str(path), image) == (
        f"{path} has the unsupported suffix '.csv'; give .npz, .npy, a folder of them or of "
        "images, or module:function"
    )


def test_empty_folder(image: Model, tmp_path: Path) -> None:
    folder = tmp_path / "data"
    folder.mkdir()
    assert error_of(str(folder), image) == (
        f"folder {folder} holds no .npz or .npy file and no image; put the samples there"
    )


@pytest.mark.parametrize("suffix", [".npz", ".npy"])
def test_empty_array(image: Model, tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"data{suffix}"
    if suffix == ".npz":
        saved(path, x=images(0))
    else:
        np.save(path, images(0))
    assert error_of(str(path), image) == f"{path}: array 'x' is empty; give at least one sample"


def test_wrong_array_name(image: Model, text: Model, tmp_path: Path) -> None:
    source = saved(tmp_path / "data.npz", image=images(1), labels=np.zeros(1))
    assert error_of(source, image) == (
        f"{source} has arrays named: image, labels; the model's inputs are named: x; "
        "rename the arrays"
    )
    partial = saved(tmp_path / "partial.npz", ids=np.ones((1, 4), np.int32))
    assert error_of(partial, text) == (
        f"{partial} has arrays named: ids; the model's inputs are named: ids, mask; add mask"
    )
    more = saved(tmp_path / "more.npz", x=images(1), extra=np.ones(1))
    assert error_of(more, image).endswith("; leave out extra")


def test_npy_for_a_model_with_two_inputs(text: Model, tmp_path: Path) -> None:
    path = tmp_path / "data.npy"
    np.save(path, np.ones((1, 4), np.int32))
    assert error_of(str(path), text) == (
        f"{path} holds one array but the model has 2 inputs; give an .npz with arrays named: "
        "ids, mask, or a folder with an .npy of each name"
    )


def test_a_folder_with_a_file_for_each_input(text: Model, image: Model, tmp_path: Path) -> None:
    """Not files of samples: each is called after an input, or after the labels."""
    for name, array in {
        "two/ids": np.arange(12, dtype=np.int32).reshape(3, 4),
        "two/mask": np.ones((3, 4), bool),
        "one/x": images(3),
        "one/labels": np.array([2, 0, 1]),
    }.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        np.save(tmp_path / f"{name}.npy", array)
    samples = list(load_dataset(str(tmp_path / "two"), text))
    assert [sample.inputs["ids"].tolist() for sample in samples][2] == [[8, 9, 10, 11]]
    labels = [sample.labels for sample in load_dataset(str(tmp_path / "one"), image)]
    assert np.concatenate(labels).tolist() == [2, 0, 1]
    np.save(tmp_path / "two" / "more.npy", images(3))
    assert error_of(str(tmp_path / "two"), text) == (
        f"{tmp_path / 'two'} has arrays named: ids, mask, more; the model's inputs are named: "
        "ids, mask; leave out more"
    )
    (tmp_path / "two" / "mask.npy").rename(tmp_path / "two" / "0.npy")  # Files of samples again.
    assert "0.npy holds one array" in error_of(str(tmp_path / "two"), text)


@pytest.mark.parametrize("shape", [(5, 3, 2), (5, 3, 2, 4), (5, 12)])
def test_wrong_shape(batched: Model, tmp_path: Path, shape: tuple[int, ...]) -> None:
    source = saved(tmp_path / "data.npz", x=np.zeros(shape, np.float32))
    assert error_of(source, batched) == (
        f"{source}: array 'x' has shape {shape} but the model needs (N*4, 3, 2, 2) or "
        "(N, 4, 3, 2, 2); reshape it, or set the one shape that all samples have with `shapes`"
    )


@pytest.mark.parametrize("shape", [(8, 2, 2, 3), (5, 4, 2, 2, 3)])
def test_channels_that_come_last(batched: Model, tmp_path: Path, shape: tuple[int, ...]) -> None:
    """Reshaping them would give images of noise."""
    source = saved(tmp_path / "data.npz", x=np.zeros(shape, np.float32))
    assert error_of(source, batched).endswith("; transpose it: its axes are in another order")


def test_integers_for_a_float_input(image: Model, tmp_path: Path) -> None:
    source = saved(tmp_path / "data.npz", x=images(2).astype(np.uint8))
    assert error_of(source, image) == (
        f"{source}, sample 0: array 'x' has type uint8 but the model needs float32; preprocess it "
        "as in training and save it as float32"
    )


def test_floats_for_an_integer_input(text: Model, tmp_path: Path) -> None:
    source = saved(
        tmp_path / "data.npz", ids=np.ones((1, 4), np.float32), mask=np.ones((1, 4), bool)
    )
    assert error_of(source, text) == (
        f"{source}, sample 0: array 'ids' has type float32 but the model needs int32; save it as "
        "int32"
    )


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_nan_and_inf(image: Model, tmp_path: Path, bad: float) -> None:
    array = images(3)
    array[1, 2, 0, 0] = bad
    source = saved(tmp_path / "data.npz", x=array)
    assert error_of(source, image) == (
        f"{source}, sample 1: array 'x' holds NaN or Inf as float32; remove or repair that sample"
    )


def test_infinity_below_may_be_a_mask(image: Model, tmp_path: Path) -> None:
    array = images(3)
    array[1, 2, 0, 0] = -np.inf
    assert len(load_dataset(saved(tmp_path / "data.npz", x=array), image)) == 3


@pytest.mark.parametrize("factor", [1e300, -1e300])
def test_float64_beyond_float32(image: Model, tmp_path: Path, factor: float) -> None:
    source = saved(tmp_path / "data.npz", x=images(2).astype(np.float64) * factor)
    assert "sample 1: array 'x' (float64) has values beyond float32" in error_of(source, image)


@pytest.mark.parametrize("name", ["data.npy", "data.npz"])
def test_pickles_are_not_loaded(image: Model, tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    objects = np.array([{"a": 1}], dtype=object)
    if name == "data.npy":
        np.save(path, objects, allow_pickle=True)
    else:
        saved(path, x=objects)
    message = error_of(str(path), image)
    assert message.startswith(f"{path} is damaged or holds pickled Python objects (")
    assert message.endswith("save plain numeric arrays with np.savez or np.save")


@pytest.mark.parametrize("content", [b"", b"no array at all", b"PK\x03\x04 cut short"])
@pytest.mark.parametrize("name", ["data.npy", "data.npz"])
def test_damaged_files(image: Model, tmp_path: Path, name: str, content: bytes) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    assert error_of(str(path), image).startswith(f"{path} is damaged or holds pickled")


def test_wrong_number_of_labels(image: Model, tmp_path: Path) -> None:
    source = saved(tmp_path / "data.npz", x=images(3), labels=np.arange(2))
    assert error_of(source, image) == (
        f"{source}: 'labels' has shape (2,) but array 'x' has 3 rows; give one label per row"
    )


def test_labels_in_some_files_only(image: Model, tmp_path: Path) -> None:
    folder = tmp_path / "data"
    folder.mkdir()
    saved(folder / "a.npz", x=images(1), labels=np.zeros(1))
    source = saved(folder / "b.npz", x=images(1))
    assert error_of(str(folder), image) == (
        f"{source}, sample 0 has no 'labels', unlike the samples before it; give labels for all "
        "samples or for none"
    )


def test_inputs_with_different_numbers_of_samples(text: Model, tmp_path: Path) -> None:
    source = saved(tmp_path / "data.npz", ids=np.ones((2, 4), np.int32), mask=np.ones((3, 4), bool))
    assert error_of(source, text) == (
        f"{source}: arrays hold different numbers of samples ('ids' 2, 'mask' 3); make them equal"
    )


def test_less_than_one_batch(batched: Model, tmp_path: Path) -> None:
    source = saved(tmp_path / "data.npz", x=images(3))
    assert error_of(source, batched) == (
        f"{source} holds no full batch ({source}: 3 of 3 rows of array 'x' are dropped, they fill "
        "no batch of 4); give more data"
    )


# Python functions

MODULE = """
import numpy as np

number = 3
calls = []

def batch(value):
    return np.full((1, 3, 2, 2), value, np.float32)

def good():
    for value in range(4):
        yield {"x": batch(value), "labels": [value]}

def unlabelled():
    return [{"x": batch(value)} for value in range(4)]

def shuffled():
    calls.append(0)
    return [{"x": batch(value + len(calls))} for value in range(4)]

def once():
    calls.append(0)
    return [{"x": batch(value)} for value in range(4 if len(calls) == 1 else 2)]

def raises():
    yield {"x": batch(0)}
    raise KeyError("label file")

def numbers():
    return 5

def arrays():
    return [batch(0)[0], *map(batch, range(1, 4))]  # The first has no axis for the batch.

def loader():
    both = [np.concatenate([batch(value), batch(value + 1)]) for value in (0, 2)]
    return [[both[0], [0, 1]], (both[1], np.array([2, 3]))]

def several():
    return [[batch(0)] * 3]

def renamed():
    return [{"image": batch(0)}]

def misshapen():
    return [{"x": batch(0)[0, 0]}]

def ragged():
    return [{"x": [[1.0], [1.0, 2.0]]}]

def mislabelled():
    return [{"x": batch(0), "labels": [1, 2]}]

def empty():
    return []
"""


@pytest.fixture
def user_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A module in the current folder, under a name of its own per test."""
    name = f"user_{tmp_path.name}"
    (tmp_path / f"{name}.py").write_text(MODULE)
    (tmp_path / f"{name}_broken.py").write_text("import no_such_package")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))  # Restores the path afterwards.
    return name


def test_function_is_called_again_for_each_pass(image: Model, user_module: str) -> None:
    dataset = load_dataset(f"{user_module}:good", image)
    assert len(dataset) == 4
    assert dataset.has_labels
    assert numbers(dataset) == numbers(dataset) == [0, 1, 2, 3]
    assert [int(sample.labels[0]) for sample in dataset if sample.labels is not None] == numbers(
        dataset
    )


def test_batches_of_a_function_may_have_any_size_and_no_names(
    image: Model, user_module: str
) -> None:
    dataset = load_dataset(f"{user_module}:loader", image)  # As PyTorch's DataLoader gives them.
    labels = [sample.labels.tolist() for sample in dataset if sample.labels is not None]
    assert numbers(dataset) == [0, 1, 2, 3]
    assert labels == [[0], [1], [2], [3]]
    assert numbers(load_dataset(f"{user_module}:arrays", image)) == [0, 1, 2, 3]


def test_a_folder_of_single_samples(image: Model, tmp_path: Path) -> None:
    for value in range(3):
        np.save(tmp_path / f"{value}.npy", images(1, first=value)[0])
    assert numbers(load_dataset(str(tmp_path), image)) == [0, 1, 2]


def test_a_path_wins_over_a_function(image: Model, user_module: str, tmp_path: Path) -> None:
    folder = tmp_path / f"{user_module}:good"
    folder.mkdir()
    saved(folder / "data.npz", x=images(1, first=9))
    assert numbers(load_dataset(f"{user_module}:good", image)) == [9]


def test_function_and_file_of_the_same_samples_have_one_fingerprint(
    image: Model, user_module: str, tmp_path: Path
) -> None:
    source = saved(tmp_path / "data.npz", x=images(4))
    function = load_dataset(f"{user_module}:unlabelled", image)
    assert function.fingerprint == load_dataset(source, image).fingerprint
    assert function.fingerprint != load_dataset(f"{user_module}:good", image).fingerprint


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("shuffled", "{source}, batch 0, sample 0 differs from the first pass over {source}; "),
        ("once", "{source} gave fewer samples than in its first pass; "),
    ],
)
def test_functions_that_change_between_passes(
    image: Model, user_module: str, name: str, message: str
) -> None:
    source = f"{user_module}:{name}"
    dataset = load_dataset(source, image)
    with pytest.raises(InputError) as caught:
        list(dataset)
    fix = "make it give the same samples each time"
    assert str(caught.value) == message.format(source=source) + fix


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("absent", "module '{m}' has no function 'absent'; correct {m}:absent"),
        ("number", "'number' of module '{m}' has type int; make it a function"),
        (
            "raises",
            "{m}:raises failed with KeyError: 'label file'; correct the function ({m}.py, line 27)",
        ),
        (
            "numbers",
            "{m}:numbers failed with TypeError: 'int' object is not iterable; correct the function",
        ),
        (
            "several",
            "{m}:several, batch 0 yields sequences of 3; the model's inputs are: x; give these in "
            "order, and labels behind them if there are any",
        ),
        (
            "renamed",
            "{m}:renamed, batch 0 has arrays named: image; the model's inputs are named: x; "
            "rename the arrays",
        ),
        (
            "misshapen",
            "{m}:misshapen, batch 0: array 'x' has shape (2, 2) but the model needs "
            "(N, 3, 2, 2) or (N, 1, 3, 2, 2); reshape it, or set the one shape that all samples "
            "have with `shapes`",
        ),
        (
            "mislabelled",
            "{m}:mislabelled, batch 0: 'labels' has shape (2,) but array 'x' has 1 rows; give one "
            "label per row",
        ),
        ("empty", "{m}:empty holds no full batch (it gave no sample); give more data"),
    ],
)
def test_functions_that_are_refused(
    image: Model, user_module: str, name: str, message: str
) -> None:
    assert error_of(f"{user_module}:{name}", image) == message.format(m=user_module)


def test_ragged_arrays_of_a_function(image: Model, user_module: str) -> None:
    message = error_of(f"{user_module}:ragged", image)
    assert message.startswith(
        f"reading 'x' of {user_module}:ragged, batch 0 failed with ValueError"
    )
    assert message.endswith("; give numeric arrays")


def test_modules_that_cannot_be_imported(image: Model, user_module: str) -> None:
    assert error_of("no_such_module:data", image) == (
        "importing module 'no_such_module' of no_such_module:data failed with "
        "ModuleNotFoundError: No module named 'no_such_module'; correct or install it"
    )
    assert "No module named 'no_such_package'" in error_of(f"{user_module}_broken:data", image)


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


def test_one_sample_many_times_is_noted(image: Model, tmp_path: Path) -> None:
    """Such as images that a loader left empty: on them everything is accurate."""
    dataset = load_dataset(saved(tmp_path / "data.npz", x=0 * images(16)), image)
    _, evaluation = calibration_and_evaluation(dataset, None, seed=0)
    assert evaluation.notes == (
        f"all samples of {dataset.source} are the same: ranges and gates rest on one sample and "
        "say nothing of others",
    )


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
