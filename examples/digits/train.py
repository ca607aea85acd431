"""Train the bundled example: a small CNN on scikit-learn's handwritten digits.

Development only (needs torch, scikit-learn and onnx); placer itself never imports torch:

    python examples/digits/train.py

Writes beside itself: digits.onnx (BatchNormalization left in place, batch dimension dynamic),
calibration.npz (images of the training split) and evaluation.npz (labelled images that training
never saw). The network holds the patterns that placer's rules are about: a conv-bn-relu-maxpool
stem, residual Adds with and without projection, an Inception-like Concat, ConvTranspose with ReLU
joined to an earlier map, a depthwise convolution with SiLU, global average pooling and Gemm.
"""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import onnx
import torch
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from torch import nn
from torch.nn import functional

HERE = Path(__file__).parent
SIZE = 32
SEED = 0
THREADS = 2  # fixed, because the order of float sums depends on it
EPOCHS = 14
WIDTH = 64  # of most channels, on 16x16: wide and large enough that INT8 pays


def conv_bn(inputs: int, outputs: int, kernel: int, stride: int = 1, groups: int = 1) -> nn.Module:
    """Convolution without bias, then batch normalization."""
    padding = kernel // 2
    return nn.Sequential(
        nn.Conv2d(inputs, outputs, kernel, stride, padding, groups=groups, bias=False),
        nn.BatchNorm2d(outputs),
    )


class Residual(nn.Module):
    """Two 3x3 convolutions and a shortcut, projected where the shape changes."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.first = conv_bn(inputs, outputs, 3, stride)
        self.second = conv_bn(outputs, outputs, 3)
        same = inputs == outputs and stride == 1
        self.shortcut = nn.Identity() if same else conv_bn(inputs, outputs, 1, stride)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Shape (n, inputs, h, w) to (n, outputs, h / stride, w / stride)."""
        main = self.second(functional.relu(self.first(x)))
        return functional.relu(main + self.shortcut(x))


class Inception(nn.Module):
    """Three branches joined along the channels."""

    def __init__(self, inputs: int) -> None:
        super().__init__()
        half, quarter = inputs // 2, inputs // 4
        self.point = conv_bn(inputs, half, 1)
        self.wide = nn.Sequential(
            conv_bn(inputs, half, 1), nn.ReLU(), conv_bn(half, inputs - quarter, 3)
        )
        self.pool = nn.Sequential(nn.MaxPool2d(3, 1, 1), conv_bn(inputs, quarter, 1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Shape (n, inputs, h, w) to (n, 1.5 * inputs, h, w)."""
        branches = (self.point(x), self.wide(x), self.pool(x))
        return torch.cat([functional.relu(branch) for branch in branches], dim=1)


class DigitsNet(nn.Module):
    """The example network; see the module's docstring."""

    def __init__(self, width: int = WIDTH) -> None:
        super().__init__()
        self.stem = nn.Sequential(conv_bn(1, width, 3), nn.ReLU(), nn.MaxPool2d(2))
        self.plain = nn.Sequential(Residual(width, width, 1), Residual(width, width, 1))
        self.down = Residual(width, width, 2)
        self.inception = Inception(width)
        self.up = nn.Sequential(
            nn.ConvTranspose2d(width * 3 // 2, width, 2, 2, bias=False),
            nn.BatchNorm2d(width),
            nn.ReLU(),
        )
        self.depthwise = conv_bn(2 * width, 2 * width, 3, groups=2 * width)
        self.pointwise = nn.Sequential(conv_bn(2 * width, 2 * width, 1), nn.ReLU())
        self.head = nn.Linear(2 * width, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Images (n, 1, 32, 32) to logits (n, 10)."""
        early = self.plain(self.stem(x))
        late = self.up(self.inception(self.down(early)))
        joined = self.depthwise(torch.cat([early, late], dim=1))
        mixed = self.pointwise(joined * torch.sigmoid(joined))
        return self.head(functional.adaptive_avg_pool2d(mixed, 1).flatten(1))


def images() -> tuple[np.ndarray, np.ndarray]:
    """All digits, enlarged bilinearly: float32 (n, 1, 32, 32) within [0, 1], and their labels."""
    digits = load_digits()
    small = torch.tensor(digits.images / 16, dtype=torch.float32)[:, None]
    large = functional.interpolate(small, SIZE, mode="bilinear", align_corners=False)
    # 6 bits keep what 8x8 pixels of 17 levels hold, and compress well.
    return (torch.round(large * 64) / 64).numpy(), digits.target.astype(np.int64)


def train(x: torch.Tensor, y: torch.Tensor, seed: int = SEED, width: int = WIDTH) -> nn.Module:
    """Train with small random shifts; the seed fixes everything."""
    torch.manual_seed(seed)
    torch.use_deterministic_algorithms(True)
    torch.set_num_threads(THREADS)
    generator = torch.Generator().manual_seed(seed)
    net = DigitsNet(width)
    optimizer = torch.optim.AdamW(net.parameters(), 2e-3, weight_decay=1e-2)
    steps = EPOCHS * (len(x) // 64)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 4e-3, total_steps=steps)
    for epoch in range(EPOCHS):
        order = torch.randperm(len(x), generator=generator)
        for step in range(len(x) // 64):
            batch = order[64 * step : 64 * (step + 1)]
            shift = torch.randint(-3, 4, (2,), generator=generator).tolist()
            shifted = torch.roll(x[batch], shift, dims=(2, 3))
            loss = functional.cross_entropy(net(shifted), y[batch], label_smoothing=0.05)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
        print(f"epoch {epoch + 1}/{EPOCHS}: loss {loss.item():.4f}", flush=True)
    return net.eval()


def export(net: nn.Module, path: Path) -> None:
    """Write ONNX with BatchNormalization in place: placer folds it itself."""
    torch.onnx.export(
        net,
        (torch.zeros(1, 1, SIZE, SIZE),),
        path,
        dynamo=False,
        opset_version=17,
        training=torch.onnx.TrainingMode.PRESERVE,
        do_constant_folding=False,
        input_names=["image"],
        output_names=["logits"],
        dynamic_axes={"image": {0: "batch"}, "logits": {0: "batch"}},
    )
    onnx.checker.check_model(onnx.load(path), full_check=True)


def main() -> None:
    """Train, export and write the data."""
    x, y = images()
    train_x, test_x, train_y, test_y = train_test_split(
        x, y, test_size=400, stratify=y, random_state=SEED
    )
    net = train(torch.tensor(train_x), torch.tensor(train_y))
    with torch.no_grad():
        accuracy = (net(torch.tensor(test_x)).argmax(1).numpy() == test_y).mean()
    print(f"float accuracy on {len(test_y)} held-out digits: {accuracy:.4f}")
    # Written to a temporary folder and renamed: an interrupted run leaves no half file.
    with TemporaryDirectory(dir=HERE) as folder:
        work = Path(folder)
        export(net, work / "digits.onnx")
        np.savez_compressed(work / "calibration.npz", image=train_x[:128])
        np.savez_compressed(work / "evaluation.npz", image=test_x, labels=test_y)
        for path in sorted(work.iterdir()):
            print(f"{path.name}: {path.stat().st_size / 1e6:.2f} MB")
            path.replace(HERE / path.name)


if __name__ == "__main__":
    main()
