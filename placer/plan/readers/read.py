"""Actual plans from the files that engines leave: the format is recognised by content.

TensorRT's inspector names a layer after the ONNX nodes, weights and helpers that it fused, and
since version 10 gives the ONNX nodes in a field of their own. Field names of TensorRT 11:
https://docs.nvidia.com/deeplearning/tensorrt/11.0.0/api/migration/tensorrt-10x-to-11x-IEngineInspector.html
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from placer.common.files import read_bytes
from placer.errors import InputError
from placer.plan.json_format import parse_plan
from placer.plan.plan import Plan
from placer.plan.readers.onnx_graph import onnx_plan
from placer.plan.readers.rtx_log import logged_layers
from placer.plan.readers.tensorrt_inspector import inspector_layers, inspector_name, named_layer
from placer.plan.readers.tensorrt_log import printed_entries
from placer.plan.readers.trtexec_profile import printed_times, profile_times, with_times

_KNOWN = "a TensorRT layer info JSON, profile or log, an ONNX file or a placer plan"


def read_plan(path: Path, profile: Path | None = None) -> Plan:
    """Read the plan in ``path``; ``profile`` adds the times of trtexec's ``--exportProfile``.

    ``path`` is the JSON of TensorRT's engine inspector (``trtexec --exportLayerInfo``, versions
    8 to 11), of a whole engine or layer by layer; a profile (names and times only); a log of
    TensorRT, trtexec, polygraphy or TensorRT-RTX that lists layers; an ONNX file such as ONNX
    Runtime's optimized model; or placer's own plan. ``profile`` may be a log of trtexec, too.
    Where the engine tells names only, types are empty. Raises InputError if ``path`` is none of
    these, or if ``profile`` is none or of another engine.
    """
    plan = _parse(_bytes(path), path)
    if profile is None:
        return plan
    return with_times(plan, _times(_text(_bytes(profile)) or "", profile), path, profile)


def _times(text: str, profile: Path) -> list[tuple[str, float]]:
    printed = printed_times(text)
    if printed:
        return printed
    document = _json(text, profile)
    if not isinstance(document, list):
        raise InputError(f"{profile} is not a profile; give the JSON of trtexec --exportProfile")
    return profile_times(document, profile)


def _bytes(path: Path) -> bytes:
    field = "model_bytes" if path.suffix == ".onnx" else "json_bytes"
    return read_bytes(path, _KNOWN, field)


def _text(data: bytes) -> str | None:
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError:
        return None


def _parse(data: bytes, path: Path) -> Plan:
    text = _text(data)
    if text is not None:
        plan = _log_plan(text, path)
        if plan is not None:
            return plan
        separate = _separate_objects(text)
        if separate:
            return Plan(tuple(inspector_layers(separate, path)), "TensorRT inspector")
        if text.lstrip()[:1] in ("{", "["):
            return _json_plan(_json(text, path), path)
    plan = onnx_plan(data)
    if plan is None:
        raise InputError(f"{path} is not a plan; give {_KNOWN}")
    return plan


def _log_plan(text: str, path: Path) -> Plan | None:
    entries = printed_entries(text)
    if entries:
        plan = Plan(tuple(inspector_layers(entries, path)), "TensorRT log")
        names = {layer.name for layer in plan.layers}  # Scripts print other times, too.
        times = [(name, time) for name, time in printed_times(text) if name in names]
        return with_times(plan, times, path, path)
    logged = tuple(logged_layers(text))
    if logged:
        return Plan(logged, "TensorRT-RTX build log")
    return _profile_plan(printed_times(text))


def _profile_plan(times: Sequence[tuple[str, float]]) -> Plan | None:
    layers = tuple(named_layer(name, time) for name, time in times)
    return Plan(layers, "TensorRT profile") if layers else None


def _separate_objects(text: str) -> list[Any]:
    """The inspector's JSON of single layers, where a script printed one after the other."""
    decoder, objects, position = json.JSONDecoder(strict=False), list[Any](), text.find("{")
    while position >= 0:
        try:
            entry, position = decoder.raw_decode(text, position)
        except (ValueError, RecursionError):
            return []
        if "Name" not in entry or "LayerType" not in entry:
            return []
        objects.append(entry)
        position = text.find("{", position)
    return objects


def _json(text: str, path: Path) -> Any:
    try:
        # Metadata holds control characters, which TensorRT does not always escape.
        return json.loads(text, strict=False)
    except json.JSONDecodeError as error:
        raise InputError(
            f"{path} is not valid JSON ({error.msg}, line {error.lineno}); export it again"
        ) from error
    except (RecursionError, ValueError) as error:  # Deep nesting; numbers of thousands of digits.
        raise InputError(f"{path} is not a plan: its JSON goes too far; export it again") from error


def _json_plan(document: Any, path: Path) -> Plan:
    if isinstance(document, list):
        if document and isinstance(document[0], dict) and "LayerType" in document[0]:
            return Plan(tuple(inspector_layers(document, path)), "TensorRT inspector")
        times = profile_times(document, path)
        return Plan(tuple(named_layer(name, time) for name, time in times), "trtexec profile")
    if "format" in document:
        return parse_plan(document, str(path))
    if isinstance(document.get("Layers"), list):
        return Plan(tuple(inspector_layers(document["Layers"], path)), inspector_name(document))
    raise InputError(f"{path} has no field 'Layers'; give {_KNOWN}")
