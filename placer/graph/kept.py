"""What functions find out about a graph, kept with it."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Concatenate, ParamSpec, TypeVar

from placer.graph.index import Graph

P = ParamSpec("P")
R = TypeVar("R")


def kept(function: Callable[Concatenate[Graph, P], R]) -> Callable[Concatenate[Graph, P], R]:
    """Let ``function`` compute once for each graph and further arguments, which are hashable.

    A graph never changes, so neither does what holds of it; what is found lives as long as the
    graph does, and callers must not change it. Only positional arguments are taken.
    """

    @wraps(function)
    def asked(graph: Graph, /, *args: P.args, **kwargs: P.kwargs) -> R:
        key = (function, *args)
        try:
            value: R = graph.kept[key]
        except KeyError:
            value = graph.kept[key] = function(graph, *args, **kwargs)
        return value

    return asked
