"""An inner recurrence that ends at another place for each point of outer steps, and what is read of it."""

from __future__ import annotations

from tests.fuzz.generator.drawing import INNER, Drawing, tuple_text
from tests.fuzz.generator.recurrences import UPDATES, declared, operand

ENDS = {
    "a small value": "abs({x}) < 0.4",
    "a large value": "{x} > 0.6",
    "a number of its own": "tp.floor(abs({first}) * 3.0) <= {k}",
    "a number for all": "({x} == {x}) & ({k} >= 2)",
}
READS = {
    "last": "{x}[{at}, {K} - 1]",
    "in the middle": "{x}[{at}, {K} // 2]",
    "before the last": "{x}[{at}, tp.max({K} - 2, 0)]",
    "sum": "{x}[{at}, 0:{K}].sum(0)",
    "sum of what is computed": "tp.tanh({x})[{at}, 0:{K}].sum(0)",
    "greatest": "{x}[{at}, 0:{K}].max(0)",
    "number": "tp.ones(()) * {K}",
    "number of a value": "{x}[{at}, {K} - 1] * {K}",
}


def ended_inside(d: Drawing) -> None:
    """A recurrence over outer steps and the inner one; its first value may be the last one of the outer point before."""
    outer = d.domain(at_least=1)
    each = tuple(step for step in outer if d.chance(70)) or outer[-1:]
    name, shape, at, s = d.name(), d.shape(), ", ".join(outer), each[-1]
    words = {"x": name, "at": at, "k": INNER, "K": INNER.upper(), "first": f"{name}[{at}, 0]"}
    results = {d.name(): d.marked(READS, "inner end").format(**words) for _ in range(d.choices.integer(1, 3))}
    update = d.choices.pick(UPDATES).format(p=name, v=operand(d, (*outer, INNER), shape))
    lines = [declared(name, shape, (*outer, INNER))]
    if carried := d.chance(60):
        d.mark("inner end: state passing")
        state = d.name()
        lines += [declared(state, shape, outer), f"{name}[{at}, 0] = {state}"]
    else:
        lines.append(f"{name}[{at}, 0] = {operand(d, outer, shape)}")
    lines.append(f"{name}[{at}, {INNER} + 1] = {update}")
    each_text = tuple_text(list(each)) if len(each) > 1 else s
    lines.append(f"ctx.ends({INNER}, when={d.marked(ENDS, 'inner end').format(**words)}, each={each_text})")
    if carried:
        first, after = (", ".join(point if o == s else o for o in outer) for point in ("0", f"{s} + 1"))
        lines += [f"{state}[{first}] = 0.8", f"{state}[{after}] = tp.sin({READS['last'].format(**words)} * 1.5 + 0.3)"]
    lines += [f"{result} = {read}" for result, read in results.items()]
    d.add("\n".join(lines), *results, *([state] if carried else []))
