"""Networks that people run on CPUs, of which no other set has any; a third was drawn to be kept.

From torchvision, transformers and ``cpu_modules``, by both of PyTorch's exporters; random weights.
Nothing of ``KEPT`` was looked at but figures. Needs torch, torchvision, timm, transformers and
onnxscript.

python -m benchmarks.plans.openvino --networks cpu --folder networks --placements 3
"""

from __future__ import annotations

from collections.abc import Mapping
from random import Random

import torch
import torchvision
import transformers
from torch import Tensor, nn

from benchmarks.networks.pytorch.cpu_modules import ArcFace, Dtln, RtmPose, Speakers, Tables, U2Net
from benchmarks.networks.pytorch.export import Network


class Output(nn.Module):
    """One output of a module that returns several by name."""

    def __init__(self, whole: nn.Module, name: str) -> None:
        super().__init__()
        self.whole, self.name = whole, name

    def forward(self, x: Tensor) -> Tensor:
        """What the module calls ``name``."""
        return self.whole(x)[self.name]


class Detections(nn.Module):
    """Faster R-CNN with its anchors, NMS and TopK; boxes and scores of one image."""

    def __init__(self) -> None:
        super().__init__()
        self.whole = torchvision.models.detection.fasterrcnn_mobilenet_v3_large_320_fpn(
            weights=None, weights_backbone=None, num_classes=5, min_size=128, max_size=160
        )

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """(3, height, width) to boxes and scores."""
        found = self.whole([x])[0]
        return found["boxes"], found["scores"]


def _words(count: int) -> tuple[Tensor, ...]:
    return (torch.arange(count).remainder(97)[None],)


def _image(height: int, width: int) -> tuple[Tensor, ...]:
    return (torch.rand(1, 3, height, width),)


_SMALL = {
    "vocab_size": 100,
    "hidden_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 256,
}


def _modern_bert() -> nn.Module:
    config = transformers.ModernBertConfig(
        **_SMALL, pad_token_id=0, bos_token_id=1, eos_token_id=2, cls_token_id=1, sep_token_id=2
    )
    return Output(transformers.ModernBertModel(config), "last_hidden_state")


def _deberta() -> nn.Module:
    config = transformers.DebertaV2Config(
        **_SMALL,
        relative_attention=True,
        pos_att_type=["p2c", "c2p"],
        position_buckets=16,
        share_att_key=True,
        norm_rel_ebd="layer_norm",
        position_biased_input=False,
        type_vocab_size=0,
    )
    return Output(transformers.DebertaV2Model(config), "last_hidden_state")


def _mpnet() -> nn.Module:
    return Output(transformers.MPNetModel(transformers.MPNetConfig(**_SMALL)), "last_hidden_state")


def _clip() -> nn.Module:
    config = transformers.CLIPVisionConfig(
        hidden_size=128,
        intermediate_size=256,
        projection_dim=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        image_size=64,
        patch_size=16,
    )
    return Output(transformers.CLIPVisionModelWithProjection(config), "image_embeds")


def _depth() -> nn.Module:
    backbone = transformers.Dinov2Config(
        hidden_size=96,
        num_hidden_layers=4,
        num_attention_heads=4,
        image_size=70,
        patch_size=14,
        out_features=["stage1", "stage2", "stage3", "stage4"],
        reshape_hidden_states=False,
        apply_layernorm=True,
    )
    config = transformers.DepthAnythingConfig(
        backbone_config=backbone,
        reassemble_hidden_size=96,
        neck_hidden_sizes=[24, 48, 96, 96],
        fusion_hidden_size=32,
        head_hidden_size=16,
    )
    return Output(transformers.DepthAnythingForDepthEstimation(config), "predicted_depth")


NETWORKS: Mapping[str, Network] = {
    "ArcFace (IResNet)": Network(ArcFace, _image(112, 112), dynamo=False),
    "U2-Net": Network(U2Net, _image(96, 96), dynamo=False),
    "RTMPose": Network(RtmPose, _image(128, 96), dynamo=False),
    "Faster R-CNN": Network(Detections, (torch.rand(3, 128, 128),), dynamo=False),
    "ModernBERT": Network(_modern_bert, _words(32), dynamo=True),
    "DeBERTa": Network(_deberta, _words(32), dynamo=False),
    "MPNet": Network(_mpnet, _words(32), dynamo=True),
    "CLIP": Network(_clip, _image(64, 64), dynamo=False),
    "Depth Anything": Network(_depth, _image(70, 70), dynamo=True),
    "DTLN": Network(Dtln, (torch.rand(1, 20, 257),), dynamo=False),
    "speakers (PyanNet)": Network(Speakers, (torch.rand(1, 1, 16000),), dynamo=False),
    "FT-Transformer": Network(
        Tables, (torch.rand(8, 10), torch.arange(32).reshape(8, 4).remainder(10)), dynamo=True
    ),
}
_DRAWN = Random(171125).sample(sorted(NETWORKS), 4)
KEPT = {name: NETWORKS[name] for name in _DRAWN}
SEEN = {name: network for name, network in NETWORKS.items() if name not in KEPT}
SETS = {"seen": SEEN, "kept": KEPT}
