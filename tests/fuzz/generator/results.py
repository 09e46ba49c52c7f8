"""The outputs of a program: whole tensors, and views of them.

A result at a point can reveal a store that was used again too early: `r[0]` must be the first value of that store.
"""

from __future__ import annotations

import tempo_core as tp
from tests.fuzz.generator import indices
from tests.fuzz.generator.drawing import Drawing

POINTS = ("0", "{T} - 1", "{T} // 2", "tp.min({k}, {T} - 1)")
KINDS = (
    "a point", "a slice", "points and a slice", "a window", "where a condition holds", "a point where a condition holds",
    "another order of points",
)  # fmt: skip
VIEWS = (*KINDS, "points alone", "several views of one tensor", "the same tensor twice")


def views(d: Drawing, outputs: tuple[str, ...], fixed: int) -> tuple[str, ...]:
    """`outputs` with views added, or in their places. The first `fixed` outputs stay (a gradient and its loss)."""
    fixed_outputs = list(outputs[:fixed])
    moving = [name for name in d.names if d.tensor(name).domain.steps]
    if moving and d.chance(40):
        texts = _at_points(d, moving)
        d.features.add("result: points alone")
    else:
        texts = [view for output in outputs[fixed:] for view in (_views_of(d, output) if d.chance(50) else [output])]
        if moving and (fixed or d.chance(30)):  # a view of a tensor that others read
            texts += _views_of(d, d.choices.pick(moving))
    if texts and d.chance(10):
        texts.append(d.choices.pick(texts))
        d.features.add("result: the same tensor twice")
    return tuple(fixed_outputs + texts) or outputs


def _at_points(d: Drawing, moving: list[str]) -> list[str]:
    """Tensors at single points only, so that their stores can be small. Most of them are recurrences."""
    carried = [name for name in moving if isinstance(d.tensor(name), tp.Recurrence)]
    texts = []
    for _ in range(d.choices.integer(1, 3)):
        name = d.choices.pick(carried if carried and d.chance(75) else moving)
        steps = d.steps_of(name)
        keys = [[_point(d, s, indices.at(d, s)) for s in steps]]
        if d.chance(70):  # an early point, and the last point
            keys.append([f"{s.upper()} - 1" for s in steps])
        texts += [text for key in keys if d.takes(text := f"{name}[{', '.join(key)}]")]
    return texts


def _point(d: Drawing, step: str, words: indices.At) -> str:
    return d.choices.pick(POINTS).format(T=words.T, k=words.k)


def _views_of(d: Drawing, name: str) -> list[str]:
    """One or two views of a tensor, sometimes with the tensor itself; only the tensor itself if it has no steps."""
    if name not in d.names or not d.tensor(name).domain.steps:
        return [name]
    count = d.choices.pick((1, 1, 2))
    texts = [view for _ in range(count) if (view := _view(d, name))]
    if d.chance(20):
        texts.append(name)
    if len(set(texts)) > 1:
        d.features.add("result: several views of one tensor")
    return texts or [name]


def _view(d: Drawing, name: str) -> str:
    """A tensor with an index for each of its steps; "" if Tempo refuses it."""
    kind = d.choices.pick(KINDS)
    steps = d.steps_of(name)
    words = {s: indices.at(d, s, steps) for s in steps}
    point = {s: _point(d, s, words[s]) for s in steps}
    chosen = d.choices.pick(steps)
    if kind == "a point":
        key = [point[s] if s == chosen or d.chance(60) else s for s in steps]
    elif kind in ("a slice", "a window", "points and a slice"):
        table = {**indices.RANGES, **indices.EMPTY} if kind != "a window" else _WINDOWS
        span = d.choices.pick(d.choices.pick(tuple(table.values()))(words[chosen]))
        rest = point if kind == "points and a slice" else {s: s for s in steps}
        key = [span if s == chosen else rest[s] for s in steps]
    elif kind == "another order of points":
        index = d.choices.pick(d.choices.pick(tuple(indices.POINTS.values()))(words[chosen]))
        key = [index if s == chosen else s for s in steps]
    else:
        at = {s: s for s in steps}
        if kind == "a point where a condition holds" and len(steps) > 1:
            other = d.choices.pick([s for s in steps if s != chosen])
            at[other] = point[other]
        left = [s for s in steps if at[s] == s]
        where = d.choices.pick(d.choices.pick(tuple(indices.CONDITIONS.values()))(indices.at(d, chosen, left)))
        key = [*(at[s] for s in steps), where]
    text = f"{name}[{', '.join(key)}]"
    if not d.takes(text):
        return ""
    d.features.add(f"result: {kind}")
    return text


_WINDOWS = {name: make for name, make in {**indices.RANGES, **indices.EMPTY}.items() if "window" in name or "block" in name}
