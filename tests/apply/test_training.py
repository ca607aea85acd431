"""``placer export-qat``: a placement handed over to training with fake quantization."""

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest

from placer.apply.candidate import kept_scales, quantized_model
from placer.apply.training import export_qat
from placer.apply.transfer import transfer_placement
from placer.graph import Edge
from placer.graph.text import parse_model
from placer.model import Model, load_model
from placer.quantization import Placement, Range, Ranges, Scheme
from placer.quantization.placement_file import placement_text, read_placement
from placer.rules.packaging.load import load_pack
from placer.rules.sites import find_sites, place
from tests.conftest import Finished

Run = Callable[..., Finished]

# As PyTorch's older exporter names nodes. The weights' largest magnitudes are 127 and 12.7.
NETWORK = """
<ir_version: 8, opset_import: ["" : 17]>
network (float[1, 2, 1, 1] image) => (float[1, 2, 1, 1] sum)
<float[2, 2, 1, 1] weight = {127, 0, 0, 12.7}>
{
  ["/block/block.0/Conv"] c = Conv (image, weight)
  ["/block/Add"] sum = Add (c, image)
}
"""
PLACEMENT = Placement.of(
    [
        Edge("image", "/block/block.0/Conv", 0),
        Edge("image", "/block/Add", 1),
        Edge("weight", "/block/block.0/Conv", 1),
        Edge("sum", "", 0),
    ],
)
RANGES = {"image": Range(-1.27, 1.0), "sum": Range(0.0, 254.0)}
INT8 = Scheme(activation="int8", symmetric=True, bias="float")


def written(
    folder: Path, model: Path, placement: Placement, ranges: Ranges, scheme: Scheme = INT8
) -> Path:
    """placement.yaml of ``model``."""
    loaded = load_model(model, {})
    text = placement_text(
        placement,
        ranges,
        scheme,
        model=loaded.fingerprint,
        pack="tensorrt 1",
        calibrated=True,
        graph=loaded.graph,
    )
    path = folder / "placement.yaml"
    path.write_text(text)
    return path


@pytest.fixture
def network(tmp_path: Path) -> Path:
    path = tmp_path / "network.onnx"
    onnx.save(parse_model(NETWORK), path)
    return path


def test_it_tells_scales_readers_and_modules(network: Path, tmp_path: Path):
    file = written(tmp_path, network, PLACEMENT, RANGES)
    found = export_qat(file, network, tmp_path / "qat.json")
    document = json.loads((tmp_path / "qat.json").read_text())
    assert document == found.to_json()
    image, result = document["activations"]
    assert (image["tensor"], image["type"], image["zero_point"]) == ("image", "int8", 0)
    assert (image["quant_min"], image["quant_max"], image["axis"]) == (-128, 127, None)
    assert image["scale"] == pytest.approx(0.01)
    assert image["readers"] == [
        {"node": node, "operator": op, "input": i, "outputs": [output], "module": module}
        for node, op, i, output, module in [
            ("/block/Add", "Add", 1, "sum", "block"),
            ("/block/block.0/Conv", "Conv", 0, "c", "block.0"),
        ]
    ]
    assert (result["tensor"], result["scale"]) == ("sum", 2.0)
    assert result["readers"] == [
        {"node": "", "operator": "", "input": 0, "outputs": [], "module": None}
    ]
    (weight,) = document["constants"]
    assert (weight["tensor"], weight["axis"]) == ("weight", 0)
    assert weight["scale"] == pytest.approx([1.0, 0.1])


def test_the_module_is_told_by_pytorchs_newer_exporter(tmp_path: Path):
    proto = parse_model(NETWORK)
    node = proto.graph.node[0]
    node.metadata_props.add(
        key="pkg.torch.onnx.name_scopes", value="['', 'stem', 'stem.conv', 'conv2d']"
    )
    onnx.save(proto, tmp_path / "network.onnx")
    placement = Placement.of([Edge("image", node.name, 0)])
    file = written(tmp_path, tmp_path / "network.onnx", placement, RANGES)
    found = export_qat(file, tmp_path / "network.onnx", tmp_path / "qat.json")
    assert [reader.module for reader in found.tensors[0].readers] == ["stem.conv"]


def test_a_new_export_has_other_names(network: Path, tmp_path: Path, placer: Run):
    file = written(tmp_path, network, PLACEMENT, RANGES)
    again = NETWORK.replace("/block/block.0/Conv", "node_conv").replace("(c, image)", "(image, c)")
    onnx.save(parse_model(again), tmp_path / "again.onnx")
    done = placer("export-qat", file, tmp_path / "again.onnx", "-o", tmp_path / "qat.json")
    assert done.code == 0
    assert "2 activations and 1 weights" in done.out
    image = json.loads((tmp_path / "qat.json").read_text())["activations"][0]
    readers = {(one["node"], one["input"], one["module"]) for one in image["readers"]}
    assert readers == {("/block/Add", 0, "block"), ("node_conv", 0, None)}


def test_a_placement_of_the_float_model_is_refused(network: Path, tmp_path: Path, placer: Run):
    refused = placer("export-qat", written(tmp_path, network, Placement.of([]), {}), network)
    assert refused.code == 2
    assert "placement.yaml quantizes nothing, as that of a run that kept the" in refused.err


def test_fp8_and_quantized_models_are_refused(network: Path, tmp_path: Path, placer: Run):
    fp8 = Scheme(activation="float8e4m3fn", weight="float8e4m3fn", symmetric=True, bias="float")
    file = written(tmp_path, network, PLACEMENT, RANGES, fp8)
    refused = placer("export-qat", file, network)
    assert refused.code == 2
    assert "is for FP8, which cannot be trained with fake quantization" in refused.err

    file = written(tmp_path, network, PLACEMENT, RANGES)
    placer("apply", file, network, "--base", "float", "-o", tmp_path / "applied")
    refused = placer("export-qat", file, tmp_path / "applied" / "optimized.onnx")
    assert refused.code == 2
    assert "is quantized already; give the float model" in refused.err


def test_another_network_is_refused(network: Path, tmp_path: Path, placer: Run):
    other = NETWORK.replace("Conv (image, weight)", "Relu (image)").replace("Add (c", "MatMul (c")
    onnx.save(parse_model(other), "other.onnx")
    file = written(tmp_path, network, PLACEMENT, RANGES)
    refused = placer("export-qat", file, "other.onnx")
    assert refused.code == 2
    assert "edges of" in refused.err
    assert "give the placement of this network, or --partial to apply the others" in refused.err
    assert not Path("other.qat.json").exists()
    assert placer("export-qat", file, "other.onnx", "--partial").code == 0


def test_inputs_that_hold_text_leave_out_the_comparison(network: Path, tmp_path: Path, placer: Run):
    proto = onnx.load(network)
    proto.graph.input.append(onnx.helper.make_tensor_value_info("s", onnx.TensorProto.STRING, [1]))
    proto.graph.output.append(onnx.helper.make_tensor_value_info("t", onnx.TensorProto.STRING, [1]))
    proto.graph.node.append(onnx.helper.make_node("Identity", ["s"], ["t"]))
    onnx.save(proto, "text.onnx")
    done = placer("export-qat", written(tmp_path, network, PLACEMENT, RANGES), "text.onnx")
    assert done.code == 0, done.err
    assert "warning: text.onnx has inputs that cannot be made up, so what placer" in done.out


def test_the_network_is_compared_with_the_file(
    network: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, placer: Run
):
    """As it would be where normalisation had a fault."""
    identity = 'same = Identity (c)\n  ["/block/Add"] sum = Add (same, image)'
    text = NETWORK.replace('["/block/Add"] sum = Add (c, image)', identity)
    onnx.save(parse_model(text), "net.onnx")
    file = written(tmp_path, network, PLACEMENT, RANGES)
    assert placer("export-qat", file, "net.onnx").code == 0
    monkeypatch.setattr("placer.importing.same_function._kept", lambda *_: 3.0)
    refused = placer("export-qat", file, "net.onnx", "-o", "other.json")
    assert refused.code == 2
    assert "the model that placer makes of it computes something else" in refused.err
    assert not Path("other.json").exists()


# --- examples/qat/fake_quantize.py -------------------------------------------------------------


def torch_network(torch: Any) -> Any:
    """Conv with BatchNormalization, a sum, a Concat, linear layers on 2 and 3 dimensions."""
    nn = torch.nn

    class Network(nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.conv = nn.Conv2d(3, 8, 3, padding=1, bias=False)
            self.norm = nn.BatchNorm2d(8)
            self.again = nn.Conv2d(8, 8, 3, padding=1)
            self.mix = nn.Linear(16, 16)
            self.head = nn.Linear(16, 5)

        def forward(self, image: Any) -> Any:
            first = torch.relu(self.norm(self.conv(image)))
            both = torch.cat([first, torch.relu(self.again(first) + first)], dim=1)
            tokens = self.mix(both.flatten(2).transpose(1, 2))
            return self.head(torch.relu(tokens).mean(1))

    torch.manual_seed(0)
    network = Network()
    network.norm.running_mean.uniform_(-0.5, 0.5)
    network.norm.running_var.uniform_(0.5, 2.0)
    return network.eval()


def default_placement(model: Model) -> tuple[Placement, Scheme]:
    pack = load_pack("tensorrt")
    return place(find_sites(model.graph, pack.rules), {}), pack.manifest.scheme


@pytest.mark.slow
def test_fake_quantization_computes_what_the_pairs_compute(tmp_path: Path):
    torch = pytest.importorskip("torch", reason="the helper is for PyTorch")
    pytest.importorskip("onnxscript", reason="PyTorch's exporter needs it")
    sys.path.append(str(Path(__file__).parents[2] / "examples" / "qat"))
    from fake_quantize import fake_quantized  # noqa: PLC0415

    network = torch_network(torch)
    image = torch.randn(2, 3, 8, 8)
    program = torch.onnx.export(network, (image,), dynamo=True, input_names=["picture"])
    program.save(tmp_path / "float.onnx")
    model = load_model(tmp_path / "float.onnx", {})
    placement, scheme = default_placement(model)
    ranges = {edge.tensor: Range(-3.0, 3.0) for edge in placement.edges}
    file = written(tmp_path, tmp_path / "float.onnx", placement, ranges, scheme)
    found = export_qat(file, tmp_path / "float.onnx", tmp_path / "qat.json")
    assert sum(one.constant for one in found.tensors) == 3

    trained = fake_quantized(program, found.to_json())
    applied = transfer_placement(read_placement(file), model)
    candidate = quantized_model(
        model, placement, kept_scales(applied, read_placement(file), model), scheme
    )
    session = onnxruntime.InferenceSession(candidate.SerializeToString())
    (expected,) = session.run(None, {"picture": image.numpy()})
    actual = trained(image)
    float_outputs = network(image)
    error = np.abs(actual.detach().numpy() - expected).max()
    assert error < 0.1 * np.abs(float_outputs.detach().numpy() - expected).max()

    actual.sum().backward()  # Every parameter that is used can be trained.
    gradients = {name: p.grad for name, p in trained.named_parameters()}
    assert all(g is not None and bool(torch.isfinite(g).all()) for g in gradients.values())
