"""The base precision that a model was judged in, as its metadata says it."""

from __future__ import annotations

import onnx

# Name of the entry in the model's metadata.
BASE_PROPERTY = "placer.base"


def name_base(model: onnx.ModelProto, base: str) -> None:
    """Say in the metadata of ``model`` that what is not quantized is computed in ``base``."""
    for entry in model.metadata_props:
        if entry.key == BASE_PROPERTY:
            entry.value = base
            return
    model.metadata_props.add(key=BASE_PROPERTY, value=base)
