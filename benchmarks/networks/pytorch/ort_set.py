"""Thirty networks in pairs of a kind that no other list has, for ONNX Runtime: half may be read.

As timm, torchvision and transformers write them, with random weights and smaller. Which of a pair
is ``READ`` was drawn at random before anything was measured; of ``ASIDE`` only figures are read.

python -m benchmarks.plans.onnxruntime --networks ort_set --folder networks --placements 2
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
import torchvision
from torch import Tensor, nn

from benchmarks.networks.pytorch.deployed import VISION, hidden, torchvision_network, words
from benchmarks.networks.pytorch.export import Network, drawn_at_random, timm_network

_SPEECH = {
    "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4,
    "intermediate_size": 128, "conv_dim": (32, 32, 32), "conv_kernel": (10, 3, 3),
    "conv_stride": (5, 2, 2), "num_feat_extract_layers": 3, "num_conv_pos_embeddings": 16,
    "num_conv_pos_embedding_groups": 4,
}  # fmt: skip
_SOUND, _IMAGE = (torch.zeros(1, 2400),), (torch.zeros(1, 3, 64, 64),)
_STATE, _LOGITS = "last_hidden_state", "logits"


class _Segmented(nn.Module):
    """An FCN of torchvision: scores of each pixel."""

    def __init__(self) -> None:
        super().__init__()
        self.whole = torchvision.models.get_model(
            "fcn_resnet50", weights=None, weights_backbone=None, num_classes=5
        )

    def forward(self, image: Tensor) -> Tensor:
        """At the size of the image."""
        return self.whole(image)["out"]


PAIRS: tuple[Mapping[str, Network], ...] = (
    {
        "MnasNet": timm_network("mnasnet_100", 64, dynamo=False),
        "SPNASNet": timm_network("spnasnet_100", 64, dynamo=True),
    },
    {
        "FBNetV3": timm_network("fbnetv3_b", 64, dynamo=True),
        "MobileNetV3 (RW)": timm_network("mobilenetv3_rw", 64, dynamo=False),
    },
    {
        "ResNet-RS": timm_network("resnetrs50", 64, dynamo=False),
        "ResNet-Blur": timm_network("resnetblur18", 64, dynamo=True),
    },
    {
        "BAT-ResNeXt": timm_network("bat_resnext26ts", 256, dynamo=False),
        "SE-BoTNet": timm_network("sebotnet33ts_256", 256, dynamo=True),
    },
    {
        "FCN": Network(_Segmented, _IMAGE, True),
        "MaxViT (torchvision)": torchvision_network("maxvit_t", 224, 224, dynamo=False),
    },
    {
        "RegNet (transformers)": hidden(
            "RegNet:Model",
            _IMAGE,
            False,
            embedding_size=16,
            hidden_sizes=[16, 32, 48, 64],
            depths=[1, 1, 1, 1],
            groups_width=8,
        ),
        "FocalNet (transformers)": hidden(
            "FocalNet:Model", _IMAGE, False, image_size=64, embed_dim=32, depths=[1, 1, 2, 1]
        ),
    },
    {
        "Donut": hidden(
            "DonutSwin:Model",
            _IMAGE,
            False,
            image_size=64,
            embed_dim=32,
            depths=[1, 2],
            num_heads=[2, 4],
            window_size=4,
        ),
        "BiT": hidden(
            "Bit:Model",
            _IMAGE,
            False,
            embedding_size=32,
            hidden_sizes=[32, 64],
            depths=[1, 1],
            num_groups=8,
        ),
    },
    {
        "SigLIP": hidden("SiglipVision:Model", _IMAGE, True, **VISION),
        "DINOv2 (registers)": hidden("Dinov2WithRegisters:Model", _IMAGE, True, **VISION),
    },
    {
        "SqueezeBERT": words("SqueezeBert:Model", _STATE, False, embedding_size=64),
        "ConvBERT": words("ConvBert:Model", _STATE, False, embedding_size=32),
    },
    {
        "LayoutLM": words("LayoutLM:Model", _STATE, False),
        "ERNIE": words("Ernie:Model", _STATE, True),
    },
    {
        "Gemma 2": words("Gemma2:ForCausalLM", _LOGITS, False, num_key_value_heads=2, head_dim=16),
        "StableLM": words("StableLm:ForCausalLM", _LOGITS, False, num_key_value_heads=2),
    },
    {
        "OLMo 2": words("Olmo2:ForCausalLM", _LOGITS, False, num_key_value_heads=2),
        "Granite": words("Granite:ForCausalLM", _LOGITS, True, num_key_value_heads=2),
    },
    {
        "GPT-J": words(
            "GPTJ:ForCausalLM", _LOGITS, False, n_embd=64, n_layer=2, n_head=4, rotary_dim=8
        ),
        "Cohere": words("Cohere:ForCausalLM", _LOGITS, True, num_key_value_heads=2),
    },
    {
        "HuBERT": hidden("Hubert:Model", _SOUND, False, **_SPEECH),
        "UniSpeech": hidden("UniSpeech:Model", _SOUND, True, **_SPEECH),
    },
    {
        "SEW": hidden("SEW:Model", _SOUND, False, **_SPEECH, squeeze_factor=2),
        "Data2Vec (audio)": hidden("Data2VecAudio:Model", _SOUND, True, **_SPEECH),
    },
)
READ, ASIDE = drawn_at_random(PAIRS, seed=20261127)
SETS = {"read": READ, "aside": ASIDE}
