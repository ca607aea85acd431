"""What was written is compared with its source, on data that the command never saw."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort

from tests.fuzz.outcome import Case, Outcome

# The gate is on other data; below this the output is another one.
_LEAST_SQNR = 0.0


def verdict(case: Case, outcome: Outcome, folder: Path) -> Outcome:
    """``outcome``, or a false success with the reason."""
    if outcome.kind != "success":
        return outcome
    source, written = folder / "net.onnx", folder / "part.onnx"
    if case.command[0] == "optimize":
        written = folder / "out" / "optimized.onnx"
    if case.command[0] not in ("optimize", "extract") or not written.is_file():
        return outcome
    exact = case.command[0] == "extract" and "--outputs" in case.command
    if case.command[0] == "extract" and not exact:
        return outcome
    problem = _difference(source, written, "y" if exact else None, "--inputs" in case.command)
    return replace(outcome, kind="false success", text=problem) if problem else outcome


def _difference(source: Path, written: Path, only: str | None, is_inner: bool) -> str:
    """Why ``written`` is no replacement of ``source``; empty if it is, or cannot be told."""
    try:
        before = _session(source)
        names = [only] if only else [o.name for o in before.get_outputs()]
        inputs = _inputs(before)
        expected = before.run(names, inputs)
    except Exception:  # The source itself does not run.
        return ""
    if is_inner:  # Its inputs are tensors inside of the source.
        return ""
    try:
        after = _session(written)
        taken = {i.name for i in after.get_inputs()}
        found = after.run(names, {n: v for n, v in inputs.items() if n in taken})
    except Exception as error:
        return f"the source runs, what was written does not: {error}"
    for name, wanted, got in zip(names, expected, found, strict=True):
        if not isinstance(wanted, np.ndarray) or wanted.dtype.kind != "f":
            continue
        if wanted.shape != got.shape:
            return f"output '{name}' has shape {got.shape}, in the source {wanted.shape}"
        if only is None and _sqnr(wanted, got) < _LEAST_SQNR:
            return f"output '{name}' has {_sqnr(wanted, got):.1f} dB"
        if only and not np.allclose(wanted, got, rtol=1e-3, atol=1e-5, equal_nan=True):
            return f"output '{name}' differs"
    return ""


def _session(path: Path) -> ort.InferenceSession:
    options = ort.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    model = onnx.load_model_from_string(path.read_bytes())
    if any(n.op_type.startswith(("Random", "Loop")) for n in model.graph.node):
        raise ValueError("random, or without an end")
    return ort.InferenceSession(path, options, providers=["CPUExecutionProvider"])


def _inputs(session: ort.InferenceSession) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(99)
    values = {}
    for value in session.get_inputs():
        shape = [d if isinstance(d, int) else 1 for d in value.shape]
        if value.type == "tensor(float)":
            values[value.name] = rng.standard_normal(shape).astype("f4")
        elif value.type == "tensor(bool)":
            values[value.name] = np.asarray(rng.random(shape) > 0.5)
        else:
            raise ValueError(value.type)
    return values


def _sqnr(wanted: np.ndarray, got: np.ndarray) -> float:
    """Signal to noise in dB; infinite where the source itself is not finite."""
    if not np.isfinite(wanted).all():
        return np.inf
    signal, noise = np.square(wanted, dtype="f8").sum(), np.square(got - wanted, dtype="f8").sum()
    return np.inf if noise == 0 or signal == 0 else float(10 * np.log10(signal / noise))
