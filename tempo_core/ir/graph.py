"""The symbolic dependence graph (SDG): nodes with domains, and edges with temporal indices φ and conditions ψ."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from tempo_core.ir.ops import Broadcast, Constant, End, Input, Op, Output, Sink, Udf
from tempo_core.ir.ops import Dataflowed as Dataflowed
from tempo_core.ir.types import TensorType
from tempo_core.ir.udf import Fed
from tempo_core.symbolic.condition import TRUE, Bool
from tempo_core.symbolic.domain import Domain, Index, Point, Range, index_steps, is_own_point, step_order
from tempo_core.symbolic.expr import Expr, IntoExpr, Symbol
from tempo_core.symbolic.lazy import lazy

Key = tuple[int, int]  # one value of a graph: (node id, output)


@dataclass(frozen=True)
class Edge:
    """A read: output `output` of node `source`, at `index` (one `Point` or `Range` per step of the *source's* domain).

    Indices are in terms of the reader's steps. Each `Range` adds a leading dimension to the value, in the order of the
    source's steps. `condition` (ψ) is used on the inputs of a `Merge` only: where the branch applies.
    """

    source: int
    index: tuple[Index, ...] = ()
    output: int = 0
    condition: Bool = TRUE

    @lazy
    def steps(self) -> frozenset[Symbol]:
        return index_steps(self.index) | self.condition.steps

    @lazy
    def symbols(self) -> frozenset[Symbol]:
        """The steps and bounds that stand in the index and in the condition."""
        return self.condition.symbols.union(*(index.symbols for index in self.index))

    @lazy
    def lengths(self) -> tuple[Expr, ...]:
        """The sizes of the leading dimensions that ranges add to the value."""
        return tuple([index.length for index in self.index if isinstance(index, Range)])

    def of(self, source: int) -> Edge:
        """The same read of another node."""
        return self if source == self.source else Edge(source, self.index, self.output, self.condition)

    def by_step(self, domain: Domain) -> dict[Symbol, Index]:
        """The index along each step of the source, which runs over `domain`."""
        return dict(zip(domain.steps, self.index, strict=True))

    def points(self, domain: Domain) -> dict[Symbol, Expr]:
        """The point read along each step of the source; steps along which a range is read are left out."""
        return {step: index.expr for step, index in zip(domain.steps, self.index, strict=True) if isinstance(index, Point)}

    def is_own_point(self, domain: Domain) -> bool:
        """Whether the source, over `domain`, is read at the reader's own point (at the identity)."""
        return all(is_own_point(index, step) for index, step in zip(self.index, domain.steps, strict=True))

    def substitute(self, values: Mapping[Symbol, IntoExpr]) -> Edge:
        return replace(self, index=tuple(i.substitute(values) for i in self.index), condition=self.condition.substitute(values))


@dataclass(frozen=True)
class Node:
    """An operation at every point of `domain`. `where` is the user's `file:line`; `name` is the user's name for it."""

    id: int
    op: Op
    domain: Domain
    inputs: tuple[Edge, ...]
    outputs: tuple[TensorType, ...]
    name: str = ""
    where: str = ""

    def reading(self, inputs: tuple[Edge, ...]) -> Node:
        """The same operation with other operands, of the same types."""
        return Node(self.id, self.op, self.domain, inputs, self.outputs, self.name, self.where)

    def operands(self, branch: int | None) -> tuple[Edge, ...]:
        """The edges that a statement reads: all of the node, or the one of its branch of a recurrence."""
        return self.inputs if branch is None else (self.inputs[branch],)

    @property
    def written(self) -> tuple[Key, ...]:
        """The stores that its statements write. An output inside a loop has one."""
        return tuple((self.id, output) for output in range(1 if isinstance(self.op, Output) else len(self.outputs)))

    @property
    def label(self) -> str:
        """How errors call this node: `w (Merge)`."""
        kind = getattr(self.op, "fn", None)
        kind = kind if isinstance(kind, str) else type(self.op).__name__
        return f"{self.name} ({kind})" if self.name else f"%{self.id} ({kind})"

    @lazy
    def symbols(self) -> frozenset[Symbol]:
        """The steps and bounds that stand in the op and in the reads: its values depend on them, apart from those that they read."""
        return self.op.symbols.union(*(edge.symbols for edge in self.inputs))


@dataclass
class Graph:
    """Nodes by id, in the order they were added. `order` is the context's step order. Cycles go through `Merge`.

    `derived` holds the bounds of steps that passes added, as expressions of other bounds. `chosen` are the steps of which a run takes
    one point, which it is given: those of bounds that are known when a program runs (`passes/shapes/capacity.py`). `decided_for` is the
    condition on bounds under which passes decided (`I <= J`, `T == 250`): for others, they decide anew. `branch_lines` holds the lines at
    which the user assigned the branches of each recurrence. It is right for the graph as written: passes renumber nodes and
    branches.
    """

    order: tuple[Symbol, ...]
    nodes: dict[int, Node] = field(default_factory=dict)
    _next: int = 0
    derived: dict[Symbol, Expr] = field(default_factory=dict)
    chosen: tuple[Symbol, ...] = ()
    decided_for: Bool = TRUE
    branch_lines: dict[int, list[str]] = field(default_factory=dict)
    changes: int = field(default=0, compare=False)  # how often a node was added or replaced
    facts: dict[Any, Any] = field(
        default_factory=dict, compare=False, repr=False
    )  # what `ir/dependence.py` keeps, with its copies

    range_lengths: set[Expr] = field(
        default_factory=set, compare=False, repr=False
    )  # of all reads of nodes that it and its copies ever had

    _ends: tuple[tuple[int, int], dict[Symbol, Node]] | None = field(default=None, compare=False, repr=False)

    # -- building -----------------------------------------------------------------------------------------------------

    def add(self, op: Op, inputs: Iterable[Edge] = (), *, domain: Domain | None = None, name: str = "", where: str = "") -> Node:
        """Append a node. Without `domain`, it runs at the union of the steps that its operands and parameters use."""
        edges = tuple(inputs)
        if domain is None:
            steps = frozenset().union(*(e.steps for e in edges), (s for s in op.symbols if s.is_step))
            domain = Domain(step_order(steps, self.order))
        node = Node(self._next, op, domain, edges, op.infer(tuple(self.edge_type(e) for e in edges)), name, where)
        return self.put(node)

    def put(self, node: Node) -> Node:
        """Insert or replace a node under its id."""
        self.nodes[node.id] = node
        for edge in node.inputs:
            for index in edge.index:
                if isinstance(index, Range) and index.stride > 0:  # `verify` refuses others
                    self.range_lengths.add(index.length)
        self._next = max(self._next, node.id + 1)
        self.changes += 1
        return node

    @property
    def next_id(self) -> int:
        """The id of the next node."""
        return self._next

    def copy(self) -> Graph:
        return Graph(
            self.order,
            dict(self.nodes),
            self._next,
            dict(self.derived),
            self.chosen,
            self.decided_for,
            facts=self.facts,
            range_lengths=self.range_lengths,
        )

    def fresh_step(self, name: str) -> Symbol:
        """A step and a bound with names that the graph lacks: `name`, or `name` and a number."""
        names = {symbol.name for step in self.order for symbol in (step, step.bound_symbol)}
        numbered = (name if count == 1 else f"{name}{count}" for count in range(1, len(names) + 2))
        free = next(each for each in numbered if not {each, each.upper()} & names)
        return Symbol(free, free.upper())

    def with_step(self, step: Symbol, bound: Expr, place: int | None = None) -> Graph:
        """The same nodes with one more step, whose bound is an expression of the present bounds. By default it is the innermost one."""
        fresh = self.copy()
        fresh.order = (*self.order[:place], step, *(() if place is None else self.order[place:]))
        fresh.derived[step.bound_symbol] = bound
        return fresh

    def all_bounds(self, bounds: Mapping[Symbol, int]) -> dict[Symbol, int]:
        """Numbers for all bounds, from the numbers for the bounds of the context's steps."""
        numbers = dict(bounds)
        for bound, expression in self.derived.items():
            numbers[bound] = expression.evaluate(numbers)
        return numbers

    def is_for(self, bounds: Mapping[Symbol, int]) -> bool:
        """Whether the passes that decided by numbers of bounds would decide the same for these."""
        return self.decided_for.evaluate(bounds)

    # -- questions ----------------------------------------------------------------------------------------------------

    def __getitem__(self, node_id: int) -> Node:
        return self.nodes[node_id]

    def __iter__(self) -> Iterator[Node]:
        return iter(tuple(self.nodes.values()))

    def __len__(self) -> int:
        return len(self.nodes)

    def edge_type(self, edge: Edge) -> TensorType:
        """The type of the value that an edge delivers: a leading dimension per range, then the source's shape there."""
        source = self.nodes[edge.source]
        of_source = source.outputs[edge.output]
        there = of_source if of_source.is_static else of_source.substitute(edge.points(source.domain))
        return TensorType(there.dtype, (*edge.lengths, *there.shape)) if edge.lengths else there

    def edge_rank(self, edge: Edge) -> int:
        """The number of dimensions of the value that an edge delivers."""
        return self.nodes[edge.source].outputs[edge.output].rank + len(edge.lengths)

    def input_types(self, node: Node) -> tuple[TensorType, ...]:
        return tuple(self.edge_type(e) for e in node.inputs)

    def users(self) -> dict[int, list[tuple[Node, int]]]:
        """For each node id, the (reader, slot) pairs of edges that read it."""
        readers: dict[int, list[tuple[Node, int]]] = {node_id: [] for node_id in self.nodes}
        for node in self.nodes.values():
            for slot, edge in enumerate(node.inputs):
                readers[edge.source].append((node, slot))
        return readers

    def reader_ids(self) -> dict[int, list[int]]:
        """For each node id, the ids of the nodes that read it, each once, in the graph's order."""
        readers: dict[int, list[int]] = {node_id: [] for node_id in self.nodes}
        for node in self.nodes.values():
            for source in dict.fromkeys(edge.source for edge in node.inputs):
                readers[source].append(node.id)
        return readers

    def roots(self) -> list[Node]:
        """Nodes that must run: outputs, sinks and stateful functions (a streamed input only where something reads it)."""
        return [node for node in self.nodes.values() if isinstance(node.op, (Output, Sink, Udf)) and _must_run(node.op)]

    def ends(self) -> dict[Symbol, Node]:
        """The ends that a run finds out: by the step's bound; after `passes/shapes/capacity.py`, by the step in whose terms the bound is."""
        present = (self.changes, len(self.nodes))  # passes ask at each node, and some take nodes away
        if self._ends is None or self._ends[0] != present:
            found = {symbol: node for node in self if isinstance(node.op, End) for symbol in node.op.bound.symbols}
            self._ends = present, found
        return dict(self._ends[1])

    def outer(self) -> dict[Symbol, tuple[Symbol, ...]]:
        """The steps around each end, by the symbol of the end (as in `ends`): at each of their points, the step ends at another place."""
        return {
            last: steps
            for last, end in self.ends().items()
            if (steps := tuple(s for s in end.domain.steps[:-1] if s not in self.chosen))
        }

    def inputs(self) -> list[Node]:
        """The inputs that are fed as whole arrays."""
        return [n for n in self if isinstance(n.op, Input)]

    def fed(self) -> dict[str, Node]:
        """The fed nodes by name: inputs, and the functions that stand for streamed inputs."""
        nodes = {}
        for node in self:
            if isinstance(node.op, Input):
                nodes[node.op.name] = node
            elif isinstance(node.op, Udf) and isinstance(node.op.fn, Fed):
                nodes[node.op.fn.name] = node
        return nodes

    def bounds(self) -> tuple[Symbol, ...]:
        return tuple(s.bound_symbol for s in self.order if s.bound)


def _must_run(op: Output | Sink | Udf) -> bool:
    return not isinstance(op, Udf) or (op.stateful and not isinstance(op.fn, Fed))


def constant_number(graph: Graph, node_id: int) -> int | float | None:
    """The number that a node's value repeats; None if it is no number that is written in the program."""
    op = graph[node_id].op
    if isinstance(op, Broadcast):
        return constant_number(graph, graph[node_id].inputs[0].source)
    if isinstance(op, Constant) and op.sizes == () and op.dtype not in ("bool", "bfloat16"):
        return np.frombuffer(op.data, dtype=op.dtype)[0].item()
    return None


def is_identity(edge: Edge, source: Node, reader_domain: Domain) -> bool:
    """Whether an edge reads its source exactly at the reader's own point, over the same domain."""
    is_same = source.domain is reader_domain or source.domain == reader_domain
    return is_same and edge.is_own_point(source.domain)


def compose(edge: Edge, steps: tuple[Symbol, ...], indices: Sequence[Index]) -> Edge | None:
    """The edge with `indices` in place of the reader's `steps`: `x[t - 1]` at t = 3 is `x[2]`. None if the ranges do not compose."""
    points: dict[Symbol, Expr] = {s: i.expr for s, i in zip(steps, indices, strict=True) if isinstance(i, Point)}
    ranges = {s: i for s, i in zip(steps, indices, strict=True) if isinstance(i, Range)}
    composed = list(edge.index)
    sliced: list[int] = []
    for step, span in ranges.items():
        users = [k for k, index in enumerate(edge.index) if step in index.steps]
        if len(users) != 1 or not isinstance(edge.index[users[0]], Point):
            return None
        at = edge.index[users[0]]
        assert isinstance(at, Point)
        offset = at.expr - step.expr
        if step in offset.steps:
            return None
        offset = offset.substitute(points)
        composed[users[0]] = replace(span, start=span.start + offset, stop=span.stop + offset)
        sliced.append(users[0])
    unsliced = [k for k, index in enumerate(edge.index) if isinstance(index, Range)]
    if sliced != sorted(sliced) or (sliced and unsliced and max(sliced) > min(unsliced)):
        return None  # the value's leading dimensions are in the source's order, the user's in the order of slicing
    return replace(edge, index=tuple(i if k in sliced else i.substitute(points) for k, i in enumerate(composed)))
