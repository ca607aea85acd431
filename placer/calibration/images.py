"""Folders of images, and the file that says how their pixels become the model's input."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import numpy as np
from pydantic import Field, PositiveFloat, PositiveInt, model_validator

from placer.calibration.sample import LABELS, Note, Read, Sample, converted
from placer.calibration.specs import InputSpec, Specs
from placer.common.files import read_text
from placer.common.names import unknown
from placer.common.yaml_file import Strict, parse_text
from placer.errors import InputError

if TYPE_CHECKING:  # An extra, asked for when there are images.
    from PIL.Image import Image, Resampling

PREPROCESSING = "preprocess.yaml"
IMAGES = frozenset({".jpg", ".jpeg", ".png", ".bmp", ".webp", ".tif", ".tiff"})
_CHANNELS = {"rgb": 3, "bgr": 3, "gray": 1}
_BYTE = 1 / 255
# Pillow's modes of one wide channel, integers (also "I;16") and floats, which it would cut at 255.
_WIDE = frozenset({"I", "F"})


class Preprocessing(Strict):
    """``preprocess.yaml``: input = (pixel * scale - mean) / std, for each channel."""

    input: str | None = Field(
        default=None, description="The input that takes the images, where the model has several."
    )
    fit: Literal["stretch", "crop", "pad"] = Field(
        default="stretch",
        description="How an image gets the input's height and width: stretched; scaled until it "
        "covers them, then cropped at the centre; or scaled until it lies inside, then padded.",
    )
    shorter_side: PositiveInt | None = Field(
        default=None, description="Of `fit: crop`: the shorter side before the crop, in pixels."
    )
    padding: int = Field(
        default=114, ge=0, le=255, description="Of `fit: pad`: the pixel value around the image."
    )
    padded: Literal["around", "behind"] = Field(
        default="around",
        description="Of `fit: pad`: the image is in the middle, or at the top left.",
    )
    interpolation: Literal["nearest", "bilinear", "bicubic", "lanczos"] = "bilinear"
    colour: Literal["rgb", "bgr", "gray"] | None = Field(
        default=None,
        description="Order of the channels; by default rgb, gray for an input with one channel.",
    )
    layout: Literal["nchw", "nhwc"] | None = Field(
        default=None, description="Where the input's channels are, if its shape leaves it open."
    )
    scale: PositiveFloat | None = Field(
        default=None, description="By default 1/255, or 1 for an integer input."
    )
    mean: float | tuple[float, ...] = Field(
        default=0.0, description="One for all channels, or one for each, in the order of `colour`."
    )
    std: PositiveFloat | tuple[PositiveFloat, ...] = 1.0
    fixed: dict[str, float | list[float]] = Field(
        default={}, description="Values of the model's other inputs, the same with every image."
    )

    @model_validator(mode="after")
    def _check_fit(self) -> Preprocessing:
        if self.shorter_side is not None and self.fit != "crop":
            raise ValueError("shorter_side belongs to 'fit: crop'; set that or remove it")
        return self


@dataclass(frozen=True)
class _Target:
    """The input that takes the images."""

    spec: InputSpec
    channels_first: bool
    colour: str

    @property
    def size(self) -> tuple[int, int]:
        """Height and width."""
        shape = self.spec.shape
        return (shape[2], shape[3]) if self.channels_first else (shape[1], shape[2])


def open_images(folder: Path, specs: Specs) -> Read:
    """Return what passes over the images of ``folder``, in the order of their paths.

    Images lie in the folder itself, or in a folder for each class: the label of an image is then
    the position of its class among their sorted names. Raises InputError without Pillow, for a
    missing or wrong ``preprocess.yaml`` and inputs that no image fits; a pass raises it for files
    that are no images.
    """
    if find_spec("PIL") is None:
        raise InputError(
            f"folder {folder} holds images, which takes Pillow: pip install 'placer[images]'"
        )
    how = _read_preprocessing(folder)
    target = _target(how, specs, folder / PREPROCESSING)
    fixed = _fixed(how, specs, target, folder / PREPROCESSING)
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


def _read_preprocessing(folder: Path) -> Preprocessing:
    path = folder / PREPROCESSING
    if not path.exists():
        raise InputError(
            f"folder {folder} holds images but no {PREPROCESSING}, which says how pixels become "
            "the model's input; write one, e.g. with 'mean: [0.485, 0.456, 0.406]' and "
            "'std: [0.229, 0.224, 0.225]', as in training"
        )
    return parse_text(read_text(path, "a YAML file", "yaml_bytes"), str(path), Preprocessing)


def _target(how: Preprocessing, specs: Specs, path: Path) -> _Target:
    """The input that ``how`` is about; raises InputError if no image fits it."""
    fitting = [name for name, spec in specs.items() if len(spec.shape) == 4]
    name = how.input
    if name is not None and name not in specs:
        raise InputError(f"{path}: field 'input': {unknown('input', name, specs)}")
    if name is None:
        if len(fitting) != 1:
            shown = ", ".join(fitting) or "none"
            raise InputError(
                f"{path}: field 'input': several inputs or none have four dimensions ({shown}); "
                "name the one that takes the images"
            )
        name = fitting[0]
    spec = specs[name]
    if len(spec.shape) != 4:
        raise InputError(
            f"{path}: field 'input': input '{name}' has shape {spec.shape}, which is no batch of "
            "images; name one with four dimensions"
        )
    channels_first = _channels_first(how, spec, path)
    channels = spec.shape[1 if channels_first else 3]
    colour = how.colour or ("gray" if channels == 1 else "rgb")
    if _CHANNELS[colour] != channels:
        raise InputError(
            f"{path}: field 'colour': {colour} has {_CHANNELS[colour]} channels but input '{name}' "
            f"of shape {spec.shape} has {channels}"
        )
    for field, values in (("mean", how.mean), ("std", how.std)):
        if isinstance(values, tuple) and len(values) != channels:
            raise InputError(
                f"{path}: field '{field}': {len(values)} values for {channels} channels; give one "
                "or one for each"
            )
    target = _Target(spec, channels_first, colour)
    if how.shorter_side is not None and how.shorter_side < max(target.size):
        raise InputError(
            f"{path}: field 'shorter_side': {how.shorter_side} is less than the input's "
            f"{max(target.size)}; raise it"
        )
    return target


def _channels_first(how: Preprocessing, spec: InputSpec, path: Path) -> bool:
    counts = _CHANNELS.values()
    first, last = spec.shape[1] in counts, spec.shape[3] in counts
    if how.layout is None and first == last:
        raise InputError(
            f"{path}: field 'layout': the shape {spec.shape} of input '{spec.name}' does not tell "
            "where the channels are; set nchw or nhwc"
        )
    return first if how.layout is None else how.layout == "nchw"


def _fixed(how: Preprocessing, specs: Specs, target: _Target, path: Path) -> dict[str, np.ndarray]:
    """The values of the inputs that take no image."""
    others = [name for name in specs if name != target.spec.name]
    if sorted(others) != sorted(how.fixed):
        raise InputError(
            f"{path}: field 'fixed': names {', '.join(how.fixed) or 'no input'}; the inputs beside "
            f"'{target.spec.name}' are: {', '.join(others) or 'none'}; give each a value"
        )
    fixed = {}
    for name in others:
        spec = specs[name]
        fixed[name] = _constant(how.fixed[name], spec, f"{path}: field 'fixed'")
    return fixed


def _constant(given: float | list[float], spec: InputSpec, where: str) -> np.ndarray:
    """``given`` in the shape and type of ``spec``, repeated as NumPy broadcasts."""
    values = np.asarray(given, np.float64)
    try:
        made = np.broadcast_to(values, spec.shape).astype(spec.dtype)
    except ValueError as error:
        raise InputError(
            f"{where}: '{spec.name}' has {values.size} values, which do not fill its shape "
            f"{spec.shape}; give one or as many as it takes"
        ) from error
    if spec.dtype.kind in "iub" and not (made == values).all():
        raise InputError(
            f"{where}: '{spec.name}' has values that {spec.dtype} cannot hold; correct them"
        )
    made.flags.writeable = False
    return made


def _images_in(folder: Path) -> tuple[Sequence[Path], Sequence[str]]:
    """The images in order, and the names of their classes if there are any."""
    own = _sorted_images(folder)
    children = sorted(path for path in folder.iterdir() if path.is_dir() and path.name[0] != ".")
    by_class = {child.name: _sorted_images(child) for child in children}
    found = [path for images in by_class.values() for path in images]
    if own and found:
        raise InputError(
            f"folder {folder} holds images and folders of images; keep either, a folder for each "
            "class or none"
        )
    if own:
        return own, ()
    if not found:
        raise InputError(f"folder {folder} holds no image; put the samples there")
    # Left out, an empty folder would shift the labels of all classes behind it.
    empty = next((name for name, images in by_class.items() if not images), None)
    if empty is not None:
        raise InputError(
            f"folder {folder / empty} holds no image, but labels are positions among all folders "
            "of classes; put an image there, or remove the folder if it is no class"
        )
    return found, tuple(by_class)


def _sorted_images(folder: Path) -> list[Path]:
    found = (path for path in folder.iterdir() if path.suffix.lower() in IMAGES)
    return sorted(path for path in found if path.name[0] != ".")


def _input_of(path: Path, target: _Target, how: Preprocessing) -> np.ndarray:
    """The image at ``path`` as the input takes it, without the batch dimension."""
    pixels = _pixels(path, target, how)
    if target.colour == "bgr":
        pixels = pixels[:, :, ::-1]
    is_float = target.spec.dtype.kind == "f"
    scale = how.scale or (_BYTE if is_float else 1.0)
    values = (pixels * scale - np.asarray(how.mean)) / np.asarray(how.std)
    values = values.astype(np.float32) if is_float else np.rint(values).astype(np.int64)
    return np.moveaxis(values, 2, 0) if target.channels_first else values


def _pixels(path: Path, target: _Target, how: Preprocessing) -> np.ndarray:
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
        raise InputError(f"{path} is no readable image ({error}); remove or repair it") from error
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
