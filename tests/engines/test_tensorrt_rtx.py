"""NVIDIA's builder (TensorRT-RTX, no GPU needed) takes every layout of the tensorrt pack."""

from collections.abc import Callable
from pathlib import Path

import pytest

from placer.model import load_model
from placer.qdq import Inserter
from placer.ranges import Range
from placer.rules.loader import load_pack
from placer.rules.schema import Rule
from placer.rules.sites import find_sites, place

trt = pytest.importorskip("tensorrt_rtx_bindings", reason="needs the extra 'rtx'")

PACK = load_pack("tensorrt")
LAYOUTS = [
    pytest.param(rule, layout, id=f"{rule.id}-{layout}")
    for rule in PACK.rules
    for layout in rule.layouts
]


@pytest.fixture(scope="module")
def builder() -> tuple[object, object]:
    logger = trt.Logger(trt.Logger.ERROR)
    return trt.Builder(logger), logger


@pytest.mark.parametrize(("rule", "layout"), LAYOUTS)
def test_candidates_parse_and_build(
    save: Callable[..., Path], builder: tuple[object, object], rule: Rule, layout: str
):
    model = load_model(save(rule.tests[0].model))
    sites = find_sites(model.graph, [rule])
    placement = place(sites, {site.name: layout for site in sites})
    ranges = {edge.tensor: Range(-1.0, 1.0) for edge in placement.edges}
    candidate = Inserter(model, PACK.manifest.scheme).insert(placement, ranges)
    build, logger = builder
    network = build.create_network(0)
    parser = trt.OnnxParser(network, logger)
    assert parser.parse(candidate.SerializeToString()), parser.get_error(0).desc()
    config = build.create_builder_config()
    config.num_compute_capabilities = 1
    config.set_compute_capability(trt.ComputeCapability.SM89, 0)
    assert build.build_serialized_network(network, config).nbytes > 0
