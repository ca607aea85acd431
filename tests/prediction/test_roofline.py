"""Work and estimated time of predicted layers, counted by hand."""

import importlib
import json
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from placer.graph import Graph, Node
from placer.graph.text import graph_of_text
from placer.plan import Layer, Port
from placer.prediction.layers.conversions import PredictedLayer
from placer.prediction.layers.predictor import Predictor
from placer.prediction.times.devices import make_estimator
from placer.prediction.times.gpus import Gpu, gpu_names, load_gpu
from placer.prediction.times.layer_classes import LayerClass, LayerClasses, load_layer_classes
from placer.prediction.times.roofline import (
    Roofline,
    gpu_work,
    least_memory_us,
    slower_products,
)
from placer.prediction.times.work import Work, layer_work
from placer.quantization import EMPTY
from placer.rules.packaging.load import load_pack
from placer.rules.target import ANY_TARGET
from tests.prediction.test_motion import graph_texts, placements

HEAD = '<ir_version: 9, opset_import: ["": 17]>'

# 10 T int8 ops/s, 100 GB/s, 1 GHz: 1 us is 10 million ops, 100,000 bytes or 1000 cycles.
GPU = Gpu.model_validate(
    {
        "name": "round",
        "compute_capability": "8.6",
        "sms": 10,
        "boost_clock_mhz": 1000,
        "memory_gb": 8,
        "memory_bandwidth_gb_s": 100,
        "l2_mb": 2,
        "peak": {"float": 1, "float16": 5, "int8": 10},
        "sources": [
            {
                "fields": ["sms", "boost_clock_mhz", "memory_gb", "memory_bandwidth_gb_s"],
                "source": "made for the test",
            },
            {"fields": ["l2_mb", "peak"], "source": "made for the test"},
        ],
    }
)


def graph_of(signature: str, body: str, constants: str = "float unused = {0}") -> Graph:
    return graph_of_text(f"{HEAD} g {signature} <{constants}> {{ {body} }}")


def layer(
    graph: Graph, nodes: str, reads: str, writes: str, op: str = "", kind: str = "compute"
) -> PredictedLayer:
    """A layer of named nodes; ``reads`` and ``writes`` are ``tensor:type`` in order."""

    def ports(text: str) -> tuple[Port, ...]:
        pairs = (part.split(":") for part in text.split())
        return tuple(Port(dtype, tensor=tensor) for tensor, dtype in pairs)

    inside: tuple[Node, ...] = tuple(graph.by_name[name] for name in nodes.split())
    made = Layer("", op, tuple(nodes.split()), ports(reads), ports(writes), kind)
    names = {node.name for node in inside}
    found = [e for port in made.inputs for e in graph.edges_of(port.tensor) if e.node in names]
    return PredictedLayer(made, inside, None, tuple(dict.fromkeys(found)))


CONV = graph_of(
    "(float[2,40,10,10] x) => (float[2,24,10,10] y)",
    "[conv] c = Conv<pads = [1, 1, 1, 1]>(x, w, b) [relu] y = Relu(c)",
    "float[24,40,3,3] w = {1}, float[24] b = {1}",
)
PIXELS = 2 * 10 * 10
WEIGHTS = 24 * 40 * 9 + 24


@pytest.mark.parametrize(
    ("dtype", "written", "name", "inputs", "outputs", "size"),
    [
        ("int8", "int8", "conv", 48, 32, 1),  # channels in multiples of 16
        ("int8", "float16", "conv to half", 48, 32, 1),
        ("int8", "float", "conv to float", 48, 32, 1),
        ("float16", "float16", "conv", 40, 24, 2),  # of 8
        ("float", "float", "conv", 40, 24, 4),  # of 4
    ],
)
def test_a_conv_counts_aligned_channels_and_every_tensor_once(
    dtype: str, written: str, name: str, inputs: int, outputs: int, size: int
):
    sizes = {"int8": 1, "float16": 2, "float": 4}
    work = layer_work(layer(CONV, "conv relu", f"x:{dtype}", f"y:{written}"), CONV)
    moved = PIXELS * (40 * size + 24 * sizes[written]) + WEIGHTS * size
    assert work == Work(
        name,
        dtype,
        2 * PIXELS * inputs * outputs * 9,
        moved,
        written=PIXELS * 24 * sizes[written],
        depth=40 * 9,
        tiled_ops=2 * PIXELS * 64 * 64 * 9,
        small_tiled_ops=2 * PIXELS * 32 * 64 * 9,
        constants=WEIGHTS * size,
    )


def test_a_layer_that_reads_a_tensor_twice_loads_it_once():
    graph = graph_of(
        "(float[1,16,4,4] x) => (float[1,16,4,4] y)",
        "[conv] c = Conv(x, w) [add] y = Add(c, x)",
        "float[16,16,1,1] w = {1}",
    )
    work = layer_work(layer(graph, "conv add", "x:int8 x:int8", "y:int8"), graph)
    assert (work.ops, work.bytes, work.written) == (2 * 16 * 16 * 16, 256 + 256 + 256, 256)
    mixed = layer_work(layer(graph, "conv add", "x:int8 x:float16", "y:float16"), graph)
    assert mixed.bytes == 256 + 512 + 512 + 256


@pytest.mark.parametrize(
    ("channels", "group", "weight", "name", "ops"),
    [
        (3, 1, "8,3,1,1", "few-channel conv", 2 * 16 * 3 * 16),  # outputs are aligned all the same
        (8, 8, "8,1,1,1", "depthwise conv", 2 * 16 * 8),
        (8, 2, "8,4,1,1", "conv", 2 * 16 * 8 * 4),
    ],
)
def test_kinds_of_conv(channels: int, group: int, weight: str, name: str, ops: int):
    graph = graph_of(
        f"(float[1,{channels},4,4] x) => (float[1,8,4,4] y)",
        f"[conv] y = Conv<group = {group}>(x, w)",
        f"float[{weight}] w = {{1}}",
    )
    work = layer_work(layer(graph, "conv", "x:int8", "y:int8"), graph)
    assert (work.name, work.ops) == (name, ops)


@pytest.mark.parametrize(
    ("function", "dtype", "exponentials"),
    [("Sigmoid", "int8", PIXELS * 24), ("Relu", "int8", 0), ("Sigmoid", "float16", 0)],
)
def test_a_kernel_that_sums_integers_takes_exponentials(
    function: str, dtype: str, exponentials: int
):
    graph = graph_of(
        "(float[2,40,10,10] x) => (float[2,24,10,10] y)",
        f"[conv] c = Conv(x, w) [act] s = {function}(c) [mul] y = Mul(c, s)",
        "float[24,40,1,1] w = {1}",
    )
    made = layer(graph, "conv act mul", f"x:{dtype}", f"y:{dtype}")
    assert layer_work(made, graph).exponentials == exponentials
    alone = layer(graph, "act mul", f"c:{dtype}", f"y:{dtype}")
    assert layer_work(alone, graph).exponentials == 0


def test_a_conv_with_its_pool_is_a_class_of_its_own():
    made = layer(CONV, "conv relu", "x:int8", "y:int8", op="ConvActPool")
    assert layer_work(made, CONV).name == "conv-act-pool"


def test_a_transposed_conv_works_on_its_input():
    graph = graph_of(
        "(float[1,16,4,4] x) => (float[1,32,8,8] y)",
        "[up] y = ConvTranspose<strides = [2, 2]>(x, w)",
        "float[16,32,2,2] w = {1}",
    )
    work = layer_work(layer(graph, "up", "x:float16", "y:float16"), graph)
    assert work == Work(
        "conv",
        "float16",
        2 * 16 * 16 * 32 * 4,
        2 * (16 * 16 + 32 * 64 + 16 * 32 * 4),
        written=2 * 32 * 64,
        depth=16,  # Strides of 2 leave one of the kernel's four elements to each pixel.
        tiled_ops=2 * 16 * 64 * 64 * 4,
        small_tiled_ops=2 * 16 * 32 * 32 * 4,
        constants=2 * 16 * 32 * 4,
    )


@pytest.mark.parametrize(
    ("shape", "call"),
    [("5,20", "Gemm(x, w)"), ("20,5", "Gemm<transA = 1>(x, w)"), ("5,20", "MatMul(x, w)")],
)
def test_a_matmul_counts_its_aligned_depth(shape: str, call: str):
    graph = graph_of(
        f"(float[{shape}] x) => (float[5,3] y)", f"[fc] y = {call}", "float[20,3] w = {1}"
    )
    work = layer_work(layer(graph, "fc", "x:int8", "y:float16"), graph)
    assert work == Work(
        "matmul",
        "int8",
        2 * 5 * 3 * 32,
        100 + 2 * 15 + 60,
        written=2 * 15,
        depth=20,
        tiled_ops=2 * 5 * 3 * 64,
        small_tiled_ops=2 * 5 * 3 * 32,
        constants=60,
    )


def test_every_matmul_of_a_fused_layer_counts():
    graph = graph_of(
        "(float[8,16] q, float[16,8] k, float[8,16] v) => (float[8,16] y)",
        "[qk] s = MatMul(q, k) [soft] p = Softmax(s) [pv] y = MatMul(p, v)",
    )
    fused = layer(graph, "qk soft pv", "q:float16 k:float16 v:float16", "y:float16")
    assert layer_work(fused, graph).ops == 2 * (8 * 8 * 16 + 8 * 16 * 8)


def test_other_layers_move_memory_only():
    graph = graph_of(
        "(float[1,8,4,4] x, int64[4] n) => (float[1,8,1,1] p, float[1,8,4,4] s, int64[4] m)",
        "[gap] p = GlobalAveragePool(x) [sig] s = Sigmoid(x) [neg] m = Neg(n)",
    )
    gap = layer_work(layer(graph, "gap", "x:int8", "p:float16"), graph)
    assert gap == Work("pooling", "int8", 0, 128 + 16, written=16)
    sig = layer_work(layer(graph, "sig", "x:float16", "s:float16"), graph)
    assert sig == Work("memory", "float16", 0, 512, written=256)
    assert layer_work(layer(graph, "neg", "n:int64", "m:int64"), graph) == (
        Work("memory", "int64", 0, 64, written=32)
    )


def test_a_gather_reads_rows_of_its_table_and_not_all():
    graph = graph_of(
        "(int64[2] i) => (float[2,8] y)",
        "[embed] y = Gather(table, i)",
        "float[1000,8] table = {1}",
    )
    work = layer_work(layer(graph, "embed", "i:int64", "y:float16"), graph)
    assert work == Work("memory", "int64", 0, 16 + 32, written=32)


def test_conversions_convert_read_and_write_the_tensor():
    graph = graph_of(
        "(float[1,3,4,4] image, float[1,8,4,4] x) => (float[1,3,4,4] y, float[1,8,4,4] z)",
        "[a] y = Relu(image) [b] z = Relu(x)",
    )
    image = layer(graph, "", "image:float", "image:int8", "Reformat", "quantize")
    assert layer_work(image, graph) == Work("few-channel conversion", "float", 48, 48 * 5, 48)
    other = layer(graph, "", "x:int8", "x:float16", "Reformat", "dequantize")
    assert layer_work(other, graph) == Work("conversion", "int8", 128, 128 * 3, 256)


def test_no_ops_cost_nothing():
    graph = graph_of(
        "(float[1,8] x) => (float[8] y)", "[shape] y = Reshape(x, s)", "int64[1] s = {8}"
    )
    made = layer(graph, "shape", "x:float", "y:float", "NoOp", "no-op")
    assert layer_work(made, graph) is None
    assert Roofline(graph, GPU, load_layer_classes()).layer_us(made) == 0


JOIN = graph_of(
    "(float[1,8,4,4] x) => (float[1,24,4,4] y, float[1,8,4,4] z)",
    "[one] a = Relu(x) [two] b = Sigmoid(x) [join] y = Concat<axis = 1>(a, b, x) [more] z = Neg(b)",
)


def test_a_concat_copies_what_its_producers_cannot_write_in_place():
    whole = layer(JOIN, "join", "a:int8 b:int8 x:int8", "y:int8", "Concat")
    # b is read elsewhere too, x is a graph input: both are read and written.
    assert layer_work(whole, JOIN) == Work("memory", "int8", 0, 2 * 256)
    mixed = layer(JOIN, "join", "a:float b:float16 x:float16", "y:float16", "Concat")
    assert layer_work(mixed, JOIN) == Work("memory", "float16", 0, 2 * 2 * 384)


def test_a_concat_that_copies_nothing_costs_nothing():
    graph = graph_of(
        "(float[1,8,4,4] x) => (float[1,16,4,4] y)",
        "[one] a = Relu(x) [two] b = Sigmoid(x) [join] y = Concat<axis = 1>(a, b)",
    )
    joined = layer(graph, "join", "a:int8 b:int8", "y:int8", "Concat")
    assert layer_work(joined, graph) is None
    unread = replace(joined, layer=replace(joined.layer, outputs=()))
    assert layer_work(unread, graph) is None


def classes(**values: object) -> LayerClasses:
    entry = {"ops_efficiency": 0.5, "bandwidth_efficiency": 0.25, "latency_cycles": 3000}
    one = LayerClass.model_validate({"name": "conv", "source": "made up", **entry, **values})
    return LayerClasses(launch_cycles=2000, launch_source="made up", classes=(one,))


@pytest.mark.parametrize(("rate", "ops_us"), [("tensor", 2), ("cuda", 20)])
def test_time_is_launch_latency_operations_and_bytes(rate: str, ops_us: float):
    roofline = Roofline(CONV, GPU, classes(rate=rate))
    assert roofline.work_us(Work("conv", "int8", 1e7, 1e5)) == pytest.approx(3 + ops_us + 4)
    made = layer(CONV, "conv relu", "x:int8", "y:int8")
    work = gpu_work(made, CONV)
    assert roofline.layer_us(made) == pytest.approx(2 + roofline.work_us(work))


@pytest.mark.parametrize(("rate", "ops_us"), [("tensor", 4), ("cuda", 40)])
def test_what_a_power_limit_leaves_of_the_clock_slows_all_but_the_memory(rate: str, ops_us: float):
    capped = GPU.model_copy(update={"sustained_clock_mhz": 500})
    roofline = Roofline(CONV, capped, classes(rate=rate))
    assert roofline.work_us(Work("conv", "int8", 1e7, 1e5)) == pytest.approx(6 + ops_us + 4)
    launch = classes().launch_us(capped)
    assert launch == pytest.approx(2 * classes().launch_us(GPU))


def test_operations_may_leave_less_of_the_clock_than_all_else():
    capped = GPU.model_copy(update={"sustained_clock_mhz": 500, "tensor_clock_mhz": 250})
    roofline = Roofline(CONV, capped, classes())
    assert roofline.work_us(Work("conv", "int8", 1e7, 1e5)) == pytest.approx(6 + 8 + 4)


def test_time_grows_with_the_depth_and_writing_may_be_slower_than_reading():
    work = Work("conv", "int8", 0, 1e5, written=5e4, depth=500, tiled_ops=1e7, small_tiled_ops=5e6)
    plain = Roofline(CONV, GPU, classes()).work_us(work)
    deep = Roofline(CONV, GPU, classes(depth_cycles=4)).work_us(work)
    assert deep - plain == pytest.approx(500 * 4 / GPU.boost_clock_mhz)
    slow = Roofline(CONV, GPU, classes(write_efficiency=0.125)).work_us(work)
    assert slow - plain == pytest.approx(2)  # Half of the bytes, which take 4 us in all, twice.
    tiled = Roofline(CONV, GPU, classes(tile=64)).work_us(work)
    assert tiled - plain == pytest.approx(2)
    tiled = Roofline(CONV, GPU, classes(tile=32)).work_us(work)
    assert tiled - plain == pytest.approx(1)


def test_weights_that_no_cache_holds_come_from_memory_at_its_bandwidth():
    """2 MiB of L2: the rest of the weights is read at 100 bytes in a nanosecond, no faster."""
    cached = Roofline(CONV, GPU, classes(bandwidth_efficiency=2.0))
    fits = Work("conv", "int8", 0, bytes=2**21, constants=2**21)
    large = Work("conv", "int8", 0, bytes=2**21 + 1e6, constants=2**21 + 1e6)
    activations = Work("conv", "int8", 0, bytes=2**21 + 1e5)
    bandwidth = GPU.memory_bandwidth_gb_s * 1e3
    assert cached.work_us(large) - cached.work_us(fits) == pytest.approx(1e6 / bandwidth)
    assert cached.work_us(activations) - cached.work_us(fits) == pytest.approx(5e4 / bandwidth)


def test_tensors_that_no_cache_holds_take_the_memorys_time_at_least():
    """2 MiB of L2. Of what it does not hold, three times as much is read from memory."""
    fast = Roofline(CONV, GPU, classes(bandwidth_efficiency=20.0))
    share_of_memory = 0.8 * GPU.memory_bandwidth_gb_s * 1e3  # Bytes in a microsecond.
    for tensors, moved in ((2**21, 0), (2.5 * 2**20, 1.5 * 2**20), (2**23, 2**23)):
        work = Work("conv", "int8", 0, tensors)
        least_us = moved / share_of_memory
        assert least_memory_us(work, GPU) == pytest.approx(least_us)
        assert fast.work_us(work) >= 3 + least_us
    weights = Work("conv", "int8", 0, 2**23, constants=2**23)
    assert least_memory_us(weights, GPU) == 0


@pytest.mark.parametrize(
    ("kernel", "dtype", "size", "read"),
    [
        (1, "int8", 1, 0.25),
        (1, "float16", 2, 0.25),
        (1, "float", 4, 1.0),  # Channels lie apart: what is between is loaded with the rest.
        (2, "int8", 1, 1.0),
        (3, "int8", 1, 1.0),
    ],
)
def test_a_conv_on_a_gpu_does_not_read_what_lies_between_its_windows(
    kernel: int, dtype: str, size: int, read: float
):
    found = graph_of(
        "(float[1,32,12,12] x) => (float[1,32,6,6] y)",
        '[conv] y = Conv<strides = [2, 2], auto_pad = "SAME_UPPER">(x, w)',
        f"float[32,32,{kernel},{kernel}] w = {{1}}",
    )
    made = layer(found, "conv", f"x:{dtype}", f"y:{dtype}")
    work = gpu_work(made, found)
    assert work is not None
    assert work.bytes - work.constants == size * (32 * 144 * read + 32 * 36)
    # What an engine of a CPU reads is for a fit to tell.
    whole = layer_work(made, found)
    assert whole is not None
    assert whole.bytes - whole.constants == size * (32 * 144 + 32 * 36)


def test_tensors_that_the_cache_holds_move_as_fast_as_multiprocessors_and_clock_say():
    """2 MiB of L2; each of 20 multiprocessors moves 6.73 bytes in a nanosecond at least."""
    many = GPU.model_copy(update={"sms": 20})
    figures = classes(bandwidth_efficiency=1, write_efficiency=1)

    def us(moved: float, gpu: Gpu) -> float:
        idle, busy = (Work("conv", "int8", 0, bytes=b, written=b / 2) for b in (0, moved))
        roofline = Roofline(CONV, gpu, figures)
        return roofline.work_us(busy) - roofline.work_us(idle)

    mib = 2**20 / 1e3  # Nanoseconds of 1 GB/s.
    assert us(2**20, many) == pytest.approx(mib / 134.6)
    slightly_more = 2.125 * 2**20
    assert us(slightly_more, many) == pytest.approx(2 * mib / 134.6 + 0.125 * mib / 100)
    assert us(2**20, GPU) == pytest.approx(mib / 100)


def test_each_multiprocessor_computes_eight_silus_in_a_cycle():
    """Ten multiprocessors at 1 GHz: 80 in a nanosecond."""
    roofline = Roofline(CONV, GPU, classes())
    plain, silu = (Work("conv", "int8", 1e7, 1e5, exponentials=count) for count in (0, 3.2e5))
    assert roofline.work_us(silu) - roofline.work_us(plain) == pytest.approx(4)


@pytest.mark.parametrize(("axis", "rows"), [(1, 400), (-1, 64), (0, 6400)])
def test_a_softmax_sums_along_its_axis_row_after_row(axis: int, rows: int):
    graph = graph_of(
        "(float[1,16,4,100] x) => (float[1,16,4,100] y)", f"[s] y = Softmax<axis = {axis}>(x)"
    )
    work = layer_work(layer(graph, "s", "x:float16", "y:float16"), graph)
    assert work.softmax_rows == rows


def test_a_softmax_of_many_rows_takes_93_cycles_of_a_multiprocessor_for_each():
    """Ten multiprocessors at 1 GHz: a million rows take 9.3 ms."""
    roofline = Roofline(CONV, GPU, classes())
    none, many = (Work("conv", "int8", 0, 1, softmax_rows=rows) for rows in (0, 1e6))
    assert roofline.work_us(many) - roofline.work_us(none) == pytest.approx(9300, rel=0.01)


def test_a_conversion_takes_its_elements_as_well_as_its_bytes():
    """A warp of each of 10 multiprocessors converts 320 elements in a cycle of a nanosecond."""
    roofline = Roofline(CONV, GPU, classes(rate="elements"))
    work = Work("conv", "float16", ops=3.2e5, bytes=1e5)
    assert roofline.work_us(work) == pytest.approx(3 + 2 + 4)


def test_a_deep_sum_takes_its_time_however_few_its_operations():
    shallow, deep = (Work("conv", "int8", 1e7, 1e5, depth=depth) for depth in (10, 90_000))
    plain, bounded = (
        Roofline(CONV, GPU, classes(least_depth_cycles=cycles)) for cycles in (0.0, 4.0)
    )
    assert bounded.work_us(shallow) == plain.work_us(shallow) == plain.work_us(deep)
    assert bounded.work_us(deep) == pytest.approx(3 + 90_000 * 4 / GPU.boost_clock_mhz)
    # The cycles that are added count towards the bound.
    both = Roofline(CONV, GPU, classes(depth_cycles=3.99, least_depth_cycles=4.0))
    assert both.work_us(deep) == pytest.approx(plain.work_us(deep) + 90_000 * 3.99 / 1000)


@pytest.mark.parametrize(
    ("gpu", "dtype", "times"),
    [
        ("rtx-3090", "float", 2),  # TF32 at a quarter of FP16's rate.
        ("rtx-3090", "float16", 1),
        ("a100", "float", 1),  # At half, as on the H100 that the cycles were measured on.
        ("t4", "float", 1),  # No TF32.
    ],
)
def test_a_deep_sum_takes_longer_where_tf32_is_slow_beside_fp16(gpu: str, dtype: str, times: float):
    assert slower_products(dtype, load_gpu(gpu)) == pytest.approx(times, rel=0.01)
    work = Work("conv", dtype, 0, 0, depth=90_000)
    roofline = Roofline(CONV, load_gpu(gpu), classes(dtype=dtype, least_depth_cycles=4.0))
    bound = 90_000 * 4 * times / load_gpu(gpu).clock_mhz
    latency = roofline.work_us(replace(work, depth=0))
    assert roofline.work_us(work) - latency == pytest.approx(bound, rel=0.01)


MATMUL = graph_of(
    "(float[2,40] x) => (float[2,24] y)", "[product] y = MatMul(x, w)", "float[40,24] w = {1}"
)


def separable(channels: int) -> Graph:
    """A depthwise Conv and one to ``channels``, which reads 8 and writes as many as it has."""
    return graph_of(
        f"(float[1,8,4,4] x) => (float[1,{channels},4,4] y)",
        "[apart] a = Conv<group = 8>(x, v) [conv] y = Conv(a, w)",
        f"float[8,1,1,1] v = {{1}}, float[{channels},8,1,1] w = {{1}}",
    )


@pytest.mark.parametrize(
    ("graph", "gpu", "base", "error"),
    [
        (CONV, "a100", "float16", 0.16),
        (MATMUL, "a100", "float16", 0.28),
        # Of the Convs' elements 16 in 56 are the depthwise one's, of the next graph's 16 in 88.
        (separable(32), "a100", "float16", 0.27),
        (separable(64), "a100", "float16", 0.16),
        (CONV, "a100", "float", 0.41),
        (MATMUL, "a100", "float", 0.41),
        (separable(32), "a100", "float", 0.41),
        (CONV, "rtx-4090", "float16", 0.16),
        (CONV, "rtx-5090", "float16", 0.33),
        (CONV, "rtx-5090", "float", 0.41),
    ],
)
def test_ratios_of_matrices_depthwise_convs_beside_fp32_and_on_blackwell_are_less_certain(
    graph: Graph, gpu: str, base: str, error: float
):
    estimator = make_estimator(graph, load_gpu(gpu), base=base)
    assert estimator.ratio_error == error
    assert estimator.layer_error == 0.12


def test_a_class_of_the_own_compute_capability_comes_first():
    any_gpu, hopper = classes(dtype="int8").classes[0], classes(compute_capability="9.0").classes[0]
    both = LayerClasses(launch_cycles=0, launch_source="x", classes=(any_gpu, hopper))
    assert both.find("conv", "int8", "9.0") is hopper
    assert both.find("conv", "int8", "8.0") is any_gpu


def test_the_classes_of_hopper_are_those_fitted_to_its_kernels():
    fitting = importlib.import_module("benchmarks.times.kernel_classes")
    shipped, gpu = load_layer_classes(), load_gpu("h100")
    document = json.loads(fitting.MEASURED.read_text())
    for form in fitting.FORMATS:
        group = fitting.kernels(document, form)
        fitted = fitting.fit(group, gpu, shipped.launch_cycles / gpu.boost_clock_mhz)
        entry = shipped.find(fitted.name, fitted.dtype, "9.0")
        assert entry.compute_capability == "9.0"
        for field in ("ops_efficiency", "bandwidth_efficiency", "write_efficiency"):
            assert getattr(entry, field) == pytest.approx(getattr(fitted, field), abs=0.006)
        assert entry.depth_cycles == pytest.approx(fitted.depth_cycles, abs=0.006)
        assert entry.latency_cycles == pytest.approx(fitted.latency_cycles, abs=11)


def test_a_class_for_the_type_comes_before_one_for_any():
    exact, general = classes(dtype="int8").classes[0], classes().classes[0]
    both = LayerClasses(launch_cycles=0, launch_source="x", classes=(general, exact))
    assert both.find("conv", "int8") is exact
    assert both.find("conv", "float16") is general


def test_the_shipped_classes_cover_every_kind_of_layer():
    found = load_layer_classes()
    for name in (
        *("conv", "conv to float", "conv-act-pool", "few-channel conv", "depthwise conv"),
        *("matmul", "pooling", "memory", "conversion", "few-channel conversion"),
    ):
        for dtype in ("int8", "float16", "float", "bfloat16", "int64"):
            assert found.find(name, dtype).name == name
    assert all(entry.source.startswith(("measured: ", "assumed ")) for entry in found.classes), (
        "every figure says where it comes from"
    )


def test_an_estimated_plan_says_so_and_every_layer_has_a_time():
    predictor = Predictor(CONV, load_pack("tensorrt").rules, ANY_TARGET, "float16", "int8")
    prediction = predictor.predict(EMPTY)
    roofline = Roofline(CONV, GPU, load_layer_classes())
    plan = roofline.estimate(prediction)
    assert plan.estimated
    assert plan.source == "predicted from rules, estimated for round"
    assert [x.time_us for x in plan.layers] == [roofline.layer_us(x) for x in prediction.layers]
    assert [replace(x, time_us=None) for x in plan.layers] == list(prediction.plan.layers)


def test_a_tensor_of_unknown_type_can_be_estimated():
    graph = graph_of("(float[1,8,4,4] x) => (float[1,8,4,4] y)", "[a] m = Relu(x) [b] y = Neg(m)")
    types = {name: kind for name, kind in graph.types.items() if name != "m"}
    untyped = replace(graph, types=types)
    prediction = Predictor(untyped, (), ANY_TARGET, "float", "int8").predict(EMPTY)
    plan = Roofline(untyped, GPU, load_layer_classes()).estimate(prediction)
    assert [x.input_types for x in plan.layers] == [("float",), ("unknown",)]
    assert all(x.time_us > 0 for x in plan.layers)


PACK = load_pack("tensorrt")


@settings(max_examples=25, deadline=None)
@given(graph_texts(), st.data())
def test_a_faster_gpu_is_never_slower(text: str, data: st.DataObject):
    graph = graph_of_text(text)
    placement = data.draw(placements(graph))
    slow = load_gpu(data.draw(st.sampled_from(gpu_names())))
    factor = data.draw(st.floats(1, 8))
    peak = {name: rate and rate * factor for name, rate in slow.peak}
    fast = slow.model_copy(
        update={
            "peak": slow.peak.model_copy(update=peak),
            "memory_bandwidth_gb_s": slow.memory_bandwidth_gb_s * factor,
            "boost_clock_mhz": slow.boost_clock_mhz * factor,
            "sustained_clock_mhz": slow.clock_mhz * factor,
        }
    )
    prediction = Predictor(graph, PACK.rules, ANY_TARGET, "float16", "int8").predict(placement)
    before, after = (Roofline(graph, g, load_layer_classes()) for g in (slow, fast))
    for one in prediction.layers:
        assert 0 <= after.layer_us(one) <= before.layer_us(one)


def test_layers_of_one_node_share_its_work():
    constants = "float[2,32,16] w = {0.1}, float[2,32,8] r = {0.1}"
    body = '[lstm1] y = LSTM<hidden_size = 8, direction = "bidirectional">(x, w, r)'
    graph = graph_of("(float[32,1,16] x) => (float[32,2,1,8] y)", body, constants)
    rules = load_pack("openvino").rules
    directions = Predictor(graph, rules, ANY_TARGET, "float", "uint8").predict(EMPTY).layers
    assert [predicted.nodes[0].name for predicted in directions] == ["lstm1", "lstm1"]
    x, y, w, r = 32 * 16 * 4, 32 * 2 * 8 * 4, 2 * 32 * 16 * 4, 2 * 32 * 8 * 4
    half = Work("memory", "float", 0, (x + y + w + r) / 2, written=y / 2, constants=(w + r) / 2)
    assert [layer_work(predicted, graph) for predicted in directions] == [half, half]


def test_int8_tensors_fill_up_groups_of_channels_and_those_of_images_do_not():
    """Groups of 32: of 24 channels a quarter of what is moved is empty. A Conv of 3 takes 16."""
    found = graph_of(
        "(float[1,3,8,8] x) => (float[1,24,8,8] z)",
        "[stem] y = Conv(x, v) [conv] z = Conv(y, w)",
        "float[24,3,1,1] v = {1}, float[24,24,1,1] w = {1}",
    )
    stem = layer(found, "stem", "x:int8", "y:int8")
    conv = layer(found, "conv", "y:int8", "z:float16")
    image, more = gpu_work(stem, found), gpu_work(conv, found)
    assert image is not None and more is not None
    assert image.bytes - image.constants == 64 * (3 + 32)
    assert image.written == 64 * 32
    assert more.bytes - more.constants == 64 * (32 + 2 * 24)
    assert image.ops == pytest.approx(16 / 3 * layer_work(stem, found).ops)
    assert more.ops == layer_work(conv, found).ops


def test_a_conv_of_groups_gains_nothing_in_int8_where_the_pack_says_so():
    """A dense Conv does gain; of TensorRT-RTX no pack says so."""
    a100 = load_gpu("a100-sxm-40gb")
    packs = {name: load_pack(name).manifest.behaviour for name in ("tensorrt", "tensorrt-rtx")}
    for weight, group, gains in [("64,2,3,3", 32, False), ("64,64,3,3", 1, True)]:
        graph = graph_of(
            "(float[32,64,56,56] x) => (float[32,64,56,56] y)",
            f"[conv] y = Conv<pads = [1, 1, 1, 1], group = {group}>(x, w)",
            f"float[{weight}] w = {{1}}",
        )
        by_types = {
            (name, x, y): make_estimator(graph, a100, behaviour).layer_us(
                layer(graph, "conv", f"x:{x}", f"y:{y}")
            )
            for name, behaviour in packs.items()
            for x, y in [("float16", "float16"), ("int8", "int8"), ("int8", "float16")]
        }
        half = by_types["tensorrt", "float16", "float16"]
        for y in ("int8", "float16"):
            assert (by_types["tensorrt", "int8", y] < half) == gains
            assert gains or by_types["tensorrt", "int8", y] == half
        assert by_types["tensorrt-rtx", "int8", "int8"] < 0.9 * half
