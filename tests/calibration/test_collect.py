"""Calibration: statistics against NumPy, methods on known distributions, cache and chunks."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import reduce
from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from placer.calibration.activations import passes
from placer.calibration.collect import METHODS, Calibration, calibrate, default_cache_dir
from placer.calibration.dataset import Dataset, load_dataset, synthetic_dataset
from placer.calibration.histogram import BINS, HALF, Statistics
from placer.calibration.sample import Sample
from placer.errors import InputError, RunError
from placer.model import Model, load_model
from placer.quantization import Scheme

INT8 = Scheme(activation="int8", symmetric=True, bias="float")
UINT8 = Scheme(activation="uint8", symmetric=False, bias="int32")
SCHEMES = pytest.mark.parametrize("scheme", [INT8, UINT8], ids=["symmetric", "asymmetric"])


# Statistics

SMALLEST, LARGEST = 2.0**-20, 2.0**20
VALUES = st.one_of(
    st.just(0.0),
    st.floats(SMALLEST, LARGEST, width=32),
    st.floats(-LARGEST, -SMALLEST, width=32),
)
ARRAYS = hnp.arrays(np.float32, st.integers(1, 30), elements=VALUES)


def same(a: Statistics, b: Statistics) -> bool:
    numbers = [(s.low, s.high, s.count, s.zeros, s.exponent) for s in (a, b)]
    return numbers[0] == numbers[1] and bool((a.histogram == b.histogram).all())


@given(st.lists(ARRAYS, min_size=1, max_size=8), st.data())
def test_statistics_do_not_depend_on_order_or_grouping(
    batches: list[np.ndarray], draw: st.DataObject
) -> None:
    shuffled = draw.draw(st.permutations(batches))
    merged = reduce(Statistics.merge, map(Statistics.of, shuffled))
    assert same(merged, Statistics.of(np.concatenate(batches)))


@given(ARRAYS)
def test_bins_hold_what_numpy_counts(values: np.ndarray) -> None:
    statistics = Statistics.of(values)
    assert (statistics.low, statistics.high) == (values.min(), values.max())
    assert statistics.count == values.size
    assert statistics.zeros == (values == 0).sum()
    edges = (np.arange(BINS + 1) - HALF) * statistics.width
    nonzero = values[values != 0].astype(np.float64)
    np.testing.assert_array_equal(statistics.histogram, np.histogram(nonzero, edges)[0])


def test_range_doubles_when_values_exceed_it() -> None:
    small = Statistics.of(np.array([0.25, -0.5, 0.75], np.float32))
    assert (small.exponent, small.width) == (0, 1 / HALF)
    wide = small.merge(Statistics.of(np.array([5.0], np.float32)))
    assert (wide.exponent, wide.width) == (3, 8 / HALF)
    expected = {HALF + HALF // 32: 1, HALF - HALF // 16: 1, HALF + 3 * HALF // 32: 1}
    expected[HALF + 5 * HALF // 8] = 1
    assert {int(i): int(wide.histogram[i]) for i in np.flatnonzero(wide.histogram)} == expected


def test_a_batch_of_zeros_does_not_coarsen_the_histogram() -> None:
    small = Statistics.of(np.array([1e-6], np.float32))
    merged = Statistics.of(np.zeros(3, np.float32)).merge(small)
    assert merged.width == small.width
    assert (merged.low, merged.count, merged.zeros) == (0, 4, 3)


def test_half_precision_counts_as_single() -> None:
    values = np.array([0.1, -3.5, 65504.0], np.float16)
    assert same(Statistics.of(values), Statistics.of(values.astype(np.float32)))


def test_no_values_change_nothing() -> None:
    some = Statistics.of(np.array([5.0, 6.0], np.float32))
    none = Statistics.of(np.zeros((0, 3), np.float32))
    assert same(some.merge(none), some)
    assert same(none.merge(some), some)


# Methods


def range_of(values: np.ndarray, method: str, scheme: Scheme) -> tuple[float, float]:
    statistics = {"x": Statistics.of(values.astype(np.float32))}
    found = Calibration(statistics, synthetic=False).ranges(method, scheme)["x"]
    return found.low, found.high


def quantization_error(
    values: np.ndarray, value_range: tuple[float, float], scheme: Scheme
) -> float:
    """Mean squared error of quantizing ``values`` for real."""
    low, high = value_range
    if scheme.symmetric:
        scale, zero, lowest, highest = max(-low, high) / 127, 0, -127, 127
    else:
        scale, lowest, highest = (high - low) / 255, 0, 255
        zero = round(-low / scale)
    q = np.clip(np.rint(values / scale) + zero, lowest, highest)
    return float(np.mean(((q - zero) * scale - values) ** 2))


@SCHEMES
@pytest.mark.parametrize("method", METHODS)
def test_uniform_values_keep_their_full_range(method: str, scheme: Scheme) -> None:
    values = np.linspace(-1, 1, 100_001)
    assert range_of(values, method, scheme) == pytest.approx((-1, 1), abs=1e-3)


def test_mse_clips_an_outlier_only_where_that_makes_steps_smaller() -> None:
    """With opposite ends the step depends on the larger one alone."""
    values = np.append(np.linspace(0, 3, 1_000_001), -2.0)
    assert range_of(values, "mse", INT8) == (-2, 3)
    assert range_of(values, "mse", UINT8) == (pytest.approx(0, abs=0.03), 3)


@SCHEMES
@pytest.mark.parametrize("method", ["percentile", "entropy", "mse"])
def test_an_outlier_among_gaussian_values_is_clipped(method: str, scheme: Scheme) -> None:
    values = np.append(np.random.default_rng(0).normal(size=200_000), 25.0)
    low, high = range_of(values, method, scheme)
    assert 3 < high < 24
    assert -5 < low < -3
    assert range_of(values, "minmax", scheme)[1] == 25


@SCHEMES
@pytest.mark.parametrize("distribution", ["normal", "laplace", "uniform", "standard_exponential"])
def test_mse_is_at_least_as_good_as_a_search_with_real_quantization(
    distribution: str, scheme: Scheme
) -> None:
    values = getattr(np.random.default_rng(1), distribution)(size=20_000).astype(np.float32)
    found = quantization_error(values, range_of(values, "mse", scheme), scheme)
    low, high = min(0.0, float(values.min())), float(values.max())
    searched = min(
        quantization_error(values, (low * share, high * share), scheme)
        for share in np.linspace(0.2, 1, 41)
    )
    assert found <= 1.02 * searched


def test_percentile_interpolates_within_bins() -> None:
    values = np.linspace(-1, 1, 200_001)
    statistics = {"x": Statistics.of(values.astype(np.float32))}
    calibration = Calibration(statistics, synthetic=False)
    symmetric = calibration.ranges("percentile", INT8, percentile=90)["x"]
    assert symmetric == pytest.approx((-0.9, 0.9), abs=1e-4)
    # Half of the 10% is cut off either end of [-1, 1], whose length is 2.
    asymmetric = calibration.ranges("percentile", UINT8, percentile=90)["x"]
    assert asymmetric == pytest.approx((-0.9, 0.9), abs=1e-4)
    shifted = {"x": Statistics.of((values + 0.5).astype(np.float32))}
    tails = Calibration(shifted, synthetic=False).ranges("percentile", UINT8, percentile=90)["x"]
    assert tails == pytest.approx((-0.4, 1.4), abs=1e-4)


def test_percentile_of_100_is_minmax() -> None:
    values = np.random.default_rng(2).normal(size=1000).astype(np.float32)
    calibration = Calibration({"x": Statistics.of(values)}, synthetic=False)
    for scheme in (INT8, UINT8):
        found = calibration.ranges("percentile", scheme, percentile=100)
        assert found == calibration.ranges("minmax", scheme)


@SCHEMES
@pytest.mark.parametrize("method", METHODS)
@given(values=ARRAYS)
def test_ranges_hold_zero_and_nothing_beyond_the_values(
    method: str, scheme: Scheme, values: np.ndarray
) -> None:
    low, high = range_of(values, method, scheme)
    assert min(0.0, float(values.min())) <= low <= 0 <= high <= max(0.0, float(values.max()))
    assert (low, high) != (0, 0) or not values.any()
    if values.min() >= 0:
        assert math.copysign(1, low) == 1


@SCHEMES
@pytest.mark.parametrize("method", METHODS)
def test_relu_stays_one_sided(method: str, scheme: Scheme) -> None:
    values = np.maximum(np.random.default_rng(3).normal(size=50_000), 0)
    low, high = range_of(values, method, scheme)
    assert low == 0
    assert 2.5 < high <= values.max() + 1e-6
    low, high = range_of(-values, method, scheme)
    assert high == 0
    assert -values.max() - 1e-6 <= low < -2.5


@SCHEMES
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize(
    ("value", "expected"), [(3.0, (0.0, 3.0)), (-3.0, (-3.0, 0.0)), (0.0, (0.0, 0.0))]
)
def test_constant_tensors(
    method: str, scheme: Scheme, value: float, expected: tuple[float, float]
) -> None:
    assert range_of(np.full(100, value), method, scheme) == expected


@SCHEMES
def test_a_tensor_of_nearly_all_zeros_is_not_erased(scheme: Scheme) -> None:
    values = np.zeros(100_000)
    values[0] = 2.0
    assert range_of(values, "percentile", scheme) == (0, 2)


def test_unknown_method_and_percentile() -> None:
    calibration = Calibration({"x": Statistics.of(np.ones(1, np.float32))}, synthetic=False)
    with pytest.raises(InputError) as caught:
        calibration.ranges("median", INT8)
    assert str(caught.value) == (
        "unknown calibration method 'median'; use one of: minmax, percentile, entropy, mse"
    )
    with pytest.raises(InputError) as caught:
        calibration.ranges("percentile", INT8, percentile=101)
    assert str(caught.value) == "percentile 101 is outside (0, 100]; 99.99 is usual"


# Models

NET = """
<ir_version: 8, opset_import: ["" : 17]>
net (float[1,3,8,8] x) => (float[1,4] y)
<float[4,3,3,3] w, float[4] b> {
  conv = Conv <pads = [1,1,1,1]> (x, w, b)
  relu = Relu(conv)
  pooled = GlobalAveragePool(relu)
  shape = Shape <end = 2> (pooled)
  y = Reshape(pooled, shape)
}
"""
TENSORS = ("x", "conv", "relu", "pooled", "y")


def model_of(text: str, path: Path, **weights: np.ndarray) -> Model:
    """The model of ``text`` whose initializers take the values of ``weights``."""
    proto = onnx.parser.parse_model(text)
    del proto.graph.initializer[:]
    proto.graph.initializer.extend(
        onnx.numpy_helper.from_array(values, name) for name, values in weights.items()
    )
    onnx.save(proto, path)
    return load_model(path)


@pytest.fixture
def net(tmp_path: Path) -> Model:
    rng = np.random.default_rng(0)
    return model_of(
        NET,
        tmp_path / "net.onnx",
        w=rng.normal(size=(4, 3, 3, 3)).astype(np.float32),
        b=rng.normal(size=4).astype(np.float32),
    )


@pytest.fixture
def data(net: Model, tmp_path: Path) -> Dataset:
    images = np.random.default_rng(1).normal(size=(5, 3, 8, 8)).astype(np.float32)
    np.savez(tmp_path / "data.npz", x=images)
    return load_dataset(str(tmp_path / "data.npz"), net)


def unreadable(dataset: Dataset) -> Dataset:
    """The same dataset by its fingerprint, but one that cannot be iterated."""

    def read() -> Iterator[Sample]:
        raise AssertionError("the dataset was read")

    return replace(dataset, read=read)


def same_calibration(a: Calibration, b: Calibration) -> bool:
    return a.statistics.keys() == b.statistics.keys() and all(
        same(a.statistics[name], b.statistics[name]) for name in a.statistics
    )


def values_of(net: Model, data: Dataset) -> dict[str, np.ndarray]:
    """All activations over all samples, by ONNX Runtime without placer's help."""
    proto = onnx.ModelProto()
    proto.CopyFrom(net.proto)
    computed = [name for name in TENSORS if name not in ("x", "y")]
    proto.graph.output.extend(onnx.ValueInfoProto(name=name) for name in computed)
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = ort.InferenceSession(proto.SerializeToString(), options)
    runs = [session.run([*computed, "y"], sample.inputs) for sample in data]
    found = {n: np.stack(v) for n, v in zip([*computed, "y"], zip(*runs, strict=True), strict=True)}
    return {"x": np.stack([sample.inputs["x"] for sample in data]), **found}


def test_statistics_are_those_of_all_values(net: Model, data: Dataset) -> None:
    calibration = calibrate(net, TENSORS, data)
    assert sorted(calibration.statistics) == sorted(TENSORS)
    assert not calibration.synthetic
    for name, values in values_of(net, data).items():
        assert same(calibration.statistics[name], Statistics.of(values)), name
    ranges = calibration.ranges("minmax", UINT8)
    assert ranges["relu"].low == 0
    assert ranges["relu"].high == calibration.statistics["conv"].high


def test_initializers_and_integer_tensors_are_left_out(net: Model, data: Dataset) -> None:
    assert list(calibrate(net, ["w", "b", "shape", "relu"], data).statistics) == ["relu"]
    assert calibrate(net, ["w"], data).statistics == {}


def test_inputs_alone_need_no_inference(net: Model, data: Dataset) -> None:
    values = np.stack([sample.inputs["x"] for sample in data])
    calibration = calibrate(net, ["x"], data)
    assert same(calibration.statistics["x"], Statistics.of(values))


@pytest.mark.parametrize("budget_bytes", [1, 2048, 2049, 1 << 20])
def test_chunks_give_the_same_statistics(net: Model, data: Dataset, budget_bytes: int) -> None:
    chunked = calibrate(net, TENSORS, data, budget_bytes=budget_bytes)
    assert same_calibration(chunked, calibrate(net, TENSORS, data))


def test_a_model_that_random_inputs_do_not_fit_asks_for_data(save: Callable[..., Path]) -> None:
    model = load_model(
        save("""
        <ir_version: 8, opset_import: ["": 17]>
        net (int64[4] i) => (float[4] y) <float[1] table = {1.0}> {
          g = Gather(table, i)
          y = Relu(g)
        }
        """)
    )
    with pytest.raises(RunError, match=r"out of data bounds.*; not every .* inputs; give `data`"):
        calibrate(model, ["g"], synthetic_dataset(model, 2, seed=0))


def test_tensors_of_unknown_shape_share_passes(save: Callable[..., Path], data: Dataset) -> None:
    # How many values NonZero finds depends on the data.
    chain = "".join(f"r{i + 1} = Relu(r{i})\n" for i in range(40))
    model = load_model(
        save(f"""
        <ir_version: 8, opset_import: ["": 17]>
        net (float[8] x) => (float[A,B] r40) {{
          found = NonZero(x)
          r0 = Cast <to = 1> (found)
          {chain}
        }}
        """)
    )
    tensors = [f"r{i}" for i in range(40)]
    assert [len(part) for part in passes(model, tensors, data)] == [32, 8]


def test_progress_counts_batches_of_all_passes(net: Model, data: Dataset) -> None:
    told: list[tuple[int, int]] = []
    calibrate(net, TENSORS, data, progress=lambda done, total: told.append((done, total)))
    assert told == [(i, 5) for i in range(1, 6)]
    told.clear()
    calibrate(net, ["conv", "relu"], data, None, lambda *args: told.append(args), budget_bytes=1)
    assert told == [(i, 10) for i in range(1, 11)]


def test_tensors_of_types_that_onnx_does_not_infer(tmp_path: Path) -> None:
    model = model_of(
        '<ir_version: 8, opset_import: ["" : 17, "com.microsoft" : 1]>'
        "g (float[1,4] x) => (float[1,4] y) "
        "{ fast = com.microsoft.FastGelu(x) y = Relu(fast) }",
        tmp_path / "gelu.onnx",
    )
    calibration = calibrate(model, ["fast", "y"], synthetic_dataset(model, 3, seed=0))
    assert calibration.synthetic
    assert calibration.statistics["fast"].count == 12
    assert calibration.statistics["y"].high == calibration.statistics["fast"].high


def test_half_precision_activations(tmp_path: Path) -> None:
    model = model_of(
        '<ir_version: 8, opset_import: ["" : 17]>'
        "g (float16[1,4] x) => (float16[1,4] y) { a = Sigmoid(x) y = Add(a, x) }",
        tmp_path / "half.onnx",
    )
    np.save(tmp_path / "x.npy", np.array([[0, 1, 2, -8]], np.float16))
    calibration = calibrate(model, ["x", "a"], load_dataset(str(tmp_path / "x.npy"), model))
    assert calibration.ranges("minmax", UINT8)["x"] == (-8, 2)
    assert calibration.ranges("minmax", UINT8)["a"] == pytest.approx((0, 0.8808), abs=1e-3)


def test_external_weights_are_found(net: Model, data: Dataset, tmp_path: Path) -> None:
    folder = tmp_path / "external"
    folder.mkdir()
    onnx.save(
        onnx.load(net.path),
        folder / "net.onnx",
        save_as_external_data=True,
        location="weights",
        size_threshold=0,
    )
    external = load_model(folder / "net.onnx")
    assert same_calibration(calibrate(external, TENSORS, data), calibrate(net, TENSORS, data))


def test_unknown_tensor(net: Model, data: Dataset) -> None:
    with pytest.raises(InputError) as caught:
        calibrate(net, ["conv", "none"], data)
    assert str(caught.value) == (
        f"{net.path} has no tensor 'none' to calibrate; name an input of a node"
    )


def test_activations_that_overflow(tmp_path: Path) -> None:
    model = model_of(
        '<ir_version: 8, opset_import: ["" : 17]>'
        "g (float[1,2] x) => (float[1,2] y) { [big] e = Exp(x) y = Relu(e) }",
        tmp_path / "exp.onnx",
    )
    source = tmp_path / "x.npy"
    np.save(source, np.array([[1, 2], [3, 400]], np.float32))
    with pytest.raises(InputError) as caught:
        calibrate(model, ["x", "e"], load_dataset(str(source), model))
    assert str(caught.value) == (
        f"tensor 'e' of node 'big' (Exp) is NaN or Inf on {source}, sample 1: the float model "
        "overflows on this data; check how the inputs are scaled"
    )


def test_a_weight_that_is_nan_is_named(tmp_path: Path) -> None:
    proto = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["" : 17]>'
        "g (float[1,2] x) => (float[1,2] y) { [add] a = Add(x, w) y = Relu(a) }"
    )
    weight = np.array([1, np.nan], np.float32)
    proto.graph.initializer.append(onnx.numpy_helper.from_array(weight, "w"))
    onnx.save(proto, tmp_path / "nan.onnx")
    model = load_model(tmp_path / "nan.onnx")
    with pytest.raises(InputError, match=r"'add' .* weight 'w' holds NaN; export the model from"):
        calibrate(model, ["x", "a"], synthetic_dataset(model, samples=1, seed=0))


def test_models_that_fail_at_run_time(tmp_path: Path) -> None:
    model = model_of(
        '<ir_version: 8, opset_import: ["" : 17]>'
        "g (int64[2] s, float[1,3] x) => (float[m,n] y) { a = Reshape(x, s) y = Relu(a) }",
        tmp_path / "reshape.onnx",
    )
    source = tmp_path / "data.npz"
    np.savez(source, s=np.array([[1, 7]]), x=np.ones((1, 3), np.float32))
    with pytest.raises(RunError) as caught:
        calibrate(model, ["a"], load_dataset(str(source), model))
    assert str(caught.value).startswith(
        f"ONNX Runtime failed to run {model.path} on {source}, sample 0: "
    )


# Cache


def test_second_calibration_reads_the_cache_only(net: Model, data: Dataset, tmp_path: Path) -> None:
    cache = tmp_path / "cache" / "placer"
    first = calibrate(net, TENSORS, data, cache)
    assert [path.suffix for path in cache.iterdir()] == [".npz"]
    again = calibrate(net, [*reversed(TENSORS), "relu"], unreadable(data), cache)
    assert same_calibration(first, again)
    for method in METHODS:
        assert again.ranges(method, INT8) == first.ranges(method, INT8)


def test_cache_depends_on_data_tensors_and_model(net: Model, data: Dataset, tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    calibrate(net, TENSORS, data, cache)
    calibrate(net, TENSORS[:2], data, cache)
    calibrate(net, TENSORS, data.limit(3), cache)
    calibrate(replace(net, fingerprint="sha256:other"), TENSORS, data, cache)
    assert len(list(cache.iterdir())) == 4


@pytest.mark.parametrize(
    "damage", [b"", b"garbage", "half", "packing", "other arrays", "nan", "swapped"]
)
def test_damaged_cache_is_replaced(
    net: Model,
    data: Dataset,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    damage: bytes | str,
) -> None:
    cache = tmp_path / "cache"
    first = calibrate(net, TENSORS, data, cache)
    (path,) = cache.iterdir()
    if isinstance(damage, bytes):
        path.write_bytes(damage)
    elif damage == "half":
        path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    elif damage == "packing":  # By a way that no reader of zip archives knows.
        whole = bytearray(path.read_bytes())
        whole[whole.index(b"PK\1\2") + 10] = 99
        path.write_bytes(whole)
    elif damage == "other arrays":
        np.savez(path, names=np.array(["x"]), extremes=np.zeros((2, 2)))
    else:
        with np.load(path) as kept:
            arrays = dict(kept)
        arrays["extremes"][0] = math.nan if damage == "nan" else arrays["extremes"][0][::-1]
        np.savez(path, **arrays)
    with caplog.at_level(logging.WARNING):
        assert same_calibration(first, calibrate(net, TENSORS, data, cache))
    assert f"calibration cache {path} is damaged and will be replaced" in caplog.text
    assert same_calibration(first, calibrate(net, TENSORS, unreadable(data), cache))


def test_cache_that_cannot_be_written_is_only_a_warning(
    net: Model, data: Dataset, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = tmp_path / "file"
    file.write_text("in the way")
    with caplog.at_level(logging.WARNING):
        calibration = calibrate(net, TENSORS, data, file / "cache")
    assert same_calibration(calibration, calibrate(net, TENSORS, data))
    assert "calibration is not cached: cannot write" in caplog.text


def test_default_cache_folder_is_named_after_placer() -> None:
    assert "placer" in default_cache_dir().parts


@pytest.mark.parametrize("look_up", ["Gather(e, j)", "GatherElements(e, j)", "GatherND(e, k)"])
def test_data_that_makes_an_index_out_of_range_is_bad_input(look_up: str, tmp_path: Path) -> None:
    """Position ids behind a padding: the sum is known only when ONNX Runtime computes it."""
    text = f"""
    <ir_version: 9, opset_import: ["": 17]>
    g (int64[1,4] ids) => (float y)
    <float[50,4] e, int64 o, int64[3] s> {{
      [shift] j = Add(ids, o)
      [cut] k = Reshape(j, s)
      [emb] h = {look_up}
      [sum] y = ReduceSum<keepdims = 0>(h)
    }}
    """
    weights = {"e": np.zeros((50, 4), np.float32), "o": np.array(2), "s": np.array([1, 4, 1])}
    model = model_of(text, tmp_path / "net.onnx", **weights)
    source = str(tmp_path / "data.npz")
    np.savez(source, ids=np.array([[0, 1, 2, 47], [0, 1, 2, 48]]))
    with pytest.raises(InputError, match=r"sample 1 makes an index out of range at node 'emb': .*"):
        calibrate(model, ["h"], load_dataset(source, model))
