"""Thirty-one often deployed networks in variations of their files, of which fifteen were read.

Most families are in earlier sets, as one file each. Here seed 20263014 decided before anything was
built, for each network: the exporter, opset, batch and size, whether sizes are open when it is
exported, whether BatchNormalizations stay apart, whether the file is FP16, whether onnxsim
simplifies it, and which half is read. A choice that cannot be is left out (``_REFUSED``).
Random weights. Needs onnxsim, spandrel and monai besides what ``exported`` needs.

python -m benchmarks.networks.write twenty_fourth_set --folder networks
python -m benchmarks.plans.tensorrt_rtx --placements 1 --networks twenty_fourth_set \
    --folder networks
python -m benchmarks.plans.tensorrt_rtx_placements --drawn 2 --networks twenty_fourth_set \
    --folder networks
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from random import Random
from typing import Any

import diffusers
import monai
import timm
import torch
import torchvision
import transformers
from spandrel.architectures.SPAN import SPAN
from torch import Tensor, nn
from torchvision.models import detection, segmentation
from ultralytics.nn.tasks import DetectionModel, PoseModel, SegmentationModel

from benchmarks.networks.pytorch.deployed import SPEECH, VISION, Heads, Outputs, hidden, words, yolo
from benchmarks.networks.pytorch.export import Network

Make = Callable[[bool], Network]
_SEED = 20263014


@dataclass(frozen=True)
class Family:
    """How a network is written, given whether by the newer exporter.

    ``sizes``: factors of the last dimensions of its inputs that it takes; none for those that take
    one size. ``norms``: whether it has BatchNormalizations.
    """

    make: Make
    sizes: tuple[float, ...] = (1,)
    norms: bool = False


def _image(make: Callable[[], nn.Module], size: int, *sizes: float, norms: bool = True) -> Family:
    image = (torch.zeros(1, 3, size, size),)
    return Family(lambda dynamo: Network(make, image, dynamo), sizes or (1, 1.5, 2), norms)


def _timm(name: str, size: int, *sizes: float, norms: bool = True, **options: Any) -> Family:
    def make() -> nn.Module:
        return timm.create_model(name, pretrained=False, **{"num_classes": 10, **options})

    return _image(make, size, *sizes, norms=norms)


def _torchvision(name: str, size: int) -> Family:
    return _image(lambda: torchvision.models.get_model(name, weights=None), size)


def _yolo(model: Callable[..., nn.Module], config: str) -> Family:
    return Family(lambda dynamo: yolo(model, config, 128, dynamo), (1, 1.25, 2))


def _segmenter(name: str) -> Family:
    def make() -> nn.Module:
        whole = getattr(segmentation, name)(weights=None, weights_backbone=None, num_classes=5)
        return Outputs(whole, lambda found: found["out"])

    return _image(make, 96)


def _fcos() -> nn.Module:
    backbone = detection.backbone_utils.resnet_fpn_backbone(
        backbone_name="resnet18", weights=None, norm_layer=nn.BatchNorm2d
    )
    return Heads(detection.FCOS(backbone, num_classes=5))


def _detr() -> nn.Module:
    config = transformers.DetrConfig(
        d_model=64, encoder_layers=2, decoder_layers=2, encoder_attention_heads=4,
        decoder_attention_heads=4, encoder_ffn_dim=128, decoder_ffn_dim=128, num_queries=20,
        num_labels=5, backbone_config=transformers.ResNetConfig(
            embedding_size=16, hidden_sizes=[16, 32, 48, 64], depths=[1, 1, 1, 1],
            layer_type="basic", out_features=["stage4"],
        ),
    )  # fmt: skip
    model = transformers.DetrForObjectDetection(config)
    return Outputs(model, lambda found: (found.logits, found.pred_boxes))


def _depth_anything() -> nn.Module:
    backbone = transformers.Dinov2Config(
        **{**VISION, "patch_size": 14, "image_size": 112, "num_hidden_layers": 4},
        reshape_hidden_states=False, out_indices=[1, 2, 3, 4], apply_layernorm=True,
    )  # fmt: skip
    config = transformers.DepthAnythingConfig(
        backbone_config=backbone, reassemble_hidden_size=64, patch_size=14,
        neck_hidden_sizes=[16, 32, 48, 64], fusion_hidden_size=32, head_hidden_size=16,
    )  # fmt: skip
    model = transformers.DepthAnythingForDepthEstimation(config)
    return Outputs(model, lambda found: found.predicted_depth)


class _Sentence(nn.Module):
    """The normalised mean of a sentence's tokens, as sentence-transformers compute it."""

    def __init__(self, attention: str) -> None:
        super().__init__()
        config = transformers.BertConfig(
            vocab_size=100, hidden_size=64, num_hidden_layers=2, num_attention_heads=4,
            intermediate_size=128, max_position_embeddings=64, attn_implementation=attention,
        )  # fmt: skip
        self.whole = transformers.BertModel(config, add_pooling_layer=False)

    def forward(self, tokens: Tensor, mask: Tensor) -> Tensor:
        """The embedding of each sentence."""
        states = self.whole(tokens, attention_mask=mask).last_hidden_state
        weights = mask[..., None].to(states.dtype)
        mean = (states * weights).sum(1) / weights.sum(1).clamp(min=1e-9)
        return nn.functional.normalize(mean, dim=-1)


class _Edsr(nn.Module):
    """EDSR's residual blocks without norms, and its upsampling by pixel shuffles."""

    def __init__(self, channels: int = 32, blocks: int = 4) -> None:
        super().__init__()
        self.head = nn.Conv2d(3, channels, 3, padding=1)
        self.blocks = nn.ModuleList(
            nn.Sequential(
                nn.Conv2d(channels, channels, 3, padding=1), nn.ReLU(),
                nn.Conv2d(channels, channels, 3, padding=1),
            )
            for _ in range(blocks)
        )  # fmt: skip
        self.last = nn.Conv2d(channels, channels, 3, padding=1)
        self.up = nn.Sequential(nn.Conv2d(channels, 4 * channels, 3, padding=1), nn.PixelShuffle(2))
        self.tail = nn.Conv2d(channels, 3, 3, padding=1)

    def forward(self, image: Tensor) -> Tensor:
        """The image at twice its size."""
        first = self.head(image)
        values = first
        for block in self.blocks:
            values = values + 0.1 * block(values)
        return self.tail(self.up(self.last(values) + first))


def _denoiser() -> nn.Module:
    whole = diffusers.UNet2DConditionModel(
        sample_size=16, in_channels=4, out_channels=4, layers_per_block=1,
        block_out_channels=(32, 64, 64), norm_num_groups=8, attention_head_dim=8,
        down_block_types=("DownBlock2D", "CrossAttnDownBlock2D", "CrossAttnDownBlock2D"),
        up_block_types=("CrossAttnUpBlock2D", "CrossAttnUpBlock2D", "UpBlock2D"),
        cross_attention_dim=48, use_linear_projection=True,
    )  # fmt: skip
    return Outputs(whole, lambda found: found.sample)


def _image_encoder() -> nn.Module:
    whole = diffusers.AutoencoderKL(
        block_out_channels=(32, 64), layers_per_block=1, norm_num_groups=8,
        down_block_types=("DownEncoderBlock2D",) * 2, up_block_types=("UpDecoderBlock2D",) * 2,
    )  # fmt: skip
    whole.forward = lambda image: whole.encode(image).latent_dist.mean
    return whole


def _whisper() -> nn.Module:
    config = transformers.WhisperConfig(
        d_model=64, encoder_layers=2, encoder_attention_heads=4, encoder_ffn_dim=128,
        num_mel_bins=80, max_source_positions=100,
    )  # fmt: skip
    model = transformers.models.whisper.modeling_whisper.WhisperEncoder(config)
    return Outputs(model, lambda found: found[0])


FAMILIES: Mapping[str, Family] = {
    "BERT sentences": Family(
        lambda dynamo: Network(
            lambda: _Sentence("sdpa" if dynamo else "eager"),
            (torch.zeros(1, 24).long(), torch.ones(1, 24).long()),
            dynamo,
        ),
        (1, 0.5, 2),
    ),
    "CLIP vision": Family(
        lambda dynamo: hidden("CLIPVision:Model", (torch.zeros(1, 3, 64, 64),), dynamo, **VISION)
    ),
    "ConvNeXt": _timm("convnext_atto", 64, norms=False, ls_init_value=0.5),
    "DETR": _image(_detr, 96),
    "DeepLabV3": _segmenter("deeplabv3_mobilenet_v3_large"),
    "DeiT": _timm("deit_tiny_distilled_patch16_224", 64, 1, img_size=64, depth=3, norms=False),
    "Depth Anything": _image(_depth_anything, 112, 1, norms=False),
    "DistilBERT": Family(
        lambda dynamo: words(
            "DistilBert:ForSequenceClassification", "logits", dynamo, dim=64, n_layers=2,
            n_heads=4, hidden_dim=128,
        ),
        (1, 0.5, 2),
    ),
    "EDSR": _image(_Edsr, 32, norms=False),
    "EfficientNet-Lite": _timm("efficientnet_lite0", 64),
    "FCOS": _image(_fcos, 128, 1, 1.5),
    "GPT-2": Family(
        lambda dynamo: words(
            "GPT2:LMHeadModel", "logits", dynamo, n_positions=64, n_embd=64, n_layer=2, n_head=4
        ),
        (1, 0.5, 2),
    ),
    "Gemma 3": Family(
        lambda dynamo: words(
            "Gemma3Text:Model", "last_hidden_state", dynamo, num_key_value_heads=2, head_dim=16
        ),
        (1, 0.5, 2),
    ),
    "LRASPP": _segmenter("lraspp_mobilenet_v3_large"),
    "Llama": Family(
        lambda dynamo: words("Llama:ForCausalLM", "logits", dynamo, num_key_value_heads=2),
        (1, 0.5, 2),
    ),
    "MobileNetV3": _torchvision("mobilenet_v3_small", 64),
    "MobileViT": _timm("mobilevit_xxs", 64, 1, 2),
    "RegNet": _timm("regnety_002", 64),
    "ResNet": _torchvision("resnet18", 64),
    "RoBERTa": Family(
        lambda dynamo: words("Roberta:Model", "last_hidden_state", dynamo), (1, 0.5, 2)
    ),
    "SPAN": _image(lambda: SPAN(num_in_ch=3, num_out_ch=3, feature_channels=32), 32, norms=False),
    "SegFormer": Family(
        lambda dynamo: hidden(
            "Segformer:ForSemanticSegmentation", (torch.zeros(1, 3, 64, 64),), dynamo,
            depths=[1, 1, 1, 1], hidden_sizes=[16, 32, 64, 96], num_attention_heads=[1, 2, 4, 6],
            decoder_hidden_size=64, num_labels=5,
        ),
        (1, 1.5, 2),
        norms=True,
    ),
    "Stable Diffusion": Family(
        lambda dynamo: Network(
            _denoiser,
            (torch.zeros(1, 4, 16, 16), torch.tensor([7.0]), torch.zeros(1, 12, 48)),
            dynamo,
        )
    ),
    "Swin": _timm(
        "swin_tiny_patch4_window7_224", 64, 1, norms=False, img_size=64, window_size=4,
        depths=(2, 2), num_heads=(3, 6), embed_dim=48,
    ),
    "U-Net": _image(
        lambda: monai.networks.nets.BasicUNet(2, 3, 2, (16, 16, 32, 64, 96, 16), norm="batch"), 64
    ),
    "VAE encoder": _image(_image_encoder, 32, norms=False),
    "Whisper": Family(
        lambda dynamo: Network(_whisper, (torch.zeros(1, 80, 200),), dynamo)
    ),
    "YOLO11 (pose)": _yolo(PoseModel, "yolo11n-pose.yaml"),
    "YOLOv5": _yolo(DetectionModel, "yolov5n.yaml"),
    "YOLOv8 (masks)": _yolo(SegmentationModel, "yolov8n-seg.yaml"),
    "wav2vec 2.0": Family(
        lambda dynamo: hidden("Wav2Vec2:Model", (torch.zeros(1, 3200),), dynamo, **SPEECH),
        (1, 1.5),
    ),
}  # fmt: skip
# EDSR's residuals are scaled by 0.1: the scales of its weights are too small for an FP16 file.
_REFUSED: Mapping[str, Mapping[str, Any]] = {"EDSR": {"half": False}}


def _varied(name: str, draw: Random) -> Network:
    """The file of a network as it is drawn."""
    family = FAMILIES[name]
    dynamo, batch, size = draw.random() < 0.5, draw.choice((1, 1, 4, 8)), draw.choice(family.sizes)
    opset = draw.choice((18, 20, 21, None) if dynamo else (13, 14, 16, 17, 18))
    opened, apart, half, simplified = (draw.random() < share for share in (0.5, 0.5, 0.2, 0.3))
    choices: dict[str, Any] = {
        "opset": opset, "open_sizes": opened and not dynamo, "apart": apart and family.norms,
        "half": half, "simplified": simplified,
    }  # fmt: skip
    network = family.make(dynamo)
    inputs = tuple(_resized(value, batch, size) for value in network.inputs)
    return replace(network, inputs=inputs, **{**choices, **_REFUSED.get(name, {})})


def _resized(value: Tensor, batch: int, size: float) -> Tensor:
    """Of another batch, and of other last dimensions: both of an image."""
    kept = 2 if value.dim() == 4 else 1
    sizes = [round(length * size) for length in value.shape[kept:]]
    if value.dim() == 1:
        return value.new_full((batch,), value[0])
    fill = value.flatten()[0]
    return torch.full((batch, *value.shape[1:kept], *sizes), fill, dtype=value.dtype)


def _drawn() -> tuple[Mapping[str, Network], Mapping[str, Network]]:
    draw, read, aside = Random(_SEED), dict[str, Network](), dict[str, Network]()
    for number, name in enumerate(draw.sample(sorted(FAMILIES), len(FAMILIES))):
        (read if number % 2 else aside)[name] = _varied(name, draw)
    return read, aside


READ, ASIDE = _drawn()
SETS = {"read": READ, "aside": ASIDE}
