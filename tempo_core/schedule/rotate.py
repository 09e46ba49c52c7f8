"""A loop whose body begins with statements of the second iteration on, and ends before the last: its iterations begin elsewhere."""

from __future__ import annotations

from tempo_core.schedule.tidy import as_block
from tempo_core.schedule.tree import Block, If, Item, Loop, substitute
from tempo_core.symbolic.condition import TRUE, Bool, Comparison, at_least_zero, conjunction
from tempo_core.symbolic.expr import Symbol


def rotated(item: Item) -> Item:
    """The item with such loops rotated. All statements run in the same order as before, and the two conditions are gone.

    A recurrence is such a loop: it takes over the last value, and computes the next one, except in the last iteration.

    Rewrite: `for t in 0:T: if t >= 1: h|1[t]; if t <= T - 2: next[t]` -> `for t in 0:T - 1: next[t]; h|1[t + 1]`
    """
    if isinstance(item, Block):
        return Block(tuple(map(rotated, item.children)))
    if isinstance(item, If):
        return If(item.condition, as_block(rotated(item.then)), None if item.orelse is None else as_block(rotated(item.orelse)))
    if not isinstance(item, Loop):
        return item
    children = as_block(rotated(item.body)).children
    after_first = at_least_zero(item.counter.expr - item.start - 1)
    before_last = at_least_zero(item.stop - 2 - item.counter.expr)
    count = len(children)  # of the children before those that all end before the last iteration
    while count and _has(children[count - 1], before_last, item.counter):
        count -= 1
    if item.step != 1 or not 0 < count < len(children) or not all(_has(c, after_first, item.counter) for c in children[:count]):
        return Loop(item.counter, item.start, item.stop, item.step, Block(children))
    first = [_without(child, before_last) for child in children[count:]]
    following = {item.counter: item.counter.expr + 1}
    last = [substitute(_without(child, after_first), following) for child in children[:count]]
    return Loop(item.counter, item.start, item.stop - 1, 1, Block((*first, *last)))


def _has(item: Item, limit: Bool, counter: Symbol) -> bool:
    """Whether an item runs only where a limit of the counter holds: `t >= 1` if it runs where `t >= 2`, or at t == 1."""
    if not isinstance(item, If) or item.orelse is not None:
        return False
    return any(_implies(part, limit, counter) for part in item.condition.parts)


def _implies(part: Bool, limit: Bool, counter: Symbol) -> bool:
    assert isinstance(limit, Comparison)
    if not isinstance(part, Comparison) or part.kind == "!=":
        return False
    coefficient = part.expr.coefficient(counter)
    only = counter.expr - part.expr * coefficient  # the value of the counter where an equality holds
    distance = limit.expr.substitute({counter: only}) if part.kind == "==" else limit.expr - part.expr
    return (part.kind == ">=" or abs(coefficient) == 1) and distance.is_constant and distance.constant >= 0


def _without(item: Item, part: Bool) -> Item:
    assert isinstance(item, If)
    rest = conjunction(*(p for p in item.condition.parts if p != part))
    return item.then if rest is TRUE else If(rest, item.then)


def begun(item: Item) -> Item:
    """The item with loops that begin with what their first iteration follows, where each iteration ends with the same for the next one.

    A run may choose the end of such a loop, so that it cannot be cut before the last iteration. All statements run in the same order as
    before, and the conditions are gone. If the loop has no iteration, its first statements did not run either.

    Rewrite: `if T >= 2: next[0]; for t in 1:T: h[t]; if t <= T - 2: next[t]` -> `for t in 0:T - 1: next[t]; h[t + 1]`
    """
    if isinstance(item, If):
        return If(item.condition, as_block(begun(item.then)), None if item.orelse is None else as_block(begun(item.orelse)))
    if isinstance(item, Loop):
        return Loop(item.counter, item.start, item.stop, item.step, as_block(begun(item.body)))
    if not isinstance(item, Block):
        return item
    children: list[Item] = []
    for child in map(begun, item.children):
        earlier = _begun_earlier(children[-1], child) if children and isinstance(child, Loop) else None
        if earlier is None:
            children.append(child)
        else:
            children[-1] = earlier
    return Block(tuple(children))


def _begun_earlier(before: Item, loop: Loop) -> Loop | None:
    """A loop with what stands before it as the start of its first iteration; None if that is something else than the end of the others."""
    before_last = at_least_zero(loop.stop - 2 - loop.counter.expr)
    *first, last = loop.body.children
    if loop.step != 1 or not first or not isinstance(last, If) or last.orelse is not None:
        return None
    if before_last not in last.condition.parts:
        return None
    if before != substitute(last, {loop.counter: loop.start - 1}):
        return None
    following = [substitute(item, {loop.counter: loop.counter.expr + 1}) for item in first]
    start = as_block(_without(last, before_last)).children
    return Loop(loop.counter, loop.start - 1, loop.stop - 1, 1, Block((*start, *following)))
