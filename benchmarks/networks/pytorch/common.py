"""Sixteen networks that are deployed often, in pairs of a kind: one of each was drawn to be read.

From torchvision, transformers and ``common_modules``, by PyTorch's old and new exporter; no set
that CPU engines' plans were compared on before has these files. The lot was drawn before anything
was measured. Needs torch, torchvision, timm, transformers and onnxscript. Weights are random.

python -m benchmarks.plans.openvino --networks common --folder networks --placements 3
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
import torchvision
import transformers
from torch import Tensor, nn
from torchvision.models.resnet import Bottleneck, ResNet

from benchmarks.networks.pytorch.common_modules import Crnn, LatentUNet, SrVgg, UNet, Yolo7, Yolo11
from benchmarks.networks.pytorch.export import Network, drawn_by_lot


class Output(nn.Module):
    """One output of a module that returns several by name."""

    def __init__(self, whole: nn.Module, name: str, argument: str | None = None) -> None:
        super().__init__()
        self.whole, self.name, self.argument = whole, name, argument

    def forward(self, x: Tensor) -> Tensor:
        """What the module calls ``name``."""
        found = self.whole(x) if self.argument is None else self.whole(**{self.argument: x})
        return found[self.name]


def _image(size: int, channels: int = 3) -> tuple[Tensor, ...]:
    return (torch.rand(1, channels, size, size),)


def _words(count: int) -> tuple[Tensor, ...]:
    return (torch.arange(count).remainder(97)[None],)


def _resnext() -> nn.Module:
    return ResNet(Bottleneck, [1, 2, 2, 1], num_classes=10, groups=8, width_per_group=16)


def _google_net() -> nn.Module:
    return torchvision.models.googlenet(num_classes=10, aux_logits=False, init_weights=False)


def _deep_lab() -> nn.Module:
    whole = torchvision.models.segmentation.deeplabv3_mobilenet_v3_large(
        weights=None, weights_backbone=None, num_classes=4
    )
    return Output(whole, "out")


def _vit() -> nn.Module:
    return torchvision.models.VisionTransformer(
        64, 16, num_layers=2, num_heads=4, hidden_dim=96, mlp_dim=192, num_classes=10
    )


def _swin() -> nn.Module:
    return torchvision.models.SwinTransformer([4, 4], 48, [2, 2], [2, 4], [4, 4], num_classes=10)


def _bert() -> nn.Module:
    config = transformers.BertConfig(
        vocab_size=100,
        hidden_size=96,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=192,
        attn_implementation="sdpa",
    )
    return Output(transformers.BertForSequenceClassification(config), "logits")


def _gpt2() -> nn.Module:
    config = transformers.GPT2Config(
        vocab_size=100, n_positions=64, n_embd=96, n_layer=2, n_head=4, use_cache=False
    )
    return Output(transformers.GPT2LMHeadModel(config), "logits")


def _qwen2() -> nn.Module:
    config = transformers.Qwen2Config(
        vocab_size=100,
        hidden_size=96,
        intermediate_size=256,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        use_cache=False,
    )
    return Output(transformers.Qwen2ForCausalLM(config), "logits")


def _whisper() -> nn.Module:
    config = transformers.WhisperConfig(
        d_model=96,
        encoder_layers=2,
        encoder_attention_heads=4,
        encoder_ffn_dim=192,
        num_mel_bins=40,
        max_source_positions=50,
    )
    encoder = transformers.models.whisper.modeling_whisper.WhisperEncoder(config)
    return Output(encoder, "last_hidden_state")


def _conformer() -> nn.Module:
    config = transformers.Wav2Vec2ConformerConfig(
        vocab_size=32,
        hidden_size=96,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=192,
        conv_dim=(32, 32, 32),
        conv_kernel=(10, 3, 3),
        conv_stride=(5, 2, 2),
        num_conv_pos_embeddings=16,
        num_conv_pos_embedding_groups=4,
        position_embeddings_type="rotary",
        conv_depthwise_kernel_size=15,
    )
    return Output(transformers.Wav2Vec2ConformerForCTC(config), "logits")


def _net(make: Callable[[], nn.Module], inputs: tuple[Tensor, ...], dynamo: bool) -> Network:
    return Network(make, inputs, dynamo)


PAIRS: tuple[Mapping[str, Network], ...] = (
    {
        "ResNeXt": _net(_resnext, _image(64), dynamo=False),
        "GoogLeNet": _net(_google_net, _image(64), dynamo=True),
    },
    {
        "YOLO11": _net(Yolo11, _image(64), dynamo=False),
        "YOLOv7": _net(Yolo7, _image(64), dynamo=True),
    },
    {
        "DeepLabV3": _net(_deep_lab, _image(64), dynamo=True),
        "U-Net (ConvTranspose)": _net(lambda: UNet(16), _image(64), dynamo=False),
    },
    {
        "BERT (transformers)": _net(_bert, _words(24), dynamo=False),
        "GPT-2 (transformers)": _net(_gpt2, _words(24), dynamo=True),
    },
    {
        "Qwen2": _net(_qwen2, _words(24), dynamo=True),
        "Whisper encoder": _net(_whisper, (torch.rand(1, 40, 100),), dynamo=False),
    },
    {
        "Conformer (wav2vec 2.0)": _net(_conformer, (torch.rand(1, 1600),), dynamo=False),
        "CRNN (PyTorch)": _net(Crnn, (torch.rand(1, 1, 32, 96),), dynamo=True),
    },
    {
        "Swin (torchvision)": _net(_swin, _image(64), dynamo=False),
        "ViT (torchvision)": _net(_vit, _image(64), dynamo=True),
    },
    {
        "Real-ESRGAN compact": _net(lambda: SrVgg(32, 6), _image(32), dynamo=False),
        "latent diffusion": _net(
            LatentUNet,
            (torch.rand(1, 4, 16, 16), torch.rand(1, 32), torch.rand(1, 12, 48)),
            dynamo=True,
        ),
    },
)

READ, ASIDE = drawn_by_lot(PAIRS, seed=20261125)
SETS = {"read": READ, "aside": ASIDE}
