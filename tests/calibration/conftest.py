"""Models that several modules give data to."""

from pathlib import Path

import onnx

from placer.graph.text import parse_model
from placer.model import Model, load_model


def model_of(text: str, folder: Path) -> Model:
    """The model that ONNX's text format describes, loaded from a file in ``folder``."""
    path = folder / "model.onnx"
    onnx.save(parse_model(text), path)
    return load_model(path)
