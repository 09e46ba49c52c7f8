"""The staged executor: each part of a program that needs no host is one XLA program. Python runs the rest.

A program is split into *segments* (items without host statements, one after the other), host calls, and the loops and
conditions around them. The segment before a host call fetches the call's operands. The segment after it puts the returned
values into their stores. Stores that several segments touch live between them as device arrays. They are passed by donation,
so that they are updated in place.

`edges` joins segments that are neighbours, `chunks` cuts long ones; `run` runs the result.
"""

from __future__ import annotations

import functools
import hashlib
import math
import time
import warnings
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from tempo_core.backends import aligned
from tempo_core.backends.base import Backend, numpy_dtype
from tempo_core.backends.products import shared_by
from tempo_core.backends.scopes import program_name
from tempo_core.backends.xla_cpu.options import WithOptions, options_of
from tempo_core.backends.xla_cpu.wide_rows import held
from tempo_core.compiling import Subject, compile_lowered
from tempo_core.ir.graph import Key
from tempo_core.ir.names.naming import label, names
from tempo_core.ir.ops import End, Output, Udf
from tempo_core.ir.types import TensorType
from tempo_core.ir.udf import Fed
from tempo_core.runtime.feeds import Feeds, PartFeed, is_fed_in_parts
from tempo_core.runtime.lower.lower import Frame, Lowering
from tempo_core.runtime.lower.placement import Stores
from tempo_core.runtime.lower.unroll import Unrolled, unrolled
from tempo_core.runtime.numerics import FLAG, traced_flag
from tempo_core.runtime.staged.host import (
    Fetch,
    Segment,
)
from tempo_core.runtime.staged.host_store import HostStore, zeros_on_host
from tempo_core.runtime.staged.launches import Launches
from tempo_core.runtime.staged.spread import Spread
from tempo_core.runtime.staged.swapping import Moves, Walked, host_stores, with_points, without_fed
from tempo_core.schedule import Execute, Scheduled, Storage, leaves
from tempo_core.schedule.tree import flat
from tempo_core.store.executables import Executables, calls_function, may_be_linked
from tempo_core.store.fingerprint import fingerprint
from tempo_core.symbolic.expr import StepValues, Symbol
from tempo_core.symbolic.isl.spans import Span
from tempo_core.target import Target, device


class Staged:
    """A scheduled program as XLA programs and the host code between them."""

    clock = staticmethod(time.perf_counter)

    def __init__(
        self,
        scheduled: Scheduled,
        backend: Backend,
        check_numerics: bool = False,
        disable: Collection[str] = (),
        launch_seconds: float | None = None,
        target: Target | None = None,
        opened_at: tuple[str | None] | None = None,
        kept: Executables | None = None,
        is_differentiable: bool = False,
        donated: frozenset[str] = frozenset(),
        spread: Spread | None = None,
        parts: Mapping[str, int] | None = None,
        directory: str | None = None,
    ):
        """With `opened_at`, runs can stop between iterations of the loops over that step (of the outermost loops, for None).

        XLA programs that are `kept` on disk are taken from there, and others are added. If it `is_differentiable`, JAX can differentiate
        the device programs, as far as the lengths of their loops are numbers. The arrays of the inputs `donated` are the program's.
        With `spread`, all device programs run on its devices. Of stores with more points than `parts` says for a step, the device has parts;
        the whole is in the host's memory, or in a file in `directory`.
        """
        self.check_numerics, self.disable = check_numerics, disable
        self.launch_seconds = math.inf if launch_seconds is None else launch_seconds
        self.target = target or Target.at_hand()  # all seconds are its
        self.scheduled, self.backend, self.graph = scheduled, backend, scheduled.graph
        self.spread, self.executables, self.directory = spread, kept, directory
        self.options = options_of(self.graph, disable)
        self.compiles = 0
        self.loads = 0  # XLA programs that came from disk
        self.compile_seconds = 0.0
        root = without_fed(scheduled.root, scheduled.graph)
        outside = {id(item) for item in flat(root)}
        outputs = [each for each in leaves(root) if isinstance(each, Execute) and self._is_output(each)]
        self.kept_outputs = {(each.node, 0) for each in outputs if id(each) not in outside}  # in loops: stores to the end
        storage = {**scheduled.storage, **{key: Storage("register", ()) for key in self.kept_outputs}}
        self.unrolled = Unrolled()
        if "unroll" not in disable:
            stores = {key: each for key, each in storage.items() if not is_fed_in_parts(self.graph[key[0]].op)}
            self.unrolled = unrolled(root, self.graph, stores, scheduled.bounds, self.target)
        # Where a step ends is known on the device alone, and so what a launch touches: all points stay there.
        sizes = parts if parts and not self.graph.ends() else {}
        self.hosted = host_stores(self.graph, scheduled.storage, scheduled.bounds, sizes, self.target)
        self.hosted = {key: each for key, each in self.hosted.items() if key not in self.unrolled.stores}
        while True:  # until each store on the host has the number of points that all launches allow
            there = {key: each.on_device for key, each in self.hosted.items()}
            self.lowering = Lowering(
                self.graph, {**storage, **there}, scheduled.bounds, backend, self.unrolled, disable, spread, self.target
            )
            self.lowering.is_differentiable = is_differentiable
            walked = Walked(self.graph, scheduled.bounds, self.hosted)
            self.launches = Launches(root, self.lowering, self.kept_outputs, disable, launch_seconds, opened_at, donated, walked)
            with_parts = with_points(walked, self.launches.items)
            if with_parts == self.hosted:
                break
            self.hosted = with_parts
        self.moves = {segment.number: self._moves(segment, walked) for segment in self.launches.segments} if self.hosted else {}
        self.items, self.segments = self.launches.items, self.launches.segments
        self.kept, self.store_keys = self.launches.kept, self.launches.store_keys
        self._zeros: Callable[[], list[Any]] | None = None
        self._seed: tuple[np.uint32, Any] | None = None  # that of the last run, as the device programs take it

    def _moves(self, segment: Segment, walked: Walked) -> dict[Key, Moves]:
        """What the launches of a segment touch of stores on the host."""
        return {key: Moves(touched, self.hosted[key]) for key, touched in walked.of_segment(segment).items()}

    def _is_output(self, execute: Execute) -> bool:
        return isinstance(self.graph[execute.node].op, Output)

    def _executes(self, segment: Segment) -> list[Execute]:
        """The statements of a segment, and those whose operands it fetches or whose results it puts."""
        return [*segment.executes, *(put.execute for put in segment.puts)]

    def position(self, node: int) -> int:
        op = self.graph[node].op
        assert isinstance(op, Output)
        return op.position

    # -- compilation --------------------------------------------------------------------------------------------------

    def _function(self, segment: Segment) -> Callable[..., Any]:
        donated, passed = segment.stores_passed

        def program(
            written: list[Any],
            given: list[Any],
            read: list[Any],
            put: list[Any],
            inputs: list[Any],
            counters: list[Any],
            seed: Any,
        ) -> tuple[list[Any], list[Any], list[Any]]:
            stores: Stores = {key: self.lowering.zeros(key) for key in sorted(segment.creates)}
            stores.update(zip((*donated, *passed), (*written, *read), strict=True))
            fed = dict(zip((*segment.inputs, *segment.donated), (*inputs, *given), strict=True))
            if self.check_numerics:
                stores[FLAG] = jnp.zeros((), jnp.int32)
            at: StepValues = {**self.lowering.bounds, **dict(zip(segment.counters, counters, strict=True))}
            stores.update(self.lowering.ends_at_start(at))
            returned = iter(put)
            for each in segment.puts:
                env = self.lowering.point(each.execute, at)
                for output in each.outputs:
                    self.lowering.write((each.execute.node, output), next(returned), stores, env, None)
            fetched = []
            for item, live in zip(segment.items, self.launches.live_after(segment), strict=True):
                if isinstance(item, Fetch):
                    values = self.lowering.operands(item.execute, stores, fed, self.lowering.now(at, stores))
                    if self.check_numerics:
                        stores[FLAG] = stores[FLAG] | traced_flag(values)
                    fetched.append([jnp.array(v, copy=True) for v in values])
                else:
                    self.lowering.run(item, stores, Frame(fed, seed, at), live)
            notes = [stores[self.lowering.ends[last]] for last in self.outermost_ends] if self.ends_steps(segment) else []
            return [stores[k] for k in segment.writes], fetched, [stores[FLAG]] if self.check_numerics else notes

        spread = self.spread

        def program_on_devices(*arguments: Any) -> tuple[list[Any], list[Any], list[Any]]:
            with shared_by(spread.shares):  # type: ignore[union-attr]
                return program(*arguments)

        function = program if spread is None else program_on_devices
        function.__name__ = program_name(segment.number)
        return function

    @property
    def outermost_ends(self) -> list[Symbol]:
        """The last points that one launch hands to the next: those of a whole run."""
        return [last for last in self.lowering.ends if last not in self.lowering.outer]

    def ends_steps(self, segment: Segment) -> bool:
        """Whether a segment may find out where a step ends. It gives the last points then."""
        return bool(self.lowering.ends) and any(isinstance(self.graph[each.node].op, End) for each in segment.executes)

    def as_function(self) -> Callable[[Mapping[str, Any], Any, Sequence[Any]], dict[int, Any]]:
        """The whole program as one traceable function of its inputs by name, its seed and the points of the steps that a call takes one
        point of, which gives the results by position.

        The program must not call functions on the host, so that it is one segment.
        """
        assert len(self.items) == len(self.segments) <= 1, "a program that needs no host is one launch"
        programs = [(segment, self._function(segment)) for segment in self.segments]

        def run(inputs: Mapping[str, Any], seed: Any, chosen: Sequence[Any]) -> dict[int, Any]:
            results: dict[int, Any] = {}
            for segment, program in programs:
                written, read = ([self.lowering.zeros(key) for key in keys] for keys in segment.stores_passed)
                fed = [self._in_parts(name, inputs[name]) for name in segment.inputs]
                stores, fetched, _ = program(written, [], read, [], fed, list(chosen), seed)
                values = dict(zip((item.slot for item in segment.fetches), fetched, strict=True))
                results.update({position: values[slot][0] for position, slot in self.launches.outputs})
                kept = dict(zip(segment.writes, stores, strict=True))
                results.update({self.position(key[0]): kept[key] for key in self.kept_outputs})
            return results

        return run

    def _in_parts(self, name: str, array: Any) -> Any:
        """A fed array as `fed` gives it, for an array that may be traced."""
        axis = self.unrolled.inputs.get(name)
        if axis is None:
            return jnp.asarray(array)
        return tuple(jax.lax.index_in_dim(jnp.asarray(array), k, axis, keepdims=False) for k in range(array.shape[axis]))

    def lower_all(self) -> None:
        """Trace all segments that are not on disk, from the shapes and dtypes that they will be called with."""
        for segment in self.segments:
            if segment.compiled is None and segment.lowered is None:
                expected = self._expected(segment)
                segment.compiled = self._linked(self._link(segment, expected))
                if segment.compiled is None:
                    segment.lowered = self._lowered(segment, expected)

    def compile_segments(self) -> None:
        """Compile all segments, for the shapes and dtypes that they will be called with. No array is made."""
        self.lower_all()
        for segment in self.segments:
            self.compile(segment, self._expected(segment))

    def compile_all(self) -> None:
        """Compile all segments, and the function that makes the first values of the stores."""
        self.compile_segments()
        self.new_stores()

    def reusable(self) -> int:
        """The number of segments whose XLA program came from disk, or was compiled by this backend for another program."""
        lowered = [s.lowered for s in self.segments if s.compiled is None and s.lowered is not None]
        loaded = sum(1 for s in self.segments if s.compiled is not None)
        return loaded + sum(
            1 for each in lowered if _identity(each.as_text(), each, self.spread, self.options) in self.backend.executables
        )

    def _expected(self, segment: Segment) -> tuple[Any, ...]:
        """The arguments of a segment, as shapes and dtypes."""
        donated, passed = segment.stores_passed
        store = {k: self.lowering.arrays(k, jax.ShapeDtypeStruct) for k in (*donated, *passed)}
        return (
            [store[k] for k in donated],
            [self._input_struct(name) for name in segment.donated],
            [store[k] for k in passed],
            [self._struct(self.lowering.type(key)) for key in segment.returned],
            [self._input_struct(name) for name in segment.inputs],
            [jax.ShapeDtypeStruct((), np.int32) for _ in segment.counters],
            jax.ShapeDtypeStruct((), np.uint32),
        )

    def _struct(self, type: TensorType) -> Any:
        shape = tuple(size.evaluate(self.lowering.bounds) for size in type.shape)
        return jax.ShapeDtypeStruct(shape, numpy_dtype(type.dtype))

    def _fed_type(self, name: str) -> tuple[TensorType, int | None]:
        """The type of a fed array as the device programs take it: of the whole, or of each of so many parts."""
        type, axis = self.graph.fed()[name].outputs[0], self.unrolled.inputs.get(name)
        if axis is None:
            return type, None
        sizes = (*type.shape[:axis], *type.shape[axis + 1 :])
        return TensorType(type.dtype, sizes), type.shape[axis].evaluate(self.lowering.bounds)

    def _input_struct(self, name: str) -> Any:
        type, parts = self._fed_type(name)
        return self._struct(type) if parts is None else (self._struct(type),) * parts

    def _lowered(self, segment: Segment, arguments: tuple[Any, ...]) -> Any:
        jit: Any = jax.jit if self.spread is None else functools.partial(jax.jit, **self._shardings(segment, self.spread))
        return jit(self._function(segment), donate_argnums=(0, 1), keep_unused=True).lower(*arguments)

    def _shardings(self, segment: Segment, spread: Spread) -> dict[str, Any]:
        """How the arguments and results of a segment lie on the devices, in the order of `_expected`."""
        donated, passed = segment.stores_passed
        inputs, given = (
            [spread.sharding(self._fed_type(name)[0].shape) for name in names] for names in (segment.inputs, segment.donated)
        )
        stores, read, written = ([self.lowering.sharding(key) for key in keys] for keys in (donated, passed, segment.writes))
        returned = [spread.for_host(self.lowering.type(key)) for key in segment.returned]
        reads = [self.lowering.edges(fetch.execute) for fetch in segment.fetches]
        fetched = [[spread.for_host(self.graph.edge_type(edge)) for edge in edges] for edges in reads]
        whole = spread.whole
        return {"in_shardings": (stores, given, read, returned, inputs, whole, whole), "out_shardings": (written, fetched, whole)}

    def temporaries(self, segment: Segment) -> int | None:
        """The bytes of a segment's temporaries as XLA has laid them out; None if it is not compiled, or XLA does not say."""
        compiled: Any = segment.compiled
        analysis = getattr(compiled, "memory_analysis", lambda: None)()
        if analysis is None:
            return None
        devices = 1 if self.spread is None else len(self.spread.devices)  # the figure is that of one device
        beside = held(compiled.as_text()) if jax.default_backend() == "cpu" else 0
        return (int(analysis.temp_size_in_bytes) + beside) * devices

    def compile(self, segment: Segment, arguments: tuple[Any, ...]) -> Callable[..., Any]:
        """The XLA program of a segment. If this backend has compiled it for another program, it is used again."""
        if segment.compiled is not None:
            return segment.compiled
        start = time.perf_counter()
        self._check_dtypes(value.dtype for value in jax.tree.leaves(arguments[:5]))
        self._check_dtypes(map(self.lowering.dtype, segment.creates))
        link = self._link(segment, arguments)
        compiled = self._linked(link)
        if compiled is None:
            lowered = segment.lowered if segment.lowered is not None else self._lowered(segment, arguments)
            compiled, origin = self._compiled(lowered, link, segment)
            self.compiles += origin == "compiled"
            self.loads += origin == "loaded"
        segment.lowered, segment.compiled = None, compiled
        self.compile_seconds += time.perf_counter() - start
        return compiled

    def _compiled(self, lowered: Any, link: str | None, segment: Segment | None) -> tuple[Callable[..., Any], str]:
        """The XLA program of a traced function, and whether it was "compiled" now, "loaded" from disk, or is "shared" with another program.

        Without a segment it is the function that makes the first values of the stores.
        """
        lowered = WithOptions(lowered, self.options) if self.options else lowered
        text = lowered.as_text()
        identity = _identity(text, lowered, self.spread, self.options)
        compiled, origin = self._executable(identity)
        is_on_disk = compiled is not None
        if compiled is None:
            with warnings.catch_warnings():
                warnings.filterwarnings("ignore", message="Some donated buffers were not usable")
                subject = functools.partial(self._subject, segment, text)
                if self.executables is None:
                    compiled = compile_lowered(lowered, subject)
                else:
                    compiled, is_on_disk = self.executables.compile(identity, lowered, self._devices, subject)
            self.backend.executables[identity] = compiled
        if self.executables is not None and is_on_disk and link is not None and may_be_linked(text):
            self.executables.add_link(link, identity)
        return compiled, origin

    def _subject(self, segment: Segment | None, text: str) -> Subject:
        """What XLA compiles, in words; `text` is its program."""
        operations = text.count(" = ")
        if segment is None:
            return Subject("zeros for the stores", "", operations)
        tensors = names(self.graph)
        shown = label(tensors[each.node] for each in self._executes(segment) if not self._is_output(each))
        return Subject(f"launch {segment.number + 1} of {len(self.segments)}", shown, operations)

    @property
    def _devices(self) -> Sequence[jax.Device]:
        return (device(),) if self.spread is None else self.spread.devices

    def _executable(self, identity: str) -> tuple[Callable[..., Any] | None, str]:
        """An XLA program that this backend has, or that is on disk, and its origin."""
        compiled = self.backend.executables.get(identity)
        if compiled is not None:
            return compiled, "shared"
        compiled = None if self.executables is None else self.executables.load(identity, self._devices)
        if compiled is None:
            return None, "compiled"
        self.backend.executables[identity] = compiled
        return compiled, "loaded"

    def _link(self, segment: Segment, arguments: tuple[Any, ...]) -> str | None:
        """The link on disk from a segment to its XLA program. None if there can be none.

        The code of a user's function is not part of the scheduled program. A segment that calls one has no link: its function is traced,
        and the text of its XLA program decides.
        """
        if self.executables is None or any(calls_function(self.graph[each.node].op) for each in self._executes(segment)):
            return None
        arrays = [(str(leaf.shape), str(leaf.dtype)) for leaf in jax.tree.leaves(arguments)]
        layouts = [(key, self.lowering.layout(key)) for key in (*segment.writes, *segment.reads)]
        items = [(each.execute, each.slot) if isinstance(each, Fetch) else each for each in segment.items]
        puts = [(put.execute, put.slot, put.outputs) for put in segment.puts]
        effects = (segment.reads, segment.writes, segment.creates, segment.inputs, segment.is_chunk)
        written_out = (self.unrolled.loops, sorted(self.unrolled.inputs.items()), sorted(self.unrolled.stores.items()))
        structure = str(jax.tree.structure(arguments)), None if self.spread is None else self.spread.name
        return self.executables.link(
            fingerprint((items, puts, segment.counters, effects, arrays, structure, layouts, written_out))
        )

    def _linked(self, link: str | None) -> Callable[..., Any] | None:
        """The XLA program to which a link leads."""
        identity = None if link is None or self.executables is None else self.executables.linked(link)
        if identity is None:
            return None
        compiled, origin = self._executable(identity)
        self.loads += origin == "loaded"
        return compiled

    def _check_dtypes(self, dtypes: Iterable[Any]) -> None:
        """Raise DTypeError for a dtype that the device lacks. A call of an XLA program would silently convert such arguments."""
        for dtype in set(dtypes):
            self.backend.zeros((), dtype.name)

    # -- running ------------------------------------------------------------------------------------------------------

    def host_store(self, key: Key, fed: Feeds, array: np.ndarray[Any, Any] | None = None) -> HostStore:
        """A store in the memory of the host, at the beginning of a run; in an array, if there is one for it."""
        store, lowering = self.hosted[key], self.lowering
        op = self.graph[key[0]].op
        feed = fed.streams[op.fn.name] if isinstance(op, Udf) and isinstance(op.fn, Fed) and op.fn.in_parts else None
        slots, value = store.storage.slots, lowering.sizes(key)
        dimensions = [k for k, count in enumerate(slots) if count > 1 or k == store.axis]
        read = source = None
        if not isinstance(feed, PartFeed):
            shape = (*(slots[k] for k in dimensions), *value)
            array = zeros_on_host(shape, lowering.dtype(key), self.directory) if array is None else array.reshape(shape)
        else:
            chosen, source = len(self.graph.chosen), feed.slices
            whole = (*slots[chosen:], *value)

            def read(span: Span) -> Any:
                part = feed.part(store.axis - chosen, whole, span, store.alive)
                return part.reshape(*(span[1] - span[0] if k == store.axis else slots[k] for k in dimensions), *value)

        zeros, layout = functools.partial(lowering.zeros, key), lowering.layout(key)
        return HostStore(
            store, dimensions, layout, lowering.shape(key), functools.partial(self.stored, key), zeros, array, read, source
        )

    def whole(self, key: Key, held: HostStore) -> Any:
        """All points of a store on the host, as a result."""
        steps = self.graph[key[0]].domain.steps
        sizes = *(self.lowering.bounds[s.bound_symbol] for s in steps), *self.lowering.sizes(key)
        whole = held.whole().reshape(sizes)
        whole.flags.writeable = False  # it is the store itself
        return whole

    def new_stores(self) -> Stores:
        """Zeros for all stores that live between segments and that none of them creates, from one XLA program."""
        keys = self.launches.passed
        if not keys:
            return {}
        if self._zeros is None:
            self._check_dtypes(map(self.lowering.dtype, keys))

            def zeros_for_the_stores() -> list[Any]:
                return [self.lowering.zeros(k) for k in keys]

            shardings = None if self.spread is None else [self.lowering.sharding(k) for k in keys]
            zeros = jax.jit(zeros_for_the_stores, out_shardings=shardings)
            self._zeros = zeros if self.executables is None else self._compiled(zeros.lower(), None, None)[0]
        return dict(zip(keys, self._zeros(), strict=True))

    def fed(self, name: str, value: Any, is_lasting: bool = False) -> Any:
        """A fed array as the device programs take it: one array, or a tuple of its parts.

        An array that several launches or runs read (it `is_lasting`) goes to the device once, before them.
        """

        def placed(array: Any) -> Any:
            if self.spread is None:
                return self.backend.to_device(array)
            return self.spread.placed(array, self.spread.sharding(self._fed_type(name)[0].shape))

        axis = self.unrolled.inputs.get(name)
        if axis is None:
            is_lasting = is_lasting or self.launches.readers[name] > 1 or aligned.is_copied_from_a_file(value)
            return placed(value) if is_lasting or self.spread is not None else value
        # On a CPU, the parts share the memory of the whole.
        return tuple(map(placed, np.moveaxis(self.backend.to_host(value), axis, 0)))

    def seed_argument(self, seed: np.uint32) -> Any:
        """A seed as the device programs take it. A number from the host would go to the device at each launch."""
        if self.spread is not None:
            return seed
        last = self._seed  # other threads may run the program with other seeds
        if last is None or last[0] != seed:
            self._seed = last = seed, jax.device_put(seed)
        return last[1]

    def takes_alike(self, other: Staged) -> bool:
        """Whether fed arrays as these device programs take them are those of other ones."""
        return self.unrolled.inputs == other.unrolled.inputs and self.spread is None and other.spread is None

    def value(self, array: Any) -> Any:
        """A value that a launch fetched, or takes, from the host as it was on the device."""
        return self.backend.to_device(array) if self.spread is None else array

    def stored(self, key: Key, array: Any) -> Any:
        """An array of a store, from the host, as the device programs take it."""
        return self.backend.to_device(array) if self.spread is None else self.spread.placed(array, self.lowering.sharding(key))


def _identity(text: str, lowered: Any, spread: Spread | None, options: Mapping[str, Any]) -> str:
    """The key of an XLA program: its text, its arguments with their nesting, its devices and its options.

    The text has all arguments, also those that it does not use. Without them, a program that reads the first of two equal arrays
    would have the text of one that reads the second.
    """
    parts = text, lowered.in_tree, lowered.out_tree, None if spread is None else spread.name, sorted(options.items())
    return hashlib.sha256("\n".join(map(str, parts)).encode()).hexdigest()
