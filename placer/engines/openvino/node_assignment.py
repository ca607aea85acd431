"""Which executed operation each node of the model is in.

An operation names most of its nodes. OpenVINO forgets the names of others; these are looked for
beside the nodes that are named.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence, Set

from placer.engines.openvino.operations import INTEGERS, MOVED, MOVING, REDUCING, Operation
from placer.engines.openvino.tags import Tags
from placer.graph.operators import PAIR_OPS

_OF_MAPS = frozenset({"Conv", "ConvTranspose", "Add"})
_VIEWS = ("Reshape", "Flatten", "Squeeze", "Unsqueeze", "Identity")
_IMPLIED = frozenset({"Relu", "Clip"})  # By a quantization from 0 on.
_IN_QUANTIZATION = _IMPLIED | {"BatchNormalization", "Add", "Mul", "Sub"}
_PRODUCTS = frozenset({"Convolution", "Deconvolution", "FullyConnected", "MatMul"})
# Which operations of other kinds may be called after: these compute ranges, or give computed
# weights another shape.
_NAMED_AFTER = frozenset({"MatMulInteger", "ConvInteger", "Conv", "ConvTranspose"})
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
    found = _Assignment(operations, tags)
    found.find_by_name()
    found.find_in_norms()
    found.find_before()
    found.find_between()
    found.find_in_splits()
    found.find_before()
    found.find_behind(found.is_invented)
    found.find_behind(found.is_implied_in_product)
    found.find_in_front()
    # What is left is read by several, and implied where it is quantized.
    found.find_behind(lambda number, _: tags.nodes[number].op_type in _IMPLIED)
    found.drop_before_joins()
    found.settle_reductions()
    return found.homes


class _Assignment:
    """The operations of nodes, as far as they are found.

    ``homes``: the operation of each node. ``moved``: nodes that are computed elsewhere than where
    the model has them. ``unnamed``: by operation the nodes in it that have no name from the graph;
    what a node is found to be is taken away there.
    """

    def __init__(self, operations: Sequence[Operation], tags: Tags) -> None:
        self._operations, self._tags = operations, tags
        self._by_name = {op.name: op for op in operations}
        self._unnamed = {op.name: Counter(op.unnamed) for op in operations if op.unnamed}
        self._passing = {  # What operations read that do nothing but convert it.
            op.name: op.sources
            for op in operations
            if not op.reshapes and all(is_pair(tags, number) for number in op.nodes)
        }
        self._moved = set[int]()
        self.homes: dict[int, str] = {}
        for op in operations:
            for number in op.nodes:
                if number not in self.homes or _does_the_work(tags, number, op):
                    self.homes[number] = op.name
        gone = tags.settled | tags.no_ops
        self._lost = [
            number
            for number, node in enumerate(tags.nodes)
            if number not in self.homes and number not in gone and node.op_type not in _VIEWS
        ]

    def _op_type(self, number: int) -> str:
        return str(self._tags.nodes[number].op_type)

    def _waiting(self) -> Iterator[int]:
        """The nodes without an operation; those that get one meanwhile are left out."""
        return (number for number in self._lost if number not in self.homes)

    def find_by_name(self) -> None:
        """Give nodes the operation that an equal node names, or a no-op behind.

        That one left its name, with the graph output that it wrote.
        """
        tags, homes = self._tags, self.homes
        named = {tags.twins.get(number, number): home for number, home in homes.items()}
        for number in self._lost:
            home = named.get(tags.twins.get(number, number))
            if home is not None:
                homes[number] = home
        for number in tags.no_ops & homes.keys():
            for before in tags.producers(number) & set(self._lost):
                homes.setdefault(before, homes[number])

    def find_in_norms(self) -> None:
        """Give the nodes of a norm that OpenVINO fused and took apart again its parts, in order."""
        sources = {op.name: op.sources for op in self._operations if op.unnamed and not op.nodes}
        # By which the rest of a norm is called where it is a root mean square.
        roots = [op.sources for op in self._operations if op.kind == "RMS"]
        norm: dict[int, str] = {}  # As far as it is found.
        for number in (n for n in self._waiting() if self._op_type(n) in _PARTS):
            kind = _PARTS[self._op_type(number)]
            producers = self._tags.producers(number) - self._tags.settled
            if norm.keys().isdisjoint(producers):
                norm = {}
            before = {(norm | self.homes).get(n, "") for n in producers}
            home = None
            if before and (norm or kind == "ReduceMean"):
                home = self._part(kind, before, sources)
            if home is not None:
                norm[number] = home
            if kind == "Sqrt" or any(before & rms for rms in roots):
                self.homes.update(norm)
            norm = {} if home is None else norm

    def _part(self, kind: str, before: Set[str], sources: Mapping[str, Set[str]]) -> str | None:
        """The first of the operations by ``sources`` with a ``kind`` that reads ``before``."""
        fitting = (
            name
            for name, read in sources.items()
            if self._unnamed[name][kind] and before <= {name, *read}
        )
        return next(fitting, None)

    def find_before(self) -> None:
        """Give nodes that OpenVINO computes before what only moved elements for them their home.

        The operation has no name from the graph: it is one of its own, or part of what wrote the
        elements.
        """
        tags = self._tags
        passing = {
            op.name: op.sources for op in self._operations if not op.unnamed and not op.nodes
        }
        sources = {name: self._sources_behind(name, passing) for name in self._unnamed}
        moved = set[int]()
        for number in self._waiting():
            if not tags.scalars.issuperset(tags.constants.intersection(tags.nodes[number].input)):
                continue
            before = self._before_movers(number, moved)
            near = {
                name: parts
                for name, parts in self._unnamed.items()
                if name in before or before & sources[name]
            }
            home = _taken_from(near, MOVED.get(self._op_type(number), ()))
            if home is not None:
                self.homes[number] = home
                moved.add(number)
        self._moved |= moved

    def _before_movers(self, number: int, moved: Set[int]) -> frozenset[str]:
        """The operations of the movers that lead to a node, and what these get their elements from.

        Operations that stand for graph inputs are called after these. Nothing where there is no
        mover, or several nodes write the elements.
        """
        tags, passed, origins = self._tags, set[int](), set[str]()
        waiting = {number}
        while waiting:
            mover = waiting.pop()
            data = tags.sources(mover) - tags.constants
            producers = tags.producers(mover) - tags.settled
            written = {t for n in producers for t in tags.nodes[n].output}
            origins |= data - written - {t for n in tags.settled for t in tags.nodes[n].output}
            for producer in producers - passed:
                if self._op_type(producer) in _MOVERS or producer in moved:
                    passed.add(producer)
                    waiting.add(producer)
                else:
                    origins.add(self.homes.get(producer, ""))
        names = {self.homes[n] for n in passed if n in self.homes}
        return frozenset(names | origins if passed and len(origins) == 1 else ())

    def find_between(self) -> None:
        """Give nodes the operation that stands where they stood, if it names none.

        Slices become a Split, a Transpose part of a Reorder, a Reduce of other axes another Reduce.
        """
        tags, beside = self._tags, self._beside()
        nameless = {op.name: op for op in self._operations if not op.nodes and op.reshapes}
        sources = {name: self._sources_behind(name, self._passing) for name in self._by_name}
        readers: dict[str, set[str]] = {name: set() for name in nameless}
        for name, read in sources.items():
            for source in read & readers.keys():
                readers[source].add(name)
        for number in (n for n in self._waiting() if not is_pair(tags, n)):
            # Operations that stand for graph inputs are called after these.
            before = _nearest_homes(number, tags.producers, beside) | tags.sources(number)
            for factor in _factors_before(number, tags):  # Of a scale, which is computed behind.
                before |= _nearest_homes(factor, tags.producers, beside)
            behind = _nearest_homes(number, tags.readers, beside)
            is_reduction = self._op_type(number) in REDUCING
            for name, op in nameless.items():
                ends = op.kind in MOVING and not behind and not readers[name]
                # A Reduce takes the Transpose in front of it along.
                own = {name} if op.kind == "Reduce" and is_reduction else ()
                if before & sources[name].union(own) and (ends or behind & readers[name]):
                    self.homes[number], beside[number] = name, {name}

    def _beside(self) -> dict[int, set[str]]:
        """The operations of the nodes that are where the model has them; a node may be several.

        A pair may be elsewhere, too.
        """
        beside = {
            number: {home}
            for number, home in self.homes.items()
            if number not in self._moved and not is_pair(self._tags, number)
        }
        for op in self._operations:
            for number in beside.keys() & set(op.nodes):
                beside[number].add(op.name)
        return beside

    def find_in_splits(self) -> None:
        """Give Slices the Split that OpenVINO made of them and of others of the same tensor."""
        slices = [n for n in self._lost if self._op_type(n) == "Slice"]
        data = {number: self._tags.nodes[number].input[0] for number in slices}
        splits = {op.name for op in self._operations if op.kind == "Split"}
        made = {data[n]: self.homes[n] for n in slices if self.homes.get(n) in splits}
        for number in slices:
            if number not in self.homes and data[number] in made:
                self.homes[number] = made[data[number]]

    def find_behind(self, may_be: Callable[[int, str], bool]) -> None:
        """Give nodes the one operation of what writes what they read, where it ``may_be``."""
        for number in self._waiting():
            producers = self._tags.producers(number) - self._moved
            near_homes = {self.homes[n] for n in producers if n in self.homes}
            if len(near_homes) == 1 and all(may_be(number, home) for home in near_homes):
                self.homes[number] = near_homes.pop()

    def is_invented(self, _: int, home: str) -> bool:
        """Whether OpenVINO put an activation together and gave it a name of its own."""
        return self._by_name[home].invented

    def is_implied_in_product(self, number: int, home: str) -> bool:
        """Whether a quantization implies the node, and only Concats read what it writes.

        In the model that quantization stands behind the Concat.
        """
        if self._op_type(number) not in _IMPLIED or self._by_name[home].kind not in _PRODUCTS:
            return False
        readers = (self.homes.get(n) for n in self._tags.readers(number))
        return all(
            reader is not None and self._by_name[reader].kind == "Concatenation"
            for reader in readers
        )

    def find_in_front(self) -> None:
        """Give nodes the one operation of what reads what they write."""
        for number in reversed(self._lost):
            readers = self._tags.readers(number) - self._moved
            near_homes = {self.homes.get(n, "") for n in readers} - {""}
            is_found = number in self.homes or len(near_homes) != 1
            if not is_found and not _is_layout(self._tags, number):
                self.homes[number] = near_homes.pop()

    def drop_before_joins(self) -> None:
        """Leave out nodes behind a Concat that are part of the quantizations of its branches.

        OpenVINO gives their names to one of these.
        """
        tags, homes = self._tags, self.homes
        joins = {n: homes[n] for n in homes if self._op_type(n) == "Concat"}
        join_of = dict[int, str]()  # By node what joins the branches.
        for number in sorted(n for n in homes if self._op_type(n) in _IN_QUANTIZATION):
            behind = {(joins | join_of).get(n) for n in tags.producers(number) - tags.settled}
            join = self._by_name.get(behind.pop() or "") if len(behind) == 1 else None
            if join is None or join.outputs[0].dtype not in INTEGERS:
                continue
            home = homes[number]
            if join.name not in {*self._sources_behind(home, self._passing), home}:
                join_of[number] = join.name
        for number in join_of:
            del homes[number]

    def settle_reductions(self) -> None:
        """Give reductions the Reduce that runs before the Transpose in front of them.

        OpenVINO calls what is left of that Transpose after them (TransposeReduction).
        """
        reduces = {op.name for op in self._operations if op.kind == "Reduce" and not op.nodes}
        for number, home in self.homes.items():
            if self._op_type(number) in REDUCING and self._by_name[home].kind in MOVING:
                before = sorted(self._by_name[home].sources & reduces)
                self.homes[number] = before[0] if before else home

    def _sources_behind(self, name: str, passing: Mapping[str, Set[str]]) -> set[str]:
        """What an operation reads, and what these read that are ``passing``."""
        reached, waiting = set[str](), set(self._by_name[name].sources)
        while waiting:
            reached |= waiting
            waiting = {before for one in waiting for before in passing.get(one, ())}
        return reached


def _does_the_work(tags: Tags, number: int, op: Operation) -> bool:
    """Whether ``op`` quantizes or multiplies; others only prepare what it reads."""
    operator = tags.nodes[number].op_type
    writes = any(port.dtype in INTEGERS for port in op.outputs)
    quantizes = operator == "DynamicQuantizeLinear" and writes
    return quantizes or (operator in _NAMED_AFTER and op.kind in _PRODUCTS)


def _is_layout(tags: Tags, number: int) -> bool:
    """Whether a lost node is a Transpose to the layout that its readers, all maps, read anyway."""
    reached, waiting = set[str](), tags.readers(number)
    while waiting:
        pairs = {n for n in waiting if is_pair(tags, n)}
        reached |= {tags.nodes[n].op_type for n in waiting - pairs}
        waiting = {after for n in pairs for after in tags.readers(n)}
    return tags.nodes[number].op_type == "Transpose" and bool(reached) and reached <= _OF_MAPS


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


def _taken_from(near: Mapping[str, Counter[str]], kinds: Sequence[str]) -> str | None:
    """The first operation in which a node of one of ``kinds`` is, which is taken away there.

    Else the first that is put together from several nodes. ``near``: unnamed nodes by operation.
    """
    for name, parts in near.items():
        for kind in kinds:
            if parts[kind]:
                parts[kind] -= 1
                return name
    wholes = (name for name, parts in near.items() if _COMPOSITES & parts.keys())
    return next(wholes, None) if kinds else None


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
