"""Networks of families that no earlier set has, drawn at random, of which only figures were read.

One or two of each of thirteen lists (timm, Keras, segmentation_models_pytorch, torchvision,
ultralytics, texts, images and sounds of transformers, diffusers, text recognition, point clouds,
tables, other papers), in the order drawn (seed 20261313), without those of families that
earlier sets have and those that no exporter of PyTorch writes. Random weights.

python -m benchmarks.networks.write thirteenth_set --folder networks   # needs keras too
python -m benchmarks.plans.tensorrt_rtx --placements 1 --networks thirteenth_set --folder networks
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping

os.environ.setdefault("KERAS_BACKEND", "torch")

import diffusers
import keras
import segmentation_models_pytorch
import torch
import transformers
from torch import Tensor, nn
from torchvision.models.detection import fcos
from ultralytics.nn.tasks import DetectionModel

from benchmarks.networks.pytorch.deployed import VISION, hidden, words, yolo
from benchmarks.networks.pytorch.export import Network, timm_network
from benchmarks.networks.pytorch.thirteenth_set_modules import (
    Denoised,
    PointTransformer,
    SasRec,
    Svtr,
    dncnn,
)

_IMAGE = (torch.zeros(1, 3, 64, 64),)


class _Called(nn.Module):
    """What ``take`` makes of a module's inputs."""

    def __init__(self, whole: nn.Module, take: Callable[..., object]) -> None:
        super().__init__()
        self.whole, self.take = whole, take

    def forward(self, *inputs: Tensor) -> object:
        """What is taken."""
        return self.take(self.whole, *inputs)


def _inception() -> nn.Module:
    whole = keras.applications.InceptionV3(weights=None, classes=10, input_shape=(96, 96, 3))
    return _Called(whole, lambda module, image: module(image, training=False))


def _perceived() -> nn.Module:
    return segmentation_models_pytorch.UPerNet(
        "resnet18", encoder_weights=None, classes=5, decoder_channels=64
    )


def _fcos() -> nn.Module:
    head = fcos.FCOSHead(64, 1, 5, num_convs=3)
    return _Called(head, lambda module, *maps: list(module(list(maps)).values()))


def _codec() -> nn.Module:
    config = transformers.DacConfig(
        encoder_hidden_size=16, downsampling_ratios=[2, 4], decoder_hidden_size=128,
        upsampling_ratios=[4, 2], n_codebooks=2, codebook_size=32, codebook_dim=8,
        hidden_size=64,
    )  # fmt: skip
    whole = transformers.DacModel(config)
    return _Called(whole, lambda module, wave: module.encoder(wave))


def _codes_of_images() -> nn.Module:
    whole = diffusers.VQModel(
        block_out_channels=(32, 64), layers_per_block=1, norm_num_groups=8,
        down_block_types=("DownEncoderBlock2D",) * 2, up_block_types=("UpDecoderBlock2D",) * 2,
        num_vq_embeddings=32,
    )  # fmt: skip
    return _Called(whole, lambda module, image: module.encode(image).latents)


ASIDE: Mapping[str, Network] = {
    "PiT": timm_network("pit_ti_224", 224, dynamo=True),
    "Inception v3 (Keras)": Network(_inception, (torch.zeros(1, 96, 96, 3),), dynamo=False),
    "UPerNet": Network(_perceived, (torch.zeros(1, 3, 192, 192),), dynamo=False),
    "FCOS (head)": Network(
        _fcos, (torch.zeros(1, 64, 16, 16), torch.zeros(1, 64, 8, 8)), dynamo=True
    ),
    "YOLOv6": yolo(DetectionModel, "yolov6n.yaml", 128, dynamo=False),
    "DistilBERT": words("DistilBert:Model", "last_hidden_state", True, dim=64, n_layers=2,
                        n_heads=4, hidden_dim=128),
    "EXAONE 4": words("Exaone4:ForCausalLM", "logits", False, num_key_value_heads=2),
    "I-JEPA": hidden("IJepa:Model", _IMAGE, True, **VISION),
    "DAC (encoder)": Network(_codec, (torch.zeros(1, 1, 512),), dynamo=True),
    "VQ (encoder)": Network(_codes_of_images, _IMAGE, dynamo=False),
    "SVTR": Network(Svtr, (torch.zeros(1, 3, 32, 64),), dynamo=False),
    "Point cloud transformer": Network(PointTransformer, (torch.zeros(1, 3, 128),), dynamo=True),
    "SASRec": Network(SasRec, (torch.zeros(1, 32, dtype=torch.int64),), dynamo=False),
    "DnCNN": Network(lambda: Denoised(dncnn()), (torch.zeros(1, 1, 48, 48),), dynamo=True),
}  # fmt: skip
SETS = {"aside": ASIDE}
