"""A stand-in for TensorRT's Python module, as much of it as placer uses: builds, runs, refuses.

It takes ONNX models of the operators in lowering.py and computes them in float32 with one kernel of
its own per node, on the stream and the addresses that it is given. It refuses what TensorRT's
documentation says is refused: missing addresses, shapes outside of the profile, foreign engines.
A plugin library is a text file: one operator per line, which copies its first input.
``PLACER_STANDIN_FAILS`` names parts, separated by commas, that fail as an exception.

It says nothing of what TensorRT builds or how fast that is.
"""

import ctypes
import enum
import json
import os
import pickle

import numpy as np
import onnx
from onnx import TensorProto, numpy_helper

from placer.engines.cuda.api import call, runtime
from placer.engines.cuda.memory import DeviceBuffer, Event, Stream

from .inputs import Profile, Tensor, shape_inputs
from .launch import ILLEGAL, launch, parameters
from .lowering import KNOWN, Call, lower
from .nonzero import IOutputAllocator as IOutputAllocator
from .nonzero import run as run_nonzero
from .plugins import PluginRegistry, registry
from .runtime_cache import RuntimeConfig

__version__ = "10.13.0"
_MAGIC = b"standin10"
_TYPES = {1: "FLOAT", 7: "INT64", 22: "INT4"}
# Graphs of this name make a kernel that the builder tries write to where it must not.
BREAKS_THE_GPU = "breaks the GPU"


def _fail(part: str) -> None:
    if part in os.environ.get("PLACER_STANDIN_FAILS", "").split(","):
        raise RuntimeError(f"the stand-in's {part} fails, as it was told to")


def _enum(name: str, *members: str) -> enum.EnumMeta:
    return enum.IntEnum(name, {member: number for number, member in enumerate(members)})


NetworkDefinitionCreationFlag = _enum("Flag", "EXPLICIT_BATCH", "STRONGLY_TYPED")
BuilderFlag = _enum("BuilderFlag", "FP16", "INT8")
ProfilingVerbosity = _enum("ProfilingVerbosity", "LAYER_NAMES_ONLY", "NONE", "DETAILED")
MemoryPoolType = _enum("MemoryPoolType", "WORKSPACE")
LayerInformationFormat = _enum("LayerInformationFormat", "ONELINE", "JSON")
TensorIOMode = _enum("TensorIOMode", "NONE", "INPUT", "OUTPUT")
TensorLocation = _enum("TensorLocation", "DEVICE", "HOST")
DataType = _enum("DataType", "FLOAT", "INT64", "INT4")
TensorFormat = _enum("TensorFormat", "LINEAR", "CHW32")
EngineStat = _enum("EngineStat", "TOTAL_WEIGHTS_SIZE", "STRIPPED_WEIGHTS_SIZE")


def nptype(dtype: object) -> type:
    known = {DataType.FLOAT: np.float32, DataType.INT64: np.int64}
    if dtype not in known:
        raise TypeError("Could not resolve TensorRT datatype to an equivalent numpy datatype.")
    return known[dtype]


class ILogger:
    """The user's logger derives from it."""

    INTERNAL_ERROR, ERROR, WARNING, INFO, VERBOSE = range(5)


class IProfiler:
    """The user's profiler derives from it."""


class IInt8EntropyCalibrator2:
    """The user's calibrator derives from it."""


class _Error:
    def __init__(self, node: onnx.NodeProto) -> None:
        self._node = node

    def node_name(self) -> str:
        return self._node.name

    def node_operator(self) -> str:
        return self._node.op_type

    def func(self) -> str:
        return "parse"

    def desc(self) -> str:
        return f"the stand-in has no operator {self._node.op_type}"


def get_plugin_registry() -> PluginRegistry:
    return registry


def init_libnvinfer_plugins(logger: ILogger, namespace: str) -> bool:
    del logger, namespace
    _fail("own plugins")
    registry.operators.add("StandinPlugin_TRT")
    return True


def _unknown(node: onnx.NodeProto) -> bool:
    return node.op_type not in KNOWN | registry.operators


class _Network:
    model: onnx.ModelProto

    @property
    def num_inputs(self) -> int:
        return len(self.model.graph.input)

    def get_input(self, index: int) -> Tensor:
        value = self.model.graph.input[index]
        return Tensor(value, value.name in shape_inputs(self.model))


class OnnxParser:
    """Refuses operators that lowering.py does not know."""

    def __init__(self, network: _Network, logger: ILogger) -> None:
        del logger
        self._network = network
        self._errors: list[_Error] = []

    def parse_from_file(self, path: str) -> bool:
        return self._parsed(onnx.load(path))

    def parse(self, data: bytes) -> bool:
        return self._parsed(onnx.load_model_from_string(data))

    def _parsed(self, model: onnx.ModelProto) -> bool:
        self._network.model = model
        self._errors = [_Error(node) for node in model.graph.node if _unknown(node)]
        return not self._errors

    @property
    def num_errors(self) -> int:
        return len(self._errors)

    def get_error(self, index: int) -> _Error:
        return self._errors[index]


class _TimingCache:
    def __init__(self, data: bytes) -> None:
        self.data = data or b"nothing timed"

    def combine(self, other: "_TimingCache", ignore_mismatch: bool) -> bool:
        return other.data == self.data or ignore_mismatch

    def serialize(self) -> bytes:
        _fail("timing cache")
        return self.data


class _Config:
    profiling_verbosity = builder_optimization_level = int8_calibrator = None

    def __init__(self) -> None:
        self.profiles: list[Profile] = []
        self._cache: _TimingCache | None = None

    def set_memory_pool_limit(self, pool: object, size: int) -> None:
        assert pool in MemoryPoolType and size > 0

    def set_flag(self, flag: object) -> None:
        assert flag in BuilderFlag

    def set_calibration_profile(self, profile: Profile) -> None:
        assert profile in self.profiles

    def add_optimization_profile(self, profile: Profile) -> int:
        for least, best, most in profile.shapes.values():
            if not all(a <= b <= c for a, b, c in zip(least, best, most, strict=True)):
                return -1
        self.profiles.append(profile)
        return len(self.profiles) - 1

    def create_timing_cache(self, data: bytes) -> _TimingCache:
        _fail("timing cache")
        return _TimingCache(data)

    def set_timing_cache(self, cache: _TimingCache, ignore_mismatch: bool) -> bool:
        del ignore_mismatch
        self._cache = cache
        return True

    def get_timing_cache(self) -> _TimingCache | None:
        return self._cache


class Builder:
    """Keeps the model as it is."""

    def __init__(self, logger: ILogger) -> None:
        self._logger = logger

    def create_network(self, flags: int) -> _Network:
        assert flags in (0, 1 << NetworkDefinitionCreationFlag.STRONGLY_TYPED)
        return _Network()

    def create_builder_config(self) -> _Config:
        return _Config()

    def create_optimization_profile(self) -> Profile:
        return Profile()

    def build_serialized_network(self, network: _Network, config: _Config) -> bytes | None:
        if network.model.graph.name == BREAKS_THE_GPU:
            launch("copy", parameters((), ()), 1, [ILLEGAL], ILLEGAL, 0)
            runtime().cudaDeviceSynchronize()
            self._logger.log(
                ILogger.ERROR,
                "Error Code 1: Cuda Runtime (an illegal memory access was encountered)",
            )
            return None
        if config.int8_calibrator is not None:
            _calibrate(config.int8_calibrator, network.model)
        shaping = shape_inputs(network.model)
        inputs = map(network.get_input, range(network.num_inputs))
        if not config.profiles and any(t.is_shape_tensor or -1 in t.shape for t in inputs):
            self._logger.log(
                ILogger.ERROR,
                "Network has dynamic or shape inputs, but no optimization profile has been defined",
            )
            return None
        if any(profile.values.keys() != shaping for profile in config.profiles):
            self._logger.log(ILogger.ERROR, "a profile lacks values, or gives them to other inputs")
            return None
        document = {
            "model": network.model.SerializeToString(),
            "profiles": [profile.shapes for profile in config.profiles],
            "values": [profile.values for profile in config.profiles],
        }
        return _MAGIC + pickle.dumps(document)


def _calibrate(calibrator: object, model: onnx.ModelProto) -> None:
    """Reads each batch from the GPU, as TensorRT would."""
    if calibrator.read_calibration_cache() is not None:
        return
    names = [value.name for value in model.graph.input]
    seen = 0
    while (addresses := calibrator.get_batch(names)) is not None:
        host = np.empty(1, np.float32)
        call(
            "cudaMemcpy",
            host.ctypes.data,
            addresses[0],
            4,
            runtime().cudaMemcpyKind.cudaMemcpyDeviceToHost,
        )
        assert np.isfinite(host).all()
        seen += 1
    calibrator.write_calibration_cache(f"{seen} batches".encode())


class Runtime:
    """Loads what ``Builder`` made."""

    def __init__(self, logger: ILogger) -> None:
        self._logger = logger

    def deserialize_cuda_engine(self, data: bytes) -> "_Engine | None":
        if not data.startswith(_MAGIC):
            self._logger.log(ILogger.ERROR, "Serialization assertion magicTag == got failed")
            return None
        engine = _Engine(bytes(data), self._logger)
        for node in filter(_unknown, engine.model.graph.node):
            self._logger.log(ILogger.ERROR, f"Cannot find plugin: {node.op_type}")
            return None
        return engine


class _Engine:
    def __init__(self, data: bytes, logger: ILogger) -> None:
        document = pickle.loads(data[len(_MAGIC) :])
        self._data, self.logger = data, logger
        self.profiles: list[dict[str, tuple[tuple[int, ...], ...]]] = document["profiles"]
        self.values: list[dict[str, tuple[tuple[int, ...], ...]]] = document["values"]
        self.model = onnx.load_model_from_string(document["model"])
        graph = self.model.graph
        self.constants = {t.name: _array(t) for t in graph.initializer}
        self.io = {v.name: v for v in (*graph.input, *graph.output)}
        self.host = shape_inputs(self.model)
        self.host |= {n.output[0] for n in graph.node if n.op_type == "Shape"}
        metadata = {entry.key: entry.value for entry in self.model.metadata_props}
        # Outputs that are written over an input.
        self.aliased: dict[str, str] = json.loads(metadata.get("standin.aliased", "{}"))
        self.weights = {name: _upload(array) for name, array in self.constants.items()}

    @property
    def num_io_tensors(self) -> int:
        return len(self.io)

    @property
    def num_optimization_profiles(self) -> int:
        return max(1, len(self.profiles))

    @property
    def device_memory_size_v2(self) -> int:
        _fail("memory")
        return 1 << 20

    def get_tensor_name(self, index: int) -> str:
        return list(self.io)[index]

    def get_tensor_mode(self, name: str) -> object:
        inputs = [value.name for value in self.model.graph.input]
        return TensorIOMode.INPUT if name in inputs else TensorIOMode.OUTPUT

    def get_tensor_shape(self, name: str) -> tuple[int, ...]:
        return Tensor(self.io[name]).shape

    def get_tensor_dtype(self, name: str) -> object:
        return DataType[_TYPES[self.io[name].type.tensor_type.elem_type]]

    def get_tensor_format(self, name: str) -> object:
        padded = self.get_tensor_vectorized_dim(name) >= 0
        return TensorFormat.CHW32 if padded else TensorFormat.LINEAR

    def get_tensor_vectorized_dim(self, name: str) -> int:
        assert name in self.io
        return -1

    def get_aliased_input_tensor(self, name: str) -> str | None:
        return self.aliased.get(name)

    def get_engine_stat(self, stat: object) -> int:
        return -1 if stat == EngineStat.STRIPPED_WEIGHTS_SIZE else len(self._data)

    def get_tensor_location(self, name: str) -> object:
        return TensorLocation.HOST if name in self.host else TensorLocation.DEVICE

    def get_tensor_profile_shape(self, name: str, index: int) -> tuple[tuple[int, ...], ...]:
        return self.profiles[index][name]

    def get_tensor_profile_values(self, index: int, name: str) -> list[list[int]]:
        return [list(values) for values in self.values[index][name]]

    def create_runtime_config(self) -> RuntimeConfig:
        return RuntimeConfig()

    def create_execution_context(self, config: RuntimeConfig | None = None) -> "_Context":
        return _Context(self, None if config is None else config.cache)

    def create_engine_inspector(self) -> "_Inspector":
        _fail("inspector")
        return _Inspector(self.model)

    def serialize(self) -> bytes:
        return self._data


class _Inspector:
    def __init__(self, model: onnx.ModelProto) -> None:
        self._model = model

    def get_engine_information(self, form: object) -> str:
        assert form == LayerInformationFormat.JSON
        layers = [{"Name": n.name, "LayerType": n.op_type} for n in self._model.graph.node]
        return json.dumps({"Layers": layers, "Bindings": []})


class _Context:
    """One inference at a time; buffers between the kernels are made with the first one."""

    def __init__(self, engine: _Engine, cache: object = None) -> None:
        self._engine, self._cache = engine, cache
        self._shapes: dict[str, tuple[int, ...]] = {
            v.name: Tensor(v).shape for v in engine.model.graph.input
        }
        self._addresses: dict[str, int] = {}
        self._allocators: dict[str, object] = {}
        self._calls: list[tuple[onnx.NodeProto, list[Call]]] = []
        self._between: dict[str, DeviceBuffer] = {}
        self._profiler: object = None
        self.active_optimization_profile = 0

    @property
    def profiler(self) -> object:
        return self._profiler

    @profiler.setter
    def profiler(self, value: object) -> None:
        _fail("profiler" if value is not None else "profiler removal")
        self._profiler = value

    def set_optimization_profile_async(self, index: int, stream: int) -> bool:
        if stream is None:
            raise TypeError("set_optimization_profile_async(): incompatible function arguments")
        self.active_optimization_profile = index
        return 0 <= index < self._engine.num_optimization_profiles

    def set_input_shape(self, name: str, shape: tuple[int, ...]) -> bool:
        fixed = self._engine.get_tensor_shape(name)
        if len(fixed) != len(shape):
            return False
        if -1 not in fixed:
            return tuple(shape) == fixed
        limits = self._engine.profiles[self.active_optimization_profile][name]
        least, _, most = limits
        if not all(a <= d <= b for a, d, b in zip(least, shape, most, strict=True)):
            return False
        self._shapes[name] = tuple(shape)
        self._calls = []
        return True

    def set_tensor_address(self, name: str, address: int) -> bool:
        self._addresses[name] = address
        self._calls = [] if name in self._engine.host else self._calls
        return name in self._engine.io

    def set_output_allocator(self, name: str, allocator: object) -> bool:
        self._allocators[name] = allocator
        return name in self._engine.io

    def infer_shapes(self) -> list[str]:
        missing = [n for n, shape in self._shapes.items() if -1 in shape]
        shaping = self._engine.host & self._shapes.keys()
        missing += [n for n in shaping if n not in self._addresses]
        if not missing:
            self._lower()
        return missing

    def get_tensor_shape(self, name: str) -> tuple[int, ...]:
        return self._shapes.get(name, self._engine.get_tensor_shape(name))

    def _lower(self) -> None:
        values: dict[str, np.ndarray | None] = dict(self._engine.constants)
        for name in self._engine.host & self._shapes.keys():
            values[name] = _read(self._addresses[name], self._shapes[name])
            self._check_values(name, values[name])
        shapes = {name: tuple(array.shape) for name, array in values.items()} | self._shapes
        self._calls = []
        for node in self._engine.model.graph.node:
            names = [name for name in node.input if name]
            found = lower(node, [shapes[n] for n in names], [values.get(n) for n in names])
            shapes |= {node.output[one.output]: one.shape for one in found}
            self._calls.append((node, found))
        self._shapes |= {v.name: shapes[v.name] for v in self._engine.model.graph.output}
        self._between = {}

    def _check_values(self, name: str, values: np.ndarray) -> None:
        if self._engine.get_tensor_mode(name) == TensorIOMode.OUTPUT:
            return
        least, _, most = self._engine.values[self.active_optimization_profile][name]
        if not all(a <= v <= b for a, v, b in zip(least, values.tolist(), most, strict=True)):
            self._refuse(f"values {values.tolist()} of {name} are outside of the profile")
            raise RuntimeError("infer_shapes failed")

    def execute_async_v3(self, stream: int) -> bool:
        for name in self._engine.io:
            if not self._addresses.get(name) and name not in self._allocators:
                return self._refuse(f"address of {name} is not set (setTensorAddress)")
        for output, name in self._engine.aliased.items():
            if self._addresses[output] != self._addresses[name]:
                return self._refuse(f"{output} must be at the address of {name}")
        if _capturing(stream):
            _fail("graph")
        if not self._calls and self.infer_shapes():
            return self._refuse("not all input dimensions were given (setInputShape)")
        if self._cache is not None:
            self._cache.compiled |= {node.name for node, _ in self._calls}
        return all(self._launch(node, found, stream) for node, found in self._calls)

    def _refuse(self, reason: str) -> bool:
        self._engine.logger.log(
            ILogger.ERROR, f"IExecutionContext::enqueueV3: Error Code 3: {reason}"
        )
        return False

    def _launch(self, node: onnx.NodeProto, calls: list[Call], stream: int) -> bool:
        if node.op_type == "Shape":
            _write(self._addresses[node.output[0]], calls[0].numbers)
            return True
        if node.op_type == "NonZero":
            (output,) = node.output
            allocator, source = self._allocators[output], self._address(node.input[0], 0)
            if run_nonzero(source, calls[0].numbers, output, allocator, stream):
                return True
            return self._refuse(f"no memory for {output} (reallocateOutputAsync)")
        if self._profiler is None:
            self._launch_all(node, calls, stream)
            return True
        call("cudaStreamSynchronize", stream)
        with Stream() as own, Event() as begin, Event() as end:
            begin.record(own)
            self._launch_all(node, calls, own.handle)
            end.record(own)
            own.synchronize()
            self._profiler.report_layer_time(node.name, 1e3 * end.seconds_since(begin))
        return True

    def _launch_all(self, node: onnx.NodeProto, calls: list[Call], stream: int) -> None:
        names = [name for name in node.input if name]
        for one in calls:
            size = int(np.prod(one.shape))
            output = self._address(node.output[one.output], size)
            inputs = [self._address(names[k], 0) for k in one.inputs if k < len(names)]
            given = parameters(one.numbers, one.floats)
            count = size if one.count is None else one.count
            launch(one.kernel, given, count, inputs, output, stream)

    def _address(self, name: str, count: int) -> int:
        if name in self._engine.io:
            return self._addresses[name]
        if name in self._engine.weights:
            return self._engine.weights[name].address
        if name not in self._between:
            self._between[name] = DeviceBuffer(4 * count)
        return self._between[name].address


def _capturing(stream: int) -> bool:
    if getattr(runtime(), "ON_HOST", False):
        return False
    return int(call("cudaStreamIsCapturing", stream)) != 0


def _array(tensor: TensorProto) -> np.ndarray:
    return numpy_helper.to_array(tensor)


def _read(address: int, shape: tuple[int, ...]) -> np.ndarray:
    """Shape values in host memory."""
    count = int(np.prod(shape))
    block = (ctypes.c_int64 * count).from_address(address)
    return np.array(block, np.int64).reshape(shape)


def _write(address: int, values: tuple[int, ...]) -> None:
    (ctypes.c_int64 * len(values)).from_address(address)[:] = list(values)


def _upload(array: np.ndarray) -> DeviceBuffer:
    values = np.ascontiguousarray(array.astype(np.float32))
    buffer = DeviceBuffer(values.nbytes)
    if values.nbytes:
        kind = runtime().cudaMemcpyKind.cudaMemcpyDefault
        call("cudaMemcpy", buffer.address, values.ctypes.data, values.nbytes, kind)
    return buffer
