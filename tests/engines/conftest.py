"""The stand-in of TensorRT's Python module, which several modules run engines on."""

import shutil
import sys
from collections.abc import Iterator, Mapping, Sequence
from itertools import zip_longest
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from placer.engines.cuda import api
from placer.engines.tensorrt.engine import TensorRtEngine, create
from placer.engines.tensorrt.execution import Execution
from placer.engines.tensorrt.library import Library, load_library

HERE = Path(__file__).parent
RELU = """
<ir_version: 9, opset_import: ["": 17]>
g (float[batch,4] x) => (float[batch,4] y) { [one] h = Relu(x) [two] y = Identity(h) }
"""
X = np.array([[-1, 2, -3, 4]], np.float32)


@pytest.fixture(scope="module")
def standin() -> Iterator[Library]:
    """The stand-in as ``tensorrt``; modules of these names are as before afterwards."""
    places = [str(HERE / "standin")]
    if api.device_count() == 0:
        if shutil.which("cc") is None:
            pytest.skip("neither a GPU nor a C compiler")
        places.append(str(HERE / "standin_host"))
    names = [n for n in sys.modules if n.split(".")[0] in ("cuda", "tensorrt")]
    kept = {name: sys.modules.pop(name) for name in names if len(places) > 1 or "cuda" not in name}
    sys.path[:0] = places
    api.set_device(0)
    yield load_library("tensorrt")
    for place in places:
        sys.path.remove(place)
    for name in [n for n in sys.modules if n.split(".")[0] in ("cuda", "tensorrt")]:
        del sys.modules[name]
    sys.modules.update(kept)


@pytest.fixture
def engine(standin: Library, tmp_path: Path) -> TensorRtEngine:
    assert standin.version == "10.13.0"
    return create("tensorrt", timing_cache=tmp_path / "timing")


def execution(
    library: Library,
    model: onnx.ModelProto,
    *profiles: dict[str, Any],
    values: Mapping[str, Any] | Sequence[Mapping[str, Any]] = (),
) -> Execution:
    """``values``: those that are shapes, of each profile."""
    module = library.module
    logger = module.ILogger()
    builder = module.Builder(logger)
    network = builder.create_network(0)
    assert module.OnnxParser(network, logger).parse(model.SerializeToString())
    config = builder.create_builder_config()
    values = [values] if isinstance(values, Mapping) else values
    for shapes, own in zip_longest(profiles, values, fillvalue={}):
        profile = builder.create_optimization_profile()
        for name, given in shapes.items():
            profile.set_shape(name, *given)
        for name, given in own.items():
            profile.set_shape_input(name, *given)
        assert config.add_optimization_profile(profile) >= 0
    return Execution(library, builder.build_serialized_network(network, config))


def batches(least: int, most: int) -> dict[str, Any]:
    return {"x": ((least, 4), (most, 4), (most, 4))}
