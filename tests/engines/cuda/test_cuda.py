"""CUDA memory, graphs and timing on a real GPU: kernels of known cost."""

from collections.abc import Iterator
from contextlib import ExitStack

import numpy as np
import pytest

from placer.engines.cuda import api
from placer.engines.cuda.memory import DeviceBuffer, Event, PinnedArray, Stream
from placer.engines.cuda.nvml import GpuState, gpu_state
from placer.engines.cuda.timing import Effort, Launch, capture, time_launches
from placer.errors import RunError

nvrtc = pytest.importorskip("cuda.bindings.nvrtc", reason="cuda-python is not installed")
driver = pytest.importorskip("cuda.bindings.driver", reason="cuda-python is not installed")

SPIN = b"""
extern "C" __global__ void spin(unsigned long long nanoseconds) {
  unsigned long long start, now;
  asm volatile("mov.u64 %0, %globaltimer;" : "=l"(start));
  do {
    asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now));
  } while (now - start < nanoseconds);
}
"""
QUICK = Effort(warm_up_s=0.05)


def test_without_a_gpu_there_is_one_sentence():
    count = api.device_count()
    with pytest.raises(RunError, match=f"there is no GPU 99; CUDA sees {count}, counted from 0"):
        api.set_device(99)


@pytest.fixture(scope="module")
def spin(gpu: None) -> Iterator[object]:
    """A kernel that takes as many nanoseconds as it is told, by the GPU's own clock."""
    del gpu
    api.set_device(0)
    capability = api.compute_capability().replace(".", "")
    _, program = nvrtc.nvrtcCreateProgram(SPIN, b"spin.cu", 0, [], [])
    options = [f"--gpu-architecture=sm_{capability}".encode()]
    (error,) = nvrtc.nvrtcCompileProgram(program, len(options), options)
    assert int(error) == 0
    _, size = nvrtc.nvrtcGetCUBINSize(program)
    image = b" " * size
    nvrtc.nvrtcGetCUBIN(program, image)
    api.call("cudaFree", 0)  # Creates the context that the module is loaded into.
    error, module = driver.cuModuleLoadData(image)
    assert int(error) == 0
    _, function = driver.cuModuleGetFunction(module, b"spin")
    yield function
    driver.cuModuleUnload(module)


def spinning(function: object, microseconds: float) -> Launch:
    nanoseconds = np.array([round(microseconds * 1000)], np.uint64)
    arguments = np.array([nanoseconds.ctypes.data], np.uint64)

    def launch(stream: Stream) -> None:
        grid_and_block = (1, 1, 1, 1, 1, 1)
        (error,) = driver.cuLaunchKernel(
            function, *grid_and_block, 0, stream.handle, arguments.ctypes.data, 0
        )
        assert int(error) == 0, error
        assert len(nanoseconds) == 1  # Keeps the argument alive.

    return launch


def test_copies_come_back(spin: object):
    del spin
    values = np.arange(1000, dtype=np.float32).reshape(10, 100)
    with (
        Stream() as stream,
        DeviceBuffer(values.nbytes) as device,
        PinnedArray(values.shape, values.dtype) as source,
        PinnedArray(values.shape, values.dtype) as target,
    ):
        source.values[:] = values
        stream.copy(device.address, source.values.ctypes.data, values.nbytes)
        stream.copy(target.values.ctypes.data, device.address, values.nbytes)
        stream.synchronize()
        np.testing.assert_array_equal(target.values, values)


def test_no_launch_takes_less_than_its_kernel_spins_captured_or_not(spin: object):
    launches = [spinning(spin, 100.0), spinning(spin, 200.0)]
    for graphs in (True, False):
        timing = time_launches(launches, 15, Effort(warm_up_s=0.05, graphs=graphs))
        assert timing.captured == (graphs, graphs)
        # By the GPU's own clock, which ticks every microsecond or so. A mean over too many
        # launches, or the other kernel's figure, would lie below.
        assert (timing.seconds > [98e-6, 198e-6]).all()


@pytest.mark.parametrize(
    ("microseconds", "flush_l2", "expected"),
    [
        # The launch before the first event keeps the GPU busy while the host queues the batch.
        (300.0, False, ["launch", "event", "launch", "event"]),
        # A batch this long (LEAD_BELOW_S) does not need one.
        (25_000.0, False, ["event", "launch", "event"]),
        # The flush of the cache is not timed.
        (300.0, True, ["flush", "event", "launch", "event"]),
    ],
)
def test_what_lies_between_the_events(
    spin: object,
    monkeypatch: pytest.MonkeyPatch,
    microseconds: float,
    flush_l2: bool,
    expected: list[str],
):
    kernel, order = spinning(spin, microseconds), []
    record, fill = Event.record, Stream.fill

    def launch(stream: Stream) -> None:
        order.append("launch")
        kernel(stream)

    def logged_record(event: Event, stream: Stream) -> None:
        order.append("event")
        record(event, stream)

    def logged_fill(stream: Stream, address: int, value: int, size: int) -> None:
        assert size > api.l2_bytes()
        order.append("flush")
        fill(stream, address, value, size)

    monkeypatch.setattr(Event, "record", logged_record)
    monkeypatch.setattr(Stream, "fill", logged_fill)
    # One launch to prepare and ten to warm up; the shortest interval makes batches of one.
    effort = Effort(warm_up_s=0.0, interval_s=1e-9, flush_l2=flush_l2, graphs=False)
    time_launches([launch], 2, effort)
    assert order == ["launch"] * 11 + expected * 2


def test_work_that_cannot_be_captured_runs_plainly(spin: object):
    del spin

    def waits(stream: Stream) -> None:
        stream.synchronize()  # Not allowed in a capture.

    with Stream() as stream:
        assert capture(waits, stream) is None
        stream.synchronize()  # The stream still works.
    assert time_launches([waits], 3, QUICK).captured == (False,)


def test_out_of_memory_is_an_error_that_leaves_the_gpu_usable(spin: object):
    del spin
    free, _ = api.call("cudaMemGetInfo")
    with pytest.raises(api.CudaError) as caught:
        DeviceBuffer(1 << 50)
    assert caught.value.name == "cudaErrorMemoryAllocation"
    assert str(caught.value) == "CUDA call cudaMalloc failed: cudaErrorMemoryAllocation"
    with DeviceBuffer(1 << 20):
        assert api.call("cudaMemGetInfo")[0] <= free
    with ExitStack() as stack:
        stream = stack.enter_context(Stream())
        begin, end = stack.enter_context(Event()), stack.enter_context(Event())
        begin.record(stream)
        end.record(stream)
        stream.synchronize()
        assert end.seconds_since(begin) >= 0


@pytest.mark.usefixtures("gpu")
def test_the_gpus_state_is_read():
    pytest.importorskip("pynvml", reason="nvidia-ml-py is not installed")
    state = gpu_state(0)
    assert isinstance(state, GpuState)
    assert "NVIDIA" in state.name
    assert 100 < (state.sm_clock or 0) < 5000
    assert state.power is None or 0 < state.power < 2000
