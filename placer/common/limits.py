"""How large an input may be before placer refuses it.

Limits are checked before the work that they bound: from the size of a file, the header of an
array, the declared shapes of a model. They protect against mistakes and against files made to
exhaust a machine; each can be lifted by an environment variable.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, fields

from placer.errors import InputError

_KIB, _MIB, _GIB = 1 << 10, 1 << 20, 1 << 30
PREFIX = "PLACER_MAX_"


@dataclass(frozen=True)
class Limits:
    """Largest sizes that are accepted; ``PLACER_MAX_<FIELD>`` replaces a field's value.

    ``model_bytes``: an ONNX file without its external data; protobuf itself ends at 2 GiB.
    ``nodes``: nodes of a model with local functions inlined and subgraphs counted.
    ``function_depth``: local functions that call one another.
    ``rank``: dimensions of a tensor. ``tensor_bytes``: a tensor that a model computes or reads, by
    its inferred shape; weights are bounded by their files.
    ``name_length``: characters of a node's or tensor's name.
    ``loop_trips``: a constant trip count of a Loop that nothing else ends.
    ``run_s``, ``run_bytes``: seconds and further memory that ONNX Runtime may take to run a model
    once; four times ``run_s`` to load it.
    ``data_bytes``: what an .npz unpacks to, if that is much more than the file.
    ``json_bytes``, ``yaml_bytes``: a document such as a plan or a placement. ``rule_bytes``: a
    YAML file of a rule pack. ``yaml_depth``: levels of a YAML document.
    ``text_bytes``, ``text_depth``: an ONNX text model in a rule's test. ``test_values``: values of
    the initializers in all tests of a rule. ``bindings``: how often a node of a model is tried for
    one of a rule's pattern.
    """

    model_bytes: int = 2 * _GIB
    nodes: int = 50_000
    function_depth: int = 100
    rank: int = 64
    tensor_bytes: int = _GIB
    name_length: int = 2_000
    loop_trips: int = 1_000_000
    run_s: int = 15
    run_bytes: int = 2 * _GIB
    data_bytes: int = _GIB
    json_bytes: int = 256 * _MIB
    yaml_bytes: int = 4 * _MIB
    rule_bytes: int = 256 * _KIB
    yaml_depth: int = 40
    text_bytes: int = 64 * _KIB
    text_depth: int = 64
    test_values: int = 1 << 24
    bindings: int = 5_000_000

    @staticmethod
    def from_environment(environment: Mapping[str, str] = os.environ) -> Limits:
        """The defaults, or what ``PLACER_MAX_TENSOR_BYTES=8000000000`` and the like say.

        Raises InputError for a value that is no positive whole number.
        """
        given = {}
        for field in fields(Limits):
            name = variable(field.name)
            text = environment.get(name)
            if text is None:
                continue
            if not text.isdecimal() or int(text) < 1:
                raise InputError(f"{name}={text} is not a whole number above 0; correct it")
            given[field.name] = int(text)
        return Limits(**given)


def variable(field: str) -> str:
    """The environment variable that replaces a field of ``Limits``."""
    return f"{PREFIX}{field.upper()}"


def how_to_lift(field: str, needed: int) -> str:
    """The end of a message that refuses ``needed`` of what ``field`` limits."""
    return f"set {variable(field)}={needed} if that is meant"


def in_bytes(size: int) -> str:
    """``size`` in bytes for people: ``1.5 GiB``."""
    for unit, name in ((_GIB, "GiB"), (_MIB, "MiB"), (_KIB, "KiB")):
        if size >= unit:
            return f"{size / unit:.4g} {name}"
    return f"{size} bytes"
