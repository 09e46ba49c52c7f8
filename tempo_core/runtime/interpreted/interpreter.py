"""The interpreter runs a scheduled program statement by statement: for stepping, debugging, NumPy, and shapes that vary."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tempo_core.backends.base import Array, Backend, call_host, numpy_dtype
from tempo_core.backends.numpy_backend import NumpyBackend
from tempo_core.ir.graph import Graph, Node
from tempo_core.ir.names.naming import names
from tempo_core.ir.ops import Dataflow, End, Merge, Op, Output, Sink, Udf
from tempo_core.ir.types import is_float
from tempo_core.ir.udf import Fed
from tempo_core.runtime import walk
from tempo_core.runtime.feeds import NOTHING, Feed, Feeds
from tempo_core.runtime.interpreted.stores import Coordinates, Executed, Reader, Stores
from tempo_core.runtime.numerics import Returned, Watch, find, flag, host_call
from tempo_core.runtime.staged.chunks import counted_steps
from tempo_core.runtime.staged.host import statements
from tempo_core.runtime.walk import Walk, evaluator, span
from tempo_core.schedule import Block, Dealloc, Execute, If, Loop, Scheduled, leaves, schedule
from tempo_core.schedule.build import chosen_value
from tempo_core.schedule.tree import Item, outer_point
from tempo_core.symbolic.expr import StepValues, Symbol


@dataclass(eq=False)
class State:
    """The parts of a run that change as it goes. `counters` also has the points of the steps that the run takes one point of, as far as known."""

    stores: Stores
    results: dict[int, Any]
    streams: Mapping[str, Feed]
    counters: dict[Symbol, int]
    ends: dict[tuple[Symbol, Coordinates], int] = field(default_factory=dict)  # the last points of inner steps, by outer point


class Interpreter:
    """Runs a scheduled program on a backend. Nothing is kept from run to run.

    The program's `Dealloc` statements drop values. A value without such a statement is dropped when another takes its slot.
    """

    def __init__(
        self, scheduled: Scheduled, backend: Backend, seed: int = 0, watch: Watch | None = None, repeated: Returned | None = None
    ):
        """`watch` looks for values that are not finite.

        With `repeated`, this is a repetition of a run: `repeated` holds the values that host functions returned in that run, by
        node and point. Stateful functions are not called again, and sinks are not called at all.
        """
        self.scheduled, self.graph, self.bounds, self.backend = scheduled, scheduled.graph, scheduled.bounds, backend
        self.seed = np.uint32(seed & 0xFFFFFFFF)
        self.watch, self.repeated = watch, repeated
        self.names = names(scheduled.graph)
        freed = {(leaf.node, leaf.output) for leaf in leaves(scheduled.root) if isinstance(leaf, Dealloc)}
        self.storage = {key: storage for key, storage in scheduled.storage.items() if key not in freed}
        self.statements: dict[tuple[int, int | None], Statement] = {}
        self.places = itertools.count()
        self.tree = self._nodes(scheduled.root, ())

    def run(self, fed: Feeds = NOTHING) -> dict[int, Any]:
        """The value of each output, by position: as its edge reads it, after leading dimensions for the steps of the output's domain."""
        state = self.state(fed)
        for _ in self.steps(state):
            pass
        return state.results

    def state(self, fed: Feeds = NOTHING) -> State:
        """The state at the start of a run."""
        arrays = {name: fed.fit(name, array) for name, array in fed.arrays.items()}
        return State(Stores(self.graph, self.bounds, self.backend, arrays, self.storage), {}, fed.streams, dict(fed.chosen))

    def steps(self, state: State) -> Iterator[Executed]:
        """Run statement by statement, stopping after each one."""
        return Walk(self.tree, state).events

    # -- the program, prepared once -----------------------------------------------------------------------------------

    def _nodes(self, item: Item, around: tuple[Symbol, ...]) -> list[walk.Node[State]]:
        """An item as a tree. `around` are the counters of the loops around it."""
        if isinstance(item, Block):
            return [node for child in item.children for node in (*self._inner_ends(child, around), *self._nodes(child, around))]
        if isinstance(item, Loop):
            steps = counted_steps(item.counter, statements(item), self.graph)
            body = self._nodes(item.body, (*around, item.counter))
            return [walk.Loop(item, steps, self.bounds, body, body)]
        if isinstance(item, If):
            then, orelse = self._nodes(item.then, around), self._nodes(item.orelse or Block(), around)
            return [walk.Branch(evaluator(item.condition, self.bounds), then, orelse)]
        return [walk.Leaf(self._execute(item, around) if isinstance(item, Execute) else self._dealloc(item))]

    def _inner_ends(self, item: Item, around: tuple[Symbol, ...]) -> Iterator[walk.Node[State]]:
        """What takes up the ends of inner steps at the outer point of an item."""
        for last, steps in self.graph.outer().items():
            point = outer_point(item, self.graph, steps) if last in self.graph.chosen else None
            if point is not None and all(part.symbols <= {*around, *self.bounds} for part in point):
                parts = [evaluator(part, self.bounds) for part in point]
                yield walk.Leaf(functools.partial(self._take_up, last, parts))

    def _take_up(self, last: Symbol, point: Sequence[walk.Evaluator], state: State) -> None:
        at = tuple(part(state.counters) for part in point)
        state.counters[chosen_value(last)] = state.ends.get((last, at), self.bounds[last.bound_symbol] - 1)

    def _execute(self, item: Execute, around: tuple[Symbol, ...]) -> Callable[[State], Executed]:
        key = (item.node, item.branch)
        if key not in self.statements:
            self.statements[key] = Statement(self, self.graph[item.node], item.branch)
        statement, place = self.statements[key], next(self.places)
        point = [evaluator(part, self.bounds) for part in item.point]
        name = self.names[item.node] + ("" if item.branch is None else f"|{item.branch}")
        shown = (*around, *map(chosen_value, self.graph.chosen))

        def run(state: State) -> Executed:
            at = tuple(part(state.counters) for part in point)
            counters = {counter: state.counters[counter] for counter in shown}
            operands, values = statement.run(state, at)
            text = f"{name}[{', '.join(map(str, at))}]" if at else name
            return Executed(text, at, values, operands, statement.node, item.branch, place, counters)

        return run

    def _dealloc(self, item: Dealloc) -> Callable[[State], None]:
        spans = [span(part, self.bounds) for part in item.point]
        key = (item.node, item.output)
        return lambda state: state.stores.free(key, itertools.product(*(of(state.counters) for of in spans)))


class Statement:
    """A node, or one branch of a `Merge`, prepared to run at any point."""

    def __init__(self, interpreter: Interpreter, node: Node, branch: int | None):
        self.graph, self.node, self.bounds, self.backend = interpreter.graph, node, interpreter.bounds, interpreter.backend
        self.seed, self.watch, self.repeated = interpreter.seed, interpreter.watch, interpreter.repeated
        self.places = [k for k, step in enumerate(node.domain.steps) if step not in self.graph.chosen]  # of the user's steps
        self.readers = [Reader(interpreter.graph, node, edge, interpreter.bounds) for edge in node.operands(branch)]
        self.compute = self._kernel()

    def run(self, state: State, at: Coordinates) -> tuple[tuple[Array, ...], tuple[Array, ...]]:
        """Read operands, compute values and store them, at point `at`. Returns the operands and the values."""
        node = self.node
        env = dict(zip(node.domain.steps, at, strict=True))
        operands = tuple(read(state.stores, env) for read in self.readers)
        on_host = isinstance(node.op, Udf) and node.op.kind == "host"
        if self.watch is not None and (on_host or isinstance(node.op, (Output, Sink, Merge))):
            self.watch.saw(flag(operands), node.where)
        seen = tuple(at[k] for k in self.places)  # the point as the user sees it
        if isinstance(node.op, Output):
            self._give(state.results, node.op.position, seen, operands[0])
            return operands, operands
        if isinstance(node.op, End):
            (last,) = node.op.bound.symbols
            if last in self.graph.chosen and bool(self.backend.to_host(operands[0])):
                state.counters[chosen_value(last)] = min(state.counters[chosen_value(last)], seen[-1])
                state.ends[last, seen[:-1]] = state.counters[chosen_value(last)]
            return operands, ()
        if isinstance(node.op, Sink):
            if self.repeated is not None:
                return operands, ()
            arrays = [np.array(self.backend.to_host(x)) for x in operands]  # the function may keep and change them
            point = {node.domain.steps[k].name: at[k] for k in self.places}
            call_host(f"sink `{node.op.name}`", node.op.fn, node.where, arrays, point, takes_point=True)
            return operands, ()
        if isinstance(node.op, Merge):
            values = operands
        elif on_host and self.repeated is not None:
            values = self._repeat(self.repeated, operands, env, seen)
        elif isinstance(node.op, Udf) and isinstance(node.op.fn, Fed):
            values = (self.backend.to_device(state.streams[node.op.fn.name].take(seen)),)
        else:
            values = self.compute(operands, env)
        if on_host and self.watch is not None:
            self.watch.record(node, seen, values)
        for output, value in enumerate(values):
            state.stores.put((node.id, output), tuple(n if k in self.places else 0 for k, n in enumerate(at)), value)
        return operands, values

    def _repeat(self, repeated: Returned, operands: tuple[Array, ...], env: StepValues, at: Coordinates) -> tuple[Array, ...]:
        """The values that a host function returned at `at` in the run that is repeated.

        A stateful function that was not called there gives NaN.
        """
        op = self.node.op
        assert isinstance(op, Udf)
        values = repeated.get((host_call(self.node), at))
        if values is None and not op.stateful:
            return self.compute(operands, env)
        if values is None:
            shapes = [tuple(int(size.evaluate({**self.bounds, **env})) for size in type.shape) for type in op.types]
            values = tuple(
                np.full(shape, np.nan if is_float(type.dtype) else 0, numpy_dtype(type.dtype))
                for shape, type in zip(shapes, op.types, strict=True)
            )
        return tuple(map(self.backend.to_device, values))

    def _kernel(self) -> Callable[[tuple[Array, ...], StepValues], tuple[Array, ...]]:
        """The node's kernel: compiled, unless its shapes change from point to point."""
        op, backend, bounds, seed = self.node.op, self.backend, self.bounds, self.seed
        on_host = isinstance(op, Udf) and op.kind == "host"
        if on_host or not _is_static(self.graph, self.node):
            return lambda operands, env: backend.kernel(op, operands, {**bounds, **env}, seed)
        steps = tuple(sorted((s for s in op.symbols if s.is_step), key=lambda s: s.name))
        sizes = bounds if isinstance(op, Dataflow) else {s: bounds[s] for s in op.symbols if not s.is_step}
        used = tuple(sorted(sizes.items(), key=lambda item: item[0].name))
        if isinstance(op, (Udf, Dataflow)):  # only this program has such an op
            key = (op, steps, used)
            if key not in backend.compiled:
                backend.compiled[key] = _compiled(backend, op, steps, used)
            function = backend.compiled[key]
        else:
            function = _shared(type(backend), op, steps, used)
        return lambda operands, env: function(operands, [np.int32(env[s]) for s in steps], seed)

    def _give(self, results: dict[int, Any], position: int, at: Coordinates, value: Any) -> None:
        if not at:
            results[position] = value if isinstance(value, list) else self.backend.to_host(value)
            return
        array = self.backend.to_host(value)
        if position not in results:
            lengths = tuple(self.node.domain.steps[k].bound_expr.evaluate(self.bounds) for k in self.places)
            results[position] = np.zeros((*lengths, *array.shape), array.dtype)
        results[position][at] = array


def _is_static(graph: Graph, node: Node) -> bool:
    slots = node.op.body.slot_types if isinstance(node.op, Dataflow) else ()
    return all(type.is_static for type in (*graph.input_types(node), *node.outputs, *slots))


Steps = tuple[Symbol, ...]
Used = tuple[tuple[Symbol, int], ...]  # the bounds in an op's parameters, with their numbers


def _compiled(backend: Backend, op: Op, steps: Steps, used: Used) -> Callable[..., tuple[Array, ...]]:
    """The kernel of `op` as a function of (operands, values of `steps`, seed)."""

    def function(operands: list[Array], values: list[Any], seed: Any) -> tuple[Array, ...]:
        return backend.kernel(op, operands, {**dict(used), **dict(zip(steps, values, strict=True))}, seed)

    return backend.compile(function)


@functools.lru_cache(maxsize=4096)
def _shared(kind: type[Backend], op: Op, steps: Steps, used: Used) -> Callable[..., tuple[Array, ...]]:
    """The compiled kernel of an op. Equal ops of all nodes, programs and runs share one function."""
    return _compiled(kind(), op, steps, used)


def watched(source: Graph, bounds: Mapping[Symbol, int], fed: Feeds, seed: int) -> Watch:
    """A watch for values that are not finite in a run: when one reaches an output, a host function or a recurrence.

    Then the program as it was written, `source`, runs in NumPy to find where that began.
    """

    def search(watch: Watch) -> None:
        interpreter = Interpreter(schedule(source, bounds), NumpyBackend(), seed, repeated=watch.returned)
        find(source, bounds, fed.arrays, watch.returned, interpreter.steps(interpreter.state(Feeds(fed.arrays, {}))))

    return Watch(search)
