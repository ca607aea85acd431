"""Trained networks and a small one, and placements of theirs as files."""

from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path

from placer.graph import Edge, Graph
from placer.graph.matching import Correspondence
from placer.model import Model, load_model
from placer.quantization import Placement, Range
from placer.quantization.placement_file import PlacementFile, placement_text, read_placement
from placer.rules.pack import Pack
from placer.rules.packaging.load import load_pack
from placer.rules.sites import find_sites, place

Save = Callable[..., Path]

ARTEFACTS = Path(__file__).parents[1] / "artefacts"
SEED0, SEED1 = ARTEFACTS / "digits-seed0.onnx", ARTEFACTS / "digits-seed1.onnx"
DYNAMO = ARTEFACTS / "digits-seed1-dynamo.onnx"

RESIDUAL = """
<ir_version: 8, opset_import: ["" : 17]>
residual (float[1, 4, 8, 8] x) => (float[1, 5] y)
<float[4, 4, 3, 3] w1 = {0.1}, float[4, 4, 3, 3] w2 = {0.1}, float[5, 4] w3 = {0.1}>
{
  [conv1] p = Conv <pads = [1, 1, 1, 1]> (x, w1)
  [relu1] q = Relu (p)
  [conv2] r = Conv <pads = [1, 1, 1, 1]> (q, w2)
  [add] s = Add (r, q)
  [relu2] t = Relu (s)
  [pool] u = GlobalAveragePool (t)
  [flat] v = Flatten (u)
  [head] y = Gemm <transB = 1> (v, w3)
}
"""

RESIDUAL_PLACEMENT = Placement.of(
    [
        *(Edge("x", "conv1", 0), Edge("w1", "conv1", 1)),
        *(Edge("q", "conv2", 0), Edge("w2", "conv2", 1), Edge("q", "add", 1)),
        *(Edge("v", "head", 0), Edge("w3", "head", 1), Edge("u", "flat", 0)),
    ],
    shared=[("u", "v")],
)


def file_of(
    placement: Placement,
    graph: Graph,
    folder: Path,
    pack: str = "tensorrt",
    ranges: Mapping[str, Range] | None = None,
    scheme: str = "",
) -> PlacementFile:
    """The placement as ``optimize`` would have written it, read again."""
    rules = load_pack(pack).with_scheme(scheme) if scheme else load_pack(pack)
    path = folder / "placement.yaml"
    text = placement_text(
        placement,
        ranges or {},
        rules.manifest.scheme,
        model="sha256:other",
        pack=rules.name_and_version,
        calibrated=True,
        graph=graph,
    )
    path.write_text(text, encoding="utf-8")
    return read_placement(path)


@cache
def loaded(path: Path) -> Model:
    return load_model(path)


def default(graph: Graph, pack: Pack) -> Placement:
    return place(find_sites(graph, pack.rules), {})


def partners(matched: Correspondence) -> dict[str, str]:
    """Target's node names by the source's."""
    source, target = matched.source.vertices, matched.target.vertices
    return {source[s].name: target[t].name for s, t in matched.pairs.items()}
