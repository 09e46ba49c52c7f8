"""The oracle: a program's outputs by recursion over its recurrence equations, in NumPy, with memoisation.

No passes, no schedule, no storage: each value is asked for at a point, asks for what it reads, and is kept. Slow, and right
where the equations are. Every feature and every random program is tested against it.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tempo_core.backends.base import numpy_dtype
from tempo_core.backends.numpy_backend import NumpyBackend
from tempo_core.errors import BoundsError, CausalityError, InputError, OutOfDomainError, UncoveredPointError
from tempo_core.frontend.context import Context
from tempo_core.frontend.tensor import Tensor
from tempo_core.ir.graph import Edge, Graph, Node
from tempo_core.ir.ops import Cast, Input, Merge, Op, Output, Udf
from tempo_core.ir.types import TensorType
from tempo_core.symbolic.domain import Domain, Point, Range
from tempo_core.symbolic.expr import Expr, Symbol

Array = Any  # numpy.ndarray
At = tuple[int, ...]  # the steps of a node's domain, as numbers
Place = tuple[int, At]  # a node at a point
Env = dict[Symbol, int]


def evaluate(
    program: Context | Graph,
    outputs: Sequence[Tensor] | None,
    bounds: Mapping[Expr, int] | Mapping[Symbol, int],
    inputs: Mapping[str, Any] | None = None,
    seed: int = 0,
    dtype: str | None = None,
) -> list[Any]:
    """The values of `outputs`: what `program.run(inputs)` of the compiled program gives, up to the rounding of floats.

    A list with one array `[*bounds of the tensor's domain, *shape]` an output; nested lists of arrays where the shape varies
    with a step. Without `outputs`, the operands of the graph's `Output` nodes, by position: so that graphs can be compared
    before and after a pass (there, a range may pass over points that its source's condition leaves out: zeros).

    With `dtype="float64"`, float32 tensors are evaluated in float64, for finite differences; random numbers and user-defined
    functions keep their precision.

    A stateful function is called in the order of its points, up to the last that is needed. Sinks are not called.
    Raises CausalityError at a value that depends on itself, OutOfDomainError at a read outside of a domain,
    UncoveredPointError at a point that no branch defines, BoundsError and InputError for what is not given.
    """
    graph = program.graph if isinstance(program, Context) else program
    oracle = _Oracle(graph, _bounds(graph, bounds), dict(inputs or {}), seed, _wider(dtype), strict=outputs is not None)
    if outputs is None:
        found = sorted((n for n in graph if isinstance(n.op, Output)), key=lambda n: n.op.position)  # type: ignore[attr-defined]
        return [oracle.read(node.inputs[0], {}) for node in found]
    return [oracle.everywhere(tensor.edge, tensor.domain, tensor.type) for tensor in outputs]


def _bounds(graph: Graph, given: Mapping[Any, int]) -> Env:
    numbers = {str(key): int(value) for key, value in given.items()}
    missing = [bound for bound in graph.bounds() if bound.name not in numbers]
    if missing:
        raise BoundsError(f"the bound {missing[0]} is not given")
    return {bound: numbers[bound.name] for bound in graph.bounds()}


def _wider(dtype: str | None) -> bool:
    if dtype not in (None, "float32", "float64"):
        raise ValueError(f"the reference evaluates float32 as float32 or float64, not as {dtype!r}")
    return dtype == "float64"


@dataclass(frozen=True)
class _Read:
    """Which points of a node an edge reads at a point of its reader: `points` in row-major order of the ranges' `lengths`.

    `sizes` are the lengths that are delivered: a range's tail, past its true length, holds zeros. `fixed` are the source's
    steps that are read at one point.
    """

    edge: Edge
    points: tuple[At, ...]
    lengths: tuple[int, ...]
    sizes: tuple[int, ...]
    fixed: Env

    @property
    def places(self) -> Iterator[Place]:
        return ((self.edge.source, at) for at in self.points)


class _Oracle:
    """Values of a graph for given bounds, inputs and seed, kept once they are known."""

    def __init__(self, graph: Graph, bounds: Env, inputs: dict[str, Any], seed: int, wide: bool, strict: bool):
        self.graph, self.bounds, self.inputs, self.seed, self.wide, self.strict = graph, bounds, inputs, seed, wide, strict
        self.backend = NumpyBackend()
        self.known: dict[Place, tuple[Array, ...]] = {}
        self.before: dict[int, dict[At, At | None]] = {}  # for stateful functions: the point before each point

    # -- values -------------------------------------------------------------------------------------------------------

    def everywhere(self, edge: Edge, domain: Domain, type: TensorType) -> Any:
        """What an edge reads at all points of `domain`, stacked; nested lists where the shape varies."""
        values = {at: self.read(edge, self.env(domain, at)) for at in self.points(domain, partly=False)}
        return _stacked(values, tuple(self.bound(s) for s in domain.steps), type.is_static)

    def read(self, edge: Edge, env: Env) -> Any:
        """The value of an edge for a reader at `env`, which holds the reader's steps and, once filled in, the bounds."""
        read = self.reads(edge, {**self.bounds, **env}, None)
        for place in read.places:
            self.demand(place)
        return self.value(read)

    def demand(self, wanted: Place) -> None:
        """Make a value known, and first all that it depends on: depth first, with a stack of our own."""
        path: dict[Place, tuple[_Read, ...]] = {}  # values that wait for others, in the order in which they asked
        stack = [wanted]
        while stack:
            place = stack[-1]
            if place in self.known:
                stack.pop()
                continue
            if place not in path:
                reads, first = self.needs(place)
                path[place] = reads
                missing = [p for p in itertools.chain(first, *(r.places for r in reads)) if p not in self.known]
                for other in missing:
                    if other in path:
                        raise self.cycle(list(path), other)
                stack.extend(reversed(missing))
                if missing:
                    continue
            self.known[place] = self.computed(place, path.pop(place))
            stack.pop()

    def needs(self, place: Place) -> tuple[tuple[_Read, ...], list[Place]]:
        """What a value reads, and what else must happen before it."""
        node, at = self.graph[place[0]], place[1]
        env = self.env(node.domain, at)
        first: list[Place] = []
        if isinstance(node.op, Udf) and node.op.stateful:
            previous = self.previous(node, at)
            first = [] if previous is None else [(node.id, previous)]
        edges = (self.branch(node, env),) if isinstance(node.op, Merge) else node.inputs
        return tuple(self.reads(edge, env, node) for edge in edges), first

    def branch(self, node: Node, env: Env) -> Edge:
        """The first branch whose condition holds."""
        for edge in node.inputs:
            if edge.condition.evaluate(env):
                return edge
        raise UncoveredPointError(f"no branch of {node.label} defines the point {_text(node.domain, env)}", where=node.where)

    def computed(self, place: Place, reads: Sequence[_Read]) -> tuple[Array, ...]:
        node, at = self.graph[place[0]], place[1]
        operands = [self.value(read) for read in reads]
        if isinstance(node.op, Merge):
            return tuple(operands)
        if isinstance(node.op, Input):
            return (self.fed(node.op),)
        return self.applied(node.op, operands, self.env(node.domain, at), node.outputs)

    def applied(self, op: Op, operands: list[Array], env: Env, types: Sequence[TensorType]) -> tuple[Array, ...]:
        if not self.wide:
            return self.backend.kernel(op, operands, env, self.seed)
        if isinstance(op, Cast) and op.dtype == "float32":
            op = Cast("float64")
        if isinstance(op, Udf):  # it was written for the dtypes that it is declared with
            operands = [x.astype(np.float32) if x.dtype == np.float64 else x for x in operands]
        results = self.backend.kernel(op, operands, env, self.seed)
        return tuple(r.astype(np.float64) if t.dtype == "float32" else r for r, t in zip(results, types, strict=True))

    def fed(self, op: Input) -> Array:
        if op.name not in self.inputs:
            raise InputError(f"the input `{op.name}` is not given")
        declared = numpy_dtype("float64" if self.wide and op.dtype == "float32" else op.dtype)
        array = np.asarray(self.inputs[op.name]).astype(declared)
        shape = tuple(size.evaluate(self.bounds) for size in op.shape)
        if array.shape != shape:
            raise InputError(f"the input `{op.name}` has shape {array.shape}; declared is {shape}")
        return array

    # -- reads --------------------------------------------------------------------------------------------------------

    def reads(self, edge: Edge, env: Env, reader: Node | None) -> _Read:
        """The points that an edge reads for a reader at `env`. Raises where one does not exist."""
        source = self.graph[edge.source]
        along: list[Sequence[int]] = []
        lengths, sizes, fixed = [], [], {}
        for step, index in zip(source.domain.steps, edge.index, strict=True):
            if isinstance(index, Point):
                fixed[step] = index.expr.evaluate(env)
                along.append((fixed[step],))
            else:
                start, stop = index.start.evaluate(env), index.stop.evaluate(env)
                if stop < start:
                    raise self.outside(source, edge, env, reader, f"the slice {index} of step {step} stops before it starts")
                along.append(range(start, stop, index.stride))
                lengths.append(len(along[-1]))
                sizes.append(len(along[-1]) if index.size is None else index.size.evaluate(env))
            if any(not 0 <= p < self.bound(step) for p in along[-1]):
                raise self.outside(source, edge, env, reader, f"{index} leaves 0 <= {step} < {self.bound(step)}")
        points = tuple(itertools.product(*along))
        for at in points:
            if not source.domain.condition.evaluate(self.env(source.domain, at)):
                if lengths and not self.strict:
                    self.known[source.id, at] = tuple(self.zeros(t, self.env(source.domain, at)) for t in source.outputs)
                    continue
                raise self.outside(source, edge, env, reader, f"it exists only where {source.domain.condition}")
        return _Read(edge, points, tuple(lengths), tuple(sizes), fixed)

    def value(self, read: _Read) -> Any:
        """What a read delivers, once all its points are known; nested lists where their shapes vary."""
        source = self.graph[read.edge.source]
        parts = [self.known[place][read.edge.output] for place in read.places]
        if not read.lengths:
            return parts[0]
        type = source.outputs[read.edge.output]
        ranged = {s for s, i in zip(source.domain.steps, read.edge.index, strict=True) if isinstance(i, Range)}
        if any(size.steps & ranged for size in type.shape):
            return _stacked(dict(zip(itertools.product(*map(range, read.lengths)), parts, strict=True)), read.lengths, False)
        if not parts:
            return self.empty(source.outputs[read.edge.output], read)
        whole = np.stack(parts).reshape((*read.lengths, *parts[0].shape))
        if read.lengths == read.sizes:
            return whole
        padded = np.zeros((*read.sizes, *parts[0].shape), whole.dtype)
        kept = tuple(slice(min(n, size)) for n, size in zip(read.lengths, read.sizes, strict=True))
        padded[kept] = whole[kept]
        return padded

    def empty(self, type: TensorType, read: _Read) -> Array:
        """A read of no points, in the shape of the source, which does not vary along the ranges."""
        value = self.zeros(type, {**self.bounds, **read.fixed})
        return np.zeros((*read.sizes, *value.shape), value.dtype)

    def zeros(self, type: TensorType, env: Env) -> Array:
        shape = tuple(size.evaluate(env) for size in type.shape)
        return np.zeros(shape, np.float64 if self.wide and type.dtype == "float32" else numpy_dtype(type.dtype))

    # -- points -------------------------------------------------------------------------------------------------------

    def bound(self, step: Symbol) -> int:
        return self.bounds[Symbol(str(step.bound))]

    def env(self, domain: Domain, at: At) -> Env:
        return {**self.bounds, **dict(zip(domain.steps, at, strict=True))}

    def points(self, domain: Domain, partly: bool) -> Iterator[At]:
        """All points of a domain, in lexicographic order. Unless `partly`, it must have no holes."""
        for at in itertools.product(*(range(self.bound(s)) for s in domain.steps)):
            env = self.env(domain, at)
            if domain.condition.evaluate(env):
                yield at
            elif not partly:
                raise OutOfDomainError(f"an output exists only where {domain.condition}, not at {_text(domain, env)}")

    def previous(self, node: Node, at: At) -> At | None:
        """The point of a stateful function before `at`."""
        if node.id not in self.before:
            order = list(self.points(node.domain, partly=True))
            self.before[node.id] = dict(zip(order, [None, *order[:-1]], strict=True))
        return self.before[node.id][at]

    # -- errors -------------------------------------------------------------------------------------------------------

    def cycle(self, path: list[Place], again: Place) -> CausalityError:
        around = [*path[path.index(again) :], again]
        shown = " <- ".join(f"{self.graph[n].label}[{', '.join(map(str, at))}]" for n, at in around)
        return CausalityError(f"a value depends on itself: {shown}", where=self.graph[again[0]].where)

    def outside(self, source: Node, edge: Edge, env: Env, reader: Node | None, why: str) -> OutOfDomainError:
        if reader is None:
            return OutOfDomainError(f"an output reads {source.label} at {_index(edge)}: {why}", where=source.where)
        point = _text(reader.domain, env)
        return OutOfDomainError(f"{reader.label} reads {source.label} at {_index(edge)}: {why}; {point}", where=reader.where)


def _stacked(values: Mapping[At, Any], sizes: tuple[int, ...], static: bool) -> Any:
    """Values by position as one array, or as nested lists."""
    if static:
        parts = list(values.values())
        return np.stack(parts).reshape((*sizes, *parts[0].shape)) if sizes else parts[0]

    def rows(at: At) -> Any:
        return values[at] if len(at) == len(sizes) else [rows((*at, k)) for k in range(sizes[len(at)])]

    return rows(())


def _index(edge: Edge) -> str:
    return f"[{', '.join(map(str, edge.index))}]"


def _text(domain: Domain, env: Mapping[Symbol, int]) -> str:
    return ", ".join(f"{s} = {env[s]}" for s in domain.steps)
