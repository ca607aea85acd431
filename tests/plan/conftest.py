"""Documents that several modules read plans from."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from placer.plan import Layer
from placer.plan.readers.read import read_plan

INT8_32 = "Thirty-two wide channel vectorized row major Int8 format"
LINEAR = "Row major linear FP32"

Save = Callable[[object], Path]


@pytest.fixture
def write(tmp_path: Path) -> Save:
    """Write a JSON document or a text; returns its path."""

    def save(document: object) -> Path:
        path = tmp_path / f"file{len(list(tmp_path.iterdir()))}.json"
        text = document if isinstance(document, str) else json.dumps(document)
        path.write_text(text, encoding="utf-8")
        return path

    return save


def tensor(name: str, phrase: str) -> dict[str, object]:
    return {
        "Name": name,
        "Location": "Device",
        "Dimensions": [1, 64, 8, 8],
        "Format/Datatype": phrase,
    }


def entry(name: str, kind: str, source: str, target: str, **fields: object) -> dict[str, object]:
    """A layer that reads tensor ``in`` and writes ``out``."""
    ports = {"Inputs": [tensor("in", source)], "Outputs": [tensor("out", target)]}
    return {"Name": name, "LayerType": kind, **ports, **fields}


def read_layer(write: Save, **layer: object) -> Layer:
    (read,) = read_plan(write({"Layers": [layer], "Bindings": ["x", "y"]})).layers
    return read
