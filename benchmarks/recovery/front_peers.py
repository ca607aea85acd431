"""What other tools make of the float file of a run with the same calibration samples."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

os.environ["NNCF_CI"] = "1"  # No telemetry; read when nncf is imported.

import numpy as np
import onnx
from onnx import version_converter
from onnxruntime.quantization import QuantFormat, QuantType, quantize_static
from onnxruntime.quantization.shape_inference import quant_pre_process

from benchmarks.peers.calibration_reader import Samples
from placer.graph.edit import fix_input_shapes
from placer.optimizer.setup.task import Task

PEERS = ("quantize_static", "nncf", "modelopt")


@dataclass(frozen=True)
class Peers:
    """Other tools; each is given the float file with fixed shapes, of opset 17."""

    task: Task
    shapes: Mapping[str, tuple[int, ...]]
    folder: Path

    def fixed(self) -> onnx.ModelProto:
        """The float file."""
        proto = onnx.load(self.task.model.path)
        fix_input_shapes(proto, self.shapes)
        opset = next(o.version for o in proto.opset_import if o.domain in ("", "ai.onnx"))
        return proto if opset >= 17 else version_converter.convert_version(proto, 17)

    def file(self, tool: str) -> onnx.ModelProto:
        """What ``tool`` of ``PEERS`` makes, which runs on other engines take from ``folder``."""
        path = self.folder / f"{tool}.made.onnx"
        if not path.exists():
            onnx.save(getattr(self, tool)(), path)
        return onnx.load(path)

    def quantize_static(self, *, per_channel: bool = True) -> onnx.ModelProto:
        """ONNX Runtime's, pre-processed as its documentation says."""
        source, prepared = self.folder / "fixed.onnx", self.folder / "prepared.onnx"
        onnx.save(self.fixed(), source)
        quant_pre_process(source, prepared, skip_symbolic_shape=True)
        quantize_static(
            prepared,
            self.folder / "static.onnx",
            Samples(self.task.calibration_data),
            quant_format=QuantFormat.QDQ,
            activation_type=QuantType.QUInt8,
            weight_type=QuantType.QInt8,
            per_channel=per_channel,
        )
        return onnx.load(self.folder / "static.onnx")

    def nncf(self) -> onnx.ModelProto:
        """NNCF's, with what it would choose for the kind of network."""
        import nncf  # noqa: PLC0415

        data, nodes = self.task.calibration_data, self.task.model.graph.nodes
        attention = any(node.op == "Softmax" for node in nodes[:-3])
        options = {"model_type": nncf.ModelType.TRANSFORMER} if attention else {}
        samples = nncf.Dataset([dict(sample.inputs) for sample in data])
        fixed, size = self.fixed(), len(data)
        quantized: onnx.ModelProto = nncf.quantize(fixed, samples, subset_size=size, **options)
        return quantized

    def modelopt(self) -> onnx.ModelProto:
        """ModelOpt's, calibrated on the CPU with its default method."""
        from modelopt.onnx.quantization import quantize  # noqa: PLC0415

        source, target = self.folder / "modelopt.onnx", self.folder / "modelopt_int8.onnx"
        onnx.save(self.fixed(), source)
        samples = [dict(sample.inputs) for sample in self.task.calibration_data]
        data = {name: np.concatenate([s[name] for s in samples]) for name in samples[0]}
        quantize(
            str(source),
            quantize_mode="int8",
            calibration_data=data,
            calibration_eps=["cpu"],
            output_path=str(target),
            high_precision_dtype="fp32",
            log_level="ERROR",
        )
        return onnx.load(target)
