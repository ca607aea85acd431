"""INT8 and FP8 beside each other: one format for each group of edges."""

import pickle
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import numpy as np
import onnx
import onnx.checker
import pytest
import yaml
from pydantic import ValidationError

from placer.apply.transfer import transfer_placement
from placer.engines.tensorrt.offline_builder import check_model
from placer.errors import InputError
from placer.graph import Edge
from placer.importing.api import import_model
from placer.model import load_model
from placer.qdq import Inserter
from placer.qdq.extract import extract_placement
from placer.qdq.precision import convert
from placer.qdq.translation import translate, translate_ranges
from placer.quantization import FLOAT8, Placement, Range, Scheme
from placer.quantization.placement import ScaleGroup
from placer.quantization.placement_file import load_placement, placement_text, read_placement
from placer.rules.packaging.load import load_pack
from tests.reference_outputs import outputs, sqnr

Save = Callable[..., Path]
BOTH = load_pack("tensorrt").with_scheme("int8-and-fp8").manifest.scheme
INT8 = load_pack("tensorrt").manifest.scheme

# One weight is read twice, and one tensor by Convs of unequal formats.
CONVS = """
<ir_version: 9, opset_import: ["": 19]>
g (float[1,16,8,8] x) => (float[1,16,8,8] y, float[1,16,8,8] z)
<float[16,16,3,3] w = {0.1}> {
  [conv1] a = Conv<pads = [1, 1, 1, 1]>(x, w)
  [relu] b = Relu(a)
  [conv2] y = Conv<pads = [1, 1, 1, 1]>(b, w)
  [conv3] z = Conv<pads = [1, 1, 1, 1]>(b, w)
}
"""
X, W1 = Edge("x", "conv1", 0), Edge("w", "conv1", 1)
B2, W2 = Edge("b", "conv2", 0), Edge("w", "conv2", 1)
B3, W3 = Edge("b", "conv3", 0), Edge("w", "conv3", 1)
MIXED = Placement.of([X, W1, B2, W2, B3, W3], formats=dict.fromkeys([B3, W3], FLOAT8))
RANGES = {"x": Range(-3.0, 3.0), "b": Range(0.0, 6.0)}


def candidate(save: Save) -> onnx.ModelProto:
    return Inserter(load_model(save(CONVS)), BOTH).insert(MIXED, RANGES)


def pair_types(proto: onnx.ModelProto) -> dict[str, int]:
    """The type that each Conv reads, by its name and input."""
    tensors = {t.name: t.data_type for t in proto.graph.initializer}
    writers = {n.output[0]: n for n in proto.graph.node}
    convs = [n for n in proto.graph.node if n.op_type == "Conv"]
    return {f"{n.name}[{i}]": tensors[writers[n.input[i]].input[2]] for n in convs for i in (0, 1)}


def test_groups_of_unequal_formats_are_unequal():
    own, other = ScaleGroup(frozenset({X})), ScaleGroup(frozenset({X}), FLOAT8)
    assert own != other
    assert len({own, other, ScaleGroup(frozenset({X}), FLOAT8)}) == 2
    assert pickle.loads(pickle.dumps(MIXED)) == MIXED
    same = Placement.of(MIXED.edges)
    assert (same == MIXED, same.id == MIXED.id, same.edges == MIXED.edges) == (False, False, True)
    assert MIXED.formats == {B3: FLOAT8, W3: FLOAT8}
    change = same.change_to(MIXED)
    assert (same.changed(change), same.id_after(change)) == (MIXED, MIXED.id)


def test_each_pair_has_the_type_and_the_scale_of_its_group(save: Save):
    proto = candidate(save)
    onnx.checker.check_model(proto, full_check=True)
    int8, fp8 = onnx.TensorProto.INT8, onnx.TensorProto.FLOAT8E4M3FN
    expected = {"conv1": int8, "conv2": int8, "conv3": fp8}
    assert pair_types(proto) == {
        f"{name}[{i}]": kind for name, kind in expected.items() for i in (0, 1)
    }
    tensors = {t.name: onnx.numpy_helper.to_array(t) for t in proto.graph.initializer}
    scales = sorted(float(tensors[name]) for name in tensors if name.startswith("b/scale"))
    assert scales == [np.float32(6 / 448), np.float32(6 / 127)]
    weight = load_model(save(CONVS)).array("w")
    amax = np.abs(weight).max(axis=(1, 2, 3))
    np.testing.assert_allclose(tensors["w/scale"], amax / 127, rtol=1e-6)
    (other,) = [n for n in tensors if n.startswith("w/scale_")]
    np.testing.assert_allclose(tensors[other], amax / 448, rtol=1e-6)


@pytest.mark.parametrize("base", ["float", "float16"])
def test_onnx_runtime_runs_it(save: Save, base: str):
    model = load_model(save(CONVS))
    floats, proto = save(CONVS), candidate(save)
    if base == "float16":
        model = convert(model, "float16", "keep")
        inserter = Inserter(model, BOTH)
        ranges = translate_ranges(RANGES, model.graph)
        proto = inserter.insert(translate(MIXED, model.graph), ranges)
    x = np.random.default_rng(0).uniform(-3, 3, (1, 16, 8, 8)).astype(np.float32)
    for expected, actual in zip(outputs(onnx.load(floats), x=x), outputs(proto, x=x), strict=True):
        assert sqnr(expected, actual) > 20
    assert set(pair_types(proto).values()) == {3, 17}


def test_the_placement_is_read_back_from_the_file(save: Save):
    assert extract_placement(candidate(save), BOTH).placement == MIXED
    alone = extract_placement(candidate(save)).placement
    assert (alone.edges, alone.formats) == (MIXED.edges, {})


def test_a_scheme_without_the_format_refuses_it(save: Save):
    with pytest.raises(InputError, match="to float8e4m3fn, which is not a format of its scheme"):
        Inserter(load_model(save(CONVS)), INT8).insert(MIXED, RANGES)


@pytest.mark.parametrize("changed", [{"activation": "uint8"}, {"bias": "int32"}])
def test_what_a_scheme_with_formats_may_say(changed: dict[str, object]):
    with pytest.raises(ValidationError, match="formats need activation: int8, symmetric"):
        Scheme.model_validate(BOTH.model_dump() | changed)


def test_schemes_of_one_format_are_written_as_before():
    assert "formats" not in INT8.model_dump()
    assert BOTH.model_dump(mode="json")["formats"] == [FLOAT8]


def written(save: Save, placement: Placement, scheme: Scheme) -> str:
    graph = load_model(save(CONVS)).graph
    return placement_text(
        placement, RANGES, scheme, model="m", pack="p 1", calibrated=True, graph=graph
    )


def test_placement_yaml_tells_formats_where_there_are_any(save: Save, tmp_path: Path):
    path = tmp_path / "placement.yaml"
    path.write_text(written(save, MIXED, BOTH))
    groups = yaml.safe_load(path.read_text())["groups"]
    told = [(g["edges"][0]["node"], g.get("format")) for g in groups if "range" in g]
    assert told == [("conv2", None), ("conv3", FLOAT8), ("conv1", None)]
    model = load_model(save(CONVS))
    assert load_placement(path, model.graph) == MIXED
    assert transfer_placement(read_placement(path), model).placement == MIXED
    plain = yaml.safe_load(written(save, Placement.of(MIXED.edges), INT8))
    assert {key for group in plain["groups"] for key in group} == {"range", "edges"}
    assert "formats" not in plain["scheme"]


@pytest.mark.parametrize(("pack", "kept"), [("tensorrt", True), ("onnxruntime", False)])
def test_an_imported_file_keeps_its_formats_where_the_pack_has_them(
    save: Save, tmp_path: Path, pack: str, kept: bool
):
    onnx.save(candidate(save), tmp_path / "both.onnx")
    found = import_model(tmp_path / "both.onnx", tmp_path / "float.onnx", pack=pack)
    placement = load_placement(found.placement_file, load_model(tmp_path / "float.onnx").graph)
    formats = {(edge.node, edge.input_index): own for edge, own in placement.formats.items()}
    assert formats == ({("conv3", 0): FLOAT8, ("conv3", 1): FLOAT8} if kept else {})
    assert {e.node for e in placement.edges} == {"conv1", "conv2", "conv3"}
    assert not kept or found.losses == ()
    written = read_placement(found.placement_file)
    ranges = {e.node: g.range.high for g in written.groups if g.range for e in g.edges}
    assert ranges["conv3"] == pytest.approx(6.0, rel=1e-2)


def test_nvidias_builder_runs_each_convolution_on_its_format(save: Save, builder: ModuleType):
    model = convert(load_model(save(CONVS)), "float16", "keep")
    proto = Inserter(model, BOTH).insert(
        translate(MIXED, model.graph), translate_ranges(RANGES, model.graph)
    )
    report = check_model(builder, proto, "sm89")
    assert report.refusals == ()
    read = [layer.input_types[0] for layer in report.plan.layers if layer.op == "correlation"]
    assert sorted(read) == ["fp8", "int8", "int8"]


def test_nvidias_builder_refuses_operands_of_two_formats(save: Save, builder: ModuleType):
    model = convert(load_model(save(CONVS)), "float16", "keep")
    split = Placement.of([X, W1], formats={W1: FLOAT8})
    proto = Inserter(model, BOTH).insert(
        translate(split, model.graph), translate_ranges(RANGES, model.graph)
    )
    assert check_model(builder, proto, "sm89").refusals


@pytest.mark.parametrize("scheme", [INT8, BOTH])
def test_int8_of_a_weight_that_was_fp8_has_a_scale_of_its_own(
    save: Save, tmp_path: Path, scheme: Scheme
):
    """With the source's amax / 448 most values were cut off at 127."""
    whole = Placement.of(MIXED.edges)
    fp8 = load_pack("tensorrt").with_scheme("fp8").manifest.scheme
    onnx.save(Inserter(load_model(save(CONVS)), fp8).insert(whole, RANGES), tmp_path / "fp8.onnx")
    model = load_model(tmp_path / "fp8.onnx")
    source = model.source_quantization()
    proto = Inserter(model, scheme).insert(source.placement, source.ranges(scheme))
    tensors = {t.name: onnx.numpy_helper.to_array(t) for t in proto.graph.initializer}
    amax = np.abs(model.array("w")).max(axis=(1, 2, 3))
    np.testing.assert_allclose(tensors["w/scale"], amax / 127, rtol=1e-6)


def test_a_tensor_that_was_fp8_loses_nothing_where_fp8_is_offered(save: Save, tmp_path: Path):
    placement = Placement.of([X, W1], formats={X: FLOAT8, W1: FLOAT8})
    proto = Inserter(load_model(save(CONVS)), BOTH).insert(placement, RANGES)
    onnx.save(proto, tmp_path / "fp8.onnx")
    source = load_model(tmp_path / "fp8.onnx").source_quantization()
    assert [loss.tensor for loss in source.losses(INT8)] == ["x"]
    assert source.losses(BOTH) == ()
