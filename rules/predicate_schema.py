"""What a rule may demand of the nodes and tensors that its pattern matches."""

from __future__ import annotations

from typing import Literal, NamedTuple

from pydantic import Field, model_validator

from placer.common.yaml_file import Strict
from placer.rules.field_types import TensorName


class AttributeIs(Strict):
    """An attribute of a node has a value, or lies within limits; at least one of them is given."""

    node: str = Field(description="The pattern node.")
    name: str = Field(description="The attribute's name.")
    equals: int | float | str | list[int] | None = Field(
        default=None, description="The value that it has."
    )
    at_least: float | None = Field(
        default=None, description="Lower limit of the number, or of each number of a list."
    )
    at_most: float | None = Field(
        default=None, description="Upper limit of the number, or of each number of a list."
    )
    default: int | float | str | list[int] | None = Field(
        default=None, description="What counts where the attribute is absent."
    )
    axis_of: TensorName | None = Field(
        default=None,
        description="The number is an axis of this tensor, which may count from the last.",
    )

    @model_validator(mode="after")
    def _says_something(self) -> AttributeIs:
        if {"equals", "at_least", "at_most"}.isdisjoint(self.model_fields_set):
            raise ValueError("give equals, at_least or at_most")
        return self


class RankIs(Strict):
    """The tensor's rank is known and one of those given."""

    tensor: TensorName = Field(description="The tensor.")
    one_of: list[int] = Field(min_length=1, description="The ranks.")


ElementType = Literal["float", "double", "float16", "bool", "uint8", "int8", "int32", "int64"]


class TypeIs(Strict):
    """The tensor's element type is known and one of those given."""

    tensor: TensorName = Field(description="The tensor.")
    one_of: list[ElementType] = Field(min_length=1, description="ONNX names of element types.")


class DimIs(Strict):
    """A dimension of the tensor is known and within the limits given."""

    tensor: TensorName = Field(description="The tensor.")
    axis: int = Field(description="The dimension; negative ones count from the end.")
    at_least: int | None = Field(default=None, description="Lower limit.")
    at_most: int | None = Field(default=None, description="Upper limit.")
    multiple_of: int | None = Field(default=None, ge=1, description="What it is a multiple of.")


class ElementsAre(Strict):
    """The product of the tensor's dimensions from an axis on is known and within the limits given.

    From axis 1 on, that of a Conv's weights is how many products each element of its output takes.
    """

    tensor: TensorName = Field(description="The tensor.")
    from_axis: int = Field(default=0, ge=0, description="The first axis that counts.")
    at_least: int | None = Field(default=None, description="Lower limit.")
    at_most: int | None = Field(default=None, description="Upper limit.")


class ProductsAre(Strict):
    """The products that a MatMul or Gemm sums up in all are known and within the limits given."""

    node: str = Field(description="The node.")
    at_least: int | None = Field(default=None, description="Lower limit.")
    at_most: int | None = Field(default=None, description="Upper limit.")


class ConsumersAre(Strict):
    """The number of edges on which the tensor is read, graph outputs included, is within limits."""

    tensor: TensorName = Field(description="The tensor.")
    at_least: int = Field(default=0, description="Lower limit.")
    at_most: int | None = Field(default=None, description="Upper limit.")


class ValuesAre(Strict):
    """The tensor is a constant of at most 1024 elements, and each is within the limits given."""

    tensor: TensorName = Field(description="The tensor.")
    at_least: float | None = Field(default=None, description="Lower limit.")
    at_most: float | None = Field(default=None, description="Upper limit.")
    axes_of: TensorName | None = Field(
        default=None, description="They are axes of this tensor, which may count from the last."
    )


class PadsOnly(Strict):
    """The tensor is a Pad's constant ``pads``, and nothing but its last axes is padded."""

    tensor: TensorName = Field(description="The tensor.")
    last: int = Field(ge=1, description="How many axes, counted from the last, may be padded.")


class WrittenBy(Strict):
    """The tensor is written by a node of one of the operators, or each of a variadic name is."""

    tensor: TensorName = Field(description="The tensor.")
    op: list[str] = Field(min_length=1, description="The operators.")
    among_others: bool = Field(
        default=False, description="One of a variadic name is enough, whatever writes the others."
    )
    past: list[str] = Field(
        default=[], description="Operators that may follow it, each by its first input."
    )
    with_constant: bool = Field(
        default=False, description="Its second input is constant, or any of an Add's or a Mul's."
    )


class ReadBy(Strict):
    """The tensor is read by nodes of the operators alone."""

    tensor: TensorName = Field(description="The tensor.")
    op: list[str] = Field(min_length=1, description="The operators.")
    input: int | None = Field(
        default=None, ge=0, description="As which of their inputs, counted from 0; any by default."
    )
    among_others: bool = Field(
        default=False, description="One such reader is enough, whatever else reads the tensor."
    )
    changes_rank: bool = Field(
        default=False,
        description="They write another number of dimensions, or it is not known how many.",
    )


class ReadBefore(Strict):
    """Whatever else reads the tensor leads to the node, so it has read it when the node runs."""

    tensor: TensorName = Field(description="The tensor.")
    node: str = Field(description="The pattern node.")
    with_parts: bool = Field(
        default=False,
        description="So does whatever reads what else the tensor's writer writes; Slices that cut "
        "one tensor into parts count as one writer.",
    )


class Predicate(Strict):
    """One condition; exactly one field is set. All conditions of a rule must hold.

    What is said of an absent tensor or node does not hold.
    """

    is_initializer: TensorName | None = Field(default=None, description="The tensor is a constant.")
    is_activation: TensorName | None = Field(
        default=None, description="The tensor is computed at run time."
    )
    varies: TensorName | None = Field(
        default=None,
        description="The tensor depends on the model's inputs, not on constants and shapes alone.",
    )
    scalar: TensorName | None = Field(default=None, description="The tensor has one element.")
    fixed: TensorName | None = Field(
        default=None,
        description="The model itself fixes the tensor's dimensions, whatever shapes are given for "
        "its inputs.",
    )
    attribute: AttributeIs | None = Field(
        default=None, description="The attribute has the value or lies within the limits."
    )
    rank: RankIs | None = Field(
        default=None, description="The tensor's rank is known and among those given."
    )
    type: TypeIs | None = Field(
        default=None, description="The element type is known and among those given."
    )
    dim: DimIs | None = Field(
        default=None, description="The dimension is known and within the limits."
    )
    elements: ElementsAre | None = Field(
        default=None,
        description="The number of elements along the axes is known and within the limits.",
    )
    same_shape: list[TensorName] | None = Field(
        default=None,
        min_length=1,
        description="The tensors' shapes are known and equal; a variadic name counts all its own.",
    )
    equal_in_model: list[TensorName] | None = Field(
        default=None,
        min_length=2,
        description="The model has the tensors' dimensions equal, whatever shapes are given for "
        "its inputs: of one size, or open and of one name.",
    )
    equal_in_blocks: list[TensorName] | None = Field(
        default=None,
        min_length=2,
        description="ONNX Runtime knows that the tensors, in blocks of channels, have equal "
        "shapes: the model has them equal, or open sizes come from one tensor through Convs and "
        "pools that keep or halve them.",
    )
    depthwise: str | None = Field(
        default=None,
        description="The node's group count equals its input channels and is above 1.",
    )
    kernel_covers_strides: str | None = Field(
        default=None,
        description="The node is a Conv or ConvTranspose whose kernel is at least as long as its "
        "stride along each axis, so that a ConvTranspose leaves no gaps between what it writes.",
    )
    products: ProductsAre | None = Field(
        default=None, description="A MatMul or Gemm takes that many products."
    )
    sole_consumer: TensorName | None = Field(
        default=None,
        description="The tensor, or each of a variadic name, is read once and is no graph output.",
    )
    consumers: ConsumersAre | None = Field(
        default=None, description="The tensor is read that often, graph outputs included."
    )
    values: ValuesAre | None = Field(
        default=None,
        description="The tensor is a constant of at most 1024 elements, all within the limits.",
    )
    pads_only: PadsOnly | None = Field(
        default=None,
        description="The tensor is a Pad's constant pads, and only its last axes are padded.",
    )
    non_negative: TensorName | None = Field(
        default=None,
        description="The operators that make the tensor, such as Relu, leave nothing below zero.",
    )
    written_by: WrittenBy | None = Field(
        default=None, description="A node of one of the operators writes the tensor."
    )
    read_by: ReadBy | None = Field(
        default=None,
        description="All that reads the tensor, and there is some, are nodes of the operators.",
    )
    read_before: ReadBefore | None = Field(
        default=None,
        description="Whatever else reads the tensor leads to the node, so that the node may "
        "overwrite it; a graph output leads nowhere.",
    )
    different: list[TensorName] | None = Field(
        default=None, min_length=2, description="The names stand for different tensors."
    )
    blocked: TensorName | None = Field(
        default=None,
        description="The tensor lies in ONNX Runtime's blocked layout where nothing is quantized: "
        "float Convs of images, pools, their activations, and sums, products and Concats of such.",
    )
    reads_blocks: str | None = Field(
        default=None,
        description="The node is a float Conv or pool that ONNX Runtime gives what it reads in "
        "blocks of channels, 16 with AVX-512 and 8 without.",
    )
    is_graph_input: TensorName | None = Field(
        default=None, description="The tensor enters the graph."
    )
    is_graph_output: TensorName | None = Field(
        default=None, description="The tensor leaves the graph."
    )
    keeps_order: str | None = Field(
        default=None,
        description="The node is a Transpose that moves axes of length 1 only, so elements stay in "
        "order.",
    )
    leaves: TensorName | None = Field(
        default=None,
        description="The tensor leaves the graph, or does so behind nodes that only move elements.",
    )
    square: TensorName | None = Field(
        default=None, description="The last two dimensions are known and equal."
    )
    turned: TensorName | None = Field(
        default=None,
        description="A Transpose that swaps the last two axes, and moves no other, writes the "
        "tensor.",
    )
    over_last_axis: str | None = Field(
        default=None,
        description="The node is a Softmax, a Reduce operator or a Slice over the last axis alone.",
    )
    over_one_axis: list[str] | None = Field(
        default=None,
        min_length=1,
        description="The nodes are Softmax or Reduce operators along one axis each, all along the "
        "same one.",
    )
    repeats: str | None = Field(
        default=None,
        description="An earlier node of the same operator and attributes reads the same first "
        "tensor.",
    )
    batched_product: str | None = Field(
        default=None,
        description="The node is a MatMul, or an Einsum that is a product of matrices in the last "
        "two axes, for each place in the others, of which the second may be transposed.",
    )
    sliced_apart: TensorName | None = Field(
        default=None,
        description="A Slice writes the tensor that is one of several along one axis, in steps of "
        "1, that cut what they read into parts without a gap or an overlap.",
    )
    moved_factor: TensorName | None = Field(
        default=None,
        description="A constant factor writes the tensor, of which Slices or a Split take parts; "
        "a single number with views between.",
    )
    norm_statistic: TensorName | None = Field(
        default=None,
        description="The tensor is a mean of a normalization that is written out: it is taken from "
        "what it is the mean of, or a root is taken of it, or something is divided by it.",
    )
    one_piece: TensorName | None = Field(
        default=None,
        description="A Slice along one axis writes the tensor, whose elements lie side by side in "
        "what it reads: the axes before that one, in memory, have length 1.",
    )
    channels_last: TensorName | None = Field(
        default=None,
        description="The tensor has at least three axes, and operators that keep the layout lead "
        "to it from a convolution or pooling, which write channels last.",
    )
    written_apart: list[TensorName] | None = Field(
        default=None,
        min_length=2,
        description="Different nodes write the tensors; Slices that cut one tensor into parts "
        "count as one node.",
    )
    any_of: list[Predicate] | None = Field(
        default=None, min_length=1, description="At least one of the nested conditions holds."
    )
    never: Predicate | None = Field(default=None, description="The nested condition does not hold.")

    @model_validator(mode="after")
    def _exactly_one(self) -> Predicate:
        if len(self.model_fields_set) != 1:
            raise ValueError("a condition has exactly one predicate")
        return self


class Subjects(NamedTuple):
    """The pattern's tensor names and nodes that a condition is about."""

    tensors: frozenset[str]
    nodes: frozenset[str] = frozenset()


def subjects_of(predicate: Predicate) -> Subjects:
    """What ``predicate`` is about."""
    if predicate.never is not None:
        return subjects_of(predicate.never)
    if predicate.any_of is not None:
        nested = [subjects_of(inner) for inner in predicate.any_of]
        tensors = frozenset[str]().union(*(inner.tensors for inner in nested))
        return Subjects(tensors, frozenset[str]().union(*(inner.nodes for inner in nested)))
    (field,) = predicate.model_fields_set
    value = getattr(predicate, field)
    of_nodes = (
        *("batched_product", "depthwise", "keeps_order", "kernel_covers_strides"),
        *("over_last_axis", "products", "reads_blocks", "repeats"),
    )
    if isinstance(value, AttributeIs) or field in of_nodes:
        axis_of = getattr(value, "axis_of", None)
        tensors = frozenset({axis_of} if axis_of else ())
        return Subjects(tensors, frozenset({getattr(value, "node", value)}))
    if isinstance(value, ValuesAre) and value.axes_of is not None:
        return Subjects(frozenset({value.tensor, value.axes_of}))
    if field == "over_one_axis":
        return Subjects(frozenset(), frozenset(value))
    if isinstance(value, list):
        return Subjects(frozenset(value))
    if isinstance(value, ReadBefore):
        return Subjects(frozenset({value.tensor}), frozenset({value.node}))
    return Subjects(frozenset({getattr(value, "tensor", value)}))
