"""Pairs of networks of timm for TensorRT-RTX: of each pair one may be read, by lot, the other not.

Needs what ``exported`` needs. Weights are random; inputs are small. Of those set aside
only figures are read, so they say what to expect of a network that nothing was fitted to.

python -m benchmarks.plans.tensorrt_rtx --networks exported_pairs --folder networks --placements 0
"""

from __future__ import annotations

from collections.abc import Mapping
from random import Random

from benchmarks.networks.pytorch.export import Network, timm_network

SEED = 17
_DAVIT = {"depths": (1, 1, 1, 1), "embed_dims": (32, 64, 96, 128), "num_heads": (2, 4, 6, 8)}
_SMALL = {"img_size": 64}
Named = tuple[str, Network]
PAIRS: tuple[tuple[Named, Named], ...] = (
    (
        ("MobileNetV3-small", timm_network("mobilenetv3_small_075", 64, dynamo=False)),
        ("TinyNet", timm_network("tinynet_e", 64, dynamo=False)),
    ),
    (
        ("PoolFormerV2", timm_network("poolformerv2_s12", 64, dynamo=True)),
        ("InceptionNeXt", timm_network("inception_next_atto", 64, dynamo=True)),
    ),
    (
        ("PiT", timm_network("pit_ti_224", 64, dynamo=False, **_SMALL)),
        ("CaiT", timm_network("cait_xxs24_224", 64, dynamo=False, depth=3, **_SMALL)),
    ),
    (
        ("CoaT", timm_network("coat_lite_tiny", 64, dynamo=True, **_SMALL)),
        ("DaViT", timm_network("davit_tiny", 64, dynamo=True, **_DAVIT)),
    ),
    (
        ("SKNet", timm_network("skresnet18", 64, dynamo=False)),
        ("ResNet with SE", timm_network("seresnet18", 64, dynamo=False)),
    ),
    (
        ("MixNet", timm_network("mixnet_s", 64, dynamo=True)),
        ("HardCoRe-NAS", timm_network("hardcorenas_a", 64, dynamo=True)),
    ),
    (
        ("DPN", timm_network("dpn48b", 64, dynamo=False)),
        ("SelecSLS", timm_network("selecsls42b", 64, dynamo=False)),
    ),
    (
        ("RepVGG-A0", timm_network("repvgg_a0", 64, dynamo=True)),
        ("RepGhost", timm_network("repghostnet_050", 64, dynamo=True)),
    ),
    (
        ("NextViT", timm_network("nextvit_small", 64, dynamo=False)),
        ("TinyViT", timm_network("tiny_vit_5m_224", 224, dynamo=False)),
    ),
    (
        ("NF-ResNet", timm_network("nf_resnet26", 64, dynamo=True)),
        ("GCNet", timm_network("gcresnext26ts", 64, dynamo=True)),
    ),
    (
        ("ResMLP", timm_network("resmlp_12_224", 64, dynamo=False, **_SMALL)),
        ("MLP-Mixer", timm_network("mixer_s32_224", 64, dynamo=False, **_SMALL)),
    ),
    (
        ("CoAtNet", timm_network("coatnet_pico_rw_224", 64, dynamo=True, **_SMALL)),
        ("MobileViT", timm_network("mobilevit_xxs", 64, dynamo=True)),
    ),
    (
        ("FocalNet", timm_network("focalnet_tiny_srf", 64, dynamo=False)),
        ("ConvNeXtV2", timm_network("convnextv2_atto", 64, dynamo=False)),
    ),
)


def drawn(pairs: tuple[tuple[Named, Named], ...], seed: int) -> Mapping[str, Mapping[str, Network]]:
    """The networks to be read and those aside, by name."""
    lot = Random(seed)
    found: dict[str, dict[str, Network]] = {"read": {}, "aside": {}}
    for pair in pairs:
        read = lot.randrange(2)
        found["read"].update([pair[read]])
        found["aside"].update([pair[1 - read]])
    return found


SETS = drawn(PAIRS, SEED)
