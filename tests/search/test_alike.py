"""Sites whose neighbourhoods are alike share what is known of their changes."""

import numpy as np
import pytest

from placer.search.landscape.landscape import Landscape
from tests.search.landscapes import landscape
from tests.search.test_landscape import check_changes

POOL = "MaxPool<kernel_shape = [3, 3], pads = [1, 1, 1, 1]>"


def chain(blocks: int, *, pooled: int = -1, scaled: int = -1) -> str:
    """Residual blocks one after the other: one with a pooling, one with a factor that is not 1."""
    body, last = [], "x"
    for i in range(blocks):
        body.append(f"[conv{i}] a{i} = Conv({last}, w) [relu{i}] b{i} = Relu(a{i})")
        body.append(f"[convb{i}] c{i} = Conv(b{i}, w)")
        inner = f"c{i}"
        if i == pooled:
            body.append(f"[pool{i}] d{i} = {POOL}(c{i})")
            inner = f"d{i}"
        factor = "two" if i == scaled else "half"
        body.append(f"[mul{i}] m{i} = Mul({inner}, {factor})")
        body.append(f"[add{i}] e{i} = Add(m{i}, {last}) [relub{i}] f{i} = Relu(e{i})")
        last = f"f{i}"
    return f"""
<ir_version: 9, opset_import: ["": 17]>
g (float[1,8,8,8] x) => (float[1,8,8,8] out)
<float[8,8,1,1] w = {{1}}, float half = {{0.5}}, float two = {{2.0}}> {{
  {" ".join(body)} [last] out = Conv({last}, w)
}}
"""


def numbers(land: Landscape) -> dict[str, int]:
    """What is around sites, by the site's first node; equal if they share what is known."""
    found: dict[str, int] = {}
    shared: dict[int, int] = {}
    for index, site in enumerate(land.sites):
        ((piece,),) = [land.moves([((index, 0),)]).pieces]
        found[site.match.anchor.name] = shared.setdefault(id(piece.known), len(shared))
    return found


@pytest.mark.parametrize("pack", ["onnxruntime", "tensorrt", "openvino"])
def test_equal_blocks_share_what_is_known_of_changes(pack: str):
    found = numbers(landscape(chain(12), pack))
    assert found["conv6"] == found["conv7"]
    assert len({found[name] for name in ("conv0", "conv6", "last")}) == 3


@pytest.mark.parametrize("unlike", [{"pooled": 5}, {"scaled": 5}])
def test_blocks_near_another_one_share_nothing_with_the_rest(unlike: dict[str, int]):
    found = numbers(landscape(chain(14, **unlike), "tensorrt"))
    assert found["convb5"] not in {found[f"convb{i}"] for i in (4, 9, 10)}
    assert found["convb9"] == found["convb10"]


@pytest.mark.slow
@pytest.mark.parametrize("pack", ["onnxruntime", "tensorrt", "openvino"])
def test_what_is_known_of_one_block_holds_for_the_others(pack: str):
    land, rng = landscape(chain(9, pooled=4), pack), np.random.default_rng(0)
    for _ in range(25):
        state = tuple(int(rng.integers(len(names))) for names in land.names)
        check_changes(land, state)
