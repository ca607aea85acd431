"""ONNX Runtime's execution providers: what each needs, and sessions that run on one of them."""

from __future__ import annotations

import importlib
import importlib.util
import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import onnxruntime as ort

from placer.common.names import unknown
from placer.common.ort_session import Use
from placer.errors import InputError, RunError

SUFFIX = "ExecutionProvider"
CPU = f"CPU{SUFFIX}"
_OPENVINO_PRECISIONS = {"float": "f32", "bfloat16": "bf16"}
_OPENVINO_LIBRARY = re.compile(r"libopenvino\.so\.(\d\d)(\d)(\d)")


@dataclass(frozen=True)
class Settings:
    """What a session is asked for: ``base`` and, on GPUs, the number of the ``device``."""

    threads: int
    base: str
    device: int


@dataclass(frozen=True)
class Provider:
    """An execution provider and how placer uses it.

    ``pack``: the rule pack that fits what it fuses. ``wheel``: the package that replaces
    ``onnxruntime`` and has it built in. ``plugin``: the package that adds it to ``onnxruntime``.
    ``bases``: what `base` may be, the default first; none if the model's own types are kept.
    ``optimized``: whether ONNX Runtime's optimizer runs first. ``libraries``: packages that tell
    the version of the library that ``pack`` is about. ``others``: providers that take what it
    leaves, before the CPU's.
    """

    name: str
    pack: str
    wheel: str
    options: Callable[[Settings], dict[str, str]]
    plugin: str = ""
    bases: tuple[str, ...] = ()
    on_gpu: bool = True
    optimized: bool = True
    libraries: tuple[str, ...] = ()
    others: tuple[str, ...] = ()

    @property
    def short(self) -> str:
        """The name without ``ExecutionProvider``."""
        return self.name.removesuffix(SUFFIX)

    def library_version(self) -> str | None:
        """Version of the library that its ``pack`` is about, None if it cannot be told."""
        if self.pack == "onnxruntime":
            return str(ort.__version__)
        if self.pack == "openvino":
            return _openvino_version(self)
        for package in self.libraries:
            try:
                return version(package)
            except PackageNotFoundError:
                continue
        return None


def _openvino(settings: Settings) -> dict[str, str]:
    # As the engine openvino; without the hint it may compute in bfloat16 where the CPU can.
    config = {
        "INFERENCE_PRECISION_HINT": _OPENVINO_PRECISIONS[settings.base],
        "NUM_STREAMS": "1",
        "PERFORMANCE_HINT": "LATENCY",
        "ENABLE_CPU_PINNING": "NO",
    }
    return {
        "device_type": "CPU",
        "num_of_threads": str(settings.threads),
        "load_config": json.dumps({"CPU": config}),
    }


def _tensorrt(settings: Settings) -> dict[str, str]:
    return {
        "device_id": str(settings.device),
        # Weakly typed networks take Q/DQ pairs only with the flag.
        "trt_int8_enable": "1",
        "trt_fp16_enable": str(int(settings.base == "float16")),
    }


def _gpu(settings: Settings) -> dict[str, str]:
    return {"device_id": str(settings.device)}


_CUDA = f"CUDA{SUFFIX}"
PROVIDERS: Mapping[str, Provider] = {
    provider.name: provider
    for provider in (
        Provider(
            f"Tensorrt{SUFFIX}",
            pack="tensorrt",
            wheel="onnxruntime-gpu",
            options=_tensorrt,
            bases=("float", "float16"),
            libraries=("tensorrt", "tensorrt-cu13", "tensorrt-cu12"),
            others=(_CUDA,),
        ),
        Provider(
            f"NvTensorRTRTX{SUFFIX}",
            pack="tensorrt-rtx",
            wheel="onnxruntime-trt-rtx",
            plugin="onnxruntime-ep-nv-tensorrt-rtx",
            options=_gpu,
        ),
        Provider(_CUDA, pack="onnxruntime", wheel="onnxruntime-gpu", options=_gpu),
        Provider(
            f"OpenVINO{SUFFIX}",
            pack="openvino",
            wheel="onnxruntime-openvino",
            plugin="onnxruntime-ep-openvino",
            options=_openvino,
            bases=tuple(_OPENVINO_PRECISIONS),
            on_gpu=False,
            # Intel advises to leave the graph to OpenVINO, which knows the pairs that it fuses.
            optimized=False,
        ),
    )
}


def parse_provider(text: str) -> Provider | None:
    """The provider called ``text``, with or without ``ExecutionProvider``; None for the CPU's.

    Raises InputError for one that placer does not know.
    """
    wanted = text.lower().removesuffix(SUFFIX.lower())
    if wanted == "cpu":
        return None
    for provider in PROVIDERS.values():
        if provider.short.lower() == wanted:
            return provider
    raise InputError(f"engine option provider: {unknown('provider', text, (CPU, *PROVIDERS))}")


def is_present(provider: Provider) -> bool:
    """Whether this ONNX Runtime has ``provider``, built in or as a plug-in."""
    return provider.name in ort.get_available_providers() or _plugin_module(provider) is not None


def absent(provider: Provider) -> RunError:
    """What to raise where ``provider`` is not present; it names the package that has it."""
    swap = f"pip uninstall onnxruntime and pip install {provider.wheel}"
    add = f"pip install {provider.plugin}, or " if provider.plugin else ""
    return RunError(f"ONNX Runtime {ort.__version__} here has no {provider.name}; {add}{swap}")


def session_use(provider: Provider, settings: Settings) -> Use:
    """How a session gets ``provider``; RunError if a plug-in of ONNX Runtime finds no device."""
    options = provider.options(settings)
    if provider.name in ort.get_available_providers():
        present = [p for p in provider.others if p in ort.get_available_providers()]
        rest = [name for name in (*present, CPU) if name != provider.name]
        return lambda _: [(provider.name, options), *rest]
    return use_devices(provider.name, _plugin_devices(provider, settings), options)


def use_devices(name: str, devices: Sequence[ort.OrtEpDevice], options: dict[str, str]) -> Use:
    """The provider ``name`` on ``devices``, as a plug-in tells them; RunError if there are none."""
    if not devices:
        raise RunError(f"the plug-in with {name} finds no device that it can run on here")

    def use(session_options: ort.SessionOptions) -> Sequence[str]:
        session_options.add_provider_for_devices(list(devices), options)
        return ()

    return use


def _plugin_module(provider: Provider) -> str | None:
    name = provider.plugin.replace("-", "_")
    return name if name and importlib.util.find_spec(name) is not None else None


def _plugin_devices(provider: Provider, settings: Settings) -> Sequence[ort.OrtEpDevice]:
    name = _plugin_module(provider)
    if name is None:
        raise absent(provider)
    module = importlib.import_module(name)
    known = {device.ep_name for device in ort.get_ep_devices()}
    if module.get_ep_name() not in known:
        try:
            ort.register_execution_provider_library(
                module.get_ep_name(), str(module.get_library_path())
            )
        except Exception as error:  # Its class is ONNX Runtime's own and differs by reason.
            raise RunError(f"{provider.plugin} cannot be loaded: {error}") from error
    kind = "GPU" if provider.on_gpu else "CPU"
    devices = [
        device
        for device in ort.get_ep_devices()
        if device.ep_name == module.get_ep_name() and device.device.type.name == kind
    ]
    return devices[settings.device : settings.device + 1]


def _openvino_version(provider: Provider) -> str | None:
    folders = [Path(ort.__file__).parent / "capi"]
    plugin = _plugin_module(provider)
    if plugin is not None:
        spec = importlib.util.find_spec(plugin)
        folders += (
            [Path(place) for place in (spec.submodule_search_locations or [])] if spec else []
        )
    for folder in folders:
        for path in sorted(folder.glob("libopenvino.so.*")):
            match = _OPENVINO_LIBRARY.fullmatch(path.name)
            if match:
                year, minor, patch = match.groups()
                return f"20{year}.{minor}.{patch}"
    return None
