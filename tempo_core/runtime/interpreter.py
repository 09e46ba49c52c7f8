"""The interpreter: a scheduled program, statement by statement. For stepping, debugging, NumPy, and shapes that vary."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np

from tempo_core.backends.base import Array, Backend, numpy_dtype
from tempo_core.errors import NumericsError
from tempo_core.ir.graph import Graph, Node
from tempo_core.ir.ops import Constant, Dataflow, Merge, Op, Output, Sink, Udf
from tempo_core.ir.types import is_float
from tempo_core.runtime.stores import Coordinates, Env, Number, Reader, Stores, number
from tempo_core.schedule import Block, Dealloc, Evict, Execute, If, Load, Loop, Scheduled, leaves
from tempo_core.schedule.program import Item, Leaf, names
from tempo_core.symbolic.domain import Point, Range
from tempo_core.symbolic.expr import Symbol


class Executed(NamedTuple):
    """A statement that ran: its text (`w|1[0, 3]`), the point of its node, and the values that it gave."""

    statement: str
    point: Coordinates
    values: tuple[Array, ...]


class _State(NamedTuple):
    """What one run changes."""

    stores: Stores
    results: dict[int, Any]


Runs = Callable[[_State, Env], Iterator[Executed]]  # an item of the program: what it runs at given loop counters


class Interpreter:
    """Runs a scheduled program on a backend. Nothing is kept from run to run.

    Values are dropped by the program's `Dealloc` statements; those that have none, when another value takes their slot.
    """

    def __init__(self, scheduled: Scheduled, backend: Backend, seed: int = 0, check_numerics: bool = False):
        self.graph, self.bounds, self.backend = scheduled.graph, scheduled.bounds, backend
        self.seed = np.uint32(seed & 0xFFFFFFFF)
        self.check_numerics = check_numerics
        self.names = names(scheduled.graph)
        freed = {(leaf.node, leaf.output) for leaf in leaves(scheduled.root) if isinstance(leaf, Dealloc)}
        self.slots = {key: storage.slots for key, storage in scheduled.storage.items() if key not in freed}
        self.statements: dict[tuple[int, int | None], _Statement] = {}
        self.root = self._prepared(scheduled.root)

    def run(self, inputs: Mapping[str, Any]) -> dict[int, Any]:
        """The value of each output by position: as read by its edge, under leading dimensions for steps of its own domain."""
        state = self._state(inputs)
        for _ in self.root(state, {}):
            pass
        return state.results

    def steps(self, inputs: Mapping[str, Any]) -> Iterator[Executed]:
        """Run statement by statement, stopping after each one."""
        return self.root(self._state(inputs), {})

    def _state(self, inputs: Mapping[str, Any]) -> _State:
        return _State(Stores(self.graph, self.bounds, self.backend, inputs, self.slots), {})

    # -- the program, prepared once -----------------------------------------------------------------------------------

    def _prepared(self, item: Item) -> Runs:
        if isinstance(item, Block):
            return self._block(item)
        if isinstance(item, Loop):
            return self._loop(item)
        if isinstance(item, If):
            return self._if(item)
        return self._execute(item) if isinstance(item, Execute) else self._memory(item)

    def _block(self, block: Block) -> Runs:
        children = [self._prepared(child) for child in block.children]

        def run(state: _State, counters: Env) -> Iterator[Executed]:
            for child in children:
                yield from child(state, counters)

        return run

    def _loop(self, loop: Loop) -> Runs:
        start, stop, body = number(loop.start, self.bounds), number(loop.stop, self.bounds), self._prepared(loop.body)

        def run(state: _State, counters: Env) -> Iterator[Executed]:
            for value in range(start(counters), stop(counters), loop.step):
                yield from body(state, {**counters, loop.counter: value})

        return run

    def _if(self, item: If) -> Runs:
        condition, then, orelse = (
            number(item.condition, self.bounds),
            self._prepared(item.then),
            self._prepared(item.orelse or Block()),
        )

        def run(state: _State, counters: Env) -> Iterator[Executed]:
            yield from (then if condition(counters) else orelse)(state, counters)

        return run

    def _execute(self, item: Execute) -> Runs:
        key = (item.node, item.branch)
        if key not in self.statements:
            self.statements[key] = _Statement(self, self.graph[item.node], item.branch)
        statement = self.statements[key]
        point = [number(part, self.bounds) for part in item.point]
        name = self.names[item.node] + ("" if item.branch is None else f"|{item.branch}")

        def run(state: _State, counters: Env) -> Iterator[Executed]:
            at = tuple(part(counters) for part in point)
            values = statement.run(state, at)
            yield Executed(f"{name}[{', '.join(map(str, at))}]" if at else name, at, values)

        return run

    def _memory(self, item: Leaf) -> Runs:
        assert isinstance(item, (Dealloc, Evict, Load))
        key = (item.node, item.output)
        parts: list[tuple[Number, Number, int]] = []
        for part in item.point:
            if isinstance(part, Range):
                parts.append((number(part.start, self.bounds), number(part.stop, self.bounds), part.stride))
            else:
                first = part.expr if isinstance(part, Point) else part
                parts.append((number(first, self.bounds), number(first + 1, self.bounds), 1))

        def run(state: _State, counters: Env) -> Iterator[Executed]:
            points = itertools.product(*(range(first(counters), after(counters), stride) for first, after, stride in parts))
            if isinstance(item, Dealloc):
                state.stores.free(key, points)
            else:
                state.stores.move(key, points, self.backend.to_host if isinstance(item, Evict) else self.backend.to_device)
            return iter(())

        return run


class _Statement:
    """A node, or one branch of a `Merge`, ready to run at any point."""

    def __init__(self, interpreter: Interpreter, node: Node, branch: int | None):
        self.graph, self.node, self.bounds, self.backend = interpreter.graph, node, interpreter.bounds, interpreter.backend
        self.seed, self.check_numerics = interpreter.seed, interpreter.check_numerics
        edges = node.inputs if branch is None else (node.inputs[branch],)
        self.readers = [Reader(interpreter.graph, node, edge, interpreter.bounds) for edge in edges]
        self.compute = self._kernel()

    def run(self, state: _State, at: Coordinates) -> tuple[Array, ...]:
        """Read, compute and store the values at point `at`."""
        node = self.node
        env = dict(zip(node.domain.steps, at, strict=True))
        operands = [read(state.stores, env) for read in self.readers]
        if isinstance(node.op, Output):
            self._give(state.results, node.op.position, at, operands[0])
            return tuple(operands)
        if isinstance(node.op, Sink):
            arrays = [np.array(self.backend.to_host(x)) for x in operands]  # the function may keep and change them
            node.op.fn(*arrays, **{step.name: value for step, value in zip(node.domain.steps, at, strict=True)})
            return tuple(operands)
        values = tuple(operands) if isinstance(node.op, Merge) else self.compute(operands, env)
        if self.check_numerics:
            self._check(operands, values, at)
        for output, value in enumerate(values):
            state.stores.put((node.id, output), at, value)
        return values

    def _kernel(self) -> Callable[[list[Array], Env], tuple[Array, ...]]:
        """The node's kernel: compiled where nothing in its shapes changes from point to point."""
        op, backend, bounds, seed = self.node.op, self.backend, self.bounds, self.seed
        on_host = isinstance(op, Udf) and op.kind == "host"
        if on_host or not _is_static(self.graph, self.node):
            return lambda operands, env: backend.kernel(op, operands, {**bounds, **env}, seed)
        steps = tuple(sorted((s for s in op.symbols if s.is_step), key=lambda s: s.name))
        used = tuple(sorted(((s, bounds[s]) for s in op.symbols if not s.is_step), key=lambda item: item[0].name))
        if isinstance(op, (Udf, Dataflow)):  # of this program alone
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
            lengths = tuple(step.bound_expr.evaluate(self.bounds) for step in self.node.domain.steps)
            results[position] = np.zeros((*lengths, *array.shape), array.dtype)
        results[position][at] = array

    def _check(self, operands: list[Array], values: tuple[Array, ...], at: Coordinates) -> None:
        """Raise NumericsError where NaN comes of no NaN, or infinities of finite numbers.

        Infinities that a program writes itself, as masks do, may move through it.
        """
        for value, type in zip(values, self.node.outputs, strict=True):
            if not is_float(type.dtype):
                continue
            array = self.backend.to_host(value).astype(np.float64)
            if np.isfinite(array).all():
                continue
            before = [self.backend.to_host(x).astype(np.float64) for x in operands]
            is_nan = bool(np.isnan(array).any() and not any(np.isnan(x).any() for x in before))
            is_infinite = bool(
                np.isinf(array).any() and all(np.isfinite(x).all() for x in before) and not _has_infinity(self.node.op)
            )
            if is_nan or is_infinite:
                point = ", ".join(f"{step.name}={value}" for step, value in zip(self.node.domain.steps, at, strict=True))
                raise NumericsError(
                    f"{self.node.label} is {'not a number' if is_nan else 'infinite'} at ({point})",
                    where=self.node.where,
                    hint="its operands are finite; look at what they are with program.step()",
                )


def _is_static(graph: Graph, node: Node) -> bool:
    slots = node.op.body.slot_types if isinstance(node.op, Dataflow) else ()
    return all(type.is_static for type in (*graph.input_types(node), *node.outputs, *slots))


def _has_infinity(op: Op) -> bool:
    """Whether an island holds a literal that is not finite."""
    if isinstance(op, Dataflow):
        return any(_has_infinity(inner) for inner, _, _ in op.body.instructions)
    return (
        isinstance(op, Constant)
        and is_float(op.dtype)
        and not np.isfinite(np.frombuffer(op.data, numpy_dtype(op.dtype)).astype(float)).all()
    )


Steps = tuple[Symbol, ...]
Used = tuple[tuple[Symbol, int], ...]  # the bounds in an op's parameters, with their numbers


def _compiled(backend: Backend, op: Op, steps: Steps, used: Used) -> Callable[..., tuple[Array, ...]]:
    """The kernel of `op` as a function of (operands, values of `steps`, seed)."""

    def function(operands: list[Array], values: list[Any], seed: Any) -> tuple[Array, ...]:
        return backend.kernel(op, operands, {**dict(used), **dict(zip(steps, values, strict=True))}, seed)

    return backend.compile(function)


@functools.lru_cache(maxsize=4096)
def _shared(kind: type[Backend], op: Op, steps: Steps, used: Used) -> Callable[..., tuple[Array, ...]]:
    """Equal ops share one function, whichever node, program or run they are of."""
    return _compiled(kind(), op, steps, used)
