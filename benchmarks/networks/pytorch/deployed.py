"""Networks that are often deployed, in pairs of a kind, for TensorRT-RTX: one of each may be read.

As their own libraries write them, with random weights and smaller: torchvision, timm, transformers,
diffusers and ultralytics. Which of a pair is ``READ`` was drawn at random before anything was
measured; of ``ASIDE`` only figures are read.

python -m benchmarks.plans.tensorrt_rtx --networks deployed --folder networks --placements 1
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import diffusers
import torch
import torchvision
import transformers
from torch import Tensor, nn
from torchvision.models import detection, segmentation
from transformers.models.whisper.modeling_whisper import WhisperDecoder, WhisperEncoder
from ultralytics.nn.tasks import DetectionModel, SegmentationModel

from benchmarks.networks.pytorch.export import Network, drawn_at_random, timm_network

_IMAGE = (torch.zeros(1, 3, 64, 64),)
_TOKENS = torch.zeros(1, 24, dtype=torch.int64)
_MASK = torch.ones(1, 24, dtype=torch.int64)
_SMALL = {
    "vocab_size": 100, "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4,
    "intermediate_size": 128, "max_position_embeddings": 64,
}  # fmt: skip


class Outputs(nn.Module):
    """A module whose output is the tensors that ``pick`` takes of what another one returns."""

    def __init__(self, whole: nn.Module, pick: Callable[[Any], object]) -> None:
        super().__init__()
        self.whole, self.pick = whole, pick

    def forward(self, *inputs: Tensor) -> object:
        """What ``pick`` takes."""
        return self.pick(self.whole(*inputs))


def first_output(make: Callable[[], nn.Module]) -> Callable[[], nn.Module]:
    """What makes the module of ``make`` with its first output alone."""
    return lambda: Outputs(make(), lambda found: found[0])


class Heads(nn.Module):
    """Features and heads of a detector of torchvision, without what depends on the values."""

    def __init__(self, whole: nn.Module) -> None:
        super().__init__()
        self.features, self.heads = whole.backbone, whole.head

    def forward(self, image: Tensor) -> list[Tensor]:
        """Scores and boxes."""
        return list(self.heads(list(self.features(image).values())).values())


class Words(nn.Module):
    """A language model that is given token ids, and a mask where it takes one."""

    def __init__(self, whole: nn.Module, output: str, **fixed: object) -> None:
        super().__init__()
        self.whole, self.output, self.fixed = whole, output, fixed

    def forward(self, *inputs: Tensor) -> Tensor:
        """``output`` of the model."""
        names = ("input_ids", "attention_mask")
        given = dict(zip(names, inputs, strict=False))
        return getattr(self.whole(**given, **self.fixed), self.output)


class Decoder(nn.Module):
    """A decoder that attends to what an encoder wrote."""

    def __init__(self, whole: nn.Module) -> None:
        super().__init__()
        self.whole = whole

    def forward(self, tokens: Tensor, encoded: Tensor) -> Tensor:
        """The last hidden state."""
        mask = torch.ones_like(tokens)
        return self.whole(
            tokens, attention_mask=mask, encoder_hidden_states=encoded, use_cache=False
        ).last_hidden_state


def torchvision_network(name: str, *shape: int, dynamo: bool, **options: object) -> Network:
    """A network of torchvision by name, for one input of three channels; ten classes by default."""

    def make() -> nn.Module:
        return torchvision.models.get_model(name, weights=None, **{"num_classes": 10, **options})

    return Network(make, (torch.zeros(1, 3, *shape),), dynamo)


def _segmenter(name: str, dynamo: bool) -> Network:
    def make() -> nn.Module:
        whole = getattr(segmentation, name)(weights=None, weights_backbone=None, num_classes=5)
        return Outputs(whole, lambda found: found["out"])

    return Network(make, (torch.zeros(1, 3, 96, 96),), dynamo)


def _detector(make: Callable[[], nn.Module], size: int, dynamo: bool) -> Network:
    return Network(lambda: Heads(make()), (torch.zeros(1, 3, size, size),), dynamo)


def yolo(make: Callable[..., nn.Module], config: str, size: int, dynamo: bool) -> Network:
    def exported() -> nn.Module:
        model = make(config, nc=10, verbose=False).eval().fuse(verbose=False)
        model.model[-1].export, model.model[-1].format = True, "onnx"
        return model

    return Network(exported, (torch.zeros(1, 3, size, size),), dynamo)


def words(name: str, output: str, dynamo: bool, **options: object) -> Network:
    def make() -> nn.Module:
        config = getattr(transformers, f"{name.split(':', maxsplit=1)[0]}Config")(
            **{**_SMALL, **options}, attn_implementation="sdpa" if dynamo else "eager"
        )
        fixed = {"use_cache": False} if output == "logits" else {}
        return Words(getattr(transformers, name.replace(":", ""))(config), output, **fixed)

    return Network(make, (_TOKENS, _MASK), dynamo)


def hidden(name: str, inputs: tuple[Tensor, ...], dynamo: bool, **options: object) -> Network:
    """The last hidden state of a model of transformers, called ``CONFIG:REST``."""

    def make() -> nn.Module:
        config = getattr(transformers, f"{name.split(':', maxsplit=1)[0]}Config")(
            **options, attn_implementation="sdpa" if dynamo else "eager"
        )
        whole = getattr(transformers, name.replace(":", ""))(config)
        return Outputs(whole, lambda found: found[0])

    return Network(make, inputs, dynamo)


def _whisper_decoder() -> nn.Module:
    return Decoder(WhisperDecoder(_whisper(attn_implementation="eager")))


def _whisper(**options: object) -> transformers.WhisperConfig:
    return transformers.WhisperConfig(
        vocab_size=100, d_model=64, encoder_layers=2, decoder_layers=2, encoder_attention_heads=4,
        decoder_attention_heads=4, encoder_ffn_dim=128, decoder_ffn_dim=128, num_mel_bins=40,
        max_source_positions=50, max_target_positions=32, pad_token_id=0, bos_token_id=1,
        eos_token_id=2, decoder_start_token_id=1, suppress_tokens=None,
        begin_suppress_tokens=None, **options,
    )  # fmt: skip


def _whisper_encoder() -> nn.Module:
    return Outputs(WhisperEncoder(_whisper(attn_implementation="sdpa")), lambda found: found[0])


def _denoiser() -> nn.Module:
    whole = diffusers.UNet2DConditionModel(
        sample_size=16, in_channels=4, out_channels=4, layers_per_block=1,
        block_out_channels=(32, 64), down_block_types=("CrossAttnDownBlock2D", "DownBlock2D"),
        up_block_types=("UpBlock2D", "CrossAttnUpBlock2D"), cross_attention_dim=48,
        attention_head_dim=8, norm_num_groups=8,
    )  # fmt: skip
    return Outputs(whole, lambda found: found.sample)


def _image_decoder() -> nn.Module:
    whole = diffusers.AutoencoderKL(
        block_out_channels=(32, 64), layers_per_block=1, norm_num_groups=8,
        down_block_types=("DownEncoderBlock2D",) * 2, up_block_types=("UpDecoderBlock2D",) * 2,
    )  # fmt: skip
    whole.forward = lambda latent: whole.decode(latent).sample
    return whole


VISION = {
    "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 128,
    "image_size": 64, "patch_size": 16,
}  # fmt: skip
SPEECH = {
    "vocab_size": 32, "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4,
    "intermediate_size": 128, "conv_dim": (32, 32, 32), "conv_kernel": (10, 3, 3),
    "conv_stride": (5, 2, 2), "num_feat_extract_layers": 3, "num_conv_pos_embeddings": 16,
    "num_conv_pos_embedding_groups": 4, "do_stable_layer_norm": True, "feat_extract_norm": "layer",
}  # fmt: skip
_SWIN = {
    "patch_size": [4, 4], "embed_dim": 48, "depths": [2, 2], "num_heads": [3, 6],
    "window_size": [7, 7], "stochastic_depth_prob": 0.0,
}  # fmt: skip

PAIRS: tuple[Mapping[str, Network], ...] = (
    {
        "YOLOv5": yolo(DetectionModel, "yolov5n.yaml", 128, dynamo=False),
        "YOLO11": yolo(DetectionModel, "yolo11n.yaml", 128, dynamo=False),
    },
    {
        "YOLOv8 (masks)": yolo(SegmentationModel, "yolov8n-seg.yaml", 128, dynamo=False),
        "YOLOv9": yolo(DetectionModel, "yolov9t.yaml", 128, dynamo=False),
    },
    {
        "SSDLite": _detector(
            lambda: detection.ssdlite320_mobilenet_v3_large(weights=None, weights_backbone=None),
            160,
            dynamo=False,
        ),
        "RetinaNet": _detector(
            lambda: detection.retinanet_resnet50_fpn_v2(weights=None, weights_backbone=None),
            128,
            dynamo=True,
        ),
    },
    {
        "DeepLabV3": _segmenter("deeplabv3_mobilenet_v3_large", dynamo=False),
        "FCN": _segmenter("fcn_resnet50", dynamo=True),
    },
    {
        "GoogLeNet": torchvision_network(
            "googlenet",
            96,
            96,
            dynamo=True,
            num_classes=1000,
            aux_logits=False,
            init_weights=True,
        ),
        "MNASNet": torchvision_network("mnasnet0_5", 96, 96, dynamo=False, num_classes=1000),
    },
    {
        "ConvNeXt (torchvision)": torchvision_network(
            "convnext_tiny", 64, 64, dynamo=True, num_classes=1000
        ),
        "EfficientNetV2 (torchvision)": torchvision_network(
            "efficientnet_v2_s", 64, 64, dynamo=False, num_classes=1000
        ),
    },
    {
        "ViT (torchvision)": Network(
            lambda: torchvision.models.VisionTransformer(64, 16, 3, 4, 128, 256), _IMAGE, True
        ),
        "Swin (torchvision)": Network(
            lambda: torchvision.models.SwinTransformer(**_SWIN),
            (torch.zeros(1, 3, 112, 112),),
            False,
        ),
    },
    {
        "BERT (old)": words("Bert:Model", "last_hidden_state", dynamo=False),
        "BERT (dynamo)": words("Bert:Model", "pooler_output", dynamo=True),
    },
    {
        "Qwen2": words("Qwen2:ForCausalLM", "logits", True, num_key_value_heads=2),
        "Llama (legacy)": words("Llama:ForCausalLM", "logits", False, num_key_value_heads=2),
    },
    {
        "GPT-2 (transformers)": words(
            "GPT2:LMHeadModel",
            "logits",
            False,
            n_positions=64,
            n_embd=64,
            n_layer=2,
            n_head=4,
        ),
        "Phi": words("Phi:ForCausalLM", "logits", True, partial_rotary_factor=0.5),
    },
    {
        "Whisper encoder": Network(_whisper_encoder, (torch.zeros(1, 40, 100),), True),
        "Whisper decoder": Network(
            _whisper_decoder, (_TOKENS[:, :8], torch.zeros(1, 50, 64)), False
        ),
    },
    {
        "Conformer": hidden(
            "Wav2Vec2Conformer:Model",
            (torch.zeros(1, 3200),),
            False,
            **SPEECH,
            position_embeddings_type="relative",
        ),
        "HuBERT": hidden("Hubert:Model", (torch.zeros(1, 3200),), False, **SPEECH),
    },
    {
        "Stable Diffusion": Network(
            _denoiser,
            (torch.zeros(1, 4, 16, 16), torch.tensor([7.0]), torch.zeros(1, 12, 48)),
            False,
        ),
        "VAE decoder": Network(_image_decoder, (torch.zeros(1, 4, 16, 16),), False),
    },
    {
        "DINOv2": hidden("Dinov2:Model", _IMAGE, True, **VISION),
        "SigLIP": hidden("SiglipVision:Model", _IMAGE, False, **VISION),
    },
    {
        "SegFormer (transformers)": hidden(
            "Segformer:ForSemanticSegmentation",
            _IMAGE,
            False,
            depths=[1, 1, 1, 1],
            hidden_sizes=[16, 32, 64, 96],
            num_attention_heads=[1, 2, 4, 6],
            decoder_hidden_size=64,
            num_labels=5,
        ),
        "MobileNetV4 (dynamo)": timm_network("mobilenetv4_conv_medium", 64, dynamo=True),
    },
)
READ, ASIDE = drawn_at_random(PAIRS, seed=20261125)
SETS = {"read": READ, "aside": ASIDE}
