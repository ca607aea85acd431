"""Normalise what is in branches of If nodes, once the graph is flat."""

from __future__ import annotations

from pathlib import Path

from onnx import ModelProto

from placer.graph.branches import flatten, nest
from placer.graph.edit import remove_dead_nodes
from placer.graph.scopes import Scope
from placer.model.affine_folding import fold_affine
from placer.model.constant_folding import fold_constants, may_fold
from placer.model.constant_nodes import constants_to_initializers
from placer.model.control_flow import flatten_conditionals
from placer.model.normalize import drop_unused_initializers, infer_values, remove_identities


def enter_branches(proto: ModelProto, base_dir: Path, path: Path) -> dict[str, Scope]:
    """Make the normalised ``proto`` flat, and normalise what was in branches of If nodes.

    Returns the scopes of the nodes that were there; where none is left, ``proto`` is not flat.
    Passes that add nodes are left out, whose scope nothing would tell: Loop and Scan in a branch
    stay.
    """
    graph = proto.graph
    if not any(node.op_type == "If" for node in graph.node):
        return {}
    scopes = flatten(graph)
    constants_to_initializers(graph)
    while True:
        remove_dead_nodes(graph)
        if may_fold(proto):
            fold_constants(proto, infer_values(proto, {}, path))
        owners = {branch.owner for scope in scopes.values() for branch in scope}
        if not flatten_conditionals(graph):
            break
        # What runs in any case is now where its If was.
        gone = owners - {node.name for node in graph.node}
        scopes = {
            name: tuple(branch for branch in scope if branch.owner not in gone)
            for name, scope in scopes.items()
        }
        remove_identities(graph)
    remove_dead_nodes(graph)
    remove_identities(graph)
    fold_affine(graph, base_dir)
    drop_unused_initializers(graph)
    kept = {node.name for node in graph.node}
    left = {name: scope for name, scope in scopes.items() if scope and name in kept}
    if not left:
        nest(graph, {}, emptied=True)
    return left
