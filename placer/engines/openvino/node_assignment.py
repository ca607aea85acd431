"""Which executed operation each node of the model is in.

An operation names most of its nodes. OpenVINO forgets the names of others; these are looked for
beside the nodes that are named.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence, Set

from placer.engines.openvino.operations import INTEGERS, MOVED, MOVING, REDUCING, Operation
from placer.engines.openvino.tags import Tags
from placer.graph.operators import PAIR_OPS

_OF_MAPS = frozenset({"Conv", "ConvTranspose", "Add"})
_VIEWS = ("Reshape", "Flatten", "Squeeze", "Unsqueeze", "Identity")
_IMPLIED = frozenset({"Relu", "Clip"})  # By a quantization from 0 on.
_IN_QUANTIZATION = _IMPLIED | {"BatchNormalization", "Add", "Mul", "Sub"}
_PRODUCTS = frozenset({"Convolution", "Deconvolution", "FullyConnected", "MatMul"})
_INTEGER_PRODUCTS = frozenset({"MatMulInteger", "ConvInteger"})
_COMPOSITES = frozenset({"Gelu", "HSwish", "HSigmoid", "Swish", "Mish", "SoftPlus"})
# Of a norm that OpenVINO takes apart (MVN6Decomposition), by the operators that it was made of.
_PARTS = {
    "ReduceMean": "ReduceMean",
    "Sub": "Subtract",
    "Pow": "Power",
    "Add": "Add",
    "Sqrt": "Sqrt",
}
# Past these OpenVINO computes ``MOVED`` operators.
_MOVERS = frozenset({*_VIEWS, "Transpose", "DepthToSpace", "Expand", "Gather"})


def is_pair(tags: Tags, number: int) -> bool:
    """Whether the node is part of a Q/DQ pair."""
    return tags.nodes[number].op_type in PAIR_OPS


def assign_nodes(operations: Sequence[Operation], tags: Tags) -> dict[int, str]:
    """The operation that each node is in; nodes that nothing is left of are not there."""
    homes: dict[int, str] = {}
    for op in operations:
        for number in op.nodes:
            if number not in homes or _does_the_work(tags, number, op):
                homes[number] = op.name
    gone = tags.settled | tags.no_ops
    lost = [
        number
        for number, node in enumerate(tags.nodes)
        if number not in homes and number not in gone and node.op_type not in _VIEWS
    ]
    _find_homes_by_name(lost, homes, tags)
    unnamed = {op.name: Counter(op.unnamed) for op in operations if op.unnamed}
    _find_homes_in_parts(lost, homes, operations, unnamed, tags)
    moved = _find_homes_before(lost, homes, operations, unnamed, tags)
    _find_homes_between(lost, homes, operations, tags, moved)
    _find_homes_in_splits(lost, homes, operations, tags)
    moved |= _find_homes_before(lost, homes, operations, unnamed, tags)
    # OpenVINO gives an activation that it puts together from several nodes a name of its own.
    inventive = {op.name for op in operations if op.invented}
    _find_homes_behind(lost, homes, tags, moved, lambda _, home: home in inventive)
    _find_homes_in_products(lost, homes, operations, tags, moved)
    for number in reversed(lost):
        near_homes = {homes.get(n, "") for n in tags.readers(number) - moved} - {""}
        if number not in homes and len(near_homes) == 1 and not _is_layout(tags, number):
            homes[number] = near_homes.pop()
    # What is left is read by several, and implied where it is quantized.
    _find_homes_behind(lost, homes, tags, moved, lambda n, _: tags.nodes[n].op_type in _IMPLIED)
    for number in _in_quantizations_before_joins(homes, operations, tags):
        del homes[number]
    _settle_reductions(homes, operations, tags)
    return homes


def _find_homes_behind(
    lost: Sequence[int],
    homes: dict[int, str],
    tags: Tags,
    moved: Set[int],
    may_be: Callable[[int, str], bool],
) -> None:
    """Give lost nodes the one operation of what writes what they read, where it ``may_be``."""
    for number in (n for n in lost if n not in homes):
        near_homes = {homes[n] for n in tags.producers(number) - moved if n in homes}
        if len(near_homes) == 1 and all(may_be(number, home) for home in near_homes):
            homes[number] = near_homes.pop()


def _does_the_work(tags: Tags, number: int, op: Operation) -> bool:
    """Whether ``op`` quantizes or multiplies; others compute ranges or subtract zero points."""
    operator = tags.nodes[number].op_type
    writes = any(port.dtype in INTEGERS for port in op.outputs)
    quantizes = operator == "DynamicQuantizeLinear" and writes
    return quantizes or (operator in _INTEGER_PRODUCTS and op.kind in _PRODUCTS)


def _settle_reductions(homes: dict[int, str], operations: Sequence[Operation], tags: Tags) -> None:
    """Give reductions the Reduce that runs before the Transpose in front of them.

    OpenVINO calls what is left of that Transpose after them (TransposeReduction).
    """
    by_name = {op.name: op for op in operations}
    reduces = {op.name for op in operations if op.kind == "Reduce" and not op.nodes}
    for number, home in homes.items():
        if tags.nodes[number].op_type in REDUCING and by_name[home].kind in MOVING:
            before = sorted(by_name[home].sources & reduces)
            homes[number] = before[0] if before else home


def _find_homes_by_name(lost: Sequence[int], homes: dict[int, str], tags: Tags) -> None:
    """Give lost nodes the operation that an equal node names, or an no-op behind.

    That one left its name, with the graph output that it wrote.
    """
    named = {tags.twins.get(number, number): home for number, home in homes.items()}
    for number in lost:
        home = named.get(tags.twins.get(number, number))
        if home is not None:
            homes[number] = home
    for number in tags.no_ops & homes.keys():
        for before in tags.producers(number) & set(lost):
            homes.setdefault(before, homes[number])


def _in_quantizations_before_joins(
    homes: Mapping[int, str], operations: Sequence[Operation], tags: Tags
) -> set[int]:
    """Nodes behind a Concat that are part of the quantizations of its branches, by which they run.

    OpenVINO gives their names to one of these.
    """
    by_name, passing = {op.name: op for op in operations}, _passing(operations, tags)
    joins = {n: homes[n] for n in homes if tags.nodes[n].op_type == "Concat"}
    join_of = dict[int, str]()  # By node what joins the branches.
    for number in sorted(n for n in homes if tags.nodes[n].op_type in _IN_QUANTIZATION):
        behind = {(joins | join_of).get(n) for n in tags.producers(number) - tags.settled}
        join = by_name.get(behind.pop() or "") if len(behind) == 1 else None
        if join is None or join.outputs[0].dtype not in INTEGERS:
            continue
        home = by_name[homes[number]]
        if join.name not in {*_sources_behind(home.sources, passing), home.name}:
            join_of[number] = join.name
    return set(join_of)


def _find_homes_in_products(
    lost: Sequence[int],
    homes: dict[int, str],
    operations: Sequence[Operation],
    tags: Tags,
    moved: Set[int],
) -> None:
    """Give what a quantization implies the product before it, if a Concat reads it.

    In the model that quantization stands behind the Concat.
    """
    products = {op.name for op in operations if op.kind in _PRODUCTS}
    joins = {op.name for op in operations if op.kind == "Concatenation"}

    def is_implied(number: int, home: str) -> bool:
        is_joined = all(homes.get(n, "") in joins for n in tags.readers(number))
        return tags.nodes[number].op_type in _IMPLIED and home in products and is_joined

    _find_homes_behind(lost, homes, tags, moved, is_implied)


def _find_homes_in_splits(
    lost: Sequence[int], homes: dict[int, str], operations: Sequence[Operation], tags: Tags
) -> None:
    """Give lost Slices the Split that OpenVINO made of them and of others of the same tensor."""
    splits = {op.name for op in operations if op.kind == "Split"}
    slices = [n for n in lost if tags.nodes[n].op_type == "Slice"]
    made = {tags.nodes[n].input[0]: homes[n] for n in slices if homes.get(n) in splits}
    for number in slices:
        if number not in homes and tags.nodes[number].input[0] in made:
            homes[number] = made[tags.nodes[number].input[0]]


def _is_layout(tags: Tags, number: int) -> bool:
    """Whether a lost node is a Transpose to the layout that its readers, all maps, read anyway."""
    reached, waiting = set[str](), tags.readers(number)
    while waiting:
        pairs = {n for n in waiting if is_pair(tags, n)}
        reached |= {tags.nodes[n].op_type for n in waiting - pairs}
        waiting = {after for n in pairs for after in tags.readers(n)}
    return tags.nodes[number].op_type == "Transpose" and bool(reached) and reached <= _OF_MAPS


def _find_homes_in_parts(
    lost: Sequence[int],
    homes: dict[int, str],
    operations: Sequence[Operation],
    unnamed: Mapping[str, Counter[str]],
    tags: Tags,
) -> None:
    """Give the nodes of a norm that OpenVINO fused and took apart again its parts, by their order.

    ``unnamed``: as in ``_find_homes_before``.
    """
    sources = {op.name: op.sources for op in operations if op.unnamed and not op.nodes}
    # By which the rest of a norm is called where it is a root mean square.
    roots = [op.sources for op in operations if op.kind == "RMS"]
    norm: dict[int, str] = {}  # As far as it is found.
    for number in (n for n in lost if n not in homes and tags.nodes[n].op_type in _PARTS):
        kind, producers = _PARTS[tags.nodes[number].op_type], tags.producers(number) - tags.settled
        if norm.keys().isdisjoint(producers):
            norm = {}
        before = {(norm | homes).get(n, "") for n in producers}
        fitting = (n for n in sources if unnamed[n][kind] and before <= {n, *sources[n]})
        home = next(fitting, None) if before and (norm or kind == "ReduceMean") else None
        if home is not None:
            norm[number] = home
        if kind == "Sqrt" or any(before & rms for rms in roots):
            homes.update(norm)
        norm = {} if home is None else norm


def _find_homes_between(
    lost: Sequence[int],
    homes: dict[int, str],
    operations: Sequence[Operation],
    tags: Tags,
    moved: Set[int],
) -> None:
    """Give lost nodes the operation that stands where they stood, if it names none.

    Slices become a Split, a Transpose part of a Reorder, a Reduce of other axes another Reduce.
    ``moved``: nodes that are computed elsewhere, and so are not beside these.
    """
    # A pair may be elsewhere, too.
    beside = {n: {home} for n, home in homes.items() if n not in moved and not is_pair(tags, n)}
    for op in operations:  # A node may be several operations.
        for number in beside.keys() & set(op.nodes):
            beside[number].add(op.name)
    nameless = {op.name: op for op in operations if not op.nodes and op.reshapes}
    passing = _passing(operations, tags)
    sources = {op.name: _sources_behind(op.sources, passing) for op in operations}
    readers: dict[str, set[str]] = {name: set() for name in nameless}
    for op in operations:
        for source in sources[op.name] & readers.keys():
            readers[source].add(op.name)
    for number in (n for n in lost if n not in homes and not is_pair(tags, n)):
        # Operations that stand for graph inputs are called after these.
        before = _nearest_homes(number, tags.producers, beside) | tags.sources(number)
        for factor in _factors_before(number, tags):  # Of a scale, which is computed behind.
            before |= _nearest_homes(factor, tags.producers, beside)
        behind = _nearest_homes(number, tags.readers, beside)
        is_reduction = tags.nodes[number].op_type in REDUCING
        for name, op in nameless.items():
            ends = op.kind in MOVING and not behind and not readers[name]
            # A Reduce takes the Transpose in front of it along.
            own = {name} if op.kind == "Reduce" and is_reduction else ()
            if before & sources[name].union(own) and (ends or behind & readers[name]):
                homes[number], beside[number] = name, {name}


def _factors_before(number: int, tags: Tags) -> set[int]:
    """The product with a constant that Slices or a Split take parts of."""
    if tags.nodes[number].op_type not in ("Slice", "Split"):
        return set()
    return {
        n
        for n in tags.producers(number)
        if tags.nodes[n].op_type in ("Mul", "Div")
        and not tags.constants.isdisjoint(tags.nodes[n].input)
    }


def _find_homes_before(
    lost: Sequence[int],
    homes: dict[int, str],
    operations: Sequence[Operation],
    unnamed: Mapping[str, Counter[str]],
    tags: Tags,
) -> set[int]:
    """Give lost nodes that OpenVINO computes before what only moved elements for them their home.

    The operation has no name from the graph: it is one of its own, or part of what wrote the
    elements. Returns the nodes. ``unnamed``: what is in the operations without a name from the
    graph, by these; what a node is found to be is taken away.
    """
    passing = {op.name: op.sources for op in operations if not op.unnamed and not op.nodes}
    sources = {op.name: _sources_behind(op.sources, passing) for op in operations if op.unnamed}
    moved = set[int]()
    for number in (n for n in lost if n not in homes):
        if not tags.scalars.issuperset(tags.constants.intersection(tags.nodes[number].input)):
            continue
        before = _before_movers(number, moved, homes, tags)
        kinds = MOVED.get(tags.nodes[number].op_type, ())
        near = {n: unnamed[n] for n in unnamed if n in before or before & sources[n]}
        home = _taken_from(near, kinds)
        if home is not None:
            homes[number] = home
            moved.add(number)
    return moved


def _taken_from(near: Mapping[str, Counter[str]], kinds: Sequence[str]) -> str | None:
    """The first operation in which a node of one of ``kinds`` is, which is taken away there.

    Else the first that is put together from several nodes. ``near``: see ``_find_homes_before``.
    """
    for name, parts in near.items():
        for kind in kinds:
            if parts[kind]:
                parts[kind] -= 1
                return name
    wholes = (name for name, parts in near.items() if _COMPOSITES & parts.keys())
    return next(wholes, None) if kinds else None


def _before_movers(
    number: int, moved: Set[int], homes: Mapping[int, str], tags: Tags
) -> frozenset[str]:
    """The operations of the movers that lead to a node, and what these get their elements from.

    Operations that stand for graph inputs are called after these. Nothing where there is no mover,
    or several nodes write the elements.
    """
    passed, origins = set[int](), set[str]()
    waiting = {number}
    while waiting:
        mover = waiting.pop()
        data = tags.sources(mover) - tags.constants
        producers = tags.producers(mover) - tags.settled
        written = {t for n in producers for t in tags.nodes[n].output}
        origins |= data - written - {t for n in tags.settled for t in tags.nodes[n].output}
        for producer in producers - passed:
            if tags.nodes[producer].op_type in _MOVERS or producer in moved:
                passed.add(producer)
                waiting.add(producer)
            else:
                origins.add(homes.get(producer, ""))
    names = {homes[n] for n in passed if n in homes}
    return frozenset(names | origins if passed and len(origins) == 1 else ())


def _passing(operations: Sequence[Operation], tags: Tags) -> dict[str, Set[str]]:
    """What operations read that do nothing but quantize, dequantize or convert it, by these."""
    return {
        op.name: op.sources
        for op in operations
        if not op.reshapes and all(is_pair(tags, number) for number in op.nodes)
    }


def _sources_behind(names: Set[str], passing: Mapping[str, Set[str]]) -> set[str]:
    """``names``, and what these read where they do nothing but convert it."""
    reached, waiting = set[str](), set(names)
    while waiting:
        reached |= waiting
        waiting = {before for name in waiting for before in passing.get(name, ())}
    return reached


def _nearest_homes(
    number: int, step: Callable[[int], set[int]], homes: Mapping[int, Set[str]]
) -> set[str]:
    """The operations of the nearest nodes that have one, going by ``step`` from node to node."""
    near_homes: set[str] = set()
    waiting = step(number)
    while waiting:
        near_homes |= {name for n in waiting for name in homes.get(n, ())}
        waiting = {after for n in waiting if n not in homes for after in step(n)}
    return near_homes
