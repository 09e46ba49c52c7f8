"""Recurrences of every kind: forwards, backwards, over windows, rows and diagonals, with branches, carries and partners."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from tests.fuzz.generator.drawing import Drawing, tuple_text
from tests.fuzz.generator.indices import EMPTY, RANGES, at, condition

UPDATES = (
    "tp.tanh({p} * 0.9 + {v})", "{p} * 0.5 + {v}", "{p} * tp.sigmoid({v})", "tp.maximum({p}, {v})", "{p} + {v} * 0.1",
    "tp.where({p} > 0.2, {v}, {p} * 0.7)", "tp.sin({p}) - {v}",
)  # fmt: skip


@dataclass(frozen=True)
class Target:
    """The recurrence to draw: its name, its domain, the step along which it goes, its shape."""

    d: Drawing
    name: str
    domain: tuple[str, ...]
    s: str
    shape: str

    @property
    def bound(self) -> str:
        return self.s.upper()

    def key(self, index: str, *conditions: str) -> str:
        """The text of a key with `index` for step `s`, and the other steps at the same point."""
        return f"[{', '.join([*(index if o == self.s else o for o in self.domain), *conditions])}]"

    def at(self, index: str, *conditions: str) -> str:
        return f"{self.name}{self.key(index, *conditions)}"

    def operand(self, **points: str) -> str:
        return operand(self.d, self.domain, self.shape, points)

    def start(self, point: str) -> str:
        """The first value: a number, which depends on nothing, or another tensor at that point."""
        return self.d.choices.pick(("0.5", "1.0")) if self.d.chance(35) else self.operand(**{self.s: point})

    def update(self, previous: str, value: str) -> str:
        return self.d.choices.pick(UPDATES).format(p=previous, v=value)

    def declared(self, dtype: str = "float32") -> str:
        return declared(self.name, self.shape, self.domain, dtype)


def declared(name: str, shape: str, domain: Sequence[str], dtype: str = "float32") -> str:
    more = "" if dtype == "float32" else f'"{dtype}", '
    return f'{name} = tp.recurrence({shape}, {more}domain={tuple_text(list(domain))}, name="{name}")'


def operand(d: Drawing, domain: Sequence[str], shape: str, points: dict[str, str] | None = None) -> str:
    """An operand for a recurrence: over some of its steps (at the `points`), and of its shape or scalar."""
    names = [n for n in d.fitting(within=domain, static=True) if d.sizes(n) in ("()", shape)]
    if not names or d.chance(10):
        return "0.7"
    name = d.choices.pick(names)
    steps = d.steps_of(name)
    if points and any(s in points for s in steps):
        return f"{name}[{', '.join(points.get(s, s) for s in steps)}]"
    return name


class Cover:
    """The points of a recurrence that its branches define so far, for some bounds. A branch that defines no point is an error."""

    BOUNDS = (1, 3, 6, 7)

    def __init__(self, domain: Sequence[str]):
        self.names: dict[str, np.ndarray] = {}
        for axis, step in enumerate(domain):
            pairs = np.array([(at, bound) for bound in self.BOUNDS for at in range(bound)])
            shape = [-1 if k == axis else 1 for k in range(len(domain))]
            self.names[step], self.names[step.upper()] = pairs[:, 0].reshape(shape), pairs[:, 1].reshape(shape)
        self.free = np.ones([sum(self.BOUNDS)] * len(domain), bool)

    def takes(self, condition: str) -> bool:
        """Whether a branch under `condition` defines points that no branch before it defines; these are marked as covered."""
        now = self.free & eval(condition, {}, dict(self.names))
        self.free = self.free & ~now
        return bool(now.any())


# -- one recurrence ---------------------------------------------------------------------------------------------------


def _forward(r: Target) -> list[str]:
    return [f"{r.at('0')} = {r.start('0')}", f"{r.at(r.s + ' + 1')} = {r.update(r.name, r.operand())}"]


def _lagged(r: Target) -> list[str]:
    """x[t] of x[t - 1] and x[t - k]."""
    k = r.d.choices.pick((2, 2, 3))
    last = f"tp.min({{}}, {r.bound} - 1)"
    lines = [f"{r.at('0')} = {r.start('0')}"]
    lines += [f"{r.at(str(n))} = {r.operand(**{r.s: last.format(n)})}" for n in range(1, k)]
    previous = f"({r.at(f'{r.s} - 1')} - {r.at(f'{r.s} - {k}')} * 0.5)"
    return [*lines, f"{r.at(r.s)} = {r.update(previous, r.operand())}"]


def _from_before(r: Target) -> list[str]:
    """x[t] of x[t - k], or of a slice that begins before the start, where x has a value before the start."""
    r.d.mark("pattern: before the start")
    k = r.d.choices.integer(1, 3)
    span = r.d.choices.pick((f"{r.s} - {k}", f"{r.s} - {k} : {r.s}", f"{r.s} - 3 : {r.s} - 1"))
    earlier = f"{r.at(span)}{'.sum(0) * 0.5' if ':' in span else ''}"
    start = r.d.choices.pick(("0.0", "0.5", r.start("0")))
    return [f"{r.name} = {r.name}.before({start})", f"{r.at(r.s)} = {r.update(earlier, r.operand())}"]


def _backward(r: Target) -> list[str]:
    """a[t] = f(a[t + 1])."""
    first = f"{r.at(r.bound + ' - 1')} = {r.start(f'{r.bound} - 1')}"
    return [first, f"{r.at(r.s)} = {r.update(r.at(r.s + ' + 1'), r.operand())}"]


def _reversed(r: Target) -> list[str]:
    """The key counts from the end: x[T - 1 - t] = f(x[T - t])."""
    first = f"{r.at(r.bound + ' - 1')} = {r.start('0')}"
    return [first, f"{r.at(f'{r.bound} - 1 - {r.s}')} = {r.update(r.at(f'{r.bound} - {r.s}'), r.operand())}"]


def _over_past(r: Target) -> list[str]:
    """x[t] from a slice of its own past, which is empty at the first point."""
    names = ("strictly causal", "window before")
    chosen = r.d.choices.pick(names)
    r.d.mark(f"pattern: {chosen}")
    span = r.d.choices.pick(EMPTY[chosen](at(r.d, r.s, r.domain)))
    past = f"{r.at(span)}{r.d.choices.pick(('.mean(0)', '.max(0)', '.discounted_sum(0.5)', '.sum(0)', '.flip(0).discounted_sum(0.5)'))}"
    other = r.operand(**{r.s: r.d.choices.pick((r.s, r.s + " - 1"))})
    return [f"{r.at('0')} = {r.start('0')}", f"{r.at(r.s)} = {r.update(past, other)}"]


def _over_future(r: Target) -> list[str]:
    last = f"{r.bound} - 1"
    span = r.d.choices.pick((f"{r.s} + 1:{r.bound}", f"{r.s} + 1:tp.min({r.s} + 3, {r.bound})"))
    future = f"{r.at(span)}{r.d.choices.pick(('.mean(0)', '.discounted_sum(0.5)', '.max(0)'))}"
    return [f"{r.at(last)} = {r.operand(**{r.s: last})}", f"{r.at(r.s)} = {r.update(future, r.operand())}"]


def _now_and_then(r: Target) -> list[str]:
    """Many branches with conditions, whose order matters."""
    lines, cover = [f"{r.at('0')} = {r.operand(**{r.s: '0'})}"], Cover(r.domain)
    for _ in range(r.d.choices.integer(1, 3)):
        where = condition(r.d, r.s, r.domain)
        if cover.takes(f"({r.s} + 1 < {r.bound}) & ({where})") or r.d.chance(3):
            lines.append(f"{r.at(r.s + ' + 1', where)} = {r.update(r.name, r.operand())}")
    rest = [f"{r.at(r.s + ' + 1')} = {r.name} * 0.9"] if cover.takes(f"{r.s} + 1 < {r.bound}") else []
    return [*lines, *rest]


def _by_modulo(r: Target) -> list[str]:
    """The first values again and again: x[t] = f(x[t % w])."""
    w = r.d.choices.pick((2, 3))
    r.d.mark("pattern: modulo")
    return [f"{r.at(r.s, f'{r.s} < {w}')} = {r.operand()}", f"{r.at(r.s)} = {r.update(r.at(f'{r.s} % {w}'), r.operand())}"]


def _by_block(r: Target) -> list[str]:
    """x[t] from the start of its block, and perhaps from the point before; the first of a block from the last of the block before."""
    w = r.d.choices.pick((2, 3, 4))
    r.d.mark("pattern: start of block")
    start = r.at(f"{r.s} // {w} * {w}")
    if r.d.chance(50):
        start = f"({start} - {r.at(r.s + ' - 1')} * 0.5)"
    return [
        f"{r.at('0')} = {r.operand(**{r.s: '0'})}",
        f"{r.at(r.s, f'{r.s} % {w} == 0')} = {r.update(r.at(r.s + ' - 1'), r.operand())}",
        f"{r.at(r.s)} = {r.update(start, r.operand())}",
    ]


def _by_halves(r: Target) -> list[str]:
    """x[t] = f(x[t // 2]): a tree."""
    return [f"{r.at('0')} = {r.start('0')}", f"{r.at(r.s)} = {r.update(r.at(f'{r.s} // 2'), r.operand())}"]


def _over_own_stride(r: Target) -> list[str]:
    r.d.mark("pattern: strided")
    span = f"{r.s} % 2:{r.s}:2"
    return [
        f"{r.at(r.s, f'{r.s} < 2')} = {r.operand()}",
        f"{r.at(r.s)} = {r.update(r.at(span) + '.sum(0)', r.operand())}",
    ]


def _followed(r: Target, later: bool) -> list[str]:
    """A recurrence, and one that goes back over a function of its states, as the path of a Viterbi search does."""
    first, made = Target(r.d, f"{r.name}_states", r.domain, r.s, r.shape), f"{r.name}_made"
    here = f"{r.s} + 1" if later else r.s
    return [
        first.declared(),
        f"{first.at('0')} = {first.start('0')}",
        f"{made} = tp.sin({first.name if later else first.at(f'{r.s} - 1')} * 0.9)",
        f"{first.at(here)} = {r.update(made, first.operand(**{r.s: here}))}",
        f"{r.at(f'{r.bound} - 1')} = {first.at(f'{r.bound} - 1')}",
        f"{r.at(r.s)} = {r.update(r.at(f'{r.s} + 1'), made if later else made + r.key(f'{r.s} + 1'))}",
    ]


ALONG: dict[str, Callable[[Target], list[str]]] = {
    "forward": _forward,
    "several lags": _lagged,
    "from before the start": _from_before,
    "backward": _backward,
    "reversed assignment": _reversed,
    "over its past": _over_past,
    "over its future": _over_future,
    "many branches": _now_and_then,
    "by modulo": _by_modulo,
    "by block": _by_block,
    "by halves": _by_halves,
    "over a strided past": _over_own_stride,
    "followed back, spelled t + 1": functools.partial(_followed, later=True),
    "followed back, spelled t - 1": functools.partial(_followed, later=False),
}


def target(d: Drawing, at_least: int = 1) -> Target:
    domain = d.domain(at_least)
    return Target(d, d.name(), domain, d.choices.pick(domain), d.shape())


def recurrence(d: Drawing) -> None:
    r = target(d)
    lines = d.marked(ALONG, "recurrence")(r)
    d.add("\n".join([r.declared(), *lines]), r.name)


def carried(d: Drawing) -> None:
    """Nested steps: next w[i, e, m + 1]; at the end of m, w[i, e + 1, 0]; at the end of e too, w[i + 1, 0, 0]."""
    if len(d.steps) < 2:
        return
    depth = len(d.steps) if d.chance(60) else 2
    domain, shape, name = d.steps[-depth:], d.shape(), d.name()
    after = f"{name}_after"
    d.mark(f"recurrence: nested carry of {depth} steps")
    lines = [
        declared(name, shape, domain),
        f"{name}[{', '.join('0' * depth)}] = {operand(d, domain, shape, dict.fromkeys(domain, '0'))}",
        f"{after} = {d.choices.pick(UPDATES).format(p=name, v=operand(d, domain, shape))}",
    ]
    if d.chance(40):
        d.mark("recurrence: tp.carry")
        kept = tuple_text(list(domain[:1])) if d.chance(50) else "()"
        reverse = d.chance(30)
        loops = domain[1:] if kept != "()" else domain
        points = {s: f"{s.upper()} - 1" if reverse else "0" for s in loops}
        lines[1] = f"tp.carry({name}, {operand(d, domain, shape, points)}, kept={kept}, reverse={reverse})"
        d.add("\n".join([*lines, f"tp.carry({name}, following={after}, kept={kept}, reverse={reverse})"]), name)
        return
    for k in reversed(range(depth)):
        inner = domain[k + 1 :]
        key = ", ".join([*domain[:k], f"{domain[k]} + 1", *("0" for _ in inner)])
        last = ", ".join(f"{s.upper()} - 1" if s in inner else s for s in domain)
        source = after if not inner else d.choices.pick((f"{name}[{last}] * 0.5 + 0.1", f"({name} * 0.9 + 0.2)[{last}]"))
        lines.append(f"{name}[{key}] = {source}")
    d.add("\n".join(lines), name)


def table(d: Drawing) -> None:
    """A table whose next value differs from it at positions of data: one row, or several."""
    domain, name, shape = d.domain(at_least=1), d.name(), d.choices.pick(("()", "(3,)", "(2, 3)"))
    size, value, rank = d.choices.integer(2, 5), f"{name}_value", {"()": 0, "(3,)": 1, "(2, 3)": 2}[shape]
    whole = f"({size}, {shape[1:-1]})"
    d.mark("recurrence: written at positions of data")
    mask = d.choices.pick(("tp.arange({size}) == {at}", "(tp.arange({size}) == {at}) & ({value}.sum() > 0)"))
    mask = mask.format(size=size, at=f"{name}_at", value=value)
    one_hot = f"{name}_at.one_hot({size}).reshape({size}, *[1] * {rank})"
    update = d.choices.pick((
        f"tp.where(({mask}).reshape({size}, *[1] * {rank}), {value}, {name})",
        f"{name}.scatter({name}_at, {value})",
        f"{name}.index_add({name}_at, {value} * 0.1)",
        f"{name}.index_add(tp.stack([{name}_at, {name}_at + 1]), {value} * 0.1)",
        f"{name}.index_add({name}_at, {value} * 0.1).scatter({name}_at + 1, {name}.index(0, {name}_at) * 0.5)",
        f"{name}.scatter(tp.stack([{name}_at, {name}_at + 1]), {value} * 0.1, 0, '{d.choices.pick(('min', 'max', 'mul'))}')",
        f"{name}.expand_dims(1).scatter(({name}_at, 0), {value}, (0, 1)).squeeze(1)",
        f"{name} + ({one_hot}) * {value} * 0.1",
        f"(1.0 - ({one_hot})) * {name} + ({one_hot}) * {value}",
        f"{name} - 0.1 * tp.zeros({whole}).index_add(tp.stack([{name}_at, {name}_at + 1]), {value})",
        f"({name} - 0.1 * (({one_hot}) * ({name} + {value})).sum(0)).scatter({name}_at, {value})",
    ))  # fmt: skip
    first, after = (", ".join((*domain[:-1], point)) for point in ("0", f"{domain[-1]} + 1"))
    lines = [
        declared(name, whole, domain),
        f"{value} = {operand(d, domain, shape)} + tp.zeros({shape})",
        f"{name}_at = ({value}.sum() * 3).astype('int32') % {size + 1} - {d.choices.integer(0, 1)}",  # a few are outside
        f"{name}[{first}] = tp.ones({whole})",
        f"{name}[{after}] = {update}",
    ]
    d.add("\n".join(lines), name)


def rows(d: Drawing) -> None:
    """A recurrence over two steps: each point reads a slice of the row before, or all of it."""
    if len(d.steps) < 2:
        return
    (outer, s), name, shape = d.steps[-2:], d.name(), d.shape()
    span = d.choices.pick(d.marked(RANGES, "pattern")(at(d, s, (s,))))
    d.mark("recurrence: rows")
    lines = [
        declared(name, shape, (outer, s)),
        f"{name}[0, {s}] = {operand(d, (outer, s), shape, {outer: '0'})}",
        f"{name}[{outer} + 1, {s}] = tp.tanh({name}[{outer}, {span}].mean(0) + {operand(d, (outer, s), shape)})",
    ]
    d.add("\n".join(lines), name)


def diagonal(d: Drawing) -> None:
    """Dynamic programming: each point reads the points before it along either step, or along the diagonal."""
    if len(d.steps) < 2:
        return
    (outer, s), name, shape = d.steps[-2:], d.name(), d.shape()
    d.mark("recurrence: diagonal")
    value = operand(d, (outer, s), shape)
    update = d.choices.pick((
        f"tp.minimum({name}[{outer} + 1, {s}], {name}[{outer}, {s} + 1]) + {value} * 0.1",
        f"tp.tanh({name} + {name}[{outer} + 1, {s}] * 0.5 + {value})",
        f"{name} * 0.5 + {value}",
        f"tp.tanh(tp.logaddexp({name}[{outer} + 1, {s}], {name}[{outer}, {s} + 1]) - tp.sin({name}) * tp.cos({value}))",
        f"tp.tanh({value}) * tp.sin({name}[{outer} + 1, {s}]) + tp.cos({name}[{outer}, {s} + 1]) * 0.5 - tp.sin({name} * {value}) * 0.1",
    ))  # fmt: skip
    if "tp.cos" in update:
        d.mark("recurrence: table by diagonals")
    lines = [
        declared(name, shape, (outer, s)),
        f"{name}[0, {s}] = {operand(d, (outer, s), shape, {outer: '0'})}",
        f"{name}[{outer}, 0] = {operand(d, (outer, s), shape, {s: '0'})}",
        f"{name}[{outer} + 1, {s} + 1] = {update}",
    ]
    d.add("\n".join(lines), name)


def intervals(d: Drawing) -> None:
    """A table over the intervals from a point of one step to a point of another: each reads shorter ones, from either end."""
    if len(d.steps) < 2:
        return
    (first, last), name, shape = d.steps[-2:], d.name(), d.shape()
    if d.chance(30):
        first, last = last, first
    d.mark("recurrence: intervals")

    def point(of_first: str, of_last: str) -> str:
        return f"{name}[{', '.join({first: of_first, last: of_last}[step] for step in d.steps[-2:])}]"

    later = f"{first} + 1:tp.max(tp.min({last} + 1, {first.upper()}), {first} + 1)"
    earlier = d.choices.pick((f"tp.max({first}, 0):tp.max(tp.min({last}, {last.upper()}), {first})", f"{first}:{last}"))
    reads = [f"{point(later, last)}{r}" for r in (".sum(0)", ".max(0)", ".mean(0)")]
    reads += [f"{point(first, earlier)}{r}" for r in (".sum(0)", ".max(0)", ".discounted_sum(0.5)")]
    read = d.choices.pick((*reads, f"{d.choices.pick(reads[:3])} * 0.5 - {d.choices.pick(reads[3:])} * 0.3"))
    value = operand(d, d.steps[-2:], shape)
    order = f"{first} >= {last}" if d.chance(70) else f"{first} + 1 >= tp.min({last}, {first.upper()})"
    if d.chance(25):
        later, earlier = point(f"{first} + 1", last), point(first, f"{last} - 1")
        read = d.choices.pick((f"{later} * 0.5", f"({later} * 0.5 + {earlier} * 0.3)"))
    if d.chance(25) or ".sum(" not in read:  # a point that is not there, or the greatest of nothing, is not read
        order = f"({first} >= {last}) | ({first} + 1 >= {first.upper()})"
    lines = [
        declared(name, shape, d.steps[-2:]),
        f"{name}[{', '.join(d.steps[-2:])}, {order}] = {operand(d, d.steps[-2:], shape)}",
        f"{point(first, last)} = {d.choices.pick(('tp.tanh({r} + {v})', '{r} * 0.3 + {v} * 0.9', '{r} + 0.1')).format(r=read, v=value)}",
    ]
    d.add("\n".join(lines), name)


def stencil(d: Drawing) -> None:
    """Each point reads its neighbours at an earlier point of another step, with borders of their own, or with clamped reads."""
    if len(d.steps) < 2:
        return
    pair = d.steps[-2:]
    (outer, s), name, shape = d.choices.pick((pair, pair[::-1])), d.name(), d.shape()
    order = pair

    def point(o: str, i: str) -> str:
        return f"{name}[{', '.join({outer: o, s: i}[step] for step in order)}]"

    d.mark("recurrence: stencil")
    value, bound = operand(d, order, shape), s.upper()
    lines = [declared(name, shape, order), f"{point('0', s)} = {operand(d, order, shape, {outer: '0'})}"]
    left, right = f"{s} - 1", f"{s} + 1"
    if d.chance(40):
        d.mark("recurrence: stencil with clamped reads")
        left, right = f"tp.max({s} - 1, 0)", f"tp.min({s} + 1, {bound} - 1)"
    else:
        lines.append(f"{point(f'{outer} + 1', '0')} = {point(outer, '0')} * 0.9")
        lines.append(f"{point(f'{outer} + 1', f'{bound} - 1')} = {operand(d, order, shape, {s: f'{bound} - 1'})}")
    mirrored = d.choices.pick((point(outer, s), point(outer, f"{bound} - 1 - {s}"), point("0", s)))
    lines.append(
        f"{point(f'{outer} + 1', s)} = tp.tanh({point(outer, left)} - {point(outer, right)} * 0.5 + {mirrored} + {value})"
    )
    d.add("\n".join(lines), name)


def merge(d: Drawing) -> None:
    """Branches without recursion, whose order matters; each may read its value at other points."""
    r = target(d)
    d.mark("recurrence: branches only")
    everywhere = ", ".join(r.domain)
    lines, cover = [r.declared()], Cover(r.domain)
    for _ in range(d.choices.integer(1, 4)):
        where = condition(d, r.s, r.domain)
        if cover.takes(where) or d.chance(3):
            lines.append(f"{r.name}[{everywhere}, {where}] = {r.operand()}")
    if d.chance(50) and cover.takes(f"{r.s} == 0"):
        lines.append(f"{r.at('0')} = {r.operand(**{r.s: '0'})}")
    if cover.free.any() if d.chance(98) else len(lines) == 1:
        lines.append(f"{r.name}[{everywhere}] = {r.operand()}")
    d.add("\n".join(lines), r.name)


def mutual(d: Drawing) -> None:
    """Two or three recurrences that read each other, forwards or backwards."""
    r, others = target(d), [d.name() for _ in range(d.choices.integer(1, 2))]
    a, s = r.name, r.s
    backwards = d.chance(35)
    d.mark(f"recurrence: mutual{', backwards' if backwards else ''}")
    lines = [declared(n, r.shape, r.domain) for n in (a, *others)]
    first = f"{r.bound} - 1" if backwards else "0"
    lines.append(f"{r.at(first)} = {r.operand(**{s: first})}")
    previous = a
    for b in others:
        lines.append(f"{b}{r.key(s)} = tp.tanh({previous} * 0.5 + {r.operand()})")
        previous = b
    if backwards:
        lines.append(f"{r.at(s)} = {previous}{r.key(s + ' + 1')} - {r.at(s + ' + 1')} * 0.3 + {r.operand()}")
    else:
        lines.append(f"{r.at(s + ' + 1')} = {previous} - {a} * 0.3 + {r.operand()}")
    d.add("\n".join(lines), a, *others)


def after_a_place(d: Drawing) -> None:
    """A tensor before a place of a step, and values computed from slices of the past after it, as a model goes on after a prompt."""
    r = target(d)
    d.mark("recurrence: after a place")
    s, bound = r.s, r.bound
    other = d.choices.pick([o.upper() for o in d.steps if o != s] or [f"{bound} // 2 + 1"])
    place = d.choices.pick((f"{bound} // 2 + 1", f"tp.min({other}, {bound})", other, f"{bound} - {bound} // 3", "9"))
    span = d.choices.pick(
        (f"0:{s} + 1", f"tp.max({s} - 2, 0):{s} + 1", f"{s} // 3 * 3:{s} + 1", s, f"tp.max({s} - 1, 0)", f"0:{s} + 1:2")
    )
    inner, product, past, after = (f"{r.name}_{word}" for word in ("inner", "product", "past", "after"))
    reduced = d.choices.pick((".mean(0)", ".max(0)", ".sum(0)", ".discounted_sum(0.5)")) if ":" in span else ""
    given = f"{r.name}_given"
    ahead = d.chance(35)  # what is given for the next point is read at its own point too
    if ahead:
        d.mark("recurrence: after a place, with what is ahead")
    reads = (f" + {given}", f" + {given}{r.key(f'{s} + 1')}") if ahead else ("", "")
    lines = [
        declared(r.name, "(2,)", r.domain),
        *(
            [f"{given} = {Target(d, r.name, r.domain, s, '()').operand()} + tp.zeros((2,)) * ({' + '.join(r.domain)})"]
            if ahead
            else []
        ),
        f"{inner} = {r.name} * {r.operand()}" if d.chance(50) and r.shape in ("()", "(2,)") else f"{inner} = {r.name} * 0.9",
        f"{product} = {inner} @ tp.constant([[0.3, -0.5], [0.7, 0.2]])",
        f"{past} = {product}{r.key(span)}{reduced}",
        f"{after} = tp.tanh({past} + {inner}{reads[0]}){reads[1]}",
        f"{r.at(s, f'{s} < {place}')} = {Target(d, r.name, r.domain, s, '()').operand()}",
        f"{r.at(s)} = {after}{r.key(f'{s} - 1')} * 0.8 + 0.1",
    ]
    d.add("\n".join(lines), r.name)


def growing(d: Drawing) -> None:
    """A recurrence whose shape grows with its step."""
    names = [n for n in d.moving() if d.sizes(n) == "()"]
    if not names:
        return
    x, name = d.choices.pick(names), d.name()
    steps = d.steps_of(x)
    s = d.choices.pick(steps)
    first, after = (", ".join(at if o == s else o for o in steps) for at in ("0", f"{s} + 1"))
    d.mark("recurrence: growing")
    joined = d.choices.pick((f"{name}, {x}[{after}].reshape(1)", f"{x}[{after}].reshape(1), {name} * 0.5"))
    lines = [
        declared(name, f"({s} + 1,)", steps),
        f"{name}[{first}] = {x}[{first}].reshape(1)",
        f"{name}[{after}] = tp.concatenate([{joined}])",
    ]
    d.add("\n".join(lines), name)


def discrete(d: Drawing) -> None:
    """Recurrences of integers, booleans and 16-bit floats."""
    r = target(d)
    value = d.value("int", within=r.domain, static=True) or "2"
    shape = d.sizes(value) if value != "2" else "()"
    r = Target(d, r.name, r.domain, r.s, shape)
    kind = d.choices.pick(("int32", "int32", "bool", "int8", "bfloat16", "float16"))
    d.mark(f"recurrence: of {kind}")
    update = {
        "int32": ("({p} * 3 + {v}) % 11", "tp.maximum({p}, {v}) - 1", "{p} // 2 + {v}"),
        "int8": ("({p} + 3) % 11", "tp.minimum({p}, 3) + 1"),
        "bool": ("~{p}", "{p} & ({s} % 2 == 0)", "{p} | ({v} > 1)"),
        "bfloat16": ("{p} * 0.5 + 0.25", "tp.tanh({p}) + 0.5"),
        "float16": ("{p} * 0.5 + 0.25", "tp.tanh({p}) + 0.5"),
    }[kind]
    first = {"bool": "{v} == 2", "int32": "{v}"}.get(kind, "1").format(v=r_at_zero(d, value, r.s))
    if kind in ("bfloat16", "float16", "int8"):
        r = Target(d, r.name, r.domain, r.s, "()")
    text = d.choices.pick(update).format(p=r.name, v=value, s=r.s)
    if kind == "bool" and value == "2":
        text, first = f"~{r.name}", "True"
    d.add("\n".join([r.declared(kind), f"{r.at('0')} = {first}", f"{r.at(r.s + ' + 1')} = {text}"]), r.name)


def r_at_zero(d: Drawing, value: str, s: str) -> str:
    """A value at the first point of a step."""
    if value == "2" or s not in d.steps_of(value):
        return value
    return f"{value}[{', '.join('0' if o == s else o for o in d.steps_of(value))}]"
