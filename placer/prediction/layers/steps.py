"""The step of one layer candidate in the plan: its layer, and the conversions that it needs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from placer.graph import Edge, Node
from placer.plan import Layer, Port
from placer.prediction.layers.claims import FLOAT, Claim
from placer.prediction.layers.conversions import (
    BuildTarget,
    Conversion,
    PredictedLayer,
    TensorDraft,
    TensorFormats,
    type_name,
)
from placer.prediction.layers.layer_candidate import LayerCandidate, Written
from placer.prediction.layers.layer_reads import IN_PLACE_CONCAT, LayerReads
from placer.prediction.layers.layer_types import LayerTypes, reads_integers
from placer.prediction.layers.layouts import Layout, tells_layouts, written_layout
from placer.prediction.layers.motion import Scale, Scales
from placer.prediction.layers.paired_candidate import PairedCandidate
from placer.rules.fusion_schema import NO_OP


@dataclass(frozen=True, eq=False)
class Step:
    """What a candidate adds to the plan.

    ``layers``: those of the ``conversions`` that nothing before the candidate needed, which have
    the first edge that they serve, then the candidate's own. ``served``: further edges of
    conversions, also of earlier ones. ``formats``: what there is afterwards, of
    ``LayerCandidate.format_tensors``.
    """

    paired: PairedCandidate
    layers: tuple[PredictedLayer, ...]
    conversions: tuple[Conversion, ...]
    served: tuple[tuple[Conversion, Edge], ...]
    formats: Mapping[str, TensorFormats]


@dataclass
class StepDraft:
    """The step of one candidate as it grows."""

    paired: PairedCandidate
    target: BuildTarget
    tensors: TensorDraft

    @property
    def candidate(self) -> LayerCandidate:
        """What the step is of."""
        return self.paired.candidate

    @cached_property
    def _reads(self) -> LayerReads:
        return LayerReads(self.paired, self.target, self.tensors, self._types)

    @cached_property
    def _types(self) -> LayerTypes:
        feeds_float_conv = self.paired.feeds_float_conv
        return LayerTypes(self.candidate, self.target, feeds_float_conv, self.tensors.formats)

    def step(self) -> Step:
        """What was added."""
        return Step(
            self.paired,
            tuple(self.tensors.layers),
            tuple(self.tensors.conversions),
            tuple(self.tensors.served),
            self.tensors.formats,
        )

    def add_layer(self, written: Sequence[Written]) -> None:
        """Add the layer and the conversions before it.

        ``written``: the scales that each of the candidate's tensors is written in.
        """
        nodes, claim = self.candidate.nodes, self.candidate.claim
        op = _operator(nodes, claim)
        reads = self._reads.ports(written, op)
        if _adds_residual(nodes):
            self._reads.cut_out(edge for edge in reads if self._operator_at(edge) == "Add")
        moved = self.paired.moved
        if moved is not None:
            written = tuple((moved,) for _ in written)
        outputs = [
            port
            for tensor, scales in zip(self.candidate.writes, written, strict=True)
            for port in self._write(tensor, scales, reads, op)
            if self._is_read(tensor)
        ]
        layer = Layer(
            name="+".join(node.name for node in nodes),
            op=op,
            nodes=self.target.names(nodes),
            inputs=(*reads.values(), *map(self.tensors.constant, self.paired.constants)),
            outputs=tuple(outputs),
            kind="no-op" if op in (NO_OP, IN_PLACE_CONCAT) else "compute",
        )
        predicted = PredictedLayer(
            layer, nodes, claim, self.candidate.reads, grouped=self._reads_groups()
        )
        self.tensors.layers += [predicted, *[self._repeated(predicted)] * (predicted.copies - 1)]

    def _reads_groups(self) -> bool:
        """Whether it may read channels that lie together: no tensor is known to be row-major."""
        formats = self.tensors.formats
        read = (formats[e.tensor].layout for e in self.candidate.reads if e.tensor in formats)
        return not tells_layouts(self.target.target) or "linear" not in read

    def _is_read(self, tensor: str) -> bool:
        """Whether something reads ``tensor`` that does not compute it by itself."""
        claim = self.candidate.claim
        if claim is None or not claim.copied:
            return True
        edges = (edge for edge in self.candidate.readers if edge.tensor == tensor)
        return any(edge not in claim.copied for edge in edges)

    def _repeated(self, first: PredictedLayer) -> PredictedLayer:
        """The further layers like ``first``, without what is part of it alone."""
        claim = first.claim
        if claim is None or not claim.fusion.once:
            return first
        once = {node.name for name in claim.fusion.once for node in claim.match.row(name)}
        nodes = tuple([node for node in first.nodes if node.name not in once])
        return replace(
            first, layer=replace(first.layer, nodes=self.target.names(nodes)), nodes=nodes
        )

    def _write(
        self, tensor: str, scales: Written, reads: Mapping[Edge, Port], op: str
    ) -> Sequence[Port]:
        """What the layer writes of ``tensor``, which is noted in the draft's formats."""
        rounded = self.paired.rounded
        kept = [s for s in scales if s is None or (tensor, s) not in rounded.alone] or [None]
        ready = tuple(
            (self._scales_of(scale), self._types.written(tensor, reads, scale)) for scale in kept
        )
        ports = [Port(dtype, tensor=tensor) for _, dtype in ready]
        if tensor not in self.tensors.formats:
            return ports
        nodes, claim = self.candidate.nodes, self.candidate.claim
        away = [((s,), self.target.base) for name, s in rounded.alone if name == tensor]
        besides = frozenset((s,) for name, s in rounded.besides if name == tensor)
        is_float = ready[0][1] == FLOAT
        self.tensors.formats[tensor] = self.tensors.formats[tensor]._replace(
            ready=(*ready, *away),
            forced=is_float and reads_integers(claim) and (claim is None or claim.like is None),
            layout=self._layout(reads, ready[0][1]),
            rounded=self.paired.rounds,
            besides=besides,
            owned=_owns_buffer(nodes, self.candidate.writes),
            by_conv=len(self.candidate.writes) == 1 and nodes[0].op == "Conv",
            part_of=nodes[0] if op == NO_OP and nodes[0].op in _CUTS else None,
        )
        return [*(Port(self.target.base, tensor=tensor) for _ in besides), *ports]

    def _operator_at(self, edge: Edge) -> str:
        return self.target.graph.by_name[edge.node].op

    def _scales_of(self, written: Scale | None) -> Scales:
        """What is written goes through these."""
        chained = self.paired.chained
        if written is None:
            return ()
        return (written,) if chained is None else (written, chained)

    def write_output(self) -> None:
        """Convert what leaves the graph to the type it declares."""
        (edge,) = self.candidate.reads
        enters = edge.tensor in self.target.graph.inputs  # As integers, which leave as floats.
        stored = None if enters else self.target.stored.get(edge.tensor)
        port = self.tensors.as_integers(edge) if stored else self.tensors.as_float(edge)
        declared = stored or type_name(self.target.graph, edge.tensor)
        if stored and port.dtype != declared:
            self.tensors.convert(edge, "requantize", port, declared, self.tensors.chains[edge])
        elif port.dtype != declared:
            self.tensors.reformat(edge, port, declared)
        else:
            self._reads.laid_out(edge, port, "")

    def _layout(self, reads: Mapping[Edge, Port], dtype: str) -> Layout:
        """The layout that the layer writes ``dtype`` in, where layouts are told apart."""
        if not tells_layouts(self.target.target):
            return "linear"
        integer, base = self.target.integer, self.target.base
        layouts, computes = list[Layout](), base
        for edge, port in reads.items():
            if port.dtype == integer:
                computes = integer
            if edge.tensor in self.tensors.formats:
                is_quantized_here = port.dtype == integer and self.tensors.is_converted(edge, port)
                layout = self.tensors.formats[edge.tensor].layout
                layouts.append("grouped" if is_quantized_here else layout)
        nodes = self.candidate.nodes
        engine = base, self.target.target
        return written_layout(self.target.graph, nodes, (computes, dtype), layouts, engine)


def _adds_residual(nodes: Sequence[Node]) -> bool:
    return {"Conv", "Add"} <= {node.op for node in nodes}


def _owns_buffer(nodes: Sequence[Node], writes: Sequence[str]) -> bool:
    """Whether a Conv adds a residual, or is one with others."""
    return _adds_residual(nodes) or (nodes[0].op == "Conv" and len(writes) > 1)


_CUTS = ("Split", "Slice")


def _operator(nodes: Sequence[Node], claim: Claim | None) -> str:
    if claim is None:
        return nodes[0].op
    names = claim.fusion.op
    if len(names) == 1:
        return names[0]
    # One name per operator that the pattern's first fused node may have.
    first = claim.fusion.nodes[0]
    alternatives = claim.match.rule.pattern[first].op
    return dict(zip(alternatives, names, strict=False)).get(claim.match.nodes[first].op, names[0])


def make_step(
    target: BuildTarget, paired: PairedCandidate, formats: tuple[TensorFormats | None, ...]
) -> Step:
    """Build ``paired``; ``formats``: what there is of its candidate's ``format_tensors``."""
    candidate = paired.candidate
    tensors = TensorDraft(
        target,
        dict(zip(candidate.reads, paired.chains, strict=True)),
        {
            tensor: available or TensorFormats((((), type_name(target.graph, tensor)),))
            for tensor, available in zip(candidate.format_tensors, formats, strict=True)
        },
    )
    draft = StepDraft(paired, target, tensors)
    if candidate.nodes:
        draft.add_layer(paired.written)
    else:
        draft.write_output()
    return draft.step()
