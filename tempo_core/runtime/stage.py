"""The staged executor: each part of a program that needs no host is one XLA program. Python runs the rest.

A program is split into *segments* (items without host statements, one after the other), host calls, and the loops and
conditions around them. The segment before a host call fetches the call's operands. The segment after it puts the returned
values into their stores. Stores that several segments touch live between them as device arrays. They are passed by donation,
so that they are updated in place.
"""

from __future__ import annotations

import hashlib
import time
import warnings
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Union

import jax
import jax.numpy as jnp
import numpy as np

from tempo_core.backends.base import Backend, Setting, call_host, host_results, numpy_dtype
from tempo_core.ir.graph import Key
from tempo_core.ir.ops import Input, Output, Sink, Udf
from tempo_core.ir.types import TensorType
from tempo_core.ir.udf import Fed
from tempo_core.runtime.feeds import Feeds
from tempo_core.runtime.liveness import Effects
from tempo_core.runtime.lower import Lowering, touched
from tempo_core.runtime.numerics import FLAG, Watch, traced_flag
from tempo_core.runtime.placement import Stores
from tempo_core.runtime.unroll import Unrolled, unrolled
from tempo_core.schedule import Block, Execute, If, Loop, Scheduled, Storage, leaves
from tempo_core.schedule.program import Item
from tempo_core.symbolic.condition import Bool
from tempo_core.symbolic.expr import Expr, StepValues, Symbol


@dataclass(frozen=True, eq=False)
class Fetch:
    """An item of a segment: fetch the operands of a host call or an output, with their values at that place of the program."""

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
    writes: tuple[Key, ...] = ()  # stores that it changes, passed by donation
    inputs: tuple[str, ...] = ()  # fed arrays that it reads
    lowered: Any = None  # its XLA program before compilation, if `lower_all` has traced it

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

    def __init__(self, scheduled: Scheduled, backend: Backend, check_numerics: bool = False, disable: Collection[str] = ()):
        self.check_numerics = check_numerics
        self.scheduled, self.backend, self.graph = scheduled, backend, scheduled.graph
        self.outputs: list[Execute] = []  # fetched at their place: later statements may use their stores again
        self.segments: list[Segment] = []
        outside = {id(item) for item in _outside(scheduled.root)}
        every = [leaf for leaf in leaves(scheduled.root) if isinstance(leaf, Execute) and self._is_output(leaf)]
        self.kept_outputs = {
            (leaf.node, 0) for leaf in every if id(leaf) not in outside
        }  # outputs inside of loops: their stores live to the end
        storage = {**scheduled.storage, **{key: Storage("register", ()) for key in self.kept_outputs}}
        on_cpu = jax.default_backend() == "cpu"
        self.unrolled = Unrolled()
        if "unroll" not in disable:
            self.unrolled = unrolled(scheduled.root, self.graph, storage, scheduled.bounds, on_cpu)
        self.lowering = Lowering(scheduled.graph, storage, scheduled.bounds, backend, self.unrolled)
        self.items = self._split(scheduled.root, ())
        self.compiles = 0
        self.compile_seconds = 0.0
        self.store_keys = self._persistent()
        self._zeros: Callable[[], Stores] | None = None

    # -- planning -----------------------------------------------------------------------------------------------------

    def _on_host(self, item: Item) -> bool:
        for leaf in leaves(item):
            op = self.graph[leaf.node].op
            if isinstance(leaf, Execute) and (isinstance(op, Sink) or (isinstance(op, Udf) and op.kind == "host")):
                return True
        return False

    def _is_output(self, item: Item) -> bool:
        return isinstance(item, Execute) and isinstance(self.graph[item.node].op, Output)

    def _segment(self, items: list[HostItem], counters: tuple[Symbol, ...]) -> Segment:
        """The segment at the end of `items`, or a new one. Sinks may run after it, as they return nothing."""
        for item in reversed(items):
            if isinstance(item, Segment):
                return item
            if not (isinstance(item, HostCall) and isinstance(self.graph[item.execute.node].op, Sink)):
                break
        segment = Segment(len(self.segments), counters)
        self.segments.append(segment)
        items.append(segment)
        return segment

    def _split(self, block: Block, counters: tuple[Symbol, ...]) -> list[HostItem]:
        items: list[HostItem] = []
        for child in block.children:
            if isinstance(child, Execute) and self._is_output(child) and (child.node, 0) not in self.kept_outputs:
                self._segment(items, counters).items.append(Fetch(child))
                self.outputs.append(child)
            elif not self._on_host(child):
                self._segment(items, counters).items.append(child)
            elif isinstance(child, Loop):
                inner = (*counters, child.counter)
                items.append(HostLoop(child.counter, child.start, child.stop, child.step, self._split(child.body, inner)))
            elif isinstance(child, If):
                items.append(
                    HostIf(child.condition, self._split(child.then, counters), self._split(child.orelse or Block(), counters))
                )
            elif isinstance(child, Block):
                items.extend(self._split(child, counters))
            elif isinstance(child, Execute):
                if self.graph[child.node].inputs:
                    self._segment(items, counters).items.append(Fetch(child))
                items.append(HostCall(child))
                if self.graph[child.node].outputs:
                    self._segment(items, counters).puts.append(child)
        return items

    def _effects(self, segment: Segment) -> Effects:
        """The effects of a segment. Puts define the values that host calls return; fetches read."""
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
        """The stores that live between segments: a segment needs them from before, or several segments touch them."""
        effects = {s.number: self._effects(s) for s in self.segments}
        count: dict[Key, int] = {}
        for effect in effects.values():
            for key in effect.touches:
                count[key] = count.get(key, 0) + 1
        needed = frozenset(k for effect in effects.values() for k in effect.needs)
        persistent = {k for k in count if k in needed or count[k] > 1} | self.kept_outputs
        for segment in self.segments:
            effect = effects[segment.number]
            segment.writes = tuple(sorted(effect.writes & persistent))
            segment.reads = tuple(sorted((effect.needs & persistent) - effect.writes))
            segment.inputs = self._inputs_of(segment)
        return sorted(persistent)

    def _inputs_of(self, segment: Segment) -> tuple[str, ...]:
        executes = [item.execute for item in segment.items if isinstance(item, Fetch)]
        executes += [leaf for item in segment.items if not isinstance(item, Fetch) for leaf in touched(item)]
        sources = {edge.source for execute in executes for edge in self.lowering.edges(execute)}
        ops = [self.graph[source].op for source in sources]
        return tuple(sorted(op.name for op in ops if isinstance(op, Input)))

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
            if self.check_numerics:
                stores[FLAG] = jnp.zeros((), jnp.int32)
            at: StepValues = {**self.lowering.bounds, **dict(zip(segment.counters, counters, strict=True))}
            for execute, values in zip(segment.puts, put, strict=True):
                env = self.lowering.point(execute, at)
                for output, value in enumerate(values):
                    self.lowering.write((execute.node, output), value, stores, env, None)
            fetched = []
            for item, live in zip(segment.items, self._live_after(segment), strict=True):
                if isinstance(item, Fetch):
                    values = self.lowering.operands(item.execute, stores, inputs, at)
                    if self.check_numerics:
                        stores[FLAG] = stores[FLAG] | traced_flag(values)
                    fetched.append([jnp.array(v, copy=True) for v in values])
                else:
                    self.lowering.run(item, stores, inputs, at, seed, live)
            return {k: stores[k] for k in (*segment.writes, *((FLAG,) if self.check_numerics else ()))}, fetched

        return program

    def lower_all(self) -> None:
        """Trace all segments, from the shapes and dtypes that they will be called with."""
        for segment in self.segments:
            if segment.compiled is None and segment.lowered is None:
                segment.lowered = self._lowered(segment, self._expected(segment))

    def reusable(self) -> int:
        """The number of traced segments whose XLA program this backend has compiled for another program."""
        return sum(1 for s in self.segments if s.lowered is not None and _identity(s.lowered) in self.backend.executables)

    def _expected(self, segment: Segment) -> tuple[Any, ...]:
        """The arguments of a segment, as shapes and dtypes."""
        types = {name: node.outputs[0] for name, node in self.graph.fed().items()}
        store = {k: self.lowering.arrays(k, jax.ShapeDtypeStruct) for k in self.store_keys}
        put = [[self._struct(type) for type in self.graph[execute.node].outputs] for execute in segment.puts]
        return (
            {k: store[k] for k in segment.writes},
            {k: store[k] for k in segment.reads},
            put,
            {name: self._input_struct(name, types[name]) for name in segment.inputs},
            [jax.ShapeDtypeStruct((), np.int32) for _ in segment.counters],
            jax.ShapeDtypeStruct((), np.uint32),
        )

    def _struct(self, type: TensorType) -> Any:
        shape = tuple(size.evaluate(self.lowering.bounds) for size in type.shape)
        return jax.ShapeDtypeStruct(shape, numpy_dtype(type.dtype))

    def _input_struct(self, name: str, type: TensorType) -> Any:
        whole, axis = self._struct(type), self.unrolled.inputs.get(name)
        if axis is None:
            return whole
        part = jax.ShapeDtypeStruct((*whole.shape[:axis], *whole.shape[axis + 1 :]), whole.dtype)
        return (part,) * whole.shape[axis]

    def bound(self, name: str, value: Any) -> Any:
        """A fed array on the device: one array, or a tuple of its parts."""
        axis = self.unrolled.inputs.get(name)
        if axis is None:
            return self.backend.to_device(value)
        whole = np.moveaxis(self.backend.to_host(value), axis, 0)
        return tuple(self.backend.to_device(part) for part in whole)  # on a CPU, these share the memory of the whole

    def _lowered(self, segment: Segment, arguments: tuple[Any, ...]) -> Any:
        return jax.jit(self._function(segment), donate_argnums=0).lower(*arguments)

    def _compile(self, segment: Segment, arguments: tuple[Any, ...]) -> Callable[..., Any]:
        """The XLA program of a segment. If this backend has compiled it for another program, it is used again."""
        start = time.perf_counter()
        self._check_dtypes(value.dtype for values in arguments[2] for value in values)
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="Some donated buffers were not usable")
            lowered = segment.lowered if segment.lowered is not None else self._lowered(segment, arguments)
            identity = _identity(lowered)
            compiled = self.backend.executables.get(identity)
            if compiled is None:
                compiled = self.backend.executables[identity] = lowered.compile()
                self.compiles += 1
        segment.lowered = None
        self.compile_seconds += time.perf_counter() - start
        return compiled

    def _check_dtypes(self, dtypes: Iterable[Any]) -> None:
        """Raise DTypeError for a dtype that the device lacks. A call of an XLA program would silently convert such arguments."""
        for dtype in set(dtypes):
            self.backend.zeros((), dtype.name)

    # -- running ------------------------------------------------------------------------------------------------------

    def new_stores(self) -> Stores:
        """Zeros for all stores that live between segments, from one XLA program."""
        if self._zeros is None:
            self._check_dtypes(map(self.lowering.dtype, self.store_keys))
            self._zeros = jax.jit(lambda: {k: self.lowering.zeros(k) for k in self.store_keys})
        return dict(self._zeros()) if self.store_keys else {}

    def run(self, fed: Feeds, seed: int, watch: Watch | None = None) -> dict[int, Any]:
        """Run the whole program. Returns the results by position."""
        return _Run(self, fed, seed, watch).run()


def _outside(item: Item) -> Iterator[Item]:
    """The items that stand outside of all loops and conditions."""
    yield item
    if isinstance(item, Block):
        for child in item.children:
            yield from _outside(child)


def _identity(lowered: Any) -> tuple[Any, ...]:
    """The key of an XLA program: its text, and the nesting of its arguments and results."""
    return hashlib.sha256(lowered.as_text().encode()).digest(), lowered.in_tree, lowered.out_tree


class _Run:
    """One run: its stores, loop counters, results of host calls that are not yet in stores, and values on their way to sinks."""

    def __init__(self, staged: Staged, fed: Feeds, seed: int, watch: Watch | None = None):
        self.watch = watch
        self.staged, self.graph, self.lowering = staged, staged.graph, staged.lowering
        self.inputs = {name: staged.bound(name, value) for name, value in fed.arrays.items()}
        self.streams = fed.streams
        self.seed = np.uint32(seed & 0xFFFFFFFF)
        self.stores = staged.new_stores()
        self.fetched: dict[Execute, list[Any]] = {}
        self.returned: dict[Execute, tuple[Any, ...]] = {}
        self.sinking: deque[tuple[int, list[Any], dict[str, int]]] = deque()  # node, operands, point

    def run(self) -> dict[int, Any]:
        try:
            self._items(self.staged.items, dict(self.lowering.bounds))
        except Exception:  # sinks still get what was computed before an error; not after an interrupt
            self._deliver_all()
            raise
        self._deliver_all()
        results = {}
        for execute in self.staged.outputs:
            (results[self._position(execute.node)],) = self.fetched[execute]
        for node, output in self.staged.kept_outputs:
            results[self._position(node)] = self.stores[node, output]
        return jax.block_until_ready(results)  # if a program failed, reading its results later would end the process

    def _position(self, node: int) -> int:
        op = self.graph[node].op
        assert isinstance(op, Output)
        return op.position

    def _items(self, items: list[HostItem], counters: dict[Symbol, Any]) -> None:
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

    def _segment(self, segment: Segment, counters: StepValues) -> None:
        stores = self.stores
        arguments = (
            {k: stores[k] for k in segment.writes},
            {k: stores[k] for k in segment.reads},
            [list(self.returned.pop(put)) for put in segment.puts],
            {name: self.inputs[name] for name in segment.inputs},
            [np.int32(counters[c]) for c in segment.counters],
            self.seed,
        )
        if segment.compiled is None:
            segment.compiled = self.staged._compile(segment, arguments)
        written, fetched = segment.compiled(*arguments)
        seen = written.pop(FLAG, None)
        stores.update(written)
        self.fetched.update(zip(segment.fetches, fetched, strict=True))
        if self.watch is not None and seen is not None:
            self.watch.saw(int(seen))

    def _call(self, execute: Execute, counters: StepValues) -> None:
        op = self.graph[execute.node].op
        operands = self.fetched.pop(execute, [])
        steps = self.graph[execute.node].domain.steps
        point = {s.name: int(e.evaluate(counters)) for s, e in zip(steps, execute.point, strict=True)}
        if isinstance(op, Sink):
            self.sinking.append((execute.node, operands, point))
            if len(self.sinking) > 1:  # a sink gets its values one call late, while the device works on
                self._deliver()
            return
        assert isinstance(op, Udf)
        if isinstance(op.fn, Fed):
            self.returned[execute] = (self.streams[op.fn.name].take(tuple(point.values())),)
            self._record(execute, point)
            return
        # Values of the host stay in its memory. The next device program takes them as arguments, all in one call.
        at = Setting(self.staged.backend, self.lowering.point(execute, counters), self.seed)
        self.returned[execute] = host_results(at, op, *jax.block_until_ready(operands))
        self._record(execute, point)

    def _record(self, execute: Execute, point: Mapping[str, int]) -> None:
        if self.watch is not None:
            self.watch.record(self.graph[execute.node], tuple(point.values()), self.returned[execute])

    def _deliver(self) -> None:
        number, operands, point = self.sinking.popleft()
        node = self.graph[number]
        assert isinstance(node.op, Sink)
        try:
            arrays = [np.asarray(x) for x in jax.block_until_ready(operands)]
            call_host(f"sink `{node.op.name}`", node.op.fn, node.where, arrays, point, takes_point=True)
        except BaseException:
            self.sinking.clear()  # values come in order or not at all
            raise

    def _deliver_all(self) -> None:
        while self.sinking:
            self._deliver()
