"""Nodes and constants that are added to a flat graph."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from onnx import GraphProto, NodeProto, helper, numpy_helper

from placer.graph.names import UnusedNames, tensor_names
from placer.graph.scopes import Scope, Scopes


class Additions:
    """Makes nodes and constants for a flat graph, under names that it does not have.

    ``scopes``: those of the graph and of the nodes that were made, which are the caller's to add.
    """

    def __init__(self, graph: GraphProto, scopes: Scopes) -> None:
        self.scopes = dict(scopes)
        self._graph = graph
        self._tensors = UnusedNames(tensor_names(graph))
        self._nodes = UnusedNames({node.name for node in graph.node})
        self._constants: dict[tuple[str, bytes], str] = {}

    def tensor(self, base: str) -> str:
        """A name for a tensor: ``base``, with a number behind if that is taken."""
        return self._tensors.unused(base)

    def node(
        self,
        scope: Scope,
        op: str,
        inputs: Sequence[str],
        output: str,
        attributes: Mapping[str, int] | None = None,
    ) -> NodeProto:
        """A node at ``scope`` that writes ``output``, and is called so where it can be."""
        name = self._nodes.unused(output)
        if scope:
            self.scopes[name] = scope
        made = helper.make_node(op, inputs, [output], name)
        made.attribute.extend(helper.make_attribute(*item) for item in (attributes or {}).items())
        return made

    def constant(self, values: np.ndarray) -> str:
        """The name of an initializer with ``values``, which is added once."""
        key = f"{values.dtype}{values.shape}", values.tobytes()
        if key not in self._constants:
            name = self._constants[key] = self.tensor("constant")
            self._graph.initializer.append(numpy_helper.from_array(values, name))
        return self._constants[key]
