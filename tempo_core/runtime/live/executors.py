"""What a run that lives asks of an executor: to go on, its state as arrays with stable names, and that state put back.

There are two executors: device programs with the host between them (`stage`, `run`), and the interpreter.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from typing import Any, Protocol

import jax
import numpy as np

from tempo_core.backends.base import Backend, numpy_dtype
from tempo_core.ir.graph import Key
from tempo_core.ir.names.naming import value_names
from tempo_core.ir.ops import Output
from tempo_core.runtime.feeds import Feeds
from tempo_core.runtime.interpreted.interpreter import Interpreter
from tempo_core.runtime.live.alive import Alive, Held
from tempo_core.runtime.numerics import Watch
from tempo_core.runtime.staged.run import Progress, StagedProgram
from tempo_core.runtime.walk import Path, Walk
from tempo_core.schedule import Loop, Scheduled
from tempo_core.schedule.tree import walk
from tempo_core.symbolic.domain import Index, Range, is_full_range
from tempo_core.symbolic.expr import Symbol

Array = Any  # numpy.ndarray or jax.Array


class Executor(Protocol):
    """An executor in the middle of a run."""

    walk: Walk[Any]
    names: dict[Key, str]  # of stores

    def settle(self) -> None:
        """Wait until all that was started has ended, sinks included."""

    def results(self) -> dict[int, Any]:
        """The results so far, by position. A result that is filled point by point has zeros at points that are not reached yet."""

    def arrays(self) -> dict[str, Array]:
        """What the run needs to go on, by name: the counters, and the stores and values on their way that are read again."""

    def put_back(self, arrays: Mapping[str, np.ndarray[Any, Any]]) -> None:
        """Take over arrays that another run of the same program gave."""


class StagedExecutor:
    """Device programs: stores are arrays on the device, or on the host where functions give them."""

    def __init__(self, staged: StagedProgram, fed: Feeds, seed: int, watch: Watch | None, path: Path):
        self.staged, self.names = staged, value_names(staged.graph)
        self.progress = Progress(staged, fed, seed, watch)
        self.walk = Walk(staged.host.tree, self.progress, path)
        slots = [slot for _, slot in staged.launches.outputs]
        whole = [key for _, key in staged.launches.whole]
        self.alive = Alive(staged.items, staged.graph, staged.lowering.bounds, (*staged.kept_outputs, *whole, *slots))
        chunks = (segment for segment in staged.segments if segment.is_chunk)
        self.of_pieces = {counter for segment in chunks for counter in segment.counters[-2:]}  # set anew for each launch

    def settle(self) -> None:
        self.progress.deliver_all()
        jax.block_until_ready(list(self.progress.stores.values()))

    def results(self) -> dict[int, Any]:
        staged, progress = self.staged, self.progress
        results = staged.results(progress)
        if not self.walk.done:  # stores on the host change as the run goes on
            results |= {position: np.array(results[position]) for position, _ in staged.launches.whole}
        for fetch in (fetch for segment in staged.segments for fetch in segment.fetches):
            op = staged.graph[fetch.execute.node].op
            if isinstance(op, Output) and op.position not in results:
                sources = {(edge.source, edge.output) for edge in staged.lowering.edges(fetch.execute)}
                if sources <= progress.stores.keys():
                    at = {**staged.lowering.bounds, **progress.counters}
                    results[op.position] = staged.lowering.operands(fetch.execute, progress.stores, progress.inputs, at)[0]
        return results

    def arrays(self) -> dict[str, Array]:
        progress = self.progress
        counters = {counter: at for counter, at in progress.counters.items() if counter not in self.of_pieces}
        arrays: dict[str, Array] = {f"counter/{counter.name}": np.int64(at) for counter, at in counters.items()}
        alive = self._alive()
        for key, value in progress.stores.items():
            if key in alive and key not in progress.kept:
                arrays |= zip(self._names(key), value if self._is_split(key) else (value,), strict=True)
        arrays |= {f"host store/{self.names[key]}": array for key, array in progress.kept.items() if key in alive}
        held = {key: held for key, held in progress.held.items() if key in alive and held.array is not None}
        arrays |= {f"host store/{self.names[key]}": each.whole() for key, each in held.items()}
        for slot, given in enumerate(progress.values):
            if slot in alive and given is not None:
                arrays |= {f"value/{slot}.{k}": array for k, array in enumerate(given)}
        return arrays

    def _is_split(self, key: Key) -> bool:
        return key in self.staged.unrolled.stores

    def _names(self, key: Key) -> list[str]:
        """The name of a store, or of each of its parts."""
        name = f"store/{self.names[key]}"
        if not self._is_split(key):
            return [name]
        parts = self.staged.lowering.storage[key].slots[self.staged.unrolled.stores[key]]
        return [f"{name} part {k}" for k in range(parts)]

    def _alive(self) -> frozenset[Held]:
        """The stores, and the slots of values on their way, that are read at the place of the run or after it."""
        if self.walk.done:
            return self.alive.at_end
        loops = [(node.item, left) for node, left in self.walk.around()]
        return self.alive.before(loops) if loops else frozenset()  # before the first loop, nothing has been written

    def put_back(self, arrays: Mapping[str, np.ndarray[Any, Any]]) -> None:
        progress, staged = self.progress, self.staged
        names = {counter.name: counter for item in self.staged.segments for counter in item.counters}
        names |= {counter.name: counter for counter in progress.counters}
        progress.counters = {names[name]: int(array) for name, array in _of_kind(arrays, "counter") if name in names}
        for key in self.names:
            if self._names(key)[0] in arrays:
                parts = tuple(staged.stored(key, arrays[name]) for name in self._names(key))
                progress.stores[key] = parts if self._is_split(key) else parts[0]
        progress.lacks_stores = True  # those that a launch before this place began, and that nobody reads
        for key, kept in progress.kept.items():
            kept[...] = arrays.get(f"host store/{self.names[key]}", kept)
        for key, held in progress.held.items():
            if f"host store/{self.names[key]}" in arrays:
                held.put_back(arrays[f"host store/{self.names[key]}"])
        progress.stale = set(progress.kept)
        for slot in range(staged.launches.slots):
            names_of_slot = itertools.takewhile(arrays.__contains__, (f"value/{slot}.{k}" for k in itertools.count()))
            progress.values[slot] = [staged.value(arrays[name]) for name in names_of_slot] or None


class InterpretedExecutor:
    """The interpreter: a store has one array for each of its points."""

    def __init__(self, scheduled: Scheduled, backend: Backend, fed: Feeds, seed: int, watch: Watch | None, path: Path):
        self.interpreter = Interpreter(scheduled, backend, seed, watch)
        self.names = value_names(scheduled.graph)
        self.state = self.interpreter.state(fed)
        self.walk = Walk(self.interpreter.tree, self.state, path)
        self.fixed = {key for key, values in self.state.stores.values.items() if values}  # inputs and constants

    def settle(self) -> None:
        pass

    def results(self) -> dict[int, Any]:
        state, graph, bounds = self.state, self.interpreter.graph, self.interpreter.bounds
        results = dict(state.results)
        for node in graph:
            if isinstance(node.op, Output) and node.op.position not in results:
                edge = node.inputs[0]
                source, type = graph[edge.source], graph[edge.source].outputs[edge.output]
                values = state.stores.values.get((edge.source, edge.output), {})
                places = [k for k, step in enumerate(source.domain.steps) if step not in graph.chosen]
                steps = [source.domain.steps[k] for k in places]
                whole = all(_is_whole(edge.index[k], step) for k, step in zip(places, steps, strict=True))
                if values and whole and type.is_static:
                    sizes = (*(step.bound_expr for step in steps), *type.shape)
                    array = np.zeros([size.evaluate(bounds) for size in sizes], numpy_dtype(type.dtype))
                    for at, value in values.items():
                        array[tuple(at[k] for k in places)] = self.interpreter.backend.to_host(value)
                    results[node.op.position] = array
        return results

    def arrays(self) -> dict[str, Array]:
        state = self.state
        arrays: dict[str, Array] = {f"counter/{counter.name}": np.int64(at) for counter, at in state.counters.items()}
        for key, values in state.stores.values.items():
            if key not in self.fixed:
                arrays |= {f"store/{self.names[key]}@{','.join(map(str, at))}": value for at, value in values.items()}
        for position, value in state.results.items():
            arrays |= dict(_flat(f"result/{position}", value))
        return arrays

    def put_back(self, arrays: Mapping[str, np.ndarray[Any, Any]]) -> None:
        state, to_device = self.state, self.interpreter.backend.to_device
        loops = [item.counter for item in walk(self.interpreter.scheduled.root) if isinstance(item, Loop)]
        counters = {symbol.name: symbol for symbol in (*loops, *state.counters)}
        state.counters.update({counters[name]: int(array) for name, array in _of_kind(arrays, "counter") if name in counters})
        keys = {name: key for key, name in self.names.items()}
        for name, array in _of_kind(arrays, "store"):
            base, _, point = name.rpartition("@")
            at = tuple(map(int, point.split(","))) if point else ()
            state.stores.put(keys[base], at, to_device(np.array(array)))  # a copy: arrays of a file may lie at odd addresses
        for name, array in _of_kind(arrays, "result"):
            position, *places = map(int, name.split("."))
            state.results[position] = _nested(state.results.get(position), places, array)


def _is_whole(index: Index, step: Symbol) -> bool:
    """Whether a read is of all points of a step, up to the bound that the run chose."""
    return is_full_range(index, step) or (
        isinstance(index, Range) and bool((index.start == 0) & (index.length == step.bound_expr))
    )


def _flat(name: str, value: Any) -> Iterator[tuple[str, Array]]:
    """An array by its name, or the arrays of nested lists, each with its places."""
    if isinstance(value, list):
        for place, part in enumerate(value):
            yield from _flat(f"{name}.{place}", part)
    else:
        yield name, value


def _nested(value: Any, places: list[int], array: Any) -> Any:
    """`value` with an array at some places of its nested lists, which come in their order."""
    if not places:
        return array
    parts = [] if value is None else value
    inner = _nested(parts[places[0]] if places[0] < len(parts) else None, places[1:], array)
    return [*parts[: places[0]], inner]


def _of_kind(arrays: Mapping[str, Any], kind: str) -> Iterator[tuple[str, Any]]:
    return ((name[len(kind) + 1 :], array) for name, array in arrays.items() if name.startswith(f"{kind}/"))
