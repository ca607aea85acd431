"""What ``gpu`` names: a GPU's description, or costs that ``placer fit`` measured on a device."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from placer.common.files import read_text
from placer.common.names import engine_title
from placer.common.processor import UNKNOWN_PROCESSOR, Processor
from placer.errors import InputError
from placer.graph import Graph
from placer.prediction.times.estimator import Estimator, NoTimes
from placer.prediction.times.fitted import Fit, FittedEstimator, parse_fit
from placer.prediction.times.gpus import Gpu, known_gpu, load_gpu
from placer.prediction.times.layer_classes import load_layer_classes
from placer.prediction.times.roofline import Roofline
from placer.rules.behaviour import DEFAULT_BEHAVIOUR, Behaviour
from placer.rules.pack import Pack
from placer.rules.packaging.load import load_pack
from placer.rules.target import Target

Device = Gpu | Fit
# The engine whose layers the estimates for GPUs are of.
_ESTIMATED = "tensorrt"
_DEFAULT = "a100"
_SUFFIXES = (".json", ".yaml", ".yml")  # Of files that describe a device; no GPU's name has one.


def load_device(name_or_path: str) -> Device:
    """A fit file, or what ``load_gpu`` takes, with its errors.

    Raises InputError for a file that is missing or damaged.
    """
    path = Path(name_or_path)
    if path.is_file() or path.suffix in _SUFFIXES:  # Else a missing file would be an unknown GPU.
        text = read_text(path, "a GPU or fit file", "json_bytes")
        if text.lstrip().startswith("{"):
            return parse_fit(text, name_or_path)
    return load_gpu(name_or_path)


def device_for(name_or_path: str | None, pack: str | None) -> Device | None:
    """The device to estimate for; None where ``pack`` is of an engine without estimates.

    Raises InputError for what ``load_device`` refuses, and for a GPU that is named with such a
    pack.
    """
    device = None if name_or_path is None else load_device(name_or_path)
    if isinstance(device, Fit) or pack is None:
        return device or load_device(_DEFAULT)
    engine = load_pack(pack).manifest.engine
    if engine == _ESTIMATED:
        return device or load_device(_DEFAULT)
    if device is not None:
        raise InputError(
            f"pack '{pack}' is for engine {engine}, and the estimates for GPUs are of "
            f"{engine_title(_ESTIMATED)}'s layers; leave out `gpu`, or give a file of placer fit"
        )
    return None


def device_like(name: str, target: Target, pack: Pack) -> Device | None:
    """The GPU called ``name``, else one as ``target`` says, else the default one.

    One of the target's compute capability is the best-known of these. None where ``pack`` is of an
    engine without estimates.
    """
    if pack.manifest.engine != _ESTIMATED:
        return None
    architecture = f"sm{target.compute_capability or ''}".replace(".", "")
    return known_gpu(name) or known_gpu(architecture) or load_gpu(_DEFAULT)


def told_apart(device: Device) -> str:
    """What tells ``device`` from others of its name, e.g. ``, fit 1a2b3c``; "" for a shipped one.

    A file may be edited under the same name, and estimates of the two are not comparable.
    """
    if isinstance(device, Fit):
        return f", fit {device.fingerprint}"
    return "" if known_gpu(device.name) == device else f", description {device.fingerprint}"


def make_estimator(
    graph: Graph,
    device: Device | None,
    behaviour: Behaviour = DEFAULT_BEHAVIOUR,
    base: str = "float16",
) -> Estimator:
    """What estimates the layers of ``graph`` on ``device``; None gives no times.

    ``behaviour``: that of the engine's pack. ``base``: the type of what is not quantized, by which
    estimates for a GPU say how far off they may be.
    """
    if device is None:
        return NoTimes()
    if isinstance(device, Fit):
        return FittedEstimator(graph, device)
    half_groups = behaviour.grouped_convs == "half"
    classes = load_layer_classes()
    return Roofline(graph, device, classes, half_groups=half_groups, base=base)


def target_on(
    device: Device | None, weak: bool = False, processor: Processor | None = None
) -> Target:
    """What is predicted for: types are strong unless ``weak``, or as the fit's builds had them.

    ``processor``: where ``device`` is no GPU; None: the fit's, or one of which nothing is known.
    """
    if device is None:
        known = UNKNOWN_PROCESSOR if processor is None else processor
        return Target(typing="weak" if weak else "strong", processor=known)
    if isinstance(device, Fit):
        return device.target if processor is None else replace(device.target, processor=processor)
    return Target(compute_capability=device.compute_capability, typing="weak" if weak else "strong")


def pack_of(device: Device | None, default: str) -> str:
    """The name of the pack to predict with where none is given."""
    return device.engine.pack if isinstance(device, Fit) else default


def base_of(device: Device | None) -> str:
    """The type of what is not quantized where none is given: FP16 on GPUs, else FP32."""
    if device is None:
        return "float"
    return device.engine.base if isinstance(device, Fit) else "float16"
