"""Write modules of PyTorch as ONNX files, with random weights that are the same each time.

Needs torch, timm and onnxscript, and onnxsim for what is simplified.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib import import_module
from pathlib import Path
from random import Random
from typing import Any

import onnx
import timm
import torch
from torch import Tensor, nn


@dataclass(frozen=True)
class Network:
    """A module, what it reads, and which of PyTorch's exporters writes it.

    ``open_batch``: the batch of the file is left open, by the older exporter only. ``open_sizes``:
    as ``open_batch`` for all dimensions, which are given their sizes again in the file, so that
    what is computed of shapes stays. ``opset``: 17 of the older exporter, and what the newer one
    takes, unless given. ``apart``: BatchNormalizations stay behind Convs. ``half``: a file in FP16.
    ``simplified``: by onnxsim.
    """

    make: Callable[[], nn.Module]
    inputs: tuple[Tensor, ...]
    dynamo: bool
    open_batch: bool = False
    open_sizes: bool = False
    opset: int | None = None
    apart: bool = False
    half: bool = False
    simplified: bool = False

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
    inputs = network.inputs
    if network.half:
        module = module.half()
        inputs = tuple(value.half() if value.is_floating_point() else value for value in inputs)
    names = [f"input{index}" for index in range(len(inputs))]
    options = _of_newer(network) if network.dynamo else _of_older(network, names)
    torch.onnx.export(
        module, inputs, str(path), input_names=names, dynamo=network.dynamo, external_data=False,
        **options,
    )  # fmt: skip
    if network.open_sizes:
        _give_sizes(path, dict(zip(names, inputs, strict=True)))
    if network.simplified:
        simplified, _checked = import_module("onnxsim").simplify(onnx.load(path))
        onnx.save(simplified, path)


def _of_newer(network: Network) -> dict[str, Any]:
    opset = {} if network.opset is None else {"opset_version": network.opset}
    return {**opset, "optimize": not network.apart}


def _of_older(network: Network, names: Sequence[str]) -> dict[str, Any]:
    axes = {name: {0: "batch"} for name in names} if network.open_batch else None
    if network.open_sizes:
        axes = {
            name: {axis: f"{name}_{axis}" if axis else "batch" for axis in range(value.dim())}
            for name, value in zip(names, network.inputs, strict=True)
        }
    mode = torch.onnx.TrainingMode
    return {
        "opset_version": network.opset or 17,
        "dynamic_axes": axes,
        "training": mode.PRESERVE if network.apart else mode.EVAL,
        "do_constant_folding": not network.apart,
    }


def _give_sizes(path: Path, inputs: Mapping[str, Tensor]) -> None:
    model = onnx.load(path)
    for value in model.graph.input:
        dimensions = value.type.tensor_type.shape.dim
        for dimension, size in zip(dimensions, inputs[value.name].shape, strict=True):
            dimension.dim_value = size
    del model.graph.value_info[:]
    onnx.save(model, path)


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


def exporters_drawn(networks: Mapping[str, Network], seed: int) -> Mapping[str, Network]:
    """``networks``, each by one of PyTorch's exporters, drawn by its name."""
    return {
        name: replace(network, dynamo=Random(f"{seed} {name}").random() < 0.5)
        for name, network in networks.items()
    }
