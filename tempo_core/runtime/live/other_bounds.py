"""A saved run that goes on with another number of iterations, which each run chooses: stores are as large for all numbers.

What the iterations wrote is taken over. What is computed before the loop may depend on the number, and is computed anew.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping
from typing import Any

from tempo_core.errors import StateError
from tempo_core.ir.graph import Graph
from tempo_core.runtime.live.executors import Executor, StagedExecutor
from tempo_core.runtime.live.live import Run
from tempo_core.runtime.live.state_file import Snapshot
from tempo_core.runtime.walk import Loop
from tempo_core.schedule import Scheduled
from tempo_core.schedule.build import chosen_value
from tempo_core.schedule.tree import with_conditions, with_loops
from tempo_core.symbolic.condition import comparisons_of
from tempo_core.symbolic.expr import Symbol

COMPUTED = ("store", "host store", "value", "counter")  # the kinds of arrays that statements write


def with_other_bounds(state: Snapshot, steps: Mapping[Symbol, int], scheduled: Scheduled, run: Run[Any]) -> Snapshot:
    """The state for other bounds of `steps`, whose numbers are given. `run` of the program `scheduled` has not begun. Raises StateError."""
    meta: Any = state.meta
    names, bounds = (", ".join(map(str, each)) for each in (steps, (step.bound_symbol for step in steps)))
    if meta["done"]:
        raise StateError(
            f"the run has ended, so that {bounds} cannot change: its last iteration left out what a next one needs",
            hint="save a state before the last iteration, and resume that one",
        )
    if not meta["place"]:  # nothing has run
        arrays = {label: array for label, array in state.arrays.items() if label.partition("/")[0] not in COMPUTED}
        return Snapshot(arrays, {**meta, "started": False})
    (number, at), *inside = meta["place"]
    executor = run.opened_by(meta["by"])
    nodes, wanted = executor.walk.nodes, {step.name for step in steps}
    loops = [node for node in nodes if isinstance(node, Loop) and wanted <= node.steps]
    if inside or not loops or loops[0] is not nodes[number]:
        raise StateError(
            f"the run is not between iterations of its first outermost loop over {names}, and only the bound of that loop can change",
            hint="save it after run.advance() of a run that is started without `by`, or give other bounds as they were",
        )
    counter = loops[0].item.counter
    inner = {each.node for each, around in with_loops(scheduled.root) if around and around[0].counter == counter}
    for execute, _ in with_loops(scheduled.root):
        points = zip(scheduled.graph[execute.node].domain.steps, execute.point, strict=True)
        if any(str(step) in wanted and not (e.is_constant or (e - counter.expr).is_constant) for step, e in points):
            raise StateError(
                f"the loop over {names} does not go from its first point to its last",
                hint="give the bounds of the saved run, or run the program with the larger ones from its start",
            )
    _run_before(run, executor, number)
    if at > (stop := loops[0].stop(executor.walk.state.counters)):  # the last iterations may be a loop of their own
        raise StateError(
            f"the saved run has done {at} iterations over {names}, more than the {stop} before the last ones with these bounds",
            hint=f"give {bounds} at least the number of iterations that are done",
        )
    _check_iterations(state, scheduled, counter, at, executor.walk.state.counters)
    anew, kept = executor.arrays(), dict(state.arrays)
    for label in {*anew, *kept}:
        if label.partition("/")[0] in COMPUTED:
            (anew if _is_inner(label, executor, inner, counter) else kept).pop(label, None)
    return Snapshot(anew | kept, meta)


def _check_iterations(state: Snapshot, scheduled: Scheduled, counter: Symbol, at: int, counters: Mapping[Symbol, int]) -> None:
    """Raise StateError if the last iteration before `at` left out what it computes with the other bounds."""
    chosen = [chosen_value(last) for last in scheduled.graph.chosen]
    before = {counter: at - 1, **{value: int(state.arrays[f"counter/{value.name}"]) for value in chosen}}
    now = {**counters, counter: at - 1}
    for _, around, conditions in with_conditions(scheduled.root):
        parts = itertools.chain.from_iterable(map(comparisons_of, conditions))
        for part in parts if around and around[0].counter == counter else ():
            is_known = part.symbols <= before.keys() and part.evaluate(before) == part.evaluate(now)
            if not is_known and not part.symbols.isdisjoint(chosen):
                raise StateError(
                    f"iteration {at - 1} of the saved run, near its end, computed other values than with these bounds",
                    hint="resume a state that was saved some iterations earlier",
                )


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


def _is_inner(label: str, executor: Executor, nodes: set[int], counter: Symbol) -> bool:
    """Whether iterations of a loop write an array of a state: those of its statements, of these `nodes`."""
    kind, _, name = label.partition("/")
    if kind == "value" and isinstance(executor, StagedExecutor):
        writes = executor.alive.writes.get(int(name.partition(".")[0]), ())
        return any(write.loops and write.loops[0][1] == counter for write in writes)
    keys = {text: key for key, text in executor.names.items()}
    return kind in COMPUTED[:2] and (keys.get(name) or keys[re.sub(r"( part \d+|@[-\d,]*)$", "", name)])[0] in nodes


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
