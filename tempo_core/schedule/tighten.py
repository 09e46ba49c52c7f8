"""A condition on the counter around the whole body of a loop becomes limits of the loop, which may depend on outer loops."""

from __future__ import annotations

from collections.abc import Iterator

from tempo_core.schedule.program import Block, If, Item, Loop
from tempo_core.symbolic.condition import TRUE, Bool, Comparison, conjunction
from tempo_core.symbolic.expr import Expr, maximum, minimum


def tightened(item: Item) -> Item:
    """The item, where a condition that bounds a counter and guards the whole loop becomes limits of the loop.

    Rewrite: `for n in 0:N: if 4*n <= t: ...` -> `for n in 0:min(N, t//4 + 1): ...`
    """
    if isinstance(item, Block):
        return Block(tuple(map(tightened, item.children)))
    if isinstance(item, If):
        orelse = None if item.orelse is None else _block(tightened(item.orelse))
        return If(item.condition, _block(tightened(item.then)), orelse)
    if not isinstance(item, Loop):
        return item
    children = [tightened(child) for child in _flat(item.body)]
    guards = [child.condition for child in children if isinstance(child, If) and child.orelse is None]
    if item.step != 1 or not children or len(guards) != len(children):
        return Loop(item.counter, item.start, item.stop, item.step, Block(tuple(children)))
    shared = set(guards[0].parts).intersection(*(set(g.parts) for g in guards[1:]))
    start, stop, limit_parts = item.start, item.stop, set()
    for part in shared:
        limits = _limits(part, item)
        if limits is not None:
            start, stop = maximum(start, limits[0]), minimum(stop, limits[1])
            limit_parts.add(part)
    if not limit_parts:
        return Loop(item.counter, item.start, item.stop, item.step, Block(tuple(children)))
    items = []
    for child in children:
        assert isinstance(child, If)
        rest = conjunction(*(p for p in child.condition.parts if p not in limit_parts))
        items.append(child.then if rest is TRUE else If(rest, child.then))
    return Loop(item.counter, start, stop, 1, Block(tuple(items)))


def _limits(part: Bool, loop: Loop) -> tuple[Expr, Expr] | None:
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
