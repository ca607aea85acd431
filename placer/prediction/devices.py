"""What ``gpu`` names: a GPU's description, or costs that ``placer fit`` measured on a device."""

from __future__ import annotations

from pathlib import Path

from placer.common.files import read_text
from placer.graph import Graph
from placer.prediction.estimator import Estimator
from placer.prediction.fitted import Fit, FittedEstimator, parse_fit
from placer.prediction.gpus import Gpu, load_gpu
from placer.prediction.roofline import Roofline, load_layer_classes
from placer.rules.target import Target

Device = Gpu | Fit


def load_device(name_or_path: str) -> Device:
    """A fit file, or what ``load_gpu`` takes, with its errors; InputError for a damaged file."""
    path = Path(name_or_path)
    if path.is_file():
        text = read_text(path, "a GPU or fit file", "json_bytes")
        if text.lstrip().startswith("{"):
            return parse_fit(text, name_or_path)
    return load_gpu(name_or_path)


def make_estimator(graph: Graph, device: Device) -> Estimator:
    """What estimates the layers of ``graph`` on ``device``."""
    if isinstance(device, Fit):
        return FittedEstimator(graph, device)
    return Roofline(graph, device, load_layer_classes())


def target_on(device: Device, weak: bool = False) -> Target:
    """What is predicted for: types are strong unless ``weak``, or as the fit's builds had them."""
    if isinstance(device, Fit):
        return device.target
    return Target(compute_capability=device.compute_capability, typing="weak" if weak else "strong")


def pack_of(device: Device, default: str) -> str:
    """The name of the pack to predict with where none is given."""
    return device.engine.pack if isinstance(device, Fit) else default


def base_of(device: Device, default: str) -> str:
    """The type of what is not quantized where none is given."""
    return device.engine.base if isinstance(device, Fit) else default
