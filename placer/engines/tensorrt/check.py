"""Whether TensorRT takes a model: its Q/DQ pairs, and what NVIDIA's builder makes of it."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from os import PathLike
from pathlib import Path
from typing import Any

from onnx import ModelProto

from placer.common.files import check_utf8, write_text
from placer.common.shapes import GivenShape, given_ranges
from placer.engines.tensorrt.build import BuildReport, check_gpu
from placer.engines.tensorrt.calibration_table import tables_beside
from placer.engines.tensorrt.offline_builder import check_file, import_builder
from placer.errors import InputError
from placer.graph.edit import all_tensors, every_node
from placer.graph.external_data import check_tensors, data_folder, is_external
from placer.graph.operators import PAIR_OPS
from placer.model import load_unquantized
from placer.model.load import inline_pairs
from placer.model.named_dimensions import with_named_dimensions
from placer.model.quantized import is_quantized
from placer.model.tensorrt_pairs import (
    Finding,
    alike,
    check_pairs,
    moved_by_identities,
    refused_by_tensorrt_8,
    repeated_names,
)
from placer.model.validate import read_model
from placer.plan import Plan
from placer.plan.json_format import plan_json
from placer.plan.readers.rtx_log import typed_layers
from placer.prediction.times.gpus import architecture_of
from placer.qdq.origin import named_pack
from placer.rules.packaging.load import is_builtin, load_pack

_UNEQUAL = re.compile(r"\((.+): Input dimensions with this name have different")
# How TensorRT calls dimensions that the file calls `-1`, with the axis behind.
_NUMBERED = "trt_dynamic_dim_"


@dataclass(frozen=True)
class CheckReport:
    """Pairs that TensorRT refuses or reads differently, and what its builder says.

    ``build``: None where only the pairs were looked at. ``placed_for``: the engine that placer
    placed the pairs for, where that is another one; None also if placer did not write the file.
    ``not_imported``: why ``placer import`` refuses the file, where findings ask for it.
    ``is_float``: nothing in it quantizes, so import refuses it; ``placer optimize`` takes the file
    as it is.
    ``older``: sentences on what TensorRT 8 refuses that later versions take; empty without any.
    ``tables``: calibration tables beside a model with pairs, with which they are of no use.
    ``names``: what nodes are called in plans that the builder calls otherwise; Q and DQ: nothing.
    """

    findings: tuple[Finding, ...]
    build: BuildReport | None
    placed_for: str | None = None
    not_imported: str | None = None
    is_float: bool = False
    older: str = ""
    tables: tuple[str, ...] = ()
    names: Mapping[str, str] = field(default_factory=dict)

    @property
    def grouped_findings(self) -> Sequence[Sequence[Finding]]:
        """Findings that one change mends, the gravest first."""
        return alike(self.findings)

    @property
    def refusal(self) -> str | None:
        """Why the model is refused and by whom, None if it is not."""
        refused = [ones[0] for ones in self.grouped_findings if ones[0].verdict == "refused"]
        if self.build is None:
            return f"TensorRT refuses it: {refused[0]}" if refused else None
        if self.build.accepted:
            return None
        reason = str(self.build.refusals[0])
        said = filter(None, (reason, _equal_dimensions(reason), self.assumed))
        return f"{self.build.builder} refuses it: {'; '.join(said)}"

    @property
    def assumed(self) -> str | None:
        """Which sizes the model leaves open and the builder was given none for; None if it was."""
        if self.build is None or not self.build.assumed:
            return None
        shapes = " and ".join(self.build.assumed)
        return f"unknown dimensions were taken as 1; give them with `shapes`, as {shapes}"

    @property
    def plan(self) -> Plan | None:
        """What was built, None where nothing was."""
        if self.build is None or not self.build.accepted:
            return None
        layers = (
            replace(layer, nodes=tuple(name for node in layer.nodes if (name := self._name(node))))
            for layer in self.build.plan.layers
        )
        return Plan(tuple(typed_layers(layers)), self.build.plan.source)

    def _name(self, node: str) -> str:
        return self.names.get(node, node)

    def write_plan(self, path: str | PathLike[str]) -> None:
        """Write what was built, for ``diff_plans`` and ``explain``; InputError if nothing was."""
        if self.plan is None:
            raise InputError("there is no plan to write: nothing was built")
        write_text(Path(path), json.dumps(plan_json(self.plan), indent=2) + "\n")

    def to_json(self) -> dict[str, Any]:
        """For ``json.dumps``; the engine itself is left out."""
        pairs = {
            "placed_for": self.placed_for,
            "not_imported": self.not_imported,
            "pairs": [asdict(finding) for finding in self.findings],
            "older": self.older or None,
            "tables": list(self.tables),
        }
        return pairs if self.build is None else {**_document(self.build), **pairs}


def _equal_dimensions(reason: str) -> str | None:
    """What to do if ``reason`` is that dimensions of one name have unequal sizes; else None."""
    found = _UNEQUAL.search(reason)
    if found is None:
        return None
    name = "-1" if found[1].startswith(_NUMBERED) else found[1]
    return (
        f"several dimensions are called '{name}', which TensorRT takes to be equal: give each a "
        "name of its own, or none (placer optimize leaves out '?' and the like)"
    )


def check(
    model: str | PathLike[str],
    *,
    gpu: str = "sm89",
    shapes: Mapping[str, GivenShape] | None = None,
    static: bool = False,
) -> CheckReport:
    """Parse and build ``model`` with TensorRT-RTX, which needs no GPU, and look at its Q/DQ pairs.

    ``gpu``: compute capability to build for, or a GPU that has it. ``static``: look at the pairs
    only, which needs no TensorRT-RTX. A model that is refused is a report, not an error.

    Raises InputError for wrong input and RunError without the builder.
    """
    path = Path(model)
    architecture = architecture_of(gpu)
    report = _imported(_pairs_report(path, static), path)
    if static:
        return report
    ranges = with_named_dimensions(path, given_ranges(shapes))
    check_utf8(path)
    library = import_builder()
    check_gpu(library, architecture, gpu)
    return replace(report, build=check_file(library, path, architecture, ranges))


def _pairs_report(path: Path, static: bool) -> CheckReport:
    """What the pairs of the file show. The model is let go before the builder needs memory.

    Raises InputError for external data that a builder, where one follows, would not find.
    """
    proto = read_model(path)
    repeated, moved = tuple(repeated_names(proto)), moved_by_identities(proto)
    inline_pairs(proto, path)
    if not static:
        tensors = list(all_tensors(proto.graph))
        check_tensors(filter(is_external, tensors), data_folder(tensors, path), path)
    placed_for, names = _placed_for(proto), _names(proto)
    findings = _findings(proto, path)
    older = ". ".join(filter(None, (moved, refused_by_tensorrt_8(proto, path))))
    is_float = not is_quantized(proto)
    tables = () if is_float else tables_beside(path)
    told = (*repeated, *findings)
    return CheckReport(told, None, placed_for, None, is_float, older, tables, names)


def _placed_for(proto: ModelProto) -> str | None:
    """The engine whose built-in pack the pairs of ``proto`` were made with, if it takes others."""
    if not is_quantized(proto):
        return None
    pack = (named_pack(proto) or "").partition(" ")[0]
    if not is_builtin(pack):
        return None
    manifest = load_pack(pack).manifest
    return None if manifest.behaviour.pairs == "symmetric" else manifest.engine


def _names(proto: ModelProto) -> dict[str, str]:
    """``CheckReport.names``: the builder calls a node without a name after what it writes.

    The reader of its log tells Q and DQ by the names that exporters give them.
    """
    names: dict[str, str] = {}
    for node in every_node(proto.graph.node):
        is_pair = node.op_type in PAIR_OPS
        if is_pair or node.name:
            called = (node.name, *(f"node_of_{tensor}" for tensor in node.output[:1]))
            names |= dict.fromkeys(called, "" if is_pair else node.name)
    return names


def _findings(proto: ModelProto, model: Path) -> tuple[Finding, ...]:
    folder = data_folder(all_tensors(proto.graph), model)
    return check_pairs(proto, folder, model)


def _imported(report: CheckReport, model: Path) -> CheckReport:
    """``report`` with what import leaves, or why it refuses ``model``: seen by importing it."""
    findings = report.findings
    if not findings:
        return report
    taken, refusal = None, f"{model} is not quantized; give it to placer optimize as it is"
    try:
        taken, is_float = load_unquantized(model), True
    except InputError as error:
        refusal, is_float = str(error), False
    if taken is None:
        kept = tuple(replace(finding, imported=False) for finding in findings)
        return replace(report, findings=kept, not_imported=refusal, is_float=is_float)
    left = {finding.node for finding in check_pairs(*taken, model)}
    return replace(
        report, findings=tuple(replace(f, imported=f.node not in left) for f in findings)
    )


def _document(report: BuildReport) -> dict[str, object]:
    document = {**asdict(report), "accepted": report.accepted, "engine_bytes": len(report.engine)}
    del document["engine"], document["logged"]
    return document
