"""The classes of layers in ``configs/layer_classes.yaml``: what each reaches of a data sheet."""

from __future__ import annotations

from functools import cache
from importlib import resources
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from placer.common.yaml_file import parse_file
from placer.prediction.times.gpus import Gpu

Rate = Literal["tensor", "cuda", "elements"]
# What is told by the figures of another type where it was not measured itself.
_LIKE = {"float8e4m3fn": "int8"}
BLACKWELL = 10.0  # The lowest compute capability of Blackwell GPUs.


class LayerClass(BaseModel):
    """Efficiencies of one kind of layer.

    ``dtype``: type that the layer reads; empty for any other. ``compute_capability``: of the GPUs
    that the figures were measured on; empty for those that have no class of their own. ``rate``:
    what computes: ``tensor`` cores, ``cuda`` cores (FP32 rate) or, for ``elements`` that are
    converted, a warp of each multiprocessor in each clock cycle. ``bandwidth_efficiency`` is that
    of writing too, unless ``write_efficiency`` is given. ``depth_cycles``: clock cycles for each
    product that an element of the output sums. ``least_depth_cycles``: those that they and
    operations and bytes take together at least: a layer with few outputs runs on few cores, which
    hide nothing of it.
    ``latency_cycles``: constant. ``tile``: channels are computed in multiples of 64, with 32 those
    of up to 128 in multiples of 32; 0 for what tensor cores take at least. ``source``: where the
    figures come from; "assumed" where nothing was measured.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str
    dtype: str = ""
    compute_capability: str = ""
    rate: Rate = "tensor"
    ops_efficiency: float = Field(gt=0, le=1)
    bandwidth_efficiency: float = Field(gt=0)
    write_efficiency: float | None = Field(default=None, gt=0)
    depth_cycles: float = Field(default=0, ge=0)
    least_depth_cycles: float = Field(default=0, ge=0)
    tile: Literal[0, 32, 64] = 0
    latency_cycles: float = Field(ge=0)
    source: str = Field(min_length=7)


class LayerClasses(BaseModel):
    """``configs/layer_classes.yaml``.

    ``launch_cycles``: what each layer costs beyond its work. ``ratio_error``: relative error that
    80% of the estimated ratios of two builds of one network stay within, ``latency_error``: the
    same of the estimated latencies of engines that no class was fitted to. ``matrix_ratio_error``:
    ``ratio_error`` of networks whose operations are mostly products of matrices,
    ``depthwise_ratio_error``: of networks of depthwise Convs, ``float_ratio_error``: where what is
    not quantized is FP32, ``blackwell_ratio_error``: on GPUs since Blackwell. ``layer_error``: by
    how much the layers around a site must differ for another layout than the rule's.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    launch_cycles: float = Field(ge=0)
    launch_source: str
    ratio_error: float = Field(default=0, ge=0)
    matrix_ratio_error: float = Field(default=0, ge=0)
    depthwise_ratio_error: float = Field(default=0, ge=0)
    float_ratio_error: float = Field(default=0, ge=0)
    blackwell_ratio_error: float = Field(default=0, ge=0)
    layer_error: float = Field(default=0, ge=0)
    latency_error: float = Field(default=0, ge=0)
    error_source: str = ""
    classes: tuple[LayerClass, ...]

    def launch_us(self, gpu: Gpu) -> float:
        """What each layer costs on ``gpu`` beyond its work, in microseconds."""
        return self.launch_cycles / gpu.clock_mhz

    def least_ratio_error(self, base: str, compute_capability: str) -> float:
        """``ratio_error`` of networks of any kind, what is not quantized being in ``base``.

        In FP32 it is little known how fast layers are that read integers and write float, and such
        ratios were further off. So were those on Blackwell, of which no engine was fitted.
        """
        errors = [self.ratio_error]
        if base == "float":
            errors.append(self.float_ratio_error)
        if float(compute_capability) >= BLACKWELL:
            errors.append(self.blackwell_ratio_error)
        return max(errors)

    def find(self, name: str, dtype: str, compute_capability: str = "") -> LayerClass:
        """The class of layers ``name`` that read ``dtype``, or else of any type.

        One of the GPU's own compute capability goes before those of any. FP8 that was not measured
        is taken to do as well as INT8, whose tensors are as large.
        """
        same = [entry for entry in self.classes if entry.name == name]
        types = dict.fromkeys((dtype, _LIKE.get(dtype, dtype), ""))
        wanted = [
            (of_types, capability) for capability in (compute_capability, "") for of_types in types
        ]
        by_key = {(entry.dtype, entry.compute_capability): entry for entry in reversed(same)}
        return next(by_key[key] for key in wanted if key in by_key)


@cache
def load_layer_classes() -> LayerClasses:
    """The classes in ``configs/layer_classes.yaml``, which is read once."""
    folder = Path(str(resources.files("placer.configs")))
    return parse_file(folder / "layer_classes.yaml", folder, LayerClasses)
