"""Times of convolution and matrix-product kernels on a GPU, by number format and shape.

    python -m benchmarks.times.gpu_kernels --json FILE [--quick]

TensorRT draws its kernels from the same family as cuDNN and cuBLASLt, so what these take tells what
a layer of that shape can take. Needs PyTorch and ``nvidia-cudnn-frontend``. Each kernel is a
convolution (or a matrix product) with what engines fuse into it: scale and bias per channel, a
residual input where the case says so, ReLU, and the conversion to the output's format, through
cuDNN's graph API. All plans that cuDNN offers are timed and the fastest is kept, as a builder
does: 20 calls in one CUDA graph, median of 30 replays. cuDNN compiles its plans on the CPU, so
several processes prepare cases at once; a lock lets one of them at a time use the GPU. 1x1
convolutions are the matrix products.
What cuDNN refuses is listed with its reason. Before it is timed, each plan's output is compared
with PyTorch's in float.
"""

from __future__ import annotations

import json
import multiprocessing
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import product
from multiprocessing.queues import Queue
from multiprocessing.synchronize import Lock
from pathlib import Path

import cudnn
import numpy as np
import torch

from benchmarks.command_line import parser_of

CALLS, REPLAYS, MOST_PLANS = 20, 30, 12
INPUT_SCALE, WEIGHT_SCALE, OUTPUT_SCALE = 0.02, 0.01, 0.05
FP8 = torch.float8_e4m3fn


@dataclass(frozen=True)
class Shape:
    """A convolution: input (batch, channels, size, size), square kernel, same padding."""

    batch: int
    channels: int
    filters: int
    size: int
    kernel: int
    stride: int = 1
    residual: bool = False

    @property
    def output_size(self) -> int:
        """Height and width of the output."""
        return (self.size + 2 * (self.kernel // 2) - self.kernel) // self.stride + 1


@dataclass(frozen=True)
class Format:
    """Types of inputs and weights, of the accumulator and of the output."""

    name: str
    operand: torch.dtype
    compute: cudnn.data_type
    output: torch.dtype


FORMATS = (
    Format("int8", torch.int8, cudnn.data_type.INT32, torch.int8),
    Format("int8 to fp16", torch.int8, cudnn.data_type.INT32, torch.float16),
    Format("int8 to fp32", torch.int8, cudnn.data_type.INT32, torch.float32),
    Format("fp8", FP8, cudnn.data_type.FLOAT, FP8),
    Format("fp8 to fp16", FP8, cudnn.data_type.FLOAT, torch.float16),
    Format("fp16", torch.float16, cudnn.data_type.FLOAT, torch.float16),
    Format("tf32", torch.float32, cudnn.data_type.FLOAT, torch.float32),
)


@dataclass(frozen=True)
class Timing:
    """The fastest plan of one case; ``us`` per call, its 10th and 90th percentile over replays."""

    shape: Shape
    format: str
    us: float | None
    p10_us: float | None = None
    p90_us: float | None = None
    plan: str = ""
    plans: int = 0
    refused: str = ""


def shapes(quick: bool) -> list[Shape]:
    """Layers of common networks, batch 1 to 64."""
    layers = [
        (16, 32, 160, 3), (32, 64, 80, 3), (64, 64, 56, 3), (64, 64, 40, 3), (128, 128, 40, 3),
        (128, 128, 28, 3), (256, 256, 20, 3), (256, 256, 14, 3), (512, 512, 7, 3),
        (64, 256, 56, 1), (256, 64, 56, 1), (128, 128, 40, 1), (384, 256, 20, 1),
        (1024, 256, 14, 1), (512, 2048, 7, 1), (768, 3072, 14, 1), (3072, 768, 14, 1),
    ]  # fmt: skip
    batches = (1, 8) if quick else (1, 8, 32, 64)
    found = [Shape(b, *layer) for b, layer in product(batches, layers[:4] if quick else layers)]
    strided = [Shape(b, 64, 128, 56, 3, stride=2) for b in batches]
    residual = [
        Shape(b, *layer, residual=True)
        for b, layer in product(batches, [(64, 64, 56, 3), (256, 256, 14, 3), (64, 256, 56, 1)])
    ]
    return [*found, *strided, *residual]


def tensors(shape: Shape, form: Format) -> dict[str, torch.Tensor]:
    """Random operands, channels last; the values of integer formats use their range."""
    generator = torch.Generator("cuda").manual_seed(0)

    def make(dims: tuple[int, ...], dtype: torch.dtype, spread: float) -> torch.Tensor:
        values = torch.randn(dims, generator=generator, device="cuda") * spread
        if dtype == torch.int8:
            values = values.round().clamp(-127, 127)
        return values.to(dtype).contiguous(memory_format=torch.channels_last)

    wide = 30.0 if form.operand == torch.int8 else 1.0
    out = (shape.batch, shape.filters, shape.output_size, shape.output_size)
    found = {
        "image": make((shape.batch, shape.channels, shape.size, shape.size), form.operand, wide),
        "weight": make(
            (shape.filters, shape.channels, shape.kernel, shape.kernel), form.operand, wide
        ),
        "scale": make((1, shape.filters, 1, 1), torch.float32, 0.0) + INPUT_SCALE * WEIGHT_SCALE,
        "bias": make((1, shape.filters, 1, 1), torch.float32, 0.1),
    }
    if shape.residual:
        found["residual"] = make(out, form.output, wide)
    return found


def expected(shape: Shape, given: Mapping[str, torch.Tensor]) -> torch.Tensor:
    """The case in float32, before the conversion to the output's type."""
    image, weight = given["image"].float(), given["weight"].float()
    padding = shape.kernel // 2
    y = torch.nn.functional.conv2d(image, weight, stride=shape.stride, padding=padding)
    y = y * given["scale"] + given["bias"]
    if shape.residual:
        y = y + given["residual"].float() * OUTPUT_SCALE
    return torch.relu(y) / OUTPUT_SCALE


def build(
    shape: Shape, form: Format, given: Mapping[str, torch.Tensor], handle: object
) -> tuple[cudnn.pygraph, dict[object, torch.Tensor]]:
    """The fused graph of a case with all its plans, and the tensors that it takes."""
    floating = cudnn.data_type.FLOAT
    graph = cudnn.pygraph(
        intermediate_data_type=floating, compute_data_type=floating, handle=handle
    )
    taken = {name: graph.tensor_like(tensor) for name, tensor in given.items()}
    constants = {
        name: torch.full((1, 1, 1, 1), value, device="cuda")
        for name, value in (("residual_scale", OUTPUT_SCALE), ("output_scale", 1 / OUTPUT_SCALE))
    }
    taken.update({name: graph.tensor_like(tensor) for name, tensor in constants.items()})
    padding, stride = [shape.kernel // 2] * 2, [shape.stride] * 2
    y = graph.conv_fprop(
        image=taken["image"], weight=taken["weight"], padding=padding, stride=stride,
        dilation=[1, 1], compute_data_type=form.compute,
    )  # fmt: skip
    y.set_data_type(form.compute)
    y = graph.mul(a=y, b=taken["scale"])
    y = graph.add(a=y, b=taken["bias"])
    if shape.residual:
        y = graph.add(a=y, b=graph.mul(a=taken["residual"], b=taken["residual_scale"]))
    y = graph.mul(a=graph.relu(input=y), b=taken["output_scale"])
    out = torch.empty(
        (shape.batch, shape.filters, shape.output_size, shape.output_size),
        dtype=form.output, device="cuda",
    ).contiguous(memory_format=torch.channels_last)  # fmt: skip
    y.set_output(True).set_data_type(cudnn_type(form.output))
    y.set_stride(list(out.stride()))
    graph.validate()
    graph.build_operation_graph()
    graph.create_execution_plans([cudnn.heur_mode.A])
    graph.check_support()
    graph.build_plans(cudnn.build_plan_policy.ALL)
    everything = {**given, **constants}
    used = [name for name in everything if shape.residual or not name.startswith("residual")]
    return graph, {**{taken[name]: everything[name] for name in used}, y: out}


def cudnn_type(dtype: torch.dtype) -> cudnn.data_type:
    """cuDNN's name of a type."""
    return {
        torch.int8: cudnn.data_type.INT8,
        FP8: cudnn.data_type.FP8_E4M3,
        torch.float16: cudnn.data_type.HALF,
        torch.float32: cudnn.data_type.FLOAT,
    }[dtype]


def replay_times(call: Callable[[], None]) -> np.ndarray:
    """Microseconds per call in a CUDA graph of ``CALLS`` calls, one figure per replay."""
    recorded = torch.cuda.CUDAGraph()
    with torch.cuda.graph(recorded):
        for _ in range(CALLS):
            call()
    found = []
    for number in range(REPLAYS + 5):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        recorded.replay()
        end.record()
        torch.cuda.synchronize()
        if number >= 5:  # The first ones warm up.
            found.append(1e3 * begin.elapsed_time(end) / CALLS)
    return np.array(found)


def is_right(out: torch.Tensor, reference: torch.Tensor) -> bool:
    """Whether ``out`` is ``reference`` up to the rounding of its type."""
    if out.dtype == torch.int8:
        return bool((out.float() - reference.round().clamp(-128, 127)).abs().max() <= 1)
    limit = {FP8: 0.1, torch.float16: 0.01, torch.float32: 0.01}[out.dtype]
    reference = reference.clamp(-448, 448) if out.dtype == FP8 else reference
    error = (out.float() - reference).norm() / reference.norm()
    return bool(error <= limit)


def measure(shape: Shape, form: Format, handle: object, gpu: Lock) -> Timing:
    """Time all plans of one case and keep the fastest that is right."""
    with gpu:
        given = tensors(shape, form)
        reference = expected(shape, given)
        torch.cuda.synchronize()
    try:
        graph, pack = build(shape, form, given, handle)
    except Exception as error:  # cuDNN raises types of its own; the case is refused.
        return Timing(shape, form.name, None, refused=str(error).splitlines()[0][:200])
    with gpu:
        return fastest(Timing(shape, form.name, None), graph, pack, reference, handle)


def fastest(
    case: Timing,
    graph: cudnn.pygraph,
    pack: Mapping[object, torch.Tensor],
    reference: torch.Tensor,
    handle: object,
) -> Timing:
    """``case`` with the time of its fastest plan that is right, or with why there is none."""
    best = case
    count = min(graph.get_execution_plan_count(), MOST_PLANS)
    for index in range(count):
        try:
            size = graph.get_workspace_size_plan_at_index(index)
            workspace = torch.empty(max(1, size), dtype=torch.uint8, device="cuda")

            def call(index: int = index, workspace: torch.Tensor = workspace) -> None:
                stream = torch.cuda.current_stream().cuda_stream
                cudnn.set_stream(handle=handle, stream=stream)
                graph.execute_plan_at_index(pack, workspace, index, handle=handle)

            call()
            torch.cuda.synchronize()
            if not is_right(list(pack.values())[-1], reference):
                raise RuntimeError("wrong output")
            times = replay_times(call)
        except Exception as error:  # Of this plan only.
            best = best if best.us else replace(best, refused=str(error).splitlines()[0][:200])
            continue
        median = float(np.median(times))
        if best.us is None or median < best.us:
            p10, p90 = (float(q) for q in np.quantile(times, (0.1, 0.9)))
            name = graph.get_plan_name_at_index(index)
            best = replace(
                case, us=median, p10_us=p10, p90_us=p90, plan=name, plans=count, refused=""
            )
    return best


def work(cases: list[tuple[Shape, Format]], gpu: Lock, timings: Queue[Timing]) -> None:
    """Measure ``cases`` in a process of its own."""
    torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = False
    handle = cudnn.create_handle()
    for shape, form in cases:
        timings.put(measure(shape, form, handle, gpu))


def all_timings(quick: bool, workers: int) -> Iterator[Timing]:
    """All cases, shared out over ``workers`` processes."""
    spawn = multiprocessing.get_context("spawn")
    gpu, timings = spawn.Lock(), spawn.Queue()
    cases = list(product(shapes(quick), FORMATS))
    for number in range(workers):
        spawn.Process(target=work, args=(cases[number::workers], gpu, timings), daemon=True).start()
    for _ in cases:
        yield timings.get()


def main() -> None:
    """Print the table and write the JSON."""
    parser = parser_of(__doc__)
    parser.add_argument("--json", type=Path, help="file to write the timings to")
    parser.add_argument("--quick", action="store_true", help="a few shapes at batch 1 and 8")
    cores = os.cpu_count() or 1
    parser.add_argument("--workers", type=int, default=max(1, cores - 2), help="processes")
    arguments = parser.parse_args()
    found = []
    for timing in all_timings(arguments.quick, arguments.workers):
        found.append(timing)
        s = timing.shape
        label = f"{s.batch},{s.channels},{s.filters},{s.size},k{s.kernel},s{s.stride}"
        label += ",residual" if s.residual else ""
        told = f"{timing.us:8.1f} us" if timing.us else f"refused: {timing.refused}"
        print(f"{label:32} {timing.format:14} {told}", flush=True)
    if arguments.json:
        arguments.json.write_text(document(found), encoding="utf-8")


def document(timings: Sequence[Timing]) -> str:
    """The JSON of a run, a timing a line."""
    head = {
        "device": torch.cuda.get_device_properties(0).name,
        "cudnn": cudnn.backend_version(),
        "torch": torch.__version__,
        "calls": CALLS,
        "replays": REPLAYS,
    }
    lines = ",\n  ".join(json.dumps(row(timing)) for timing in timings)
    return json.dumps(head)[:-1] + f', "timings": [\n  {lines}\n]}}\n'


def row(timing: Timing) -> dict[str, object]:
    """What is written of a timing; microseconds to the nanosecond."""
    times = {"us": timing.us, "p10_us": timing.p10_us, "p90_us": timing.p90_us}
    rounded = {name: None if us is None else round(us, 3) for name, us in times.items()}
    return {**asdict(timing.shape), "format": timing.format, **rounded, "refused": timing.refused}


if __name__ == "__main__":
    main()
