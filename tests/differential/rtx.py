"""NVIDIA's builder, TensorRT-RTX, which builds for a GPU that is not there."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from random import Random

from onnx import ModelProto

from placer.common.files import write_text
from placer.engines.tensorrt.offline_builder import check_model, import_builder
from placer.errors import RunError
from placer.learning.builder import BuilderPlans
from placer.learning.case import Case, loaded
from placer.plan import Plan
from placer.plan.json_format import plan_json
from placer.plan.readers.read import read_plan
from placer.plan.readers.rtx_log import typed_layers
from placer.rules.packaging.load import load_pack
from placer.rules.target import Target
from tests.differential.graphs import random_model
from tests.differential.placements import random_placement

GPU, TARGET = "sm89", Target(compute_capability="8.9", typing="strong")


class RtxEngine:
    """See ``BuilderPlans``; builds happen in this process.

    ``keep``: folder of built plans by the model's hash, which are read where they are.
    """

    name = "tensorrt-rtx"

    def __init__(self, keep: Path | None = None) -> None:
        self._keep = keep
        self._library = import_builder()
        self._plans = BuilderPlans(load_pack("tensorrt-rtx"), TARGET, self._build)
        # Of the pack that says most about INT8: a rule that keeps a node float is not taken on
        # trust.
        self._sites = load_pack("tensorrt")

    def case(self, random: Random) -> Case:
        """A random model and placement."""
        model = loaded(random_model(random, self._sites.rules))
        return Case(model, random_placement(model, self._sites, TARGET, random))

    def plans(self, case: Case) -> tuple[Plan, Plan]:
        """What is predicted and what NVIDIA's builder makes."""
        return self._plans.plans(case)

    def _build(self, model: ModelProto) -> Plan:
        kept = self._keep / f"{_hash(model)}.json" if self._keep else None
        if kept is not None and kept.is_file():
            return read_plan(kept)
        report = check_model(self._library, model, GPU)
        if not report.accepted:
            raise RunError(str(report.refusals[0]))
        plan = Plan(tuple(typed_layers(report.plan.layers)), report.plan.source)
        if kept is not None:
            kept.parent.mkdir(parents=True, exist_ok=True)
            write_text(kept, json.dumps(plan_json(plan)) + "\n")
        return plan


def _hash(model: ModelProto) -> str:
    return hashlib.sha256(model.SerializeToString(deterministic=True)).hexdigest()[:24]
