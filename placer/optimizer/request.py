"""What a user asks of a run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from placer.graph.shapes import ShapeRange
from placer.qdq.precision import InputOutputTypes

AUTO = "auto"
RANGES = ("imported", "calibrated")
LEAST_FRONT = 2


@dataclass(frozen=True)
class Request:
    """What the user asks for; None stands for the documented default.

    ``data`` and ``evaluation_data``: see ``placer.calibration.dataset.load_dataset``. ``timeout``
    in seconds. ``gpu`` and ``build_for`` are for the engine ``fusion-model``: the GPU to predict
    for and the one that TensorRT-RTX builds every candidate for. ``base``: type of what is not
    quantized, on engines that take one (``Task.base``); ``io_type``: whether graph inputs and
    outputs are converted too. ``device``: what the engine runs on. ``engine_options``: what an
    engine takes besides.
    ``shapes`` of inputs, and ``shape_ranges`` of others, of which the optimum stands for the rest
    where one shape is needed. ``beats``: what the result must not be slower than; see
    ``placer.optimizer.latency_baselines``. ``ranges``: of a model that is quantized already,
    ``imported`` keeps its scales and calibrates other tensors only, ``calibrated`` keeps none.
    ``sampler``: see ``placer.optimizer.proposer.Sampler``. ``warm_starts``: see
    ``placer.optimizer.warm_start``. ``storage``: URL of an Optuna storage that workers share, and
    ``study`` a name in it. ``devices``: several devices of this machine that work on the study at
    once. ``front``: how many points of the latency-accuracy front to find, 2 or more; None for the
    fastest only.
    """

    model: Path
    output: Path | None = None
    shapes: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    shape_ranges: Mapping[str, ShapeRange] = field(default_factory=dict)
    data: str | None = None
    evaluation_data: str | None = None
    engine: str = AUTO
    threads: int = 1
    gpu: str | None = None
    base: str | None = None
    io_type: InputOutputTypes = "keep"
    build_for: str | None = None
    device: str | None = None
    devices: tuple[str, ...] = ()
    engine_options: Mapping[str, str] = field(default_factory=dict)
    pack: str | None = None
    scheme: str | None = None
    calibration: str = AUTO
    ranges: str = "imported"
    gates: tuple[str, ...] = ()
    beats: tuple[str, ...] = ()
    preset: str = "default"
    budget: int | None = None
    timeout: float | None = None
    seed: int = 0
    sampler: str = "surrogate"
    front: int | None = None
    warm_starts: tuple[Path, ...] = ()
    storage: str | None = None
    study: str | None = None
    cache_dir: Path | None = None

    @property
    def output_folder(self) -> Path:
        """``output``, or ``<model>.placer`` in the current folder."""
        return self.output or Path(f"{self.model.stem}.placer")
