"""``--exclude`` and ``--only``: what the user leaves float stays float in every candidate."""

from pathlib import Path

import onnx
import yaml

from tests.few_digits import FEW
from tests.optimizer.test_optimize import MODEL, Placer

ESTIMATED = ("--engine", "fusion-model", "--gpu", "a100", "--preset", "quick", "--budget", 3)


def quantized_readers() -> set[str]:
    groups = yaml.safe_load(Path("digits.placer/placement.yaml").read_text())["groups"]
    return {edge["node"] for group in groups for edge in group["edges"]}


def test_excluded_nodes_read_no_pairs_and_only_chosen_ones_do(placer: Placer):
    convs = [node.name for node in onnx.load(MODEL).graph.node if node.op_type == "Conv"]
    finished = placer(
        "optimize", MODEL, *FEW, *ESTIMATED, "--only", "op:Conv", "--exclude", convs[0]
    )
    assert finished.code == 0, finished.err
    assert "sites stay float, as asked" in finished.out
    assert quantized_readers() <= set(convs[1:])

    changed = placer("optimize", MODEL, *FEW, *ESTIMATED, "--exclude", convs[0])
    assert changed.code == 2
    assert "holds a study with another only (['op:Conv'], now none)" in changed.err


def test_nothing_left_to_quantize_is_said(placer: Placer):
    finished = placer("optimize", MODEL, *FEW, *ESTIMATED, "--exclude", "*")
    assert (finished.code, finished.err.count("\n")) == (2, 1)
    assert "--exclude and --only leave no site that could be quantized" in finished.err
    assert not Path("digits.placer").exists()
