"""Simpler programs: no conditions that limits of loops decide, no loops of one iteration, loops cut where a condition changes."""

from __future__ import annotations

import functools
import itertools
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace

from tempo_core.prices import LEAST_SHARE_TO_CUT_AT_VALUE, MOST_PEELED, MOST_WEIGHT_TO_PEEL, SHORTEST_PEELED
from tempo_core.schedule.tree import Block, Execute, If, Item, Loop, leaves, substitute, walk
from tempo_core.symbolic.condition import TRUE, Bool, Comparison, Conjunction, Disjunction, Truth, conjunction, disjunction
from tempo_core.symbolic.expr import Atom, Expr, Maximum, Minimum, Symbol, maximum, minimum


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
        item = replace(item, start=resolved(item.start, limits), stop=resolved(item.stop, limits))
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
    low, high = extent(loop.start, limits), extent(loop.stop - 1, limits)
    return limits if low is None or high is None else {**limits, loop.counter: (low[0], high[1])}


def extent(expr: Expr, limits: Limits) -> tuple[int, int] | None:
    """The least and greatest value of sums, minima and maxima of counters; None for any other expression."""
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
        return None
    ends = [extent(argument, limits) for argument in atom.args]
    if any(end is None for end in ends):
        return None
    join = min if isinstance(atom, Minimum) else max
    return join(end[0] for end in ends if end), join(end[1] for end in ends if end)


def resolved(expr: Expr, limits: Limits) -> Expr:
    """The expression, where an operand of a minimum or maximum is left out if another one is always as small, or as great.

    `max(1 - i, 0)` is 0 inside of a loop over i that starts at 1.
    """
    for atom in expr.atoms:
        if isinstance(atom, (Minimum, Maximum)) and expr.coefficient(atom):
            sign = 1 if isinstance(atom, Maximum) else -1
            kept: list[Expr] = []
            for argument in atom.args:
                if not any(is_nonnegative((other - argument) * sign, limits) for other in kept):
                    kept = [other for other in kept if not is_nonnegative((argument - other) * sign, limits)] + [argument]
            rest = expr - Expr.of_atom(atom) * expr.coefficient(atom)
            expr = rest + (maximum if sign > 0 else minimum)(*kept) * expr.coefficient(atom)
    return expr


def is_nonnegative(expr: Expr, limits: Limits) -> bool:
    """Whether an expression is surely not negative within the limits of counters."""
    interval = extent(expr, limits)
    return interval is not None and interval[0] >= 0


def decided(condition: Bool, limits: Limits) -> Bool:
    """The condition; comparisons that are always or never true within the limits of counters become constants."""
    if isinstance(condition, Comparison):
        interval = extent(condition.expr, limits)
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
        condition = conjunction(*(decided(a, limits) for a in condition.args))
        return ~TRUE if _contradicts_itself(condition, limits) else condition
    if isinstance(condition, Disjunction):
        return disjunction(*(decided(a, limits) for a in condition.args))
    return condition


def _contradicts_itself(condition: Bool, limits: Limits) -> bool:
    """Whether two comparisons of a conjunction never hold together."""
    least: list[Expr] = []  # expressions that are at least 0
    for part in condition.parts:
        if isinstance(part, Comparison) and part.kind != "!=":
            least += [part.expr] if part.kind == ">=" else [part.expr, -part.expr]
    sums = (extent(a + b, limits) for a, b in itertools.combinations(least, 2))
    return any(interval is not None and interval[1] < 0 for interval in sums)


# -- prologue, steady state, epilogue ---------------------------------------------------------------------------------


def cut(item: Item, limits: Limits, weigh: Callable[[Item], int] | None = None, values: frozenset[Symbol] = frozenset()) -> Item:
    """The item with loops cut where a condition on their counter changes, unless it guards only branches and deallocs.

    If a body is cheap to copy, its first or last iterations are also cut off where a tensor takes another of its branches in them.
    `weigh` gives what a copy costs. `values` are symbols that a run has numbers for before the item runs: a condition may change at a
    place in their terms.
    """
    if isinstance(item, Block):
        return simplified(Block(tuple(cut(c, limits, weigh, values) for c in item.children)), limits)
    if isinstance(item, If):
        orelse = None if item.orelse is None else as_block(cut(item.orelse, limits, weigh, values))
        return If(item.condition, as_block(cut(item.then, limits, weigh, values)), orelse)
    if not isinstance(item, Loop):
        return item
    places = _places(item, limits, weigh)
    if places:
        edges = [item.start, *map(Expr.of, places), item.stop]
        parts: list[Item] = [Loop(item.counter, a, b, 1, item.body) for a, b in itertools.pairwise(edges)]
    else:
        parts = _cut_at_value(item, limits, weigh, values)
    if not parts:
        inner = cut(item.body, _limited(item, limits), weigh, values)
        return Loop(item.counter, item.start, item.stop, item.step, as_block(inner))
    if not places:
        parts = [inside_limits(part, limits) for part in parts]
    return simplified(Block(tuple(cut(simplified(part, limits), limits, weigh, values) for part in parts)), limits)


def _cut_at_value(loop: Loop, limits: Limits, weigh: Callable[[Item], int] | None, values: frozenset[Symbol]) -> list[Item]:
    """The two parts of a loop, cut at a place in terms of `values` at which a condition changes."""
    if loop.step != 1 or weigh is None or not values:
        return []
    guards: dict[Comparison, int] = {}  # with the weight of what they guard
    for inner in walk(loop.body):
        if isinstance(inner, If):
            for comparison in set(_comparisons(inner.condition)):
                guards[comparison] = guards.get(comparison, 0) + weigh(inner)
    for comparison in sorted(guards, key=lambda guard: -guards[guard]):
        sign, others = comparison.expr.coefficient(loop.counter), comparison.symbols - {loop.counter}
        if not guards[comparison] or guards[comparison] < LEAST_SHARE_TO_CUT_AT_VALUE * weigh(loop.body):
            return []
        if comparison.kind != ">=" or abs(sign) != 1 or not others or not others <= values:
            continue
        limit = loop.counter.expr - comparison.expr * sign  # the condition says `t >= limit` or `t <= limit`
        place = limit if sign > 0 else limit + 1
        stop, start = resolved(minimum(place, loop.stop), limits), resolved(maximum(place, loop.start), limits)
        return [replace(loop, stop=stop), replace(loop, start=start)]
    return []


def inside_limits(item: Item, limits: Limits, facts: tuple[Expr, ...] = ()) -> Item:
    """The item without conditions that the limits of loops in terms of other symbols decide. `facts` are not negative where it runs."""
    if isinstance(item, Block):
        return Block(tuple(inside_limits(child, limits, facts) for child in item.children))
    if isinstance(item, Loop):
        starts, stops = _arguments(item.start, Maximum), _arguments(item.stop, Minimum)
        ends = (*(item.counter.expr - start for start in starts), *(stop - 1 - item.counter.expr for stop in stops))
        inside = (*facts, *(end for end in ends if not is_nonnegative(end, _limited(item, limits))))
        return replace(item, body=as_block(inside_limits(item.body, _limited(item, limits), inside)))
    if isinstance(item, If):
        orelse = None if item.orelse is None else as_block(inside_limits(item.orelse, limits, facts))
        return If(_decided_by(facts, item.condition, limits), as_block(inside_limits(item.then, limits, facts)), orelse)
    return item


def _arguments(expr: Expr, kind: type[Maximum] | type[Minimum]) -> tuple[Expr, ...]:
    """The arguments of a maximum or minimum; the expression itself if it is none."""
    atom = expr.single_atom
    return atom.args if isinstance(atom, kind) else (expr,)


def _decided_by(facts: tuple[Expr, ...], condition: Bool, limits: Limits) -> Bool:
    """The condition where some expressions are not negative."""
    if isinstance(condition, Comparison):
        if condition.kind == ">=" and any(is_nonnegative(condition.expr - fact, limits) for fact in facts):
            return TRUE
        return ~TRUE if _contradict((*facts, *_facts(condition)), limits) else condition
    if isinstance(condition, Conjunction):
        rest = conjunction(*(_decided_by(facts, part, limits) for part in condition.args))
        return ~TRUE if _contradict((*facts, *_facts(rest)), limits) else rest
    if isinstance(condition, Disjunction):
        return disjunction(*(_decided_by(facts, part, limits) for part in condition.args))
    return condition


def _facts(condition: Bool) -> list[Expr]:
    """Expressions that are not negative where a condition holds."""
    facts: list[Expr] = []
    for part in condition.parts:
        if isinstance(part, Comparison) and part.kind in (">=", "=="):
            facts += [part.expr] if part.kind == ">=" else [part.expr, -part.expr]
    return facts


def _contradict(facts: tuple[Expr, ...], limits: Limits) -> bool:
    """Whether two or three expressions cannot all be not negative: their sum is negative."""
    groups = (*itertools.combinations(facts, 2), *itertools.combinations(facts, 3))
    return any(is_nonnegative(-1 - sum(group, Expr.of(0)), limits) for group in groups)


def _places(loop: Loop, limits: Limits, weigh: Callable[[Item], int] | None) -> list[int]:
    """The values of a loop's counter at which it is cut. If only limits of its end are known, these come before any end."""
    ends = extent(loop.stop, limits)
    if loop.step != 1 or not loop.start.is_constant or ends is None:
        return []
    longest = replace(loop, stop=Expr.of(ends[1]))
    is_cheap = weigh is not None and weigh(loop.body) <= MOST_WEIGHT_TO_PEEL
    places = _cuts(longest, limits) | (_ends_of_branches(longest) if is_cheap else set())
    return sorted(place for place in places if loop.stop.is_constant or place <= ends[0])


def _cuts(loop: Loop, limits: Limits) -> set[int]:
    """The values of a loop's counter, inside its range, at which a condition on it changes.

    A condition may be on counters of inner loops too (`i + j >= 1`): it changes where it begins to hold at all of their values, and
    where it begins to hold at some. The loop is cut there if there are few values of the counter between the two.
    """
    start, stop = loop.start.constant, loop.stop.constant
    within = functools.partial(_changes_within, loop)
    values: set[int] = set()
    for comparison, inner in _guards(loop.body, _limited(loop, limits)):
        if comparison.symbols == {loop.counter}:
            values |= set(within(comparison))
            continue
        places = sorted(place for end in _ends(comparison, loop.counter, inner) for place in within(end))
        values |= set(places) if places and places[-1] - places[0] <= MOST_PEELED else set()
    for comparison in _choices(loop.body):
        if comparison.symbols == {loop.counter}:
            values |= _near_ends(loop, comparison)
    return {value for value in values if start < value < stop}


def _ends_of_branches(loop: Loop) -> set[int]:
    """The values of a loop's counter near its limits at which a tensor changes from one of its branches to another."""
    values: set[int] = set()
    if loop.stop.constant - loop.start.constant < SHORTEST_PEELED or any(isinstance(inner, Loop) for inner in walk(loop.body)):
        return values
    branches = {(leaf.node, leaf.branch) for leaf in leaves(loop.body) if isinstance(leaf, Execute)}
    count = Counter(node for node, _ in branches)
    for inner in walk(loop.body):
        if isinstance(inner, If) and any(isinstance(leaf, Execute) and count[leaf.node] > 1 for leaf in leaves(inner)):
            for comparison in _comparisons(inner.condition):
                if comparison.symbols == {loop.counter}:
                    values |= _near_ends(loop, comparison)
    return {value for value in values if loop.start.constant < value < loop.stop.constant}


def _changes_within(loop: Loop, comparison: Comparison) -> list[int]:
    """The values of a loop's counter at which a comparison changes; those outside of the loop's limits are moved to the limits."""
    return [min(max(value, loop.start.constant), loop.stop.constant) for value in _changes(comparison, loop.counter)]


def _near_ends(loop: Loop, comparison: Comparison) -> set[int]:
    start, stop = loop.start.constant, loop.stop.constant
    return {value for value in _changes_within(loop, comparison) if min(value - start, stop - value) <= MOST_PEELED}


def _ends(comparison: Comparison, symbol: Symbol, limits: Limits) -> list[Comparison]:
    """The comparisons of `symbol` alone under which `comparison` holds for all values of the other counters, and for some."""
    coefficient = comparison.expr.coefficient(symbol)
    rest = comparison.expr - coefficient * symbol.expr
    interval = None if comparison.kind != ">=" or not coefficient or symbol in rest.symbols else extent(rest, limits)
    return [] if interval is None else [Comparison(">=", coefficient * symbol.expr + end) for end in interval]


def _guards(item: Item, limits: Limits) -> Iterator[tuple[Comparison, Limits]]:
    """The comparisons that guard statements other than branches of a `Merge` and deallocs, with the limits of the counters around."""
    if isinstance(item, Block):
        for child in item.children:
            yield from _guards(child, limits)
    elif isinstance(item, If):
        parts = [item.then, *([] if item.orelse is None else [item.orelse])]
        if any(_computes(part) for part in parts):
            yield from ((comparison, limits) for comparison in _comparisons(item.condition))
        for part in parts:
            yield from _guards(part, limits)
    elif isinstance(item, Loop):
        yield from _guards(item.body, _limited(item, limits))


def _choices(item: Item) -> Iterator[Comparison]:
    """The comparisons that choose the operand of a minimum or maximum in the limits of inner loops with computations."""
    for inner in walk(item):
        if isinstance(inner, Loop) and _computes(inner.body):
            for atom in (*inner.start.atoms, *inner.stop.atoms):
                if isinstance(atom, (Minimum, Maximum)):
                    yield from (Comparison(">=", a - b) for a, b in itertools.combinations(atom.args, 2))


def _computes(item: Item) -> bool:
    return any(isinstance(leaf, Execute) and leaf.branch is None for leaf in leaves(item))


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
