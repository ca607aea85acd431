"""An explanation as plain data, as ``placer explain --json`` prints it."""

from __future__ import annotations

from collections.abc import Mapping

from placer.graph import Edge
from placer.prediction.explanation.conversion_text import (
    Pairs,
    rescaled_tensors,
    taken_out,
    tied_tensors,
)
from placer.prediction.explanation.default_gains import Decision
from placer.prediction.explanation.explain import Explanation, StandaloneConversion
from placer.prediction.explanation.first_changes import FirstChange
from placer.prediction.explanation.remedies import Remedy
from placer.quantization import Placement
from placer.quantization.placement import Change


def explanation_json(explanation: Explanation, timed: bool) -> Mapping[str, object]:
    """The explanation as plain data; edges are written as in placement.yaml.

    ``timed``: whether there are times; else they are null.
    """
    times: dict[str, object] = {
        "total_us": explanation.total_us,
        "interval_us": list(explanation.interval_us),
        "float_us": explanation.float_us,
        "default_us": explanation.default_us,
        "default_is_faster": explanation.default_is_faster,
        "speedup": explanation.speedup,
        "speedup_interval": list(explanation.speedup_interval),
    }
    return {
        "estimate": True,
        **(times if timed else dict.fromkeys(times)),
        "decisions": [_decision(one, explanation) for one in explanation.decisions],
        "overlaps": [
            {
                "rule": overlap.lost.rule.id,
                "anchor": overlap.lost.anchor.name,
                "lost_to": overlap.won.rule.id,
                "because": overlap.because,
            }
            for overlap in explanation.overlaps
        ],
        "conversions": [
            _conversion(one, timed, explanation.pairs) for one in explanation.conversions
        ],
        "improved": {
            "total_us": explanation.improved_us if timed else None,
            "placement": explanation.improved.id,
            "groups": [
                [_edge(e) | _format(e, explanation.improved) for e in group]
                for group in explanation.improved.sorted()
            ],
        },
    }


def _decision(decision: Decision, explanation: Explanation) -> dict[str, object]:
    rule, gain = decision.site.match.rule, explanation.gains.get(decision.kind)
    splits = explanation.split_by(decision)
    return {
        "rule": rule.id,
        "nodes": {name: node.name for name, node in decision.site.match.nodes.items()},
        "layout": decision.layout,
        "default": decision.default,
        "split_by": [_edge(edge) for edge in splits],
        "rounded_by": [_edge(edge) for edge in decision.inside if edge not in splits],
        "nearest": decision.nearest or None,
        "missing": [_edge(edge) for edge in decision.missing],
        "default_of_its_kind_saves_us": 0.0 if gain is None else gain.saves_us,
        "layouts": list(decision.site.layouts),
        "why": rule.why,
        "source": rule.source,
    }


def _conversion(conversion: StandaloneConversion, timed: bool, pairs: Pairs) -> dict[str, object]:
    remedy = conversion.remedy
    return {
        "layer": conversion.name,
        "kind": conversion.kind,
        "tensor": conversion.tensor,
        "us": conversion.us if timed else None,
        "because": conversion.because,
        "goes_with_others": conversion.goes_with_others,
        "goes_with_default": conversion.default_of
        and dict(zip(("rule", "layout"), conversion.default_of, strict=True)),
        "remedy": remedy and _remedy(remedy, pairs),
    }


def _remedy(remedy: Remedy, pairs: Pairs) -> dict[str, object]:
    return {
        "quantize": _quantized(remedy.change),
        "leave_float": [_edge(edge) | _pair(edge, pairs) for edge in remedy.change.removed],
        "saves_us": remedy.saves_us,
        "placement": remedy.before.id_after(remedy.change),
    }


def first_change_json(first: FirstChange) -> dict[str, object]:
    """One of the first changes with all its edges, and the nodes that it takes out of the file."""
    change = first.remedy.change
    taken, _ = taken_out(change.removed, first.pairs)
    return {
        "cause": first.cause(),
        **_remedy(first.remedy, first.pairs),
        "take_out": list(dict.fromkeys(name for nodes in taken for name in nodes)),
        "one_scale": [*tied_tensors(change)] or [[name] for name in rescaled_tensors(change)],
        "share": first.share,
    }


def _pair(edge: Edge, pairs: Pairs) -> dict[str, object]:
    """The nodes of the file's own pair at ``edge``."""
    return {"pair": list(pairs[edge])} if edge in pairs else {}


def _quantized(change: Change) -> list[dict[str, object]]:
    """What ``change`` quantizes, anew or in another format than before."""
    edges = sorted({*change.added, *change.reformatted})
    return [_edge(edge) | _format(edge, change) for edge in edges]


def _format(edge: Edge, placement: Placement | Change) -> dict[str, object]:
    """The format of the edge's pair where it is another than the scheme's own."""
    chosen = placement.formats.get(edge)
    return {} if chosen is None else {"format": chosen}


def _edge(edge: Edge) -> dict[str, object]:
    return {"tensor": edge.tensor, "node": edge.node, "input": edge.input_index}
