"""Runs of a staged program. What the host does in a step is decided before: the tree of items becomes functions of the run."""

from __future__ import annotations

import functools
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Union

import jax
import numpy as np

from tempo_core.backends import aligned
from tempo_core.backends.base import Setting, call_error, checked_results, numpy_dtype
from tempo_core.ir.graph import Key
from tempo_core.ir.ops import Sink, Udf
from tempo_core.ir.udf import Fed
from tempo_core.runtime.feeds import Feed, Feeds
from tempo_core.runtime.numerics import Watch
from tempo_core.runtime.staged.chunks import counted_steps, next_count
from tempo_core.runtime.staged.host import Chunks, HostCall, HostIf, HostItem, Segment, calls, segments, statements
from tempo_core.runtime.staged.stage import Staged
from tempo_core.runtime.walk import Branch, Leaf, Loop, Node, Pieces, Walk, evaluator
from tempo_core.schedule import Execute
from tempo_core.symbolic.expr import Symbol

Action = Callable[["Progress"], None]


class Progress:
    """The state of one run: its stores, loop counters, and values on their way between functions and device programs."""

    def __init__(
        self, staged: Staged, fed: Feeds, seed: int, watch: Watch | None, out: Mapping[int, np.ndarray[Any, Any]] | None = None
    ):
        """Results on the host that have an array in `out`, by position, are written there."""
        self.watch = watch
        arrays = {name: staged.fed(name, fed.fit(name, value)) for name, value in fed.arrays.items() if name not in fed.bound}
        self.inputs: Mapping[str, Any] = {**arrays, **fed.bound}
        self.streams: Mapping[str, Feed] = fed.streams
        self.seed = np.uint32(seed & 0xFFFFFFFF)
        self.seed_argument = staged.seed_argument(self.seed)
        self.stores = staged.new_stores()
        into = {key: array for position, key in staged.launches.whole if (array := (out or {}).get(position)) is not None}
        self.held = {key: staged.host_store(key, fed, into.get(key)) for key in staged.hosted}
        self.kept = {key: np.zeros(shape, dtype) for key, (shape, dtype) in staged.kept.items()}  # stores of the host
        self.stale = set(self.kept)  # those of them that changed since a device program took them
        self.lacks_stores = False  # whether those that are not there count as empty: in a run that was put back
        self.counters: dict[Symbol, int] = dict(fed.chosen)
        self.values: list[Any] = [None] * staged.launches.slots  # operands or results of calls, and outputs
        self.sinking: deque[Callable[[], None]] = deque()

    def deliver_all(self) -> None:
        while self.sinking:
            self.deliver()

    def deliver(self) -> None:
        call = self.sinking.popleft()
        try:
            call()
        except BaseException:
            self.sinking.clear()  # values come in order or not at all
            raise


class Host:
    """What the host does in a run: the items of a staged program as a tree of functions."""

    def __init__(self, staged: Staged):
        self.staged, self.graph, self.bounds = staged, staged.graph, staged.lowering.bounds
        self._evaluator = functools.partial(evaluator, bounds=self.bounds)
        self.tree = self._nodes(staged.items)

    def run(self, run: Progress) -> None:
        try:
            Walk(self.tree, run).go_on()
        except Exception:  # sinks still get what was computed before an error; not after an interrupt
            run.deliver_all()
            raise
        run.deliver_all()

    def _nodes(self, items: Sequence[HostItem]) -> list[Node[Progress]]:
        return [self._node(item) for item in items]

    def _node(self, item: HostItem) -> Node[Progress]:
        if isinstance(item, Segment):
            return Leaf(self._launch(item))
        if isinstance(item, HostCall):
            return Leaf(self._call(item))
        if isinstance(item, HostIf):
            return Branch(self._evaluator(item.condition), self._nodes(item.then), self._nodes(item.orelse))
        steps = counted_steps(item.counter, _executes([item]), self.graph)
        if isinstance(item, Chunks):
            seconds = self.staged.launch_seconds
            return Pieces(
                item, steps, self.bounds, self._piece(item), functools.partial(next_count, wanted=seconds, most=item.most)
            )
        edge, body = self._nodes(item.edge), self._nodes(item.body)
        return Loop(item, steps, self.bounds, body, [*edge, *body])

    # -- launches -----------------------------------------------------------------------------------------------------

    def _launch(self, segment: Segment) -> Action:
        staged, compiled = self.staged, segment.compiled
        writes, inputs, given, counters = segment.writes, segment.inputs, segment.donated, segment.counters
        donated, reads = segment.stores_passed
        kept = [key for key in reads if key in staged.kept]
        moves = staged.moves.get(segment.number, {})
        moved = {key: moves[key] for key in (*donated, *reads) if key in staged.hosted}
        puts = [(put.slot, put.outputs) for put in segment.puts]
        fetches = [item.slot for item in segment.fetches]
        int32 = np.int32
        ends, finds_ends = staged.outermost_ends, staged.ends_steps(segment)

        def launch(run: Progress) -> None:
            nonlocal compiled
            stores, values, at = run.stores, run.values, run.counters
            for key in kept:
                if key in run.stale:
                    stores[key] = aligned.copied(run.kept[key], run.kept[key].dtype)
                    run.stale.discard(key)
            now = {key: each.at(at) for key, each in moved.items()}
            for key, move in now.items():
                stores[key] = run.held[key].take(move)
            if run.lacks_stores:
                stores.update((key, staged.lowering.zeros(key)) for key in (*donated, *reads) if key not in stores)
            arguments = (
                [stores[key] for key in donated],
                [run.inputs[name] for name in given],
                [stores[key] for key in reads],
                [values[slot][output] for slot, outputs in puts for output in outputs],
                [run.inputs[name] for name in inputs],
                [int32(at[counter]) for counter in counters],
                run.seed_argument,
            )
            if compiled is None:
                compiled = staged.compile(segment, arguments)
            written, fetched, seen = compiled(*arguments)
            for key in now:
                del stores[key]  # its memory is the host store's
            for key, value in zip(writes, written, strict=True):
                if key in now:
                    run.held[key].give(value, now[key])
                else:
                    stores[key] = value
            for slot, value in zip(fetches, fetched, strict=True):
                values[slot] = value
            if run.watch is not None and seen:
                run.watch.saw(int(seen[0]))
            if finds_ends:
                at.update(zip(ends, map(int, seen), strict=True))

        return launch

    def _piece(self, item: Chunks) -> Callable[[Progress, int, int], float | None]:
        """A function that runs some iterations of a long loop, and waits for them: Python serves signals between two launches."""
        launch, clock = self._launch(item.segment), lambda: self.staged.clock()
        results = item.segment.writes[:1]  # the arrays of a launch are ready together; a loop that no result needs has none
        moves = self.staged.moves.get(item.segment.number, {})
        ahead = {key: moves[key] for key in item.segment.stores_passed[1] if key in moves}  # those that a launch only reads

        def piece(run: Progress, first: int, last: int) -> float | None:
            is_new, began = item.segment.compiled is None, clock()
            run.counters[item.first], run.counters[item.last] = first, last
            launch(run)
            then = {**run.counters, item.first: last, item.last: last + (last - first)}
            for key, each in ahead.items():
                run.held[key].fetch_ahead(each.at(then))
            jax.block_until_ready([run.held[key].part if key in run.held else run.stores[key] for key in results])
            return None if is_new else clock() - began

        return piece

    # -- calls of functions -------------------------------------------------------------------------------------------

    def _call(self, item: HostCall) -> Action:
        op = self.graph[item.execute.node].op
        if isinstance(op, Sink):
            return self._sink(item, op)
        assert isinstance(op, Udf)
        keep, node, point = self._keep(item), self.graph[item.execute.node], self._point(item.execute)
        function = self._feed(op.fn.name, point) if isinstance(op.fn, Fed) else self._function(item, op)

        def call(run: Progress) -> None:
            run.values[item.slot] = results = function(run)
            keep(run, results)
            if run.watch is not None:
                run.watch.record(node, tuple(point(run).values()), tuple(results))

        return call

    def _feed(self, name: str, point: Callable[[Progress], dict[str, int]]) -> Callable[[Progress], Sequence[Any]]:
        return lambda run: (run.streams[name].take(tuple(point(run).values())),)

    def _point(self, execute: Execute) -> Callable[[Progress], dict[str, int]]:
        """The values of a statement's steps, by name."""
        steps = self.graph[execute.node].domain.steps
        places = [(step, e) for step, e in zip(steps, execute.point, strict=True) if step not in self.graph.chosen]
        parts = [(step.name, self._evaluator(e)) for step, e in places]
        return lambda run: {name: value(run.counters) for name, value in parts}

    def _function(self, item: HostCall, op: Udf) -> Callable[[Progress], Sequence[Any]]:
        """A function that calls the user's function. Values of the host stay there: the next launch takes them as arguments.

        Operands and results are copied: both sides may write into theirs.
        """
        slot, fn, point, bounds = item.slot, op.fn, self._point(item.execute), self.bounds
        has_operands = bool(self.graph[item.execute.node].inputs)
        steps = {step.name: step for step in self.graph[item.execute.node].domain.steps}
        dtypes = [numpy_dtype(type.dtype) for type in op.types]
        fixed = all(not size.steps for type in op.types for size in type.shape)
        shapes = [tuple(size.evaluate(bounds) for size in type.shape) for type in op.types] if fixed else None
        copies = [k not in item.kept for k in range(len(op.types))]  # `_keep` copies the others
        kinds = list(zip(shapes, dtypes, copies, strict=True)) if shapes is not None else None

        def call(run: Progress) -> Sequence[Any]:
            operands = [np.array(x.block_until_ready()) for x in run.values[slot]] if has_operands else []
            try:
                results = fn(*operands)
            except Exception as error:  # KeyboardInterrupt and similar exceptions pass
                raise call_error(f"user-defined function `{op.name}`", op.where, operands, point(run), error) from error
            if kinds is not None and isinstance(results, tuple) and len(results) == len(kinds):
                arrays = []
                for result, (shape, dtype, copied) in zip(results, kinds, strict=True):
                    if not isinstance(result, np.ndarray) or result.shape != shape or result.dtype != dtype:
                        break
                    arrays.append(result.copy() if copied else result)
                else:
                    return arrays
            env = {**bounds, **{steps[name]: value for name, value in point(run).items()}}
            return checked_results(Setting(self.staged.backend, env, run.seed), op, results, np.array, point(run))

        return call

    def _keep(self, item: HostCall) -> Callable[[Progress, Sequence[Any]], None]:
        """A function that stores results which stay on the host."""
        lowering, node = self.staged.lowering, self.graph[item.execute.node]
        point = [self._evaluator(e) for e in item.execute.point]
        on_host = [(node.id, output) for output in item.kept if (node.id, output) in self.staged.launches.returned]
        keys = [(node.id, output) for output in item.kept if (node.id, output) not in on_host]
        alike: dict[Any, list[Key]] = {}  # results that have the same place in their stores
        for key in keys:
            alike.setdefault((lowering.storage[key], lowering.layout(key)), []).append(key)
        places = [(lowering.place(group[0], point), group) for group in alike.values()]

        def keep(run: Progress, results: Sequence[Any]) -> None:
            for place, group in places:
                at = place(run.counters)
                for key in group:
                    run.kept[key][at] = results[key[1]]
            run.stale.update(keys)
            for key in on_host:
                run.held[key].write(tuple(each(run.counters) for each in point), results[key[1]])

        return keep

    def _sink(self, item: HostCall, op: Sink) -> Action:
        """A sink gets its values one call late, while the device works on."""
        where, point, name = self.graph[item.execute.node].where, self._point(item.execute), f"sink `{op.name}`"

        def sink(run: Progress) -> None:
            operands, at = run.values[item.slot] or [], point(run)

            def call() -> None:
                arrays = [np.asarray(x) for x in jax.block_until_ready(operands)]
                try:
                    op.fn(*arrays, **at)
                except Exception as error:
                    raise call_error(name, where, arrays, at, error, takes_point=True) from error

            run.sinking.append(call)
            if len(run.sinking) > 1:
                run.deliver()

        return sink


class StagedProgram(Staged):
    """A staged program that runs: alone, or as a part of a run that stops and goes on."""

    def run(
        self,
        fed: Feeds,
        seed: int,
        watch: Watch | None = None,
        out: Mapping[int, np.ndarray[Any, Any]] | None = None,
    ) -> dict[int, Any]:
        """Run the whole program. Returns the results by position. Those on the host are written into `out`, where it has an array."""
        run = Progress(self, fed, seed, watch, out)
        self.host.run(run)
        results = self.results(run)
        # If a program failed, reading its results later would end the process. And the inputs are the caller's again.
        for value in (*results.values(), *run.stores.values()):
            if isinstance(value, jax.Array):
                value.block_until_ready()  # JAX's function for any nesting takes longer than a small program
            else:
                jax.block_until_ready(value)
        return results

    @functools.cached_property
    def host(self) -> Host:
        """What the host does in a run."""
        return Host(self)

    def results(self, run: Progress) -> dict[int, Any]:
        """The results that a run has given so far, by position."""
        given = {position: run.values[slot][0] for position, slot in self.launches.outputs if run.values[slot] is not None}
        kept = {self.position(key[0]): run.stores[key] for key in self.kept_outputs if key in run.stores}
        results = given | kept | {position: self.whole(key, run.held[key]) for position, key in self.launches.whole}
        return results if self.spread is None else {position: self.spread.gathered(v) for position, v in results.items()}


OpenedAt = Union[tuple[Union[str, None]], None]  # the step between whose iterations runs can stop, if they can


class StagedPrograms:
    """A program's device programs: for plain runs, for runs that stop, and for those that have the arrays of some inputs for themselves."""

    def __init__(self, make: Callable[..., StagedProgram]):
        """`make(opened_at=..., donated=...)` gives one of them."""
        self._make = make
        self._programs: dict[tuple[OpenedAt, frozenset[str]], StagedProgram] = {}

    def of(self, opened_at: OpenedAt = None, donated: frozenset[str] = frozenset()) -> StagedProgram:
        if (opened_at, donated) not in self._programs:
            self._programs[opened_at, donated] = self._make(opened_at=opened_at, donated=donated)
        return self._programs[opened_at, donated]

    def __iter__(self) -> Iterator[StagedProgram]:
        return iter(self._programs.values())


def _executes(items: Sequence[HostItem]) -> list[Execute]:
    """All statements in some items."""
    inside = [each for segment in segments(items) for part in segment.items for each in statements(part)]
    return [*inside, *(call.execute for call in calls(items))]
