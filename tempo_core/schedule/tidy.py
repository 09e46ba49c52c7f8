"""Simpler programs: no conditions that limits of loops decide, no loops of one iteration, conditions around bodies as limits of loops."""

from __future__ import annotations

import functools
import itertools
import math
import operator
from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType

from tempo_core.ir.dependence import fixed_point
from tempo_core.schedule.tree import Block, If, Item, Loop, as_block, changed, flat, guarded, substitute, walk
from tempo_core.symbolic.condition import FALSE, TRUE, Bool, Comparison, Connective, Truth, at_least_zero, conjunction, facts_of
from tempo_core.symbolic.expr import Atom, Expr, FloorDivide, Maximum, Minimum, Modulo, Symbol, maximum, minimum
from tempo_core.symbolic.proof import extreme

Limits = Mapping[Symbol, tuple[int, int]]  # the least and greatest value of counters whose loops have constant limits
Facts = Sequence[Expr]  # expressions that are not negative where an item runs


def simplified(item: Item, limits: Limits) -> Item:
    """The item without conditions that `limits` decide, without loops of at most one iteration, and without nested blocks."""
    if isinstance(item, Block):
        return Block(tuple(_joined(list(flat(Block(tuple(simplified(child, limits) for child in item.children)))))))
    if isinstance(item, If):
        condition = decided(item.condition, limits)
        if isinstance(condition, Truth):
            chosen = item.then if condition.value else item.orelse
            return Block() if chosen is None else simplified(chosen, limits)
        then = as_block(simplified(item.then, limits))
        orelse = Block() if item.orelse is None else as_block(simplified(item.orelse, limits))
        if not then.children:
            return If(~condition, orelse) if orelse.children else Block()
        return If(condition, then, orelse if orelse.children else None)
    if isinstance(item, Loop):
        item = replace(item, start=resolved(item.start, limits), stop=resolved(item.stop, limits))
        length = item.stop - item.start
        if length.is_constant and length.constant <= 0:
            return Block()
        if length.is_constant and length.constant <= item.step:
            return simplified(substitute(item.body, {item.counter: item.start}), limits)
        body = as_block(simplified(item.body, limited(item, limits)))
        first, body = _first_iteration(item, body)
        loop = (replace(item, body=body),) if body.children else ()
        return simplified(Block((*first, *loop)), limits) if first else Block(loop)
    return item


def _first_iteration(loop: Loop, body: Block) -> tuple[list[Item], Block]:
    """The items at the start of a body that run in the first iteration only, to run before the loop; and the rest of the body."""
    length = loop.stop - loop.start
    if not length.is_constant or length.constant <= 0:
        return [], body
    only_first = loop.counter.expr == loop.start
    first = list(itertools.takewhile(lambda item: only_first in conditions_of(item), body.children))
    items = [substitute(without(item, {only_first}), {loop.counter: loop.start}) for item in first]
    return items, Block(body.children[len(first) :])


def conditions_of(item: Item) -> tuple[Bool, ...]:
    """The conditions that must all hold for an item to do anything."""
    return item.condition.parts if isinstance(item, If) and item.orelse is None else ()


def without(item: Item, conditions: set[Bool]) -> Item:
    """An item that runs under conditions, without some of these."""
    assert isinstance(item, If)
    return guarded(conjunction(*(part for part in item.condition.parts if part not in conditions)), item.then)


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


# -- what limits decide -----------------------------------------------------------------------------------------------


def limited(loop: Loop, limits: Limits) -> Limits:
    """The limits inside of a loop."""
    low, high = extent(loop.start, limits), extent(loop.stop - 1, limits)
    return limits if low is None or high is None else {**limits, loop.counter: (low[0], high[1])}


def extent(expr: Expr, limits: Limits) -> tuple[int, int] | None:
    """The least and greatest value of sums, minima, maxima and divisions of counters; None for any other expression."""
    low = high = expr.constant
    for monomial, coefficient in expr.terms:
        if not monomial:
            continue
        (atom, power), *others = monomial
        ends = None if others or power != 1 else _atom_interval(atom, limits)
        if ends is None:
            return None
        low, high = low + min(coefficient * end for end in ends), high + max(coefficient * end for end in ends)
    return low, high


def _atom_interval(atom: Atom, limits: Limits) -> tuple[int, int] | None:
    if isinstance(atom, Symbol):
        return limits.get(atom)
    if not isinstance(atom, (Minimum, Maximum)):
        return _division_interval(atom, limits)
    ends = [extent(argument, limits) for argument in atom.args]
    if any(end is None for end in ends):
        return None
    join = min if isinstance(atom, Minimum) else max
    return join(end[0] for end in ends if end), join(end[1] for end in ends if end)


def _division_interval(atom: FloorDivide | Modulo, limits: Limits) -> tuple[int, int] | None:
    ends, divisor = extent(atom.numerator, limits), atom.denominator
    if ends is None or not divisor.is_constant or divisor.constant <= 0:
        return None
    (first, low), (last, high) = (divmod(end, divisor.constant) for end in ends)
    if isinstance(atom, FloorDivide):
        return first, last
    return (low, high) if first == last else (0, divisor.constant - 1)


def is_nonnegative(expr: Expr, limits: Limits) -> bool:
    """Whether an expression is surely not negative within the limits of counters."""
    interval = extent(expr, limits)
    return interval is not None and interval[0] >= 0


def resolved(expr: Expr, limits: Limits) -> Expr:
    """The expression, where an operand of a minimum or maximum is left out if another one is always as small, or as great.

    `max(1 - i, 0)` is 0 inside of a loop over i that starts at 1.
    """
    for atom in expr.atoms:
        if isinstance(atom, (Minimum, Maximum)) and expr.coefficient(atom):
            sign = 1 if isinstance(atom, Maximum) else -1
            value = extreme(atom.args, sign, lambda difference: is_nonnegative(difference, limits))
            expr = expr + (value - Expr.of_atom(atom)) * expr.coefficient(atom)
    return expr


def decided(condition: Bool, limits: Limits, facts: Facts = ()) -> Bool:
    """The condition; comparisons that are always or never true within the limits of counters, where facts hold, become constants."""
    if isinstance(condition, Connective):
        rest = condition.map(lambda part: decided(part, limits, facts))
        return FALSE if condition.all_hold and _contradict((*facts, *facts_of(rest)), limits, 3 if facts else 2) else rest
    if not isinstance(condition, Comparison):
        return condition
    low, high = extent(condition.expr, limits) or (-math.inf, math.inf)
    if condition.kind == ">=" and (low >= 0 or any(is_nonnegative(condition.expr - fact, limits) for fact in facts)):
        return TRUE
    if condition.kind == "!=":
        return ~decided(~condition, limits, facts)
    if condition.kind == "==" and low == high == 0:
        return TRUE
    is_never = high < 0 or (condition.kind == "==" and low > 0)
    return FALSE if is_never or (facts and _contradict((*facts, *facts_of(condition)), limits, 3)) else condition


def _contradict(facts: Facts, limits: Limits, most: int) -> bool:
    """Whether two expressions, or up to `most`, cannot all be not negative: their sum is negative."""
    groups = itertools.chain.from_iterable(itertools.combinations(facts, count) for count in range(2, most + 1))
    sums = (extent(functools.reduce(operator.add, group), limits) for group in groups)
    return any(interval is not None and interval[1] < 0 for interval in sums)


def inside_limits(item: Item, limits: Limits, facts: Facts = ()) -> Item:
    """The item without conditions that the limits of loops in terms of other symbols decide, where `facts` hold."""
    inner = limits
    if isinstance(item, Loop):
        inner = limited(item, limits)
        starts, stops = _arguments(item.start, Maximum), _arguments(item.stop, Minimum)
        ends = (*(item.counter.expr - start for start in starts), *(stop - 1 - item.counter.expr for stop in stops))
        facts = (*facts, *(end for end in ends if not is_nonnegative(end, inner)))
    item = changed(item, lambda part: inside_limits(part, inner, facts))
    return replace(item, condition=decided(item.condition, limits, facts)) if isinstance(item, If) else item


def _arguments(expr: Expr, kind: type[Maximum] | type[Minimum]) -> tuple[Expr, ...]:
    """The arguments of a maximum or minimum; the expression itself if it is none."""
    atom = expr.single_atom
    return atom.args if isinstance(atom, kind) else (expr,)


# -- conditions as limits of loops ------------------------------------------------------------------------------------


def tightened(item: Item, limits: Limits, anew: Mapping[Symbol, frozenset[Symbol]] = MappingProxyType({})) -> Item:
    """The item, where a condition that bounds a counter and guards the whole loop becomes limits of the loop, in terms of outer loops too.

    `limits` are those of symbols that are no counters of the item's loops. A condition without the counter moves around the loop, unless a
    symbol in it is another number in each iteration: `anew` has these symbols by the loop's counter.

    Rewrite: `for n in 0:N: if 4*n <= t: ...` -> `for n in 0:min(N, t//4 + 1): ...`
    """
    item = changed(item, lambda part: tightened(part, limits, anew))
    if not isinstance(item, Loop):
        return item
    children = tuple(flat(item.body))
    item = replace(item, body=Block(children))
    varying = anew.get(item.counter, frozenset())
    guards = [tuple(part for part in conditions_of(child) if varying.isdisjoint(part.symbols)) for child in children]
    if item.step != 1 or not children or not all(guards):
        return item
    start, stop, limit_parts = item.start, item.stop, set()
    shared = set(guards[0]).intersection(*guards[1:])
    for part in shared:
        first, last = _ends(part, item.counter)
        if first is not None or last is not None:
            limit_parts.add(part)
        start = start if first is None else maximum(start, first)
        stop = stop if last is None else minimum(stop, last + 1)
    first, last = (_end_of_iterations(guards, item, limits, side) for side in (0, 1))
    if first is not None:
        start = maximum(start, first)
        limit_parts.add(at_least_zero(item.counter.expr - first))
    if last is not None:
        stop = minimum(stop, last + 1)
        limit_parts.add(at_least_zero(last - item.counter.expr))
    around = {part for part in shared if item.counter not in part.symbols}
    if not limit_parts and not around:
        return item
    inner = tuple(without(child, limit_parts | around) for child in children)
    return guarded(conjunction(*around), Loop(item.counter, start, stop, 1, Block(inner)))


def _ends(part: Bool, counter: Symbol) -> tuple[Expr | None, Expr | None]:
    """The first and the last value of a counter at which a comparison holds, where it is equivalent to these limits."""
    if not isinstance(part, Comparison) or part.kind == "!=":
        return None, None
    coefficient = part.expr.coefficient(counter)
    rest = part.expr - coefficient * counter.expr
    if coefficient == 0 or counter in rest.symbols:
        return None, None
    if part.kind == "==":
        return (-rest * coefficient,) * 2 if abs(coefficient) == 1 else (None, None)
    return (-(rest // coefficient), None) if coefficient > 0 else (None, rest // -coefficient)


def _end_of_iterations(guards: Sequence[tuple[Bool, ...]], loop: Loop, limits: Limits, side: int) -> Expr | None:
    """The first iteration (`side` 0) or the last one (1) in which any of the guards holds, if the ends of all are a known distance apart.

    It is n for `t <= n` and `t <= n - 1`. `guards` are conjunctions, by their parts. Those that hold in one iteration, `t == 0`, must not
    hold beyond the end.
    """
    single = [fixed_point(conjunction(*parts), loop.counter) for parts in guards]
    ends = [
        [end for part in (*parts, *_where_equal(parts, loop.counter)) if (end := _ends(part, loop.counter)[side]) is not None]
        for parts, only in zip(guards, single, strict=True)
        if only is None or not only.is_constant
    ]
    outwards = 1 if side else -1
    inner = {part.counter for part in walk(loop.body) if isinstance(part, Loop)}
    for end in ends[0] if ends else ():
        nearest = [[((other - end) * outwards).constant for other in others if (other - end).is_constant] for others in ends]
        if end.symbols and inner.isdisjoint(end.symbols) and all(nearest):
            outermost = end + outwards * max(map(min, nearest))
            apart = [(outermost - only) * outwards for only in single if only is not None and only.is_constant]
            if all(is_nonnegative(distance, limits) for distance in apart):
                return outermost
    return None


def _where_equal(parts: Sequence[Bool], counter: Symbol) -> list[Bool]:
    """What a guard says of a counter that it sets equal to another symbol: `t <= n` for `(t == p) & (p <= n)`."""
    values = {}
    for part in parts:
        if len(part.symbols) == 2 and counter in part.symbols:
            (other,) = part.symbols - {counter}
            value = fixed_point(part, other)
            if value is not None and value.coefficient(counter) == 1:
                values[other] = value
    return [part.substitute(values) for part in parts if values and counter not in part.symbols]
