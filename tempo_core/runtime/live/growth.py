"""A saved run that goes on with another number of iterations: its state, as the program for other bounds has it at the same place.

What loops of the present iterations wrote is taken over: value by value where a store has one slot a point. What was computed before the
loop is computed anew, for it may be values of all iterations, such as random numbers. What cannot be the same is refused.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np

from tempo_core.errors import StateError
from tempo_core.ir.graph import Graph, Key
from tempo_core.runtime.feeds import InputSpec, is_array
from tempo_core.runtime.live.executors import Executor, InterpretedExecutor, StagedExecutor
from tempo_core.runtime.live.live import Run
from tempo_core.runtime.live.state_file import Snapshot, digest
from tempo_core.runtime.staged.run import StagedProgram
from tempo_core.runtime.walk import Branch, Loop, Node
from tempo_core.schedule import Block, Execute, Scheduled
from tempo_core.schedule import Loop as ScheduledLoop
from tempo_core.schedule.tree import Item, parts, with_loops
from tempo_core.symbolic.expr import Bounds, Symbol

Array: TypeAlias = np.ndarray[Any, np.dtype[Any]]
SAVE_EARLIER = "save a state before the last iteration, and resume that one"


def grown(
    state: Snapshot, steps: Mapping[Symbol, int], old: tuple[Scheduled, StagedProgram | None], new: Scheduled, fresh: Executor
) -> Snapshot:
    """The state for other bounds of `steps`, whose numbers are given. `fresh` is a run with them that stands before its first iteration.

    `old` is the program that saved the state, `new` that of `fresh`. Raises StateError for a state that cannot be taken over.
    """
    meta: Any = state.meta
    names = ", ".join(step.bound_symbol.name for step in steps)
    if meta["done"]:
        raise StateError(
            f"the run has ended, so that {names} cannot change: its last iteration left out what a next one needs",
            hint=SAVE_EARLIER,
        )
    if not meta["place"]:  # nothing has run
        kept = {
            name: array for name, array in state.arrays.items() if name.split("/")[0] in ("seed", "stream", "input", "function")
        }
        return Snapshot(kept, {**meta, "started": False})
    number, at = meta["place"][0]
    if at > min(steps.values()):
        raise StateError(
            f"the saved run has done {at} iterations over {', '.join(map(str, steps))}, more than {names} allows",
            hint=f"give {names} at least the number of iterations that are done",
        )
    loop = _loop(fresh.walk.nodes, number, steps)
    before, staged = old
    _check_form(before, new, loop.item.counter, steps)
    if staged is not None and _form(staged.host.tree) != _form(fresh.walk.nodes):
        raise StateError(f"the device programs for this {names} are others than those of the saved run", hint=SAVE_EARLIER)
    arrays = _Taken(state.arrays, fresh, new, loop.item.counter).arrays(staged, steps, before)
    return Snapshot(arrays, meta)


def _loop(nodes: Sequence[Node[Any]], number: int, steps: Mapping[Symbol, int]) -> Loop[Any]:
    """The outermost loop of a place, which counts `steps`. No loop before it does."""
    for node in nodes[: number + 1]:
        if isinstance(node, Loop) and all(step.name in node.steps for step in steps):
            if node is nodes[number]:
                return node
            break
    names = ", ".join(map(str, steps))
    raise StateError(
        f"the run is not in its first outermost loop over {names}, and only the bound of that loop can change",
        hint="give other bounds as they were",
    )


# -- the same program -------------------------------------------------------------------------------------------------


def _check_form(old: Scheduled, new: Scheduled, counter: Symbol, steps: Iterable[Symbol]) -> None:
    """Raise StateError unless two schedules of one graph differ in the numbers of iterations and in conditions alone, and go upwards."""
    for ours, theirs in _pairs(old.root, new.root):
        is_same = type(ours) is type(theirs)
        if isinstance(ours, Execute):
            is_same = ours == theirs or not _is_inside(ours, old, counter)
        elif isinstance(ours, ScheduledLoop) and isinstance(theirs, ScheduledLoop):
            is_same = (ours.counter, ours.step) == (theirs.counter, theirs.step)
        if not is_same:
            raise StateError(
                "the schedule is another one for these bounds",
                hint="compile the program for the larger bounds at first, and stop the run: run.advance(count=100)",
            )
    for execute, loops in with_loops(new.root):
        if loops and loops[0].counter == counter:
            domain = new.graph[execute.node].domain.steps
            for step, point in zip(domain, execute.point, strict=True):
                if step in steps and not (point.is_constant or (point - counter.expr).is_constant):
                    raise StateError(
                        f"the loop over {step} does not go from its first point to its last", hint="give the same bounds"
                    )


def _is_inside(execute: Execute, scheduled: Scheduled, counter: Symbol) -> bool:
    return any(execute is each and loops and loops[0].counter == counter for each, loops in with_loops(scheduled.root))


def _pairs(ours: Item, theirs: Item) -> Iterator[tuple[Item, Item | None]]:
    """The items of two trees at the same places; None for one that the second tree lacks."""
    yield ours, theirs
    inner, others = parts(ours), parts(theirs)
    if type(ours) is type(theirs):
        if len(inner) != len(others):
            yield Block(), None
        for each, other in zip(inner, others, strict=False):
            yield from _pairs(each, other)


def _form(nodes: Sequence[Node[Any]]) -> tuple[object, ...]:
    """The nodes of a walk, without their numbers of iterations."""
    return tuple(
        (node.item.counter, _form(node.first), _form(node.later))
        if isinstance(node, Loop)
        else (_form(node.then), _form(node.orelse))
        if isinstance(node, Branch)
        else ()
        for node in nodes
    )


# -- the arrays -------------------------------------------------------------------------------------------------------


class _Taken:
    """The arrays of a saved state, and those of a fresh run before the loop with this counter."""

    def __init__(self, saved: Mapping[str, Array], fresh: Executor, new: Scheduled, counter: Symbol):
        self.saved, self.fresh, self.new = saved, {name: np.array(array) for name, array in fresh.arrays().items()}, new
        self.executor, self.graph = fresh, new.graph
        inside = (execute.node for execute, loops in with_loops(new.root) if loops and loops[0].counter == counter)
        self.written_inside, self.counter = frozenset(inside), counter

    def arrays(self, staged: StagedProgram | None, steps: Mapping[Symbol, int], old: Scheduled) -> dict[str, Array]:
        """The arrays of the state. Those of the fresh run are only stores and values."""
        taken = {name: array for name, array in self.saved.items() if name.split("/")[0] not in ("store", "host store", "value")}
        taken |= {f"counter/{step.name}": self.fresh[f"counter/{step.name}"] for step in self.graph.chosen}
        if isinstance(self.executor, InterpretedExecutor):
            keys = {name: key for key, name in self.executor.names.items()}
            for arrays, is_wanted in ((self.fresh, False), (self.saved, True)):
                for name, array in arrays.items():
                    if name.startswith("store/") and (keys[name[6:].rpartition("@")[0]][0] in self.written_inside) is is_wanted:
                        taken[name] = array
            return taken
        assert isinstance(self.executor, StagedExecutor) and staged is not None
        for key, name in self.executor.names.items():
            for label, part in self._labels(key, name):
                if label in self.saved and key[0] not in self.written_inside:
                    taken[label] = self.fresh.get(label, self.saved[label])
                elif label in self.saved:
                    taken[label] = self._moved(key, self.saved[label], label, part, staged, steps, old)
        for name, array in self.saved.items():
            if name.startswith("value/"):
                is_inside = self._is_slot_inside(int(name[6:].split(".")[0]))
                taken[name] = array if is_inside else self.fresh.get(name, array)
        return taken

    def _is_slot_inside(self, slot: int) -> bool:
        assert isinstance(self.executor, StagedExecutor)
        writes = self.executor.alive.writes.get(slot, ())
        return any(write.loops and write.loops[0][1] == self.counter for write in writes)

    def _labels(self, key: Key, name: str) -> Iterator[tuple[str, bool]]:
        """The names of the arrays of a store, each with whether it is a part of it."""
        assert isinstance(self.executor, StagedExecutor)
        names = self.executor._names(key)
        yield from ((each, len(names) > 1 or each != f"store/{name}") for each in names)
        yield f"host store/{name}", False

    def _moved(
        self,
        key: Key,
        array: Array,
        label: str,
        is_part: bool,
        staged: StagedProgram,
        steps: Mapping[Symbol, int],
        old: Scheduled,
    ) -> Array:
        """The array of a store that iterations write, with the slots that it has for the other bounds."""
        before, after = old.storage.get(key), self.new.storage.get(key)
        executor = self.executor
        assert isinstance(executor, StagedExecutor)
        was, now = staged.lowering, executor.staged.lowering
        if was.sizes(key) != now.sizes(key):
            raise self._refused(key, f"has values of the shape {was.sizes(key)} at first, and {now.sizes(key)} then")
        if before == after:
            return array
        if before is None or after is None or is_part or label.startswith("host"):
            raise self._refused(key, "is stored in another way")
        domain = self.graph[key[0]].domain.steps
        own, other = was.layout(key), now.layout(key)
        source = array.transpose(np.argsort(own)).reshape(*before.slots, *was.sizes(key))
        for axis, (step, count, others) in enumerate(zip(domain, before.slots, after.slots, strict=True)):
            if (count, before.lasting_along(axis)) == (others, after.lasting_along(axis)):
                continue
            points = old.bounds[step.bound_symbol]
            holds_all = step in steps and count >= points and before.lasting_along(axis) is after.lasting_along(axis) is None
            if not holds_all:
                raise self._refused(key, f"keeps {count} of its points over {step} at first, and {others} then")
            by_point = np.moveaxis(source, axis, 0)
            wide = np.zeros((others, *by_point.shape[1:]), array.dtype)
            for point in range(points):
                wide[point % others] = by_point[point % count]
            source = np.moveaxis(wide, 0, axis)
        physical = [n for n in after.slots if n > 1] + list(now.sizes(key))
        return np.ascontiguousarray(source.reshape(physical).transpose(other))

    def _refused(self, key: Key, why: str) -> StateError:
        node = self.graph[key[0]]
        return StateError(
            f"{node.label} {why}, so that the saved run cannot go on with other bounds",
            where=node.where,
            hint="give the bounds of the saved run, or run the program with the larger ones from its start",
        )


# -- what depends on a bound ------------------------------------------------------------------------------------------


def said_of(graph: Graph, steps: Mapping[Symbol, int]) -> str:
    """What a run says that goes on with other bounds: the user's lines that use them in values of their iterations; empty if none does."""
    bounds = {step.bound_symbol for step in steps}
    inside = {node.id for node in graph if any(step in node.domain for step in steps)}
    waiting = list(inside)
    while waiting:  # and what they are computed from
        sources = {edge.source for edge in graph[waiting.pop()].inputs} - inside
        inside |= sources
        waiting += sources
    users = [node for node in graph if node.id in inside and node.symbols & bounds]
    lines = dict.fromkeys(node.where or node.label for node in users)
    if not lines:
        return ""
    numbers = ", ".join(f"{step.bound_symbol} = {number}" for step, number in steps.items())
    return f"depends on {', '.join(step.bound_symbol.name for step in steps)}, and has {numbers} from here on: {', '.join(lines)}"


# -- the way there ----------------------------------------------------------------------------------------------------


def saved_bounds(state: Snapshot, bounds: Iterable[Symbol]) -> dict[Symbol, int]:
    """The bounds with which a state was saved. Raises StateError for the state of a program with other bounds."""
    meta: Any = state.meta
    numbers = {}
    for bound in bounds:
        text = meta["bounds"].get(bound.name, meta["program"].get(f"bound {bound.name}"))
        if not str(text).isdecimal():
            raise StateError(
                f"the state is that of another program: it has no number for the bound {bound}",
                hint="compile the same program as the one that saved it",
            )
        numbers[bound] = int(text)
    return numbers


def inputs_for(
    state: Snapshot, given: Mapping[str, Any], specs: Mapping[str, InputSpec], steps: Mapping[Symbol, int], saved: Bounds
) -> tuple[dict[str, Any], dict[str, str]]:
    """The inputs of a run that goes on with other bounds of `steps`, and their checksums.

    Those over such a step are given, with the same values at the points that the saved run had. Raises StateError.
    """
    meta: Any = state.meta
    held = {name: state.arrays[f"input/{name}"] for name in meta["inputs"] if f"input/{name}" in state.arrays}
    checksums, lengths = dict(meta["inputs"]), {step.name: saved[step.bound_symbol] for step in steps}
    for name, checksum in meta["inputs"].items():
        spec = specs.get(name)
        if spec is None or not set(spec.steps) & lengths.keys() or (name in given and not is_array(given[name])):
            continue
        if name not in given:
            raise StateError(f"the input `{name}` has other points with the new bounds", hint="give all of them: inputs={...}")
        whole = np.asarray(given[name]).astype(spec.numpy_dtype)
        before = whole[tuple(slice(lengths.get(step)) for step in spec.steps)]
        if name in held:
            common = tuple(slice(min(sizes)) for sizes in zip(whole.shape, held[name].shape, strict=False))
            is_same = digest(whole[common]) == digest(held[name][common])
        else:
            is_same = digest(before) == checksum
        if not is_same:
            raise StateError(
                f"the input `{name}` has other values at the points of the saved run", hint="feed the same ones there"
            )
        checksums[name] = digest(whole)
    return {**held, **given}, checksums


def before_loop(run: Run[Any], meta: Mapping[str, Any]) -> Executor:
    """The executor of a run that has just begun, before the first iteration of the outermost loop of a saved place."""
    executor = run.opened_by(meta["by"])
    if meta["place"]:
        number = meta["place"][0][0]
        executor.walk.go_on(None, 0)
        while not executor.walk.done and executor.walk.path[0][0] < number:
            executor.walk.go_on(None, 1)
        executor.settle()
    if any(feed.count for feed in run.streams.values()):
        raise StateError(
            "values of a streamed input are read before the loop, so that the bounds cannot change", hint="give the same ones"
        )
    return executor
