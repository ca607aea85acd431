"""Make the quantized models of tests/artefacts with the tools that users make them with.

Each tool in an environment of its own, since they do not agree on versions:

    python -m benchmarks.artefacts.importing torch tests/artefacts      # pip install torch onnx
    python -m benchmarks.artefacts.importing modelopt tests/artefacts   # pip install 'nvidia-modelopt[onnx]' torch requests huggingface_hub
    python -m benchmarks.artefacts.importing nncf tests/artefacts       # pip install nncf torch openvino

The seed fixes weights and data. What ONNX Runtime's quantizer makes is made in the tests.
"""  # noqa: E501

from __future__ import annotations

import copy
import shutil
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch
from torch import nn

from benchmarks.command_line import parser_of

SHAPE = (1, 3, 8, 8)
OPSET = 17
SAMPLES = 16


class Net(nn.Module):
    """Convolutions with batch normalization, a residual Add, a pool and a Linear."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, 16, 3, padding=1)
        self.bn1 = nn.BatchNorm2d(16)
        self.relu1 = nn.ReLU()
        self.conv2 = nn.Conv2d(16, 16, 3, padding=1)
        self.bn2 = nn.BatchNorm2d(16)
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.fc = nn.Linear(16, 10)
        self.residual: nn.Module | None = None  # What adds where eager mode has to see it.

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        """Logits of shape (batch, 10)."""
        first = self.relu1(self.bn1(self.conv1(image)))
        both = self.add(first, self.bn2(self.conv2(first)))
        return self.fc(self.pool(both).flatten(1))

    def add(self, left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
        """Residual addition."""
        return left + right if self.residual is None else self.residual.add(left, right)


def net() -> Net:
    """The seeded network after a few training steps, which give BatchNormalization statistics."""
    torch.manual_seed(0)
    model = Net()
    model.train()
    for batch in data():
        model(batch)
    model.eval()
    return model


def data() -> Iterator[torch.Tensor]:
    """Seeded images."""
    generator = torch.Generator().manual_seed(1)
    for _ in range(SAMPLES):
        yield torch.randn(SHAPE, generator=generator).repeat(2, 1, 1, 1) + 0.1


def export(model: nn.Module, path: Path) -> None:
    """Write ``model`` with PyTorch's TorchScript exporter, the one that knows quantization."""
    torch.onnx.export(
        model,
        (torch.zeros(SHAPE),),
        str(path),
        input_names=["image"],
        output_names=["logits"],
        opset_version=OPSET,
        dynamo=False,
    )
    print(f"{path}: {path.stat().st_size} bytes")


def make_torch(folder: Path) -> None:
    """The float model; eager, FX and QAT quantization by torch.ao."""
    import torch.ao.quantization as tq  # noqa: PLC0415
    from torch.ao.quantization import quantize_fx  # noqa: PLC0415

    torch.backends.quantized.engine = "fbgemm"
    export(net(), folder / "float.onnx")

    eager = _Eager(net()).eval()
    eager.net = tq.fuse_modules(eager.net, [["conv1", "bn1", "relu1"], ["conv2", "bn2"]])
    eager.qconfig = tq.get_default_qconfig("fbgemm")
    tq.prepare(eager, inplace=True)
    _feed(eager)
    export(tq.convert(eager), folder / "torch_eager.onnx")

    mapping = tq.get_default_qconfig_mapping("fbgemm")
    fx = quantize_fx.prepare_fx(net(), mapping, (torch.zeros(SHAPE),))
    _feed(fx)
    export(quantize_fx.convert_fx(fx), folder / "torch_fx.onnx")

    symmetric: dict[str, Any] = {"dtype": torch.qint8, "qscheme": torch.per_tensor_symmetric}
    observer = tq.MovingAverageMinMaxObserver
    config = tq.QConfig(
        activation=tq.FakeQuantize.with_args(
            observer=observer, quant_min=-128, quant_max=127, **symmetric
        ),
        weight=tq.default_per_channel_weight_fake_quant,
    )
    fused = tq.fuse_modules(net(), [["conv1", "bn1", "relu1"], ["conv2", "bn2"]])
    mapping = tq.QConfigMapping().set_global(config)
    # The default backend drops a QConfig with int8 activations, without a word.
    backend = tq.backend_config.get_tensorrt_backend_config()
    example = (torch.zeros(SHAPE),)
    qat = quantize_fx.prepare_qat_fx(fused.train(), mapping, example, backend_config=backend)
    optimizer = torch.optim.SGD(qat.parameters(), lr=1e-3)
    for batch in data():
        optimizer.zero_grad()
        qat(batch).square().mean().backward()
        optimizer.step()
    qat.eval().apply(tq.disable_observer)
    export(qat, folder / "torch_qat.onnx")
    qat.apply(tq.disable_fake_quant)
    export(qat, folder / "torch_qat_float.onnx")


class _Eager(nn.Module):
    """Eager mode quantizes between stubs and needs the Add as a module."""

    def __init__(self, model: Net) -> None:
        super().__init__()
        self.quant = torch.ao.quantization.QuantStub()
        self.net = copy.deepcopy(model)
        self.net.residual = torch.ao.nn.quantized.FloatFunctional()
        self.dequant = torch.ao.quantization.DeQuantStub()

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        """Logits of shape (batch, 10)."""
        return self.dequant(self.net(self.quant(image)))


def make_modelopt(folder: Path) -> None:
    """What ModelOpt makes of ``float.onnx``, and of the network in PyTorch."""
    from modelopt.onnx.quantization import quantize  # noqa: PLC0415

    batches = np.concatenate([batch[:1].numpy() for batch in data()])
    with TemporaryDirectory() as copy_of_it:  # ModelOpt rewrites the file that it is given.
        source = Path(shutil.copy(folder / "float.onnx", copy_of_it))
        quantize(
            str(source),
            quantize_mode="int8",
            calibration_data={"image": batches},
            calibration_method="max",
            output_path=str(folder / "modelopt_onnx.onnx"),
            high_precision_dtype="fp32",
        )
    import modelopt.torch.quantization as mtq  # noqa: PLC0415

    model = net()
    fused = torch.ao.quantization.fuse_modules(model, [["conv1", "bn1"], ["conv2", "bn2"]])
    quantized = mtq.quantize(fused, mtq.INT8_DEFAULT_CFG, _feed)
    export(quantized, folder / "modelopt_torch.onnx")


def make_nncf(folder: Path) -> None:
    """What NNCF makes of ``float.onnx`` as an OpenVINO IR."""
    import nncf  # noqa: PLC0415
    import openvino  # noqa: PLC0415

    model = openvino.Core().read_model(folder / "float.onnx")
    model.reshape(list(SHAPE))
    batches = nncf.Dataset([{"image": batch[:1].numpy()} for batch in data()])
    quantized = nncf.quantize(model, batches)
    openvino.save_model(quantized, folder / "nncf.xml", compress_to_fp16=False)


def _feed(model: nn.Module) -> None:
    with torch.no_grad():
        for batch in data():
            model(batch)


def main() -> None:
    """Make the artefacts of one tool."""
    parser = parser_of(__doc__)
    parser.add_argument("tool", choices=("torch", "modelopt", "nncf"))
    parser.add_argument("folder", type=Path)
    arguments = parser.parse_args()
    makers = {"torch": make_torch, "modelopt": make_modelopt, "nncf": make_nncf}
    makers[arguments.tool](arguments.folder)


if __name__ == "__main__":
    main()
