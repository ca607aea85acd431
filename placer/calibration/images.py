"""Folders of images as data."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from placer.calibration.preprocessing import (
    PREPROCESSING,
    Preprocessing,
    Target,
    fixed_inputs,
    read_preprocessing,
    target_of,
)
from placer.calibration.sample import LABELS, Note, Read, Sample, converted
from placer.calibration.specs import Specs
from placer.errors import InputError

if TYPE_CHECKING:  # An extra, asked for when there are images.
    from PIL.Image import Image, Resampling

IMAGES = frozenset({".jpg", ".jpeg", ".png", ".bmp", ".webp", ".tif", ".tiff"})
_BYTE = 1 / 255
# Pillow's modes of one wide channel, integers (also "I;16") and floats, which it would cut at 255.
_WIDE = frozenset({"I", "F"})


def open_images(folder: Path, specs: Specs) -> Read:
    """Return what passes over the images of ``folder``, in the order of their paths.

    Images lie in the folder itself, or in a folder for each class: the label of an image is then
    the position of its class among their sorted names. A single folder tells no labels. Raises
    InputError without Pillow, for a missing or wrong ``preprocess.yaml``, inputs that no image fits
    and images in deeper folders; a pass raises it for files
    that are no images.
    """
    if find_spec("PIL") is None:
        raise InputError(f"folder {folder} holds images, which takes Pillow: pip install pillow")
    how = read_preprocessing(folder)
    target = target_of(how, specs, folder / PREPROCESSING)
    fixed = fixed_inputs(how, specs, target, folder / PREPROCESSING)
    paths, classes = _images_in(folder)
    batch = target.spec.batch

    def read(note: Note) -> Iterator[Sample]:
        if len(paths) % batch:
            note(f"{folder}: {len(paths) % batch} of {len(paths)} images fill no batch of {batch}")
        if classes:
            shown = ", ".join(f"{label} {name}" for label, name in enumerate(classes[:5]))
            more = ", ..." if len(classes) > 5 else ""
            note(f"{folder}: '{LABELS}' are the positions of its {len(classes)} folders: "
                 f"{shown}{more}")  # fmt: skip
        for first in range(0, len(paths) - batch + 1, batch):
            chosen = paths[first : first + batch]
            pixels = np.stack([_input_of(path, target, how) for path in chosen])
            origin = str(chosen[0]) if batch == 1 else f"{chosen[0]} and {batch - 1} more"
            image = converted(pixels, target.spec, origin, str(folder), note)
            labels = [classes.index(path.parent.name) for path in chosen] if classes else None
            inputs = {name: fixed.get(name, image) for name in specs}
            yield Sample(inputs, None if labels is None else np.array(labels), origin)

    return read


def _images_in(folder: Path) -> tuple[Sequence[Path], Sequence[str]]:
    """The images in order, and the names of their classes if there are any."""
    direct = _sorted_images(folder)
    children = sorted(path for path in folder.iterdir() if path.is_dir() and path.name[0] != ".")
    by_class = {child.name: _sorted_images(child) for child in children}
    if direct and any(by_class.values()):
        raise InputError(
            f"folder {folder} holds images and folders of images; keep either, a folder for each "
            "class or none"
        )
    return (direct, ()) if direct else _images_by_class(folder, children, by_class)


def _images_by_class(
    folder: Path, children: Sequence[Path], by_class: Mapping[str, Sequence[Path]]
) -> tuple[Sequence[Path], Sequence[str]]:
    """The images of ``children``, the folders in ``folder``, and the names of their classes.

    One folder alone is no class. Raises InputError where labels would be wrong or nothing is there.
    """
    classed = [path for images in by_class.values() for path in images]
    below = (path for child in children for path in child.glob("[!.]*/*") if _is_image(path))
    deeper = next(below, None)
    if deeper is not None:
        raise InputError(
            f"{deeper} lies deeper than the folders of {folder}, which are taken for classes; give "
            "the folder that holds the images, or a folder for each class"
        )
    if not classed:
        raise InputError(f"folder {folder} holds no image; put the samples there")
    if len(children) == 1:
        return classed, ()
    # Left out, an empty folder would shift the labels of all classes behind it.
    empty = next((name for name, images in by_class.items() if not images), None)
    if empty is not None:
        raise InputError(
            f"folder {folder / empty} holds no image, but labels are positions among all folders "
            "of classes; put an image there, or remove the folder if it is not a class"
        )
    return classed, tuple(by_class)


def _sorted_images(folder: Path) -> list[Path]:
    return sorted(path for path in folder.iterdir() if _is_image(path))


def _is_image(path: Path) -> bool:
    return path.suffix.lower() in IMAGES and path.name[0] != "."


def _input_of(path: Path, target: Target, how: Preprocessing) -> np.ndarray:
    """The image at ``path`` as the input takes it, without the batch dimension."""
    pixels = _pixels(path, target, how)
    if target.colour == "bgr":
        pixels = pixels[:, :, ::-1]
    is_float = target.spec.dtype.kind == "f"
    scale = how.scale or (_BYTE if is_float else 1.0)
    values = (pixels * scale - np.asarray(how.mean)) / np.asarray(how.std)
    values = values.astype(np.float32) if is_float else np.rint(values).astype(np.int64)
    return np.moveaxis(values, 2, 0) if target.channels_first else values


def _pixels(path: Path, target: Target, how: Preprocessing) -> np.ndarray:
    """Pixels in [0, 255], shape (height, width, channels) of the input, red first."""
    from PIL import Image as images  # noqa: PLC0415
    from PIL import ImageOps  # noqa: PLC0415

    height, width = target.size
    try:
        with images.open(path) as opened:
            if opened.mode.partition(";")[0] in _WIDE:
                raise InputError(
                    f"{path} has more than 8 bits for each channel (Pillow's mode {opened.mode}); "
                    "save it with 8, or give arrays instead"
                )
            upright = ImageOps.exif_transpose(opened)
            image = upright.convert("L" if target.colour == "gray" else "RGB")
            filter_ = images.Resampling[how.interpolation.upper()]
            pixels = np.asarray(_fitted(image, (width, height), how, filter_), np.float64)
    except (OSError, ValueError, SyntaxError) as error:
        raise InputError(f"{path} is not a readable image ({error}); remove it") from error
    except images.DecompressionBombError as error:
        raise InputError(f"{path} is too large an image ({error}); scale it down") from error
    return pixels if pixels.ndim == 3 else pixels[:, :, None]


def _fitted(image: Image, size: tuple[int, int], how: Preprocessing, filter_: Resampling) -> Image:
    """``image`` in ``size``, (width, height)."""
    from PIL import ImageOps  # noqa: PLC0415

    if how.fit == "stretch":
        return image.resize(size, filter_)
    if how.fit == "pad":
        colour = (how.padding,) * len(image.getbands())
        centre = (0.5, 0.5) if how.padded == "around" else (0.0, 0.0)
        return ImageOps.pad(image, size, filter_, colour, centre)
    if how.shorter_side is None:
        return ImageOps.fit(image, size, filter_)
    ratio = how.shorter_side / min(image.size)
    scaled = image.resize((round(image.width * ratio), round(image.height * ratio)), filter_)
    left, top = (scaled.width - size[0]) // 2, (scaled.height - size[1]) // 2
    return scaled.crop((left, top, left + size[0], top + size[1]))
