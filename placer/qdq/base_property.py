"""The base precision that a model was judged in, as its metadata says it."""

from __future__ import annotations

import onnx

# Name of the entry in the model's metadata.
BASE_PROPERTY = "placer.base"


def name_base(model: onnx.ModelProto, base: str | None) -> None:
    """Say in the metadata of ``model`` that what is not quantized is computed in ``base``.

    With None nothing is said, whatever the file that it was made from said.
    """
    for index, entry in reversed(list(enumerate(model.metadata_props))):
        if entry.key == BASE_PROPERTY:
            del model.metadata_props[index]
    if base is not None:
        model.metadata_props.add(key=BASE_PROPERTY, value=base)
