"""Lowering: a part of a program that needs no host becomes one traceable function of its stores."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from tempo_core import prices
from tempo_core.backends.base import Backend, Call, Parts, is_static
from tempo_core.backends.island import counter, keep, ordered
from tempo_core.backends.products import with_shares
from tempo_core.backends.scopes import loop_scope, statement_scope
from tempo_core.ir.graph import Edge, Graph, Key, Node
from tempo_core.ir.ops import Dataflowed, End, Merge, Output
from tempo_core.runtime.lower import padding
from tempo_core.runtime.lower.one_way import marked
from tempo_core.runtime.lower.placement import Placement, Stores, maximum, minimum
from tempo_core.runtime.lower.registers import Operand, Place, Registers, place, registers
from tempo_core.runtime.lower.unroll import Unrolled, takes_elements
from tempo_core.runtime.numerics import FLAG, traced_flag
from tempo_core.runtime.staged.chunks import counted_steps
from tempo_core.runtime.staged.host import statements
from tempo_core.runtime.staged.spread import Spread
from tempo_core.schedule import Block, Execute, If, Loop, Storage
from tempo_core.schedule.build import chosen_value
from tempo_core.schedule.tree import Item, loop_label, outer_point
from tempo_core.symbolic.domain import Point, Range
from tempo_core.symbolic.expr import Expr, StepValues, Symbol
from tempo_core.target import Target


@dataclass(frozen=True)
class _Latest:
    """A value, its place in loop counters, the counters, and the store that took it."""

    array: Any
    place: Place
    counters: StepValues
    value: Any


@dataclass(frozen=True)
class Frame:
    """What an item reads beside its stores: the arrays that are fed, the seed, and the values of loop counters."""

    inputs: Mapping[str, Any]
    seed: Any
    counters: StepValues

    def at(self, counter: Symbol, value: Any) -> Frame:
        return replace(self, counters={**self.counters, counter: value})


class Lowering(Placement):
    """Runs program items on traced stores. `bounds` are numbers; loop counters may be traced."""

    def __init__(
        self,
        graph: Graph,
        storage: Mapping[Key, Storage],
        bounds: Mapping[Symbol, int],
        backend: Backend,
        unrolled: Unrolled | None = None,
        without: Collection[str] = (),
        spread: Spread | None = None,
        target: Target | None = None,
    ):
        super().__init__(graph, storage, bounds, backend, unrolled, spread)
        self.ends: dict[Symbol, Key] = {
            chosen_value(last): (-2 - number, 0) for number, last in enumerate(graph.ends()) if last in graph.chosen
        }  # by the symbol of a step's last point: the store that has it while the program runs
        self.outer = {chosen_value(last): steps for last, steps in graph.outer().items() if last in graph.chosen}
        self.target = target or Target.at_hand()
        self.without = without  # of the choices in `config.CHOICES`, those that are switched off
        self._handed: dict[Operand, Any] = {}  # operands that an iteration took over from the one before
        self._updated: frozenset[Key] = frozenset()  # the values that the loop updates in place
        # By value that is updated, or store that is written alone: the iteration's last read of it.
        self._tokens: dict[Key, Any] = {}
        self._latest: dict[Key, _Latest] = {}  # what each store of several slots took last
        self.is_differentiable = False  # loops whose lengths are numbers, and others marked as such, for JAX's derivatives

    # -- items --------------------------------------------------------------------------------------------------------

    def run(self, item: Item, stores: Stores, frame: Frame, live: frozenset[Key]) -> None:
        """Run an item on `stores`, in place. `live` are the stores that are needed after the item."""
        frame = replace(frame, counters=self.now(frame.counters, stores, item))
        if isinstance(item, Block):
            self._block(item, stores, frame, live)
        elif isinstance(item, Loop):
            with loop_scope(loop_label(item)):
                self._loop(item, stores, frame, live)
        elif isinstance(item, If):
            self._if(item, stores, frame, live)
        elif isinstance(item, Execute):
            self.execute(item, stores, frame)

    def execute(self, execute: Execute, stores: Stores, frame: Frame, predicate: Any = None) -> None:
        """Run a statement; where `predicate` does not hold, its store stays as it is."""
        with statement_scope(execute.node, execute.branch):
            self._execute(execute, stores, frame, predicate)

    def _block(self, block: Block, stores: Stores, frame: Frame, live: frozenset[Key]) -> None:
        after = [live]
        for child in reversed(block.children):
            effects = self.liveness.of(child)
            after.append((after[-1] - effects.defines) | effects.needs)
        for child, needed in zip(block.children, reversed(after[:-1]), strict=True):
            self.run(child, stores, frame, needed)

    def _loop(self, loop: Loop, stores: Stores, frame: Frame, live: frozenset[Key]) -> None:
        if self.unrolled.writes_out(loop):
            needs = live | self.liveness.of(loop.body).needs
            for at in range(loop.start.constant, loop.stop.constant, loop.step):
                self.run(loop.body, stores, frame.at(loop.counter, at), needs)
            return
        registers = self._registers(loop, live)
        effects = registers.effects(self.liveness)
        kept = {key: place for key, place in registers.kept.items() if key in effects.writes - effects.needs}
        carried = [*sorted((effects.writes & (effects.needs | live)) - kept.keys()), *self._flag(stores)]
        needed = frozenset(carried) | registers.needs_at_end(self.liveness)
        outer = dict(stores)
        start, stop = (self.value(e, frame.counters) for e in (loop.start, loop.stop))

        def body(count: Any, state: tuple[tuple[Any, ...], tuple[Any, ...], tuple[Any, ...]]) -> Any:
            arrays, last, values = state
            inner = {**outer, **dict(zip(carried, arrays, strict=True))}
            at = count if loop.step == 1 else start + count * loop.step
            with self._taking_over(loop, registers, last, values), self._at_outer_point(loop, inner, frame.at(loop.counter, at)):
                self.run(registers.body, inner, frame.at(loop.counter, at), needed)
            handed = self._handed_on(registers, inner, frame.at(loop.counter, at + loop.step))
            return tuple(inner[k] for k in carried), *handed

        for key in carried:
            self._ensure(key, stores)
        earlier, at_start = (frame.at(loop.counter, at).counters for at in (start - loop.step, start))
        last = tuple(self._value_at(key, place, stores, earlier) for key, place in registers.last.items())
        values = tuple(self._value_at((merge.node, 0), merge.point, stores, at_start) for merge in registers.merges)
        initial = (tuple(stores[k] for k in carried), last, values)
        if loop.stop.symbols & self.ends.keys():
            final = self._until(loop, start, frame.counters, body, carried, initial)
        elif loop.step == 1:
            final, _, values = lax.fori_loop(start, stop, body, initial)
        else:
            final, _, values = lax.fori_loop(0, (stop - start + loop.step - 1) // loop.step, body, initial)
        if self.is_differentiable and not (is_static(start) and is_static(stop)):
            final = self._one_way(loop, final)
        stores.update(zip(carried, final, strict=True))
        stores.update({key: values[place] for key, place in kept.items()})

    @contextmanager
    def _taking_over(self, loop: Loop, registers: Registers, last: Sequence[Any], values: Sequence[Any]) -> Iterator[None]:
        """The trace of one iteration, in which operands are those that the iteration before handed on: `last` and `values`."""
        before = self.read_at_once, self._handed, self._updated, self._tokens
        self.read_at_once, self._updated, self._tokens = self._ranges_in(loop.body), self._updated_in(loop.body), {}
        of_key = dict(zip(registers.last, last, strict=True))
        of_readers = {operand: of_key[key] for operand, key in registers.readers.items()}
        of_merges = {(id(merge), 0): value for merge, value in zip(registers.merges, values, strict=True)}
        self._handed = {**self._handed, **of_readers, **of_merges}
        yield
        self.read_at_once, self._handed, self._updated, self._tokens = before

    def _handed_on(self, registers: Registers, stores: Stores, following: Frame) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
        """What an iteration hands to the `following` one: the last values of stores, and the values of merges."""

        def of_merge(merge: Execute) -> Any:
            if id(merge) in registers.of_last:
                return self._latest[registers.of_last[id(merge)]].value
            return self.operands(merge, stores, following.inputs, following.counters)[0]

        return tuple(self._latest[key].value for key in registers.last), tuple(map(of_merge, registers.merges))

    def _until(self, loop: Loop, start: Any, counters: StepValues, body: Any, carried: Sequence[Key], initial: Any) -> Any:
        """A loop whose end its own body may find out: the end is looked at before each iteration."""
        assert loop.step == 1, "loops with strides end at numbers"

        def goes_on(state: Any) -> Any:
            at, (arrays, _, _) = state
            return at < self.value(loop.stop, self.now(counters, dict(zip(carried, arrays, strict=True)), loop))

        _, (final, _, _) = lax.while_loop(
            goes_on, lambda state: (state[0] + 1, body(*state)), (jnp.asarray(start, jnp.int32), initial)
        )
        return final

    def _one_way(self, loop: Loop, values: Any) -> Any:
        """The values of a loop whose length is known only in the device program, marked: JAX does not go through it backwards."""
        executes = statements(loop)
        steps = ", ".join(sorted(counted_steps(loop.counter, executes, self.graph))) or loop.counter.name
        nodes = [self.graph[execute.node] for execute in executes]
        where = next((node.where for node in nodes if isinstance(node.op, Merge)), nodes[0].where)
        message = f"JAX cannot differentiate backwards through the loop over {steps}: how often it runs is known only in the device program"
        hint = (
            'let Tempo differentiate: add (dw,) = tp.grad(loss, wrt=[w]) to the outputs, then program.as_jax(gradients={"loss": {"w": "dw"}}). '
            "Or differentiate forwards: jax.jvp"
        )
        return jax.tree.map(lambda value: marked(value, message, where, hint), values)

    def _registers(self, loop: Loop, live: frozenset[Key]) -> Registers:
        if "registers" in self.without:
            return Registers(loop.body)
        return registers(loop, self.graph, self.liveness, self.bounds, live, self.unrolled.stores)

    def _value_at(self, key: Key, place: Sequence[Expr], stores: Stores, counters: StepValues) -> Any:
        """The value that a store has at a place."""
        self._ensure(key, stores)
        if not self.liveness.is_store(key):
            return stores[key]
        edge = Edge(key[0], tuple(map(Point, place)), key[1])
        return self.read(edge, stores, {}, {**self.bounds, **counters})

    def _ranges_in(self, block: Block) -> frozenset[Key]:
        """The large stores that a loop's body writes, and of which one of its statements reads a range."""
        if self.is_differentiable or not self.backend.passes:  # JAX cannot go backwards through a write alone
            return frozenset()
        edges = (edge for execute in statements(block) for edge in self.edges(execute))
        keys = {(edge.source, edge.output) for edge in edges if any(isinstance(index, Range) for index in edge.index)}
        written = keys & self.storage.keys() & self.liveness.of(block).writes
        return frozenset(key for key in written if self.target.of_copy(self.bytes(key)) >= prices.LEAST_SECONDS_OF_COPIES)

    def _updated_in(self, block: Block) -> frozenset[Key]:
        """The values that statements of a loop's body update in place."""
        executes = [(self.edges(execute), self.graph[execute.node].op.updated) for execute in statements(block)]
        return frozenset((edges[k].source, edges[k].output) for edges, updated in executes for k in updated)

    def _read_first(self, edge: Edge, operand: Any, stores: Stores, env: StepValues) -> Any:
        """An operand of a statement, in memory before its store is written, if the iteration writes that alone."""
        key, count = (edge.source, edge.output), counter(self.backend, env)
        if key not in self.read_at_once or isinstance(operand, Parts) or count is None:
            return operand
        if operand.size * prices.TIMES_SMALLER <= getattr(stores[key], "size", 0):
            token = self._tokens.get(key, jnp.asarray(count, jnp.int32))
            operand, self._tokens[key] = keep(None, token, operand, token)
        return operand

    def _if(self, item: If, stores: Stores, frame: Frame, live: frozenset[Key]) -> None:
        condition = item.condition.evaluate(frame.counters, minimum, maximum)
        other = item.orelse or Block()
        if is_static(condition):
            self.run(item.then if condition else other, stores, frame, live)
            return
        moves = selections(item)
        if moves:
            predicates = (condition, jnp.logical_not(condition))
            for number, move in enumerate(moves):
                self._ensure((move.node, 0), stores)
                self.execute(move, stores, frame, predicates[number >= len(item.then.children)])
            return
        changed = self.liveness.of(item.then).writes | self.liveness.of(other).writes
        written = [*sorted(changed & (live | self.liveness.of(item).needs)), *self._flag(stores)]

        def branch(block: Block) -> Any:
            def function(state: tuple[Any, ...]) -> tuple[Any, ...]:
                inner = {**stores, **dict(zip(written, state, strict=True))}
                before, self._tokens = self._tokens, {}
                self.run(block, inner, frame, frozenset(written))
                self._tokens = before
                return tuple(inner[k] for k in written)

            return function

        initial = tuple(stores[k] if k in stores else self.zeros(k) for k in written)
        final = lax.cond(condition, branch(item.then), branch(other), initial)
        stores.update(zip(written, final, strict=True))

    def now(self, counters: StepValues, stores: Stores, item: Item | None = None) -> StepValues:
        """The counters, with the last points of the steps that end early: the greatest possible ones, until an end is known.

        Those of inner steps are the ones at the outer point at which `item` runs.
        """
        present = {counter: stores[key] for counter, key in self.ends.items() if key in stores}
        for last in [last for last in present if present[last].ndim]:
            at = None if item is None else self._outer_place(last, item, counters)
            present[last] = self._most(last) if at is None else present[last][at]
        return {**counters, **present} if present else counters

    def ends_at_start(self, most: StepValues) -> Stores:
        """The stores of the last points, before any end is known: one number, or for an inner step one for each outer point."""
        sizes = {last: tuple(self.bounds[step.bound_symbol] for step in self.outer.get(last, ())) for last in self.ends}
        return {key: jnp.full(sizes[last], most[last], jnp.int32) for last, key in self.ends.items()}

    def _most(self, last: Symbol) -> int:
        return next(self.bounds[step.bound_symbol] - 1 for step in self.graph.chosen if chosen_value(step) == last)

    def _outer_place(self, last: Symbol, item: Item, counters: StepValues) -> tuple[Any, ...] | None:
        """The place of an item's end in the store for all outer points; None where the item runs at several of them."""
        point = outer_point(item, self.graph, self.outer[last])
        if point is None or not all(e.symbols <= counters.keys() for e in point):
            return None
        return tuple(self.value(e, counters) for e in point)

    @contextmanager
    def _at_outer_point(self, loop: Loop, stores: Stores, frame: Frame) -> Iterator[None]:
        """The trace of an iteration at one point of the outer steps of an inner end: the iteration has its own end as one number.

        XLA's CPU compiler copies an array that a loop reads and writes, so an iteration that finds its end writes it once.
        """
        places = {}
        for last, steps in self.outer.items():
            point = outer_point(loop.body, self.graph, steps) or ()
            at = self._outer_place(last, loop.body, frame.counters)
            if at is not None and stores[self.ends[last]].ndim and any(loop.counter in part.symbols for part in point):
                places[self.ends[last]] = at, stores[self.ends[last]], any(self._finds(e, last) for e in statements(loop.body))
                stores[self.ends[last]] = (
                    jnp.int32(self._most(last)) if places[self.ends[last]][2] else stores[self.ends[last]][at]
                )
        yield
        for key, (at, array, finds) in places.items():
            stores[key] = array.at[at].set(stores[key]) if finds else array

    def _finds(self, execute: Execute, last: Symbol) -> bool:
        op = self.graph[execute.node].op
        return isinstance(op, End) and last in map(chosen_value, op.bound.symbols)

    def _flag(self, stores: Stores) -> tuple[Key, ...]:
        """The store that notes values that are not finite, and the stores of the last points of steps, if the program has them."""
        return tuple(key for key in (FLAG, *self.ends.values()) if key in stores)

    def _ensure(self, key: Key, stores: Stores) -> None:
        if key not in stores:
            stores[key] = self.zeros(key)

    def point(self, execute: Execute, counters: StepValues) -> StepValues:
        """Bounds and the steps of a statement's point."""
        steps = self.graph[execute.node].domain.steps
        return {**self.bounds, **{s: self.value(e, counters) for s, e in zip(steps, execute.point, strict=True)}}

    def operands(self, execute: Execute, stores: Stores, inputs: Mapping[str, Any], counters: StepValues) -> list[Any]:
        env, node = self.point(execute, counters), self.graph[execute.node]

        def read(position: int, edge: Edge) -> Any:
            if (id(execute), position) in self._handed:
                return self._handed[id(execute), position]

            def needs_zeros(dimension: int, index: Range) -> bool:
                return padding.matters(node, position, dimension, index.true_length)

            latest = self._latest_value(edge, execute, stores, counters)
            in_elements = takes_elements(node, position)
            return self.read(edge, stores, inputs, env, needs_zeros, in_elements) if latest is None else latest

        return [read(position, edge) for position, edge in enumerate(self.edges(execute))]

    def _latest_value(self, edge: Edge, execute: Execute, stores: Stores, counters: StepValues) -> Any:
        """The value that an edge reads, if it is the last one that its store took. It need not be read back then."""
        key = (edge.source, edge.output)
        latest = self._latest.get(key)
        if latest is None or stores.get(key) is not latest.array:
            return None
        at = place(edge, execute, self.graph, self.bounds)
        if at is None:
            return None
        steps = self.graph[edge.source].domain.steps
        places = [(a, b) for a, b, step in zip(at, latest.place, steps, strict=True) if step not in self.graph.chosen]  # one slot
        symbols = {symbol for pair in places for e in pair for symbol in e.symbols}
        if at == latest.place and all(counters.get(s) is latest.counters.get(s) for s in symbols):
            return latest.value
        values = [[self.value(e, env) for e in p] for p, env in ((at, counters), (latest.place, latest.counters))]
        return latest.value if all(map(is_static, values[0] + values[1])) and values[0] == values[1] else None

    def edges(self, execute: Execute) -> tuple[Edge, ...]:
        """The edges that a statement reads."""
        return self.graph[execute.node].operands(execute.branch)

    def _end(self, node: Node, holds: Any, stores: Stores, env: StepValues) -> None:
        """Note that a step ends at a point, if the condition holds there."""
        (last,) = node.op.bound.symbols  # type: ignore[attr-defined]
        key, at = self.ends[chosen_value(last)], jnp.asarray(env[node.domain.steps[-1]], jnp.int32)
        place = tuple(env[step] for step in self.outer.get(chosen_value(last), ())) if stores[key].ndim else ()
        before = stores[key][place]
        stores[key] = stores[key].at[place].set(jnp.where(holds, jnp.minimum(before, at), before))

    def _execute(self, execute: Execute, stores: Stores, frame: Frame, predicate: Any) -> None:
        node = self.graph[execute.node]
        env = self.point(execute, frame.counters)
        operands = self.operands(execute, stores, frame.inputs, frame.counters)
        if self.read_at_once:
            operands = [self._read_first(edge, x, stores, env) for edge, x in zip(self.edges(execute), operands, strict=True)]
        if isinstance(node.op, End):
            self._end(node, operands[0], stores, env)
            return
        is_move = isinstance(node.op, (Merge, Output))
        results = tuple(operands) if is_move else self._results(execute, operands, env, frame.seed)
        if FLAG in stores and is_move:
            seen = traced_flag(results)
            stores[FLAG] = stores[FLAG] | (seen if predicate is None else jnp.where(predicate, seen, 0))
        for output, result in enumerate(results):
            key = node.id, output
            if key in self.read_at_once and key in self._tokens:
                (result,) = keep(None, self._tokens[key], result)
            self.write(key, result, stores, env, predicate)
            if predicate is None and self.liveness.is_store(key):
                self._latest[key] = _Latest(stores[key], execute.point, frame.counters, result)

    def _results(self, execute: Execute, operands: Sequence[Any], env: StepValues, seed: Any) -> tuple[Any, ...]:
        """What a node computes. An update of the iteration comes after what it read of the same value."""
        node, types = self.graph[execute.node], self.graph.input_types(self.graph[execute.node])
        keys = {k: key for k, edge in enumerate(node.inputs) if (key := (edge.source, edge.output)) in self._updated}
        if not keys or counter(self.backend, env) is None:
            return tuple(self.backend.kernel(with_shares(node.op, types), operands, env, seed))
        island = Call(ordered, (Dataflowed.of(node.op, types, node.outputs), tuple(keys)))
        results = self.backend.kernel(island, [*operands, *map(self._tokens.get, keys.values())], env, seed)
        tokens = zip(keys.values(), results[len(node.outputs) :], strict=True)
        self._tokens.update((key, token) for key, token in tokens if token is not None)
        return results[: len(node.outputs)]


def selections(item: If) -> list[Execute]:
    """The statements of a condition that only moves values into recurrences: selections are then cheaper than branches."""
    children = [child for block in (item.then, item.orelse or Block()) for child in block.children]
    moves = [child for child in children if isinstance(child, Execute) and child.branch is not None]
    return moves if len(moves) == len(children) else []
