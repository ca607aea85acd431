"""Building with NVIDIA's real builder (TensorRT-RTX, no GPU): profiles, cache, plugins, errors."""

import logging
import multiprocessing
import resource
import signal
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import onnx
import pytest

from placer.engines.tensorrt.build import BuildSettings, ShapeRange, build
from placer.engines.tensorrt.library import Library, load_library
from placer.engines.tensorrt.profile import parse_shape_values
from placer.engines.tensorrt.timing_cache import TimingCache
from placer.errors import InputError, RunError

DYNAMIC = """
    <ir_version: 9, opset_import: ["": 17]>
    g (float[N,3,H,16] x) => (float[N,8,M,14] y)
    <float[8,3,3,3] w = {0.1}> {
      [conv] c = Conv(x, w)
      [relu] y = Relu(c)
    }
"""


SHAPES = {"x": ShapeRange.fixed((1, 3, 16, 16))}
SM89 = BuildSettings(gpu="sm89", shapes=SHAPES)


def test_a_library_that_is_not_there_says_how_to_get_it():
    with pytest.raises(
        RunError,
        match="TensorRT is not installed; install it with: pip install 'tensorrt<12,>=10' ",
    ):
        load_library("tensorrt")


def test_what_the_library_can_do(library: Library):
    assert library.title.startswith("TensorRT-RTX 1.")
    assert library.builds_without_gpu
    assert not library.has_weak_typing
    assert not library.has_implicit_quantization
    assert library.network_flags(strong=True) in (0, 1, 2)


def test_dynamic_inputs_take_a_range(library: Library, save: Callable[..., Path]):
    shapes = {"x": ShapeRange((1, 3, 16, 16), (2, 3, 32, 16), (4, 3, 64, 16))}
    report = build(library, save(DYNAMIC), replace(SM89, shapes=shapes))
    assert report.refusals == ()
    assert len(report.engine) > 0
    assert {node for layer in report.plan.layers for node in layer.nodes} == {"conv", "relu"}


@pytest.mark.parametrize(
    ("shapes", "expected"),
    [
        ({"z": ShapeRange.fixed((1,))}, "unknown input 'z'; use one of: x"),
        ({"x": ShapeRange.fixed((1, 3))}, "shape x=1x3: the input has 4 dimensions"),
        (
            {"x": ShapeRange((4, 3, 16, 16), (2, 3, 16, 16), (1, 3, 16, 16))},
            "the shapes given for x are not a valid range",
        ),
    ],
)
def test_wrong_shapes_are_named(
    library: Library,
    save: Callable[..., Path],
    shapes: dict[str, ShapeRange],
    expected: str,
):
    with pytest.raises(InputError, match=expected):
        build(library, save(DYNAMIC), replace(SM89, shapes=shapes))


RESIZE = """
    <ir_version: 9, opset_import: ["": 17]>
    g (float[1,3,8,8] x, int64[4] sizes) => (float[1,3,H,W] y) {
      [resize] y = Resize<mode = "nearest">(x, , , sizes)
    }
"""


@pytest.mark.parametrize("text", ["sizes=1,3,16,16", "sizes=1,3,8,8:1,3,16,16:1,3,32,32"])
def test_inputs_whose_values_are_a_shape_take_a_range(
    library: Library, save: Callable[..., Path], text: str
):
    settings = BuildSettings(gpu="sm89", shape_values=parse_shape_values(text))
    report = build(library, save(RESIZE), settings)
    assert report.refusals == ()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("sizes=8,8", "shape-values: input 'sizes' has 4 values, not 2"),
        ("sizes=1,3,8,8;x=1", "unknown input whose values are a shape 'x'; use one of: sizes"),
        ("sizes", "write NAME=VALUES or NAME=MIN:OPT:MAX"),
        ("sizes=1:2,3:4", "give minimum, optimum and maximum the same number of values"),
        ("sizes=2:1:3", "values are not in order"),
    ],
)
def test_wrong_values_of_shapes_are_named(
    library: Library, save: Callable[..., Path], text: str, expected: str
):
    with pytest.raises(InputError, match=expected):
        values = parse_shape_values(text)
        build(library, save(RESIZE), BuildSettings(gpu="sm89", shape_values=values))


def test_missing_values_of_shapes_are_a_refusal(library: Library, save: Callable[..., Path]):
    report = build(library, save(RESIZE), BuildSettings(gpu="sm89"))
    assert [str(refusal) for refusal in report.refusals] == [
        "the values of input 'sizes' are a shape, and their range must be known; engines tensorrt "
        "and tensorrt-rtx take its 4 as engine option shape-values=sizes=MIN:OPT:MAX"
    ]


def test_bytes_and_files_build_alike(library: Library, save: Callable[..., Path]):
    path = save(DYNAMIC)
    from_file, from_bytes = (build(library, source, SM89) for source in (path, path.read_bytes()))
    assert from_file.accepted and from_bytes.accepted
    assert from_file.plan.layers == from_bytes.plan.layers


def test_a_dimension_that_the_model_fixes_cannot_range(library: Library, save: Callable[..., Path]):
    shapes = {"x": ShapeRange((1, 1, 16, 16), (1, 3, 16, 16), (1, 3, 16, 16))}
    with pytest.raises(InputError, match="dimension 1 is fixed at 3 in the model; give 3 for it"):
        build(library, save(DYNAMIC), replace(SM89, shapes=shapes))


def test_weak_typing_and_calibrators_are_gone(library: Library, save: Callable[..., Path]):
    path = save(DYNAMIC)
    with pytest.raises(InputError, match="has strong typing only; do not ask for weak"):
        build(library, path, replace(SM89, typing="weak"))
    with pytest.raises(InputError, match="has no implicit quantization, which TensorRT deprecated"):
        build(library, path, replace(SM89, calibrator=object()))


def test_a_missing_plugin_is_named(library: Library, save: Callable[..., Path], tmp_path: Path):
    path = save(DYNAMIC)
    with pytest.raises(InputError, match=r"plugin library .*nowhere\.so does not exist"):
        build(library, path, replace(SM89, plugins=(tmp_path / "nowhere.so",)))
    text = tmp_path / "text.so"
    text.write_text("no library")
    with pytest.raises(InputError, match=r"cannot load plugin library .*text\.so"):
        build(library, path, replace(SM89, plugins=(text,)))


def test_an_unsupported_operator_names_its_node(library: Library):
    proto = onnx.parser.parse_model("""
        <ir_version: 9, opset_import: ["": 17]>
        g (float[4] x) => (float[4] y) {
          [odd] y = NotAnOperator(x)
        }
    """)
    report = build(library, proto.SerializeToString(), BuildSettings(gpu="sm89"))
    assert report.engine == b""
    assert str(report.refusals[0]) == (
        "node 'odd' (NotAnOperator): TensorRT has no such operator, and no plugin was loaded that "
        "has it"
    )


def test_conditions_of_the_parser_are_told_in_words(library: Library):
    proto = onnx.parser.parse_model("""
        <ir_version: 9, opset_import: ["": 17]>
        g (float[4] x, string[4] text) => (float[4] y, string[4] same) {
          parts = SplitToSequence(x)
          y = ConcatFromSequence <axis = 0> (parts)
          same = Identity(text)
        }
    """)
    report = build(library, proto.SerializeToString(), BuildSettings(gpu="sm89"))
    told = [str(refusal) for refusal in report.refusals]
    assert told[0] == "Input: Failed to convert ONNX date type to TensorRT data type."
    assert "SplitToSequence: TensorRT has no such operator" in told


def test_an_attribute_that_is_refused_names_the_operator(library: Library):
    proto = onnx.parser.parse_model("""
        <ir_version: 9, opset_import: ["": 18]>
        g (float[4] x, int64[2] at, float[2] new) => (float[4] y) {
          y = ScatterElements <reduction = "max"> (x, at, new)
        }
    """)
    report = build(library, proto.SerializeToString(), BuildSettings(gpu="sm89"))
    assert str(report.refusals[0]) == "ScatterElements: Unsupported reduction type"


def test_an_error_without_a_node_names_the_one_that_was_parsed_last(library: Library):
    proto = onnx.parser.parse_model("""
        <ir_version: 9, opset_import: ["": 17]>
        g (float[4,4] x, int64[1] starts, int64[1] ends) => (float[N,M] y) <int64[1] axes = {5}> {
          r = Relu(x)
          [cut] y = Slice(r, starts, ends, axes)
        }
    """)
    report = build(library, proto.SerializeToString(), BuildSettings(gpu="sm89"))
    assert str(report.refusals[0]).startswith("node 'cut' (Slice): Assertion failed")


def test_the_timing_cache_is_kept_and_survives_damage(
    library: Library,
    save: Callable[..., Path],
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
):
    folder = tmp_path / "cache"
    path = save(DYNAMIC)
    settings = replace(SM89, timing_cache=folder)
    assert build(library, path, settings).accepted
    cache = TimingCache(folder, library, "sm89")
    assert cache.path.exists()
    cache.path.write_bytes(b"damaged" * 100)
    with caplog.at_level(logging.WARNING):
        assert build(library, path, settings).accepted
    assert build(library, path, settings).accepted
    leftovers = {p.suffix for p in folder.iterdir()} - {".timing", ".lock", ".damaged"}
    assert leftovers == set()


def _build_once(path: Path, folder: Path) -> bool:
    settings = replace(SM89, timing_cache=folder)
    return build(load_library("tensorrt-rtx"), path, settings).accepted


def test_processes_share_one_cache(library: Library, save: Callable[..., Path], tmp_path: Path):
    path, folder = save(DYNAMIC), tmp_path / "cache"
    with multiprocessing.get_context("spawn").Pool(2) as pool:
        assert all(pool.starmap(_build_once, [(path, folder)] * 4))
    assert TimingCache(folder, library, "sm89").path.exists()
    assert [p for p in folder.iterdir() if p.suffix == ".tmp"] == []


def test_an_unwritable_cache_is_one_sentence(
    library: Library, save: Callable[..., Path], tmp_path: Path
):
    occupied = tmp_path / "file"
    occupied.write_text("")
    with pytest.raises(InputError, match="timing cache"):
        build(library, save(DYNAMIC), replace(SM89, timing_cache=occupied))


def test_a_dynamic_dimension_without_a_shape_is_one_and_says_why_that_fails(
    library: Library, save: Callable[..., Path]
):
    report = build(library, save(DYNAMIC), BuildSettings(gpu="sm89"))
    assert not report.accepted
    assert report.refusals[0].reason
    assert report.assumed == ("x=1x3xNx16",)


def _write_on_a_full_disk(path: Path) -> str:
    # No file may grow, which fails writes as a full disk does.
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    report = build(load_library("tensorrt-rtx"), path, replace(SM89, timing_cache=path.parent))
    return "built" if report.accepted else "refused"


def test_a_full_disk_costs_no_build_and_loses_no_timing_cache(
    library: Library, save: Callable[..., Path]
):
    path = save(DYNAMIC)
    cache = TimingCache(path.parent, library, "sm89")
    assert build(library, path, replace(SM89, timing_cache=path.parent)).accepted
    before = cache.path.read_bytes()
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        (said,) = pool.map(_write_on_a_full_disk, [path])
    assert said == "built"
    assert cache.path.read_bytes() == before
    assert [p for p in path.parent.iterdir() if p.suffix == ".tmp"] == []
