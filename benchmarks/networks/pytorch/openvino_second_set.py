"""Networks of kinds that no other list has, drawn at random, of which only figures were read.

Five to eight of each of five lists of 14 to 40 (timm, torchvision, texts, images and audio of
transformers), without those that other sets have or that could not be exported. Random weights.

python -m benchmarks.networks.write openvino_second_set --folder networks
python -m benchmarks.plans.openvino --placements 1 --networks openvino_second_set --folder networks
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
import torchvision
import transformers
from torch import Tensor, nn
from transformers.models.groupvit.modeling_groupvit import GroupViTVisionModel
from transformers.models.vits.modeling_vits import VitsTextEncoder

from benchmarks.networks.pytorch.deployed import (
    Heads,
    Outputs,
    first_output,
    torchvision_network,
    words,
)
from benchmarks.networks.pytorch.export import Network, timm_network

_IMAGE = (torch.zeros(1, 3, 64, 64),)
_TOKENS = torch.zeros(1, 24, dtype=torch.int64) + 3
_EAGER = {"attn_implementation": "eager"}


def _vjepa() -> nn.Module:
    config = transformers.VJEPA2Config(
        crop_size=32, frames_per_clip=4, hidden_size=64, num_attention_heads=4,
        num_hidden_layers=2, pred_hidden_size=48, pred_num_attention_heads=4,
        pred_num_hidden_layers=1, **_EAGER,
    )  # fmt: skip
    whole = transformers.VJEPA2Model(config)
    return Outputs(whole.encoder, lambda found: found[0])


def _mask_former() -> nn.Module:
    config = transformers.MaskFormerConfig(
        backbone_config=transformers.ResNetConfig(
            embedding_size=16, hidden_sizes=[16, 32, 48, 64], depths=[1, 1, 1, 1],
            layer_type="basic", out_features=["stage1", "stage2", "stage3", "stage4"],
        ),
        decoder_config=transformers.DetrConfig(
            d_model=64, encoder_layers=1, decoder_layers=1, encoder_attention_heads=4,
            decoder_attention_heads=4, encoder_ffn_dim=128, decoder_ffn_dim=128, num_queries=10,
        ),
        fpn_feature_size=64, mask_feature_size=64,
    )  # fmt: skip
    whole = transformers.MaskFormerForInstanceSegmentation(config)
    return Outputs(whole, lambda found: (found[0], found[1]))


def _group() -> nn.Module:
    config = transformers.GroupViTVisionConfig(
        hidden_size=64, intermediate_size=128, depths=[1, 1, 1], num_attention_heads=4,
        image_size=64, patch_size=8, num_group_tokens=[8, 4, 0], num_output_groups=[8, 4, 0],
        **_EAGER,
    )  # fmt: skip
    return GroupViTVisionModel(config)


def _mgpstr() -> nn.Module:
    config = transformers.MgpstrConfig(
        image_size=[32, 64], patch_size=4, max_token_length=10, num_character_labels=38,
        num_bpe_labels=50, num_wordpiece_labels=50, hidden_size=64, num_hidden_layers=2,
        num_attention_heads=4, mlp_ratio=2.0,
    )  # fmt: skip
    return Outputs(transformers.MgpstrForSceneTextRecognition(config), lambda found: found.logits)


def _mobile_vit() -> nn.Module:
    config = transformers.MobileViTConfig(
        image_size=64, hidden_sizes=[32, 48, 64], neck_hidden_sizes=[16, 16, 32, 32, 48, 64, 96],
        num_attention_heads=4, **_EAGER,
    )  # fmt: skip
    return transformers.MobileViTModel(config)


def _pool_former() -> nn.Module:
    config = transformers.PoolFormerConfig(hidden_sizes=[16, 32, 48, 64], depths=[1, 1, 2, 1])
    return transformers.PoolFormerModel(config)


def _pvt() -> nn.Module:
    config = transformers.PvtV2Config(
        image_size=64, hidden_sizes=[16, 32, 48, 64], depths=[1, 1, 1, 1],
        num_attention_heads=[1, 2, 3, 4],
    )  # fmt: skip
    return transformers.PvtV2Model(config)


def _wav2vec() -> nn.Module:
    config = transformers.Wav2Vec2BertConfig(
        hidden_size=64, num_hidden_layers=2, num_attention_heads=4, intermediate_size=128,
        feature_projection_input_dim=40, left_max_position_embeddings=8,
        right_max_position_embeddings=8,
    )  # fmt: skip
    return transformers.Wav2Vec2BertModel(config)


class _Vits(nn.Module):
    """The text encoder of VITS."""

    def __init__(self) -> None:
        super().__init__()
        config = transformers.VitsConfig(
            vocab_size=40, hidden_size=64, num_hidden_layers=2, num_attention_heads=2,
            ffn_dim=128, flow_size=64,
        )  # fmt: skip
        self.whole = VitsTextEncoder(config)

    def forward(self, tokens: Tensor) -> Tensor:
        """The last hidden state."""
        mask = torch.ones(1, 24, 1)
        return self.whole(tokens, mask, return_dict=False)[0]


class _FastSpeech(nn.Module):
    """The encoder of FastSpeech 2 of conformers."""

    def __init__(self) -> None:
        super().__init__()
        config = transformers.FastSpeech2ConformerConfig(
            hidden_size=64, vocab_size=40, encoder_layers=2, encoder_linear_units=128,
            encoder_num_attention_heads=2, decoder_layers=1, decoder_linear_units=128,
        )  # fmt: skip
        self.whole = transformers.FastSpeech2ConformerModel(config).encoder

    def forward(self, tokens: Tensor) -> Tensor:
        """The last hidden state."""
        return self.whole(tokens, return_dict=False)[0]


def _deep_lab() -> nn.Module:
    whole = torchvision.models.segmentation.deeplabv3_resnet50(
        weights=None, weights_backbone=None, num_classes=5
    )
    return Outputs(whole, lambda found: found["out"])


def _ssd_lite() -> nn.Module:
    return Heads(
        torchvision.models.detection.ssdlite320_mobilenet_v3_large(
            weights=None, weights_backbone=None, num_classes=5
        )
    )


_LM = {"num_key_value_heads": 2}
ASIDE: Mapping[str, Network] = {
    "CPUBone": timm_network("cpubone_b0_bfrobust", 64, dynamo=False),
    "HieraDet": timm_network("hieradet_small", 64, dynamo=False),
    "ECA-ResNeXt": timm_network("ecaresnext26t_32x4d", 64, dynamo=True),
    "GC-EfficientNetV2": timm_network("gc_efficientnetv2_rw_t", 64, dynamo=False),
    "DenseNet-blur": timm_network("densenetblur121d", 64, dynamo=False),
    "StarCoder 2": words("Starcoder2:ForCausalLM", "logits", True, **_LM),
    "BitNet": words("BitNet:Model", "last_hidden_state", True, **_LM, pad_token_id=0),
    "RoBERTa (norms first)": words("RobertaPreLayerNorm:Model", "last_hidden_state", False),
    "Megatron BERT": words("MegatronBert:Model", "last_hidden_state", False),
    "Helium": words(
        "Helium:ForCausalLM", "logits", True, **_LM, head_dim=16, pad_token_id=0,
    ),
    "V-JEPA 2": Network.of(_vjepa, torch.zeros(1, 4, 3, 32, 32)),
    "MaskFormer": Network.of(_mask_former, torch.zeros(1, 3, 96, 96)),
    "GroupViT": Network.of(first_output(_group), *_IMAGE),
    "MGP-STR": Network.of(_mgpstr, torch.zeros(1, 3, 32, 64), dynamo=True),
    "MobileViT (transformers)": Network.of(first_output(_mobile_vit), *_IMAGE),
    "PoolFormer (transformers)": Network.of(first_output(_pool_former), *_IMAGE, dynamo=True),
    "PVTv2 (transformers)": Network.of(first_output(_pvt), *_IMAGE),
    "Wav2Vec2-BERT": Network.of(first_output(_wav2vec), torch.zeros(1, 32, 40)),
    "VITS (text)": Network.of(_Vits, _TOKENS),
    "FastSpeech 2 (conformers)": Network.of(_FastSpeech, _TOKENS),
    "DeepLabv3 (ResNet)": Network.of(_deep_lab, torch.zeros(1, 3, 96, 96), dynamo=True),
    "SSDlite": Network.of(_ssd_lite, torch.zeros(1, 3, 160, 160)),
    "SqueezeNet 1.1": torchvision_network("squeezenet1_1", 96, 96, dynamo=False),
    "AlexNet": torchvision_network("alexnet", 96, 96, dynamo=True),
    "ConvNeXt (torchvision)": torchvision_network("convnext_tiny", 64, 64, dynamo=False),
}  # fmt: skip
SETS = {"aside": ASIDE}
