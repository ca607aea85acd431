"""Of which generation NVIDIA's GPUs are by their names: also those that placer does not describe.

Compute capabilities: https://developer.nvidia.com/cuda-gpus and its list of legacy GPUs. What the
generations before Turing make of INT8: TensorRT's support matrices, 8.0 to 10.1.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType


@dataclass(frozen=True)
class Generation:
    """GPUs of one compute capability.

    ``names``: matches how such a name begins, in lower case, without brands and separators.
    ``has_tensor_cores``: whether they have those that others of this capability have.
    """

    name: str
    compute_capability: str
    names: str
    has_tensor_cores: bool = True


# What names of one chip end with.
_ENDINGS = (
    r"(ti|super|d|dv2|laptop|mobile|(with)?maxq(design)?|gpu|pcie|sxm\d?|nvl|active|hbm\de?|\d+gb?"
    r"|generation|workstation|server|edition)*"
)
_GENERATIONS = (
    Generation("Maxwell", "5.2", "(gtx)?9[5-8]0|gtxtitanx|m4|m6|m40|m60|m[2456]000"),
    Generation("Maxwell", "5.3", "(jetson)?nano|(jetson)?tx1"),
    Generation("Pascal", "6.0", "p100"),
    Generation("Pascal", "6.1", "(gtx)?10[5-8]0|titanx(p|pascal)?|p4|p40|p6|p[1-6]000"),
    Generation("Pascal", "6.2", "(jetson)?tx2(nx)?"),
    Generation("Volta", "7.0", "volta|v100s?|titanv|gv100"),
    Generation("Volta", "7.2", "(jetson)?(agx)?xavier(nx)?"),
    Generation(
        "Turing",
        "7.5",
        "(gtx)?16[356]0|t[4-6]00|t[45]50|t1[02]00|t2000|mx[45]50",
        has_tensor_cores=False,
    ),
    Generation(
        "Turing",
        "7.5",
        "turing|(rtx)?20[5-8]0|titanrtx|rtx[34568]000|t4g?",
    ),
    Generation("Ampere", "8.0", "a100|a30|a800"),
    Generation("Ampere", "8.6", "(rtx)?30[5-9]0|a2|a10g?|a16|a40|(rtx)?a([45]00|1000|[2-6][05]00)"),
    Generation("Ampere", "8.7", "(jetson)?(agx)?orin(agx|nx|nano)?"),
    Generation(
        "Ada",
        "8.9",
        "ada|(rtx)?40[5-9]0|l4|l20|l40[gs]?|(rtx)?(500|[1-6][05]00|5880)(sff)?ada",
    ),
    Generation("Hopper", "9.0", "(grace)?hopper|g?h100|g?h200|h20|h800"),
    Generation("Blackwell", "10.0", "g?b[12]00"),
    Generation("Blackwell", "10.3", "g?b300"),
    Generation("Blackwell", "11.0", "(jetson)?(agx)?thor|t[45]000"),
    Generation("Blackwell", "12.0", "(rtx)?50[5-9]0|rtxpro(500|[1-6][05]00)(blackwell)?(sff)?"),
    Generation("Blackwell", "12.1", "gb10|dgxspark"),
)
_NO_INT8 = "it has no INT8, so TensorRT builds nothing that has Q/DQ pairs for it"
# What is said of INT8 before Turing, whose tensor cores were the first to take it.
_BEFORE_TURING: Mapping[str, str] = MappingProxyType(
    {
        "5.2": _NO_INT8,
        "5.3": _NO_INT8,
        "6.0": _NO_INT8,
        "6.1": "it has no tensor cores, and TensorRT from 10 on does not build for it",
        "6.2": _NO_INT8,
        "7.0": "its tensor cores take FP16 and no INT8, so Q/DQ pairs are no gain there",
    }
)


def generation_of(gpu: str) -> Generation | None:
    """That of a GPU called ``gpu``, e.g. ``NVIDIA GeForce RTX 2080 Ti``; None if it is not known.

    A compute capability, e.g. ``sm70``, is one too.
    """
    plain = plain_name(gpu)
    for one in _GENERATIONS:
        is_named = re.fullmatch(f"({one.names}){_ENDINGS}", plain) is not None
        if is_named or (one.has_tensor_cores and plain == _architecture(one)):
            return one
    return None


def _architecture(one: Generation) -> str:
    return "sm" + one.compute_capability.replace(".", "")


def plain_name(gpu: str) -> str:
    """``gpu`` without case, separators and the brands that shops add."""
    letters = re.sub(r"[^a-z0-9]", "", gpu.lower())
    return re.sub("nvidia|geforce|tesla|quadro", "", letters)


def without_int8(generation: Generation) -> str:
    """Why Q/DQ pairs are of no use on a GPU of ``generation``; empty if they are."""
    return _BEFORE_TURING.get(generation.compute_capability, "")
