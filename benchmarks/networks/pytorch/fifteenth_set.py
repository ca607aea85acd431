"""Networks of families that no earlier set has, drawn at random, of which only figures were read.

One of each of fourteen lists of three or four (detectors, segmenters of
segmentation_models_pytorch, fast segmenters, trackers, depth, poses, faces, texts in images,
speech, super-resolution, timm, texts, dense networks of transformers, actions), drawn with seed
20261515 before anything was measured; timm's was a MixNet, which earlier sets have, and is left
out. Random weights.

python -m benchmarks.networks.write fifteenth_set --folder networks
python -m benchmarks.plans.tensorrt_rtx --placements 1 --networks fifteenth_set --folder networks
"""

from __future__ import annotations

from collections.abc import Mapping

import segmentation_models_pytorch
import torch
import transformers
from torch import Tensor, nn

from benchmarks.networks.pytorch.export import Network, image
from benchmarks.networks.pytorch.fifteenth_set_modules import (
    Carn,
    Citrinet,
    DdrNet,
    LiteMono,
    OsTrack,
    Parseq,
    PpYoloe,
    SimpleBaseline,
    X3d,
    YuNet,
)


class _Masks(nn.Module):
    """CLIPSeg's masks of an image for embedded texts."""

    def __init__(self) -> None:
        super().__init__()
        text = {
            "vocab_size": 100, "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4,
            "intermediate_size": 128, "max_position_embeddings": 16,
        }  # fmt: skip
        vision = {**text, "image_size": 64, "patch_size": 16, "num_hidden_layers": 3}
        config = transformers.CLIPSegConfig(
            text_config=text, vision_config=vision, projection_dim=64, reduce_dim=32,
            extract_layers=[0, 1, 2], decoder_num_attention_heads=4, decoder_intermediate_size=128,
            conditional_layer=0, attn_implementation="eager",
        )  # fmt: skip
        self.whole = transformers.CLIPSegForImageSegmentation(config)

    def forward(self, image: Tensor, embedding: Tensor) -> Tensor:
        """Logits (N, H, W) of images (N, 3, H, W) and texts (N, 64)."""
        found = self.whole(pixel_values=image, conditional_embeddings=embedding, return_dict=True)
        return found.logits


class _Landmarks(nn.Module):
    """Nyströmformer's encoder of words without padding, whose mask its landmarks do not take."""

    def __init__(self) -> None:
        super().__init__()
        config = transformers.NystromformerConfig(
            vocab_size=100, hidden_size=64, num_hidden_layers=2, num_attention_heads=4,
            intermediate_size=128, max_position_embeddings=64, num_landmarks=8,
            segment_means_seq_len=24,
        )  # fmt: skip
        self.whole = transformers.NystromformerModel(config)

    def forward(self, words: Tensor) -> Tensor:
        """(N, words, 64) of (N, words)."""
        return self.whole.encoder(self.whole.embeddings(input_ids=words)).last_hidden_state


def _manet() -> nn.Module:
    return segmentation_models_pytorch.MAnet(
        "resnet18", encoder_weights=None, classes=5, decoder_pab_channels=32
    )


ASIDE: Mapping[str, Network] = {
    "PP-YOLOE": Network(PpYoloe, image(128), dynamo=False),
    "MAnet": Network(_manet, image(64), dynamo=True),
    "DDRNet": Network(DdrNet, image(128), dynamo=False),
    "OSTrack": Network(
        OsTrack, (torch.zeros(1, 3, 64, 64), torch.zeros(1, 3, 128, 128)), dynamo=True
    ),
    "Lite-Mono": Network(LiteMono, image(64), dynamo=False),
    "SimpleBaseline": Network(SimpleBaseline, image(64), dynamo=True),
    "YuNet": Network(YuNet, image(128), dynamo=False),
    "PARSeq": Network(Parseq, (torch.zeros(1, 3, 32, 128),), dynamo=True),
    "Citrinet": Network(Citrinet, (torch.zeros(1, 40, 128),), dynamo=False),
    "CARN": Network(Carn, image(48), dynamo=True),
    "Nyströmformer": Network(_Landmarks, (torch.zeros(1, 24, dtype=torch.int64),), dynamo=False),
    "CLIPSeg": Network(_Masks, (torch.zeros(1, 3, 64, 64), torch.zeros(1, 64)), dynamo=False),
    "X3D": Network(X3d, (torch.zeros(1, 3, 4, 64, 64),), dynamo=True),
}
SETS = {"aside": ASIDE}
