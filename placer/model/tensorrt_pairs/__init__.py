"""Which Q/DQ pairs TensorRT's parser refuses or reads differently, and why, without TensorRT.

Each reason was seen on NVIDIA's builder (TensorRT-RTX 1.7) or is documented in NvInfer.h 11; the
tests hold them against that builder.
"""

from __future__ import annotations

from placer.model.tensorrt_pairs.check import check_pairs, infinite_scales, misplaced_scales
from placer.model.tensorrt_pairs.finding import Finding, alike
from placer.model.tensorrt_pairs.older_tensorrt import moved_by_identities, refused_by_tensorrt_8
from placer.model.tensorrt_pairs.repeated_names import repeated_names

__all__ = [
    "Finding",
    "alike",
    "check_pairs",
    "infinite_scales",
    "misplaced_scales",
    "moved_by_identities",
    "refused_by_tensorrt_8",
    "repeated_names",
]
