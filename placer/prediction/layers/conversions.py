"""The float tensors of a layer candidate, and the conversions through which it reads them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from onnx import TensorProto

from placer.graph import Edge, Graph, Node
from placer.plan import Kind, Layer, Port
from placer.plan.dtypes import is_quantized
from placer.prediction.layers.claims import FLOAT, Claim
from placer.prediction.layers.clamps import RELU, bounds_of
from placer.prediction.layers.known_scales import NOTHING_KNOWN, KnownScales
from placer.prediction.layers.layouts import Layout
from placer.prediction.layers.motion import NormalForm, Scale, Scales, scale_of
from placer.quantization.placement import ScaleGroup
from placer.rules.behaviour import DEFAULT_BEHAVIOUR, Behaviour
from placer.rules.target import Target

UNKNOWN = "unknown"  # Type of a tensor that inference found none for.


@dataclass(frozen=True, eq=False)
class PredictedLayer:
    """A layer of the predicted plan and where it comes from.

    ``claim`` is None for a node that no rule covers and for conversions. ``edges``: for a
    conversion, the edges that it serves; else all data edges that the layer reads. ``ordinal``:
    for a conversion, how many of its kind and tensor come before it. ``grouped``: the channels of
    all that the layer reads lie together, as far as the engine's layouts are known.
    """

    layer: Layer
    nodes: tuple[Node, ...]
    claim: Claim | None
    edges: tuple[Edge, ...]
    ordinal: int = 0
    grouped: bool = True

    @property
    def is_conversion(self) -> bool:
        """Whether the layer only converts a tensor; one that clears memory reads none."""
        return self.layer.kind != "compute" and not self.nodes and bool(self.layer.inputs)

    @property
    def copies(self) -> int:
        """How many layers like it share the work of its nodes."""
        copies = 1 if self.claim is None else self.claim.fusion.copies
        return len(self.nodes[-1].outputs) if copies == "outputs" else copies


class Conversion(NamedTuple):
    """A conversion of ``tensor``: type written, and the scales that what it reads or writes has.

    ``joins``: it writes into a joined tensor, where no other reader finds it.
    """

    tensor: str
    dtype: str
    scales: Scales
    kind: Kind
    ordinal: int
    joins: bool = False


class TensorFormats(NamedTuple):
    """What there is of a float tensor.

    ``ready``: types by the scales that the tensor went through; what was written comes first.
    ``forced``: a kernel that reads INT8 wrote FP32 though the engine computes in FP16. ``layout``:
    of what was written; conversions write any. ``rounded``: the layer that wrote it in float took
    the Q of all its readers along, so that these read integers. ``besides``: the scales to which it
    wrote rounded floats besides integers. ``owned``: what wrote it writes into no joined tensor.
    ``by_conv``: a Conv wrote it and nothing else. ``part_of``: the Split whose layer runs nothing,
    so that this is a part of what it read.
    """

    ready: tuple[tuple[Scales, str], ...]
    conversions: tuple[Conversion, ...] = ()
    forced: bool = False
    layout: Layout = "linear"
    rounded: bool = False
    besides: frozenset[Scales] = frozenset()
    owned: bool = False
    by_conv: bool = False
    part_of: Node | None = None


@dataclass(frozen=True)
class BuildTarget:
    """What layers are predicted for.

    ``unsigned``: tensors that are uint8 where they are quantized, whatever ``integer`` is.
    ``stored``: types of graph inputs and outputs that are integers outside, by tensor.
    ``stores_biases``: whether biases between pairs are integers in the model, as candidates of a
    scheme with int32 biases have them.
    ``twins``: by node the names of equal ones that are computed with it.
    ``added``: names of nodes that the engine inserts, which are none of the model's.
    ``symmetric``: edges on which int8 is read only where it has no zero point.
    """

    graph: Graph
    target: Target
    base: str
    integer: str
    behaviour: Behaviour = DEFAULT_BEHAVIOUR
    unsigned: frozenset[str] = frozenset()
    scales: KnownScales = NOTHING_KNOWN
    stored: Mapping[str, str] = field(default_factory=dict)
    stores_biases: bool = False
    twins: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    added: frozenset[str] = frozenset()
    symmetric: frozenset[Edge] = frozenset()

    @property
    def rounds_alone(self) -> bool:
        """Whether a pair whose Q no kernel takes along is one layer for readers in float."""
        return self.behaviour.dequantizes == "rounded"

    def names(self, nodes: Iterable[Node]) -> tuple[str, ...]:
        """Those of ``nodes`` and of what is computed with them."""
        own = (node for node in nodes if node.name not in self.added)
        return tuple(n for node in own for n in (node.name, *self.twins.get(node.name, ())))

    def scale_of(self, group: ScaleGroup) -> Scale:
        """The scale of a placement's group."""
        scale = scale_of(group)
        return scale if self.scales.alike is None else self.scales.alike(scale)

    def integer_of(self, tensor: str, scale: Scale | None = None) -> str:
        """The type of ``tensor`` where it is quantized with ``scale``; None: a constant's."""
        if scale is not None and scale.signed:
            return "int8"
        if tensor in self.unsigned:
            return "uint8"
        if self.scales.integers is None or scale is None:
            return self.integer
        return self.scales.integers(scale)

    def refuses(self, claim: Claim, form: NormalForm) -> bool:
        """Whether zero points keep a layer from being built that would read or absorb pairs."""
        has_zero_point = self.scales.has_zero_point
        if has_zero_point is None or claim.fusion.inputs == FLOAT:
            return False
        every = claim.fusion.symmetric
        for edge in claim.paired if every else self.symmetric.intersection(claim.demanded):
            scale = form.last(edge)
            if scale is None or edge.tensor in self.graph.initializers:
                continue  # Weights have none.
            if not every and self.integer_of(edge.tensor, scale) != "int8":
                continue
            if has_zero_point(scale):
                return True
        return False

    def properties_of(self, tensor: str) -> tuple[str, str | None, bool, bool]:
        """What is told of ``tensor`` here: its integers, its type outside, its zero point, and
        whether another one may have its scale.
        """
        scale, known = Scale(frozenset([tensor])), self.scales
        bounds = bounds_of(self.graph.producer.get(tensor), self.graph) or RELU
        is_off = known.has_zero_point is not None and known.has_zero_point(scale)
        is_off = is_off or (known.exceeds is not None and known.exceeds(scale, bounds))
        is_shared = known.alike is not None and known.alike(scale) != scale
        return self.integer_of(tensor, scale), self.stored.get(tensor), is_off, is_shared


@dataclass
class TensorDraft:
    """The float tensors of one candidate, as conversions are added that it needs.

    ``chains``: the scales on each edge that the candidate reads. ``formats``: of all its float
    tensors. ``layers``: those of the conversions, and others that are added to them.
    """

    target: BuildTarget
    chains: Mapping[Edge, Scales]
    formats: dict[str, TensorFormats]
    layers: list[PredictedLayer] = field(default_factory=list)
    conversions: list[Conversion] = field(default_factory=list)
    served: list[tuple[Conversion, Edge]] = field(default_factory=list)

    def port(self, tensor: str) -> Port:
        """What was written of ``tensor``; a graph input is there in its declared type."""
        available = self.formats.get(tensor)
        return Port(
            type_name(self.target.graph, tensor) if available is None else available.ready[0][1],
            tensor=tensor,
        )

    def as_it_is(self, edge: Edge) -> Port:
        """What there is of the tensor, as near to what ``edge`` needs as there is."""
        ready, chain = dict(self.formats[edge.tensor].ready), self.chains[edge]
        for length in range(len(chain), -1, -1):
            if chain[:length] in ready:
                return Port(ready[chain[:length]], tensor=edge.tensor)
        return self.port(edge.tensor)

    def as_integers(self, edge: Edge) -> Port:
        """The tensor in the scale that ``edge`` has, through the conversions it takes."""
        return self._as_integers(edge, self.chains[edge])

    def _as_integers(self, edge: Edge, chain: Scales) -> Port:
        for length in range(1, len(chain) + 1):
            ready = dict(self.formats[edge.tensor].ready)
            scales = chain[:length]
            integer = self.target.integer_of(edge.tensor, scales[-1])
            if scales in ready:
                self.serve(edge, integer, scales, copies=False)
                continue
            if scales != chain and chain in ready:
                continue
            if length == 1 and self._comes_as_integers(edge.tensor):
                written = ((scales, self.target.stored[edge.tensor]),)
                self.formats[edge.tensor] = self.formats[edge.tensor]._replace(ready=written)
                continue
            if self._is_on_the_way(edge.tensor, chain, length):
                continue
            source = ready.get(scales[:-1]) or next(iter(ready.values()))
            kind: Kind = "requantize" if is_quantized(source) else "quantize"
            self.convert(edge, kind, Port(source, tensor=edge.tensor), integer, scales)
            available = self.formats[edge.tensor]
            self.formats[edge.tensor] = available._replace(
                ready=(*available.ready, (scales, integer))
            )
        return Port(dict(self.formats[edge.tensor].ready)[chain], tensor=edge.tensor)

    def _is_on_the_way(self, tensor: str, chain: Scales, length: int) -> bool:
        """Whether a kernel that quantizes floats to the next scale rounds to this one before."""
        ready = self.formats[tensor].ready
        return self.target.rounds_alone and length < len(chain) and not is_quantized(ready[0][1])

    def _comes_as_integers(self, tensor: str) -> bool:
        return tensor in self.target.stored and tensor not in self.target.graph.producer

    def is_dequantized(self, edge: Edge) -> bool:
        """Whether ``edge`` reads, in float, what went through a pair or was written as integers."""
        return bool(self.chains[edge]) or () not in dict(self.formats[edge.tensor].ready)

    def as_float(self, edge: Edge, is_like: bool = False, in_place: bool = False) -> Port:
        """The tensor in float: as written, or through the DQ of the pair on ``edge``.

        ``in_place``: it is overwritten with what the layer writes.
        """
        port = self.port(edge.tensor)
        chain, ready = self.chains[edge], self.formats[edge.tensor].ready
        if not chain and not is_quantized(port.dtype):
            return port
        if self._is_rounded_alone(edge, port, in_place):
            return port
        if chain and self._is_rounded(edge.tensor, chain):
            return Port(self.target.base, tensor=edge.tensor)
        if self.target.rounds_alone and len(chain) > 1 and chain not in dict(ready):
            source = self._as_integers(edge, chain[:-1])  # One kernel quantizes and dequantizes.
        else:
            source = self.as_integers(edge) if chain else port
        scales = chain or self.formats[edge.tensor].ready[0][0]
        # Under weak typing DQ writes the type of its scale, FP32, where a residual is added;
        # elsewhere the type that its reader computes in.
        dtype = FLOAT if is_like and self.target.target.typing == "weak" else self.target.base
        if edge.is_graph_output:
            dtype = type_name(self.target.graph, edge.tensor)
        is_shared = self.target.behaviour.dequantizes != "each"
        known = self.serve(edge, dtype, scales) if is_shared else None
        return known or self.convert(edge, "dequantize", source, dtype, scales)

    def _is_rounded(self, tensor: str, chain: Scales) -> bool:
        """Whether what wrote the tensor rounded it to a scale and wrote floats."""
        ready = dict(self.formats[tensor].ready)
        if chain in self.formats[tensor].besides:
            return True
        return chain in ready and not is_quantized(ready[chain])

    def _is_rounded_alone(self, edge: Edge, port: Port, in_place: bool) -> bool:
        """Whether what ``edge`` reads in float is rounded and never written as integers for it.

        The sum that a Conv overwrites is, where the kernel that writes it takes Q along.
        """
        if not self.target.rounds_alone or is_quantized(port.dtype) or edge.is_graph_output:
            return False
        if self._comes_as_integers(edge.tensor):
            return False
        return len(self.chains[edge]) == 1 and self.formats[edge.tensor].rounded == in_place

    def constant(self, edge: Edge) -> Port:
        """A constant that is dequantized in every run, for each reader by a layer of its own."""
        return self.dequantized(edge, Port(self.target.integer_of(edge.tensor), tensor=edge.tensor))

    def dequantized(self, edge: Edge, source: Port) -> Port:
        """What a DQ writes of integers that are integers in the file."""
        port = Port(self.target.base, tensor=edge.tensor)
        layer = Layer(f"dequantize {edge.tensor}", "Reformat", (), (source,), (port,), "dequantize")
        self.layers.append(PredictedLayer(layer, (), None, (edge,)))
        return port

    def reformat(self, edge: Edge, source: Port, dtype: str) -> Port:
        """The tensor in another float type."""
        return self.serve(edge, dtype, ()) or self.convert(edge, "reformat", source, dtype, ())

    def convert(
        self,
        edge: Edge,
        kind: Kind,
        source: Port,
        dtype: str,
        scales: Scales,
        joins: bool = False,
    ) -> Port:
        """What a conversion that is added writes of the tensor; ``joins``: see ``Conversion``."""
        port = Port(dtype, tensor=edge.tensor)
        available = self.formats[edge.tensor]
        ordinal = sum(known.kind == kind for known in available.conversions)
        conversion = Conversion(edge.tensor, dtype, scales, kind, ordinal, joins)
        self.formats[edge.tensor] = available._replace(
            conversions=(*available.conversions, conversion)
        )
        layer = Layer(f"{kind} {edge.tensor}", "Reformat", (), (source,), (port,), kind)
        self.conversions.append(conversion)
        self.layers.append(PredictedLayer(layer, (), None, (edge,), ordinal))
        return port

    def serve(self, edge: Edge, dtype: str, scales: Scales, *, copies: bool = True) -> Port | None:
        """What an earlier conversion wrote for other edges, noting that it serves ``edge`` too.

        ``copies``: also one that only laid the tensor out in another way.
        """
        for known in self.formats[edge.tensor].conversions:
            if known.kind == "reformat" and not copies:
                continue
            if (known.dtype, known.scales) == (dtype, scales) and not known.joins:
                self.served.append((known, edge))
                return Port(dtype, tensor=edge.tensor)
        return None

    def is_converted(self, edge: Edge, port: Port) -> bool:
        """Whether ``edge`` reads what a conversion wrote."""
        written = port.dtype, self.chains[edge]
        conversions = self.formats[edge.tensor].conversions
        typed = (c for c in conversions if c.kind != "reformat" or c.joins)
        return self.is_served(edge) or any((c.dtype, c.scales) == written for c in typed)

    def is_served(self, edge: Edge) -> bool:
        """Whether a conversion that was added, or an earlier one, serves ``edge``."""
        added = any(not layer.nodes and edge in layer.edges for layer in self.layers)
        return added or any(edge == served for _, served in self.served)


def type_name(graph: Graph, tensor: str) -> str:
    """ONNX's name of a tensor's element type, in lower case."""
    dtype = graph.type_of(tensor).dtype
    return UNKNOWN if dtype is None else str(TensorProto.DataType.Name(dtype)).lower()
