"""Run a built engine on the GPU: buffers, shapes, launches, layer times, what it really built."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from statistics import median
from typing import Any

import ml_dtypes
import numpy as np

from placer.engines.cuda.memory import DeviceBuffer, PinnedArray, Stream
from placer.engines.tensorrt.chosen_outputs import ChosenOutputs
from placer.engines.tensorrt.layer_profiler import layer_profiler
from placer.engines.tensorrt.library import Library
from placer.engines.tensorrt.log import BuildLog
from placer.engines.tensorrt.optional import optional
from placer.engines.tensorrt.runtime_cache import RuntimeCache
from placer.engines.tensorrt.saved import deserialize
from placer.errors import InputError, RunError
from placer.graph.shapes import InputType
from placer.plan import Layer, Plan
from placer.plan.readers.tensorrt_inspector import inspector_plan

Tensors = Mapping[str, np.ndarray]

_CHANNELS_LAST = ("HWC", "DHWC")  # Those of TensorRT's formats that pad nothing.


class Execution:
    """An engine on the current GPU, ready for inputs of one set of shapes at a time.

    Inputs and outputs are NumPy arrays in the types of the engine; bfloat16 and float8 are those of
    ``ml_dtypes``. ``runtime_cache``: where TensorRT-RTX finds kernels that it has compiled.
    ``what``: the engine in words. Raises RunError if it cannot be loaded, for another GPU or
    version, say.
    """

    def __init__(
        self,
        library: Library,
        engine: bytes,
        runtime_cache: RuntimeCache | None = None,
        what: str = "the engine",
    ) -> None:
        self._library = library
        self._serialized_bytes = len(engine)
        self._log = BuildLog()
        self._stack = ExitStack()
        self._runtime = library.module.Runtime(self._log.attach(library.module))
        self._engine: Any = deserialize(library, self._runtime, self._log, engine, what)
        self._runtime_cache = runtime_cache
        self._what = what
        self._context: Any = self._make_context()
        mode = library.module.TensorIOMode.INPUT
        names = [self._engine.get_tensor_name(i) for i in range(self._engine.num_io_tensors)]
        self._inputs = [n for n in names if self._engine.get_tensor_mode(n) == mode]
        self._outputs = [n for n in names if n not in self._inputs]
        for name in names:
            self._check_format(name)
        # Tensors that are shapes: their values are read from host memory and written there.
        self._on_host = [name for name in names if self._is_on_host(name)]
        self._settling = [name for name in self._inputs if name in self._on_host]
        self._bound: tuple[object, ...] = ()
        # Outputs whose shapes the data decide; not known before inputs are bound.
        self._chosen: list[str] = []
        self._chosen_outputs = ChosenOutputs(library.module)
        self._device: dict[str, DeviceBuffer] = {}
        self._host: dict[str, PinnedArray] = {}
        self._stream = self._stack.enter_context(Stream())

    def _make_context(self) -> Any:
        config = optional("the runtime configuration", self._runtime_config, None)
        create = self._engine.create_execution_context
        context = create() if config is None else create(config)
        if context is None:
            raise RunError(f"{self._library.title} cannot run {self._what}: {self._log.reason()}")
        return context

    def _runtime_config(self) -> Any:
        """Settings of contexts where the library has some (TensorRT-RTX), else None."""
        strategies = getattr(
            self._library.module, "DynamicShapesKernelSpecializationStrategy", None
        )
        cache = self._runtime_cache
        if strategies is None and cache is None:
            return None
        config = self._engine.create_runtime_config()
        if strategies is not None:
            # Else kernels for a shape are compiled beside the runs, and general ones are timed.
            config.dynamic_shapes_kernel_specialization_strategy = strategies.EAGER
        if cache is not None:
            optional("the runtime cache", lambda: cache.attach(config), None)
        return config

    def _check_format(self, name: str) -> None:
        """Raise RunError for a format that pads channels, or has them in the last place.

        The first kind takes more memory than its shape; arrays are in neither order.
        """
        form = self._engine.get_tensor_format(name).name
        if form in _CHANNELS_LAST or self._engine.get_tensor_vectorized_dim(name) >= 0:
            raise RunError(
                f"{self._what} has '{name}' in the memory format {form}; build it with linear "
                "inputs and outputs (without --inputIOFormats and --outputIOFormats)"
            )

    def _is_on_host(self, name: str) -> bool:
        location = self._library.module.TensorLocation.HOST
        return bool(self._engine.get_tensor_location(name) == location)

    @property
    def inputs(self) -> dict[str, InputType]:
        """Shape (the optimum of the first profile where it is dynamic) and type of each input."""
        return {name: self._input_type(name) for name in self._inputs}

    def _input_type(self, name: str) -> InputType:
        shape = tuple(self._engine.get_tensor_shape(name))
        if any(d < 0 for d in shape):
            _, optimum, _ = self._engine.get_tensor_profile_shape(name, 0)
            shape = tuple(optimum)
        return InputType(shape, self._dtype(name).name)

    def _dtype(self, name: str) -> np.dtype[Any]:
        dtype: np.dtype[Any] = np.dtype(
            _numpy_type(self._library, self._engine.get_tensor_dtype(name), name)
        )
        return dtype

    def serialized(self) -> bytes:
        """The engine as it is kept in a file; RunError if TensorRT cannot serialize it."""
        data = self._engine.serialize()
        if data is None:
            raise RunError(f"{self._library.title} cannot save it: {self._log.reason()}")
        return bytes(data)

    def memory_bytes(self, inputs: Tensors) -> int:
        """Device memory in bytes: activations, ``inputs`` and their outputs, weights and kernels.

        Weights and kernels are taken to be what the serialized engine holds.
        """
        self.prepare(inputs)
        if self._chosen:
            self.run(inputs)  # Only then is their size known.
        buffers = sum(buffer.size for buffer in {*self._device.values()})
        buffers += self._chosen_outputs.size
        return self._serialized_bytes + self._activation_bytes() + buffers

    def _activation_bytes(self) -> int:
        # device_memory_size_v2 came with 10.1, and 11 has no other.
        size = getattr(self._engine, "device_memory_size_v2", None)
        return int(self._engine.device_memory_size if size is None else size)

    def run(self, inputs: Tensors) -> dict[str, np.ndarray]:
        """All outputs by name, copied to the host."""
        self.prepare(inputs)
        self.launch(self._stream)
        for name in self._device.keys() & set(self._outputs):
            host = self._host[name].values
            if host.nbytes:
                self._stream.copy(host.ctypes.data, self._device[name].address, host.nbytes)
        self._stream.synchronize()
        fixed = {n: self._host[n].values.copy() for n in self._outputs if n not in self._chosen}
        return {n: fixed[n] if n in fixed else self._chosen_output(n) for n in self._outputs}

    def _chosen_output(self, name: str) -> np.ndarray:
        values = np.empty(self._chosen_outputs.shape(name), self._dtype(name))
        if values.nbytes:
            address = self._chosen_outputs.address(name)
            self._stream.copy(values.ctypes.data, address, values.nbytes)
            self._stream.synchronize()
        return values

    def prepare(self, inputs: Tensors) -> None:
        """Make room for ``inputs``, copy them to the GPU and bind all tensors.

        Raises InputError for inputs that the engine does not take.
        """
        missing = [name for name in self._inputs if name not in inputs]
        if missing:
            raise InputError(f"the engine needs input '{missing[0]}'; give it")
        shapes = {name: inputs[name].shape for name in self._inputs}
        settling = tuple(inputs[name].tobytes() for name in self._settling)
        if (shapes, settling) != self._bound:
            self._bind(shapes, inputs)
            self._bound = (shapes, settling)
        for name in self._device.keys() & shapes.keys():
            host = self._host[name].values
            np.copyto(host, inputs[name], casting="same_kind")
            if host.nbytes:
                self._stream.copy(self._device[name].address, host.ctypes.data, host.nbytes)
        self._stream.synchronize()

    def launch(self, stream: Stream) -> None:
        """Put one inference on ``stream``; RunError if TensorRT refuses."""
        if not self._context.execute_async_v3(stream.handle):
            reason = self._chosen_outputs.error or self._log.reason()
            raise RunError(f"{self._library.title} failed to run the engine: {reason}")

    def _bind(self, shapes: dict[str, tuple[int, ...]], inputs: Tensors) -> None:
        self._bound = ()
        self._choose_profile(inputs)
        for name, shape in shapes.items():
            if not self._context.set_input_shape(name, shape):
                raise _refused(name, inputs[name])
        self._free()
        for name, shape in shapes.items():
            self._make_room(name, shape)
        for name in self._settling:  # Shapes of outputs depend on their values.
            np.copyto(self._host[name].values, inputs[name], casting="same_kind")
        unknown = self._unknown_shapes()
        if unknown:
            raise RunError(f"{self._library.title} cannot tell the shapes: {', '.join(unknown)}")
        self._chosen = []
        for name in self._outputs:
            shape = tuple(self._context.get_tensor_shape(name))
            if any(d < 0 for d in shape):
                self._leave_room(name)
            else:
                self._make_room(name, shape)

    def _leave_room(self, name: str) -> None:
        """Have TensorRT ask for the memory of an output whose shape only data can tell."""
        if not self._context.set_output_allocator(name, self._chosen_outputs.allocator):
            raise RunError(
                f"{self._library.title} takes no memory for '{name}': {self._log.reason()}"
            )
        self._chosen.append(name)

    def _unknown_shapes(self) -> list[str]:
        try:
            return list(self._context.infer_shapes())
        except RuntimeError as error:  # Values of a shape input that are out of range, e.g.
            raise RunError(
                f"{self._library.title} cannot tell the shapes: {self._log.reason()}"
            ) from error

    def _make_room(self, name: str, shape: tuple[int, ...]) -> None:
        self._host[name] = PinnedArray(shape, self._dtype(name))
        address = self._host[name].values.ctypes.data
        if name not in self._on_host:
            self._device[name] = self._buffer(name)
            address = self._device[name].address
        if not self._context.set_tensor_address(name, address):
            raise RunError(
                f"{self._library.title} takes no memory for '{name}': {self._log.reason()}"
            )

    def _buffer(self, name: str) -> DeviceBuffer:
        """New memory, or that of the input that this output is written over (a KV cache)."""
        # Since 10.15.
        aliased = getattr(self._engine, "get_aliased_input_tensor", lambda _: None)(name)
        return self._device[aliased] if aliased else DeviceBuffer(self._host[name].values.nbytes)

    def _choose_profile(self, inputs: Tensors) -> None:
        """Take the first optimization profile that holds ``inputs``, for an engine with several."""
        count = self._engine.num_optimization_profiles
        if count < 2:
            return
        for index in range(count):
            if all(self._holds(index, name, inputs[name]) for name in self._inputs):
                if index != self._context.active_optimization_profile:
                    self._take_profile(index)
                return
        for name in self._inputs:
            if not any(self._holds(index, name, inputs[name]) for index in range(count)):
                raise _refused(name, inputs[name], name in self._settling)
        raise _refused(self._inputs[0], inputs[self._inputs[0]])  # None holds all of them together.

    def _take_profile(self, index: int) -> None:
        if not self._context.set_optimization_profile_async(index, self._stream.handle):
            raise RunError(
                f"{self._library.title} does not take profile {index}: {self._log.reason()}"
            )
        self._stream.synchronize()

    def _holds(self, profile: int, name: str, values: np.ndarray) -> bool:
        engine = self._engine
        if any(d < 0 for d in engine.get_tensor_shape(name)):
            limits = engine.get_tensor_profile_shape(name, profile)
            if not _is_between(limits, values.shape):
                return False
        if name not in self._settling:
            return True
        # By position: up to 11.4 the bindings have the names of these arguments interchanged.
        limits = engine.get_tensor_profile_values(profile, name)
        return not limits or _is_between(limits, values.ravel().tolist())

    def plan(self, inputs: Tensors | None = None, repeats: int = 10) -> Plan:
        """What was built, by the engine's inspector; with ``inputs``, each layer's time."""
        plan = optional("the engine inspector", self._inspected, Plan((), self._library.title))
        if inputs is None:
            return plan
        self.prepare(inputs)
        untimed: dict[str, float] = {}
        times = optional("the profiler", lambda: self._layer_times(repeats), untimed)
        layers = (_timed(layer, times) for layer in plan.layers)
        return replace(plan, layers=tuple(layers))

    def _inspected(self) -> Plan:
        inspector = self._engine.create_engine_inspector()
        form = self._library.module.LayerInformationFormat.JSON
        document = json.loads(inspector.get_engine_information(form))
        try:
            return inspector_plan(document, self._library.title)
        except InputError as error:  # No file of the user's is wrong.
            raise RunError(str(error)) from error

    def _layer_times(self, repeats: int) -> dict[str, float]:
        """Median microseconds by layer name; the profiler slows the whole, so use shares."""
        profiler = layer_profiler(self._library.module)
        self.launch(self._stream)
        self._stream.synchronize()
        runs = []
        try:
            self._context.profiler = profiler
            for _ in range(repeats):
                profiler.milliseconds = {}
                self.launch(self._stream)
                self._stream.synchronize()
                runs.append(profiler.milliseconds)
        finally:
            self._remove_profiler()
        return {name: 1e3 * median(run.get(name, 0.0) for run in runs) for name in runs[0]}

    def _remove_profiler(self) -> None:
        def remove() -> bool:
            self._context.profiler = None
            return True

        if not optional("removing the profiler", remove, False):
            # With it every launch would wait for the GPU.
            self._context = self._make_context()
            self._bound = ()

    def _free(self) -> None:
        for resource in (*self._device.values(), *self._host.values()):
            resource.close()
        self._device, self._host = {}, {}

    def close(self) -> None:
        """Free everything on the GPU."""
        self._free()
        self._chosen_outputs.close()
        self._stack.close()
        self._context = self._engine = self._runtime = None


def _refused(name: str, given: np.ndarray, by_values: bool = False) -> InputError:
    """``by_values``: the values of the input are a shape, and have a range of their own."""
    what, kind = f"shape {'x'.join(map(str, given.shape))}", "shapes"
    if by_values:
        what, kind = f"values {given.ravel().tolist()}", "values"
    return InputError(
        f"the engine was not built for {what} of input '{name}'; "
        f"build it for a range of {kind} that holds it"
    )


def _is_between(limits: Sequence[Sequence[int]], given: Sequence[int]) -> bool:
    """Whether ``given`` lies within ``limits``: the minimum, the optimum and the maximum."""
    least, _, most = limits
    return all(a <= d <= b for a, d, b in zip(least, given, most, strict=True))


def _timed(layer: Layer, times: Mapping[str, float]) -> Layer:
    return replace(layer, time_us=times.get(layer.name, layer.time_us))


def _numpy_type(library: Library, dtype: Any, name: str) -> Any:
    """NumPy's type of TensorRT's; those that NumPy lacks come from ml_dtypes, as onnx has them.

    Raises RunError for types of less than a byte, of which several share one.
    """
    if dtype.name == "BF16":
        return ml_dtypes.bfloat16
    if dtype.name == "FP8":
        return ml_dtypes.float8_e4m3fn
    try:
        return library.module.nptype(dtype)
    except TypeError:
        raise RunError(
            f"'{name}' has the type {dtype.name}, which placer cannot give to an engine; let the "
            "model take and return another one"
        ) from None
