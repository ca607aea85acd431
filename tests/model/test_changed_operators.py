"""Operators that later opsets compute differently keep their meaning when the opset is raised."""

import numpy as np
import pytest

from placer.errors import InputError
from placer.model import load_model
from tests.model.normalized import Save, ops, same_outputs

IMAGE = np.random.default_rng(0).standard_normal((1, 2, 6, 6)).astype(np.float32)
STEPS = np.random.default_rng(1).standard_normal((3, 4, 2)).astype(np.float32)


@pytest.mark.parametrize("mode", ["nearest", "linear"])
@pytest.mark.parametrize("scale", [0.6, 0.75, 1.7, 2.0, 3.0])
def test_resize_of_opset_10_takes_the_places_that_it_took(save: Save, mode: str, scale: float):
    path = save(f"""
        <ir_version: 5, opset_import: ["": 10]>
        g (float[1,2,6,6] x) => (float[1,2,H,W] y) <float[4] s = {{1, 1, {scale}, {scale}}}> {{
          y = Resize<mode = "{mode}">(x, s)
        }}""")
    assert same_outputs(path, x=IMAGE) == ["Resize"]


@pytest.mark.parametrize(
    ("opset", "mode", "scales"),
    [(7, "linear", "2.0, 1.5"), (9, "linear", "2.0, 1.7"), (9, "nearest", "1.7, 2.0")],
)
def test_upsample_becomes_a_resize_that_takes_the_same_places(
    save: Save, opset: int, mode: str, scales: str
):
    by_input = opset > 7
    attribute = "" if by_input else f", scales = [1.0, 1.0, {scales}]"
    path = save(f"""
        <ir_version: 4, opset_import: ["": {opset}]>
        g (float[1,2,6,6] x) => (float[1,2,H,W] y) <float[4] s = {{1, 1, {scales}}}> {{
          y = Upsample<mode = "{mode}"{attribute}>({"x, s" if by_input else "x"})
        }}""")
    assert same_outputs(path, x=IMAGE) == ["Resize"]


def test_a_resize_in_a_body_takes_the_same_places(save: Save):
    """Branches may call tensors of theirs the same."""
    path = save("""
        <ir_version: 5, opset_import: ["": 10]>
        g (float[1,2,6,6] x, float[1,2,15,15] z, bool c) => (float[1,2,9,9] y) {
          y = If(c) <
            then_branch = a () => (float[1,2,9,9] p) {
              s = Constant<value = float[4] {1, 1, 1.5, 1.5}>()
              p = Resize(x, s)
            },
            else_branch = b () => (float[1,2,9,9] q) {
              s = Constant<value = float[4] {1, 1, 0.6, 0.6}>()
              q = Resize(z, s)
            }
          >
        }""")
    large = np.random.default_rng(2).standard_normal((1, 2, 15, 15)).astype(np.float32)
    for condition in (True, False):
        assert same_outputs(path, x=IMAGE, z=large, c=np.array(condition)) == ["If"]


def test_a_resize_that_no_later_one_replaces_is_refused(save: Save):
    path = save("""
        <ir_version: 5, opset_import: ["": 10]>
        g (float[1,2,6,6] x) => (float[1,2,H,W] y) <float[4] s = {1, 1, 0.6, 1.7}> {
          [both] y = Resize(x, s)
        }""")
    with pytest.raises(InputError, match=r"node 'both' \(Resize\) enlarges and reduces at once"):
        load_model(path)


@pytest.mark.parametrize("axis", ["", "<axis = 0>", "<axis = 1>", "<axis = 2>", "<axis = -1>"])
@pytest.mark.parametrize("opset", [8, 12])
def test_hardmax_before_opset_13_takes_all_axes_behind_as_one(save: Save, axis: str, opset: int):
    path = save(f"""
        <ir_version: 4, opset_import: ["": {opset}]>
        g (float[3,4,2] x) => (float[3,4,2] y) {{ y = Hardmax{axis}(x) }}""")
    assert "Hardmax" in same_outputs(path, x=STEPS)


SCAN = """
    <ir_version: 3, opset_import: ["": 8]>
    g (float[BATCH,4,2] x, float[BATCH,2] h) => (float[BATCH,2] last, float[BATCH,4,2] all) {
      [scan] last, all = Scan <
        num_scan_inputs = 1, directions = [BACK],
        body = b (float[2] s, float[2] e) => (float[2] t, float[2] o) {
          a = Add(s, e)
          t = Tanh(a)
          o = Neg(t)
        }
      > (LENGTHS, h, x)
    }"""


@pytest.mark.parametrize(
    ("batch", "back", "nodes"),
    [
        ("3", "0", {"Tanh": 12, "Add": 12}),
        ("3", "1", {"Tanh": 12, "Add": 12}),
        ("N", "0", {"Scan": 1}),
    ],
)
def test_a_scan_of_opset_8_runs_over_each_entry_of_the_batch(
    save: Save, batch: str, back: str, nodes: dict[str, int]
):
    text = SCAN.replace("BATCH", batch).replace("BACK", back).replace("LENGTHS", "")
    path = save(text)
    h = STEPS[:, 0]
    same_outputs(path, x=STEPS, h=h)
    assert nodes.items() <= ops(path).items()


def test_lengths_of_sequences_are_refused(save: Save):
    path = save(
        SCAN.replace("BATCH", "3")
        .replace("BACK", "0")
        .replace("LENGTHS", "n")
        .replace("g (", "g (int64[3] n, ")
    )
    with pytest.raises(InputError, match=r"node 'scan' \(Scan\) has lengths of its sequences \('n"):
        load_model(path)


@pytest.mark.parametrize("opset", [7, 10, 11])
def test_a_mask_that_the_opset_does_not_define_is_refused(save: Save, opset: int):
    kind = "float" if opset < 10 else "bool"
    path = save(f"""
        <ir_version: 4, opset_import: ["": {opset}]>
        g (float[3,4,2] x) => (float[3,4,2] y, {kind}[3,4,2] m) {{
          [drop] y, m = Dropout(x)
        }}""")
    with pytest.raises(
        InputError, match=rf"node 'drop' \(Dropout\) gives its mask .* opset {opset}"
    ):
        load_model(path)


def test_a_mask_that_a_branch_returns_is_refused(save: Save):
    path = save("""
        <ir_version: 4, opset_import: ["": 10]>
        g (float[3,4] x, bool c) => (bool[3,4] m) {
          m = If(c) <
            then_branch = a () => (bool[3,4] p) { y, p = Dropout(x) },
            else_branch = b () => (bool[3,4] q) { [drop] z, q = Dropout(x) }
          >
        }""")
    with pytest.raises(InputError, match=r"\(Dropout\) gives its mask .* opset 10"):
        load_model(path)


def test_an_unread_mask_is_taken_though_another_branch_reads_a_tensor_of_its_name(save: Save):
    path = save("""
        <ir_version: 4, opset_import: ["": 10]>
        g (float[3,4] x, bool c) => (float[3,4] y) <float zero = {0}> {
          y = If(c) <
            then_branch = a () => (float[3,4] p) { p, mask = Dropout(x) },
            else_branch = b () => (float[3,4] q) { mask = Greater(x, zero) q = Cast<to = 1>(mask) }
          >
        }""")
    x = np.array([[-1, 0, 1, 2]] * 3, np.float32)
    same_outputs(path, x=x, c=np.array(True))
    same_outputs(path, x=x, c=np.array(False))


def test_a_mask_that_a_branch_reads_is_refused(save: Save):
    path = save("""
        <ir_version: 4, opset_import: ["": 10]>
        g (float[3,4] x, bool c) => (float[3,4] z) {
          [drop] y, m = Dropout(x)
          z = If(c) <
            then_branch = a () => (float[3,4] p) { p = Cast<to = 1>(m) },
            else_branch = b () => (float[3,4] q) { q = Identity(y) }
          >
        }""")
    with pytest.raises(InputError, match=r"node 'drop' \(Dropout\) gives its mask"):
        load_model(path)
