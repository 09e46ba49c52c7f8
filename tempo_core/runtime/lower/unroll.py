"""Loops that are written out, and the inputs and stores that then lie as one array for each point of their step.

    for l in 0:12:            after[t, 0]     with twelve arrays in place of the input w[12, 64, 64],
      after[t, l]        ->   after[t, 1]     and a store for each l in place of one for all
                              ...

XLA's CPU compiler cannot read an operand of a product out of a larger array. In a loop over layers, it copies the weights of a layer
before each product. It does so in a written-out loop too, unless the weights of each layer are an array of their own. So loops are
written out for the sake of the arrays that can be split, where the copies take long. XLA's compiler for GPUs copies them too.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Union

from tempo_core import prices
from tempo_core.ir.graph import Graph, Key, Node
from tempo_core.ir.ops import Dataflow, Eval, Gather, Input, Sink, Udf
from tempo_core.schedule import Execute, Loop, Storage
from tempo_core.schedule.tree import Item, loop_label, with_loops
from tempo_core.symbolic.domain import Point
from tempo_core.symbolic.expr import Expr, IntoExpr, Symbol
from tempo_core.target import Target, compared

Name = Union[str, Key]  # an array of a program: an input by its name, a store by its key


@dataclass(frozen=True)
class Unrolled:
    """`loops` are written out. `inputs` (by name) lie as one array for each element of an axis, `stores` for each slot of a step."""

    loops: tuple[Loop, ...] = ()
    inputs: Mapping[str, int] = field(default_factory=dict)
    stores: Mapping[Key, int] = field(default_factory=dict)
    compared: tuple[str, ...] = ()  # the loops over arrays that can be split, with the seconds that decided

    def text(self, graph: Graph, target: Target) -> str:
        """The loops that are written out, a line each, with the cost."""
        lines = []
        for loop in self.loops:
            count = operations(loop.body, graph)
            seconds = count * trips(loop) * target.compile
            limits = f"for {loop.counter} in {loop.start}:{loop.stop}"
            lines.append(f"{limits}: {trips(loop)} times {count} operations, about {seconds:.1g} s of XLA's compile time")
        return "\n".join(lines)

    def writes_out(self, loop: Loop) -> bool:
        """Whether a loop is one of `loops`, perhaps with its outer counters at other values."""
        return any(
            loop.counter == other.counter and loop.start == other.start and loop.stop == other.stop for other in self.loops
        )


def unrolled(root: Item, graph: Graph, storage: Mapping[Key, Storage], bounds: Mapping[Symbol, int], target: Target) -> Unrolled:
    """The loops of a program that are to be written out, and the arrays that are to be split."""
    candidates = {id(loop): loop for loop, _ in _loops(root) if _may_be_written_out(loop, graph)}
    if not candidates:
        return Unrolled()
    accesses = [access for execute, around in with_loops(root) for access in _accesses(execute, around, graph, storage, bounds)]
    axes = _split(accesses, candidates.values())
    of_loop: dict[int, set[tuple[Name, Expr]]] = {}  # by loop: the arrays that can be split, with the element that it takes
    for access in accesses:
        for loop in access.around if access.array in axes else ():
            if id(loop) in candidates:
                of_loop.setdefault(id(loop), set()).add((access.array, access.at[axes[access.array]]))

    texts: dict[str, None] = {}

    def pays(loop: Loop, is_repeated: bool = True) -> bool:
        """Whether the copies of an iteration take longer than it is worth: some seconds, and the share of a run in those of compiling.

        A loop inside of another one runs more often, so for a short one the latter do not count.
        """
        size = sum(_part_bytes(array, axes[array], graph, bounds) for array, _ in of_loop.get(id(loop), ()))
        count = operations(loop.body, graph)
        every = trips(loop) * count
        is_cheap = is_repeated and every <= prices.OPERATIONS_OF_A_LONG_LOOP
        compiling = 0.0 if is_cheap else count * target.compile / prices.RUNS
        copies, least = target.of_copy(size), max(prices.LEAST_SECONDS_OF_COPIES, compiling)
        is_short = every <= prices.MOST_OPERATIONS_TO_UNROLL
        if size and is_short:
            texts[compared({f"{loop_label(loop)}: copies of an iteration": copies, "written out from": least})] = None
        return size > 0 and copies >= least and is_short

    dear = [loop for loop, around in _loops(root) if id(loop) in candidates and pays(loop, bool(around))]
    arrays = {array for loop in dear for array, _ in of_loop[id(loop)]}
    # An inner loop of few iterations may have become statements at numbers already.
    arrays |= {a.array for a in accesses if a.array in axes and a.around and a.at[axes[a.array]].is_constant}
    # The last iteration of an outer loop may stand behind it, with a copy of the inner loop.
    touching = [loop for key, loop in candidates.items() if arrays & {array for array, _ in of_loop.get(key, ())} and pays(loop)]
    axes = _split(accesses, touching)
    loops = [loop for loop in touching if any(array in axes for array, _ in of_loop[id(loop)])]
    inputs = {array: axis for array, axis in axes.items() if isinstance(array, str)}
    stores = {array: axis for array, axis in axes.items() if not isinstance(array, str)}
    return Unrolled(tuple(loops), inputs, stores, tuple(texts))


def operations(item: Item, graph: Graph) -> int:
    """The number of array operations in an item, those of an inner loop counted once."""
    return sum(len(graph[execute.node].op.parts) for execute, _ in with_loops(item))


def trips(loop: Loop) -> int:
    """The number of iterations of a loop whose limits are numbers."""
    return max(0, -(-(loop.stop.constant - loop.start.constant) // loop.step))


# -- loops ------------------------------------------------------------------------------------------------------------


def _loops(root: Item) -> list[tuple[Loop, tuple[Loop, ...]]]:
    """The loops around statements, each with the loops around it, the outermost first."""
    loops = {id(loop): (loop, around[:k]) for _, around in with_loops(root) for k, loop in enumerate(around)}
    return list(loops.values())


def _may_be_written_out(loop: Loop, graph: Graph) -> bool:
    """Whether a loop has numbers as limits, no such loop inside, and a body that needs no host."""
    if not _has_numbers(loop) or any(_has_numbers(inner) for inner, _ in _loops(loop.body)):
        return False
    ops = (graph[execute.node].op for execute, _ in with_loops(loop.body))
    return not any(isinstance(op, Sink) or (isinstance(op, Udf) and op.kind == "host") for op in ops)


def _has_numbers(loop: Loop) -> bool:
    return loop.start.is_constant and loop.stop.is_constant


# -- arrays -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Access:
    """A read or a write of an array by a statement in the loops `around`: at a point along the axes (of a store: steps) in `at`."""

    array: Name
    at: Mapping[int, Expr]  # in counters
    around: tuple[Loop, ...]


def _split(accesses: Iterable[_Access], loops: Iterable[Loop]) -> dict[Name, int]:
    """The arrays that can be split once `loops` are written out, with the axis. Along it, all accesses are at numbers, not all at one."""
    counters = {id(loop): loop.counter for loop in loops}
    by_array: dict[Name, list[_Access]] = {}
    for access in accesses:
        by_array.setdefault(access.array, []).append(access)

    def is_number(at: Expr, around: tuple[Loop, ...]) -> bool:
        return at.symbols <= {counters[id(loop)] for loop in around if id(loop) in counters}

    axes: dict[Name, int] = {}
    for array, of_array in by_array.items():
        for axis in of_array[0].at:
            everywhere = all(axis in a.at and is_number(a.at[axis], a.around) for a in of_array)
            if everywhere and any(a.at[axis].symbols for a in of_array):
                axes.setdefault(array, axis)
    return axes


def _accesses(
    execute: Execute, around: tuple[Loop, ...], graph: Graph, storage: Mapping[Key, Storage], bounds: Mapping[Symbol, int]
) -> Iterator[_Access]:
    """What a statement reads and writes."""
    node = graph[execute.node]
    point: dict[Symbol, IntoExpr] = {**bounds, **dict(zip(node.domain.steps, execute.point, strict=True))}
    for position, edge in enumerate(node.operands(execute.branch)):
        source, key = graph[edge.source].op, (edge.source, edge.output)
        if isinstance(source, Input):
            yield from (_Access(source.name, at, around) for at in _picked(node, position, point))
        elif key in storage:
            points = {k: index.expr for k, index in enumerate(edge.index) if isinstance(index, Point)}
            yield _Access(key, _among_slots(points, storage[key], point), around)
    for output in range(len(node.outputs)):
        points = {k: step.expr for k, step in enumerate(node.domain.steps)}
        key = (node.id, output)
        yield _Access(key, _among_slots(points, storage[key], point), around)


def _among_slots(points: Mapping[int, Expr], storage: Storage, point: Mapping[Symbol, IntoExpr]) -> dict[int, Expr]:
    return {k: at.substitute(point) for k, at in points.items() if storage.slots[k] > 1}


def _picked(node: Node, position: int, point: Mapping[Symbol, IntoExpr]) -> Iterator[dict[int, Expr]]:
    """For each use of an operand in an island: the axis along which it takes one element, and that element. Nothing for other uses."""
    if not isinstance(node.op, Dataflow):
        yield {}
        return
    body = node.op.body
    evals = ((op.value, targets[0]) for op, _, targets in body.instructions if isinstance(op, Eval))
    values = {slot: value for value, slot in evals if isinstance(value, Expr)}
    for op, sources, _ in body.instructions:
        if position not in sources:
            continue
        if isinstance(op, Gather) and not op.batch and sources[0] == position and sources[1] in values:
            yield {op.axis: values[sources[1]].substitute(point)}
        else:
            yield {}
    if position in body.results:
        yield {}


def takes_elements(node: Node, position: int) -> bool:
    """Whether an island takes nothing of an operand but elements at steps."""
    uses = list(_picked(node, position, {}))
    return bool(uses) and all(uses)


def _part_bytes(array: Name, axis: int, graph: Graph, bounds: Mapping[Symbol, int]) -> int:
    """The bytes of one of the arrays into which an array is split."""
    if isinstance(array, str):
        type = graph.fed()[array].outputs[0]
        return type.size_in_bytes(bounds) // max(1, type.shape[axis].evaluate(bounds))
    return graph[array[0]].outputs[array[1]].size_in_bytes(bounds)
