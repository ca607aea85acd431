"""What an OpenVINO IR quantizes: FakeQuantize of activations, and weights that were compressed.

NNCF writes activations as FakeQuantize, and weights either so too or as integers that Convert,
maybe Subtract, and Multiply make floats of
(https://docs.openvino.ai/2025/documentation/openvino-ir-format/operation-sets/operation-specs/quantization/fake-quantize-1.html).
Tensors keep the names that they had in the ONNX model that the IR was made from.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from placer.engines.openvino.library import load_openvino
from placer.errors import InputError

_FAKE, _LEVELS = "FakeQuantize", (255, 256)


@dataclass(frozen=True)
class Reader:
    """An operation that reads a quantized value.

    ``tensors``: names of what it writes, itself or, where the IR has several operations for one,
    the last of them. ``output``: it is the model's output of this name.
    """

    tensors: frozenset[str]
    output: str = ""


@dataclass(frozen=True)
class QuantizedActivation:
    """A FakeQuantize of a value that depends on the input.

    ``tensors``: names of the value. ``low``, ``high``: what the first and the last of ``levels``
    stand for.
    """

    name: str
    tensors: frozenset[str]
    low: float
    high: float
    levels: int
    readers: tuple[Reader, ...]


@dataclass(frozen=True, eq=False)
class QuantizedWeight:
    """A quantized constant that ``reader`` computes with.

    ``values``: floats, rounded or not. ``scale``: of each value. ``tensors``: the
    constant's names.
    """

    name: str
    tensors: frozenset[str]
    values: np.ndarray
    scale: np.ndarray
    reader: Reader


@dataclass(frozen=True)
class Quantized:
    """All that an IR quantizes.

    ``unsupported``: a sentence for each quantization that ONNX's Q/DQ cannot express.
    """

    activations: tuple[QuantizedActivation, ...]
    weights: tuple[QuantizedWeight, ...]
    unsupported: tuple[str, ...]


class _Unsupported(Exception):
    """Why ONNX's Q/DQ cannot express a quantization."""


def read_ir(path: Path) -> Quantized:
    """What the IR at ``path`` quantizes.

    Raises InputError if OpenVINO is missing or cannot read the file, and for scales that are not
    positive.
    """
    if importlib.util.find_spec("openvino") is None:
        raise InputError(f"reading {path} needs OpenVINO; pip install openvino")
    if not path.is_file():
        raise InputError(f"{path} does not exist; give the .xml file of an OpenVINO IR")
    try:
        model = load_openvino().Core().read_model(path)
    except RuntimeError as error:
        reason = " ".join(str(error).split())[:200]
        raise InputError(f"OpenVINO cannot read {path}: {reason}") from error
    return _Ir(model, path).quantized()


class _Ir:
    """The operations of the IR ``model``, an ``openvino.Model``, that was read from ``path``."""

    def __init__(self, model: Any, path: Path) -> None:
        self._model = model
        self._path = path
        self._constant: dict[str, bool] = {}
        self._unsupported: list[str] = []

    def quantized(self) -> Quantized:
        activations: list[QuantizedActivation] = []
        weights: list[QuantizedWeight] = []
        for op in self._model.get_ordered_ops():
            if self._is_constant(op):
                continue
            if op.get_type_name() == _FAKE:
                with self._noting_unsupported(op):
                    activations.append(self._activation(op))
                continue
            for source in _sources(op):
                if self._is_constant(source) and _is_quantized(source):
                    with self._noting_unsupported(source):
                        weights.append(self._weight(op, source))
        return Quantized(tuple(activations), tuple(weights), tuple(self._unsupported))

    @contextmanager
    def _noting_unsupported(self, op: Any) -> Iterator[None]:
        try:
            yield
        except _Unsupported as error:
            self._unsupported.append(f"'{op.get_friendly_name()}': {error}")

    def _is_constant(self, op: Any) -> bool:
        name = str(op.get_name())
        if name not in self._constant:
            is_input = op.get_type_name() == "Parameter"
            self._constant[name] = not is_input and all(map(self._is_constant, _sources(op)))
        return self._constant[name]

    def _activation(self, op: Any) -> QuantizedActivation:
        limits, levels = self._limits(op)
        if any(limit.size > 1 for limit in limits):
            raise _Unsupported("it has one scale per channel")
        if not (np.array_equal(limits[0], limits[2]) and np.array_equal(limits[1], limits[3])):
            raise _Unsupported("it writes another range than it reads")
        source = op.input(0).get_source_output()
        return QuantizedActivation(
            name=str(op.get_friendly_name()),
            tensors=frozenset(map(str, source.get_names())),
            low=limits[0].item(),
            high=limits[1].item(),
            levels=levels,
            readers=tuple(dict.fromkeys(self._readers(op))),
        )

    def _limits(self, op: Any) -> tuple[Sequence[np.ndarray], int]:
        """The lowest and highest value read, then those written, and the number of levels."""
        name, levels = op.get_friendly_name(), int(op.get_attributes()["levels"])
        sources = _sources(op)[1:]
        if any(source.get_type_name() != "Constant" for source in sources):
            raise _Unsupported("its range is computed at run time")
        limits = [np.asarray(source.get_data(), np.float64) for source in sources]
        if np.any(limits[1] <= limits[0]) or np.any(limits[3] <= limits[2]):
            raise InputError(
                f"{self._path}: FakeQuantize '{name}' has a scale that is not positive; "
                "quantize the model again"
            )
        if levels not in _LEVELS:
            raise _Unsupported(f"it has {levels} levels")
        return limits, levels

    def _readers(self, op: Any) -> Iterator[Reader]:
        """The operations behind ``op``; shape calculations are none."""
        for port in op.outputs():
            for target in port.get_target_inputs():
                yield from self._reader(target.get_node())

    def _reader(self, op: Any) -> Iterator[Reader]:
        kind = op.get_type_name()
        if kind == "Result":
            names = op.input(0).get_source_output().get_names() or {op.get_friendly_name()}
            yield Reader(frozenset(), str(min(names)))
            return
        if kind in (_FAKE, "ShapeOf"):
            return
        names = frozenset(str(name) for port in op.outputs() for name in port.get_names())
        if names:
            yield Reader(names)
        else:
            yield from self._readers(op)

    def _weight(self, op: Any, source: Any) -> QuantizedWeight:
        values, scale, names = self._constant_of(source)
        if scale is None:
            raise _Unsupported("its scale is not known")
        readers = [reader for reader in self._reader(op) if reader.tensors]
        return QuantizedWeight(
            name=str(source.get_friendly_name()),
            tensors=names,
            values=values,
            scale=scale,
            reader=readers[0] if readers else Reader(frozenset()),
        )

    def _constant_of(self, op: Any) -> tuple[np.ndarray, np.ndarray | None, frozenset[str]]:
        """Values of a constant, the scale of each where it is quantized, and the constant's names.

        Values that FakeQuantize rounds are as they are before.
        """
        kind = op.get_type_name()
        if kind == "Constant":
            names = frozenset(map(str, op.output(0).get_names()))
            return np.asarray(op.get_data(), np.float32), None, names
        sources = _sources(op)
        values, scale, names = self._constant_of(sources[0])
        match kind:
            case "Convert":
                return values, scale, names
            case "Subtract":
                if np.any(self._constant_of(sources[1])[0]):
                    raise _Unsupported("it has zero points")
                return values, scale, names
            case "Multiply":
                factor = np.broadcast_to(self._constant_of(sources[1])[0], values.shape)
                self._check_positive(op, factor)
                return values * factor, factor, names
            case "Reshape":
                shape = tuple(op.output(0).get_shape())
                scale = None if scale is None else scale.reshape(shape)
                return values.reshape(shape), scale, names
            case "FakeQuantize":
                limits, levels = self._limits(op)
                step = (limits[3] - limits[2]) / (levels - 1)
                if not np.allclose(limits[2], -limits[3], atol=float(step.max()) * 1.01):
                    raise _Unsupported("it has zero points")
                return values, np.broadcast_to(step, values.shape).astype(np.float32), names
        raise _Unsupported(f"it is made by {kind}")

    def _check_positive(self, op: Any, scale: np.ndarray) -> None:
        if not np.all(scale > 0):
            raise InputError(
                f"{self._path}: weight '{op.get_friendly_name()}' has a scale that is not "
                "positive; quantize the model again"
            )


def _sources(op: Any) -> list[Any]:
    """The operations that ``op`` reads, by input."""
    return [port.get_source_output().get_node() for port in op.inputs()]


def _is_quantized(op: Any) -> bool:
    """Whether a constant is made of integers by Multiply, or passes FakeQuantize."""
    kind = op.get_type_name()
    if kind == _FAKE:
        return True
    if kind == "Convert":
        source = op.input(0).get_source_output()
        integer = str(source.get_element_type().get_type_name()) in ("i8", "u8", "i4", "u4")
        return integer and source.get_node().get_type_name() == "Constant"
    return kind in ("Multiply", "Subtract", "Reshape") and _is_quantized(_sources(op)[0])


def with_256_levels(activation: QuantizedActivation) -> QuantizedActivation:
    """``activation`` with a level more below its range if it has 255, as Q/DQ has 256."""
    if activation.levels == _LEVELS[1]:
        return activation
    step = (activation.high - activation.low) / (activation.levels - 1)
    return replace(activation, low=activation.low - step, levels=_LEVELS[1])
