"""The staged executor: host-free parts of a program are single XLA programs; Python runs only what needs the host.

A program is split into *segments* (items without host statements, one after the other), host calls, and the loops and
conditions around them. Before a host call, the segment that precedes it fetches the call's operands; what a call returns
is put into its stores by the segment that follows. Stores that several segments touch live between them as device arrays,
and are handed over by donation, so that they are updated in place.
"""

from __future__ import annotations

import time
import warnings
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Union

import jax
import jax.numpy as jnp
import numpy as np

from tempo_core.backends.base import Backend
from tempo_core.ir.ops import Output, Sink, Udf
from tempo_core.runtime.liveness import Effects, Key
from tempo_core.runtime.lower import Env, Lowering, Stores
from tempo_core.schedule import Block, Execute, If, Loop, Scheduled, leaves
from tempo_core.schedule.program import Item
from tempo_core.symbolic.condition import Bool
from tempo_core.symbolic.expr import Expr, Symbol


@dataclass(frozen=True, eq=False)
class Fetch:
    """Among a segment's items: the operands of a host call, as they are at that place of the program."""

    execute: Execute


@dataclass(eq=False)
class Segment:
    """Items that run as one XLA program: first `puts` (results of host calls), then `items`."""

    number: int
    counters: tuple[Symbol, ...]
    puts: list[Execute] = field(default_factory=list)
    items: list[Item | Fetch] = field(default_factory=list)
    compiled: Callable[..., Any] | None = None
    reads: tuple[Key, ...] = ()  # stores that it only reads
    writes: tuple[Key, ...] = ()  # stores that it changes, given by donation

    @property
    def fetches(self) -> list[Execute]:
        return [item.execute for item in self.items if isinstance(item, Fetch)]


@dataclass(eq=False)
class HostCall:
    execute: Execute


@dataclass(eq=False)
class HostLoop:
    counter: Symbol
    start: Expr
    stop: Expr
    step: int
    body: list[HostItem]


@dataclass(eq=False)
class HostIf:
    condition: Bool
    then: list[HostItem]
    orelse: list[HostItem]


HostItem = Union[Segment, HostCall, HostLoop, HostIf]


class Staged:
    """A scheduled program as XLA programs and the host code between them."""

    def __init__(self, scheduled: Scheduled, backend: Backend):
        self.scheduled, self.backend, self.graph = scheduled, backend, scheduled.graph
        self.lowering = Lowering(scheduled.graph, scheduled.storage, scheduled.bounds, backend)
        self.segments: list[Segment] = []
        self.items = self._split(scheduled.root, ())
        self.outputs = [leaf for leaf in leaves(scheduled.root) if isinstance(leaf, Execute) and self._is_output(leaf)]
        if self.outputs:
            self._segment(self.items, ()).items.extend(map(Fetch, self.outputs))
        self.compiles = 0
        self.compile_seconds = 0.0
        self.store_keys = self._persistent()

    # -- planning -----------------------------------------------------------------------------------------------------

    def _on_host(self, item: Item) -> bool:
        for leaf in leaves(item):
            op = self.graph[leaf.node].op
            if isinstance(leaf, Execute) and (isinstance(op, Sink) or (isinstance(op, Udf) and op.kind == "host")):
                return True
        return False

    def _is_output(self, item: Item) -> bool:
        return isinstance(item, Execute) and isinstance(self.graph[item.node].op, Output)

    def _segment(self, found: list[HostItem], counters: tuple[Symbol, ...]) -> Segment:
        """The segment at the end of `found`, a new one where there is none. Sinks give nothing back and may run after it."""
        for item in reversed(found):
            if isinstance(item, Segment):
                return item
            if not (isinstance(item, HostCall) and isinstance(self.graph[item.execute.node].op, Sink)):
                break
        segment = Segment(len(self.segments), counters)
        self.segments.append(segment)
        found.append(segment)
        return segment

    def _split(self, block: Block, counters: tuple[Symbol, ...]) -> list[HostItem]:
        found: list[HostItem] = []
        for child in block.children:
            if self._is_output(child):
                continue
            if not self._on_host(child):
                self._segment(found, counters).items.append(child)
            elif isinstance(child, Loop):
                inner = (*counters, child.counter)
                found.append(HostLoop(child.counter, child.start, child.stop, child.step, self._split(child.body, inner)))
            elif isinstance(child, If):
                found.append(
                    HostIf(child.condition, self._split(child.then, counters), self._split(child.orelse or Block(), counters))
                )
            elif isinstance(child, Block):
                found.extend(self._split(child, counters))
            elif isinstance(child, Execute):
                if self.graph[child.node].inputs:
                    self._segment(found, counters).items.append(Fetch(child))
                found.append(HostCall(child))
                if self.graph[child.node].outputs:
                    self._segment(found, counters).puts.append(child)
        return found

    def _effects(self, segment: Segment) -> Effects:
        """Of a segment: puts define what host calls return, fetches read."""
        of = self.lowering.liveness
        total = Effects()
        for put in segment.puts:
            written = frozenset((put.node, k) for k in range(len(self.graph[put.node].outputs)))
            partial = frozenset(k for k in written if of.is_store(k))
            total = total.then(Effects(partial, written - partial, written))
        for item in segment.items:
            total = total.then(self._item_effects(item))
        return total

    def _item_effects(self, item: Item | Fetch) -> Effects:
        of = self.lowering.liveness
        return Effects(of.reads(item.execute)) if isinstance(item, Fetch) else of.of(item)

    def _persistent(self) -> list[Key]:
        """Stores that live between segments: read from before one, touched by several."""
        effects = {s.number: self._effects(s) for s in self.segments}
        count: dict[Key, int] = {}
        for found in effects.values():
            for key in found.touches:
                count[key] = count.get(key, 0) + 1
        needed = frozenset(k for found in effects.values() for k in found.needs)
        kept = {k for k in count if k in needed or count[k] > 1}
        for segment in self.segments:
            found = effects[segment.number]
            segment.writes = tuple(sorted(found.writes & kept))
            segment.reads = tuple(sorted((found.needs & kept) - found.writes))
        return sorted(kept)

    def _live_after(self, segment: Segment) -> list[frozenset[Key]]:
        """For each item of a segment, the stores that are needed after it."""
        live = [frozenset(segment.writes)]
        for item in reversed(segment.items[1:]):
            effects = self._item_effects(item)
            live.append((live[-1] - effects.defines) | effects.needs)
        return live[::-1][: len(segment.items)]

    # -- compilation --------------------------------------------------------------------------------------------------

    def _function(self, segment: Segment) -> Callable[..., Any]:
        def program(
            written: dict[Key, Any], read: dict[Key, Any], put: list[Any], inputs: dict[str, Any], counters: list[Any], seed: Any
        ) -> tuple[dict[Key, Any], list[Any]]:
            stores: Stores = {**written, **read}
            at: Env = {**self.lowering.bounds, **dict(zip(segment.counters, counters, strict=True))}
            for execute, values in zip(segment.puts, put, strict=True):
                env = self.lowering.point(execute, at)
                for output, value in enumerate(values):
                    self.lowering.write((execute.node, output), value, stores, env, None)
            fetched = []
            for item, live in zip(segment.items, self._live_after(segment), strict=True):
                if isinstance(item, Fetch):
                    values = self.lowering.operands(item.execute, stores, inputs, at)
                    fetched.append([jnp.array(v, copy=True) for v in values])
                else:
                    self.lowering.run(item, stores, inputs, at, seed, live)
            return {k: stores[k] for k in segment.writes}, fetched

        return program

    def _compile(self, segment: Segment, arguments: tuple[Any, ...]) -> Callable[..., Any]:
        start = time.perf_counter()
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="Some donated buffers were not usable")
            compiled = jax.jit(self._function(segment), donate_argnums=0).lower(*arguments).compile()
        self.compiles += 1
        self.compile_seconds += time.perf_counter() - start
        return compiled

    # -- running ------------------------------------------------------------------------------------------------------

    def new_stores(self) -> Stores:
        """Zeros for all stores that live between segments."""
        return {k: self.backend.zeros(self.lowering.shape(k), self.graph[k[0]].outputs[k[1]].dtype) for k in self.store_keys}

    def run(self, inputs: Mapping[str, Any], seed: int) -> dict[int, Any]:
        """Run the whole program: the results by position."""
        return _Run(self, inputs, seed).run()


class _Run:
    """One run: stores, loop counters, results of host calls not yet put, and values on their way to sinks."""

    def __init__(self, staged: Staged, inputs: Mapping[str, Any], seed: int):
        self.staged, self.graph, self.lowering = staged, staged.graph, staged.lowering
        self.inputs = {name: staged.backend.to_device(value) for name, value in inputs.items()}
        self.seed = np.uint32(seed & 0xFFFFFFFF)
        self.stores = staged.new_stores()
        self.fetched: dict[Execute, list[Any]] = {}
        self.returned: dict[Execute, tuple[Any, ...]] = {}
        self.sinking: deque[tuple[Callable[..., Any], list[Any], dict[str, int]]] = deque()

    def run(self) -> dict[int, Any]:
        try:
            self._items(self.staged.items, dict(self.lowering.bounds))
        finally:
            while self.sinking:
                self._deliver()
        results = {}
        for execute in self.staged.outputs:
            op = self.graph[execute.node].op
            assert isinstance(op, Output)
            (results[op.position],) = self.fetched[execute]
        return results

    def _items(self, items: list[HostItem], counters: Env) -> None:
        for item in items:
            if isinstance(item, Segment):
                self._segment(item, counters)
            elif isinstance(item, HostCall):
                self._call(item.execute, counters)
            elif isinstance(item, HostLoop):
                for at in range(item.start.evaluate(counters), item.stop.evaluate(counters), item.step):
                    counters[item.counter] = at
                    self._items(item.body, counters)
            else:
                self._items(item.then if item.condition.evaluate(counters) else item.orelse, counters)

    def _segment(self, segment: Segment, counters: Env) -> None:
        stores = self.stores
        arguments = (
            {k: stores[k] for k in segment.writes},
            {k: stores[k] for k in segment.reads},
            [list(self.returned.pop(put)) for put in segment.puts],
            self.inputs,
            [np.int32(counters[c]) for c in segment.counters],
            self.seed,
        )
        if segment.compiled is None:
            segment.compiled = self.staged._compile(segment, arguments)
        written, fetched = segment.compiled(*arguments)
        stores.update(written)
        self.fetched.update(zip(segment.fetches, fetched, strict=True))

    def _call(self, execute: Execute, counters: Env) -> None:
        op = self.graph[execute.node].op
        operands = self.fetched.pop(execute, [])
        if isinstance(op, Sink):
            steps = self.graph[execute.node].domain.steps
            point = {s.name: int(e.evaluate(counters)) for s, e in zip(steps, execute.point, strict=True)}
            self.sinking.append((op.fn, operands, point))
            if len(self.sinking) > 1:  # one late: the device is busy with what follows
                self._deliver()
            return
        env = self.lowering.point(execute, counters)
        self.returned[execute] = self.staged.backend.kernel(op, operands, env, self.seed)

    def _deliver(self) -> None:
        fn, operands, point = self.sinking.popleft()
        fn(*(np.asarray(x) for x in operands), **point)
