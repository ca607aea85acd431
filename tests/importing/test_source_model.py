"""Pairs that are part of a quantized model's function, not noise on it."""

import json
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnxruntime.quantization import quantize_dynamic

from placer.calibration.dataset import load_dataset, synthetic_dataset
from placer.errors import InputError
from placer.importing.source_model import Comparison, Source, output_sums, recovered
from placer.importing.source_pairs import SourcePair, source_pairs, without_pairs
from placer.model import Model, load_model
from placer.results.result import Result
from tests.conftest import Finished, with_random_weights
from tests.graph.test_chosen_rows import SPEECH
from tests.reference_outputs import outputs, sqnr

Placer = Callable[..., Finished]
Save = Callable[..., Path]

HEAD = '<ir_version: 9, opset_import: ["": 17]>'
PAIRS = "float s = {0.05}, float t = {0.01}, int8 z = {0}, uint8 u = {0}"
CONV = "float[4,4,3,3] w = {0.3}, float[4,4,3,3] v = {0.3}"
IO = "g (float[1,4,8,8] x) => (float[1,4,8,8] y)"

# What rounding left out of x, which is nothing without the pair.
RESIDUAL = f"""
{HEAD} {IO} <{PAIRS}, {CONV}> {{
  [q] i = QuantizeLinear(x, s, z)
  [dq] d = DequantizeLinear(i, s, z)
  [rest] r = Sub(x, d)
  [conv1] c = Conv<pads = [1, 1, 1, 1]>(r, w)
  [relu] a = Relu(c)
  [conv2] y = Conv<pads = [1, 1, 1, 1]>(a, v)
}}
"""
# Values above 1.27 saturate, as a Clip would have it.
SATURATING = f"""
{HEAD} {IO} <{PAIRS}, {CONV}> {{
  [conv1] c = Conv<pads = [1, 1, 1, 1]>(x, w)
  [q] i = QuantizeLinear(c, t, z)
  [dq] d = DequantizeLinear(i, t, z)
  [conv2] y = Conv<pads = [1, 1, 1, 1]>(d, v)
}}
"""
# The same of what the model returns (ONNX Runtime issue 24711).
SATURATING_OUTPUT = f"""
{HEAD} {IO} <{PAIRS}, {CONV}> {{
  [conv1] c = Conv<pads = [1, 1, 1, 1]>(x, w)
  [q] i = QuantizeLinear(c, t, z)
  [dq] y = DequantizeLinear(i, t, z)
}}
"""
# Noise, and no more.
ORDINARY = SATURATING.replace("(c, t, z)", "(c, s, z)").replace("(i, t, z)", "(i, s, z)")


def run(proto: onnx.ModelProto, x: np.ndarray) -> np.ndarray:
    return outputs(proto, x=x)[0]


def data(rows: int = 8) -> np.ndarray:
    return np.random.default_rng(3).standard_normal((rows, 4, 8, 8)).astype(np.float32)


def recover(path: Path) -> tuple[Model, float | None]:
    np.save(path.with_suffix(".npy"), data())
    model = load_model(path)
    found, distance = recovered(model, load_dataset(str(path.with_suffix(".npy")), model), 8)
    return found, distance.sqnr


@pytest.mark.parametrize(
    "text", [RESIDUAL, SATURATING, SATURATING_OUTPUT], ids=["residual", "saturating", "output"]
)
def test_a_pair_that_is_part_of_the_function_stays_as_arithmetic(save: Save, text: str):
    path = save(text)
    x = data(1)
    assert sqnr(run(onnx.load(path), x), run(load_model(path).proto, x)) < 10
    model, distance = recover(path)
    assert distance > 60
    assert sqnr(run(onnx.load(path), x), run(model.proto, x)) > 60
    assert "QuantizeLinear" not in {node.op for node in model.graph.nodes}
    assert any("is part of the function: its rounding stays" in n for n in model.imported.notes)


def test_ordinary_pairs_are_taken_out_and_the_distance_is_told(save: Save):
    path = save(ORDINARY)
    model, distance = recover(path)
    assert [node.op for node in model.graph.nodes] == ["Conv", "Conv"]
    found = sqnr(run(onnx.load(path), data()[:1]), run(model.proto, data()[:1]))
    assert distance == pytest.approx(found, abs=1)
    assert distance > 25


def test_pairs_of_mere_noise_are_looked_at_together(save: Save, monkeypatch: pytest.MonkeyPatch):
    """Of 33 pairs one saturates: it takes a look at both halves of each group that holds it."""
    nodes = "".join(
        f"[q{k}] i{k} = QuantizeLinear(a{k}, s, z) [d{k}] d{k} = DequantizeLinear(i{k}, s, z) "
        f"[n{k}] a{k + 1} = Neg(d{k})"
        for k in range(32)
    )
    text = SATURATING.replace("(c, t, z)", "(a32, t, z)").replace("[conv1] c", "[conv1] a0")
    looks = []
    find = Source._sqnr_without

    def counted(source: Source, pairs: Sequence[SourcePair], *rest: Any) -> float:
        looks.append(len(pairs))
        return find(source, pairs, *rest)

    monkeypatch.setattr(Source, "_sqnr_without", counted)
    model, distance = recover(save(text.replace("[q] i", f"{nodes} [q] i")))
    assert distance > 20
    assert sum("is part of the function" in note for note in model.imported.notes) == 1
    assert looks == [33, 16, 17, 8, 9, 4, 5, 2, 3, 1, 2, 1, 1]


def test_the_pair_that_stands_for_a_relu6_is_noise_where_the_clip_is_put_back(save: Save):
    """ONNX Runtime's quantizer removes the Clip; PP-OCRv4 has many, and another pair of note."""
    text = RESIDUAL.replace("y) <", "y, float[1,4,8,8] b) <").replace(
        "[conv1]",
        "[conv3] e = Conv<pads = [1, 1, 1, 1]>(x, k)"
        " [q6] f = QuantizeLinear(e, six, u) [dq6] b = DequantizeLinear(f, six, u) [conv1]",
    )
    six = f"float six = {{{6 / 255}}}, float[4,4,3,3] k = {{3.0}}, float s"
    model, distance = recover(save(text.replace("float s", six)))
    assert distance is not None and distance > 30
    kept = [note for note in model.imported.notes if "is part of the function" in note]
    assert [note.split("'")[1] for note in kept] == ["x"]


def test_the_clip_is_put_back_whatever_the_standard_domain_is_called():
    proto = onnx.parser.parse_model(
        f"""
        <ir_version: 9, opset_import: ["ai.onnx": 17]>
        g (float[4] x) => (float[4] y) <float s = {{{6 / 255}}}, uint8 z = {{0}}> {{
          a = Neg(x)  q = QuantizeLinear(a, s, z)  y = DequantizeLinear(q, s, z)
        }}
        """
    )
    (found,) = outputs(without_pairs(proto, source_pairs(proto)), x=np.float32([-8, -2, 0, 1]))
    assert found.tolist() == [6, 2, 0, 0]


def test_a_file_whose_nodes_are_called_the_same_is_compared(save: Save):
    """ONNX Runtime refuses it as it is."""
    path = save(ORDINARY)
    proto = onnx.load(path)
    for node in proto.graph.node:
        node.name = "node"
    onnx.save(proto, path)
    _, distance = recover(path)
    assert distance > 25


def test_made_up_inputs_lie_in_the_range_that_the_source_quantizes(save: Save):
    """The input's own pair saturates below 0, which random inputs in [-1, 1] would show as such."""
    text = f"""
    {HEAD} {IO} <{PAIRS}, {CONV}> {{
      [q] i = QuantizeLinear(x, t, u)
      [dq] d = DequantizeLinear(i, t, u)
      [conv2] y = Conv<pads = [1, 1, 1, 1]>(d, v)
    }}
    """
    model = load_model(save(text))
    found, distance = recovered(model, synthetic_dataset(model, 4, 0), 4)
    assert found is model
    assert distance.sqnr is not None and distance.sqnr > 30


def test_a_constant_that_its_pair_makes_finite_is_named(save: Save):
    pair = "[wq] e = QuantizeLinear(w, s, z) [wd] f = DequantizeLinear(e, s, z)"
    path = save(ORDINARY.replace("[conv1] c", f"{pair} [conv1] c").replace("(x, w)", "(x, f)"))
    proto = onnx.load(path)
    (weight,) = (tensor for tensor in proto.graph.initializer if tensor.name == "w")
    values = onnx.numpy_helper.to_array(weight).copy()
    values[0, 0, 0, 0] = np.inf
    weight.CopyFrom(onnx.numpy_helper.from_array(values, "w"))
    onnx.save(proto, path)
    model = load_model(path)
    with pytest.raises(InputError, match="initializer 'w' holds NaN or infinity, which its pair"):
        recovered(model, synthetic_dataset(model, 2, 0))


def test_of_a_weight_that_its_pair_cuts_off_the_rest_is_kept(save: Save):
    """ONNX Runtime issue 24711: weights of up to 2.7 with a scale for 0.13."""
    pair = "[wq] e = QuantizeLinear(w, k, z) [wd] f = DequantizeLinear(e, k, z)"
    text = ORDINARY.replace("float s", "float k = {0.001}, float s")
    path = save(text.replace("[conv1] c", f"{pair} [conv1] c").replace("(x, w)", "(x, f)"))
    model, distance = recover(path)
    assert distance > 25
    assert [note.split(", and its pair")[0][:21] for note in model.imported.notes] == [
        "constant 'w' reaches "
    ]
    assert model.imported.weights["w/cut_off"].scale == pytest.approx(0.001)


def test_what_cannot_be_kept_is_refused(save: Save):
    """A Reshape between Q and DQ: the pair cannot be taken out alone."""
    text = f"""
    {HEAD} {IO} <{PAIRS}, {CONV}, int64[4] shape = {{1, 4, 8, 8}}> {{
      [q] i = QuantizeLinear(x, s, z)
      [reshape] j = Reshape(i, shape)
      [dq] d = DequantizeLinear(j, s, z)
      [rest] r = Sub(x, d)
      [conv1] y = Conv<pads = [1, 1, 1, 1]>(r, w)
    }}
    """
    with pytest.raises(InputError, match=r"gives other outputs \(0.0 dB\); give the float model"):
        recover(save(text))


@pytest.mark.slow
@pytest.mark.parametrize("text", [RESIDUAL, SATURATING, ORDINARY])
def test_the_result_is_held_against_the_model_that_was_given(save: Save, placer: Placer, text: str):
    path = save(text)
    np.save("data.npy", data(16))
    options = ("--data", "data.npy", "--calibration", "minmax", "--preset", "quick")
    options += ("--budget", 3, "--gate", "sqnr>=15", "--force", "op:Conv")
    finished = placer("optimize", path, *options, "-o", "out", "--engine", "onnxruntime")
    assert finished.came_to_a_result, finished.err
    found = Result.read("out")
    assert found.source.compared
    x = data(16)
    whole = [run(onnx.load(path), row[None]) for row in x]
    written = onnx.load("out/optimized.onnx")
    got = sqnr(np.stack(whole), np.stack([run(written, row[None]) for row in x]))
    assert got > 10
    assert min(found.source.result_sqnr_db or np.inf, 90) == pytest.approx(min(got, 90), abs=2)


@pytest.mark.slow
def test_a_given_file_that_is_faster_than_the_result_is_said_to_be(
    save: Save, placer: Placer, tmp_path: Path
):
    wide = f"""
    {HEAD} g (float[1,256] x) => (float[1,256] y) <float[256,256] w = {{0.01}}> {{
      [product] p = MatMul(x, w)
      [sum] y = Relu(p)
    }}
    """
    path = tmp_path / "dynamic.onnx"
    quantize_dynamic(save(wide), path, extra_options={"MatMulConstBOnly": True})
    options = ("--preset", "quick", "--budget", 1, "--engine", "onnxruntime")
    finished = placer("optimize", path, *options, "-o", "out")
    assert finished.came_to_a_result, finished.err
    source = Result.read("out").source
    low, high = source.time_ratio_interval
    assert low <= source.time_ratio <= high
    said = "the quantized file that was given (95% interval" in finished.out + finished.err
    assert said == (low > 1)


def test_import_keeps_such_pairs_too_and_tells_the_distance(placer: Placer, save: Save):
    """Point 4 of the attacks: what is written is compared with what was given."""
    source = save(RESIDUAL)
    finished = placer("import", source, "-o", "float.onnx")
    assert finished.code == 0, finished.err
    assert "on random inputs, the float model's outputs" in finished.out
    x = data(1)
    noise = run(onnx.load("float.onnx"), x) - run(onnx.load(source), x)
    assert np.square(noise).sum() < 0.1 * np.square(run(onnx.load(source), x)).sum()


# Saturates above 12.7, which the data reaches and random inputs do not.
RARELY_SATURATING = ORDINARY.replace("s = {0.05}", "s = {0.1}")


def mostly_small(large: int = 66) -> np.ndarray:
    """200 samples, one of which is large."""
    samples = 0.1 * data(200)
    samples[large] *= 1000
    return samples


def test_apply_tells_which_pairs_stay_as_arithmetic(placer: Placer, save: Save):
    source = save(RESIDUAL)
    placer("import", source, "-o", "float.onnx")
    applied = placer("apply", "float.placement.yaml", source, "-o", "applied")
    assert "the pair of 'x' is part of the function: its rounding stays" in applied.out


def test_import_with_data_finds_what_random_inputs_do_not_show(placer: Placer, save: Save):
    source = save(RARELY_SATURATING)
    x = mostly_small()
    np.save("data.npy", x)
    blind = placer("import", source, "-o", "blind.onnx", "--json")
    assert json.loads(blind.out)["sqnr"] > 25
    assert json.loads(blind.out)["compared_on"] == "random inputs"
    assert json.loads(blind.out)["uncompared"] is None
    finished = placer("import", source, "--data", "data.npy", "-o", "float.onnx")
    assert finished.code == 0, finished.err
    assert "on 200 samples of data.npy, the float model's outputs" in finished.out
    expected = run(onnx.load(source), x[66][None])
    assert sqnr(expected, run(onnx.load("blind.onnx"), x[66][None])) < 3
    assert sqnr(expected, run(onnx.load("float.onnx"), x[66][None])) > 60


def test_a_length_that_is_rounded_to_another_number_is_no_other_function(placer: Placer):
    """What is rounded agrees; the outputs of some samples have other lengths."""
    text = SPEECH.replace("LENGTHS", "[up] r = Ceil(s) [integer] n = Cast<to = 7>(r)")
    text = text.replace("int64 last", "float step = {0.05}, int8 zero = {0}, int64 last")
    pair = "q = QuantizeLinear(x, step, zero) p = DequantizeLinear(q, step, zero)"
    coarse = text.replace("[duration] d = MatMul(x,", f"{pair} [duration] d = MatMul(p,")
    onnx.save(with_random_weights(coarse), "coarse.onnx")
    x = np.random.default_rng(0).normal(0, 1.5, (256, 8)).astype(np.float32)
    np.save("data.npy", x)
    finished = placer("import", "coarse.onnx", "-o", "float.onnx", "--data", "data.npy", "--json")
    assert finished.code == 0, finished.err
    assert json.loads(finished.out)["sqnr"] > 25
    models = [onnx.load(name) for name in ("coarse.onnx", "float.onnx")]
    lengths = [[len(run(model, rows)) for rows in x.reshape(-1, 4, 8)] for model in models]
    assert lengths[0] != lengths[1]


def test_import_refuses_what_is_another_function_on_the_data(placer: Placer, save: Save):
    """A Reshape between Q and DQ: the pair cannot be taken out alone."""
    text = RARELY_SATURATING.replace(CONV, f"{CONV}, int64[4] shape = {{1, 4, 8, 8}}")
    text = text.replace(
        "[dq] d = DequantizeLinear(i", "j = Reshape(i, shape) d = DequantizeLinear(j"
    )
    source = save(text)
    np.save("data.npy", mostly_small())
    refused = placer("import", source, "--data", "data.npy", "-o", "float.onnx")
    assert refused.code == 2
    assert "gives other outputs" in refused.err
    assert refused.err.count("\n") == 1
    assert not Path("float.onnx").exists()
    assert placer("import", source, "-o", "float.onnx").code == 0


def test_import_refuses_data_that_does_not_fit(placer: Placer, save: Save):
    np.save("data.npy", data()[:, :3])
    refused = placer("import", save(ORDINARY), "--data", "data.npy", "-o", "float.onnx")
    assert refused.code == 2
    assert "data.npy" in refused.err
    assert not Path("float.onnx").exists()


def test_apply_compares_on_samples_that_it_did_not_calibrate_on(placer: Placer, save: Save):
    source = save(ORDINARY)
    assert placer("import", source, "--pack", "onnxruntime", "-o", "float.onnx").code == 0
    np.save("data.npy", data(200))
    chosen = load_dataset("data.npy", load_model("float.onnx")).limit(128)
    left = next(i for i in range(200) if i not in chosen.positions)
    command = ("apply", "float.placement.yaml", "float.onnx", "--no-cache", "--data", "data.npy")
    assert placer(*command).code == 0
    np.save("data.npy", mostly_small(left))
    refused = placer(*command)
    assert refused.code == 2
    assert "check the placement's ranges, or calibrate on other data" in refused.err


def test_a_model_that_gives_classes_only_is_not_said_to_be_compared(placer: Placer, save: Save):
    text = ORDINARY.replace("=> (float[1,4,8,8] y)", "=> (int64[1,1,8,8] k)")
    source = save(text.replace("(d, v)\n", "(d, v)\n  [best] k = ArgMax<axis = 1>(y)\n"))
    finished = placer("import", source, "-o", "float.onnx")
    assert finished.code == 0, finished.err
    reason = "the file has no float output whose values are finite and the same in each run"
    assert f"nothing was compared, because {reason}" in finished.out
    found = json.loads(placer("import", source, "-o", "float.onnx", "--json").out)
    assert (found["sqnr"], found["uncompared"]) == (None, reason)


def test_outputs_are_compared_where_they_are_finite_and_not_random(placer: Placer, save: Save):
    """A logarithm behind rounding has NaN at other entries; a division by 0 has nothing else."""
    shape = "float[1,4,8,8]"
    text = ORDINARY.replace(f"({shape} y)", f"({shape} y, {shape} l, {shape} n, {shape} r)")
    more = "(d, v)\n  l = Log(y)\n  n = Div(y, zero)\n  r = RandomNormalLike(y)\n"
    source = save(text.replace("(d, v)\n", more).replace("uint8 u", "float zero = {0}, uint8 u"))
    for data_of in ((), ("--data", "data.npy")):
        np.save("data.npy", data())
        finished = placer("import", source, "-o", "float.onnx", *data_of)
        assert finished.code == 0, finished.err
        assert re.search(r"outputs agree with the file's to \d\d\.\d dB", finished.out)
        assert re.search(r"warning: not everything .*'n' has no finite value", finished.out)
        finished = placer("apply", "float.placement.yaml", "float.onnx", *data_of)
        assert finished.code == 0, finished.err
        assert "not everything could be compared with float.onnx: " in finished.out
    cut = onnx.load("float.onnx")
    del cut.graph.output[:2]
    onnx.save(cut, "infinite.onnx")
    finished = placer("apply", "float.placement.yaml", "infinite.onnx")
    assert finished.code == 0, finished.err
    assert "is not compared with infinite.onnx: the file has no float output whose" in finished.out


@pytest.mark.parametrize(
    ("infinite", "lost", "is_compared"),
    [(0, 0, True), (0, 1, False), (1, 49, True), (1, 50, False)],
)
def test_a_twentieth_of_the_values_may_be_lost_where_not_all_are_finite(
    infinite: int, lost: int, is_compared: bool
):
    file = np.ones((2, 500), np.float32)
    file[0, :infinite] = np.inf
    result = file.copy()
    result[1, :lost] = np.nan
    comparison = Comparison(
        [output_sums({"y": one}, {"y": other}) for one, other in zip(file, result, strict=True)]
    )
    assert comparison.sqnr == (np.inf if is_compared else -np.inf)
    told = f"{lost} of {1000 - infinite} finite values of 'y' become NaN or infinite"
    assert comparison.left_out == (told if lost else "")


def test_why_onnx_runtime_does_not_run_the_file_is_said(placer: Placer, save: Save):
    """open-edge-platform/geti issue 210: NNCF's export has operators of OpenVINO."""
    operator = "org.openvinotoolkit.FakeQuantize<levels = 256>"
    source = save(f"""
    <ir_version: 8, opset_import: ["": 13, "org.openvinotoolkit": 1]>
    g (float[1,4,8,8] x) => (float[1,4,8,8] y)
    <float[4,4,1,1] w = {{0.1}}, float low = {{-1.28}}, float high = {{1.27}}> {{
      d = {operator}(x, low, high, low, high) v = {operator}(w, low, high, low, high)
      y = Conv(d, v)
    }}""")
    finished = placer("import", source, "-o", "float.onnx")
    assert finished.code == 0, finished.err
    assert "nothing was compared, because ONNX Runtime does not run the file (" in finished.out
    assert "FakeQuantize(-1) is not a registered function/op" in finished.out


def test_an_import_that_is_refused_leaves_nothing(
    placer: Placer, save: Save, monkeypatch: pytest.MonkeyPatch
):
    def refuse(model: Model, *_: object) -> None:
        raise InputError(f"{model.path} is another function")

    monkeypatch.setattr("placer.importing.api.recovered", refuse)
    assert placer("import", save(ORDINARY), "-o", "made/float.onnx").code == 2
    assert not Path("made").exists()
