"""Quantization-aware training of the bundled network with a placement, there and back.

Needs torch, onnxscript and scikit-learn, and a placement of examples/digits/digits.onnx:

    placer optimize examples/digits/digits.onnx --data examples/digits/calibration.npz \\
        --eval-data examples/digits/evaluation.npz --budget 20
    python examples/qat/digits.py digits.placer/placement.yaml qat

Writes to the folder ``qat``: float.onnx and qat.json, the network before training and what is
quantized in it; qat.onnx, trained, with Q/DQ pairs; retrained.onnx, the same weights without pairs.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

import numpy as np
import onnx
import torch
from fake_quantize import fake_quantized
from onnx import numpy_helper
from sklearn.model_selection import train_test_split
from torch import nn
from torch.nn import functional

import placer

DIGITS = Path(__file__).parent.parent / "digits"
sys.path.append(str(DIGITS))

import train  # noqa: E402  (the bundled example's own script)

EPOCHS = 2
NAMES = {"input_names": ["image"], "output_names": ["logits"]}


def bundled() -> nn.Module:
    """The bundled network with its weights, which the ONNX file has by PyTorch's names."""
    network = train.DigitsNet()
    initializers = onnx.load(DIGITS / "digits.onnx").graph.initializer
    state = {one.name: torch.tensor(numpy_helper.to_array(one)) for one in initializers}
    # Two biases of one sum have been trained alike, and the exporter kept one of them.
    state["down.shortcut.1.bias"] = state["down.second.1.bias"]
    network.load_state_dict(state, strict=False)  # It leaves out counters of batches.
    return network.eval()


def fit(network: nn.Module, x: torch.Tensor, y: torch.Tensor) -> None:
    """Train the parameters of ``network`` for some epochs."""
    torch.manual_seed(train.SEED)
    optimizer = torch.optim.AdamW(network.parameters(), 1e-4)
    for epoch in range(EPOCHS):
        for batch in torch.randperm(len(x)).split(64):
            loss = functional.cross_entropy(network(x[batch]), y[batch])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(f"epoch {epoch + 1}/{EPOCHS}: loss {loss.item():.4f}", flush=True)


@torch.no_grad()
def score(name: str, network: nn.Module, x: torch.Tensor, y: torch.Tensor) -> None:
    """Print top-1 and cross-entropy on images that were not trained on."""
    logits = network(x)
    top1 = (logits.argmax(1) == y).float().mean()
    print(f"{name}: top-1 {top1:.4f}, cross-entropy {functional.cross_entropy(logits, y):.4f}")


def main() -> None:
    """Export, train with fake quantization, export again."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("placement", type=Path)
    parser.add_argument("output", type=Path)
    arguments = parser.parse_args()
    folder: Path = arguments.output
    folder.mkdir(parents=True, exist_ok=True)

    network = bundled()
    images = torch.zeros(2, 1, train.SIZE, train.SIZE)
    batch = {0: torch.export.Dim("batch")}
    program = torch.onnx.export(network, (images,), dynamo=True, dynamic_shapes=(batch,), **NAMES)
    program.save(folder / "float.onnx")
    placer.export_qat(arguments.placement, folder / "float.onnx", folder / "qat.json")
    quantized = fake_quantized(program, json.loads((folder / "qat.json").read_text()))

    x, y = train.images()
    train_x, _, train_y, _ = train_test_split(
        x, y, test_size=400, stratify=y, random_state=train.SEED
    )
    with np.load(DIGITS / "evaluation.npz") as held_out:
        test = (torch.tensor(held_out["image"]), torch.tensor(held_out["labels"]))
    score("float", network, *test)
    score("quantized, before training", quantized, *test)
    fit(quantized, torch.tensor(train_x), torch.tensor(train_y))
    score("quantized, after training", quantized, *test)

    with torch.no_grad():  # Fake quantization has no dynamic shapes in PyTorch 2.13.
        torch.onnx.export(quantized, (images[:1],), dynamo=True, **NAMES).save(folder / "qat.onnx")
    network.load_state_dict(quantized.state_dict(), strict=False)
    score("float, after training", network, *test)
    torch.onnx.export(network, (images,), dynamo=True, dynamic_shapes=(batch,), **NAMES).save(
        folder / "retrained.onnx"
    )


if __name__ == "__main__":
    main()
