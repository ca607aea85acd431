"""Rules and layouts that hold only on some GPUs, and engines that know theirs."""

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import cast

import pytest

from placer.common.processor import this_processor
from placer.engines.abilities import target_of
from placer.engines.base import Engine
from placer.engines.onnxruntime import OnnxRuntimeEngine
from placer.engines.tensorrt.engine import abilities, target
from placer.engines.tensorrt.library import Library
from placer.errors import InputError
from placer.optimizer.observer import QuietObserver
from placer.optimizer.options.request import Request
from placer.optimizer.setup.prepare import prepare
from placer.rules.packaging.load import load_pack
from placer.rules.target import Target

MODEL = """
<ir_version: 9, opset_import: ["": 17]>
g (float[1,16,8,8] x) => (float[1,16,8,8] y) <float[16,16,3,3] w = {0.1}> {
  [conv] c = Conv<pads = [1, 1, 1, 1]>(x, w)
  [relu] y = Relu(c)
}
"""


@pytest.fixture
def pack(tmp_path: Path) -> Path:
    """The tensorrt pack; of its rules only those of weighted layers, from 8.0 on."""
    source, folder = Path(load_pack("tensorrt").path), tmp_path / "pack"
    folder.mkdir()
    shutil.copy(source / "pack.yaml", folder)
    for path in source.glob("*.yaml"):
        text = path.read_text(encoding="utf-8")
        if path.name != "pack.yaml" and "Conv" in text and "\nwhen:" not in text:
            text = text.replace("\nwhy:", '\nwhen: {compute_capability: ">=8.0"}\nwhy:', 1)
            (folder / path.name).write_text(text, encoding="utf-8")
    return folder


def test_rules_that_do_not_hold_on_the_gpu_are_left_out(save: Callable[..., Path], pack: Path):
    ampere = Request(model=save(MODEL), engine="fusion-model", gpu="a100", pack=str(pack))
    (site,) = prepare(ampere, QuietObserver()).sites
    assert site.match.anchor.name == "conv"
    with pytest.raises(InputError, match="no rule of pack 'tensorrt' matches a node of"):
        prepare(replace(ampere, gpu="t4"), QuietObserver())  # Compute capability 7.5.


def test_the_target_of_an_engine_that_says_none_is_this_machines_processor():
    says_none = cast(Engine, object())
    assert target_of(says_none) == Target(processor=this_processor())


def test_the_target_of_onnx_runtime_has_its_version_besides():
    engine = OnnxRuntimeEngine()
    assert target_of(engine) == Target(engine.version, processor=this_processor())


def test_the_targets_of_tensorrt_and_tensorrt_rtx(library: Library):
    assert target(library, "8.9", "strong") == Target(compute_capability="8.9", typing="strong")
    same_as_tensorrt = target(Library("tensorrt", library.module), "8.6", "weak")
    assert same_as_tensorrt == Target(library.version, "8.6", "weak")
    assert abilities(library) == {"shape-ranges", "saved-engines"}
