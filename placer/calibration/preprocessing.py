"""``preprocess.yaml``: how pixels of images become a model's input, held against its inputs."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
from pydantic import Field, PositiveFloat, PositiveInt, model_validator

from placer.calibration.specs import InputSpec, Specs
from placer.common.files import read_text
from placer.common.names import unknown
from placer.common.yaml_file import Strict, parse_text
from placer.errors import InputError

PREPROCESSING = "preprocess.yaml"
_CHANNELS = {"rgb": 3, "bgr": 3, "gray": 1}


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
class Target:
    """The input that takes the images."""

    spec: InputSpec
    channels_first: bool
    colour: str

    @property
    def size(self) -> tuple[int, int]:
        """Height and width."""
        shape = self.spec.shape
        return (shape[2], shape[3]) if self.channels_first else (shape[1], shape[2])


def read_preprocessing(folder: Path) -> Preprocessing:
    """What ``preprocess.yaml`` of ``folder`` says; raises InputError if it is missing or wrong."""
    path = folder / PREPROCESSING
    if not path.exists():
        raise InputError(
            f"folder {folder} holds images but no {PREPROCESSING}, which says how pixels become "
            "the model's input; write one, e.g. with 'mean: [0.485, 0.456, 0.406]' and "
            "'std: [0.229, 0.224, 0.225]', as in training"
        )
    return parse_text(read_text(path, "a YAML file", "yaml_bytes"), str(path), Preprocessing)


def target_of(how: Preprocessing, specs: Specs, path: Path) -> Target:
    """The input that ``how`` is about; raises InputError if no image fits it."""
    name = _input_name(how, specs, path)
    spec = specs[name]
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
    target = Target(spec, channels_first, colour)
    if how.shorter_side is not None and how.shorter_side < max(target.size):
        raise InputError(
            f"{path}: field 'shorter_side': {how.shorter_side} is less than the input's "
            f"{max(target.size)}; raise it"
        )
    return target


def _input_name(how: Preprocessing, specs: Specs, path: Path) -> str:
    """The input that ``how`` names, or else the only one that may take images."""
    name = how.input
    if name is None:
        fitting = [name for name, spec in specs.items() if len(spec.shape) == 4]
        if len(fitting) != 1:
            shown = ", ".join(fitting) or "none"
            raise InputError(
                f"{path}: field 'input': several inputs or none have four dimensions ({shown}); "
                "name the one that takes the images"
            )
        return fitting[0]
    if name not in specs:
        raise InputError(f"{path}: field 'input': {unknown('input', name, specs)}")
    if len(specs[name].shape) != 4:
        raise InputError(
            f"{path}: field 'input': input '{name}' has shape {specs[name].shape}, which is not a "
            "batch of images; name one with four dimensions"
        )
    return name


def _channels_first(how: Preprocessing, spec: InputSpec, path: Path) -> bool:
    counts = _CHANNELS.values()
    first, last = spec.shape[1] in counts, spec.shape[3] in counts
    if how.layout is None and first == last:
        raise InputError(
            f"{path}: field 'layout': the shape {spec.shape} of input '{spec.name}' does not tell "
            "where the channels are; set nchw or nhwc"
        )
    return first if how.layout is None else how.layout == "nchw"


def fixed_inputs(
    how: Preprocessing, specs: Specs, target: Target, path: Path
) -> dict[str, np.ndarray]:
    """The values of the inputs that take no image; InputError if ``how`` does not give them all."""
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
