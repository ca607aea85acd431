"""Default placements by estimates: rules' layouts, less what is estimated to be slower."""

from collections.abc import Callable
from pathlib import Path

import pytest

from placer.graph import Edge, Graph
from placer.model import load_model
from placer.prediction.defaults_by_estimates import with_defaults, with_defaults_on_device
from placer.prediction.select import make_predictor
from placer.prediction.times.devices import make_estimator, target_on
from placer.prediction.times.estimator import NoTimes
from placer.prediction.times.gpus import load_gpu
from placer.quantization import EMPTY, Placement
from placer.rules.matcher import Matches
from placer.rules.pack import Pack
from placer.rules.packaging.load import load_pack
from placer.rules.sites import find_sites, place

PACK = load_pack("tensorrt")
# Two residual blocks, whose sums are read by the first node of each block, in integers or not.
BLOCKS = """
    <ir_version: 9, opset_import: ["": 17]>
    g (float[8,128,28,28] x) => (float[8,128,28,28] out)
    <float[128,128,3,3] w1 = {0.1}, float[128,128,3,3] w2 = {0.1},
     float[128,128,3,3] w3 = {0.1}, float[128,128,3,3] w4 = {0.1}> {
      [first1] a = READER(x) [conv1] b = Conv<pads = [1, 1, 1, 1]>(a, w1) [relu1] c = Relu(b)
      [conv2] d = Conv<pads = [1, 1, 1, 1]>(c, w2) [add1] s = Add(d, x)
      [first2] e = READER(s) [conv3] f = Conv<pads = [1, 1, 1, 1]>(e, w3) [relu2] g2 = Relu(f)
      [conv4] h = Conv<pads = [1, 1, 1, 1]>(g2, w4) [add2] t = Add(h, s)
      [last] out = READER(t)
    }
"""
# Few channels at batch 1: conversions take longer than what integers save.
SMALL = """
    <ir_version: 9, opset_import: ["": 17]>
    g (float[1,16,14,14] x) => (float[1,16,14,14] y)
    <float[16,16,1,1] w1 = {0.1}, float[16,16,1,1] w2 = {0.1}> {
      [conv1] a = Conv(x, w1) [sin1] b = Sin(a) [conv2] c = Conv(b, w2) [sin2] y = Sin(c)
    }
"""
# The same several times, and a product that is faster in integers.
MIXED = """
    <ir_version: 9, opset_import: ["": 17]>
    g (float[8,16,14,14] x, float[1,384,14,14] z) => (float[8,16,14,14] y, float[1,384,14,14] v)
    <float[16,16,1,1] w1 = {0.1}, float[16,16,1,1] w2 = {0.1}, float[384,384,3,3] w3 = {0.1}> {
      [conv1] a = Conv(x, w1) [sin1] b = Sin(a) [conv2] c = Conv(b, w2) [sin2] y = Sin(c)
      [large] d = Conv<pads = [1, 1, 1, 1]>(z, w3) [relu] v = Relu(d)
    }
"""
RESIDUAL = Edge("s", "add2", 1)


def default(graph: Graph, gpu: str, pack: Pack = PACK) -> Placement:
    device = load_gpu(gpu)
    target, matches = target_on(device), Matches(graph)
    sites = find_sites(graph, pack.rules, target)
    return place(with_defaults_on_device(matches, sites, pack, target, "float16", device), {})


def estimate_us(graph: Graph, placement: Placement, gpu: str, pack: Pack = PACK) -> float:
    device = load_gpu(gpu)
    predictor = make_predictor(graph, pack, target_on(device), "float16")
    return make_estimator(graph, device).total_us(predictor.predict(placement))


@pytest.mark.parametrize("gpu", ["a100", "rtx-3090", "t4"])
def test_a_residual_has_a_pair_only_where_the_sum_is_read_in_integers(
    save: Callable[..., Path], gpu: str
):
    in_integers = load_model(save(BLOCKS.replace("READER", "Identity"))).graph
    in_float = load_model(save(BLOCKS.replace("READER", "Sin"))).graph
    assert RESIDUAL in place(find_sites(in_float, PACK.rules), {}).edges
    assert "s" in {edge.tensor for edge in default(in_integers, gpu).edges if edge.node == "add2"}
    found = default(in_float, gpu).edges
    assert RESIDUAL not in found
    assert Edge("c", "conv2", 0) in found


@pytest.mark.parametrize("name", ["tensorrt", "tensorrt-rtx"])
@pytest.mark.parametrize("text", [SMALL, BLOCKS.replace("READER", "Sin"), MIXED])
@pytest.mark.parametrize("gpu", ["a100", "t4"])
def test_the_default_is_not_estimated_to_be_slower_than_float(
    save: Callable[..., Path], gpu: str, text: str, name: str
):
    graph, pack = load_model(save(text)).graph, load_pack(name)
    found = default(graph, gpu, pack)
    assert estimate_us(graph, found, gpu, pack) <= estimate_us(graph, EMPTY, gpu, pack)
    by_layouts = place(find_sites(graph, pack.rules, target_on(load_gpu(gpu))), {})
    assert estimate_us(graph, found, gpu, pack) <= estimate_us(graph, by_layouts, gpu, pack)


def test_what_is_faster_in_integers_is_quantized_though_the_rest_is_not(save: Callable[..., Path]):
    graph = load_model(save(MIXED)).graph
    by_layouts = place(find_sites(graph, PACK.rules), {})
    assert estimate_us(graph, by_layouts, "t4") > estimate_us(graph, EMPTY, "t4")
    read = {edge.node for edge in default(graph, "t4").edges}
    assert "large" in read
    assert not {"conv1", "conv2"} & read


def test_without_times_the_layouts_of_the_rules_stand(save: Callable[..., Path]):
    graph = load_model(save(SMALL)).graph
    sites = find_sites(graph, PACK.rules)
    target = target_on(None)
    predictor = make_predictor(graph, PACK, target, "float16")
    assert with_defaults(Matches(graph), sites, PACK.rules, None, predictor, NoTimes()) == sites
    assert with_defaults_on_device(Matches(graph), sites, PACK, target, "float16", None) == sites


def test_sites_of_equal_structure_keep_one_default(save: Callable[..., Path]):
    graph = load_model(save(BLOCKS.replace("READER", "Sin"))).graph
    device = load_gpu("t4")
    sites = find_sites(graph, PACK.rules, target_on(device))
    decided = with_defaults_on_device(
        Matches(graph), sites, PACK, target_on(device), "float16", device
    )
    default_of = {(site.signature, site.default) for site in decided}
    assert len(default_of) == len({site.signature for site in sites})
