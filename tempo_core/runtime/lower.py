"""Lowering of a host-free part of a program to one traceable function of its stores."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax

from tempo_core.backends.base import Backend, is_static, numpy_dtype
from tempo_core.ir.graph import Edge, Graph
from tempo_core.ir.ops import Constant, Input, Merge
from tempo_core.runtime.liveness import Key, Liveness
from tempo_core.schedule import Block, Execute, If, Loop, Storage, leaves
from tempo_core.schedule.program import Item
from tempo_core.symbolic.domain import Point, Range
from tempo_core.symbolic.expr import Expr, Symbol

Stores = dict[Key, Any]  # a value, or an array [slots of the steps with more than one slot..., shape]
Env = dict[Symbol, Any]


def minimum(a: Any, b: Any) -> Any:
    return min(a, b) if is_static(a) and is_static(b) else jnp.minimum(a, b)


def maximum(a: Any, b: Any) -> Any:
    return max(a, b) if is_static(a) and is_static(b) else jnp.maximum(a, b)


class Lowering:
    """Runs program items on traced stores. `bounds` are numbers; loop counters may be traced."""

    def __init__(self, graph: Graph, storage: Mapping[Key, Storage], bounds: Mapping[Symbol, int], backend: Backend):
        self.graph, self.storage, self.bounds, self.backend = graph, storage, dict(bounds), backend
        self.liveness = Liveness(graph, storage)
        self._moves: dict[Key, tuple[Any, Any, Any, Any]] = {}  # the last selection: value, predicate, alternative, result

    # -- stores -------------------------------------------------------------------------------------------------------

    def shape(self, key: Key) -> tuple[int, ...]:
        """The shape of the array that holds a store."""
        type = self.graph[key[0]].outputs[key[1]]
        slots = tuple(s for s in self.storage[key].slots if s > 1)
        return slots + tuple(size.evaluate(self.bounds) for size in type.shape)

    def dtype(self, key: Key) -> np.dtype[Any]:
        return numpy_dtype(self.graph[key[0]].outputs[key[1]].dtype)

    def read(self, edge: Edge, stores: Stores, inputs: Mapping[str, Any], env: Env) -> Any:
        """The value that an edge delivers at the reader's point `env`."""
        source = self.graph[edge.source]
        if isinstance(source.op, Input):
            return inputs[source.op.name]
        if isinstance(source.op, Constant):
            return self.backend.kernel(source.op, (), self.bounds, 0)[0]
        key = (edge.source, edge.output)
        value, axis = stores[key], 0
        masks: list[tuple[int, Any]] = []
        spans = 0
        for step, index, slots in zip(source.domain.steps, edge.index, self.storage[key].slots, strict=True):
            bound = self.bounds[Symbol(str(step.bound))]
            if isinstance(index, Point):
                if slots > 1:
                    at = self.value(index.expr, env)
                    value = lax.dynamic_index_in_dim(value, self._slot(at, slots, bound), axis, keepdims=False)
                continue
            size = int(index.length.evaluate(self.bounds))
            if slots == 1:
                value = jnp.expand_dims(value, axis)
                if size != 1:
                    value = jnp.repeat(value, size, axis)
            else:
                value = self._span(value, axis, index, size, slots, bound, env)
            if index.size is not None:
                masks.append((spans, self._inside(index, size, env)))
            axis += 1
            spans += 1
        for position, inside in masks:
            shape = [1] * value.ndim
            shape[position] = inside.shape[0]
            mask = jnp.broadcast_to(inside.reshape(shape), value.shape)
            value = jnp.where(mask, value, jnp.zeros(value.shape, value.dtype))
        return value

    def _slot(self, at: Any, slots: int, bound: int) -> Any:
        return at if slots >= bound else at % slots

    def _inside(self, index: Range, size: int, env: Env) -> Any:
        positions = jnp.arange(size, dtype=jnp.int32) * index.stride + self.value(index.start, env)
        return positions < self.value(index.stop, env)

    def _span(self, value: Any, axis: int, index: Range, size: int, slots: int, bound: int, env: Env) -> Any:
        """Positions `start, start + stride, ...` of a store along `axis`."""
        start = self.value(index.start, env)
        if slots >= bound and is_static(start) and start + (size - 1) * index.stride < slots:
            if start == 0 and size == slots and index.stride == 1:
                return value
            return lax.slice_in_dim(value, start, start + (size - 1) * index.stride + 1, index.stride, axis)
        if slots >= bound and index.size is None and index.stride == 1:
            return lax.dynamic_slice_in_dim(value, start, size, axis)
        positions = start + jnp.arange(size, dtype=jnp.int32) * index.stride
        positions = jnp.clip(positions, 0, slots - 1) if slots >= bound else positions % slots
        return jnp.take(value, positions, axis=axis, mode="clip")

    def write(self, key: Key, value: Any, stores: Stores, env: Env, predicate: Any) -> None:
        """Keep a value at its point; with a predicate, only where that holds."""
        node = self.graph[key[0]]
        slots = self.storage[key].slots
        if not self.liveness.is_store(key):
            stores[key] = value if predicate is None else self._selected(key, value, stores[key], predicate)
            return
        at = [
            self._slot(env[step], count, self.bounds[Symbol(str(step.bound))])
            for step, count in zip(node.domain.steps, slots, strict=True)
            if count > 1
        ]
        lead = len(at)
        start = tuple(jnp.asarray(a, jnp.int32) for a in at) + (jnp.asarray(0, jnp.int32),) * value.ndim
        update = value.reshape((1,) * lead + value.shape)
        if predicate is not None:
            present = lax.dynamic_slice(stores[key], start, update.shape)
            update = jnp.where(predicate, update, present)
        stores[key] = lax.dynamic_update_slice(stores[key], update, start)

    def _selected(self, key: Key, value: Any, present: Any, predicate: Any) -> Any:
        """`value` where the predicate holds. Branches that move one value, one after the other, are one selection."""
        last = self._moves.get(key)
        if last is not None and last[0] is value and last[3] is present:
            predicate, present = last[1] | predicate, last[2]
        chosen = jnp.where(predicate, value, present)
        self._moves[key] = (value, predicate, present, chosen)
        return chosen

    def value(self, expression: Expr, env: Env) -> Any:
        return expression.evaluate(env, minimum, maximum)

    # -- items --------------------------------------------------------------------------------------------------------

    def run(self, item: Item, stores: Stores, inputs: Mapping[str, Any], counters: Env, seed: Any, live: frozenset[Key]) -> None:
        """Run an item on `stores`, in place. `live` are the stores that are needed after it."""
        if isinstance(item, Block):
            self._block(item, stores, inputs, counters, seed, live)
        elif isinstance(item, Loop):
            self._loop(item, stores, inputs, counters, seed, live)
        elif isinstance(item, If):
            self._if(item, stores, inputs, counters, seed, live)
        elif isinstance(item, Execute):
            self.execute(item, stores, inputs, counters, seed)

    def _block(
        self, block: Block, stores: Stores, inputs: Mapping[str, Any], counters: Env, seed: Any, live: frozenset[Key]
    ) -> None:
        after = [live]
        for child in reversed(block.children):
            effects = self.liveness.of(child)
            after.append((after[-1] - effects.defines) | effects.needs)
        for child, needed in zip(block.children, reversed(after[:-1]), strict=True):
            self.run(child, stores, inputs, counters, seed, needed)

    def _loop(
        self, loop: Loop, stores: Stores, inputs: Mapping[str, Any], counters: Env, seed: Any, live: frozenset[Key]
    ) -> None:
        effects = self.liveness.of(loop.body)
        carried = sorted(effects.writes & (effects.needs | live))
        outer = dict(stores)
        start, stop = (self.value(e, counters) for e in (loop.start, loop.stop))
        needed = frozenset(carried)

        def body(count: Any, state: tuple[Any, ...]) -> tuple[Any, ...]:
            inner = dict(outer)
            inner.update(zip(carried, state, strict=True))
            at = count if loop.step == 1 else start + count * loop.step
            self.run(loop.body, inner, inputs, {**counters, loop.counter: at}, seed, needed)
            return tuple(inner[k] for k in carried)

        initial = tuple(stores[k] if k in stores else jnp.zeros(self.shape(k), self.dtype(k)) for k in carried)
        if loop.step == 1:
            final = lax.fori_loop(start, stop, body, initial)
        else:
            final = lax.fori_loop(0, (stop - start + loop.step - 1) // loop.step, body, initial)
        stores.update(zip(carried, final, strict=True))

    def _if(self, item: If, stores: Stores, inputs: Mapping[str, Any], counters: Env, seed: Any, live: frozenset[Key]) -> None:
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
        written = sorted(
            (self.liveness.of(item.then).writes | self.liveness.of(other).writes) & (live | self.liveness.of(item).needs)
        )

        def branch(block: Block) -> Any:
            def function(state: tuple[Any, ...]) -> tuple[Any, ...]:
                inner = dict(stores)
                inner.update(zip(written, state, strict=True))
                self.run(block, inner, inputs, counters, seed, frozenset(written))
                return tuple(inner[k] for k in written)

            return function

        initial = tuple(stores[k] if k in stores else jnp.zeros(self.shape(k), self.dtype(k)) for k in written)
        final = lax.cond(condition, branch(item.then), branch(other), initial)
        stores.update(zip(written, final, strict=True))

    def _only_moves(self, block: Block) -> bool:
        """Whether a block only moves values into recurrences: cheaper to select than to branch."""
        return all(isinstance(c, Execute) and c.branch is not None for c in block.children)

    def _ensure(self, execute: Execute, stores: Stores) -> None:
        key = (execute.node, 0)
        if key not in stores:
            stores[key] = jnp.zeros(self.shape(key), self.dtype(key))

    def point(self, execute: Execute, counters: Env) -> Env:
        """Bounds and the steps of a statement's point."""
        steps = self.graph[execute.node].domain.steps
        return {**self.bounds, **{s: self.value(e, counters) for s, e in zip(steps, execute.point, strict=True)}}

    def operands(self, execute: Execute, stores: Stores, inputs: Mapping[str, Any], counters: Env) -> list[Any]:
        node = self.graph[execute.node]
        env = self.point(execute, counters)
        edges = node.inputs if execute.branch is None else (node.inputs[execute.branch],)
        return [self.read(edge, stores, inputs, env) for edge in edges]

    def execute(
        self, execute: Execute, stores: Stores, inputs: Mapping[str, Any], counters: Env, seed: Any, predicate: Any = None
    ) -> None:
        node = self.graph[execute.node]
        env = self.point(execute, counters)
        operands = self.operands(execute, stores, inputs, counters)
        results = tuple(operands) if isinstance(node.op, Merge) else self.backend.kernel(node.op, operands, env, seed)
        for output, result in enumerate(results):
            self.write((node.id, output), result, stores, env, predicate)


def touched(block: Block) -> list[Execute]:
    """The statements of a block."""
    return [leaf for leaf in leaves(block) if isinstance(leaf, Execute)]
