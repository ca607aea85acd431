"""The sites that can be decided on a model, and the choices there."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from onnx import TensorProto

from placer.calibration.dataset import Dataset
from placer.calibration.masked import masked_tensors
from placer.common.names import engine_title
from placer.errors import NothingToQuantizeError
from placer.graph import Edge
from placer.model import Model
from placer.optimizer.options.request import Request
from placer.qdq import Inserter
from placer.qdq.mixed_precision import weights_beyond_float16
from placer.quantization.overrides import Pins, resolve
from placer.rules.connected import connected
from placer.rules.pack import Pack
from placer.rules.restriction import without_tensors
from placer.rules.sites import Site
from placer.search.space import Choices, Space, build_space

_HALF = {TensorProto.FLOAT16: "float16", TensorProto.BFLOAT16: "bfloat16"}


def quantizable_sites(
    sites: tuple[Site, ...], model: Model, pack: Pack, warn: Callable[[str], None]
) -> tuple[Site, ...]:
    """The sites of which no weight, of an FP16 model, would have a scale that FP16 cannot hold."""
    edges_of = {
        site.name: {edge for layout in site.layouts.values() for edge in layout.quantize}
        for site in sites
    }
    every = frozenset[Edge]().union(*edges_of.values())
    wrong = weights_beyond_float16(Inserter(model, pack.manifest.scheme), every)
    if not wrong:
        return sites
    kept = tuple(site for site in sites if edges_of[site.name].isdisjoint(wrong))
    first = next(iter(wrong.values()))
    warn(f"{len(sites) - len(kept)} of {len(sites)} sites stay as they are: {first}")
    return kept


def note_on_half_precision(sites: tuple[Site, ...], model: Model, pack: Pack) -> str | None:
    """What to do where pairs would only slow down half precision, by what ``pack`` says of it."""
    if pack.manifest.behaviour.half != "kept":
        return None
    layouts = [layout for site in sites for layout in site.layouts.values()]
    types = {model.graph.type_of(edge.tensor).dtype for lay in layouts for edge in lay.quantize}
    half = [name for dtype, name in _HALF.items() if dtype in types]
    if not half:
        return None
    engine = engine_title(pack.manifest.engine)
    return (
        f"{model.path} computes in {half[0]}, for which {engine} has no integer kernels: hardly "
        "any placement will be faster; give the float32 export, or another engine"
    )


def scalable_sites(
    sites: tuple[Site, ...], model: Model, data: Iterable[Dataset], warn: Callable[[str], None]
) -> tuple[Site, ...]:
    """The sites with those layouts only that quantize no tensor that no scale fits on ``data``."""
    layouts = [layout for site in sites for layout in site.layouts.values()]
    quantized = {edge.tensor for layout in layouts for edge in layout.quantize}
    masked = masked_tensors(model, quantized, data)
    if not masked:
        return sites
    which = f"tensor '{min(masked)}' stays float: it holds"
    if len(masked) > 1:
        which = f"tensor '{min(masked)}' and {len(masked) - 1} more stay float: they hold"
    warn(f"{which} NaN, infinity or a mask beside small values, and no scale fits both")
    return without_tensors(sites, masked)


def pins_of(request: Request, sites: tuple[Site, ...], model: Model, pack: Pack) -> Pins:
    """What the option ``overrides`` pins on ``model``."""
    if not request.overrides:
        return Pins()
    layouts = [layout for site in sites for layout in site.layouts.values()]
    edges = frozenset(edge for layout in layouts for edge in layout.quantize)
    shared = [tensors for layout in layouts for tensors in layout.shared]
    joined = [{t for index in part for t in shared[index]} for part in connected(shared)]
    return resolve(request.overrides, model.graph, edges, pack.manifest.scheme, joined)


def space_of(sites: tuple[Site, ...], model: Model, pack: Pack, why: str) -> Space:
    """The choices at ``sites``.

    Raises NothingToQuantizeError if there are none, which ``why`` explains.
    """
    space = build_space(model.graph, sites)
    # Sites that only follow others may have nothing to follow, nor layouts the readers they need.
    if not any(space.placement(choices).edges for choices in _alone_and_together(space)):
        weights = (tensor for tensor in model.graph.initializers.values() if len(tensor.dims) > 1)
        if any(tensor.data_type == TensorProto.DOUBLE for tensor in weights):
            why = "its weights are float64, which is not quantized; export it in float32"
        raise NothingToQuantizeError(
            f"no rule of pack '{pack.manifest.name}' matches a node of {model.path} that it "
            f"could quantize; {why}"
        )
    return space


def _alone_and_together(space: Space) -> Iterator[Choices]:
    yield space.defaults
    yield space.everything
    for group in space.groups:
        for layout in group.offered:
            yield {**space.everything, group.name: layout}
