"""A model written for one value of inputs or for one shape of them, normalised."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from placer.calibration.dataset import synthetic_dataset
from placer.common.files import check_writable, real_path
from placer.common.shapes import GivenShape, given_ranges, optima
from placer.errors import InputError
from placer.graph.bodies import Bodies, bodies_of
from placer.graph.edit import all_tensors
from placer.graph.external_data import check_tensors, data_folder
from placer.importing.same_function import SAMPLES, check_same_function
from placer.model import load_model
from placer.model.fixed_inputs import fix_in_place
from placer.model.normalize import normalize, tidy
from placer.model.quantized import is_quantized
from placer.model.save import saved_together
from placer.model.validate import read_model


@dataclass(frozen=True)
class FixedModel:
    """What ``fix_inputs`` wrote: ``nodes`` nodes, and the bodies that are left.

    ``uncompared``: why it was not compared with the file that it was made from, a sentence; or "".
    """

    model: Path
    nodes: int
    bodies: Bodies
    uncompared: str = ""


def fix_inputs(
    model: Path | str,
    output: Path | str,
    values: Mapping[str, float],
    shapes: Mapping[str, GivenShape] | None = None,
    *,
    replace: bool = False,
) -> FixedModel:
    """Write the float ``model`` with the inputs of ``values`` as constants, normalised.

    ``shapes`` are written into the file, too. An If that these decide is replaced by the branch
    that runs. ``replace``: whether a file that no run of placer wrote may be written over.

    Raises InputError for an input that is not there or whose shape is not known, a
    value that its type does not have, a model that is quantized, and where the outputs would not be
    those of ``model`` on random inputs.
    """
    path, target = Path(model), Path(output)
    if real_path(target) == real_path(path):
        raise InputError(f"{target} is the model itself; choose another output")
    check_writable(target, replace=replace)  # Else that is noticed when the model is loaded.
    proto = read_model(path)
    tensors = list(all_tensors(proto.graph))
    base_dir = data_folder(tensors, path)
    check_tensors(tensors, base_dir, path)
    if is_quantized(proto):
        raise InputError(f"{path} is quantized; recover the float model by placer import first")
    given = optima(given_ranges(shapes))
    uncompared = _compared(path, values, given)
    tidy(proto)
    fix_in_place(proto, values, given, path)
    proto = normalize(proto, base_dir, path).proto
    with saved_together(proto, base_dir, target, source=path, replace=replace):
        pass
    return FixedModel(target, len(proto.graph.node), bodies_of(proto), uncompared)


def _compared(
    path: Path, values: Mapping[str, float], shapes: Mapping[str, tuple[int, ...]]
) -> str:
    """Compare what will be written with the file; says why where that cannot be done, else ""."""
    try:
        model = load_model(path, shapes, fix=values, plugins=True)
        data = synthetic_dataset(model, SAMPLES, 0)
    except InputError as error:
        return f"what is written is not compared with the file: {error}"
    return check_same_function(model, data) or ""
