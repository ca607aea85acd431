"""The model that is explained: its float graph, the placement on it, and where that comes from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from onnx import TensorProto

from placer.engines.tensorrt.pairs import kept_in_float, refused_pairs, unfit_scales
from placer.errors import InputError
from placer.graph import Edge, Graph
from placer.graph.bodies import Bodies, bodies_of
from placer.graph.edit import all_tensors, remove_dead_nodes
from placer.graph.external_data import data_folder
from placer.graph.flat import flatten
from placer.graph.scopes import Scopes
from placer.model import (
    Model,
    has_tensorrt_pairs,
    is_quantized_file,
    load_model,
    load_quantized,
    quantizes_at_run_time,
)
from placer.model.input_shapes import given_shapes, unknown_dimensions
from placer.model.named_dimensions import with_ones
from placer.prediction.layers.norms import without_norms
from placer.qdq.channel_scales import summed_channels
from placer.qdq.extract import ExtractedModel, extract_placement
from placer.qdq.integer_ports import with_float_ports
from placer.qdq.moved_ports import with_pairs_at_ports
from placer.qdq.moved_weights import move_weights
from placer.qdq.narrowed import without_narrowing
from placer.qdq.own_pairs import OwnPairs, own_pairs, signed_apart
from placer.qdq.shifted_weights import shifted_weights
from placer.qdq.unfused_products import UnfusedProduct, unfused_products
from placer.qdq.wide_weights import wide_in_operators, wide_weights
from placer.quantization import FLOAT8, Placement, Range
from placer.quantization.placement_file import Pin, PlacementFile, load_placement, read_placement
from placer.quantization.scheme import FLOAT8_TYPES, WIDE_TYPES, Scheme
from placer.rules.behaviour import Behaviour
from placer.rules.pack import Pack

_UNREAD = WIDE_TYPES | FLOAT8_TYPES  # Of activations that no kernel of OpenVINO reads.
_RUN_TIME = (
    "this file quantizes at run time (DynamicQuantizeLinear): its own layers are not predicted; "
    "what is shown is the pack's default placement of its float model"
)


@dataclass(frozen=True)
class PlacedModel:
    """A float graph and a placement on it (None: the pack's default).

    ``source``: where the placement comes from. ``fingerprint``: of the float model; empty where the
    file has pairs. ``bodies``: what is in bodies that are not part of ``graph``. ``pinned``: a
    sentence for each tensor that the user pinned; ``pins``: how, with the range, by tensor.
    ``refused``: a sentence on what of the file is not predicted; ``doubted``: one on pairs that the
    engine may compute otherwise. ``stored``: types of graph inputs and outputs that are integers.
    ``own``: what the pairs of a quantized file say; ``wide``: its nodes with ``wide_weights``, of
    packs whose engine's sums may saturate, and ``wide_operators`` those without pairs, as
    QLinearConv; ``types``: those of pairs by edge, ``quantized_to`` by activation, and
    ``by_channel`` the activations whose pairs have a scale for each channel; ``has_float4``:
    whether NVFP4 is among them. ``open``: a sentence on sizes of inputs that are
    not known and taken as 1. ``shared``: constants of whose pair a node reads what is moved, and
    others what is not. ``unfused``: products between pairs that are none of integers.
    ``shifted``: edges of weights with zero points that keep their products in float; ``summed``:
    those of activations with a scale for each channel that do. ``made_for``: the formats that a
    placement.yaml was made for.
    """

    graph: Graph
    placement: Placement | None
    source: str
    fingerprint: str
    bodies: Bodies
    pinned: tuple[str, ...] = ()
    pins: Mapping[str, tuple[Pin, Range]] = field(default_factory=dict)
    scopes: Scopes = field(default_factory=dict)
    refused: str = ""
    doubted: str = ""
    stored: Mapping[str, str] = field(default_factory=dict)
    own: OwnPairs | None = None
    wide: tuple[str, ...] = ()
    wide_operators: tuple[str, ...] = ()
    types: Mapping[Edge, str] = field(default_factory=dict)
    quantized_to: Mapping[str, str] = field(default_factory=dict)
    by_channel: tuple[str, ...] = ()
    has_float4: bool = False
    open: str = ""
    shared: frozenset[str] = frozenset()
    unfused: tuple[UnfusedProduct, ...] = ()
    shifted: tuple[Edge, ...] = ()
    summed: tuple[Edge, ...] = ()
    made_for: Scheme | None = None

    @property
    def idle(self) -> frozenset[Edge]:
        """Edges with pairs in the file that are no part of the placement: no kernel takes them."""
        if self.own is None or self.placement is None:
            return frozenset()
        return frozenset(self.own.nodes) - self.placement.edges

    @property
    def has_float8(self) -> bool:
        """Whether pairs of the file are in FP8."""
        return not FLOAT8_TYPES.isdisjoint(self.types.values())


def placed_model(
    path: Path,
    placement: Path | None,
    shapes: Mapping[str, tuple[int, ...]],
    fix: Mapping[str, float] | None,
    pack: Pack,
) -> PlacedModel:
    """The model at ``path`` with its own pairs, with those of ``placement``, or without any.

    ``fix``: values of inputs that become constants. Raises InputError for files that cannot be
    read, and for a placement on a quantized file or values of its inputs.
    """
    at_run_time = quantizes_at_run_time(path)
    known = pack.manifest.behaviour.run_time_scales == "predicted"
    if is_quantized_file(path) or (at_run_time and known):
        if placement is not None:
            raise InputError(f"{path} has Q/DQ pairs already; give the float model or no placement")
        if fix:
            raise InputError(
                f"{path} is quantized; recover the float model by placer import before `fix`"
            )
        return _with_own_pairs(path, shapes, pack)
    plugins = pack.manifest.behaviour.foreign == "plugins"
    model = load_model(
        path, shapes, fix=fix, bodies=pack.enters_bodies, plugins=plugins
    ).as_written()
    graph, scopes = model.graph, model.graph.scopes
    bodies = bodies_of(model.flat(), scopes)
    symmetric = pack.manifest.behaviour.pairs == "symmetric"
    imported = model.imported if placement is None and symmetric else None
    if imported is not None and has_tensorrt_pairs(path):
        source, own = "the model's own pairs", imported.placement
        if imported.is_float8:  # Where all are, it is the scheme's own format there.
            own = own.in_format(FLOAT8)
        return PlacedModel(graph, own, source, model.fingerprint, bodies, scopes=scopes)
    if placement is None:
        return PlacedModel(
            graph,
            None,
            "the pack's default placement",
            model.fingerprint,
            bodies,
            scopes=scopes,
            refused=_RUN_TIME if at_run_time else _as_arithmetic(model),
        )
    file = read_placement(placement)
    return PlacedModel(
        graph,
        load_placement(placement, graph).translated(file.scheme, pack.manifest.scheme),
        f"placement {placement}",
        model.fingerprint,
        bodies,
        tuple(file.pinned),
        _pins(file, graph),
        scopes,
        made_for=file.scheme,
    )


def _as_arithmetic(model: Model) -> str:
    """What an explanation says of a file that has arithmetic in the place of pairs."""
    if model.imported is None:
        return ""
    if not model.imported.restored_count:
        return (
            "this file quantizes by other operators than QuantizeLinear and DequantizeLinear: what "
            "is shown is the pack's default placement of its float model; placer import gives that "
            "model and the file's own pairs"
        )
    return (
        "this file quantizes by arithmetic (Round, Clip, Mul), which engines compute in float: "
        "what is shown is the pack's default placement of its float model"
    )


def _with_own_pairs(path: Path, shapes: Mapping[str, tuple[int, ...]], pack: Pack) -> PlacedModel:
    behaviour = pack.manifest.behaviour
    quantized = load_quantized(path)
    folder = data_folder(all_tensors(quantized.graph), path)
    remove_dead_nodes(quantized.graph)  # No engine builds them.
    flat_scopes = flatten(quantized.graph) if pack.enters_bodies else {}
    is_symmetric = behaviour.pairs == "symmetric"
    without_narrowing(quantized.graph, of_constants=pack.manifest.engine != "openvino")
    put = with_pairs_at_ports(quantized.graph) if is_symmetric else frozenset()
    saturates = behaviour.products == "saturating"
    is_of_ort = behaviour.signed == "converted"  # OpenVINO multiplies them in float.
    wide_operators = wide_in_operators(quantized, folder) if saturates and is_of_ort else ()
    shared = move_weights(quantized.graph, transposes_alone=is_of_ort)
    extracted = extract_placement(quantized, pack.manifest.scheme)
    shapes = given_shapes(quantized, shapes, path)
    left_open = unknown_dimensions(quantized, shapes, path)
    graph = extracted.graph(with_ones(quantized, shapes), path)
    graph, stored = with_float_ports(extracted, graph)
    scopes: Scopes = {name: scope for name, scope in flat_scopes.items() if name in graph.by_name}
    whole = load_quantized(path)
    refused, doubted = (
        refused_pairs(whole, path) if is_symmetric else (unfit_scales(whole, path), "")
    )
    taken = _taken(extracted, graph, behaviour)
    # Of int8 too: ONNX Runtime converts pairs to uint8, operators as QLinearConv it leaves.
    wide = wide_weights(extracted, taken.graph, folder) if saturates else ()
    return PlacedModel(
        taken.graph,
        taken.placement,
        "the model's own Q/DQ pairs",
        "",
        bodies_of(extracted.proto, scopes),
        scopes=scopes,
        refused=refused,
        doubted=doubted,
        stored=stored,
        own=taken.pairs.without(put),
        wide=wide,
        wide_operators=wide_operators,
        types=extracted.dtypes,
        quantized_to=_quantized_to(extracted),
        by_channel=_by_channel(extracted, taken.graph),
        open="" if left_open is None else f"{left_open[0]}, taken as 1 here; {left_open[1]}",
        has_float4=any(t.data_type == TensorProto.FLOAT4E2M1 for t in all_tensors(quantized.graph)),
        shared=shared,
        unfused=taken.unfused,
        shifted=taken.shifted,
        summed=taken.summed,
    )


@dataclass(frozen=True)
class _Taken:
    """What an engine takes of a file's pairs; see ``PlacedModel`` for ``unfused`` and ``shifted``.

    ``graph``: without what the engine folds; ``placement``: without pairs that it drops or computes
    in float.
    """

    graph: Graph
    placement: Placement
    pairs: OwnPairs
    unfused: tuple[UnfusedProduct, ...] = ()
    shifted: tuple[Edge, ...] = ()
    summed: tuple[Edge, ...] = ()


def _taken(extracted: ExtractedModel, graph: Graph, behaviour: Behaviour) -> _Taken:
    placement, pairs = extracted.placement, own_pairs(extracted)
    if behaviour.pairs == "symmetric":
        placement = placement.without(kept_in_float(extracted, graph))
        if behaviour.kernels == "generated":
            return _Taken(graph, placement.with_weights(_of_one_scale(extracted)), pairs)
        # Generated kernels compute what others fold.
        return _Taken(without_norms(graph, placement), placement, pairs)
    if behaviour.signed == "converted":
        floats = tuple(unfused_products(extracted, graph))
        unread = {product.edge for product in floats}
        return _Taken(graph, *signed_apart(extracted, pairs, graph, unread), unfused=floats)
    if behaviour.other_formats == "read":
        # OpenVINO 2026.4.1 drops pairs of 16 bits, on which no layer of its plans is left.
        unread = {edge for edge, dtype in extracted.dtypes.items() if dtype in _UNREAD}
        shifted = tuple(sorted(shifted_weights(extracted, graph)))
        summed = tuple(sorted(summed_channels(extracted, graph)))
        read = placement.without(unread.union(shifted, summed))
        return _Taken(graph, read, pairs, shifted=shifted, summed=summed)
    return _Taken(graph, placement, pairs)


def _quantized_to(extracted: ExtractedModel) -> dict[str, str]:
    """The type of its pair by activation."""
    return {
        edge.tensor: dtype
        for edge, dtype in extracted.dtypes.items()
        if edge.tensor not in extracted.constants
    }


def _by_channel(extracted: ExtractedModel, graph: Graph) -> tuple[str, ...]:
    """Activations whose pairs have several scales."""
    tensors = dict.fromkeys(edge.tensor for edge in extracted.axes)
    return tuple(tensor for tensor in tensors if not _is_constant(tensor, graph))


def _is_constant(tensor: str, graph: Graph) -> bool:
    """Whether nothing but constants goes into ``tensor``, as into a weight behind a Clip."""
    left, seen = [tensor], set[str]()
    while left:
        tensor = left.pop()
        producer = graph.producer.get(tensor)
        if tensor in graph.initializers or tensor in seen:
            continue
        if producer is None or not producer.inputs:
            return False
        seen.add(tensor)
        left += filter(None, producer.inputs)
    return True


def _of_one_scale(extracted: ExtractedModel) -> frozenset[Edge]:
    """Edges that read a constant through a pair of one scale."""
    return frozenset(
        edge
        for edge in extracted.placement.edges
        if edge.tensor in extracted.constants and edge not in extracted.axes
    )


def _pins(file: PlacementFile, graph: Graph) -> dict[str, tuple[Pin, Range]]:
    """What ``file``, of which ``graph`` has all edges, pins of activations."""
    pins: dict[str, tuple[Pin, Range]] = {}
    for group in file.groups:
        if group.pinned is not None and group.range is not None:
            for edge in group.edges:
                reads = graph.by_name[edge.node].inputs if edge.node else graph.outputs
                pins[reads[edge.input_index]] = group.pinned, group.range
    return pins
