"""Activations of the float model over a dataset, as many at a time as memory allows."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import nullcontext

import numpy as np
import onnx
import onnxruntime as ort
from onnx import TensorProto

from placer.calibration.body_runs import most_runs
from placer.calibration.dataset import Dataset
from placer.calibration.sample import Sample
from placer.common.ort_session import blamed_on, create_session, run_once
from placer.errors import InputError, LimitError, RunError
from placer.graph.exposed import Wanted, expose
from placer.graph.flat import body_inputs, nest
from placer.graph.scopes import Scope
from placer.model import Model
from placer.model.save import serialized

BUDGET_BYTES = 256 << 20
_THREADS = 2
_OBSERVED = (TensorProto.FLOAT, TensorProto.FLOAT16)


def observable(model: Model, tensors: Collection[str]) -> list[str]:
    """Names, sorted, of those of ``tensors`` that are float32 or float16 and not constant.

    Raises InputError for an unknown tensor.
    """
    graph = model.graph
    given = {*graph.inputs, *graph.initializers, *_body_inputs(model)}
    for name in tensors:
        if not (name in graph.producer or name in given):
            raise InputError(
                f"{model.path} has no tensor '{name}' to calibrate; name an input of a node"
            )
    return sorted(
        name
        for name in set(tensors)
        if name not in graph.initializers and graph.type_of(name).dtype in (None, *_OBSERVED)
    )


_UNKNOWN = 32  # Tensors of one pass where no shape is known.


def passes(
    model: Model, tensors: Sequence[str], dataset: Dataset, budget_bytes: int = BUDGET_BYTES
) -> list[list[str]]:
    """``tensors`` by the pass over ``dataset`` that observes them.

    Those of one pass take at most ``budget_bytes`` a sample together, unless one alone takes more.
    Inputs of the model, which need no run, are observed in the first.
    """
    fed = [name for name in tensors if name in model.graph.inputs]
    computed = [name for name in tensors if name not in model.graph.inputs]
    chunks = _chunks(model, computed, _times(model, computed, dataset), budget_bytes)
    if fed:
        return [fed + chunks[0], *chunks[1:]] if chunks else [fed]
    return chunks


def activations(
    model: Model, tensors: Sequence[str], dataset: Dataset
) -> Iterator[tuple[Sample, dict[str, np.ndarray]]]:
    """Each sample with the values of ``tensors``, by ONNX Runtime on the CPU.

    What is made in a body that does not run on a sample is not among its values; what is made in
    one of a Loop or Scan has the values of all trips, in one dimension.
    The session, which holds all weights, ends with the pass. Raises InputError for a sample that
    makes an index out of range, RunError if ONNX Runtime refuses the model.
    """
    computed = [name for name in tensors if name not in model.graph.inputs]
    session = _Observer(model, computed) if computed else None
    for sample in dataset:
        values = {name: sample.inputs[name] for name in tensors if name in sample.inputs}
        if session is not None:
            values.update(session.run(sample, dataset.synthetic))
        yield sample, values


def _times(model: Model, tensors: Sequence[str], dataset: Dataset) -> Mapping[str, int]:
    """How often those of ``tensors`` are made on a sample, at most, that a Loop or Scan makes."""
    inside = _in_bodies(model, tensors)
    repeated = {n: scope for n, scope in inside.items() if any(body.repeats for body in scope)}
    if not repeated:
        return {}
    runs = most_runs(model, dataset)
    return {name: max(1, runs[scope]) for name, scope in repeated.items()}


def _chunks(
    model: Model, tensors: Sequence[str], times: Mapping[str, int], budget_bytes: int
) -> list[list[str]]:
    """Split ``tensors``, in graph order, into runs that fit the budget; at least one each."""
    order = {name: i for i, name in enumerate((*_body_inputs(model), *model.graph.producer))}
    known = {name: _bytes(model, name) for name in tensors}
    # A tensor of unknown shape is taken to be as large as the largest known one. With none known
    # a pass takes a few: one each would mean hundreds of runs of the whole model.
    largest = max(
        (size for size in known.values() if size is not None), default=budget_bytes // _UNKNOWN
    )
    chunks: list[list[str]] = []
    used = 0
    for name in sorted(tensors, key=lambda tensor: order[tensor]):
        size = known[name]
        size = (largest if size is None else size) * times.get(name, 1)
        if not chunks or used + size > budget_bytes:
            chunks.append([])
            used = 0
        chunks[-1].append(name)
        used += size
    return chunks


def _bytes(model: Model, tensor: str) -> int | None:
    """Size of a tensor of one sample, None if its shape is unknown."""
    dtype, shape = model.graph.type_of(tensor)
    if shape is None:
        return None
    return int(np.prod(shape, dtype=np.int64)) * (2 if dtype == TensorProto.FLOAT16 else 4)


class _Observer:
    """A session of the float model that also returns ``tensors``."""

    def __init__(self, model: Model, tensors: Sequence[str]) -> None:
        self._model = model
        self._inside = _in_bodies(model, tensors)
        proto, names = _exposed(model, self._inside) if self._inside else (model.proto, {})
        present = {output.name for output in proto.graph.output}
        extra = onnx.ModelProto()
        for name in tensors:
            if name not in present and name not in names:
                extra.graph.output.append(_value_info(model, name))
        # Serialized messages that are concatenated merge, and repeated fields append
        # (protobuf.dev, "Encoding"): outputs are added without copying initializers as messages.
        more = extra.SerializeToString()
        # Fusions depend on which tensors are outputs and round differently. Without them a tensor
        # has the same values whatever else is observed, and chunks and caches change no result.
        level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
        with serialized(proto, model.base_dir) as (source, folder):
            observed = b"".join((source, more))
            self._session = create_session(observed, folder, threads=_THREADS, level=level)
        self._names = {name: names.get(name, name) for name in tensors}

    def run(self, sample: Sample, synthetic: bool) -> dict[str, np.ndarray]:
        """The tensors of one sample.

        Raises InputError for values that make indices out of range, RunError if ONNX Runtime fails.
        """
        where = f"{self._model.path} on {sample.origin}"
        blamed = nullcontext() if synthetic else blamed_on(sample.origin)
        try:
            with blamed:
                values = run_once(self._session, list(self._names.values()), sample.inputs, where)
        except LimitError:
            raise
        except RunError as error:
            if not synthetic:
                raise
            problem = f"{error}; not every model takes random inputs"
            raise RunError(problem, "give `data`") from error
        named = zip(self._names, values, strict=True)
        return {name: value for name, value in named if value.size or name not in self._inside}


def _body_inputs(model: Model) -> dict[str, Scope]:
    return body_inputs((node.proto for node in model.graph.nodes), model.graph.scopes)


def _in_bodies(model: Model, tensors: Sequence[str]) -> dict[str, Scope]:
    """Where those of ``tensors`` are made that a body of an If, Loop or Scan makes or is given."""
    graph = model.graph
    if not graph.scopes:
        return {}
    given = _body_inputs(model)
    makers = {n: graph.producer[n].name for n in tensors if n in graph.producer}
    made = {n: graph.scopes[maker] for n, maker in makers.items() if maker in graph.scopes}
    return {n: scope for n in tensors if (scope := made.get(n) or given.get(n))}


def _exposed(model: Model, inside: Mapping[str, Scope]) -> tuple[onnx.ModelProto, dict[str, str]]:
    """The model with the tensors of bodies as outputs, and what those are called."""
    flat = model.flat()
    types = {name: model.graph.type_of(name).dtype or TensorProto.FLOAT for name in inside}
    wanted = [Wanted(name, scope, types[name]) for name, scope in inside.items()]
    outputs, scopes = expose(flat.graph, model.graph.scopes, wanted)
    nest(flat.graph, scopes)
    return flat, dict(zip(inside, outputs, strict=True))


def _value_info(model: Model, tensor: str) -> onnx.ValueInfoProto:
    dtype = model.graph.type_of(tensor).dtype
    info = onnx.ValueInfoProto(name=tensor)
    if dtype is not None:
        info.type.tensor_type.elem_type = dtype
    return info
