"""Networks of timm drawn by seed, at most two of each of its modules, with an open batch.

Figures of the first part were seen while it was decided how defaults are found, of the second
only afterwards; nobody read layers of either. Random weights; left out are large variants by name,
networks of more than 32 million weights and what the older exporter does not write in two minutes.

python -m benchmarks.networks.write tensorrt_set --folder networks
python -m benchmarks.times.tensorrt_defaults --folder networks
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from benchmarks.networks.pytorch.export import Network, timm_network


def _network(name: str, size: int) -> Network:
    return replace(timm_network(name, size, dynamo=False, num_classes=1000), open_batch=True)


SEEN: Mapping[str, Network] = {
    "coat_tiny": _network("coat_tiny", 224),
    "convit_small": _network("convit_small", 224),
    "convnext_pico_ols": _network("convnext_pico_ols", 224),
    "dla60_res2next": _network("dla60_res2next", 224),
    "edgenext_x_small": _network("edgenext_x_small", 256),
    "efficientvit_b2": _network("efficientvit_b2", 224),
    "fasternet_t2": _network("fasternet_t2", 224),
    "focalnet_tiny_srf": _network("focalnet_tiny_srf", 224),
    "hgnet_tiny": _network("hgnet_tiny", 224),
    "inception_next_tiny": _network("inception_next_tiny", 224),
    "mobilenetv3_small_050": _network("mobilenetv3_small_050", 224),
    "repvit_m3": _network("repvit_m3", 224),
    "res2net50_48w_2s": _network("res2net50_48w_2s", 224),
    "rexnet_130": _network("rexnet_130", 224),
    "sequencer2d_s": _network("sequencer2d_s", 224),
    "shvit_s2": _network("shvit_s2", 224),
    "skresnet34": _network("skresnet34", 224),
    "swin_tiny_patch4_window7_224": _network("swin_tiny_patch4_window7_224", 224),
    "tf_efficientnet_es": _network("tf_efficientnet_es", 224),
    "tiny_vit_21m_224": _network("tiny_vit_21m_224", 224),
    "vitamin_small_224": _network("vitamin_small_224", 224),
}
ASIDE: Mapping[str, Network] = {
    "cait_xxs24_224": _network("cait_xxs24_224", 224),
    "coat_mini": _network("coat_mini", 224),
    "coatnet_rmlp_0_rw_224": _network("coatnet_rmlp_0_rw_224", 224),
    "cpubone_b1_dwnorm": _network("cpubone_b1_dwnorm", 256),
    "crossvit_15_dagger_240": _network("crossvit_15_dagger_240", 240),
    "densenet169": _network("densenet169", 224),
    "dla60_res2net": _network("dla60_res2net", 224),
    "edgenext_xx_small": _network("edgenext_xx_small", 256),
    "efficientformerv2_s1": _network("efficientformerv2_s1", 224),
    "efficientnet_b0_gn": _network("efficientnet_b0_gn", 224),
    "efficientvit_b1": _network("efficientvit_b1", 224),
    "gcvit_xxtiny": _network("gcvit_xxtiny", 224),
    "pvt_v2_b0": _network("pvt_v2_b0", 224),
    "repghostnet_080": _network("repghostnet_080", 224),
    "res2net50_14w_8s": _network("res2net50_14w_8s", 224),
    "resnetv2_34d": _network("resnetv2_34d", 224),
    "vit_tiny_r_s16_p8_224": _network("vit_tiny_r_s16_p8_224", 224),
    "xcit_nano_12_p8_224": _network("xcit_nano_12_p8_224", 224),
}
SETS = {"seen": SEEN, "aside": ASIDE}
