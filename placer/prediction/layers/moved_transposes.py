"""What becomes of a model's Transposes where ONNX Runtime chooses memory layouts.

Those that others undo are no layers, and where one stays behind a DQ, a pair is put behind it that
nobody needs. Source: onnxruntime/core/optimizer/transpose_optimization/.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from placer.graph import Edge, Graph
from placer.prediction.layers.conversions import PredictedLayer
from placer.prediction.layers.layout_options import LayoutOptions
from placer.prediction.layers.memory_layouts import LAST, ROW_MAJOR, TURNED, LaidOut, lay_out


def with_transposes_moved(
    layers: Sequence[PredictedLayer], graph: Graph, options: LayoutOptions
) -> Iterator[PredictedLayer]:
    """``layers``, a whole plan in order, with what becomes of Transposes; see ``lay_out``.

    Those of the model that others undo are none, and behind those that stay behind a DQ are pairs,
    which convert to the same integers and back (TryFixTransposeMissingQ).
    """
    written: dict[Edge, PredictedLayer] = {}
    laid_out = lay_out(layers, graph, options)
    by_edge = {
        edge: laid
        for predicted, laid in zip(layers, laid_out, strict=True)
        for edge in (predicted.edges if predicted.nodes else ())
    }
    for predicted, laid in zip(layers, laid_out, strict=True):
        for move in laid.moves:
            if move.behind in written:
                yield from _pair(written[move.behind])
        if predicted.layer.kind == "dequantize":
            written |= dict.fromkeys(predicted.edges, predicted)
        # A reorder of blocks turns what it moves on its way.
        reordered = laid.layout == ROW_MAJOR and laid.moves
        gone = laid.gone and (reordered or _is_undone(predicted, laid, by_edge, graph))
        layer = replace(predicted.layer, kind="no-op") if gone else predicted.layer
        yield replace(predicted, layer=layer) if gone else predicted


def _is_undone(
    turn: PredictedLayer, laid: LaidOut, by_edge: Mapping[Edge, LaidOut], graph: Graph
) -> bool:
    """Whether all that read a Transpose take what the Transpose reads."""
    tensor = turn.layer.outputs[0].tensor
    if laid.layout in (LAST, TURNED):
        return _is_taken(tensor, by_edge, graph)
    return len(graph.edges_of(tensor)) == 1


def _is_taken(tensor: str, by_edge: Mapping[Edge, LaidOut], graph: Graph) -> bool:
    """Whether all layers that read ``tensor`` take it as it lies, of views what reads these."""
    for edge in graph.edges_of(tensor):
        after = by_edge.get(edge)
        if after is None or not (after.gone or after.layout == LAST):
            return False
        node = graph.by_name[edge.node]
        if node.op == "Reshape" and not _is_taken(node.outputs[0], by_edge, graph):
            return False
    return True


def _pair(dequantize: PredictedLayer) -> tuple[PredictedLayer, PredictedLayer]:
    """A Q and a DQ behind ``dequantize``."""
    layer = dequantize.layer
    quantize = replace(
        layer, name=f"quantize {layer.outputs[0].tensor}", inputs=layer.outputs,
        outputs=layer.inputs, kind="quantize",
    )  # fmt: skip
    return replace(dequantize, layer=quantize), dequantize
