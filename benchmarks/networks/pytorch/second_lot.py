"""Twenty-four more networks of timm in pairs: one of each, drawn by lot, was set aside.

No set that OpenVINO's plans were compared on before has these models of timm. Sixteen are in
``exported_aside`` and ``exported_*pairs``, often exported otherwise, which are for TensorRT-RTX.
The lot was drawn before anything was measured, and ``read`` may be read.

python -m benchmarks.plans.openvino --networks second_lot --folder networks --placements 3
"""

from __future__ import annotations

from collections.abc import Mapping

from benchmarks.networks.pytorch.export import Network, drawn_by_lot, timm_network

_SMALL = {"img_size": 64}
_SHALLOW = {"img_size": 64, "depth": 3}
PAIRS: tuple[Mapping[str, Network], ...] = (
    {
        "gMixer": timm_network("gmixer_12_224", 64, dynamo=False, **_SMALL),
        "ResMLP (timm)": timm_network("resmlp_12_224", 64, dynamo=True, **_SMALL),
    },
    {
        "Next-ViT": timm_network("nextvit_small", 64, dynamo=True),
        "MobileNetV4 (hybrid)": timm_network("mobilenetv4_hybrid_medium", 64, dynamo=False),
    },
    {
        "HGNetV2": timm_network("hgnetv2_b0", 64, dynamo=False),
        "StarNet": timm_network("starnet_s1", 64, dynamo=True),
    },
    {
        "FasterNet": timm_network("fasternet_t0", 64, dynamo=True),
        "InceptionNeXt": timm_network("inception_next_atto", 64, dynamo=False),
    },
    {
        "Twins-SVT": timm_network("twins_svt_small", 64, dynamo=False, **_SMALL),
        "PiT": timm_network("pit_ti_224", 64, dynamo=True, **_SMALL),
    },
    {
        "EfficientViT-B": timm_network("efficientvit_b0", 64, dynamo=False),
        "SHViT": timm_network("shvit_s1", 64, dynamo=True),
    },
    {
        "NesT": timm_network("nest_tiny", 64, dynamo=False, **_SMALL),
        "CoaT-Lite": timm_network("coat_lite_tiny", 64, dynamo=False, **_SMALL),
    },
    {
        "RegNetZ": timm_network("regnetz_b16", 64, dynamo=True),
        "ResNeSt": timm_network("resnest14d", 64, dynamo=False),
    },
    {
        "ViTamin": timm_network("vitamin_small_224", 64, dynamo=True, **_SMALL),
        "Sequencer": timm_network("sequencer2d_s", 64, dynamo=False, **_SMALL),
    },
    {
        "LambdaNet": timm_network("lambda_resnet26t", 64, dynamo=True),
        "GC-ResNeXt": timm_network("gcresnext26ts", 64, dynamo=False),
    },
    {
        "DLA": timm_network("dla34", 64, dynamo=False),
        "Inception v3": timm_network("inception_v3", 96, dynamo=True),
    },
    {
        "ConvNeXtV2": timm_network("convnextv2_atto", 64, dynamo=False),
        "FlexiViT": timm_network("flexivit_small", 64, dynamo=True, **_SHALLOW),
    },
)

READ, ASIDE = drawn_by_lot(PAIRS, seed=20261124)
SETS = {"read": READ, "aside": ASIDE}
