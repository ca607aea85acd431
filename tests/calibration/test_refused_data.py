"""What is refused as data, and how."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from placer.calibration.dataset import load_dataset, synthetic_dataset
from placer.errors import InputError
from placer.model import Model
from tests.calibration.conftest import IMAGE, error_of, images, model_of, saved


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
        "(N, 4, 3, 2, 2); reshape, pad or crop it, or set the one shape that all samples have "
        "with `shapes`"
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


def test_a_type_that_no_file_of_numpy_holds(tmp_path: Path) -> None:
    model = model_of(IMAGE.format(batch=1).replace("float", "bfloat16"), tmp_path)
    advice = "export the model in float32, which `base` bfloat16 converts"
    source = saved(tmp_path / "data.npz", x=images(2))
    assert error_of(source, model).endswith(f"but the model needs bfloat16; {advice}")
    with pytest.raises(InputError, match=f"which cannot be made up; {advice}"):
        synthetic_dataset(model, 1, 0)


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
