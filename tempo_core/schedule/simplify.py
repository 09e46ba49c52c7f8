"""Simpler programs: no conditions that limits of loops decide, no loops of one iteration, loops cut where a condition changes."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping

from tempo_core.schedule.program import Block, Execute, If, Item, Loop, leaves, substitute, walk
from tempo_core.symbolic.condition import TRUE, Bool, Comparison, Conjunction, Disjunction, Truth, conjunction, disjunction
from tempo_core.symbolic.expr import Expr, Symbol


def as_block(item: Item) -> Block:
    return item if isinstance(item, Block) else Block((item,))


Limits = Mapping[Symbol, tuple[int, int]]  # the least and greatest value of counters whose loops have constant limits


def simplified(item: Item, limits: Limits) -> Item:
    """The item without conditions that `limits` decide, without loops of at most one iteration, and without nested blocks."""
    if isinstance(item, Block):
        children: list[Item] = []
        for child in item.children:
            child = simplified(child, limits)
            children.extend(child.children if isinstance(child, Block) else (child,))
        return Block(tuple(_joined(children)))
    if isinstance(item, If):
        condition = decided(item.condition, limits)
        if isinstance(condition, Truth):
            chosen = item.then if condition.value else item.orelse
            return Block() if chosen is None else simplified(chosen, limits)
        then = as_block(simplified(item.then, limits))
        orelse = None if item.orelse is None else as_block(simplified(item.orelse, limits))
        if not then.children:
            return Block() if orelse is None or not orelse.children else If(~condition, orelse)
        return If(condition, then, orelse if orelse is not None and orelse.children else None)
    if isinstance(item, Loop):
        length = item.stop - item.start
        if length.is_constant and length.constant <= 0:
            return Block()
        if length.is_constant and length.constant <= item.step:
            return simplified(substitute(item.body, {item.counter: item.start}), limits)
        inner = _limited(item, limits)
        body = as_block(simplified(item.body, inner))
        first, body = _first_iteration(item, body)
        loop = (Loop(item.counter, item.start, item.stop, item.step, body),) if body.children else ()
        return simplified(Block((*first, *loop)), limits) if first else Block(loop)
    return item


def _first_iteration(loop: Loop, body: Block) -> tuple[list[Item], Block]:
    """The items at the start of a body that run in the first iteration only, to run before the loop; and the rest of the body."""
    first: list[Item] = []
    children = list(body.children)
    length = loop.stop - loop.start
    certain = length.is_constant and length.constant > 0
    only_first = loop.counter.expr == loop.start
    while certain and children:
        item = children[0]
        if not isinstance(item, If) or item.orelse is not None:
            break
        parts = item.condition.parts
        if only_first not in parts:
            break
        rest = conjunction(*(p for p in parts if p != only_first))
        children.pop(0)
        first.append(substitute(item.then if rest is TRUE else If(rest, item.then), {loop.counter: loop.start}))
    return first, Block(tuple(children))


def _joined(children: list[Item]) -> list[Item]:
    """Neighbours under one condition as one `If`, and under a condition and its opposite as an if and else."""
    items: list[Item] = []
    for child in children:
        last = items[-1] if items else None
        if isinstance(child, If) and isinstance(last, If) and child.orelse is None:
            if child.condition == last.condition and last.orelse is None:
                items[-1] = If(last.condition, Block((*last.then.children, *child.then.children)))
                continue
            if child.condition == ~last.condition:
                items[-1] = If(last.condition, last.then, Block((*(last.orelse or Block()).children, *child.then.children)))
                continue
        items.append(child)
    return items


def _limited(loop: Loop, limits: Limits) -> Limits:
    low, high = _interval(loop.start, limits), _interval(loop.stop - 1, limits)
    return limits if low is None or high is None else {**limits, loop.counter: (low[0], high[1])}


def _interval(expr: Expr, limits: Limits) -> tuple[int, int] | None:
    """The least and greatest value of an affine expression of counters; None for any other expression."""
    low = high = expr.constant
    for monomial, coefficient in expr.terms:
        if not monomial:
            continue
        atom = monomial[0][0]
        if len(monomial) > 1 or monomial[0][1] != 1 or not isinstance(atom, Symbol) or atom not in limits:
            return None
        ends = [coefficient * end for end in limits[atom]]
        low, high = low + min(ends), high + max(ends)
    return low, high


def decided(condition: Bool, limits: Limits) -> Bool:
    """The condition; comparisons that are always or never true within the limits of counters become constants."""
    if isinstance(condition, Comparison):
        interval = _interval(condition.expr, limits)
        if interval is None:
            return condition
        low, high = interval
        if condition.kind == ">=":
            return TRUE if low >= 0 else (~TRUE if high < 0 else condition)
        apart, same = low > 0 or high < 0, low == high == 0
        if not apart and not same:
            return condition
        return TRUE if same == (condition.kind == "==") else ~TRUE
    if isinstance(condition, Conjunction):
        return conjunction(*(decided(a, limits) for a in condition.args))
    if isinstance(condition, Disjunction):
        return disjunction(*(decided(a, limits) for a in condition.args))
    return condition


# -- prologue, steady state, epilogue ---------------------------------------------------------------------------------


def cut(item: Item, limits: Limits) -> Item:
    """The item with loops cut where a condition on their counter changes, unless it guards only branches and deallocs."""
    if isinstance(item, Block):
        return simplified(Block(tuple(cut(c, limits) for c in item.children)), limits)
    if isinstance(item, If):
        orelse = None if item.orelse is None else as_block(cut(item.orelse, limits))
        return If(item.condition, as_block(cut(item.then, limits)), orelse)
    if not isinstance(item, Loop):
        return item
    places = sorted(_cuts(item)) if item.step == 1 and item.start.is_constant and item.stop.is_constant else []
    if not places:
        return Loop(item.counter, item.start, item.stop, item.step, as_block(cut(item.body, _limited(item, limits))))
    edges = [item.start.constant, *places, item.stop.constant]
    parts = [Loop(item.counter, Expr.of(a), Expr.of(b), 1, item.body) for a, b in itertools.pairwise(edges)]
    return simplified(Block(tuple(cut(simplified(part, limits), limits) for part in parts)), limits)


def _cuts(loop: Loop) -> set[int]:
    """The values of a loop's counter, inside its range, at which a condition on it alone changes."""
    values: set[int] = set()
    for condition in _guards(loop.body):
        for comparison in _comparisons(condition):
            if comparison.symbols == {loop.counter}:
                values |= set(_changes(comparison, loop.counter))
    return {value for value in values if loop.start.constant < value < loop.stop.constant}


def _guards(item: Item) -> Iterator[Bool]:
    """The conditions in an item that guard statements other than branches of a `Merge` and deallocs."""
    for inner in walk(item):
        if isinstance(inner, If):
            guarded = [*leaves(inner.then), *(leaves(inner.orelse) if inner.orelse is not None else ())]
            if any(isinstance(leaf, Execute) and leaf.branch is None for leaf in guarded):
                yield inner.condition


def _comparisons(condition: Bool) -> Iterator[Comparison]:
    if isinstance(condition, Comparison):
        yield condition
    elif isinstance(condition, (Conjunction, Disjunction)):
        for part in condition.args:
            yield from _comparisons(part)


def _changes(comparison: Comparison, symbol: Symbol) -> Iterator[int]:
    """The values of `symbol` at which the truth value of a comparison changes; none if the comparison is not affine in it."""
    coefficient, constant = comparison.expr.coefficient(symbol), comparison.expr.constant
    if comparison.expr - coefficient * symbol.expr != Expr.of(constant):
        return  # such as t % 5 == 0, which changes too often to cut
    if comparison.kind == ">=":
        yield -(constant // coefficient) if coefficient > 0 else constant // -coefficient + 1
    elif constant % coefficient == 0:
        yield from (-constant // coefficient, -constant // coefficient + 1)
