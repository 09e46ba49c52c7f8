"""A saved run that goes on with another number of iterations: its state, as the program for other bounds has it at the same place.

What iterations of the loop wrote is taken over. What was computed before the loop is computed anew, for it may be values of all
iterations, such as random numbers. What cannot be the same is refused.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, TypeAlias

import numpy as np

from tempo_core.errors import StateError
from tempo_core.ir.graph import Graph, Key
from tempo_core.runtime.live.executors import Executor, StagedExecutor
from tempo_core.runtime.live.live import Run
from tempo_core.runtime.live.state_file import Snapshot
from tempo_core.runtime.staged.host import placed
from tempo_core.runtime.staged.run import StagedProgram
from tempo_core.runtime.walk import Loop
from tempo_core.schedule import Scheduled
from tempo_core.schedule.tree import with_loops
from tempo_core.symbolic.expr import Symbol

Array: TypeAlias = np.ndarray[Any, np.dtype[Any]]
Steps: TypeAlias = Mapping[Symbol, int]
STORES = ("store", "host store")
COMPUTED = (*STORES, "value", "counter")  # the kinds of arrays that statements write
KEEP = "give the bounds of the saved run, or run the program with the larger ones from its start"


def grown(state: Snapshot, steps: Steps, old: tuple[Scheduled, StagedProgram | None], new: Scheduled, run: Run[Any]) -> Snapshot:
    """The state for other bounds of `steps`, whose numbers are given.

    `old` is the program that saved the state, `new` that of `run`, which has not begun. Raises StateError.
    """
    meta: Any = state.meta
    names, bounds = (", ".join(map(str, each)) for each in (steps, (step.bound_symbol for step in steps)))
    if meta["done"]:
        raise StateError(
            f"the run has ended, so that {bounds} cannot change: its last iteration left out what a next one needs",
            hint="save a state before the last iteration, and resume that one",
        )
    arrays = {label: array for label, array in state.arrays.items() if label.partition("/")[0] not in COMPUTED}
    if not meta["place"]:  # nothing has run
        return Snapshot(arrays, {**meta, "started": False})
    (number, at), *inside = meta["place"]
    if at > min(steps.values()):
        raise StateError(
            f"the saved run has done {at} iterations over {names}, more than {bounds} allows",
            hint=f"give {bounds} at least the number of iterations that are done",
        )
    executor = run.opened_by(meta["by"])
    nodes, wanted = executor.walk.nodes, {step.name for step in steps}
    loops = [node for node in nodes if isinstance(node, Loop) and wanted <= node.steps]
    if inside or not loops or loops[0] is not nodes[number]:
        raise StateError(
            f"the run is not between iterations of its first outermost loop over {names}, and only the bound of that loop can change",
            hint="save it after run.advance() of a run that is started without `by`, or give other bounds as they were",
        )
    moving = _Moving(old, new, executor, loops[0].item.counter, steps)
    _run_before(run, executor, number)
    arrays |= {label: array for label, array in executor.arrays().items() if not moving.is_inner(label)}
    return Snapshot(arrays | {a: moving.moved(a, array) for a, array in state.arrays.items() if moving.is_inner(a)}, meta)


def _run_before(run: Run[Any], executor: Executor, number: int) -> None:
    """Run what is before a loop, the node of this number."""
    executor.walk.go_on(None, 0)
    while executor.walk.path[0][0] < number:
        executor.walk.go_on(None, 1)
    executor.settle()
    if any(feed.count for feed in run.streams.values()):
        raise StateError(
            "values of a streamed input are read before the loop, so that the bounds cannot change", hint="give the same ones"
        )


class _Moving:
    """The arrays that iterations of a loop write, in a program and in the same one for other bounds.

    Raises StateError unless the programs differ in numbers of iterations and in conditions alone, and the loop goes upwards.
    """

    def __init__(
        self, old: tuple[Scheduled, StagedProgram | None], new: Scheduled, executor: Executor, counter: Symbol, steps: Steps
    ):
        self.old, self.new, self.executor, self.counter, self.steps = old, new, executor, counter, steps
        self.keys = {name: key for key, name in executor.names.items()}
        inner = [each for each, around in with_loops(new.root) if around and around[0].counter == counter]
        self.nodes = {execute.node for execute in inner}
        staged = executor.staged if isinstance(executor, StagedExecutor) else None
        if self._form(*old) != self._form(new, staged):
            raise StateError(
                "the schedule is another one for these bounds",
                hint="compile the program for the larger bounds at first, and stop the run: run.advance(count=100)",
            )
        for execute in inner:
            for step, point in zip(new.graph[execute.node].domain.steps, execute.point, strict=True):
                if step in steps and not (point.is_constant or (point - counter.expr).is_constant):
                    raise StateError(f"the loop over {step} does not go from its first point to its last", hint=KEEP)

    def _form(self, scheduled: Scheduled, staged: StagedProgram | None) -> list[object]:
        """The statements with the loops around them, and those of the loop with their points; the same for launches and calls."""
        form: list[object] = []
        for execute, around in with_loops(scheduled.root):
            is_inner = around and around[0].counter == self.counter
            form.append((execute if is_inner else None, [(loop.counter, loop.step) for loop in around]))
        items = () if staged is None else placed(staged.items)
        return [*form, *((type(item), [loop.counter for loop in around]) for item, around in items)]

    def _key(self, label: str) -> Key:
        name = label.partition("/")[2]
        return self.keys[name] if name in self.keys else self.keys[re.sub(r"( part \d+|@[-\d,]*)$", "", name)]

    def is_inner(self, label: str) -> bool:
        """Whether iterations of the loop write this array."""
        kind, _, name = label.partition("/")
        if kind != "value" or not isinstance(self.executor, StagedExecutor):
            return kind in STORES and self._key(label)[0] in self.nodes
        writes = self.executor.alive.writes.get(int(name.partition(".")[0]), ())
        return any(write.loops and write.loops[0][1] == self.counter for write in writes)

    def moved(self, label: str, array: Array) -> Array:
        """An array of the old program as the new one has it. A store of all points has as many as there are now."""
        if not label.startswith(STORES) or not isinstance(self.executor, StagedExecutor) or self.old[1] is None:
            return array
        key, both = self._key(label), (self.old[1], self.executor.staged)
        node, (was, now) = self.new.graph[key[0]], (each.lowering for each in both)
        before, after = was.storage[key], now.storage[key]
        places = [(key in each.hosted, each.unrolled.stores.get(key)) for each in both]
        grows = any(step in self.steps for step in node.domain.steps)
        fits = places[0] == places[1] and (was.sizes(key), was.layout(key)) == (now.sizes(key), now.layout(key))
        if fits and before == after and not (grows and places[0][0]):
            return array
        for axis, step in enumerate(node.domain.steps):
            slots, lasting = zip(*((each.slots[axis], each.lasting_along(axis)) for each in (before, after)), strict=True)
            points = [each.bounds[step.bound_symbol] for each in (was, now)]
            is_whole = lasting == (None, None) and slots[0] >= points[0] and slots[1] >= min(points)
            fits = fits and ((slots[0] == slots[1] and lasting[0] == lasting[1]) or (step in self.steps and is_whole))
        if not fits or places[0] != (False, None):
            raise StateError(
                f"{node.label} is stored in another way, so that the saved run cannot go on with other bounds",
                where=node.where,
                hint=KEEP,
            )
        moved = np.zeros(now.shape(key), array.dtype)
        common = tuple(slice(min(sizes)) for sizes in zip(array.shape, moved.shape, strict=True))
        moved[common] = array[common]
        return moved


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
