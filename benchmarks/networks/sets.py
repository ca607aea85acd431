"""Sets of networks by name, as models: built here, files of packages, and what exporters write.

A set has parts, such as the networks whose layers may be read and those that are kept aside.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

import onnx

from benchmarks.networks import exporters, exporters_aside, further, held_out, topologies, unseen
from benchmarks.networks.ocr import has_ocr_models, ocr_models
from placer.graph.edit import fix_input_shapes
from placer.model import Model, load_model

EXPORTED = tuple(
    sorted(
        path.stem
        for path in (Path(__file__).parent / "pytorch").glob("*.py")
        if path.stem not in ("__init__", "export") and not path.stem.endswith("_modules")
    )
)
_DIGITS = Path(__file__).parents[2] / "examples" / "digits" / "digits.onnx"
_OCR = {
    "PP-OCR cls": ("ch_ppocr_mobile_v2.0_cls_infer.onnx", (1, 3, 48, 192)),
    "PP-OCRv4 det": ("ch_PP-OCRv4_det_infer.onnx", (1, 3, 160, 160)),
    "PP-OCRv4 rec": ("ch_PP-OCRv4_rec_infer.onnx", (1, 3, 48, 160)),
}
_FITTED: Mapping[str, Callable[[], onnx.ModelProto]] = {
    "resnet18": lambda: topologies.resnet(64, (2, 2, 2, 2), bottleneck=False),
    "resnet50": lambda: topologies.resnet(64, (3, 4, 6, 3), bottleneck=True),
    "mobilenet_v2": lambda: topologies.mobilenet_v2(64),
    "efficientnet_b0": lambda: topologies.efficientnet(1.0, 1.0, 64),
    "unet": lambda: topologies.unet(64),
    "c2f": lambda: topologies.c2f(64),
    "yolov8n": lambda: topologies.yolov8n(160),
    "vit, 2 blocks": lambda: topologies.vit(64, 128, 4, 2),
}
BUILT: Mapping[str, Mapping[str, Callable[[], onnx.ModelProto]]] = {
    "topologies": topologies.TOPOLOGIES,
    "fitted": _FITTED,
    "others": {**unseen.UNSEEN, **held_out.HELD_OUT},
    "unseen": unseen.UNSEEN,
    "held-out": held_out.HELD_OUT,
    "further": further.FURTHER,
    "exporters": exporters.EXPORTED,
    "exporters-aside": exporters_aside.ASIDE,
}
_IMAGE = 4  # Dimensions.
_WITH_FILES = frozenset({"topologies", "fitted"})
NAMES = (*BUILT, *EXPORTED)


@dataclass(frozen=True)
class Subject:
    """A network of a part of a set; ``load`` reads or builds it when it is its turn."""

    part: str
    name: str
    load: Callable[[], Model]


def subjects(name: str, folder: Path, bodies: bool = False) -> Iterator[Subject]:
    """Those of the set ``name``; ``folder`` holds what exporters write.

    ``bodies``: whether nodes in the bodies of If, Loop and Scan are nodes as others.
    """
    if name in EXPORTED:
        for path in written(name, folder):
            part = f"{name}, {path.parent.name}"
            yield Subject(part, path.stem, partial(load_model, path, bodies=bodies))
        return
    for network, make in BUILT[name].items():
        yield Subject(name, network, partial(_built, make))
    if name in _WITH_FILES:
        yield Subject(name, "digits", partial(load_model, _DIGITS))
        if not has_ocr_models():
            print(f"{name}: without PP-OCRv4, since rapidocr-onnxruntime is not installed")
            return
        for network, (file, shape) in _OCR.items():
            yield Subject(name, network, partial(load_model, ocr_models() / file, {"x": shape}))


def written(name: str, folder: Path) -> Iterator[Path]:
    """The files of an exported set in ``folder``; what is missing is exported if torch is here."""
    if find_spec("torch") is None:
        paths = sorted((folder / name).glob("*/*.onnx"))
        if not paths:
            raise SystemExit(
                f"{folder / name} has no networks and torch is not installed; write them with "
                f"`python -m benchmarks.networks.write {name} --folder {folder}`"
            )
        yield from paths
        return
    export = import_module("benchmarks.networks.pytorch.export").export
    for part, networks in import_module(f"benchmarks.networks.pytorch.{name}").SETS.items():
        place = folder / name / ("all" if part == "." else part)
        place.mkdir(parents=True, exist_ok=True)
        for network, module in networks.items():
            path = place / f"{network}.onnx"
            if not path.exists():
                unfinished = path.with_suffix(".part")
                export(module, unfinished)
                unfinished.rename(path)
            yield path


def fixed(model: Model) -> Model:
    """The model with inputs of the sizes that it was loaded for, as some builders need them."""
    fix_input_shapes(model.proto, model.input_shapes)
    return _loaded(model.proto)


def with_open_sizes(model: Model) -> Model:
    """The model with open heights and widths of its input images, loaded for the same shapes."""
    proto = onnx.ModelProto()
    proto.CopyFrom(model.proto)
    for value in proto.graph.input:
        dims = value.type.tensor_type.shape.dim
        if len(dims) == _IMAGE:
            dims[2].dim_param, dims[3].dim_param = "height", "width"
    return _loaded(proto, model.input_shapes)


def _built(make: Callable[[], onnx.ModelProto]) -> Model:
    return _loaded(make())


def _loaded(proto: onnx.ModelProto, shapes: Mapping[str, tuple[int, ...]] | None = None) -> Model:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.onnx"
        onnx.save(proto, path)
        return load_model(path, shapes)
