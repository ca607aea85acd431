"""What TensorRT makes of one node that quantizes or dequantizes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal, get_args

from onnx import NodeProto

Verdict = Literal["refused", "altered", "reported", "undocumented", "float"]


@dataclass(frozen=True)
class Finding:
    """What TensorRT makes of one Q or DQ.

    ``verdict``: ``refused``: no engine is built; ``altered``: an engine is built that computes
    something else; ``reported``: one version, which the reason names, is known to have built no
    engine; ``undocumented``: TensorRT's documentation rules it out, the builder seen does not
    refuse it; ``float``: no pair, so that an engine computes it in float. ``fix``: what to do.
    ``imported``: whether ``placer import`` takes it out of the file.
    """

    node: str
    op: str
    tensor: str
    verdict: Verdict
    reason: str
    fix: str
    imported: bool = True

    def __str__(self) -> str:
        """Return one sentence."""
        return f"node '{self.node}' ({self.op}) on '{self.tensor}': {self.reason}; {self.fix}"


def finding(
    node: NodeProto, verdict: Verdict, reason: str, fix: str, imported: bool = True
) -> Finding:
    """What is to be said of ``node``, named with the first tensor that it reads."""
    return Finding(node.name, node.op_type, node.input[0], verdict, reason, fix, imported)


def alike(findings: Iterable[Finding]) -> Sequence[Sequence[Finding]]:
    """Findings that one change mends; the gravest first, of equal verdicts those of most nodes."""
    groups: dict[tuple[str, str], list[Finding]] = {}
    for one in findings:
        groups.setdefault((one.verdict, one.fix), []).append(one)
    verdicts = get_args(Verdict)
    return sorted(groups.values(), key=lambda ones: (verdicts.index(ones[0].verdict), -len(ones)))
