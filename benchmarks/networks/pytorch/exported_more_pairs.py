r"""Twenty more pairs of networks of timm for TensorRT-RTX, of each of which one may be read.

They are drawn by lot and written as those of ``exported_pairs`` are; of the ones aside only figures
are read. NVIDIA's builder refuses VOLO (Col2Im).

python -m benchmarks.plans.tensorrt_rtx --networks exported_more_pairs --folder networks \
    --placements 0
"""

from __future__ import annotations

from benchmarks.networks.pytorch.export import timm_network
from benchmarks.networks.pytorch.exported_pairs import Named, drawn

SEED = 20261124
_SMALL = {"img_size": 64}
PAIRS: tuple[tuple[Named, Named], ...] = (
    (
        ("EfficientNetV2", timm_network("tf_efficientnetv2_b0", 64, dynamo=False)),
        ("EfficientNet-Lite", timm_network("efficientnet_lite0", 64, dynamo=True)),
    ),
    (
        ("FBNet", timm_network("fbnetc_100", 64, dynamo=True)),
        ("LCNet", timm_network("lcnet_050", 64, dynamo=False)),
    ),
    (
        ("ResNeXt-T", timm_network("resnext26ts", 64, dynamo=False)),
        ("SE-ResNet-D", timm_network("seresnext26d_32x4d", 64, dynamo=True)),
    ),
    (
        ("ECA-ResNet-T", timm_network("ecaresnet26t", 64, dynamo=True)),
        ("ResNet-AA", timm_network("resnetaa34d", 64, dynamo=False)),
    ),
    (
        ("Visformer", timm_network("visformer_tiny", 64, dynamo=False, **_SMALL)),
        ("ConViT", timm_network("convit_tiny", 64, dynamo=False, img_size=64, depth=4)),
    ),
    (
        ("DeiT3", timm_network("deit3_small_patch16_224", 64, dynamo=True, img_size=64, depth=3)),
        ("EVA-02", timm_network("eva02_tiny_patch14_224", 56, dynamo=True, img_size=56, depth=3)),
    ),
    (
        ("EfficientFormerV2", timm_network("efficientformerv2_s0", 224, dynamo=True)),
        ("SwiftFormer", timm_network("swiftformer_xs", 64, dynamo=True)),
    ),
    (
        ("CAFormer", timm_network("caformer_s18", 64, dynamo=True)),
        ("ConvFormer", timm_network("convformer_s18", 64, dynamo=False)),
    ),
    (
        ("NesT", timm_network("nest_tiny", 64, dynamo=False, **_SMALL)),
        (
            "SwinV2",
            timm_network(
                "swinv2_tiny_window8_256",
                64,
                dynamo=False,
                img_size=64,
                depths=(1, 1, 2),
                window_size=4,
                num_heads=(3, 6, 12),
                embed_dim=48,
            ),
        ),
    ),
    (
        ("VOLO", timm_network("volo_d1_224", 64, dynamo=True, **_SMALL)),
        ("CrossViT", timm_network("crossvit_tiny_240", 240, dynamo=False)),
    ),
    (
        (
            "Sequencer",
            timm_network("sequencer2d_s", 64, dynamo=False, img_size=64, layers=(1, 1, 1, 1)),
        ),
        ("ConvMixer", timm_network("convmixer_768_32", 64, dynamo=False)),
    ),
    (
        ("HaloNet", timm_network("halonet26t", 256, dynamo=True)),
        ("BoTNet", timm_network("botnet26t_256", 64, dynamo=False, **_SMALL)),
    ),
    (
        ("MViTv2", timm_network("mvitv2_tiny", 64, dynamo=False, **_SMALL)),
        (
            "Hiera",
            timm_network("hiera_tiny_224", 64, dynamo=False, img_size=64, stages=(1, 1, 1, 1)),
        ),
    ),
    (
        ("GC ViT", timm_network("gcvit_xxtiny", 224, dynamo=False)),
        ("MambaOut", timm_network("mambaout_femto", 64, dynamo=True, depths=(1, 1, 1, 1))),
    ),
    (
        ("RDNet", timm_network("rdnet_tiny", 64, dynamo=True)),
        ("DenseNet-121", timm_network("densenet121", 64, dynamo=False)),
    ),
    (
        ("Inception-v4", timm_network("inception_v4", 96, dynamo=False)),
        ("Xception41", timm_network("xception41", 64, dynamo=True)),
    ),
    (
        ("Darknet53", timm_network("darknet53", 64, dynamo=True)),
        ("CSP-ResNet", timm_network("cspresnet50", 64, dynamo=False)),
    ),
    (
        ("GENet", timm_network("gernet_s", 64, dynamo=False)),
        ("TResNet", timm_network("tresnet_m", 64, dynamo=False)),
    ),
    (
        ("ResNetV2", timm_network("resnetv2_18", 64, dynamo=True)),
        ("VoVNet39", timm_network("ese_vovnet39b", 64, dynamo=True)),
    ),
    (
        ("SK-ResNeXt", timm_network("skresnext50_32x4d", 64, dynamo=True)),
        ("Res2NeXt", timm_network("res2next50", 64, dynamo=False)),
    ),
)
SETS = drawn(PAIRS, SEED)
