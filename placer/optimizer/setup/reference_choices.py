"""The float model's choices by value, computed by ONNX Runtime where an engine errs in float."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import onnx
from onnx import ValueInfoProto, helper

from placer.accuracy.evaluation import Run
from placer.engines.base import Engine, Tensors
from placer.engines.onnxruntime.engine import OnnxRuntimeModel
from placer.graph.float_choices import copy_alone, handed_over, without_copy
from placer.model.judged import Judged


class ReferenceChoices:
    """Hands the float model's choices to candidates as inputs.

    An engine may compute float in bfloat16 or TF32, and the smallest error swaps what is chosen, so
    the float copy in a twin (``placer.graph.float_choices``) runs on ONNX Runtime instead.
    """

    def __init__(self, judged: Judged, types: Mapping[str, ValueInfoProto]) -> None:
        """``types``: of what the copy hands over."""
        model = judged.model
        self._choose = OnnxRuntimeModel(copy_alone(model.proto), model.base_dir, threads=1).run
        self._types = types

    @staticmethod
    def of(judged: Judged) -> ReferenceChoices | None:
        """None where the data decide how much is chosen, as by NonMaxSuppression.

        Engines build for inputs of known shapes; there they compute the copy.
        """
        types = {}
        for name in handed_over(judged.model.proto):
            dtype, shape = judged.model.graph.type_of(name)
            if dtype is None or shape is None:
                return None
            types[name] = helper.make_tensor_value_info(name, dtype, shape)
        return ReferenceChoices(judged, types)

    def run_of(self, candidate: onnx.ModelProto, engine: Engine, base_dir: Path) -> Run:
        """What runs ``candidate``, which has the copy, without it; RunError if it is refused."""
        compiled = engine.compile(without_copy(candidate, self._types), base_dir)

        def run(inputs: Tensors) -> Tensors:
            return compiled.run({**inputs, **self._choose(inputs)})

        return run
