"""Quantize float models as other tools do, for ``quantized_files``: NNCF, ModelOpt and others.

NNCF with both presets, NVIDIA's ModelOpt in INT8 and in FP8, AMD's Quark with three of its
configurations, onnxruntime in each of its ``FORMS``; on random data, since only the places and
types of pairs matter here. Needs the tool alone: ``pip install nncf``, ``'nvidia-modelopt[onnx]'``
or ``amd-quark``.

    python -m benchmarks.plans.files_of_others nncf net.onnx other.onnx --folder quantized
    python -m benchmarks.plans.files_of_others onnxruntime net.onnx --form int16 --folder quantized
    python -m benchmarks.plans.quantized_files --engine onnxruntime quantized/*.onnx
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import ModelProto, TensorProto
from onnxruntime.quantization import (
    CalibrationDataReader,
    QuantFormat,
    QuantType,
    quantize_dynamic,
    quantize_static,
)
from onnxruntime.quantization.matmul_nbits_quantizer import (
    DefaultWeightOnlyQuantConfig,
    MatMulNBitsQuantizer,
)

Write = Callable[[Path, Path], object]  # From a float model to a file.
Sample = dict[str, NDArray[np.generic]]
_TOKENS = 50  # A vocabulary that all networks have.


def samples(model: ModelProto, count: int) -> list[Sample]:
    """Normal numbers for each input, token ids where it takes integers; open sizes are 1."""
    weights = {tensor.name for tensor in model.graph.initializer}
    inputs = [value for value in model.graph.input if value.name not in weights]
    rng = np.random.default_rng(0)

    def drawn(value: onnx.ValueInfoProto) -> NDArray[np.generic]:
        kind = value.type.tensor_type
        shape = [dim.dim_value or 1 for dim in kind.shape.dim]
        if kind.elem_type == TensorProto.INT64:
            return rng.integers(0, _TOKENS, shape)
        return rng.normal(size=shape).astype(np.float32)

    return [{value.name: drawn(value) for value in inputs} for _ in range(count)]


def by_nncf(path: Path, folder: Path) -> None:
    """Write what both presets make of ``path``, which LayerNormalization makes a transformer."""
    nncf, model = import_module("nncf"), onnx.load(path)
    normalizes = any(node.op_type == "LayerNormalization" for node in model.graph.node)
    kind = nncf.ModelType.TRANSFORMER if normalizes else None
    data = nncf.Dataset(samples(model, 4))
    for preset in nncf.QuantizationPreset:
        quantized = nncf.quantize(model, data, preset=preset, model_type=kind)
        onnx.save(quantized, folder / f"nncf-{preset.value}-{path.stem}.onnx")


def by_modelopt(path: Path, folder: Path) -> None:
    """Write what ModelOpt makes of ``path`` in INT8 and in FP8."""
    quantization, drawn = import_module("modelopt.onnx.quantization"), samples(onnx.load(path), 2)
    for mode in ("int8", "fp8"):
        quantization.quantize(
            str(path),
            quantize_mode=mode,
            calibration_data={name: np.concatenate([s[name] for s in drawn]) for name in drawn[0]},
            calibration_eps=["cpu"],
            high_precision_dtype="fp32",
            output_path=str(folder / f"modelopt-{mode}-{path.stem}.onnx"),
        )


class _Reader(CalibrationDataReader):  # type: ignore[misc]
    """Two samples, as onnxruntime's quantizer and Quark read them."""

    def __init__(self, path: Path) -> None:
        self._samples = iter(samples(onnx.load(path), 2))

    def get_next(self) -> Any:
        """The next sample, None behind the last."""
        return next(self._samples, None)


def by_quark(path: Path, folder: Path) -> None:
    """Write what Quark makes of ``path``; its XINT8 stores biases as int8."""
    quark, config = import_module("quark.onnx"), import_module("quark.onnx.quantization.config")
    for name in ("XINT8", "A8W8", "U8S8_AAWS"):
        chosen = config.Config(global_quant_config=config.get_default_config(name))
        target = folder / f"quark-{name}-{path.stem}.onnx"
        quark.ModelQuantizer(chosen).quantize_model(str(path), str(target), _Reader(path))


def _static(**options: Any) -> Write:
    return lambda path, target: quantize_static(path, target, _Reader(path), **options)


def _in_4_bits(form: QuantFormat) -> Write:
    def write(path: Path, target: Path) -> None:
        config = DefaultWeightOnlyQuantConfig(
            block_size=32, is_symmetric=True, quant_format=form, op_types_to_quantize=("MatMul",)
        )
        quantizer = MatMulNBitsQuantizer(onnx.load(path), algo_config=config)
        quantizer.process()
        quantizer.model.save_model_to_file(str(target))

    return write


_UINT8 = {"per_channel": True, "activation_type": QuantType.QUInt8}
_INT16 = {"activation_type": QuantType.QUInt16, "weight_type": QuantType.QInt8}
FORMS: Mapping[str, Write] = {
    "uint8": _static(**_UINT8),
    "int8": _static(per_channel=True, activation_type=QuantType.QInt8),
    "int16": _static(**_INT16, extra_options={"UseQDQContribOps": True}),
    "qoperator": _static(**_UINT8, quant_format=QuantFormat.QOperator),
    "run-time": quantize_dynamic,
    "int4": _in_4_bits(QuantFormat.QOperator),
    "int4-pairs": _in_4_bits(QuantFormat.QDQ),
}


def by_onnxruntime(path: Path, folder: Path, forms: Sequence[str] = tuple(FORMS)) -> None:
    """Write what onnxruntime's quantizers make of ``path`` in each of ``forms``."""
    for form in forms:
        FORMS[form](path, folder / f"onnxruntime-{form}-{path.stem}.onnx")


TOOLS = {"nncf": by_nncf, "modelopt": by_modelopt, "quark": by_quark}


def main() -> None:
    """Write the files of one tool."""
    assert __doc__ is not None
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("tool", choices=sorted([*TOOLS, "onnxruntime"]))
    parser.add_argument("files", nargs="+", type=Path)
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--form", nargs="+", choices=FORMS, default=FORMS, help="of onnxruntime")
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    for path in options.files:
        if options.tool == "onnxruntime":
            by_onnxruntime(path, options.folder, tuple(options.form))
        else:
            TOOLS[options.tool](path, options.folder)


if __name__ == "__main__":
    main()
