"""What several benchmarks need."""

from __future__ import annotations

from collections.abc import Mapping

import onnx


def fix_input_shapes(proto: onnx.ModelProto, shapes: Mapping[str, tuple[int, ...]]) -> None:
    """Write concrete input shapes into ``proto``.

    ONNX Runtime's own tool takes dimensions of one name for equal, and these files call all
    unknown ones '?'.
    """
    for value in proto.graph.input:
        if value.name in shapes:
            shape = value.type.tensor_type.shape
            shape.ClearField("dim")
            for size in shapes[value.name]:
                shape.dim.add(dim_value=size)
