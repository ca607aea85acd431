"""What builds took, told from rounds that other work interrupted."""

from dataclasses import replace
from pathlib import Path

import pytest

from placer.engines.abilities import target_of
from placer.engines.select import select_engine
from placer.fitting.builds import Network
from placer.fitting.leave_out import BuildPair, pairs_of
from placer.fitting.networks import write_network
from placer.fitting.predicted import PredictedNetwork, in_steadier_times, predict
from placer.fitting.records import FLOAT, BuildRecord, LayerRecord, NetworkRecord
from placer.model import Model, load_model
from placer.prediction.select import make_predictor


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Model:
    folder: Path = tmp_path_factory.mktemp("networks")
    return load_model(write_network("wide-0", folder))


@pytest.fixture(scope="module")
def predicted(model: Model) -> PredictedNetwork:
    """A float build and its copy, each interrupted in other rounds."""
    build = BuildRecord(label=FLOAT, groups=(), seconds=(1.4e-3, 1e-3, 1.1e-3), layers=())
    record = NetworkRecord(
        network="wide-0",
        fingerprint=model.fingerprint,
        copy_seconds=(1e-3, 1.4e-3, 1.5e-3),
        builds=(build,),
    )
    return _predicted(model, record)


def _predicted(model: Model, record: NetworkRecord) -> PredictedNetwork:
    engine, pack, _ = select_engine("onnxruntime", threads=1)
    predictor = make_predictor(model.graph, pack, target_of(engine), "float")
    return predict(record, model.graph, predictor, moves=False)


def test_a_build_takes_what_its_best_round_took(predicted: PredictedNetwork):
    assert [build.us for build in predicted.costs.builds] == [pytest.approx(1000)]


def test_copies_of_a_model_are_compared_by_their_best_rounds(predicted: PredictedNetwork):
    assert predicted.noise == pytest.approx(0)  # Their median ratio is 1.36.


def test_builds_are_timed_by_the_rule_under_which_copies_agree(predicted: PredictedNetwork):
    # A clock that rises in single rounds: each build's best is as lucky as the round was.
    lucky = ((1e-3, 1e-3, 0.5e-3), (1e-3, 1e-3, 1e-3))
    builds = tuple(
        predicted.record.builds[0].model_copy(update={"label": label, "seconds": seconds})
        for label, seconds in zip((FLOAT, "default"), (lucky[1], (2e-3, 2e-3, 1e-3)), strict=True)
    )
    clock = predicted.record.model_copy(update={"builds": builds, "copy_seconds": lucky[0]})
    build = predicted.costs.builds[0]
    network = replace(predicted, record=clock, costs=Network("two", (build, build)))
    [timed] = in_steadier_times([network])
    assert [build.us for build in timed.costs.builds] == pytest.approx([1000, 2000])
    assert timed.noise == pytest.approx(0)
    [busy] = in_steadier_times([predicted])
    assert (busy.timed, busy.costs.builds) == ("best round", predicted.costs.builds)


def test_a_ratio_counts_as_apart_by_the_best_rounds_that_it_is_of(predicted: PredictedNetwork):
    # The second build is slower in two of three rounds, and as fast as the first one at its best.
    def pair(second: tuple[float, ...]) -> BuildPair:
        first = predicted.record.builds[0].model_copy(update={"seconds": (1e-3, 1e-3, 1e-3)})
        other = first.model_copy(update={"label": "default", "seconds": second})
        record = predicted.record.model_copy(
            update={"builds": (first, other), "copy_seconds": first.seconds}
        )
        times = (1000.0, 1e6 * min(second))
        builds = tuple(replace(predicted.costs.builds[0], us=us) for us in times)
        network = replace(predicted, record=record, costs=Network("two", builds))
        return pairs_of(network, times)[0]

    assert not pair((1e-3, 1.1e-3, 1.1e-3)).apart
    assert pair((1.1e-3, 1.1e-3, 1.1e-3)).apart


def test_layers_that_the_engine_built_as_one_are_one_with_the_parts_of_all(
    model: Model, predicted: PredictedNetwork
):
    # Only one of them has the first node, and had all of the time.
    layers = [layer.layer.nodes for layer in predicted.builds[0].layers]
    conv, pool, gemm = (
        next(own for own in layers if own[0].startswith(op))
        for op in ("Conv", "GlobalAveragePool", "Gemm")
    )

    def built(us: float, nodes: tuple[str, ...]) -> LayerRecord:
        return LayerRecord(
            name=nodes[0], op="", nodes=nodes, inputs=(), outputs=(), kind="compute", us=us
        )

    record = predicted.record.builds[0]
    told = (built(7.0, tuple(sorted((*conv, *pool)))), built(2.0, gemm))
    record = record.model_copy(update={"layers": told})
    one = predicted.record.model_copy(update={"builds": (record,)})
    [build] = _predicted(model, one).costs.builds
    found = {layer.us: [part.key.name for part in layer.parts] for layer in build.layers}
    assert found == {
        7.0: ["conv 1x1", "fused Relu", "rows of conv", "weights", "GlobalAveragePool"],
        2.0: ["matmul", "rows of matmul", "weights"],
    }
