"""What normalising makes of a model."""

from collections import Counter
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx

from placer.model import load_model
from tests.reference_outputs import outputs

Save = Callable[..., Path]


def ops(path: Path) -> Counter[str]:
    return Counter(node.op for node in load_model(path).graph.nodes)


def same_outputs(path: Path, **inputs: np.ndarray) -> list[str]:
    """Check that normalising changes no bit of the outputs; returns the operators left."""
    model = load_model(path)
    after = outputs(model.proto, **inputs)
    for one, other in zip(outputs(onnx.load(path), **inputs), after, strict=True):
        assert one.dtype == other.dtype
        np.testing.assert_array_equal(other, one)
    return [node.op for node in model.graph.nodes]
