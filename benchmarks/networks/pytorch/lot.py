"""Twenty-four networks of timm in pairs of a kind, none of another benchmark: one of each was read.

Needs what ``exported`` needs. Weights are random; depths and inputs are small. Which of a
pair is ``READ`` was drawn by lot before anything was measured; of ``ASIDE`` only figures are read.

python -m benchmarks.plans.openvino --networks lot --folder networks --placements 6
"""

from __future__ import annotations

from collections.abc import Mapping

from benchmarks.networks.pytorch.export import Network, drawn_by_lot, timm_network

_SMALL = {"img_size": 64}
_SHALLOW = {"img_size": 64, "depth": 3}
_SWIN = {**_SMALL, "depths": (1, 2), "embed_dim": 48, "num_heads": (2, 4), "window_size": 8}
PAIRS: tuple[Mapping[str, Network], ...] = (
    {
        "TNT": timm_network("tnt_s_patch16_224", 64, dynamo=False, **_SHALLOW),
        "CrossViT": timm_network("crossvit_tiny_240", 240, dynamo=True),
    },
    {
        "EfficientFormerV2": timm_network("efficientformerv2_s0", 64, dynamo=True, **_SMALL),
        "SwiftFormer": timm_network("swiftformer_xs", 64, dynamo=False),
    },
    {
        "EfficientViT-M": timm_network("efficientvit_m0", 64, dynamo=False, **_SMALL),
        "LeViT": timm_network("levit_128s", 64, dynamo=True, **_SMALL),
    },
    {
        "GCViT": timm_network("gcvit_xxtiny", 64, dynamo=True, **_SMALL),
        "SwinV2": timm_network("swinv2_tiny_window8_256", 64, dynamo=False, **_SWIN),
    },
    {
        "Hiera": timm_network("hiera_tiny_224", 64, dynamo=False, **_SMALL),
        "MViTv2": timm_network("mvitv2_tiny", 64, dynamo=True, **_SMALL),
    },
    {
        "MambaOut": timm_network("mambaout_femto", 64, dynamo=True),
        "iFormer": timm_network("iformer_t", 64, dynamo=False),
    },
    {
        "Visformer": timm_network("visformer_tiny", 64, dynamo=False, **_SMALL),
        "BoTNet": timm_network("botnet26t_256", 64, dynamo=True, **_SMALL),
    },
    {
        "ViT (relative)": timm_network(
            "vit_relpos_small_patch16_224", 64, dynamo=False, **_SHALLOW
        ),
        "EVA-02": timm_network("eva02_tiny_patch14_224", 56, dynamo=True, img_size=56, depth=3),
    },
    {
        "DeiT III": timm_network("deit3_small_patch16_224", 64, dynamo=False, **_SHALLOW),
        "ConViT": timm_network("convit_tiny", 64, dynamo=True, **_SHALLOW),
    },
    {
        "EfficientNetV2": timm_network("tf_efficientnetv2_b0", 64, dynamo=True),
        "FBNet-C": timm_network("fbnetc_100", 64, dynamo=False),
    },
    {
        "DenseNet121": timm_network("densenet121", 64, dynamo=False),
        "RDNet": timm_network("rdnet_tiny", 64, dynamo=True),
    },
    {
        "LowFormer": timm_network("lowformer_b0", 64, dynamo=False),
        "EfficientViM": timm_network("efficientvim_m1", 64, dynamo=True),
    },
)
READ, ASIDE = drawn_by_lot(PAIRS, seed=20261123)
SETS = {"read": READ, "aside": ASIDE}
