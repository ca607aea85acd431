"""The base precision that a model was judged in, as its metadata says it."""

from __future__ import annotations

import onnx

# Name of the entry in the model's metadata.
BASE_PROPERTY = "placer.base"
# The base of an engine that computes each model in the one that it names itself.
EACH_ITS_OWN = "auto"


def named_base(model: onnx.ModelProto) -> str | None:
    """What ``name_base`` said of ``model``; None if nothing."""
    return next((e.value for e in model.metadata_props if e.key == BASE_PROPERTY), None)


def name_base(model: onnx.ModelProto, base: str | None) -> None:
    """Say in the metadata of ``model`` that what is not quantized is computed in ``base``.

    With None nothing is said, whatever the file that it was made from said.
    """
    for index, entry in reversed(list(enumerate(model.metadata_props))):
        if entry.key == BASE_PROPERTY:
            del model.metadata_props[index]
    if base is not None:
        model.metadata_props.add(key=BASE_PROPERTY, value=base)
