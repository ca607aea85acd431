"""Where a written model comes from, as its metadata say it."""

from __future__ import annotations

import onnx

PLACEMENT_PROPERTY = "placer.placement"
PACK_PROPERTY = "placer.pack"
CALIBRATED_PROPERTY = "placer.calibrated"


def name_origin(model: onnx.ModelProto, placement: str, pack: str, calibrated: bool) -> None:
    """Say in the metadata of ``model``, beside what they say already, how it was made.

    ``placement``: the placement's identity. ``pack``: the rule pack's name and version.
    ``calibrated``: whether its scales rest on data that was given.
    """
    properties = {entry.key: entry.value for entry in model.metadata_props}
    properties[PLACEMENT_PROPERTY] = placement
    properties[PACK_PROPERTY] = pack
    properties[CALIBRATED_PROPERTY] = str(calibrated).lower()
    onnx.helper.set_model_props(model, properties)


def named_pack(model: onnx.ModelProto) -> str | None:
    """Name and version of the rule pack that ``model`` was made with; None if it does not tell."""
    return _named(model, PACK_PROPERTY)


def named_placement(model: onnx.ModelProto) -> str | None:
    """Identity of the placement that ``model`` was made with; None if it does not tell."""
    return _named(model, PLACEMENT_PROPERTY)


def _named(model: onnx.ModelProto, key: str) -> str | None:
    return next((entry.value for entry in model.metadata_props if entry.key == key), None)
