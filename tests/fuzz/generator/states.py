"""Running sums of outer products, with and without decay, that contractions read: linear attention, as a state."""

from __future__ import annotations

from tests.fuzz.generator.drawing import Drawing, tuple_text
from tests.fuzz.generator.recurrences import declared


def state(d: Drawing) -> None:
    """A sum of outer products of all points up to each one, or from it on, perhaps with decay, that a vector is contracted with."""
    vectors = [n for n in d.fitting(static=True) if len(d.tensor(n).shape) == 1 and d.steps_of(n)]
    if not vectors:
        return
    x = d.choices.pick(vectors)
    steps, shape, name = d.steps_of(x), d.sizes(x), d.name()
    s, other = d.choices.pick(steps), d.choices.pick([n for n in vectors if d.steps_of(n) == steps])
    size = shape.strip("(),")
    backwards = d.chance(30)
    d.mark(f"recurrence: sum of outer products{', backwards' if backwards else ''}")
    carried = not backwards and d.chance(40)
    first, neighbour = (f"{s.upper()} - 1", f"{s} + 1") if backwards else ("0", f"{s} - 1")

    def at(value: str, point: str) -> str:
        return f"{value}[{', '.join(point if o == s else o for o in steps)}]"

    width = d.sizes(other).strip("(),")
    new, result = d.name(), d.name()
    gate = ""
    if d.chance(60):
        d.mark("recurrence: sum of outer products with decay")
        gate = d.choices.pick((
            "0.7 * ", "-0.6 * ", f"tp.sigmoid({x}.sum(0)) * ", f"tp.sigmoid({x}).expand_dims(1) * ", f"tp.tanh({other}) * ",
            f"tp.where({x}.max(0) > 0.3, 0.9, 0.0) * ", f"tp.where({other} > 0.0, 0.8, 0.0) * ",
        ))  # fmt: skip
    after = f"{name}_after" if carried else name
    read = d.choices.pick((f"{x} @ {after}", f"{after} @ {other}", f"({after} * {x}.expand_dims(1)).sum(0)"))
    body = [
        f"{at(name, first)} = {at(new, first)}",
        f"{at(name, s)} = {gate}{at(name, neighbour)} + {new}",
    ]
    if carried:
        kept = tuple_text([step for step in steps if step != s])
        body = [f"{after} = {gate}{name} + {new}", f"tp.carry({name}, tp.zeros(({size}, {width})), {after}, kept={kept})"]
    lines = [declared(name, f"({size}, {width})", steps), f"{new} = {x}.expand_dims(1) * {other}", *body, f"{result} = {read}"]
    d.add("\n".join(lines), result, *([name] if d.chance(20) else []))
