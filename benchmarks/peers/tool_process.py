"""One tool's own quantization of one ONNX model, in the environment that the tool is installed in.

    python benchmarks/peers/tool_process.py TOOL MODEL DATA OUTPUT

``DATA``: .npz with samples along the first axis. Imports nothing of placer, for tools need versions
of ONNX of their own. Options are each tool's for TensorRT where it has such, else its defaults.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

Samples = dict[str, np.ndarray]  # By input: shape (samples, ...), for models of batch 1.


def onnxruntime_default(model: Path, data: Samples, output: Path) -> None:
    """quantize_static with its defaults."""
    _quantize_static(model, data, output)


def onnxruntime_tensorrt(model: Path, data: Samples, output: Path) -> None:
    """quantize_static with the options that suit TensorRT."""
    int8 = import_module("onnxruntime.quantization").QuantType.QInt8
    extra = {"ActivationSymmetric": True, "WeightSymmetric": True, "QuantizeBias": False}
    _quantize_static(
        model,
        data,
        output,
        activation_type=int8,
        weight_type=int8,
        per_channel=True,
        extra_options=extra,
    )


def _quantize_static(model: Path, data: Samples, output: Path, **options: Any) -> None:
    quantization = import_module("onnxruntime.quantization")

    class Reader(quantization.CalibrationDataReader):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            count = len(next(iter(data.values())))
            self._samples = iter(
                {name: values[i : i + 1] for name, values in data.items()} for i in range(count)
            )

        def get_next(self) -> Samples | None:
            return next(self._samples, None)

    form = quantization.QuantFormat.QDQ
    quantization.quantize_static(model, output, Reader(), quant_format=form, **options)


def nncf_default(model: Path, data: Samples, output: Path) -> None:
    """nncf.quantize of the ONNX model, with its defaults."""
    nncf, onnx = import_module("nncf"), import_module("onnx")
    count = len(next(iter(data.values())))
    samples = [{name: values[i : i + 1] for name, values in data.items()} for i in range(count)]
    onnx.save(nncf.quantize(onnx.load(model), nncf.Dataset(samples), subset_size=count), output)


def modelopt_default(model: Path, data: Samples, output: Path) -> None:
    """modelopt.onnx.quantization.quantize to INT8, the rest in float32."""
    quantize = import_module("modelopt.onnx.quantization").quantize
    quantize(
        str(model),
        quantize_mode="int8",
        calibration_data=data,
        calibration_eps=["cpu"],
        high_precision_dtype="fp32",
        output_path=str(output),
    )


TOOLS: dict[str, Callable[[Path, Samples, Path], None]] = {
    "onnxruntime": onnxruntime_default,
    "onnxruntime-tensorrt": onnxruntime_tensorrt,
    "nncf": nncf_default,
    "modelopt": modelopt_default,
}


def main() -> None:
    """Run one tool; what it raises is the last line of standard error."""
    tool, model, data, output = sys.argv[1:]
    with np.load(data) as file:
        TOOLS[tool](Path(model), {name: file[name] for name in file.files}, Path(output))


if __name__ == "__main__":
    main()
