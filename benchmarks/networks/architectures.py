"""Write the archive of architectures that ``placer fit`` measures: ONNX files without weights.

    python -m benchmarks.networks.architectures

The twelve well-known networks of ``topologies.py`` and the 48 of rarer families of ``unseen.py``,
``held_out.py``, ``further.py`` and ``fresh.py``. Values of float tensors are left out, but for
short ones and those of few different values, such as masks.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from pathlib import Path
from zipfile import ZIP_DEFLATED, ZipFile, ZipInfo

import numpy as np
import onnx
from onnx import TensorProto, numpy_helper

from benchmarks.command_line import parser_of
from benchmarks.networks import fresh, further, held_out, topologies, unseen
from placer.fitting import architectures

Makers = Mapping[str, Callable[[], onnx.ModelProto]]

KNOWN: Makers = {
    "resnet18": lambda: topologies.resnet(64, (2, 2, 2, 2), bottleneck=False),
    "resnet34": lambda: topologies.resnet(96, (3, 4, 6, 3), bottleneck=False),
    "resnet50": lambda: topologies.resnet(64, (3, 4, 6, 3), bottleneck=True),
    "mobilenet_v2": lambda: topologies.mobilenet_v2(96),
    "mobilenet_v2-160": lambda: topologies.mobilenet_v2(160),
    "efficientnet_b0": lambda: topologies.efficientnet(1.0, 1.0, 96),
    "efficientnet_b1": lambda: topologies.efficientnet(1.0, 1.1, 128),
    "unet": lambda: topologies.unet(64),
    "c2f": lambda: topologies.c2f(96),
    "yolov8n": lambda: topologies.yolov8n(128),
    "yolox": lambda: topologies.yolox(128),
    "vit": lambda: topologies.vit(64, 128, 4, 2),
}
_OTHERS: Mapping[str, Makers] = {
    "unseen": unseen.UNSEEN,
    "held": held_out.HELD_OUT,
    "further": further.FURTHER,
    "fresh": fresh.FRESH,
}
_SHORT, _FEW_VALUES = 16, 4  # Tensors that keep their values.
_IN_FILE_NAMES = str.maketrans({" ": "_", ".": "_", "(": None, ")": None})


def makers() -> Makers:
    """All networks by file name, related ones beside each other."""
    others = {
        f"{name}-{kind}".translate(_IN_FILE_NAMES): make
        for kind, networks in _OTHERS.items()
        for name, make in networks.items()
    }
    both = {**KNOWN, **others}
    return {name: both[name] for name in sorted(both, key=str.lower)}


def without_weights(model: onnx.ModelProto) -> bytes:
    """``model`` without the values that the fit draws."""
    for tensor in model.graph.initializer:
        if tensor.data_type != TensorProto.FLOAT or math.prod(tensor.dims) <= _SHORT:
            continue
        if len(np.unique(numpy_helper.to_array(tensor))) > _FEW_VALUES:
            tensor.ClearField("raw_data")
            tensor.ClearField("float_data")
    return model.SerializeToString(deterministic=True)


def main() -> None:
    """Write the archive, the same bytes each time."""
    parser_of(__doc__).parse_args()
    path = Path(str(architectures.ARCHIVE))
    with ZipFile(path, "w", ZIP_DEFLATED, compresslevel=9) as archive:
        for name, make in makers().items():
            archive.writestr(ZipInfo(f"{name}.onnx"), without_weights(make()), ZIP_DEFLATED)
    print(f"{path}: {path.stat().st_size} bytes")


if __name__ == "__main__":
    main()
