"""Networks of families that no earlier set has, drawn at random, of which only figures were read.

One to four of each of six lists (timm, torchvision, texts and images of transformers, diffusers,
ultralytics), in the order drawn (seed 20261129), without those that no exporter of PyTorch
writes. Random weights.

python -m benchmarks.networks.write eleventh_set --folder networks
python -m benchmarks.plans.tensorrt_rtx --placements 0 --networks eleventh_set --folder networks
"""

from __future__ import annotations

from collections.abc import Mapping

import diffusers
import torch
from torch import Tensor, nn
from ultralytics.nn.tasks import DetectionModel

from benchmarks.networks.pytorch.deployed import hidden, torchvision_network, words, yolo
from benchmarks.networks.pytorch.export import Network, timm_network

_IMAGE = (torch.zeros(1, 3, 64, 64),)
_STEP = torch.tensor([0.7])
_VISION = {
    "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 128,
    "image_size": 64, "patch_size": 16,
}  # fmt: skip


class _Flux(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.whole = diffusers.FluxTransformer2DModel(
            patch_size=1, in_channels=16, num_layers=1, num_single_layers=1,
            attention_head_dim=16, num_attention_heads=4, joint_attention_dim=48,
            pooled_projection_dim=32, axes_dims_rope=(4, 4, 8),
        )  # fmt: skip

    def forward(self, latent: Tensor, words: Tensor, pooled: Tensor, step: Tensor) -> Tensor:
        """The flow of 4x4 pieces."""
        pieces, written = torch.zeros(16, 3), torch.zeros(8, 3)
        pieces[:, 1], pieces[:, 2] = torch.arange(16) // 4, torch.arange(16) % 4
        return self.whole(
            latent, words, pooled, step, img_ids=pieces, txt_ids=written, return_dict=False
        )[0]  # fmt: skip


class _Prior(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.whole = diffusers.PriorTransformer(
            num_attention_heads=4, attention_head_dim=16, num_layers=2, embedding_dim=48,
            num_embeddings=8, additional_embeddings=4,
        )  # fmt: skip

    def forward(self, image: Tensor, step: Tensor, pooled: Tensor, words: Tensor) -> Tensor:
        """The embedding of an image."""
        return self.whole(image, step, pooled, words, return_dict=False)[0]


class _UViT(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.whole = diffusers.UVit2DModel(
            hidden_size=64, cond_embed_dim=48, micro_cond_encode_dim=16, micro_cond_embed_dim=80,
            encoder_hidden_size=48, vocab_size=64, codebook_size=48, in_channels=32,
            block_out_channels=32, num_res_blocks=1, block_num_heads=4, num_hidden_layers=2,
            num_attention_heads=4, intermediate_size=128, sample_size=8,
        )  # fmt: skip

    def forward(self, codes: Tensor, words: Tensor, pooled: Tensor, sizes: Tensor) -> Tensor:
        """Scores of the codes."""
        return self.whole(codes, words, pooled, sizes)


ASIDE: Mapping[str, Network] = {
    "EfficientNetV2 (timm)": timm_network("efficientnetv2_rw_t", 64, dynamo=True),
    "EfficientNet-B1": torchvision_network("efficientnet_b1", 64, 64, dynamo=False),
    "MC3": torchvision_network("mc3_18", 4, 48, 48, dynamo=True),
    "LFM 2": words("Lfm2:ForCausalLM", "logits", False, num_key_value_heads=2,
                   layer_types=["conv", "full_attention"]),
    "Seed-OSS": words("SeedOss:ForCausalLM", "logits", True, num_key_value_heads=2, head_dim=16),
    "GLM 4": words("Glm4:ForCausalLM", "logits", True, num_key_value_heads=2, head_dim=16,
                   pad_token_id=0),
    "DeiT": hidden("DeiT:Model", _IMAGE, True, **_VISION),
    "MLCD": hidden("MLCDVision:Model", _IMAGE, False, **_VISION),
    "OWLv2": hidden("Owlv2Vision:Model", _IMAGE, False, **_VISION),
    "FLUX": Network.of(
        _Flux, torch.zeros(1, 16, 16), torch.zeros(1, 8, 48), torch.zeros(1, 32), _STEP,
        dynamo=True,
    ),
    "Prior of images": Network.of(
        _Prior, torch.zeros(1, 48), _STEP, torch.zeros(1, 48), torch.zeros(1, 8, 48)
    ),
    "U-ViT": Network.of(
        _UViT, torch.zeros(1, 8, 8, dtype=torch.int64), torch.zeros(1, 8, 48),
        torch.zeros(1, 48), torch.zeros(1, 5),
    ),
    "YOLO26": yolo(DetectionModel, "yolo26n.yaml", 128, dynamo=False),
    "YOLOv8 (small objects)": yolo(DetectionModel, "yolov8n-p2.yaml", 128, dynamo=True),
}  # fmt: skip
SETS = {"aside": ASIDE}
