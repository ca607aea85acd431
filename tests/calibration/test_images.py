"""Folders of images: how pixels become the model's input, and what is refused."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from placer.calibration.dataset import load_dataset
from placer.errors import InputError
from placer.model import Model
from tests.calibration.conftest import model_of

images = pytest.importorskip("PIL.Image")

NCHW = """
<ir_version: 8, opset_import: ["" : 17]>
net (float[{batch},3,4,8] x) => (float[{batch},3,4,8] y) {{ y = Relu(x) }}
"""
NHWC = """
<ir_version: 8, opset_import: ["" : 17]>
net (float[1,4,8,1] x) => (float[1,4,8,1] y) { y = Relu(x) }
"""
BYTES = """
<ir_version: 8, opset_import: ["" : 17]>
net (uint8[1,3,4,8] x) => (uint8[1,3,4,8] y) { y = Identity(x) }
"""
WITH_SIZE = """
<ir_version: 8, opset_import: ["" : 17]>
net (float[1,3,4,8] x, int64[1,2] size) => (float[1,3,4,8] y, int64[1,2] z) {
  y = Relu(x)
  z = Identity(size)
}
"""
RED, BLUE = (255, 0, 0), (0, 0, 51)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "images"
    made.mkdir()
    return made


def image(path: Path, colour: tuple[int, int, int] = RED, size: tuple[int, int] = (8, 4)) -> None:
    """A file of one colour; ``size`` is (width, height)."""
    path.parent.mkdir(exist_ok=True)
    images.new("RGB", size, colour).save(path)


def preprocess(folder: Path, text: str = "{}") -> None:
    (folder / "preprocess.yaml").write_text(text)


def inputs(folder: Path, model: Model) -> list[np.ndarray]:
    return [sample.inputs["x"] for sample in load_dataset(str(folder), model)]


def error_of(folder: Path, model: Model) -> str:
    with pytest.raises(InputError) as caught:
        load_dataset(str(folder), model)
    return str(caught.value)


def test_pixels_are_scaled_then_normalised(folder: Path, tmp_path: Path) -> None:
    image(folder / "red.png")
    preprocess(folder, "{mean: [0.5, 0.25, 0], std: [0.25, 0.5, 1]}")
    (found,) = inputs(folder, model_of(NCHW.format(batch=1), tmp_path))
    assert found.shape == (1, 3, 4, 8)
    np.testing.assert_allclose(found[0, :, 0, 0], [2, -0.5, 0])


def test_channels_as_the_network_was_trained(folder: Path, tmp_path: Path) -> None:
    """Caffe's networks: blue first, pixels as they are, only a mean taken off."""
    image(folder / "blue.png", BLUE)
    preprocess(folder, "{colour: bgr, scale: 1, mean: [1, 2, 3]}")
    (found,) = inputs(folder, model_of(NCHW.format(batch=1), tmp_path))
    np.testing.assert_allclose(found[0, :, 0, 0], [50, -2, -3])


def test_one_channel_behind_height_and_width(folder: Path, tmp_path: Path) -> None:
    image(folder / "white.png", (255, 255, 255))
    preprocess(folder)
    (found,) = inputs(folder, model_of(NHWC, tmp_path))
    np.testing.assert_allclose(found, np.ones((1, 4, 8, 1)))


def test_integers_stay_pixels(folder: Path, tmp_path: Path) -> None:
    image(folder / "blue.png", BLUE)
    preprocess(folder)
    (found,) = inputs(folder, model_of(BYTES, tmp_path))
    assert found.dtype == np.uint8
    np.testing.assert_array_equal(found[0, :, 0, 0], BLUE)


@pytest.mark.parametrize(
    ("how", "first_column", "last_column"),
    [
        ("{fit: stretch}", 1, 1),
        ("{fit: crop}", 1, 1),
        ("{fit: crop, shorter_side: 8}", 1, 1),
        ("{fit: pad, padding: 0}", 0, 0),
        ("{fit: pad, padding: 0, padded: behind}", 1, 0),
    ],
)
def test_a_square_image_gets_the_inputs_shape(
    folder: Path, tmp_path: Path, how: str, first_column: float, last_column: float
) -> None:
    image(folder / "red.png", size=(16, 16))
    preprocess(folder, how)
    (found,) = inputs(folder, model_of(NCHW.format(batch=1), tmp_path))
    np.testing.assert_allclose(found[0, 0, 0, [0, -1]], [first_column, last_column])


def test_batches_are_filled_in_the_order_of_names(folder: Path, tmp_path: Path) -> None:
    for number in range(5):
        image(folder / f"{number}.png", (51 * number, 0, 0))
    preprocess(folder)
    dataset = load_dataset(str(folder), model_of(NCHW.format(batch=2), tmp_path))
    found = [sample.inputs["x"][:, 0, 0, 0].tolist() for sample in dataset]
    np.testing.assert_allclose(found, [[0, 0.2], [0.4, 0.6]], atol=1e-6)
    assert dataset.notes == (f"{folder}: 1 of 5 images fill no batch of 2",)


def test_folders_are_classes(folder: Path, tmp_path: Path) -> None:
    for name in ("dog/b.jpg", "cat/c.jpg", "dog/a.jpg"):
        image(folder / name)
    preprocess(folder)
    dataset = load_dataset(str(folder), model_of(NCHW.format(batch=1), tmp_path))
    assert [sample.labels.tolist() for sample in dataset] == [[0], [1], [1]]
    assert [Path(sample.origin).name for sample in dataset] == ["c.jpg", "a.jpg", "b.jpg"]
    assert dataset.notes == (
        f"{folder}: 'labels' are the positions of its 2 folders: 0 cat, 1 dog",
    )


def test_a_single_folder_is_no_class(folder: Path, tmp_path: Path) -> None:
    image(folder / "val2017" / "a.jpg")
    image(folder / ".cache" / "b.jpg")
    preprocess(folder)
    dataset = load_dataset(str(folder), model_of(NCHW.format(batch=1), tmp_path))
    assert (len(dataset), dataset.has_labels, dataset.notes) == (1, False, ())


def test_images_below_the_folders_of_classes_are_not_left_out(folder: Path, tmp_path: Path) -> None:
    for name in ("train/a.jpg", "val/b.jpg", "val/cat/c.jpg"):
        (folder / name).parent.mkdir(exist_ok=True)
        image(folder / name)
    preprocess(folder)
    found = error_of(folder, model_of(NCHW.format(batch=1), tmp_path))
    assert f"{folder / 'val/cat/c.jpg'} lies deeper than the folders of {folder}" in found


def test_a_class_without_images_would_shift_the_others(folder: Path, tmp_path: Path) -> None:
    for name in ("ant/a.jpg", "cat/c.jpg"):
        image(folder / name)
    (folder / "bee").mkdir()
    preprocess(folder)
    found = error_of(folder, model_of(NCHW.format(batch=1), tmp_path))
    assert f"folder {folder / 'bee'} holds no image, but labels are positions among all" in found


def test_other_inputs_have_fixed_values(folder: Path, tmp_path: Path) -> None:
    image(folder / "red.png")
    preprocess(folder, "{fixed: {size: [4, 8]}}")
    (sample,) = load_dataset(str(folder), model_of(WITH_SIZE, tmp_path))
    np.testing.assert_array_equal(sample.inputs["size"], [[4, 8]])


@pytest.mark.parametrize(
    ("fixed", "sentence"),
    [
        ("{size: [1, 2, 3]}", "'size' has 3 values, which do not fill its shape (1, 2); give one"),
        ("{size: 1.5}", "'size' has values that int64 cannot hold; correct them"),
        ("{}", "names no input; the inputs beside 'x' are: size; give each a value"),
    ],
)
def test_fixed_values_that_do_not_fit(
    folder: Path, tmp_path: Path, fixed: str, sentence: str
) -> None:
    image(folder / "red.png")
    preprocess(folder, f"{{fixed: {fixed}}}")
    assert f"field 'fixed': {sentence}" in error_of(folder, model_of(WITH_SIZE, tmp_path))


def test_photographs_are_turned_as_their_camera_says(folder: Path, tmp_path: Path) -> None:
    upright = np.zeros((8, 4, 3), np.uint8)
    upright[:4] = RED
    picture = images.fromarray(upright)
    exif = picture.getexif()
    exif[0x0112] = 6  # Turn by 90 degrees clockwise to see it upright.
    picture.save(folder / "photo.png", exif=exif)
    preprocess(folder)
    (found,) = inputs(folder, model_of(NCHW.format(batch=1), tmp_path))
    np.testing.assert_allclose(found[0, 0, 0, [0, -1]], [0, 1])


# What is refused


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("{mean: [1, 2]}", "preprocess.yaml: field 'mean': 2 values for 3 channels; give one or"),
        ("{std: 0}", "preprocess.yaml:1: field 'std.constrained-float': "),
        ("{colour: gray}", "field 'colour': gray has 1 channels but input 'x' of shape (1, 3, 4,"),
        ("{input: y}", "field 'input': unknown input 'y'; use one of: x"),
        ("{shorter_side: 9}", "shorter_side belongs to 'fit: crop'; set that or remove it"),
        ("{fit: crop, shorter_side: 7}", "field 'shorter_side': 7 is less than the input's 8;"),
        ("{fixed: {size: 1}}", "field 'fixed': names size; the inputs beside 'x' are: none;"),
        ("{mena: 1}", "preprocess.yaml:1: field 'mena': there is no such field"),
    ],
)
def test_preprocessing_that_does_not_fit(
    folder: Path, tmp_path: Path, text: str, sentence: str
) -> None:
    image(folder / "red.png")
    preprocess(folder, text)
    assert sentence in error_of(folder, model_of(NCHW.format(batch=1), tmp_path))


def test_images_without_preprocessing(folder: Path, tmp_path: Path) -> None:
    image(folder / "red.png")
    assert error_of(folder, model_of(NCHW.format(batch=1), tmp_path)).startswith(
        f"folder {folder} holds images but no preprocess.yaml, which says how pixels become the "
        "model's input; write one, e.g. with 'mean: [0.485"
    )


def test_what_is_no_image(folder: Path, tmp_path: Path) -> None:
    (folder / "broken.png").write_bytes(b"no image")
    preprocess(folder)
    model = model_of(NCHW.format(batch=1), tmp_path)
    assert "broken.png is not a readable image" in error_of(folder, model)


@pytest.mark.parametrize("mode", ["I;16", "I", "F"])
def test_more_than_8_bits_would_be_cut(folder: Path, tmp_path: Path, mode: str) -> None:
    images.new(mode, (8, 4), 1000).save(folder / "x-ray.tif")
    preprocess(folder)
    found = error_of(folder, model_of(NCHW.format(batch=1), tmp_path))
    assert f"x-ray.tif has more than 8 bits for each channel (Pillow's mode {mode}" in found


def test_images_among_arrays_and_classes(folder: Path, tmp_path: Path) -> None:
    model = model_of(NCHW.format(batch=1), tmp_path)
    image(folder / "red.png")
    image(folder / "cat" / "red.png")
    preprocess(folder)
    assert "holds images and folders of images; keep either" in error_of(folder, model)
    np.save(folder / "arrays.npy", np.zeros((1, 3, 4, 8), np.float32))
    assert "holds preprocess.yaml, which is for images, and arrays.npy" in error_of(folder, model)
