"""A condition on the counter around the whole body of a loop becomes limits of the loop, which may depend on outer loops."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tempo_core.schedule.tidy import Limits, is_nonnegative
from tempo_core.schedule.tree import Block, If, Item, Loop
from tempo_core.symbolic.condition import TRUE, Bool, Comparison, at_least_zero, conjunction
from tempo_core.symbolic.expr import Expr, Symbol, maximum, minimum


def tightened(item: Item, limits: Limits) -> Item:
    """The item, where a condition that bounds a counter and guards the whole loop becomes limits of the loop.

    `limits` are those of symbols that are no counters of the item's loops.

    Rewrite: `for n in 0:N: if 4*n <= t: ...` -> `for n in 0:min(N, t//4 + 1): ...`
    """
    if isinstance(item, Block):
        return Block(tuple(tightened(child, limits) for child in item.children))
    if isinstance(item, If):
        orelse = None if item.orelse is None else _block(tightened(item.orelse, limits))
        return If(item.condition, _block(tightened(item.then, limits)), orelse)
    if not isinstance(item, Loop):
        return item
    children = [tightened(child, limits) for child in _flat(item.body)]
    guards = [child.condition for child in children if isinstance(child, If) and child.orelse is None]
    if item.step != 1 or not children or len(guards) != len(children):
        return Loop(item.counter, item.start, item.stop, item.step, Block(tuple(children)))
    shared = set(guards[0].parts).intersection(*(set(g.parts) for g in guards[1:]))
    start, stop, limit_parts = item.start, item.stop, set()
    for part in shared:
        ends = _ends(part, item)
        if ends is not None:
            start, stop = maximum(start, ends[0]), minimum(stop, ends[1])
            limit_parts.add(part)
    last = _last_iteration([guard.parts for guard in guards], item, limits)
    if last is not None:
        stop = minimum(stop, last + 1)
        limit_parts.add(at_least_zero(last - item.counter.expr))
    if not limit_parts:
        return Loop(item.counter, item.start, item.stop, item.step, Block(tuple(children)))
    items = []
    for child in children:
        assert isinstance(child, If)
        rest = conjunction(*(p for p in child.condition.parts if p not in limit_parts))
        items.append(child.then if rest is TRUE else If(rest, child.then))
    return Loop(item.counter, start, stop, 1, Block(tuple(items)))


def _last_iteration(guards: Sequence[tuple[Bool, ...]], loop: Loop, limits: Limits) -> Expr | None:
    """The last iteration in which any of the guards holds, if each ends a known distance before it: `n` for `t <= n` and `t <= n - 1`.

    `guards` are conjunctions, by their parts. Of those that hold in one iteration, `t == 0`, this must not come after the end.
    """
    single = [_only(parts, loop.counter) for parts in guards]
    ends = [
        [end for end in (_end(part, loop.counter) for part in (*parts, *_where_equal(parts, loop.counter))) if end is not None]
        for parts, only in zip(guards, single, strict=True)
        if only is None
    ]
    for end in ends[0] if ends else ():
        nearest = [[(other - end).constant for other in others if (other - end).is_constant] for others in ends]
        if end.symbols and all(nearest):
            last = end + max(map(min, nearest))
            if all(only is None or is_nonnegative(last - only, limits) for only in single):
                return last
    return None


def _where_equal(parts: Sequence[Bool], counter: Symbol) -> list[Bool]:
    """What a guard says of a counter that it sets equal to another symbol: `t <= n` for `(t == p) & (p <= n)`."""
    values = {}
    for part in parts:
        if isinstance(part, Comparison) and part.kind == "==" and len(part.symbols) == 2 and counter in part.symbols:
            (other,) = part.symbols - {counter}
            if part.expr.coefficient(counter) == -part.expr.coefficient(other) and abs(part.expr.coefficient(other)) == 1:
                values[other] = other.expr - part.expr * part.expr.coefficient(other)
    return [part.substitute(values) for part in parts if values and counter not in part.symbols]


def _only(parts: Sequence[Bool], counter: Symbol) -> Expr | None:
    """The one number at which a guard may hold."""
    for part in parts:
        if isinstance(part, Comparison) and part.kind == "==" and abs(part.expr.coefficient(counter)) == 1:
            only = counter.expr - part.expr * part.expr.coefficient(counter)
            if only.is_constant:
                return only
    return None


def _end(part: Bool, counter: Symbol) -> Expr | None:
    """The last value of a counter at which a condition `counter <= ...` holds; None for any other condition."""
    if not isinstance(part, Comparison) or part.kind != ">=" or part.expr.coefficient(counter) != -1:
        return None
    last = part.expr + counter.expr
    return None if counter in last.symbols else last


def _ends(part: Bool, loop: Loop) -> tuple[Expr, Expr] | None:
    """(start, stop) of the loop's counter, equivalent to a comparison; None if there are no such limits."""
    if not isinstance(part, Comparison) or part.kind not in (">=", "=="):
        return None
    coefficient = part.expr.coefficient(loop.counter)
    rest = part.expr - coefficient * loop.counter.expr
    if coefficient == 0 or loop.counter in rest.symbols:
        return None
    if part.kind == "==":
        only = -rest * coefficient
        return (only, only + 1) if abs(coefficient) == 1 else None
    if coefficient < 0:  # rest >= -coefficient * counter
        return loop.start, rest // -coefficient + 1
    return -(rest // coefficient), loop.stop  # counter >= ceil(-rest / coefficient)


def _flat(item: Item) -> Iterator[Item]:
    if isinstance(item, Block):
        for child in item.children:
            yield from _flat(child)
    else:
        yield item


def _block(item: Item) -> Block:
    return item if isinstance(item, Block) else Block((item,))
