"""Write modules of PyTorch as ONNX files, with random weights that are the same each time.

Needs torch, timm and onnxscript.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import timm
import torch
from torch import Tensor, nn


@dataclass(frozen=True)
class Network:
    """A module, what it reads, and which of PyTorch's exporters writes it.

    ``open_batch``: the batch of the file is left open, by the older exporter only.
    """

    make: Callable[[], nn.Module]
    inputs: tuple[Tensor, ...]
    dynamo: bool
    open_batch: bool = False

    @classmethod
    def of(cls, make: Callable[[], nn.Module], *inputs: Tensor, dynamo: bool = False) -> Network:
        """A network that reads ``inputs``."""
        return cls(make, inputs, dynamo)


def image(size: int, channels: int = 3) -> tuple[Tensor, ...]:
    """A square image of zeros, as a network's only input."""
    return (torch.zeros(1, channels, size, size),)


def timm_network(name: str, size: int, dynamo: bool, **options: Any) -> Network:
    """A network of timm by name, for images of ``size``; ten classes unless ``options`` say."""

    def make() -> nn.Module:
        return timm.create_model(name, pretrained=False, **{"num_classes": 10, **options})

    return Network(make, (torch.zeros(1, 3, size, size),), dynamo)


def export(network: Network, path: Path) -> None:
    """Write ``network`` with seeded weights to ``path``."""
    torch.manual_seed(0)
    module = network.make().eval()
    _vary(module)
    names = [f"input{index}" for index in range(len(network.inputs))]
    axes = {name: {0: "batch"} for name in names} if network.open_batch else None
    torch.onnx.export(
        module,
        network.inputs,
        str(path),
        input_names=names,
        dynamo=network.dynamo,
        external_data=False,
        **({} if network.dynamo else {"opset_version": 17, "dynamic_axes": axes}),
    )


def _vary(module: nn.Module) -> None:
    """Add noise to biases and norms: engines drop sums with zeros, which no training leaves."""
    with torch.no_grad():
        for values in module.parameters():
            if values.dim() <= 1 and values.is_floating_point():
                values.add_(0.1 * torch.randn_like(values))


def drawn_at_random(
    pairs: Sequence[Mapping[str, Network]], seed: int
) -> tuple[Mapping[str, Network], Mapping[str, Network]]:
    """One network of each pair, which may be read, and the other one, which is set aside."""
    draw, read, aside = Random(seed), dict[str, Network](), dict[str, Network]()
    for pair in pairs:
        first, second = draw.sample(sorted(pair), 2)
        read[first], aside[second] = pair[first], pair[second]
    return read, aside
