"""The oracle: a program's outputs by recursion over its recurrence equations, in NumPy, with memoisation.

It has no passes, no schedule and no storage. A value at a point first requests the values that it reads; then it is computed, and
kept. The oracle is slow, and right if the equations are. Every feature and every random program is tested against it.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import jax
import numpy as np

from tempo_core.backends.base import numpy_dtype
from tempo_core.backends.numpy_backend import NumpyBackend
from tempo_core.errors import (
    BoundsError,
    CausalityError,
    IndexingError,
    InputError,
    OutOfDomainError,
    TempoError,
    UncoveredPointError,
)
from tempo_core.frontend.base_context import BaseContext
from tempo_core.frontend.tensor import Tensor
from tempo_core.ir.graph import Edge, Graph, Node
from tempo_core.ir.ops import Cast, Input, Merge, Op, Output, Slice, Udf
from tempo_core.ir.types import TensorType, is_float
from tempo_core.ir.udf import Fed, Library
from tempo_core.runtime.feeds import Feed, input_specs, is_array
from tempo_core.store.fingerprint import unwrapped
from tempo_core.symbolic.condition import TRUE
from tempo_core.symbolic.domain import Domain, Point, Range
from tempo_core.symbolic.expr import Expr, StepValues, Symbol

Array = Any  # numpy.ndarray
At = tuple[int, ...]  # the steps of a node's domain, as numbers
Place = tuple[int, At]  # a node at a point


def evaluate(
    program: BaseContext | Graph,
    outputs: Sequence[Tensor] | None,
    bounds: Mapping[Expr, int] | Mapping[Symbol, int],
    inputs: Mapping[str, Any] | None = None,
    seed: int = 0,
    dtype: str | None = None,
    structure: Structure | None = None,
) -> list[Any]:
    """The values of `outputs`: equal to those of `program.run(inputs)` of the compiled program, up to the rounding of floats.

    The result is a list with one array `[*bounds of the tensor's domain, *shape]` for each output, or nested lists of arrays if
    the shape varies with a step. Without `outputs`, it lists the operands of the graph's `Output` nodes, by position, so that
    graphs can be compared before and after a pass. (In such graphs, a range may contain points that its source's condition
    leaves out, and a branch that is selected elementwise may not exist for these bounds. Both give zeros.)

    With `dtype="float64"`, floats of all dtypes are evaluated in float64: for finite differences, and to see the effect of
    rounding. Random numbers and user-defined functions keep their precision.

    `structure` is a dictionary, empty at first, that says which value reads which. It is kept between evaluations of one graph
    for the same bounds.

    Where a step ends early (`ctx.ends`), its bound is the most that there may be.

    A stateful function is called in the order of its points, up to the last that is needed. Sinks are not called.
    Raises CausalityError at a value that depends on itself, OutOfDomainError at a read outside of a domain,
    UncoveredPointError at a point that no branch defines, BoundsError and InputError for missing bounds and inputs.
    """
    graph = program.graph if isinstance(program, BaseContext) else program
    numbers: dict[Symbol, Any] = dict(_bounds(graph, bounds))
    domains = program.inputs if isinstance(program, BaseContext) else {}
    fed = _arrays(graph, domains, numbers, inputs or {})
    for (
        bound,
        end,
    ) in graph.ends().items():  # the bounds are the most; the true end is after the first point at which the condition holds
        if bound in graph.outer():  # the oracle has one end for each outer point
            structure = None
            continue
        (step,) = end.domain.steps
        whole = _Oracle(graph, numbers, fed, seed, _wider(dtype), False)
        points = range(numbers[bound])
        numbers[bound] = next((t + 1 for t in points if whole.read(end.inputs[0], {**numbers, step: t})), numbers[bound])
        sizes = {name: spec.whole for name, spec in input_specs(graph, domains, numbers).items()}
        fed = {name: array[tuple(map(slice, sizes[name]))] if name in sizes else array for name, array in fed.items()}
        structure = None
    oracle = _Oracle(graph, numbers, fed, seed, _wider(dtype), outputs is not None, structure)
    if outputs is None:
        nodes = sorted((n for n in graph if isinstance(n.op, Output)), key=lambda n: n.op.position)  # type: ignore[attr-defined]
        return [oracle.read(node.inputs[0], {}) for node in nodes]
    return [oracle.everywhere(t.edge, t.domain, t.type, partly=t.user_condition is not TRUE) for t in outputs]


def _arrays(
    graph: Graph, domains: Mapping[str, tuple[Symbol, ...]], bounds: StepValues, inputs: Mapping[str, Any]
) -> dict[str, Array]:
    """The inputs as arrays. Values of iterators and functions are collected."""
    specs = input_specs(graph, domains, bounds)
    return {n: Feed(specs[n], v).collected() if n in specs and not is_array(v) else v for n, v in inputs.items()}


def mistakes(
    graph: Graph, bounds: Mapping[Expr, int] | Mapping[Symbol, int], structure: Structure | None = None
) -> dict[type[TempoError], TempoError]:
    """The mistakes in a program, one error of each kind, from all points of all of its nodes.

    Kinds are OutOfDomainError, UncoveredPointError, CausalityError, and IndexingError for spatial slices that stop before they
    start. The graph must have its `Output` nodes (`compiler.with_outputs`). Nothing is computed.
    """
    dry = _Dry(graph, _bounds(graph, bounds), {}, 0, wide=False, strict=True, structure=structure)
    errors: dict[type[TempoError], TempoError] = {}
    for node in graph:
        if isinstance(node.op, Output) and node.op.partial:
            continue
        for at in dry.points(node.domain, partly=True):
            try:
                dry.demand((node.id, at))
            except TempoError as error:
                errors.setdefault(type(error), error)
    return errors


def empty_branches(graph: Graph, up_to: int = 5) -> list[tuple[Node, int]]:
    """Branches of recurrences that define no point, for any bounds up to `up_to`."""
    merges = [node for node in graph if isinstance(node.op, Merge)]
    unused = {(node.id, number) for node in merges for number in range(len(node.inputs))}
    names = [bound for bound in graph.bounds() if bound not in graph.derived]
    for sizes in itertools.product(range(1, up_to + 1), repeat=len(names)):
        oracle = _Dry(graph, graph.all_bounds(dict(zip(names, sizes, strict=True))), {}, 0, wide=False, strict=True)
        for node in merges:
            if any((node.id, number) in unused for number in range(len(node.inputs))):
                for at in oracle.points(node.domain, partly=True):
                    env = oracle.env(node.domain, at)
                    defining = [number for number, edge in enumerate(node.inputs) if edge.condition.evaluate(env)]
                    unused.difference_update({(node.id, number) for number in defining[:1]})
    return [(graph[node], number) for node, number in sorted(unused)]


def _bounds(graph: Graph, bounds: Mapping[Any, int]) -> StepValues:
    numbers = {str(key): int(value) for key, value in bounds.items()}
    missing = [bound for bound in graph.bounds() if bound.name not in numbers and bound not in graph.derived]
    if missing:
        raise BoundsError(f"the bound {missing[0]} is not given")
    return graph.all_bounds({bound: numbers[bound.name] for bound in graph.bounds() if bound not in graph.derived})


def _wider(dtype: str | None) -> bool:
    if dtype not in (None, "float32", "float64"):
        raise ValueError(f"the reference evaluates float32 as float32 or float64, not as {dtype!r}")
    return dtype == "float64"


@dataclass(frozen=True)
class _Read:
    """The points of a node that an edge reads at a point of its reader: `points`, in row-major order of the ranges' `lengths`.

    `sizes` are the lengths in the value of the edge: past its true length, a range holds zeros. `fixed` are the steps of the
    source that are read at one point.
    """

    edge: Edge
    points: tuple[At, ...]
    lengths: tuple[int, ...]
    sizes: tuple[int, ...]
    fixed: StepValues

    @property
    def places(self) -> Iterator[Place]:
        return ((self.edge.source, at) for at in self.points)


Structure = dict[Place, tuple[tuple[_Read, ...], list[Place]]]  # the reads of each value, and the places that come first


class _Oracle:
    """Values of a graph for some bounds, inputs and seed. Values are kept after they are computed."""

    def __init__(
        self,
        graph: Graph,
        bounds: StepValues,
        inputs: dict[str, Any],
        seed: int,
        wide: bool,
        strict: bool,
        structure: Structure | None = None,
    ):
        self.graph, self.bounds, self.inputs, self.seed, self.wide, self.strict = graph, bounds, inputs, seed, wide, strict
        self.backend = NumpyBackend()
        self.structure = structure if structure is not None and strict else {}  # the needs of each value
        self.sizes: dict[Symbol, int] = {}  # by step
        self.values: dict[Place, tuple[Array, ...]] = {}
        self.outer = graph.outer()  # by bound of an inner step: the steps at each point of which it ends at another place
        self.ends: dict[tuple[Symbol, tuple[tuple[Symbol, int], ...]], int] = {}  # the bounds of inner steps at outer points
        self.before: dict[int, dict[At, At | None]] = {}  # for stateful functions: the point before each point

    # -- values -------------------------------------------------------------------------------------------------------

    def everywhere(self, edge: Edge, domain: Domain, type: TensorType, partly: bool = False) -> Any:
        """The values of an edge at all points of `domain`, stacked, or in nested lists if the shape varies.

        With `partly`, `domain` may have holes. They are masked, or None in lists.
        """
        values = {at: self.read(edge, self.env(domain, at)) for at in self.points(domain, partly)}
        sizes = tuple(self.bound(s) for s in domain.steps)
        if not partly:
            return _stacked(values, sizes, type.is_static)
        everywhere = list(itertools.product(*map(range, sizes)))
        if not type.is_static:
            return _stacked({at: values.get(at) for at in everywhere}, sizes, False)
        nothing = self.zeros(type, self.bounds)
        whole = _stacked({at: values.get(at, nothing) for at in everywhere}, sizes, True)
        mask = _stacked({at: np.full(nothing.shape, at not in values) for at in everywhere}, sizes, True)
        return np.ma.MaskedArray(whole, mask)

    def read(self, edge: Edge, env: StepValues) -> Any:
        """The value of an edge for a reader at `env`, which holds the reader's steps. The bounds are added here."""
        read = self.reads(edge, self.with_ends({**self.bounds, **env}, edge.symbols), None)
        for place in read.places:
            self.demand(place)
        return self.value(read)

    def demand(self, goal: Place) -> None:
        """Compute a value, and before it all values that it depends on: depth first, with an explicit stack."""
        path: dict[Place, tuple[_Read, ...]] = {}  # values that wait for others, in the order of their requests
        stack = [goal]
        while stack:
            place = stack[-1]
            if place in self.values:
                stack.pop()
                continue
            if place not in path:
                if place not in self.structure:
                    self.structure[place] = self.needs(place)
                reads, first = self.structure[place]
                path[place] = reads
                missing = [p for p in itertools.chain(first, *(r.places for r in reads)) if p not in self.values]
                for other in missing:
                    if other in path:
                        raise self.cycle(list(path), other)
                stack.extend(reversed(missing))
                if missing:
                    continue
            self.values[place] = self.computed(place, path.pop(place))
            stack.pop()

    def needs(self, place: Place) -> tuple[tuple[_Read, ...], list[Place]]:
        """The reads of a value, and the other places that must come before it."""
        node, at = self.graph[place[0]], place[1]
        env = self.with_ends(self.env(node.domain, at), node.symbols)
        first: list[Place] = []
        if isinstance(node.op, Udf) and node.op.stateful:
            previous = self.previous(node, at)
            first = [] if previous is None else [(node.id, previous)]
        edges = (self.branch(node, env),) if isinstance(node.op, Merge) else node.inputs
        return tuple(self.reads(edge, env, node) for edge in edges), first

    def branch(self, node: Node, env: StepValues) -> Edge:
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
            return (self.fed(node.op.name, node.outputs[0]),)
        if isinstance(node.op, Udf) and isinstance(node.op.fn, Fed):
            return (self.fed(node.op.fn.name, node.outputs[0], tuple(map(self.bound, node.domain.steps)))[at],)
        env = self.env(node.domain, at)
        if self.outer:
            env = self.with_ends(env, node.symbols.union(*(size.symbols for type in node.outputs for size in type.shape)))
        return self.applied(node.op, operands, env, node.outputs)

    def applied(self, op: Op, operands: list[Array], env: StepValues, types: Sequence[TensorType]) -> tuple[Array, ...]:
        if not self.wide:
            return self.backend.kernel(op, operands, env, self.seed)
        if isinstance(op, Cast):
            op = Cast(self.dtype(op.dtype))
        if isinstance(op, Udf) and isinstance(unwrapped(op.fn), Library):
            op = replace(op, types=tuple(replace(type, dtype=self.dtype(type.dtype)) for type in op.types))
            with jax.enable_x64(True):
                return self.backend.kernel(op, operands, env, self.seed)
        if isinstance(op, Udf):  # it takes the dtypes of its declaration
            operands = [x.astype(np.float32) if x.dtype == np.float64 else x for x in operands]
        results = self.backend.kernel(op, operands, env, self.seed)
        return tuple(r.astype(self.dtype(t.dtype)) if is_float(t.dtype) else r for r, t in zip(results, types, strict=True))

    def dtype(self, declared: str) -> str:
        """The dtype in which values of a declared dtype are evaluated."""
        return "float64" if self.wide and is_float(declared) else declared

    def fed(self, name: str, type: TensorType, leading: tuple[int, ...] = ()) -> Array:
        """The input of a name: an array of `type`, after `leading` dimensions."""
        if name not in self.inputs:
            raise InputError(f"the input `{name}` is not given")
        array = np.asarray(self.inputs[name]).astype(numpy_dtype(self.dtype(type.dtype)))
        shape = (*leading, *(size.evaluate(self.bounds) for size in type.shape))
        if array.shape != shape:
            raise InputError(f"the input `{name}` has shape {array.shape}; its declared shape is {shape}")
        return array

    # -- reads --------------------------------------------------------------------------------------------------------

    def reads(self, edge: Edge, env: StepValues, reader: Node | None) -> _Read:
        """The points that an edge reads for a reader at `env`. Raises OutOfDomainError if one does not exist."""
        source = self.graph[edge.source]
        along: list[Sequence[int]] = []
        lengths, sizes, fixed = [], [], {}
        for step, index in edge.by_step(source.domain).items():
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
            reached = along[-1]
            if reached and not (reached[0] >= 0 and reached[-1] < self.bound(step)):
                raise self.outside(source, edge, env, reader, f"{index} leaves 0 <= {step} < {self.bound(step)}")
        points = tuple(itertools.product(*along))
        for at in points if source.domain.condition is not TRUE else ():
            if not source.domain.condition.evaluate(self.env(source.domain, at)):
                if not self.strict and (lengths or not source.domain.condition.steps):
                    self.values[source.id, at] = tuple(self.zeros(t, self.env(source.domain, at)) for t in source.outputs)
                    continue
                raise self.outside(source, edge, env, reader, f"it exists only where {source.domain.condition}")
        return _Read(edge, points, tuple(lengths), tuple(sizes), fixed)

    def value(self, read: _Read) -> Any:
        """The value of a read whose points are all computed; nested lists if their shapes vary."""
        source = self.graph[read.edge.source]
        parts = [self.values[place][read.edge.output] for place in read.places]
        if not read.lengths:
            return parts[0]
        type = source.outputs[read.edge.output]
        ranged = {s for s, i in read.edge.by_step(source.domain).items() if isinstance(i, Range)}
        if any(size.steps & ranged for size in type.shape):
            return _stacked(dict(zip(itertools.product(*map(range, read.lengths)), parts, strict=True)), read.lengths, False)
        if not parts:
            return self.empty(source.outputs[read.edge.output], read)
        whole = np.stack(parts).reshape((*read.lengths, *parts[0].shape))
        if read.lengths == read.sizes:
            return whole
        padded = np.zeros((*read.sizes, *parts[0].shape), whole.dtype)
        filled = tuple(slice(min(n, size)) for n, size in zip(read.lengths, read.sizes, strict=True))
        padded[filled] = whole[filled]
        return padded

    def empty(self, type: TensorType, read: _Read) -> Array:
        """The value of a read of no points. The shape of the source does not vary along its ranges."""
        value = self.zeros(type, {**self.bounds, **read.fixed})
        return np.zeros((*read.sizes, *value.shape), value.dtype)

    def zeros(self, type: TensorType, env: StepValues) -> Array:
        shape = tuple(size.evaluate(env) for size in type.shape)
        return np.zeros(shape, numpy_dtype(self.dtype(type.dtype)))

    # -- points -------------------------------------------------------------------------------------------------------

    def bound(self, step: Symbol) -> int:
        if step not in self.sizes:
            self.sizes[step] = self.bounds[step.bound_symbol]
        return self.sizes[step]

    def env(self, domain: Domain, at: At) -> StepValues:
        return {**self.bounds, **dict(zip(domain.steps, at, strict=True))}

    def with_ends(self, env: StepValues, symbols: Iterable[Symbol]) -> StepValues:
        """The values of steps and bounds, of which those among `symbols` that are inner ends are known at the point."""
        if not self.outer:
            return env
        used = {bound: steps for bound, steps in self.outer.items() if bound in symbols and set(steps) <= env.keys()}
        return {**env, **{bound: self.end(bound, tuple((step, env[step]) for step in steps)) for bound, steps in used.items()}}

    def end(self, bound: Symbol, at: tuple[tuple[Symbol, int], ...]) -> int:
        """The bound of an inner step at a point of the outer steps: after the first point at which the condition holds."""
        if (bound, at) not in self.ends:
            node = self.graph.ends()[bound]
            points = ({**dict(at), node.domain.steps[-1]: k} for k in range(self.bounds[bound]))
            holds = (bool(self.read(node.inputs[0], point)) for point in points)
            self.ends[bound, at] = next((k + 1 for k, each in enumerate(holds) if each), self.bounds[bound])
        return self.ends[bound, at]

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

    def outside(self, source: Node, edge: Edge, env: StepValues, reader: Node | None, why: str) -> OutOfDomainError:
        if reader is None:
            return OutOfDomainError(f"an output reads {source.label} at {_index(edge)}: {why}", where=source.where)
        point = _text(reader.domain, env)
        return OutOfDomainError(f"{reader.label} reads {source.label} at {_index(edge)}: {why}; {point}", where=reader.where)


class _Dry(_Oracle):
    """An oracle that goes through the needs of values, and computes nothing."""

    def needs(self, place: Place) -> tuple[tuple[_Read, ...], list[Place]]:
        node = self.graph[place[0]]
        if isinstance(node.op, Slice):
            length = (node.op.stop - node.op.start).evaluate(self.env(node.domain, place[1]))
            if length < 0:
                raise IndexingError(f"{node.label} stops before it starts at {place[1]}", where=node.where)
        return super().needs(place)

    def computed(self, place: Place, reads: Sequence[_Read]) -> tuple[Array, ...]:
        return ()


def _stacked(values: Mapping[At, Any], sizes: tuple[int, ...], static: bool) -> Any:
    """Values by position as one array if `static`, else as nested lists."""
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
