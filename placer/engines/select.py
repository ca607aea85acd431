"""The engines that compile, run and measure candidates."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType

import onnx

from placer.engines.abilities import target_of
from placer.engines.base import Engine
from placer.engines.estimated.built_plan import NAME as BUILT_PLAN
from placer.engines.estimated.built_plan_factory import BuiltPlanFactory
from placer.engines.estimated.fusion_model import FusionModelEngine
from placer.engines.onnxruntime.factory import OnnxRuntimeFactory
from placer.engines.openvino.factory import OpenVinoFactory
from placer.engines.registry import (
    AUTO,
    ChoosesRules,
    EngineFactory,
    EngineOptions,
    Registry,
    check_measured,
    measures_throughput,
)
from placer.engines.tensorrt.factory import TensorRtFactory
from placer.errors import InputError
from placer.graph.shapes import ShapeRange
from placer.prediction.times.devices import load_device, pack_of, target_on
from placer.prediction.times.gpus import architecture_of
from placer.qdq.base_property import EACH_ITS_OWN, named_base
from placer.quantization import WeightRangeOption
from placer.results.objective import Objective
from placer.rules.pack import Pack
from placer.rules.packaging.load import load_pack
from placer.rules.target import ANY_TARGET


class FusionModelFactory:
    """Makes the engine ``fusion-model``."""

    rules = "tensorrt"

    def unavailable(self) -> str | None:
        """None: it predicts, and needs no GPU for it."""
        return None

    def create(self, options: EngineOptions) -> Engine:
        """Raises InputError without a GPU to predict for, and for an unknown one."""
        if options.gpu is None:
            raise InputError(
                "engine fusion-model needs a GPU to predict for; give `gpu`, e.g. a100, or a "
                "file of placer fit"
            )
        if options.device is not None:
            raise InputError(
                "`device` chooses the GPU to run on; fusion-model predicts for the one of `gpu`"
            )
        options.check_extra("fusion-model")
        return FusionModelEngine(
            load_device(options.gpu),
            options.pack,
            options.base,
            options.shapes,
            options.threads,
            options.build_for and architecture_of(options.build_for),
            options.shape_ranges,
        )


BUILT_IN: Mapping[str, EngineFactory] = MappingProxyType(
    {
        "onnxruntime": OnnxRuntimeFactory(),
        "fusion-model": FusionModelFactory(),
        "tensorrt": TensorRtFactory("tensorrt"),
        "tensorrt-rtx": TensorRtFactory("tensorrt-rtx"),
        "openvino": OpenVinoFactory(),
        BUILT_PLAN: BuiltPlanFactory(),
    }
)
_REDUCED = "weights take a reduced range, since sums of products saturate on this processor"
ESTIMATING = ("fusion-model", BUILT_PLAN)


def select_engine(
    name: str,
    *,
    threads: int,
    pack: str | None = None,
    gpu: str | None = None,
    base: str | None = None,
    shapes: Mapping[str, tuple[int, ...]] | None = None,
    build_for: str | None = None,
    device: str | None = None,
    extra: Mapping[str, str] | None = None,
    scheme: str | None = None,
    weight_range: WeightRangeOption = "auto",
    shape_ranges: Mapping[str, ShapeRange] | None = None,
    objective: Objective = "latency",
    measures: bool = False,
) -> tuple[Engine, Pack, str]:
    """Return the engine called ``name`` (``auto`` chooses), its pack and what to say of the choice.

    ``pack`` None takes the engine's own, ``scheme`` None the pack's own; ``weight_range``: see
    ``Pack.with_weight_range``; ``measures`` asks for an engine that does not estimate. The others:
    see EngineOptions. Raises InputError for an unknown name, for options that the engine does not
    take and for one that estimates where it must measure, RunError if it cannot run here.
    """
    if measures and name in ESTIMATING:
        raise _estimates(name)
    registry = Registry.installed(BUILT_IN)
    chosen, factory, why = registry.resolve(name)
    _check_objective(objective, chosen, factory)
    default_pack = _own_pack(factory, extra or {}, gpu)
    rules = load_pack(pack or default_pack)
    if scheme is not None:
        rules = rules.with_scheme(
            scheme, ANY_TARGET if gpu is None else target_on(load_device(gpu))
        )
    options = EngineOptions(
        pack=rules,
        threads=threads,
        shapes=shapes or {},
        shape_ranges=shape_ranges or {},
        gpu=gpu,
        base=base,
        build_for=build_for,
        device=device,
        extra=extra or {},
        objective=objective,
    )
    engine = registry.create(chosen, factory, options)
    if measures and engine.estimated:  # A plug-in's.
        raise _estimates(chosen)
    if scheme is not None:  # Some engines know their GPU only now.
        load_pack(pack or default_pack).with_scheme(scheme, target_of(engine))
    ranged = rules.with_weight_range(weight_range, target_of(engine))
    notes = [why]
    if engine.estimated:
        notes.append("every latency is an estimate")
    if weight_range == "auto" and ranged is not rules:
        notes.append(_REDUCED)
    return engine, ranged, "; ".join(filter(None, notes))


def _check_objective(objective: Objective, name: str, factory: EngineFactory) -> None:
    if objective == "throughput" and not measures_throughput(factory):
        raise InputError(
            f"engine {name} measures latency only; choose `engine` openvino for `objective` "
            "throughput, or leave out `objective`"
        )


def check_estimate_options(engine: str, gpu: str | None, build_for: str | None = None) -> None:
    """Raise InputError for a GPU or target that is not known, and for one where ``engine`` is auto.

    That is told by the names alone, before a model is read. Other engines that measure say it
    themselves.
    """
    if gpu is not None:
        load_device(gpu)
    if build_for is not None:
        architecture_of(build_for)
    if engine == AUTO:
        check_measured(f"engine {AUTO}", gpu=gpu, build_for=build_for)


def base_of_files(name: str, base: str | None, files: Iterable[onnx.ModelProto]) -> str | None:
    """What to hand ``select_engine`` as ``base`` for models that run as they are.

    That is ``base`` or, without it, ``auto`` where the engine called ``name`` computes each file in
    the type that it names, and one of ``files`` names one. Raises InputError as ``select_engine``.
    """
    _, factory, _ = Registry.installed(BUILT_IN).resolve(name)
    if base is not None or not isinstance(factory, OpenVinoFactory):
        return base
    return EACH_ITS_OWN if any(named_base(file) is not None for file in files) else None


def check_base(engine: Engine, base: str | None) -> None:
    """Raise InputError if ``base`` is given to an engine that runs a file in its own types."""
    if base is not None and engine.remainder != "computed":
        raise InputError(
            f"engine {engine.name} computes a file in the types that it has, whatever `base`; "
            "placer optimize and placer apply write it in another one"
        )


def _own_pack(factory: EngineFactory, extra: Mapping[str, str], gpu: str | None) -> str:
    """The pack that is taken where none is given: a fit's is the one it was measured with."""
    if isinstance(factory, FusionModelFactory) and gpu is not None:
        return pack_of(load_device(gpu), factory.rules)
    return factory.rules_for(extra) if isinstance(factory, ChoosesRules) else factory.rules


def _estimates(name: str) -> InputError:
    return InputError(
        f"engine {name} estimates latencies and runs nothing; choose one that measures, "
        "e.g. onnxruntime"
    )
