"""The ways in which one tensor reads another in time: every pattern of the language, as the text of one index."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tests.fuzz.generator.drawing import Drawing


@dataclass(frozen=True)
class At:
    """The words of a pattern: step `s`, its bound `T`, another step `o` (or `s` itself) and its bound, small numbers."""

    s: str
    T: str
    o: str
    O: str
    k: int
    w: int


POINTS: dict[str, Callable[[At], tuple[str, ...]]] = {
    "identity": lambda a: (a.s,),
    "past, clamped": lambda a: (f"tp.max({a.s} - {a.k}, 0)",),
    "future, clamped": lambda a: (f"tp.min({a.s} + {a.k}, {a.T} - 1)",),
    "far": lambda a: (f"tp.max({a.s} - {a.T} // 2, 0)", f"tp.min({a.s} + {a.T} // 2, {a.T} - 1)", f"tp.max({a.s} - 9, 0)"),
    "constant": lambda a: ("0", f"{a.T} - 1", f"{a.T} // 2", f"tp.min({a.k}, {a.T} - 1)"),
    "reversed": lambda a: (f"{a.T} - 1 - {a.s}",),
    "modulo": lambda a: (f"{a.s} % {a.w}", f"tp.min(({a.s} + {a.k}) % {a.w}, {a.T} - 1)"),
    "around the bound": lambda a: (f"({a.s} + {a.k}) % {a.T}", f"({a.s} - {a.k}) % {a.T}", f"({a.s} + {a.T} // 2) % {a.T}"),
    "start of block": lambda a: (f"{a.s} // {a.w} * {a.w}", f"{a.s} // {a.w}"),
    "another step": lambda a: (f"tp.min({a.o}, {a.T} - 1)", f"tp.min({a.s} + {a.o}, {a.T} - 1)", f"tp.max({a.s} - {a.o}, 0)"),
}
RANGES: dict[str, Callable[[At], tuple[str, ...]]] = {
    "causal": lambda a: (f"0:{a.s} + 1",),
    "anti-causal": lambda a: (f"{a.s}:{a.T}",),
    "whole": lambda a: (f"0:{a.T}",),
    "forward window": lambda a: (f"{a.s}:tp.min({a.s} + {a.w}, {a.T})",),
    "backward window": lambda a: (f"tp.max({a.s} - {a.w} + 1, 0):{a.s} + 1",),
    "window both ways": lambda a: (f"tp.max({a.s} - {a.k}, 0):tp.min({a.s} + {a.w}, {a.T})",),
    "block": lambda a: (f"({a.s} // {a.w}) * {a.w}:tp.min(({a.s} // {a.w} + 1) * {a.w}, {a.T})",),
    "block so far": lambda a: (f"{a.s} // {a.w} * {a.w}:{a.s} + 1",),
    "strided": lambda a: (f"0:{a.T}:{a.k + 1}", f"{a.s}:{a.T}:2", f"{a.s} % 2:{a.s} + 1:2"),
    "fixed slice": lambda a: (f"0:tp.min({a.w}, {a.T})", f"tp.max({a.T} - {a.w}, 0):{a.T}", f"{a.T} // 2:{a.T}"),
    "reversed slice": lambda a: (f"0:{a.T} - {a.s}", f"{a.T} - 1 - {a.s}:{a.T}"),
    "slice with another end": lambda a: (f"0:tp.max({a.s}, 1)", f"0:{a.s} // 2 + 1", f"tp.min({a.s} + 1, {a.T} - 1):{a.T}"),
    "slice by another step": lambda a: (
        f"0:tp.min({a.o} + 1, {a.T})",
        f"tp.max({a.s} - {a.o}, 0):{a.s} + 1",
        f"tp.min({a.o}, {a.T} - 1):{a.T}",
    ),
}
EMPTY: dict[str, Callable[[At], tuple[str, ...]]] = {  # slices that are empty at some points
    "strictly causal": lambda a: (f"0:{a.s}",),
    "strictly anti-causal": lambda a: (f"{a.s} + 1:{a.T}",),
    "window before": lambda a: (f"tp.max({a.s} - {a.w}, 0):{a.s}",),
    "window after": lambda a: (f"tp.min({a.s} + 1, {a.T}):tp.min({a.s} + 1 + {a.w}, {a.T})",),
    "block before": lambda a: (f"tp.max({a.s} // {a.w} * {a.w} - {a.w}, 0):{a.s} // {a.w} * {a.w}",),
}
EARLY: dict[str, Callable[[At], tuple[str, ...]]] = {  # of tensors with a value before the start
    "before the start": lambda a: (f"{a.s} - {a.k}", f"{a.s} - {a.w}", f"{a.s} - {a.o} - 1", f"tp.min({a.s} - {a.k}, {a.T} - 2)"),
    "slice before the start": lambda a: (f"{a.s} - {a.w}:{a.s}", f"{a.s} - {a.k}:{a.s} + 1", f"{a.s} - 3:{a.s} - 1"),
}
PATTERNS = (*POINTS, *RANGES, *EMPTY, *EARLY)

CONDITIONS: dict[str, Callable[[At], tuple[str, ...]]] = {
    "modulo": lambda a: (f"{a.s} % {a.w} == 0", f"({a.s} + 1) % {a.w} == 0", f"{a.s} % {a.w} != 1"),
    "from": lambda a: (f"{a.s} >= {a.k}", f"{a.s} > 0"),
    "until": lambda a: (f"{a.s} < {a.T} - 1", f"{a.s} + 1 < {a.T}", f"{a.s} < {a.k}"),
    "point": lambda a: (f"{a.s} == 0", f"{a.s} + 1 == {a.T}", f"{a.s} == {a.T} // 2"),
    "two steps": lambda a: (f"{a.s} >= {a.o}", f"{a.s} + {a.o} < {a.T}", f"{a.s} % 2 == {a.o} % 2"),
    "and": lambda a: (f"({a.s} >= 1) & ({a.o} < {a.O} - 1)", f"({a.s} >= {a.k}) & ({a.s} % 2 == 0)"),
    "or": lambda a: (f"({a.s} == 0) | ({a.o} % 2 == 1)", f"({a.s} < 1) | ({a.s} > {a.w})"),
    "not": lambda a: (f"~({a.s} == {a.k})", f"~(({a.s} >= 1) & ({a.o} >= 1))"),
}


def at(d: Drawing, s: str, among: Sequence[str] = ()) -> At:
    """The words for an index of step `s`. Other steps are those in `among` (or all)."""
    other = d.choices.pick([o for o in (among or d.steps) if o != s] or [s])
    return At(s, s.upper(), other, other.upper(), d.choices.integer(1, 3), d.choices.pick((2, 3, 2, 4, 11)))


def condition(d: Drawing, s: str, among: Sequence[str] = ()) -> str:
    """A condition on step `s`, and sometimes on another step in `among` (or of all)."""
    return d.choices.pick(d.marked(CONDITIONS, "condition")(at(d, s, among)))


def index(d: Drawing, s: str) -> tuple[str, str]:
    """An index of a step, and its kind: "point", "slice", or "empty" for a slice that may be empty."""
    chosen = d.choices.integer(1, 100)
    table, kind = (POINTS, "point") if chosen <= 42 else (RANGES, "slice") if chosen <= 90 else (EMPTY, "empty")
    if chosen <= 14:
        d.mark("pattern: identity")
        return s, "point"
    return d.choices.pick(d.marked(table, "pattern")(at(d, s))), kind


def reduction(d: Drawing, empty: bool = False) -> str:
    """A method that reduces one axis, or all. Over an axis that may be empty, only sums and products are defined."""
    safe = (".sum(0)", ".sum(0)", ".discounted_sum(0.9)", ".prod(0)")
    return d.choices.pick(
        safe
        if empty
        else (*safe, ".mean(0)", ".max(0)", ".min(0)", ".logsumexp(0)", ".var(0)", ".sum()", ".mean(-1)", ".sum(-1)")
    )


def read(d: Drawing) -> None:
    """A tensor at other points in time; most slices are reduced."""
    kind = "float32" if d.chance(85) else "any"
    moving = d.moving(kind)
    if not moving:
        return
    x, name = d.choices.pick(moving[-5:]), d.name()
    indices = [index(d, s) for s in d.steps_of(x)]
    kinds = [kind for _, kind in indices if kind != "point"]
    if len(kinds) > 1:
        d.mark("pattern: slices of several steps")
    elif kinds and len(indices) > 1:
        d.mark("pattern: a slice and points")
    text = f"{x}[{', '.join(i for i, _ in indices)}]"
    if d.tensor(x).dtype in ("float32", "float16", "bfloat16"):
        for _ in kinds:
            if "empty" in kinds or d.chance(80):
                text += reduction(d, "empty" in kinds)
            else:
                d.mark("shape: varies")
    elif kinds:
        whole = ".any(0)" if d.tensor(x).dtype == "bool" else ".sum(0)"
        text += whole * len(kinds)
    d.add(f"{name} = {text}", name)


def early(d: Drawing) -> None:
    """A tensor with a value before the start, which is a number or another tensor, at points around the start."""
    moving = [n for n in d.moving() if d.fits(n, static=True)]
    if not moving:
        return
    x, name = d.choices.pick(moving[-5:]), d.name()
    steps = d.steps_of(x)
    s = d.choices.pick(steps)
    form = d.marked(EARLY, "pattern")
    there = ", ".join(d.choices.pick(form(at(d, s, steps))) if o == s else o for o in steps)
    value = d.choices.pick(("0.0", "0.0", "1.5", f"{x}[{', '.join('0' if o == s else o for o in steps)}]"))
    d.add(f"{name} = {x}.before({value})[{there}]" + (".sum(0)" if ":" in there else ""), name)


def shifted(d: Drawing) -> None:
    """State passing, and points in the future, in branches where they exist: x[t - k] where t >= k."""
    moving = [n for n in d.moving() if d.fits(n, static=True)]
    if not moving:
        return
    x, name = d.choices.pick(moving[-5:]), d.name()
    steps = d.steps_of(x)
    s, k = d.choices.pick(steps), d.choices.integer(1, 3)
    past = d.chance(50)
    d.mark("pattern: state passing" if past else "pattern: future point")
    there = ", ".join((f"{s} - {k}" if past else f"{s} + {k}") if o == s else o for o in steps)
    key = ", ".join(steps)
    inside = f"{s} >= {k}" if past else f"{s} + {k} < {s.upper()}"
    guard = f", {inside}" if d.chance(93) else ""  # without a guard, the branch reads points that do not exist
    lines = [
        f'{name} = tp.recurrence({d.sizes(x)}, domain={"(" + key + ",)"}, name="{name}")',
        f"{name}[{key}{guard}] = {x}[{there}] * 0.5 + {x}" if guard else f"{name}[{key}] = {x}[{there}]",
    ]
    if guard:
        lines.append(f"{name}[{key}] = {x}")
    d.add("\n".join(lines), name)


def attention(d: Drawing) -> None:
    """Scores over a slice of time; the sum that they weight, with a softmax or as they are, or the element with the greatest."""
    keys = [n for n in d.moving() if d.fits(n, static=True) and d.tensor(n).rank == 1]
    if not keys:
        return
    x, name = d.choices.pick(keys), d.name()
    steps = d.steps_of(x)
    step = d.choices.pick(steps)
    span = d.choices.pick(d.marked(RANGES, "pattern")(at(d, step)))
    view = f"{x}[{', '.join(span if s == step else s for s in steps)}]"
    d.mark("op: attention")
    scores = f"({view} @ {x})"
    forms = (f"{scores}.softmax(0) @ {view}", f"{scores} * 0.1 @ {view}", f"tp.tanh({view}).take({scores}.argmax(0))")
    d.add(f"{name} = {d.choices.pick(forms)}", name)


def sometimes(d: Drawing) -> None:
    """A value that exists at some points only, and a use of it at these points."""
    x = d.value(static=True)
    steps = d.steps_of(x) if x else ()
    if not steps:
        return
    s, name, part = d.choices.pick(steps), d.name(), d.name()
    where, key = condition(d, s, steps), ", ".join(steps)
    d.mark("condition: of a value")
    d.add(
        f"{part} = tp.tanh({x}[{where}])\n"
        f'{name} = tp.recurrence({d.sizes(x)}, domain=({key},), name="{name}")\n'
        f"{name}[{key}, {where}] = {part} * 2\n"
        f"{name}[{key}] = {x}",
        name,
    )
