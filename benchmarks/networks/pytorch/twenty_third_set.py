"""Eighteen networks of families that no earlier set holds, of which nine were read.

Chosen by what people deploy: detection, segmentation, text, pose, depth, faces, super-resolution,
denoising, speech, sound, language, recommendation, tables and series. Seed 20263013 decided before
anything was built which half is read and which of PyTorch's exporters writes each network. Random
weights. Needs spandrel besides what ``exported`` needs.

python -m benchmarks.networks.write twenty_third_set --folder networks
python -m benchmarks.plans.tensorrt_rtx --placements 3 --networks twenty_third_set --folder networks
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from random import Random

import torch
import transformers
from spandrel.architectures.Compact import Compact
from spandrel.architectures.ESRGAN import ESRGAN
from torch import nn

from benchmarks.networks.pytorch import twenty_third_set_modules as modules
from benchmarks.networks.pytorch import twenty_third_set_rows_modules as rows
from benchmarks.networks.pytorch.deployed import Outputs
from benchmarks.networks.pytorch.export import Network, image

_TOKENS = torch.arange(24)[None]


def _clap() -> nn.Module:
    config = transformers.ClapAudioConfig(
        spec_size=64, num_mel_bins=16, patch_embeds_hidden_size=32, depths=[2, 2],
        num_attention_heads=[2, 4], window_size=4, hidden_size=64, enable_fusion=False,
        patch_size=4, patch_stride=[4, 4], num_classes=10,
    )  # fmt: skip
    return Outputs(transformers.ClapAudioModel(config), lambda found: found.pooler_output)


def _smollm() -> nn.Module:
    config = transformers.SmolLM3Config(
        vocab_size=100, hidden_size=64, intermediate_size=128, num_hidden_layers=4,
        num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=64,
        pad_token_id=0, bos_token_id=1, eos_token_id=2, use_cache=False,
    )  # fmt: skip
    return Outputs(transformers.SmolLM3ForCausalLM(config), lambda found: found.logits)


def _text_detector() -> nn.Module:
    shapes: dict[str, list[object]] = {"reduce_channel": [1, 1, 0], "return_channel": [1, 1, 0]}
    for name, size in {"long": 7, "mid": 5, "short": 3}.items():
        half = size // 2
        ratio = f"{name}ratio"
        shapes[f"vertical_long_to_small_conv_{ratio}"] = [(size, 1), 1, (half, 0)]
        shapes[f"horizontal_small_to_long_conv_{ratio}"] = [(1, size), 1, (0, half)]
        shapes[f"symmetric_conv_long_{ratio}"] = [size, 1, half]
    config = transformers.PPOCRV5ServerDetConfig(
        intraclass_block_config=shapes, kernel_list=[3, 2, 2], scale_factor_list=[1, 2, 4, 8],
        neck_out_channels=64, backbone_config=transformers.HGNetV2Config(
            embedding_size=16, hidden_sizes=[32, 64, 96, 128], depths=[1, 1, 2, 1],
            stem_channels=[3, 16, 16], stage_in_channels=[16, 32, 64, 96],
            stage_mid_channels=[16, 16, 32, 32], stage_out_channels=[32, 64, 96, 128],
            stage_num_blocks=[1, 1, 2, 1], stage_numb_of_layers=[3, 3, 3, 3],
            out_features=["stage1", "stage2", "stage3", "stage4"],
        ),
    )  # fmt: skip
    model = transformers.PPOCRV5ServerDetForObjectDetection(config)
    return Outputs(model, lambda found: found.last_hidden_state)


def _pose() -> nn.Module:
    backbone = transformers.VitPoseBackboneConfig(
        image_size=[128, 96], patch_size=[16, 16], hidden_size=64, num_hidden_layers=2,
        num_attention_heads=4,
    )  # fmt: skip
    config = transformers.VitPoseConfig(backbone_config=backbone, use_simple_decoder=False)
    model = transformers.VitPoseForPoseEstimation(config)
    return Outputs(model, lambda found: found.heatmaps)


_ALL: Mapping[str, Callable[[bool], Network]] = {
    "BERT4Rec": lambda dynamo: Network(rows.Bert4Rec, (_TOKENS,), dynamo),
    "CLAP": lambda dynamo: Network(_clap, (torch.zeros(1, 1, 64, 16),), dynamo),
    "DIN": lambda dynamo: Network(
        rows.InterestNetwork, (torch.zeros(8, 4).long(), torch.zeros(8, 20, 2).long()), dynamo
    ),
    "ECAPA-TDNN": lambda dynamo: Network(rows.EcapaTdnn, (torch.zeros(1, 80, 100),), dynamo),
    "ESRGAN": lambda dynamo: Network(
        lambda: ESRGAN(num_filters=32, num_blocks=2, scale=4), image(24), dynamo
    ),
    "FastDepth": lambda dynamo: Network(modules.FastDepth, image(128), dynamo),
    "FastPitch": lambda dynamo: Network(rows.FastPitch, (_TOKENS,), dynamo),
    "MobileFaceNet": lambda dynamo: Network(modules.MobileFaceNet, image(112), dynamo),
    "NanoDet-Plus": lambda dynamo: Network(modules.NanoDet, image(128), dynamo),
    "PP-OCRv5 server": lambda dynamo: Network(_text_detector, image(128), dynamo),
    "Restormer": lambda dynamo: Network(modules.Restormer, image(32), dynamo),
    "SRVGG": lambda dynamo: Network(lambda: Compact(num_feat=32, num_conv=6), image(32), dynamo),
    "SegNeXt": lambda dynamo: Network(modules.SegNext, image(128), dynamo),
    "SmolLM3": lambda dynamo: Network(_smollm, (_TOKENS,), dynamo),
    "TabNet": lambda dynamo: Network(rows.TabNet, (torch.zeros(16, 24),), dynamo),
    "ViTPose": lambda dynamo: Network(_pose, (torch.zeros(1, 3, 128, 96),), dynamo),
    "YAMNet": lambda dynamo: Network(modules.YamNet, (torch.zeros(1, 1, 96, 64),), dynamo),
    "iTransformer": lambda dynamo: Network(
        rows.InvertedTransformer, (torch.zeros(1, 96, 21),), dynamo
    ),
}


def _drawn() -> tuple[Mapping[str, Network], Mapping[str, Network]]:
    draw, read, aside = Random(20263013), dict[str, Network](), dict[str, Network]()
    for number, name in enumerate(draw.sample(sorted(_ALL), len(_ALL))):
        dynamo = draw.random() < 0.5
        (read if number % 2 else aside)[name] = _ALL[name](dynamo)
    return read, aside


READ, ASIDE = _drawn()
SETS = {"read": READ, "aside": ASIDE}
