"""ONNX Runtime sessions on the CPU, for calibration and for the engine."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TypeAlias

import numpy as np
import onnx.defs
import onnxruntime as ort
from onnxruntime.capi import onnxruntime_pybind11_state as ort_errors

from placer.common.custom_ops import custom_op_libraries
from placer.common.limits import Limits, how_to_lift, in_bytes
from placer.common.processor import this_processor
from placer.common.run_limits import Runner, headroom
from placer.errors import InputError, LimitError, RunError

ORT_ERRORS = (
    ort_errors.Fail,
    ort_errors.InvalidArgument,
    ort_errors.InvalidGraph,
    ort_errors.InvalidProtobuf,
    ort_errors.NotImplemented,
    ort_errors.RuntimeException,
    RuntimeError,
)
# How ONNX Runtime says that an allocation failed, which has no error class of its own.
_NO_MEMORY = re.compile(r"bad_?alloc|[Ff]ailed to allocate")
# How its list of kernels writes a tensor's type, and how many types are few enough to be named.
_TENSOR = re.compile(r"tensor\((\w+)\)")
_FEW_TYPES = 4
# How it says that an index lies outside of a tensor: Gather and ScatterElements, GatherElements
# GatherND and ScatterND. The node's name comes before.
_BAD_INDEX = re.compile(
    r"Name:'(?P<node>[^']*)' Status Message: .*?(?P<what>indices element out of data bounds.*"
    r"|GatherElements op: (?:Out of range value|Value in indices).*|invalid ind(?:ex|ice) found.*)"
)
# A file and line of ONNX Runtime's sources, and a function's signature, or without a path its name.
_IN_SOURCES = re.compile(
    r"[^\s:]*/onnxruntime_src/\S+:\d+ (?:[\w:&*<> ]*::\w+\(.*?\) )?|\b\w+\.(?:cc|h):\d+ \w+ "
)
# The candidate's file that ONNX Runtime reads is a temporary one, of which no reader knows.
_OF_FILE = re.compile(r"Load model from .*? failed: ?")
# Builds of ONNX Runtime that have telemetry report models and their files: see SECURITY.md.
if not os.environ.get("PLACER_ONNXRUNTIME_TELEMETRY"):
    ort.disable_telemetry_events()

# Whatever ONNX Runtime logs outside of a session, such as a size that overflows, it raises as well.
ort.set_default_logger_severity(4)

# How many times as long as one run it may take to load a model.
LOADING_RUNS = 4

# Readies options for other providers than the CPU's and names those to give to the session: none
# if the options hold their devices already.
Use: TypeAlias = Callable[[ort.SessionOptions], Sequence[str | tuple[str, dict[str, str]]]]

# kOrtSessionOptionsAvx2PrecisionMode: on x86 without VNNI, int8 weights become uint8, whose kernels
# do not add pairs of products in 16 bits.
_EXACT_PRODUCTS = "session.x64quantprecision"
_EXTERNAL_FOLDER = "session.model_external_initializers_file_folder_path"
# Where large constants of an optimized model are written, so that to read it takes no copies.
_DATA_OF_OPTIMIZED = "session.optimized_model_external_initializers_file_name"
_LEAST_OF_OPTIMIZED = "session.optimized_model_external_initializers_min_size_in_bytes"
_LARGE = 1 << 20


class Session:
    """ONNX Runtime's ``own`` session with the limits of its runs, and what makes them."""

    def __init__(self, own: ort.InferenceSession, runner: Runner | None = None) -> None:
        self.own = own
        self.limits = Limits.from_environment()
        self.runner = runner or Runner()


def create_session(
    source: bytes | Path,
    base_dir: Path,
    *,
    threads: int,
    level: ort.GraphOptimizationLevel,
    optimized_path: Path | None = None,
    profile_prefix: Path | None = None,
    use: Use | None = None,
    entries: Mapping[str, str] | None = None,
    exact: bool = True,
) -> Session:
    """Return a session of a model whose external data is relative to ``base_dir``.

    ``source``: the serialized model, or its file if all data is in there or beside it.
    ``optimized_path``: where to write the optimized model. ``profile_prefix``: how the name of the
    file begins that ONNX Runtime writes its profile to. ``use``: the execution providers, the CPU's
    alone if None. ``entries``: of the session's configuration. ``exact``: no sums of products of
    integers saturate, whatever the processor, which takes time on some; else they do as they do in
    a session of ONNX Runtime's defaults. Custom operators are those of
    ``placer.common.custom_ops``. Raises RunError with ONNX Runtime's reason if it refuses the model
    or a library, LimitError if the CPU's provider takes too long, as it may to compute constants.
    """
    config = {_EXTERNAL_FOLDER: str(base_dir)}
    if exact and this_processor().exact_products is not True:
        config[_EXACT_PRODUCTS] = "1"
    options = _options(threads, level, {**config, **(entries or {})})
    if optimized_path is not None:
        options.optimized_model_filepath = str(optimized_path)
        options.add_session_config_entry(_DATA_OF_OPTIMIZED, f"{optimized_path.name}.data")
        options.add_session_config_entry(_LEAST_OF_OPTIMIZED, str(_LARGE))
    if profile_prefix is not None:
        options.enable_profiling = True
        options.profile_file_prefix = str(profile_prefix)
    seconds = LOADING_RUNS * Limits.from_environment().run_s
    _load_custom_ops(options)
    try:
        providers = ["CPUExecutionProvider"] if use is None else list(use(options))
        # Else a provider that fails is replaced by another one, with no more than a printed line.
        load = partial(
            ort.InferenceSession,
            source,
            options,
            providers=providers or None,
            enable_fallback=0,
        )
        if use is not None:  # Providers that build engines take minutes.
            return Session(_without_message(load()))
        runner = Runner()
        own = runner.run(load, seconds, partial(_cancel, options))
        return Session(_without_message(own), runner)
    except ORT_ERRORS as error:
        raise RunError(f"ONNX Runtime refuses the model: {_with_fix(one_line(error))}") from error
    except TimeoutError as error:
        lift = how_to_lift("run_s", 10 * seconds // LOADING_RUNS)
        raise LimitError(
            f"ONNX Runtime took more than {seconds} s to load the model; {lift}"
        ) from error


def _with_fix(reason: str) -> str:
    """ONNX Runtime's ``reason`` to refuse a model, with what to do about it where that is known."""
    if "Could not find an implementation" in reason:
        is_quantized = re.search(r"for \w*(Quantize|Linear|Integer|QGemm)\w*\(", reason)
        fix = "export the model in float32"
        if is_quantized:
            fix = "quantize its float model anew (placer import recovers it)"
        return f"{reason}, for it has none {_lacking(reason, fix)}"
    if "is not a registered function/op" in reason and " com.microsoft:" not in reason:
        quantizes = re.search(r":\w*quant\w*\(", reason, re.IGNORECASE)
        fix = "placer import may recover a float model that it runs; or " if quantizes else ""
        return f"{reason}; {fix}give the library that has this operator to `custom_ops`"
    return reason


def _lacking(reason: str, fix: str) -> str:
    """Of which operator or types ONNX Runtime has no kernel, by its own list, and what to do."""
    named = re.search(r"for (\w+)\((\d+)\) node", reason)
    if named is None or not hasattr(ort_errors, "get_all_opkernel_def"):
        return f"for tensors of these types; {fix}"
    operator, version = named[1], int(named[2])
    of_operator = [k for k in ort_errors.get_all_opkernel_def() if k.op_name == operator]
    if not of_operator:
        return f"of {operator} for any type; replace the node by other operators"
    kernels = [k for k in of_operator if k.version_range[0] <= version <= k.version_range[1]]
    if not kernels:
        return f"of version {version} of {operator}; export the model with another opset"
    types: dict[str, set[str]] = {}
    for kernel in kernels:
        for name, taken in kernel.type_constraints.items():
            types.setdefault(name, set()).update(taken)
    few = [name for name, taken in types.items() if len(taken) <= _FEW_TYPES]
    if len(few) != 1:  # Of several types not all combinations may be there.
        return f"for tensors of these types; {fix}"
    taken = " or ".join(sorted(_TENSOR.sub(r"\1", name) for name in types[few[0]]))
    tensors = _tensors_of(operator, version, few[0])
    return f"for tensors of these types, only for {tensors} in {taken}; {fix}"


def _tensors_of(operator: str, version: int, constraint: str) -> str:
    """What ONNX calls the tensors of a type constraint; of other operators, the constraint."""
    if not onnx.defs.has(operator, version):
        return constraint
    schema = onnx.defs.get_schema(operator, version)
    named = [p.name for p in (*schema.inputs, *schema.outputs) if p.type_str == constraint]
    return ", ".join(dict.fromkeys(named)) or constraint


def _without_message(own: ort.InferenceSession) -> ort.InferenceSession:
    """``own`` without the serialized model, which its Python class would hold as long as it is."""
    own._model_bytes = None
    return own


def _options(
    threads: int, level: ort.GraphOptimizationLevel, entries: Mapping[str, str]
) -> ort.SessionOptions:
    options = ort.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.log_severity_level = 4  # Errors are raised; they are not to be printed besides.
    options.graph_optimization_level = level
    for key, value in entries.items():
        options.add_session_config_entry(key, value)
    return options


def _load_custom_ops(options: ort.SessionOptions) -> None:
    for library in custom_op_libraries():
        try:
            options.register_custom_ops_library(library)
        except ORT_ERRORS as error:
            raise RunError(f"ONNX Runtime cannot load {library}: {one_line(error)}") from error


def _cancel(options: ort.SessionOptions) -> None:
    """Stop the loading of a model; ONNX Runtime before 1.21 has no way to do it."""
    if hasattr(options, "set_load_cancellation_flag"):
        options.set_load_cancellation_flag(True)


def run_once(
    session: Session,
    outputs: Sequence[str] | None,
    inputs: Mapping[str, np.ndarray],
    what: str = "the model",
) -> list[np.ndarray]:
    """Values of ``outputs`` (None: all), within ``Limits.run_s`` and ``Limits.run_bytes``.

    ONNX Runtime looks between nodes whether it shall stop; one node that does not end is left
    behind in its thread. Raises LimitError if the run of ``what`` takes more, RunError with the
    reason if it fails.
    """
    options = ort.RunOptions()
    options.log_severity_level = 4  # Errors are raised; they are not to be printed besides.

    def run() -> list[np.ndarray]:
        values: list[np.ndarray] = session.own.run(outputs, dict(inputs), options)
        return values

    try:
        with headroom(session.limits.run_bytes):
            stop = partial(setattr, options, "terminate", True)
            return session.runner.run(run, session.limits.run_s, stop)
    except (*ORT_ERRORS, MemoryError, TimeoutError) as error:
        raise _failed_run(error, session.limits, what) from error


def _failed_run(error: Exception, limits: Limits, what: str) -> RunError:
    if isinstance(error, TimeoutError):
        lift = how_to_lift("run_s", 10 * limits.run_s)
        return LimitError(f"one run of {what} took more than {limits.run_s} s; {lift}")
    if isinstance(error, MemoryError) or _NO_MEMORY.search(str(error)):
        lift = how_to_lift("run_bytes", 4 * limits.run_bytes)
        return LimitError(
            f"one run of {what} needs more than {in_bytes(limits.run_bytes)} of memory, or more "
            f"than there is; lower the batch, or {lift}"
        )
    return RunError(f"ONNX Runtime failed to run {what}: {one_line(error)}")


@contextmanager
def blamed_on(sample: str) -> Iterator[None]:
    """Raise InputError for a run that fails since ``sample`` makes an index out of range.

    What a node looks up may be computed, so that only a run shows it.
    """
    try:
        yield
    except RunError as error:
        match = _BAD_INDEX.search(str(error))
        if match is None:
            raise
        raise InputError(
            f"{sample} makes an index out of range at node '{match['node']}': {match['what']}; "
            "give data made for this model"
        ) from error


def one_line(error: BaseException) -> str:
    """The error's message without line breaks, nor which file it read and where it is raised."""
    return _IN_SOURCES.sub("", _OF_FILE.sub("", " ".join(str(error).split())))
