"""The models of docs/recipes.md, to run its commands with.

``python -m tests.recipe_models FOLDER`` writes them.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import onnx

from placer.calibration.collect import calibrate
from placer.calibration.dataset import synthetic_dataset
from placer.model import load_model, save_model
from placer.qdq import Inserter
from placer.rules.packaging.load import load_pack
from tests.conftest import with_random_weights
from tests.prediction.test_recipes import RECIPES, Recipe, quantized

# Names of the models, in the order of RECIPES.
_NAMES = ("stem", "concat", "scales", "upsample", "swish", "residual", "eager", "attention")
# What exporters wrote, and what the recipes call it.
_ARTEFACTS = {
    "torch_eager.onnx": "torch_eager.onnx",
    "nncf.xml": "nncf.xml",
    "nncf.bin": "nncf.bin",
    "float.onnx": "model.onnx",
}


def write_models(folder: Path) -> None:
    """Write all models that the recipes name into ``folder``, which is made."""
    folder.mkdir(parents=True, exist_ok=True)
    for recipe, name in zip(RECIPES, _NAMES, strict=True):
        _write_recipe(recipe, folder, name)
    for source, target in _ARTEFACTS.items():
        artefact = Path(__file__).parent / "artefacts" / source
        (folder / target).write_bytes(artefact.read_bytes())


def _write_recipe(recipe: Recipe, folder: Path, name: str) -> None:
    """Write ``name.onnx`` and ``name-qdq.onnx``, with the pairs that the recipe's user had."""
    pack, path = load_pack("tensorrt"), folder / f"{name}.onnx"
    onnx.save(with_random_weights(recipe.model), path)
    model = load_model(path)
    placement = quantized(model.graph, recipe.pairs)
    tensors = {edge.tensor for edge in placement.edges} - model.graph.initializers.keys()
    calibration = calibrate(model, tensors, synthetic_dataset(model, 2, 0))
    ranges = calibration.ranges("minmax", pack.manifest.scheme)
    candidate = Inserter(model, pack.manifest.scheme).insert(placement, ranges)
    save_model(candidate, model.base_dir, folder / f"{name}-qdq.onnx")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", metavar="FOLDER", type=Path)
    write_models(parser.parse_args().folder)
