"""The float model behind a quantized one, written with its scales and its placement."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from dataclasses import replace as with_fields
from os import PathLike
from pathlib import Path
from typing import Any

from placer.accuracy.metrics import finite
from placer.calibration.data_shapes import with_shapes_of_data
from placer.calibration.dataset import Dataset
from placer.common.default_outputs import default_output
from placer.common.files import check_writable, real_path, text_of_source, write_text
from placer.common.processor import this_processor
from placer.common.shapes import GivenShape, given_ranges, optima
from placer.errors import InputError
from placer.graph import Edge
from placer.importing.ir_matching import Matched
from placer.importing.openvino_ir import SUFFIX as IR_SUFFIX
from placer.importing.openvino_ir import carried_over, distance
from placer.importing.source_model import Distance, inputs_of, recovered, samples_of
from placer.model import Model, load_model, load_unquantized
from placer.model.input_shapes import unknown_dimensions
from placer.model.load import float_already
from placer.model.quantized import Imported, Loss
from placer.model.save import saved_together, source_of
from placer.model.validate import read_model
from placer.quantization.placement_file import placement_text
from placer.rules.defaults_by_gains import sites_with_defaults
from placer.rules.pack import Pack
from placer.rules.packaging.load import load_pack
from placer.rules.sites import place
from placer.rules.target import Target


@dataclass(frozen=True)
class PackComparison:
    """Quantized edges of the source held against the pack's default placement."""

    kept: frozenset[Edge]
    left: frozenset[Edge]
    added: frozenset[Edge]
    uncalibrated: tuple[str, ...]


@dataclass(frozen=True, eq=False)
class ImportedModel:
    """What a quantized model held, and the files that were written.

    ``losses``: tensors whose steps are coarser in the pack's scheme. ``sqnr``: in dB, of the float
    model's outputs against the quantized file's on what ``compared_on`` says; None where
    ``uncompared`` says why there is none. ``warnings``: what the user should know of the data. Of
    an OpenVINO IR ``model`` is the Q/DQ model, ``sqnr`` that of its outputs against the IR's, both
    on OpenVINO, and ``matched`` says how the IR's tensors were found.
    """

    model: Path
    placement_file: Path
    pack: Pack = field(repr=False)
    imported: Imported = field(repr=False)
    comparison: PackComparison = field(repr=False)
    losses: tuple[Loss, ...] = field(repr=False)
    sqnr: float | None
    compared_on: str
    warnings: tuple[str, ...]
    matched: Matched | None = None
    uncompared: str = ""

    @property
    def distance(self) -> str:
        """``sqnr`` in words."""
        if self.matched is None or self.sqnr is None:
            return str(Distance(self.sqnr, self.uncompared))
        if math.isinf(self.sqnr):
            return "the outputs on OpenVINO equal the IR's"
        return f"the outputs on OpenVINO agree with the IR's to {self.sqnr:.1f} dB"

    def to_json(self) -> dict[str, Any]:
        """For ``json.dumps``."""
        return {
            "source": self.imported.source,
            "pairs": {
                "kept": _texts(self.comparison.kept),
                "left": _texts(self.comparison.left),
                "added": _texts(self.comparison.added),
            },
            "without range": list(self.comparison.uncalibrated),
            "scales": {
                name: {"scale": scale.scale, "zero_point": scale.zero_point, "type": scale.type}
                for name, scale in self.imported.activations.items()
            },
            "coarser": [
                {"tensor": x.tensor, "step_growth": x.step_growth, "decibel": x.decibel}
                for x in self.losses
            ],
            "notes": list(self.imported.notes),
            "sqnr": None if self.sqnr is None else finite(self.sqnr),
            "uncompared": self.uncompared or None,
            "compared_on": self.compared_on,
            "warnings": list(self.warnings),
            **({} if self.matched is None else _matched_json(self.matched)),
        }


def import_model(
    model: str | PathLike[str],
    output: str | PathLike[str] | None = None,
    *,
    pack: str = "tensorrt",
    shapes: Mapping[str, GivenShape] | None = None,
    data: str | PathLike[str] | None = None,
    float_model: str | PathLike[str] | None = None,
    replace: bool = False,
) -> ImportedModel:
    """Write the float model behind the quantized ``model``, and its scales as placement.yaml.

    Of an OpenVINO IR (``.xml``), which NNCF writes, the scales and the placement are carried over
    onto ``float_model``, the ONNX model that it was made from, and written as a Q/DQ model, by
    default ``MODEL.qdq.onnx``.

    ``output``: by default ``MODEL.float.onnx`` in the current folder, or
    ``MODEL-HASH.float.onnx`` if that was made of another file of this name; the placement is
    beside it.
    ``pack``: the rule pack whose scheme the scales are converted to. ``data``: the float model is
    compared with the quantized one on it; without, on random inputs, which may not reach what the
    pairs of the model do to real ones. ``replace``: whether files that no run of placer wrote may
    be written over.

    Raises InputError for a model that is not quantized or cannot be taken apart, for data that does
    not fit it, and where the float model would be another function; nothing is written then.
    """
    source = Path(model)
    if (source.suffix == IR_SUFFIX) != (float_model is not None):
        raise InputError(
            f"{source}: an OpenVINO IR (.xml) is imported beside the float ONNX model that it was "
            "made from, any other model by itself; see placer import --help"
        )
    ending = "float" if float_model is None else "qdq"
    target, note = default_output(source, f".{ending}.onnx", source_of, output)
    if real_path(target) == real_path(source):
        raise InputError(f"output {target} is the quantized model itself; choose another name")
    # Else that is noticed when all is compared.
    check_writable(target, replace=replace)
    check_writable(_placement_file(target), replace=replace)
    rules = load_pack(pack)
    given = optima(given_ranges(shapes))
    wanted = None if data is None else text_of_source(data)
    if float_model is not None:
        onnx_model = Path(float_model)
        made = _import_ir(source, onnx_model, target, rules, given, wanted, replace=replace)
    else:
        made = _import_pairs(source, target, rules, given, wanted, replace=replace)
    return with_fields(made, warnings=(note, *made.warnings)) if note else made


def _placement_file(target: Path) -> Path:
    """Where the placement of the model at ``target`` goes."""
    return target.with_name(f"{target.stem}.placement.yaml")


def _import_pairs(
    source: Path,
    target: Path,
    pack: Pack,
    shapes: Mapping[str, tuple[int, ...]],
    data: str | None,
    *,
    replace: bool,
) -> ImportedModel:
    """The ONNX model at ``source``, written as a float model and its placement."""
    shapes = with_shapes_of_data(source, shapes, data)
    if unknown_dimensions(read_model(source), shapes, source) is not None:
        _refuse_float(source)  # Of which no sizes are to be asked for.
    loaded = load_model(source, shapes, bodies=pack.enters_bodies)
    loaded.source_quantization()  # Refuses a float model before anything is run.
    if not loaded.proto.graph.node:
        raise InputError(
            f"{source} computes nothing once its pairs are gone; there is no float model"
        )
    samples = samples_of(data, loaded)
    loaded, found = recovered(loaded, samples)
    pack, imported = _with_formats(pack, loaded.source_quantization())
    made = ImportedModel(
        model=target,
        placement_file=_placement_file(target),
        pack=pack,
        imported=imported,
        comparison=_compare(loaded, imported, pack),
        losses=tuple(imported.losses(pack.manifest.scheme)),
        sqnr=found.sqnr,
        compared_on=_in_words(samples),
        warnings=(*samples.notes, *found.notes),
        uncompared=found.reason,
    )
    # Once nothing can fail.
    _write(loaded, imported, pack, shapes, target, replace=replace)
    return made


def _refuse_float(source: Path) -> None:
    """Raise InputError if the ONNX file at ``source`` is float; does nothing if that is unknown."""
    try:
        is_float = load_unquantized(source) is None
    except InputError:
        return
    if is_float:
        raise float_already(source)


def _with_formats(pack: Pack, imported: Imported) -> tuple[Pack, Imported]:
    """``pack`` in a scheme that has the formats of ``imported``; without one, none are kept."""
    wanted = {*imported.placement.formats.values()}
    for name, alternative in pack.manifest.alternatives.items():
        if wanted and wanted.issubset(alternative.scheme.formats):
            return pack.with_scheme(name), imported
    plain = imported.placement.in_format(None)
    return pack, with_fields(imported, placement=plain) if wanted else imported


def _import_ir(
    source: Path,
    float_model: Path,
    target: Path,
    pack: Pack,
    shapes: Mapping[str, tuple[int, ...]],
    data: str | None,
    *,
    replace: bool,
) -> ImportedModel:
    """The IR at ``source`` on ``float_model``, written as a Q/DQ model and its placement."""
    if real_path(target) == real_path(float_model):
        raise InputError(f"output {target} is the float model itself; choose another name")
    model, quantized, matched = carried_over(source, float_model, shapes)
    samples = samples_of(data, model)
    found = distance(source, model, quantized, inputs_of(model, samples))
    made = ImportedModel(
        model=target,
        placement_file=_placement_file(target),
        pack=pack,
        imported=matched.imported,
        comparison=_compare(model, matched.imported, pack),
        losses=tuple(matched.imported.losses(pack.manifest.scheme)),
        sqnr=found.sqnr,
        compared_on=_in_words(samples),
        warnings=(*samples.notes, *found.notes),
        matched=matched,
    )
    with saved_together(quantized, model.base_dir, target, source=source, replace=replace) as draft:
        text = _placement_text(matched.imported, pack, model)
        write_text(draft.with_name(made.placement_file.name), text)
    return made


def _matched_json(matched: Matched) -> dict[str, Any]:
    return {
        "matched": {"by name": matched.by_name, "by structure": matched.by_structure},
        "unmatched": list(matched.unmatched),
    }


def _in_words(data: Dataset) -> str:
    return "random inputs" if data.synthetic else f"{len(data)} samples of {data.source}"


def _write(
    model: Model,
    imported: Imported,
    pack: Pack,
    shapes: Mapping[str, tuple[int, ...]],
    target: Path,
    *,
    replace: bool,
) -> None:
    """Write both files, or none if the float model cannot be read back."""
    with saved_together(
        model.proto, model.base_dir, target, source=model.path, replace=replace
    ) as draft:
        written = load_model(draft, shapes, bodies=pack.enters_bodies)
        write_text(
            draft.with_name(_placement_file(target).name), _placement_text(imported, pack, written)
        )


def _placement_text(imported: Imported, pack: Pack, written: Model) -> str:
    return placement_text(
        imported.placement,
        imported.ranges(pack.manifest.scheme),
        pack.manifest.scheme,
        model=written.fingerprint,
        pack=pack.name_and_version,
        calibrated=True,
        graph=written.graph,
        weights=written.weights_digest(),
    )


def _compare(model: Model, imported: Imported, pack: Pack) -> PackComparison:
    target = Target(processor=this_processor())
    chosen = place(sites_with_defaults(model.graph, pack, target), {}).edges
    source = imported.placement.edges
    known = {*imported.activations, *model.graph.initializers}
    uncalibrated = sorted({edge.tensor for edge in chosen} - known)
    return PackComparison(chosen & source, source - chosen, chosen - source, tuple(uncalibrated))


def _texts(edges: frozenset[Edge]) -> list[str]:
    return [str(edge) for edge in sorted(edges)]
