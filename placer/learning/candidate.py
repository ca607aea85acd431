"""``placer rules learn --from builder``: a candidate, NVIDIA's builder for it, and the lesson."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import onnx
from onnx import ModelProto
from platformdirs import user_log_path

from placer.engines.estimated.built_plan import builder_process
from placer.engines.isolation import Limits
from placer.engines.tensorrt.build import check_gpu
from placer.engines.tensorrt.offline_builder import import_builder
from placer.graph.edit import fix_input_shapes
from placer.learning.builder import BuilderPlans
from placer.learning.case import Case, within
from placer.learning.learn import Lesson, learn
from placer.model import load_model
from placer.plan import Plan
from placer.prediction.times.gpus import load_gpu
from placer.quantization.placement_file import load_placement
from placer.rules.defaults_by_gains import sites_with_defaults
from placer.rules.pack import Pack
from placer.rules.sites import place
from placer.rules.target import Target


@dataclass(frozen=True)
class LearningRequest:
    """What to learn from.

    ``candidate``: a float model, of which the default placement of ``pack`` is taken if there is no
    ``placement`` file, or a model with Q/DQ pairs. ``gpu``: a GPU, or a compute capability, e.g.
    ``sm89``. ``shapes``: of its inputs.
    """

    candidate: Path
    placement: Path | None
    pack: Pack
    gpu: str
    shapes: Mapping[str, tuple[int, ...]]


def learn_from_builder(asked: LearningRequest) -> Lesson:
    """Build the candidate and parts of it in a process apart, and draft the rule that is missing.

    Raises InputError for wrong input and RunError without the builder.
    """
    library = import_builder()
    gpu = load_gpu(asked.gpu)
    architecture = f"sm{gpu.compute_capability.replace('.', '')}"
    check_gpu(library, architecture)
    target = Target(compute_capability=gpu.compute_capability, typing="strong")
    case = candidate_case(asked, target)
    evidence = (
        f"builder of {library.title} for {architecture}: layers of a part of "
        f"{asked.candidate.name} (placer rules learn); not reviewed"
    )
    with (
        tempfile.TemporaryDirectory() as folder,
        builder_process(library, architecture, Limits(), user_log_path("placer")) as builder,
    ):

        def build(model: ModelProto) -> Plan:
            return builder.compile(model, Path(folder)).plan()

        return learn(case, BuilderPlans(asked.pack, target, build), evidence)


def candidate_case(asked: LearningRequest, target: Target) -> Case:
    """The candidate's float model with fixed shapes, and its placement.

    Raises InputError for what ``load_model`` and ``load_placement`` refuse.
    """
    model = load_model(asked.candidate, asked.shapes)
    if asked.placement is not None:
        placement = load_placement(asked.placement, model.graph)
    elif model.imported is not None:
        placement = within(model.imported.placement, model.graph)
    else:
        placement = place(sites_with_defaults(model.graph, asked.pack, target), {})
    dynamic = ModelProto()
    dynamic.CopyFrom(model.proto)
    fix_input_shapes(dynamic, model.input_shapes)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "candidate.onnx"
        onnx.load_external_data_for_model(dynamic, str(model.base_dir))
        onnx.save(dynamic, path)
        fixed = load_model(path)
    return Case(fixed, within(placement, fixed.graph))
