"""What ONNX Runtime moves to another memory layout, by its version and the processor."""

from __future__ import annotations

from dataclasses import dataclass

from placer.common.processor import UNKNOWN_PROCESSOR
from placer.rules.behaviour import Behaviour
from placer.rules.block_operators import block_of
from placer.rules.condition import Condition
from placer.rules.target import Target

# Since when ONNX Runtime's transpose optimizer pushes a Transpose behind Reshapes.
_PASSES_VIEWS = Condition(engine_versions=">=1.29")
# Since when it pushes none behind what writes a graph output in float.
_KEEPS_OUTPUTS = Condition(engine_versions=">=1.31")


@dataclass(frozen=True)
class LayoutOptions:
    """``views``: whether a Transpose is pushed behind Reshapes that only split dimensions.

    ``outputs``: whether what writes a graph output in float keeps its layout, though a Transpose
    came before it. ``block``: channels of the blocks that float kernels have; None where they
    have none, as on ARM.
    """

    views: bool = True
    outputs: bool = True
    block: int | None = block_of(UNKNOWN_PROCESSOR)


def layout_options(behaviour: Behaviour, target: Target) -> LayoutOptions | None:
    """Those of an engine; None where it moves nothing."""
    if behaviour.memory_layouts == "ignored":
        return None
    return LayoutOptions(
        target.meets(_PASSES_VIEWS),
        target.meets(_KEEPS_OUTPUTS),
        block_of(target.processor) if behaviour.memory_layouts == "followed" else None,
    )
