"""``--exclude``, ``--only`` and ``--force``: what the user decides holds in every candidate."""

import re
from pathlib import Path

import onnx
import pytest
import yaml

from placer.graph.text import parse_model
from placer.results.result import Result
from tests.few_digits import FEW_BY_MINMAX
from tests.optimizer.test_optimize import MODEL, Placer

ESTIMATED = (
    *("--engine", "fusion-model", "--gpu", "a100", "--preset", "quick", "--budget", 3),
    *("--calibration", "minmax"),
)


def quantized_readers() -> set[str]:
    groups = yaml.safe_load(Path("digits.placer/placement.yaml").read_text())["groups"]
    return {edge["node"] for group in groups for edge in group["edges"]}


@pytest.mark.slow
def test_excluded_nodes_read_no_pairs_and_only_chosen_ones_do(placer: Placer):
    convs = [node.name for node in onnx.load(MODEL).graph.node if node.op_type == "Conv"]
    finished = placer(
        "optimize", MODEL, *FEW_BY_MINMAX, *ESTIMATED, "--only", "op:Conv", "--exclude", convs[0]
    )
    assert finished.code == 0, finished.err
    assert "sites stay float, as asked" in finished.out
    assert quantized_readers() <= set(convs[1:])

    changed = placer("optimize", MODEL, *FEW_BY_MINMAX, *ESTIMATED, "--exclude", convs[0])
    assert changed.code == 2
    assert "holds a study with other settings (only: op:Conv, now none)" in changed.err

    # Another engine has another rule pack, too, of which a hash would say less.
    measured = placer("optimize", MODEL, *FEW_BY_MINMAX, "--engine", "onnxruntime")
    assert measured.code == 2
    assert re.search(r"other settings \(engine: fusion-model .*, now onnxruntime ", measured.err)


@pytest.mark.slow
def test_a_pack_keeps_nodes_of_a_family_of_models_float(placer: Placer):
    convs = [node.name for node in onnx.load(MODEL).graph.node if node.op_type == "Conv"]
    Path("family").mkdir()
    manifest = {
        "name": "family",
        "version": "0.1.0",
        "engine": "tensorrt",
        "engine_versions": ">=8",
        "extends": "tensorrt",
        "exclude": [convs[0], "/head/of/another/model/*", "op:Softplus", "output:boxes"],
        "licence": "Apache-2.0",
        "maintainers": ["tests"],
    }
    Path("family/pack.yaml").write_text(yaml.safe_dump(manifest))
    run = ("optimize", MODEL, *FEW_BY_MINMAX, *ESTIMATED, "--pack", "family")
    finished = placer(*run)
    assert finished.code == 0, finished.err
    assert "sites stay float, as pack family 0.1.0 has it" in finished.out
    assert convs[0] not in quantized_readers()

    forced = placer(*run, "--force", convs[0], "-o", "forced")
    assert forced.code == 0, forced.err
    assert "1 of 1 named nodes quantized in every proposal" in forced.out
    assert Result.read(Path("forced")).trials[0].kind == "forced"


def test_nothing_left_to_quantize_is_said(placer: Placer):
    finished = placer("optimize", MODEL, *FEW_BY_MINMAX, *ESTIMATED, "--exclude", "*")
    assert (finished.code, finished.err.count("\n")) == (2, 1)
    assert "--exclude and --only leave no site that could be quantized" in finished.err
    assert not Path("digits.placer").exists()


@pytest.mark.slow
def test_forced_nodes_are_quantized_in_every_trial_and_float_is_the_baseline(placer: Placer):
    # No Gemm is quantized by default: it is too small to gain.
    finished = placer("optimize", MODEL, *FEW_BY_MINMAX, *ESTIMATED, "--force", "op:Gemm")
    assert finished.code == 0, finished.err
    assert "1 of 1 named nodes quantized in every proposal, as asked" in finished.out
    found = Result.read(Path("digits.placer"))
    assert [trial.kind for trial in found.trials] == ["forced", "default", "everything"]
    # The forced Gemm alone costs time; the default's Convs gain less than the estimate's error.
    assert found.trials[0].ratio_to_float > 1
    assert found.verdict == "cannot tell"
    assert any(node.endswith("Gemm") for node in quantized_readers())


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("--force", "op:Softplus"), "unknown operator 'Softplus'"),
        (("--force", "op:Flatten"), "--force 'op:Flatten': no rule of this pack decides on such"),
        (("--force", "op:Gemm", "--exclude", "op:Gemm"), "which --exclude or --only leaves float"),
        (("--force", "op:Gemm", "--only", "op:Conv"), "which --exclude or --only leaves float"),
    ],
)
def test_what_cannot_be_forced_is_refused(placer: Placer, words: tuple[str, ...], expected: str):
    finished = placer("optimize", MODEL, *FEW_BY_MINMAX, *ESTIMATED, *words)
    assert (finished.code, finished.err.count("\n")) == (2, 1)
    assert expected in finished.err
    assert not Path("digits.placer").exists()


def test_a_node_that_reads_shapes_alone_cannot_be_forced(placer: Placer):
    """The cause is not that no rule knows the operator."""
    text = """
    <ir_version: 9, opset_import: ["": 17]>
    g (float[N,4] x) => (float[N,4] y)
    <float[4] query = {1}, float[4] g = {1}, float[4,4] w = {1}> {
      [shape] s = Shape(x)
      [expand] q = Expand(query, s)
      [gain] p = Mul(q, g)
      [fc] h = MatMul(x, w)
      [add] y = Add(p, h)
    }
    """
    onnx.save(parse_model(text), "query.onnx")
    finished = placer("optimize", "query.onnx", *ESTIMATED, "--force", "gain")
    assert finished.code == 2
    assert "such a node computes the same for all inputs of a shape" in finished.err
