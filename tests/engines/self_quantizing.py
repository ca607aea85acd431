"""An engine with everything that is optional: it quantizes by itself and loads what was saved.

ONNX Runtime stands behind it: its own quantizer makes the implicit engine, and an ONNX file under
another name is the saved one.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

import numpy as np
import onnx
from onnxruntime.quantization import CalibrationDataReader, quantize_static

from placer.engines.abilities import Ability
from placer.engines.base import Engine, Tensors
from placer.engines.onnxruntime import OnnxRuntimeEngine, OnnxRuntimeModel
from placer.engines.registry import EngineOptions
from placer.errors import RunError
from placer.graph.shapes import InputType
from placer.model import load_as_is
from placer.rules.target import Target


class SelfQuantizingEngine(OnnxRuntimeEngine):
    name = "self-quantizing"
    target = Target(compute_capability="8.0")
    abilities: frozenset[Ability] = frozenset({"implicit", "saved-engines", "shape-ranges"})

    def compile_implicit(
        self, model: onnx.ModelProto, base_dir: Path, samples: Iterable[Tensors]
    ) -> OnnxRuntimeModel:
        del base_dir  # Its models are small.
        if not any(True for _ in samples):
            raise RunError("there is nothing to calibrate on")
        with tempfile.TemporaryDirectory() as folder:
            source, target = Path(folder) / "float.onnx", Path(folder) / "int8.onnx"
            onnx.save(model, source)
            quantize_static(source, target, Reader(samples))
            return OnnxRuntimeModel(onnx.load(target), Path(folder), threads=1)

    def load(self, path: Path) -> SavedModel:
        if path.read_bytes() == b"damaged":
            raise RunError(f"{path} is damaged")
        return SavedModel(path)


class Reader(CalibrationDataReader):
    def __init__(self, samples: Iterable[Tensors]) -> None:
        self._samples: Iterator[Tensors] = iter(samples)

    def get_next(self) -> dict[str, np.ndarray] | None:
        sample = next(self._samples, None)
        return None if sample is None else dict(sample)


class SavedModel(OnnxRuntimeModel):
    def __init__(self, path: Path) -> None:
        found = load_as_is(path)
        super().__init__(found.proto, path.parent, threads=1)
        self.inputs: Mapping[str, InputType] = {
            name: InputType(tuple(shape), "float32") for name, shape in found.input_shapes.items()
        }


class Factory:
    rules = "onnxruntime"

    def unavailable(self) -> str | None:
        return None

    def create(self, options: EngineOptions) -> Engine:
        engine = SelfQuantizingEngine(options.threads)
        ranges = {name: found.text for name, found in options.shape_ranges.items()}
        engine.device = f"{engine.device}, ranges {ranges}"
        return engine


factory = Factory()
