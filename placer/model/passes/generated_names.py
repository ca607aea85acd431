"""Rename constants that have names as ONNX Runtime makes them up."""

from __future__ import annotations

import re

from onnx import GraphProto, TensorProto

from placer.graph.edit import rename_tensors
from placer.graph.names import UnusedNames, tensor_names

# Graph::GenerateNodeArgName of ONNX Runtime; `gemm_input_shape_token_12` for example.
_GENERATED = re.compile(r"_token_\d+$|^gemm_(input|output)_shape$")
_FLOATS = frozenset({TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.DOUBLE})


def rename_generated(graph: GraphProto) -> None:
    """Give shapes and the like that ONNX Runtime's optimizer has added names of another form.

    In a file that it wrote, as its pre-processing for quantization does, it may make up the same
    names once more, and refuses the model ("Attempt to replace the existing tensor", 1.32.0).
    Weights keep their names, by which placements know them.
    """
    outputs = {value.name for value in graph.output}
    unused = UnusedNames(tensor_names(graph))
    names: dict[str, str] = {}
    for tensor in graph.initializer:
        is_kept = tensor.data_type in _FLOATS or tensor.name in outputs
        if not is_kept and _GENERATED.search(tensor.name):
            names[tensor.name] = unused.unused(f"{tensor.name}/constant")
            tensor.name = names[tensor.name]
    for node in graph.node if names else ():
        rename_tensors(node, lambda tensor: names.get(tensor, tensor))
