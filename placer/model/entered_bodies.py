"""Normalise what is in bodies of If, Loop and Scan nodes, once the graph is flat."""

from __future__ import annotations

from pathlib import Path

from onnx import ModelProto

from placer.graph.edit import remove_dead_nodes
from placer.graph.flat import entered_bodies, flatten, nest
from placer.graph.scopes import Scope
from placer.model.normalize import drop_unused_initializers, infer_values
from placer.model.passes.affine_folding import fold_affine
from placer.model.passes.constant_folding import fold_constants, may_fold
from placer.model.passes.constant_nodes import constants_to_initializers
from placer.model.passes.control_flow import flatten_conditionals
from placer.model.passes.identities import remove_identities


def enter_bodies(proto: ModelProto, base_dir: Path, path: Path) -> dict[str, Scope]:
    """Make the normalised ``proto`` flat, and normalise what was in bodies.

    Returns the scopes of the nodes that were there; where none is left, ``proto`` is not flat.
    Passes that add nodes are left out, whose scope nothing would tell.
    """
    graph = proto.graph
    if not any(entered_bodies(node) for node in graph.node):
        return {}
    scopes = flatten(graph)
    constants_to_initializers(graph)
    while True:
        remove_dead_nodes(graph)
        if may_fold(proto):
            fold_constants(proto, infer_values(proto, {}, path), base_dir=base_dir)
        owners = {body.owner for scope in scopes.values() for body in scope}
        if not flatten_conditionals(graph):
            break
        # What runs in any case is now where its If was.
        gone = owners - {node.name for node in graph.node}
        scopes = {
            name: tuple(body for body in scope if body.owner not in gone)
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
