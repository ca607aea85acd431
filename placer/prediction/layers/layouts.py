"""Memory layouts of tensors, as far as they decide where TensorRT reformats without another type.

Kernels for tensor cores read and write tensors whose channels are grouped (NHWC, NC/32HW32), other
layers row-major ones. Which kernel is fastest is not known here, but some layers have no choice.
They are the same under strong typing in TensorRT 10 (10.0, NVIDIA's page on best practices: a
quantized ResNet50's Convs read and write NC/32HW32), of which no list with reformats is known.
What each of these rules rests on (published TensorRT 8 and 10 engines, weakly typed):

- a Reshape and a Transpose that make rows of a map's pixels are one layer, which reads the grouped
  channels that a Conv wrote in FP16, if these fill groups (the four maps of a SparseDrive on Orin,
  8.6.1; the embedding of a Swin-T on T4, 8.2.1), but not in NC/32HW32 (three of the same four);
- graph outputs are row-major (BEVFusion camera: Softmax; NvInfer.h: the default of bindings);
- Transpose, Reshape and their like read row-major tensors, unless one pixel and whole groups
  (camera: Transpose; CIFAR's ResNet18 in INT8: Flatten; the three heads of a YOLOv8m and the one of
  a YOLOv5s in FP16, of which no more than layer names is known; but no copy before the A100's
  Gemm_48);
- a Transpose of INT8 that makes an image, as of one in NHWC, writes its channels as the Conv behind
  it reads them (Keras ResNet50 with pairs on RTX 3090), and so does one in FP16 of more channels;
  a single channel in FP16 is row-major for a Reshape however it was written (the box distances of a
  YOLOv8m on Orin, 8.5.2), but not for a graph output (10 maps of a CenterPoint on A100, 8.2.3);
- an INT8 Conv reads grouped channels, but not one on an image that is fused with a MaxPool (camera:
  two Convs, behind a Reshape each);
- so does one in FP16 (AlexNet, MobileNetV2 and ResNet18 of FP16 images on RTX 3060, 10.4), but not
  a depthwise one (behind the Reshapes of a YOLO26n's attentions, 10.7);
- a generated kernel that turns a map reads and writes what its neighbours do (from 10 on; the norms
  over channels between Convs in the projector of an RF-DETR in FP16 on T4);
- groups of 32 INT8 channels are not joined within a group (BEVFusion fuser: 80 channels are
  copied, 256 not), nor groups of 8 in FP16: for a Reshape parts that begin within one are joined
  row-major, which a Conv alone writes itself (a YOLOX-s on Orin, 8.5: 4, 1 and 1 channels);
- FP16 that an INT8 Conv wrote is in NC/32HW32, which pooling (A100, qat), a Resize and an FP16 Conv
  do not read, nor a sum that this adds (two backbones with a pyramid of a SparseDrive on Orin,
  8.6.1); a sum that an INT8 Conv adds in FP16 has to be in it (all of these); element-wise layers
  read it up to TensorRT 8 and not from 10 on (a YOLOv8n with pairs on its Convs on RTX 2060: 67
  conversions in 8.6.1, 87 and 90 in 10.14.1, the others in front of SiLUs);
- an FP8 Conv writes FP16 in NHWC (the kernel that NVIDIA/cutlass issue 1750 names, on Hopper:
  e4m3f16_e4m3f32_f32_nhwckrsc_nhwc), which other layers read;
- what an INT8 Conv writes in FP32 is row-major, and so is what an FP32 Conv writes in an engine
  that computes in FP16 (fuser);
- in an FP32 engine the Conv on an image and the MaxPool behind it are row-major, other Convs are
  not (A100; RTX 3090), up to TensorRT 8; in 10 the image is grouped for kernels in TF32 (ResNet50
  on RTX 4050, 10.14; a YOLO26n, 10.7; AlexNet, 10.1);
- FP32 kernels of GPUs without TF32 are row-major (EfficientViT-B0, 8.6.1: no copy in front of a
  Reshape);
- a Slice is a copy and writes what its reader reads (camera), and a reformat to the type of a graph
  output also changes the layout in front of a Reshape (CIFAR's ResNet18 in FP16) or a Transpose
  (CUDA-PointPillars' three heads in FP16, 8.6.1).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Literal

from onnx import TensorProto

from placer.graph import Edge, Graph, Node
from placer.graph.transposes import order_of
from placer.plan.dtypes import is_quantized
from placer.rules.condition import Condition
from placer.rules.fusion_schema import NO_OP
from placer.rules.target import Target

# ``interleaved``: NC/32HW32 in FP16, which fewer layers read than other grouped channels.
# ``image``: row-major, as FP32 kernels for images write.
Layout = Literal["linear", "image", "grouped", "interleaved"]

FEW_CHANNELS = 4  # An image: no tensor core kernel takes so few.
_GROUP = {"float16": 8, "bfloat16": 8, "float": 1}
_INTERLEAVED_GROUP = 32
_CONVS = ("Conv", "ConvTranspose")
_MOVES = ("Transpose", "Reshape", "Flatten", "Squeeze", "Unsqueeze", "DepthToSpace")
_POOLS = ("MaxPool", "AveragePool", "GlobalAveragePool", "GlobalMaxPool")
_UNGROUPED = frozenset({*_POOLS, "Resize"})
_IMAGE_AND_POOL = "ConvActPool"
_CONVOLUTION = "Convolution"
_NOT_ELEMENTWISE = frozenset({*_MOVES, "Gemm", "LayerNormalization", "MatMul"})
_POINTWISE = "PointWise"
_GENERATED_KERNELS = frozenset({_POINTWISE, "Normalization"})
_ROW_MAJOR = frozenset({"linear", "image"})
_HALF = frozenset({"float16", "bfloat16"})
_STRONG = Condition(engine_versions=">=10,<11")
_GENERATED = Condition(engine_versions=">=10")  # Element-wise layers do not keep NC/32HW32.
_TF32 = Condition(compute_capability=">=8.0")
_TF32_ON_IMAGES = Condition(engine_versions=">=10", compute_capability=">=8.0")


def tells_layouts(target: Target) -> bool:
    """Whether there is evidence of layouts in engines for ``target``: see above."""
    is_strong = target.typing == "strong" and target.engine_version is not None
    return target.typing == "weak" or (is_strong and target.meets(_STRONG))


def groups_images(target: Target) -> bool:
    """Whether FP32 Convs on images of an engine in FP32 read and write grouped channels."""
    return target.meets(_TF32_ON_IMAGES)


def written_layout(
    graph: Graph,
    nodes: Sequence[Node],
    types: tuple[str, str],
    read: Iterable[Layout],
    engine: tuple[str, Target],
) -> Layout:
    """The layout that a layer of ``nodes`` writes.

    ``types``: what it computes in and writes. ``read``: of the tensors that it reads. ``engine``:
    its float type and what it is built for.
    """
    conv = next((node for node in nodes if node.op in _CONVS), None)
    if conv is not None:
        return _of_conv(graph, conv, types, engine)
    layouts = set(read)
    if nodes[-1].op == "Concat" and joins_row_major(graph, nodes[-1], types[1]):
        return "linear"
    if _also_turns(nodes):
        return "linear" if _is_moved(graph, nodes[-1]) else "grouped"
    if _is_transposed_for_conv(graph, nodes[-1], types[1]):
        return "grouped"
    if layouts == {"grouped"} and types[1] in _HALF and makes_rows(graph, nodes[-1]):
        return "grouped"  # For the Transpose, which is one layer with it.
    if any(node.op in (*_MOVES, "Gemm", "MatMul") for node in nodes) or layouts <= {"linear"}:
        return "linear"
    if layouts <= _ROW_MAJOR:
        return "image"
    if any(node.op == "Slice" for node in nodes):
        return "linear" if _is_only_moved(graph, nodes[-1]) else "grouped"
    if nodes[-1].op in _UNGROUPED or (nodes[-1].op != "Concat" and engine[1].meets(_GENERATED)):
        return "grouped"
    return "interleaved" if layouts == {"interleaved"} else "grouped"


def _is_only_moved(graph: Graph, last: Node) -> bool:
    """Whether all that reads what ``last`` writes only moves it, or is the caller."""
    return all(_moves(graph, edge) for tensor in last.outputs for edge in graph.edges_of(tensor))


def _is_moved(graph: Graph, last: Node) -> bool:
    """Whether something that reads what ``last`` writes only moves it, or is the caller."""
    return any(_moves(graph, edge) for tensor in last.outputs for edge in graph.edges_of(tensor))


def _also_turns(nodes: Sequence[Node]) -> bool:
    """Whether an element-wise layer of ``nodes`` turns what it reads (``turned-pointwise``)."""
    others = {node.op for node in nodes[1:]}
    return nodes[0].op == "Transpose" and bool(others) and others.isdisjoint(_NOT_ELEMENTWISE)


def _is_transposed_for_conv(graph: Graph, last: Node, dtype: str) -> bool:
    if last.op != "Transpose":
        return False
    if channels(graph, last.outputs[0]) <= FEW_CHANNELS:
        return is_quantized(dtype)
    readers = [graph.by_name.get(edge.node) for edge in graph.edges_of(last.outputs[0])]
    return dtype in _HALF and all(node is not None and node.op == "Conv" for node in readers)


def _of_conv(
    graph: Graph, conv: Node, types: tuple[str, str], engine: tuple[str, Target]
) -> Layout:
    (computes, writes), (base, target) = types, engine
    if writes == "float":
        if is_quantized(computes) or base != "float" or not target.meets(_TF32):
            return "linear"
        is_image = channels(graph, conv.inputs[0]) <= FEW_CHANNELS
        return "image" if is_image and not groups_images(target) else "grouped"
    is_wide = in_wide_groups(computes) and not is_quantized(writes)
    return "interleaved" if is_wide else "grouped"


def in_wide_groups(dtype: str) -> bool:
    """Whether kernels that read tensors of this type read and write NC/32HW32."""
    return is_quantized(dtype) and not dtype.startswith("float8")


def _moves(graph: Graph, edge: Edge) -> bool:
    return edge.is_graph_output or graph.by_name[edge.node].op in _MOVES


def can_read(
    graph: Graph,
    reader: tuple[str, Node | None],
    tensor: tuple[str, str, Layout],
    engine: tuple[str, Target],
    *,
    with_integers: bool = False,
) -> bool:
    """Whether a layer reads a tensor as it is.

    ``reader``: the layer's operator and its node that reads; no node for a graph output.
    ``tensor``: its name, type and layout. ``engine``: its float type and what it is built for.
    ``with_integers``: whether the layer reads other tensors as integers.
    """
    op, node = reader
    name, dtype, layout = tensor
    row_major = layout in _ROW_MAJOR or _is_row_major_too(graph, name, dtype, layout)
    if node is None:
        return row_major
    row_major = row_major or _is_one_half(graph, name, dtype, layout)
    if node.op == "Transpose" and op in _GENERATED_KERNELS and layout == "grouped":
        return True
    if node.op in _MOVES:
        return row_major or _can_move(graph, op, node, tensor)
    if node.op in _UNGROUPED and op != _IMAGE_AND_POOL:
        return layout != "interleaved"
    if op == _POINTWISE and layout == "interleaved":
        return not engine[1].meets(_GENERATED)
    if node.op == "Add" and op == _CONVOLUTION and dtype in _HALF:
        return (layout == "interleaved") == with_integers
    if node.op != "Conv" or op == _IMAGE_AND_POOL:
        return True
    return _can_convolve(graph, node, tensor, engine)


def _can_move(graph: Graph, op: str, node: Node, tensor: tuple[str, str, Layout]) -> bool:
    """Whether a layer ``op`` moves with ``node`` what is not row-major; see ``can_read``."""
    name, dtype, layout = tensor
    moves_any = op == NO_OP or (node.op == "Transpose" and layout == "grouped")
    if moves_any and _is_converted_output(graph, node, dtype):
        return True
    reshape = graph.producer.get(name) if node.op == "Transpose" else node
    return layout == "grouped" and dtype in _HALF and makes_rows(graph, reshape)


def _can_convolve(
    graph: Graph, conv: Node, tensor: tuple[str, str, Layout], engine: tuple[str, Target]
) -> bool:
    """Whether the kernel of ``conv`` reads a tensor as it is; see ``can_read``."""
    name, dtype, layout = tensor
    if dtype in _HALF and layout == "interleaved":
        return False
    in_groups = _needs_groups(graph, conv, name, dtype) or _is_grouped_image(
        graph, name, dtype, engine
    )
    if is_quantized(dtype) or (in_groups and conv.inputs[0] == name):
        return layout != "linear"
    return layout != "image"


def _needs_groups(graph: Graph, conv: Node, tensor: str, dtype: str) -> bool:
    return dtype in _HALF and conv.attributes.get("group", 1) < channels(graph, tensor)


def _is_grouped_image(graph: Graph, tensor: str, dtype: str, engine: tuple[str, Target]) -> bool:
    base, target = engine
    is_float = dtype == base == "float" and channels(graph, tensor) <= FEW_CHANNELS
    return is_float and groups_images(target)


def _is_converted_output(graph: Graph, node: Node, dtype: str) -> bool:
    """Whether what ``node`` writes is only a graph output of another float type than ``dtype``."""
    outputs = graph.edges_of(node.outputs[0])
    declared = graph.type_of(node.outputs[0]).dtype
    if is_quantized(dtype) or declared is None or not all(e.is_graph_output for e in outputs):
        return False
    return str(TensorProto.DataType.Name(declared)).lower() != dtype


def makes_rows(graph: Graph, node: Node | None) -> bool:
    """Whether ``node`` is a Reshape that joins the pixels of a map for Transposes to rows of them.

    Only where the channels fill groups of FP16, and nothing else reads what it writes.
    """
    if node is None or node.op != "Reshape":
        return False
    before, after = (graph.type_of(t).shape for t in (node.inputs[0], node.outputs[0]))
    if before is None or after is None or len(before) < 4 or len(after) < 3:
        return False
    whole = before[1], math.prod(before[2:])
    if after[-2:] != whole or before[1] % _GROUP["float16"]:
        return False
    readers = [graph.by_name.get(edge.node) for edge in graph.edges_of(node.outputs[0])]
    last = (*range(len(after) - 2), len(after) - 1, len(after) - 2)
    return all(reader is not None and order_of(graph, reader) == last for reader in readers)


def fills_groups(graph: Graph, join: Node, tensor: str, dtype: str) -> bool:
    """Whether the Concat ``join`` puts whole groups of channels of an INT8 tensor side by side."""
    shape = graph.type_of(tensor).shape
    if not is_quantized(dtype) or shape is None or len(shape) < 3:
        return True
    axis = join.attributes.get("axis", 0)
    return axis not in (1, 1 - len(shape)) or shape[1] % _INTERLEAVED_GROUP == 0


def joins_row_major(graph: Graph, join: Node, dtype: str) -> bool:
    """Whether the Concat ``join`` has parts in FP16 that begin within a group, for a Reshape."""
    shapes = [graph.type_of(tensor).shape for tensor in join.inputs]
    if dtype not in _HALF or any(shape is None or len(shape) < 3 for shape in shapes):
        return False
    readers = graph.edges_of(join.outputs[0])
    return (
        join.attributes.get("axis", 0) in (1, 1 - len(shapes[0] or ()))
        and any(shape[1] % _GROUP[dtype] for shape in shapes[:-1] if shape)
        and all(edge.node and graph.by_name[edge.node].op in _MOVES for edge in readers)
    )


def joins_last_axis(graph: Graph, concat: Node) -> bool:
    """Whether a Concat joins rows of more than two axes (the heads of YOLOv5)."""
    shape = graph.type_of(concat.outputs[0]).shape
    axis = concat.attributes.get("axis", 0)
    return shape is not None and len(shape) > 2 and axis in (-1, len(shape) - 1)


def channels(graph: Graph, tensor: str) -> int:
    """Size of the second of three or more dimensions; more than an image has if there is none."""
    shape = graph.type_of(tensor).shape
    return shape[1] if shape is not None and len(shape) > 2 else FEW_CHANNELS + 1


def _is_row_major_too(graph: Graph, tensor: str, dtype: str, layout: Layout) -> bool:
    """Whether grouping the channels changes nothing: one pixel, if no group is filled up."""
    shape = graph.type_of(tensor).shape
    if shape is None or len(shape) < 3:
        return True
    interleaved = layout == "interleaved" or is_quantized(dtype)
    group = _INTERLEAVED_GROUP if interleaved else _GROUP.get(dtype, 1)
    return math.prod(shape[2:]) == 1 and shape[1] % group == 0


def _is_one_half(graph: Graph, tensor: str, dtype: str, layout: Layout) -> bool:
    """Whether a tensor is of a single channel in FP16, which its reader finds row after row."""
    shape = graph.type_of(tensor).shape
    return dtype in _HALF and layout == "grouped" and shape is not None and shape[1:2] == (1,)
