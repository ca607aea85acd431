"""Fake quantization in PyTorch where a placement has its Q/DQ pairs.

Copy this file into a training project; it needs torch 2.5 or later with onnxscript, and what
``placer export-qat`` writes:

    program = torch.onnx.export(network.eval(), example, dynamo=True)
    program.save("float.onnx")  # then: placer export-qat placement.yaml float.onnx -o qat.json
    trained = fake_quantized(program, json.loads(Path("qat.json").read_text()))
    ...  # train as usual; weights and biases are parameters
    torch.onnx.export(trained, example, dynamo=True).save("qat.onnx")  # with Q/DQ pairs

PyTorch's exporter names ONNX tensors after the nodes of the exported program, so each edge of the
placement is found by name. The network is the one in inference mode: BatchNormalization uses
its running statistics, which training leaves as they are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch
from torch.fx import GraphModule, Node

Entry = Mapping[str, Any]


def fake_quantized(program: torch.onnx.ONNXProgram, placement: Entry) -> GraphModule:
    """Return the network of ``program`` with fake quantization where ``placement`` has its pairs.

    ``placement``: the content of qat.json.

    Activations keep the scales of the file. A weight takes its scale from its values in each step,
    as placer does when it quantizes the result. Raises ValueError for an edge that the program does
    not have: then qat.json was made from another file.
    """
    module = program.exported_program.module()
    graph = _Names(program, module)
    for entry in placement["activations"]:
        graph.quantize(graph.node(entry["tensor"]), entry, _activation(entry))
    for entry in placement["constants"]:
        source, axis = graph.constant(entry)
        is_weight = entry["type"] == "int8" and entry["zero_point"] == 0
        graph.quantize(source, entry, _weight(axis) if is_weight else _activation(entry))
    module.graph.lint()
    module.recompile()
    return module


def _activation(entry: Entry) -> Callable[[torch.Tensor], torch.Tensor]:
    """One scale for the tensor, the file's."""
    scale, zero_point = entry["scale"], entry["zero_point"]
    low, high = entry["quant_min"], entry["quant_max"]

    def fake_quantize(x: torch.Tensor) -> torch.Tensor:
        return torch.fake_quantize_per_tensor_affine(x, scale, zero_point, low, high)

    return fake_quantize


def _weight(axis: int | None) -> Callable[[torch.Tensor], torch.Tensor]:
    """Largest magnitude / 127, per channel along ``axis`` or of the whole tensor."""

    def fake_quantize(weight: torch.Tensor) -> torch.Tensor:
        channels = 0 if axis is None else axis
        others = [i for i in range(weight.ndim) if axis is None or i != axis]
        scale = weight.detach().abs().amax(others).clamp(min=2.0**-116) / 127
        scale = scale.expand(weight.shape[channels])
        zeros = torch.zeros(weight.shape[channels], dtype=torch.int32)
        return torch.fake_quantize_per_channel_affine(weight, scale, zeros, channels, -128, 127)

    return fake_quantize


class _Names:
    """Nodes of an exported program by the names of ONNX tensors."""

    def __init__(self, program: torch.onnx.ONNXProgram, module: GraphModule) -> None:
        graph = program.model.graph
        nodes = {node.name: node for node in module.graph.nodes}
        inputs = [node for node in module.graph.nodes if node.op == "placeholder"]
        self._output = module.graph.output_node()
        results = self._output.all_input_nodes
        names = {value.name for node in graph for value in node.outputs}
        self._by_tensor = {name: nodes[name] for name in names if name in nodes}
        self._by_tensor |= {
            value.name: node for value, node in zip(graph.inputs, inputs, strict=True)
        }
        self._by_tensor |= {
            value.name: node for value, node in zip(graph.outputs, results, strict=True)
        }
        self._tensors = set(self._by_tensor.values())
        self._next: dict[str, set[str]] = {}  # What is computed of an ONNX tensor.
        for node in graph:
            for value in node.inputs:
                if value is not None:
                    self._next.setdefault(value.name, set()).update(o.name for o in node.outputs)
        self._constants = {n.target: n for n in module.graph.nodes if n.op == "get_attr"}
        self._module = module

    def node(self, tensor: str) -> Node:
        """The node that computes ``tensor``."""
        if tensor not in self._by_tensor:
            raise ValueError(f"the program has no tensor '{tensor}'; export qat.json for its file")
        return self._by_tensor[tensor]

    def constant(self, entry: Entry) -> tuple[Node, int | None]:
        """The parameter of ``entry`` and its axis; exporters transpose weights of linear layers."""
        axis = entry["axis"]
        if entry["tensor"] in self._constants:
            return self._constants[entry["tensor"]], axis
        weights = [
            found
            for reader in entry["readers"]
            for sink in self._sinks(reader)
            for found in self._behind(sink)
            if found.op == "get_attr" and found.meta["val"].ndim == 2
        ]
        if len(set(weights)) != 1:
            raise ValueError(f"the program has no constant '{entry['tensor']}'")
        return weights[0], None if axis is None else 1 - axis

    def quantize(
        self, source: Node, entry: Entry, function: Callable[[torch.Tensor], torch.Tensor]
    ) -> None:
        """Let the readers of ``entry`` read ``source`` through ``function``."""
        readers = [user for reader in entry["readers"] for user in self._users(source, reader)]
        if not readers:
            raise ValueError(f"nothing in the program reads '{entry['tensor']}' as the file says")
        graph = self._module.graph
        with graph.inserting_after(source):
            between = graph.call_function(function, (source,))
        for user in readers:
            user.replace_input_with(source, between)

    def _users(self, source: Node, reader: Entry) -> list[Node]:
        """Users of ``source`` from which ``reader`` is computed."""
        if not reader["node"]:
            return [self._output] if self._output in source.users else []
        sinks = self._sinks(reader)
        return [user for user in source.users if self._leads(user, sinks)]

    def _sinks(self, reader: Entry) -> set[Node]:
        """The nodes of ``reader``'s outputs, or the next that there are.

        Several ONNX nodes may be one of the program: MatMul and Add of a linear layer.
        """
        pending, found = list(reader["outputs"]), set()
        while pending:
            tensor = pending.pop()
            if tensor in self._by_tensor:
                found.add(self._by_tensor[tensor])
            else:
                pending += self._next.get(tensor, ())
        return found

    def _leads(self, node: Node, sinks: set[Node]) -> bool:
        """Whether one of ``sinks`` is computed from ``node`` with no other tensor between."""
        if node in sinks:
            return True
        return node not in self._tensors and any(self._leads(user, sinks) for user in node.users)

    def _behind(self, node: Node) -> Iterable[Node]:
        """Constants and tensors that ``node`` is computed from, with no tensor between."""
        for found in node.all_input_nodes:
            if found in self._tensors or found.op == "get_attr":
                yield found
            else:
                yield from self._behind(found)
