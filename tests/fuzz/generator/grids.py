"""Grids: dynamic programs over three steps or four, with base cases on any subset of faces, edges and corners."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations

from tests.fuzz.generator.drawing import Drawing
from tests.fuzz.generator.recurrences import declared, operand

MOVES = {  # how a point reads the points before it, and in which form
    "the least": ("tp.minimum({p}, {q})", "{p} + {v}"),
    "the greatest": ("tp.maximum({p}, {q})", "{p} * 0.5 + {v}"),
    "a sum": ("{p} * 0.5 + {q} * 0.4", "tp.tanh({p} + {v})"),
    "a soft sum": ("tp.logaddexp({p}, {q})", "tp.tanh({p} * 0.5) * {v}"),
}
_MOST_STEPS = 4


def grid(d: Drawing, of: str = "") -> str:
    """A table over the last three steps, or four; returns its name. Each point reads points before it. `of` is what it is made of.

    A face is where some steps are at their first points, or at their last ones if the table goes backwards along them.
    """
    if len(d.steps) < 3:
        return ""
    steps = d.steps[-d.choices.pick((3, min(len(d.steps), _MOST_STEPS))) :]
    name, shape = d.name(), d.sizes(of) if of else d.shape()
    backwards = {s for s in steps if d.chance(15)}
    join, update = d.marked(MOVES, "grid")
    reads = [frozenset((s,)) for s in steps if d.chance(95)]  # which steps each read moves along
    reads += [frozenset(moved) for n in range(2, len(steps) + 1) for moved in combinations(steps, n) if d.chance(25)]
    reads = reads or [frozenset(steps)]
    far = d.choices.pick(steps) if d.chance(25) else ""
    is_ahead = not backwards and d.chance(30)  # the next point is assigned, and not this one
    if backwards:
        d.mark("grid: backwards")

    def key(at: dict[str, str]) -> str:
        return f"{name}[{', '.join(at[s] for s in steps)}]"

    def branch(fixed: Sequence[str], is_recurrent: bool) -> str:
        first = {s: f"{s.upper()} - 1" if s in backwards else "0" for s in fixed}
        here = {s: first.get(s, f"{s} + 1" if is_ahead and is_recurrent else s) for s in steps}
        if not is_recurrent:
            return f"{key(here)} = {operand(d, steps, shape, first)}"
        before = {s: f"{s} + 1" if s in backwards else s if is_ahead else f"{s} - 1" for s in steps}
        previous = ""
        for moved in [moved for moved in reads if moved.isdisjoint(fixed)]:
            read = key({s: before[s] if s in moved else here[s] for s in steps})
            previous = join.format(p=previous, q=read) if previous else read
        if far and far not in fixed and not is_ahead:
            d.mark("grid: two points away")
            last = f"tp.min({far} + 2, {far.upper()} - 1)" if far in backwards else f"tp.max({far} - 2, 0)"
            previous = f"({previous} + {key(here | {far: last})} * 0.2)"
        points = first | ({s: here[s] for s in steps} if is_ahead else {})
        value = operand(d, steps, shape, points)
        if of and d.chance(70):
            at = [points.get(s, s) for s in d.steps_of(of)]
            value = f"{of}[{', '.join(at)}]" if at else of
        return f"{key(here)} = {update.format(p=previous, v=value)}"

    kinds: dict[tuple[str, ...], bool | None] = {}  # of a face, whether it is recurrent; None where another one defines it
    for fixed in (fixed for n in range(1, len(steps) + 1) for fixed in combinations(steps, n)):
        is_inside = any(kind is False and set(face) < set(fixed) for face, kind in kinds.items())
        is_recurrent = d.chance(50) and any(moved.isdisjoint(fixed) for moved in reads)
        begins = any(kinds.get(face) for face in combinations(fixed, len(fixed) - 1))  # a recurrent one, there
        kinds[fixed] = None if is_inside and not begins and d.chance(60) else is_recurrent
    faces = [(fixed, kind) for fixed, kind in reversed(kinds.items()) if kind is not None]  # the smallest ones first
    faces += [((), True)]
    lines = [declared(name, shape, steps), *(branch(fixed, kind) for fixed, kind in faces)]
    d.mark(f"recurrence: grid of {len(steps)} steps")
    return name if d.add("\n".join(lines), name) else ""
