"""Actual plans from the files that engines leave: the format is recognised by content.

TensorRT's inspector names a layer after the ONNX nodes, weights and helpers that it fused, and
since version 10 gives the ONNX nodes in a field of their own. Field names of TensorRT 11:
https://docs.nvidia.com/deeplearning/tensorrt/11.0.0/api/migration/tensorrt-10x-to-11x-IEngineInspector.html
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from placer.common.files import read_bytes
from placer.errors import InputError
from placer.plan.json_format import parse_plan
from placer.plan.plan import Layer, Plan
from placer.plan.readers.onnx_graph import onnx_plan
from placer.plan.readers.rtx_log import logged_layers
from placer.plan.readers.tensorrt_inspector import inspector_layers, inspector_name
from placer.plan.readers.trtexec_profile import profile_times, with_times

_KNOWN = "a TensorRT layer info JSON, a TensorRT-RTX build log, an ONNX file or a placer plan"


def read_plan(path: Path, profile: Path | None = None) -> Plan:
    """Read the plan in ``path``; ``profile`` adds the times of trtexec's ``--exportProfile``.

    ``path`` is the JSON of TensorRT's engine inspector (``trtexec --exportLayerInfo``, versions
    8 to 11), such a profile (names and times only), a verbose build log of TensorRT-RTX, an ONNX
    file such as ONNX Runtime's optimized model, or placer's own plan. Raises InputError if it is
    none of these, lacks the layers' details, or if ``profile`` is of another engine.
    """
    plan = _parse(_bytes(path), path)
    if profile is None:
        return plan
    document = _json(_text(_bytes(profile)) or "", profile)
    if not isinstance(document, list):
        raise InputError(f"{profile} is no profile; give the JSON of trtexec --exportProfile")
    return with_times(plan, profile_times(document, profile), path, profile)


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
        logged = tuple(logged_layers(text))
        if logged:
            return Plan(logged, "TensorRT-RTX build log")
        if text.lstrip()[:1] in ("{", "["):
            return _json_plan(_json(text, path), path)
    plan = onnx_plan(data)
    if plan is None:
        raise InputError(f"{path} is no plan; give {_KNOWN}")
    return plan


def _json(text: str, path: Path) -> Any:
    try:
        # Metadata holds control characters, which TensorRT does not always escape.
        return json.loads(text, strict=False)
    except json.JSONDecodeError as error:
        raise InputError(
            f"{path} is not valid JSON ({error.msg}, line {error.lineno}); export it again"
        ) from error
    except (RecursionError, ValueError) as error:  # Deep nesting; numbers of thousands of digits.
        raise InputError(f"{path} is no plan: its JSON goes too far; export it again") from error


def _json_plan(document: Any, path: Path) -> Plan:
    if isinstance(document, list):
        times = profile_times(document, path)
        return Plan(tuple(Layer(n, "", (), time_us=t) for n, t in times), "trtexec profile")
    if "format" in document:
        return parse_plan(document, str(path))
    if isinstance(document.get("Layers"), list):
        return Plan(tuple(inspector_layers(document["Layers"], path)), inspector_name(document))
    raise InputError(f"{path} has no field 'Layers'; give {_KNOWN}")
