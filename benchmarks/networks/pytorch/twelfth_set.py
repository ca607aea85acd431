"""Networks of families that no earlier set has, drawn at random, of which only figures were read.

One or two of each of nine lists (Keras, segmentation_models_pytorch, torchvision, timm,
ultralytics, texts, images and sounds of transformers, networks of papers), in the order drawn
(seed 20261212), without those of families that earlier sets have and those that no exporter of
PyTorch writes. Keras's keep channels last and run on PyTorch. Random weights.

python -m benchmarks.networks.write twelfth_set --folder networks   # needs keras too
python -m benchmarks.plans.tensorrt_rtx --placements 0 --networks twelfth_set --folder networks
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping

os.environ.setdefault("KERAS_BACKEND", "torch")

import keras
import segmentation_models_pytorch
import torch
import torchvision
import transformers
from torch import Tensor, nn
from ultralytics.nn.tasks import WorldModel

from benchmarks.networks.pytorch.deployed import words
from benchmarks.networks.pytorch.export import Network, timm_network
from benchmarks.networks.pytorch.twelfth_set_modules import LightweightOpenPose, NBeats, SlowFast

_IMAGE = (torch.zeros(1, 3, 64, 64),)


class _Called(nn.Module):
    """What ``take`` makes of a module's inputs."""

    def __init__(self, whole: nn.Module, take: Callable[..., Tensor]) -> None:
        super().__init__()
        self.whole, self.take = whole, take

    def forward(self, *inputs: Tensor) -> Tensor:
        """What is taken."""
        return self.take(self.whole, *inputs)


def _keras(name: str, size: int, **options: object) -> Network:
    def make() -> nn.Module:
        whole = getattr(keras.applications, name)(
            weights=None, classes=10, input_shape=(size, size, 3), **options
        )
        return _Called(whole, lambda module, image: module(image, training=False))

    return Network(make, (torch.zeros(1, size, size, 3),), False)


def _segmenter(name: str, size: int, dynamo: bool, **options: object) -> Network:
    def make() -> nn.Module:
        return getattr(segmentation_models_pytorch, name)(
            "resnet18", encoder_weights=None, classes=5, **options
        )

    return Network(make, (torch.zeros(1, 3, size, size),), dynamo)


def _keypoints() -> nn.Module:
    heads = torchvision.models.detection.keypoint_rcnn
    convolved = heads.KeypointRCNNHeads(64, (64,) * 4)
    return nn.Sequential(convolved, heads.KeypointRCNNPredictor(64, 17))


def _world() -> nn.Module:
    whole = WorldModel("yolov8s-worldv2.yaml", nc=10, verbose=False).eval()
    whole.fuse(verbose=False)
    whole.model[-1].export, whole.model[-1].format = True, "onnx"
    whole.txt_feats = torch.randn(1, 10, 512)
    return _Called(whole, lambda module, image: module(image))


def _glpn() -> nn.Module:
    config = transformers.GLPNConfig(
        depths=[1] * 4, hidden_sizes=[16, 32, 64, 96], decoder_hidden_size=32,
        num_attention_heads=[1, 2, 2, 3],
    )  # fmt: skip
    whole = transformers.GLPNForDepthEstimation(config)
    return _Called(whole, lambda module, image: module(image).predicted_depth)


def _codes() -> nn.Module:
    config = transformers.XcodecConfig(target_bandwidths=[0.5])
    whole = transformers.XcodecModel(config).acoustic_decoder
    return _Called(whole, lambda module, codes: module(codes))


ASIDE: Mapping[str, Network] = {
    "Xception (Keras)": _keras("Xception", 96),
    "MobileNetV3 (Keras)": _keras("MobileNetV3Small", 64, include_preprocessing=False),
    "U-Net (scSE)": _segmenter("Unet", 64, dynamo=True, decoder_attention_type="scse"),
    "PAN": _segmenter("PAN", 128, dynamo=False),
    "Keypoint R-CNN (points)": Network(_keypoints, (torch.zeros(4, 64, 14, 14),), dynamo=True),
    "Visformer": timm_network("visformer_tiny", 224, dynamo=False),
    "ViT (relative positions)": timm_network(
        "vit_relpos_small_patch16_224", 224, dynamo=False, depth=3
    ),
    "YOLO-World": Network(_world, (torch.zeros(1, 3, 128, 128),), dynamo=False),
    "FlauBERT": words("Flaubert:Model", "last_hidden_state", False, emb_dim=64, n_layers=2,
                      n_heads=4, n_words=100),
    "Cohere 2": words("Cohere2:ForCausalLM", "logits", True, num_key_value_heads=2, head_dim=16),
    "GLPN": Network(_glpn, _IMAGE, dynamo=True),
    "XCodec (decoder)": Network(_codes, (torch.zeros(1, 256, 12),), dynamo=False),
    "SlowFast": Network(SlowFast, (torch.zeros(1, 3, 16, 48, 48),), dynamo=True),
    "N-BEATS": Network(lambda: NBeats(48, 12, 64), (torch.zeros(8, 48),), dynamo=False),
    "Lightweight OpenPose": Network(LightweightOpenPose, (torch.zeros(1, 3, 96, 96),),
                                    dynamo=False),
}  # fmt: skip
SETS = {"aside": ASIDE}
