"""A placement file on another file of its network, from reading both to writing the result."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from os import PathLike
from pathlib import Path
from typing import Any, Literal

from onnx import ModelProto

from placer.accuracy.metrics import finite
from placer.apply.candidate import (
    AUTO,
    Scales,
    calibrated_scales,
    check_method,
    kept_scales,
    quantized_model,
    without_range,
)
from placer.apply.distance import distance
from placer.apply.recovering import Recovered
from placer.apply.recovering import recover as recovered_model
from placer.apply.same_network import notes_on_losses
from placer.apply.transfer import Transferred, transfer_placement
from placer.calibration.collect import default_cache_dir
from placer.calibration.data_shapes import with_shapes_of_data
from placer.calibration.dataset import Dataset, load_dataset
from placer.common.default_outputs import default_output
from placer.common.file_groups import written_together
from placer.common.files import (
    check_output_folder,
    make_output_folder,
    remove_if_empty,
    text_of_source,
    write_text,
)
from placer.common.folder_lock import locked
from placer.common.names import unknown
from placer.common.processor import this_processor
from placer.common.shapes import GivenShape, given_ranges, optima
from placer.errors import InputError
from placer.importing.same_function import check_same_function
from placer.importing.source_model import recovered, samples_of
from placer.model import Model, load_model, save_model
from placer.optimizer.options.presets import load_preset
from placer.qdq.base_property import name_base
from placer.qdq.bases import Base, InputOutputTypes, parse_base
from placer.qdq.opset import FLOAT8_OPSET, with_opset
from placer.qdq.origin import name_origin
from placer.quantization import Ranges, WeightRangeOption
from placer.quantization.placement_file import PlacementFile, placement_text, read_placement
from placer.quantization.scheme import in_weight_range
from placer.recovery.recover import steps_of
from placer.results.folder import OutputFolder
from placer.results.parts import RecoveryPart
from placer.rules.packaging.load import enters_bodies, load_pack
from placer.rules.sites import find_sites
from placer.rules.target import Target

AppliedRanges = Literal["kept", "calibrated"]
RANGES = ("kept", "calibrated")
# What the default output folder ends with.
_SUFFIX = ".applied"
_TYPES = ("keep", "convert")
_WEIGHT_RANGES = ("auto", "full", "reduced")


@dataclass(frozen=True, eq=False)
class AppliedModel:
    """What became of a placement, and the folder that holds the model with it.

    ``new_sites``: where rules could quantize nodes that are new. ``sqnr``: in dB, of the result's
    outputs against those of the model as it was given; None if ONNX Runtime does not run both,
    or without data for inputs that cannot be made up. Values that are not finite do not count; the
    warnings tell of those that are in the model alone.
    """

    file: PlacementFile = field(repr=False)
    model: Model
    applied: Transferred = field(repr=False)
    scales: Scales = field(repr=False)
    new_sites: tuple[str, ...]
    warnings: tuple[str, ...]
    folder: Path
    sqnr: float | None
    recovery: RecoveryPart | None = None

    def to_json(self) -> dict[str, Any]:
        """As apply.json says it."""
        transferred, scales = self.applied, self.scales
        return {
            "placement_file": str(self.file.path),
            "model": str(self.model.path),
            "placement": transferred.placement.id,
            "same_structure": transferred.is_exact,
            "found": [
                {
                    "source": str(transfer.source),
                    "edge": str(transfer.edge),
                    "by": "name" if transfer.by_name else "structure",
                    "operators": transfer.operators,
                }
                for transfer in transferred.found
            ],
            "lost": [
                {
                    "edge": str(lost.edge),
                    "operator": lost.operator,
                    "reason": lost.reason,
                    "candidates": list(lost.candidates),
                }
                for lost in transferred.lost
            ],
            "broken_groups": [
                {"kept": [str(e) for e in group.kept], "lost": [str(e) for e in group.lost]}
                for group in transferred.broken
            ],
            "new_nodes": list(transferred.new_nodes),
            "new_sites": list(self.new_sites),
            "ranges": {
                "method": scales.method,
                "calibrated": scales.calibrated,
                "sqnr": scales.sqnr,
            },
            "recovery": None if self.recovery is None else self.recovery.model_dump(mode="json"),
            "sqnr": None if self.sqnr is None else finite(self.sqnr),
            "warnings": list(self.warnings),
        }


def apply_placement(
    placement: str | PathLike[str],
    model: str | PathLike[str],
    *,
    output: str | PathLike[str] | None = None,
    shapes: Mapping[str, GivenShape] | None = None,
    data: str | PathLike[str] | None = None,
    ranges: AppliedRanges | None = None,
    calibration: str = AUTO,
    recover: str | Sequence[str] = (),
    base: Base | None = None,
    io_type: InputOutputTypes = "keep",
    pack: str | None = None,
    weight_range: WeightRangeOption = "auto",
    strict: bool = False,
    partial: bool = False,
    cache: bool = True,
) -> AppliedModel:
    """Find the edges of a placement.yaml in ``model`` and write the quantized model to ``output``.

    ``output``: by default ``MODEL.applied`` in the current folder, or ``MODEL-HASH.applied`` if
    that is about another file of this name; optimized.onnx, placement.yaml and apply.json are
    written there. ``ranges``: ``kept`` takes the file's, ``calibrated`` those of
    ``data``; by default calibrated with data, else kept. With kept ones data is for tensors without
    any, and for comparing the result with the model. ``recover``: steps that change values of
    weights and biases where that helps on samples of ``data`` held back, as in ``optimize``.
    ``base``: by default the type that the placement names, else what the engine of the pack takes:
    float16 for TensorRT, float for others. ``pack`` names sites that the file says nothing
    of, by default the file's. ``weight_range``: ``full`` or ``reduced``, see ``optimize``; ``auto``
    is the file's. ``strict`` refuses a model that lacks an edge of the file,
    ``partial`` takes one in which fewer than half are found, or that seems to be another network.

    Raises InputError for wrong input, where no edge is found, without ``partial`` where fewer than
    half are or where none has its name and most nodes of the model are new, and where the result
    would be another function than the model (its outputs keep less than 3 dB), RunError if
    ONNX Runtime refuses the model.
    """
    path, source = Path(model), Path(placement)
    folder, note = default_output(path, _SUFFIX, _applied_to, output)
    notes = [note] if note else []
    steps = steps_of([recover] if isinstance(recover, str) else recover)
    _check(ranges, data, io_type, weight_range, steps, strict=strict, partial=partial)
    check_method(calibration)
    check_output_folder(folder)
    OutputFolder(folder).check_spares(path, source)
    OutputFolder(folder).check_is_own()
    OutputFolder(folder).check_holds_no_result()
    file = read_placement(source)
    scheme = in_weight_range(file.scheme, weight_range)
    chosen, named = _bases(file, base, pack)
    file = replace(file, base=named, scheme=scheme)
    given = None if data is None else text_of_source(data)
    fixed = with_shapes_of_data(path, optima(given_ranges(shapes)), given)
    original, samples = _float_model(path, fixed, given, _pack_name(file, pack), steps, notes)
    loaded = with_opset(original, FLOAT8_OPSET) if scheme.has_float8 else original
    transferred = transfer_placement(file, loaded)
    notes += notes_on_losses(transferred, source, loaded, strict=strict, partial=partial)
    if loaded.imported is not None:
        notes.append(f"{path} is quantized already; the placement replaces its pairs")
        # Among them pairs that stay as arithmetic, which no estimate of the placement counts.
        notes += loaded.imported.notes
    is_kept = given is None or ranges == "kept"
    is_covered = is_kept and not without_range(transferred, loaded)
    dataset = None if given is None or is_covered else _dataset(given, loaded, notes)
    kept = transferred.ranges if is_kept else {}
    scales = _scales(transferred, file, loaded, dataset, calibration, cache, kept)
    if kept:
        notes += _notes_on_ranges(file, loaded, asked=ranges is not None)
    done = Recovered(loaded, scales, None)
    if steps and dataset is not None:
        done = recovered_model(loaded, transferred, scales, scheme, dataset, steps)
    if weight_range == "auto":
        notes += _notes_on_products(file, pack)
    new_sites = _new_sites(transferred, loaded, pack, file, notes)
    proto = quantized_model(done.model, transferred.placement, done.scales, scheme, chosen, io_type)
    name_origin(proto, transferred.placement.id, file.pack, done.scales.calibrated)
    name_base(proto, file.base)
    sqnr = None
    if samples is not None:
        sqnr = distance(original, proto, samples, done.scales.ranges, notes)
    result = AppliedModel(
        file, loaded, transferred, scales, new_sites, tuple(notes), folder, sqnr, done.part
    )
    _write(result, proto)
    return result


def _pack_name(file: PlacementFile, pack: str | None) -> str:
    """``pack``, by default the one that the placement was made with."""
    return pack or file.pack.split()[0]


def _float_model(
    path: Path,
    shapes: Mapping[str, tuple[int, ...]],
    data: str | None,
    pack: str,
    steps: Sequence[str],
    notes: list[str],
) -> tuple[Model, Dataset | None]:
    """The float model at ``path``, recovered if it is quantized, and what it is compared on.

    That is None, with a note, where inputs cannot be made up and no data is given.
    """
    # Ranges that are kept need no run of the model.
    model = load_model(path, shapes, bodies=enters_bodies(pack), plugins=data is None)
    if steps and model.graph.scopes:
        raise InputError(
            f"{path}: `recover` does not enter the bodies of If, Loop and Scan; leave it out"
        )
    try:
        samples = samples_of(data, model)
    except InputError as error:
        if data is not None or model.imported is not None:
            raise
        notes.append(f"the result is not compared with {path}: {error}")
        return model, None
    if model.imported is not None:
        model, _ = recovered(model, samples)
    else:
        check_same_function(model, samples)  # Where it cannot be told, a note says so at the end.
    return model, samples


def _write(result: AppliedModel, proto: ModelProto) -> None:
    is_new = not result.folder.exists()
    make_output_folder(result.folder)
    try:
        target = OutputFolder(result.folder).model
        with locked(result.folder), written_together(target) as draft:
            files = OutputFolder(draft.parent)
            save_model(proto, result.model.base_dir, files.model)
            write_text(files.placement, _placement_text(result))
            write_text(files.applied, json.dumps(result.to_json(), indent=2) + "\n")
    except BaseException:
        if is_new:
            remove_if_empty(result.folder)
        raise


def _bases(file: PlacementFile, base: str | None, pack: str | None) -> tuple[Base, str | None]:
    """The type that the model is converted to, and what its metadata name to the engine.

    A placement that names a type is for an engine that computes a float model in it.
    """
    if file.base is None:
        return parse_base(base or _default_base(_pack_name(file, pack))), None
    asked = parse_base(base or file.base)
    return (asked, None) if asked == "float16" else ("float", asked)


def _default_base(pack: str) -> Base:
    """The type that the engine of ``pack`` takes for what is not quantized.

    Where a pack is not to be had, float is right everywhere.
    """
    try:
        types = load_pack(pack).manifest.behaviour.types
    except InputError:
        return "float"
    return "float16" if types == "written" else "float"


def _applied_to(folder: Path) -> Path | None:
    """The model that the apply.json in ``folder`` is about; None if it does not tell."""
    with suppress(OSError, ValueError):
        content = json.loads(OutputFolder(folder).applied.read_text(encoding="utf-8"))
        name = content.get("model") if isinstance(content, dict) else None
        return Path(name) if isinstance(name, str) else None
    return None


def _check(
    ranges: str | None,
    data: object,
    io_type: str,
    weight_range: str,
    steps: Sequence[str],
    *,
    strict: bool,
    partial: bool,
) -> None:
    if ranges not in (None, *RANGES):
        raise InputError(unknown("ranges", ranges, RANGES))
    if io_type not in _TYPES:
        raise InputError(unknown("io type", io_type, _TYPES))
    if weight_range not in _WEIGHT_RANGES:
        raise InputError(unknown("weight range", weight_range, _WEIGHT_RANGES))
    if ranges == "calibrated" and data is None:
        raise InputError("calibrated ranges need data; give `data`")
    if steps and data is None:
        raise InputError("`recover` needs data; give `data`")
    if steps and ranges == "kept":
        raise InputError("`recover` needs calibrated ranges; leave out `ranges` or `recover`")
    if strict and partial:
        raise InputError("`strict` refuses what `partial` takes; give one of them")


def _notes_on_ranges(file: PlacementFile, model: Model, *, asked: bool) -> Iterator[str]:
    """Why ranges that are kept may not fit ``model``; ``asked``: that they are was asked for.

    As after training with them. Whether they rest on data is another question. What explain
    improves of a quantized file names no model, and its ranges are that file's.
    """
    if file.model and not asked and not _has_its_weights(model, file):
        yield (
            "ranges are of the weights that the placement was made with; "
            "give `data` to calibrate this model"
        )
    if file.model and not file.calibrated:
        fix = "give `data`, and leave out `ranges`" if asked else "give `data`"
        yield f"ranges of the placement rest on random inputs; {fix}"


def _has_its_weights(model: Model, file: PlacementFile) -> bool:
    """Whether ``model`` has the weights that the placement was made with.

    A quantized file and the float model recovered from it have the same, in files that differ.
    """
    return file.model == model.fingerprint or file.weights == model.weights_digest()


def _notes_on_products(file: PlacementFile, pack: str | None) -> Iterator[str]:
    """What weights of full range are multiplied to on this machine's processor."""
    try:
        rules = load_pack(_pack_name(file, pack))
    except InputError:
        return
    is_full = file.scheme.weight == "int8" and file.scheme.weight_range == "full"
    if is_full and rules.saturates_on(this_processor()):
        yield (
            f"weights have their full range, and on this processor {rules.manifest.engine}'s sums "
            "of products saturate; for processors without VNNI give `weight_range` reduced"
        )


def _scales(
    transferred: Transferred,
    file: PlacementFile,
    model: Model,
    data: Dataset | None,
    method: str,
    cache: bool,
    kept: Ranges,
) -> Scales:
    if data is None:
        return kept_scales(transferred, file, model)
    folder = default_cache_dir() if cache else None
    return calibrated_scales(transferred, file, model, data, method, folder, kept)


def _dataset(data: str, model: Model, notes: list[str]) -> Dataset:
    dataset = load_dataset(data, model)
    dataset.check_informative()
    dataset = dataset.limit(load_preset("default").calibration_samples)
    notes += dataset.notes
    return dataset


def _new_sites(
    transferred: Transferred, model: Model, pack: str | None, file: PlacementFile, notes: list[str]
) -> tuple[str, ...]:
    if not transferred.new_nodes:
        return ()
    try:
        rules = load_pack(_pack_name(file, pack)).rules
    except InputError as error:
        if pack is not None:
            raise
        notes.append(f"sites of new nodes are not listed: {error}")
        return ()
    new = set(transferred.new_nodes)
    target = Target(integer=file.scheme.integer, processor=this_processor())
    sites = find_sites(model.graph, rules, target)
    return tuple(site.name for site in sites if site.match.anchor.name in new)


def _placement_text(result: AppliedModel) -> str:
    return placement_text(
        result.applied.placement,
        result.scales.ranges,
        result.file.scheme,
        model=result.model.fingerprint,
        pack=result.file.pack,
        calibrated=result.scales.calibrated,
        graph=result.model.graph,
        pinned=result.applied.pinned,
        base=result.file.base,
        weights=result.model.weights_digest(),
    )
