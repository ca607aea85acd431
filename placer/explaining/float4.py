"""What an explanation says of FP4 pairs on a GPU without tensor cores for them."""

from __future__ import annotations

from placer.prediction.times.devices import Device
from placer.prediction.times.gpus import Gpu

# NVIDIA's builder takes FP4 for it and not for 8.9: tests/model/test_tensorrt_types.py. Compute
# capability 9.0 (H100) has no FP4 either.
_FIRST = 10.0


def float4_sentence(device: Device | None) -> str:
    """A sentence on a GPU for which no engine with FP4 is built; empty for others."""
    if not isinstance(device, Gpu) or float(device.compute_capability) >= _FIRST:
        return ""
    return (
        f"{device.name} (compute capability {device.compute_capability}) has no FP4 tensor cores, "
        "and TensorRT builds no engine with FP4 for it: use FP8 or INT8, or a GPU of compute "
        "capability 10.0 or later"
    )
