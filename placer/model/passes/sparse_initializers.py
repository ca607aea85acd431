"""Sparse initializers written out, as ONNX Runtime does when it loads a model."""

from __future__ import annotations

import math

import numpy as np
from onnx import GraphProto, SparseTensorProto, helper, numpy_helper

from placer.graph.external_data import is_external

# A file of a few bytes may declare any shape.
_MOST_BYTES = 1 << 28


def write_out_sparse(graph: GraphProto) -> int:
    """Make dense initializers of the sparse ones of ``graph``; return how many.

    Types behind a sparse initializer are unknown to ONNX's inference, so no rule would match
    there. What is kept in another file, is damaged or would be too large stays.
    """
    kept, count = [], 0
    for sparse in graph.sparse_initializer:
        values = dense(sparse)
        if values is None:
            kept.append(sparse)
        else:
            graph.initializer.append(numpy_helper.from_array(values, sparse.values.name))
            count += 1
    del graph.sparse_initializer[:]
    graph.sparse_initializer.extend(kept)
    return count


def dense(sparse: SparseTensorProto) -> np.ndarray | None:
    """The values with zeros between them; ``indices`` count them, or give a place in each axis.

    None if they are in another file, damaged or too many.
    https://onnx.ai/onnx/api/classes.html#sparsetensorproto
    """
    if is_external(sparse.values) or is_external(sparse.indices):
        return None
    dims = tuple(sparse.dims)
    try:
        width = helper.tensor_dtype_to_np_dtype(sparse.values.data_type).itemsize
        if math.prod(dims) * width > _MOST_BYTES:
            return None
        values = numpy_helper.to_array(sparse.values).reshape(-1)
        places = numpy_helper.to_array(sparse.indices)
        if places.ndim == 2:
            places = np.ravel_multi_index(tuple(places.T), dims)
        filled = np.zeros(math.prod(dims), values.dtype)
        filled[places] = values
    except (IndexError, KeyError, ValueError, TypeError):
        return None
    return filled.reshape(dims)
