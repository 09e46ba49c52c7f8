"""Lowering: a part of a program that needs no host becomes one traceable function of its stores."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from tempo_core import prices
from tempo_core.backends.base import Backend, is_static
from tempo_core.ir.graph import Edge, Graph, Key
from tempo_core.ir.ops import Merge, Output
from tempo_core.runtime import padding
from tempo_core.runtime.numerics import FLAG, traced_flag
from tempo_core.runtime.placement import Placement, Stores, maximum, minimum
from tempo_core.runtime.unroll import Unrolled
from tempo_core.schedule import Block, Execute, If, Loop, Storage, leaves
from tempo_core.schedule.program import Item
from tempo_core.symbolic.domain import Point, Range
from tempo_core.symbolic.expr import StepValues, Symbol


class Lowering(Placement):
    """Runs program items on traced stores. `bounds` are numbers; loop counters may be traced."""

    def __init__(
        self,
        graph: Graph,
        storage: Mapping[Key, Storage],
        bounds: Mapping[Symbol, int],
        backend: Backend,
        unrolled: Unrolled | None = None,
    ):
        super().__init__(graph, storage, bounds, backend, unrolled)
        # The value that each store of several slots took last: (the store with it, its point, the value).
        self._latest: dict[Key, tuple[Any, list[Any], Any]] = {}

    # -- items --------------------------------------------------------------------------------------------------------

    def run(
        self, item: Item, stores: Stores, inputs: Mapping[str, Any], counters: StepValues, seed: Any, live: frozenset[Key]
    ) -> None:
        """Run an item on `stores`, in place. `live` are the stores that are needed after the item."""
        if isinstance(item, Block):
            self._block(item, stores, inputs, counters, seed, live)
        elif isinstance(item, Loop):
            self._loop(item, stores, inputs, counters, seed, live)
        elif isinstance(item, If):
            self._if(item, stores, inputs, counters, seed, live)
        elif isinstance(item, Execute):
            self.execute(item, stores, inputs, counters, seed)

    def _block(
        self, block: Block, stores: Stores, inputs: Mapping[str, Any], counters: StepValues, seed: Any, live: frozenset[Key]
    ) -> None:
        after = [live]
        for child in reversed(block.children):
            effects = self.liveness.of(child)
            after.append((after[-1] - effects.defines) | effects.needs)
        for child, needed in zip(block.children, reversed(after[:-1]), strict=True):
            self.run(child, stores, inputs, counters, seed, needed)

    def _loop(
        self, loop: Loop, stores: Stores, inputs: Mapping[str, Any], counters: StepValues, seed: Any, live: frozenset[Key]
    ) -> None:
        effects = self.liveness.of(loop.body)
        if self.unrolled.writes_out(loop):
            for at in range(loop.start.constant, loop.stop.constant, loop.step):
                self.run(loop.body, stores, inputs, {**counters, loop.counter: at}, seed, live | effects.needs)
            return
        carried = [*sorted(effects.writes & (effects.needs | live)), *self._flag(stores)]
        outer = dict(stores)
        start, stop = (self.value(e, counters) for e in (loop.start, loop.stop))
        needed = frozenset(carried)

        def body(count: Any, state: tuple[Any, ...]) -> tuple[Any, ...]:
            before, self.read_at_once = self.read_at_once, self._ranges_in(loop.body)
            inner = dict(outer)
            inner.update(zip(carried, state, strict=True))
            at = count if loop.step == 1 else start + count * loop.step
            self.run(loop.body, inner, inputs, {**counters, loop.counter: at}, seed, needed)
            self.read_at_once = before
            return tuple(inner[k] for k in carried)

        initial = tuple(stores[k] if k in stores else self.zeros(k) for k in carried)
        if loop.step == 1:
            final = lax.fori_loop(start, stop, body, initial)
        else:
            final = lax.fori_loop(0, (stop - start + loop.step - 1) // loop.step, body, initial)
        stores.update(zip(carried, final, strict=True))

    def _ranges_in(self, block: Block) -> frozenset[Key]:
        """The large stores of which a statement of a loop's body reads a range."""
        executes = (leaf for leaf in leaves(block) if isinstance(leaf, Execute))
        edges = (edge for execute in executes for edge in self.edges(execute))
        ranges = (edge for edge in edges if any(isinstance(index, Range) for index in edge.index))
        on_cpu = jax.default_backend() == "cpu"
        keys = {(edge.source, edge.output) for edge in ranges} & self.storage.keys()
        return frozenset(key for key in keys if prices.pays_to_write_alone(self.bytes(key), on_cpu))

    def _if(
        self, item: If, stores: Stores, inputs: Mapping[str, Any], counters: StepValues, seed: Any, live: frozenset[Key]
    ) -> None:
        condition = item.condition.evaluate(counters, minimum, maximum)
        other = item.orelse or Block()
        if is_static(condition):
            self.run(item.then if condition else other, stores, inputs, counters, seed, live)
            return
        if self._only_moves(item.then) and self._only_moves(other):
            for predicate, block in ((condition, item.then), (jnp.logical_not(condition), other)):
                for child in block.children:
                    assert isinstance(child, Execute)
                    self._ensure(child, stores)
                    self.execute(child, stores, inputs, counters, seed, predicate)
            return
        changed = self.liveness.of(item.then).writes | self.liveness.of(other).writes
        written = [*sorted(changed & (live | self.liveness.of(item).needs)), *self._flag(stores)]

        def branch(block: Block) -> Any:
            def function(state: tuple[Any, ...]) -> tuple[Any, ...]:
                inner = dict(stores)
                inner.update(zip(written, state, strict=True))
                self.run(block, inner, inputs, counters, seed, frozenset(written))
                return tuple(inner[k] for k in written)

            return function

        initial = tuple(stores[k] if k in stores else self.zeros(k) for k in written)
        final = lax.cond(condition, branch(item.then), branch(other), initial)
        stores.update(zip(written, final, strict=True))

    def _flag(self, stores: Stores) -> tuple[Key, ...]:
        """The store that notes values that are not finite, if the program has it."""
        return (FLAG,) if FLAG in stores else ()

    def _only_moves(self, block: Block) -> bool:
        """Whether a block only moves values into recurrences. A selection is then cheaper than a branch."""
        return all(isinstance(c, Execute) and c.branch is not None for c in block.children)

    def _ensure(self, execute: Execute, stores: Stores) -> None:
        key = (execute.node, 0)
        if key not in stores:
            stores[key] = self.zeros(key)

    def point(self, execute: Execute, counters: StepValues) -> StepValues:
        """Bounds and the steps of a statement's point."""
        steps = self.graph[execute.node].domain.steps
        return {**self.bounds, **{s: self.value(e, counters) for s, e in zip(steps, execute.point, strict=True)}}

    def operands(self, execute: Execute, stores: Stores, inputs: Mapping[str, Any], counters: StepValues) -> list[Any]:
        env, node = self.point(execute, counters), self.graph[execute.node]

        def read(position: int, edge: Edge) -> Any:
            def needs_zeros(dimension: int, index: Range) -> bool:
                return padding.matters(node, position, dimension, index.true_length)

            latest = self._latest_value(edge, stores, env)
            return self.read(edge, stores, inputs, env, needs_zeros) if latest is None else latest

        return [read(position, edge) for position, edge in enumerate(self.edges(execute))]

    def _latest_value(self, edge: Edge, stores: Stores, env: StepValues) -> Any:
        """The value that an edge reads, if its store took it last: it need not be read back."""
        array, point, value = self._latest.get((edge.source, edge.output), (None, [], None))
        if array is None or stores.get((edge.source, edge.output)) is not array:
            return None
        if not all(isinstance(index, Point) for index in edge.index):
            return None
        read = [self.value(index.expr, env) for index in edge.index if isinstance(index, Point)]
        same = all(a is b or (is_static(a) and is_static(b) and a == b) for a, b in zip(read, point, strict=True))
        return value if same else None

    def edges(self, execute: Execute) -> tuple[Edge, ...]:
        """The edges that a statement reads."""
        node = self.graph[execute.node]
        return node.inputs if execute.branch is None else (node.inputs[execute.branch],)

    def execute(
        self, execute: Execute, stores: Stores, inputs: Mapping[str, Any], counters: StepValues, seed: Any, predicate: Any = None
    ) -> None:
        node = self.graph[execute.node]
        env = self.point(execute, counters)
        operands = self.operands(execute, stores, inputs, counters)
        results = tuple(operands) if isinstance(node.op, (Merge, Output)) else self.backend.kernel(node.op, operands, env, seed)
        if FLAG in stores and isinstance(node.op, (Merge, Output)):
            seen = traced_flag(results)
            stores[FLAG] = stores[FLAG] | (seen if predicate is None else jnp.where(predicate, seen, 0))
        for output, result in enumerate(results):
            self.write((node.id, output), result, stores, env, predicate)
            if predicate is None and self.liveness.is_store((node.id, output)):
                point = [env[step] for step in node.domain.steps]
                self._latest[node.id, output] = (stores[node.id, output], point, result)
