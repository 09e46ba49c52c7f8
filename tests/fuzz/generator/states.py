"""Running sums of outer products that contractions read: linear attention, as a state."""

from __future__ import annotations

from tests.fuzz.generator.drawing import Drawing
from tests.fuzz.generator.recurrences import declared


def state(d: Drawing) -> None:
    """A sum of outer products of all points up to each one, or from it on, that a vector is contracted with."""
    vectors = [n for n in d.fitting(static=True) if len(d.tensor(n).shape) == 1 and d.steps_of(n)]
    if not vectors:
        return
    x = d.choices.pick(vectors)
    steps, shape, name = d.steps_of(x), d.sizes(x), d.name()
    s, other = d.choices.pick(steps), d.choices.pick([n for n in vectors if d.steps_of(n) == steps])
    size = shape.strip("(),")
    backwards = d.chance(30)
    d.mark(f"recurrence: sum of outer products{', backwards' if backwards else ''}")
    first, neighbour = (f"{s.upper()} - 1", f"{s} + 1") if backwards else ("0", f"{s} - 1")

    def at(value: str, point: str) -> str:
        return f"{value}[{', '.join(point if o == s else o for o in steps)}]"

    width = d.sizes(other).strip("(),")
    new, result = d.name(), d.name()
    read = d.choices.pick((f"{x} @ {name}", f"{name} @ {other}", f"({name} * {x}.expand_dims(1)).sum(0)"))
    lines = [
        declared(name, f"({size}, {width})", steps),
        f"{new} = {x}.expand_dims(1) * {other}",
        f"{at(name, first)} = {at(new, first)}",
        f"{at(name, s)} = {at(name, neighbour)} + {new}",
        f"{result} = {read}",
    ]
    d.add("\n".join(lines), result, *([name] if d.chance(20) else []))
