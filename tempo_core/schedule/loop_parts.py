"""Loops in parts, and loops whose iterations begin elsewhere: a prologue, a steady state without conditions, and an epilogue."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from tempo_core.prices import LEAST_SHARE_TO_CUT_AT_VALUE, MOST_PIECES, MOST_REPEATED, WORTH_OWN_CODE
from tempo_core.schedule.tidy import Limits, conditions_of, decided, extent, inside_limits, limited, resolved, simplified, without
from tempo_core.schedule.tree import Block, Execute, If, Item, Loop, as_block, changed, leaves, parts, substitute, walk
from tempo_core.symbolic.condition import TRUE, Bool, Comparison, at_least_zero, comparisons_of, facts_of
from tempo_core.symbolic.expr import Expr, Maximum, Minimum, Symbol, maximum, minimum


@dataclass(frozen=True)
class Cuts:
    """What cuts of loops cost and are worth: the weight of a copy; and the nodes whose values are updated in place.

    `values` are symbols that a run has numbers for before the item runs: a condition may change at a place in their terms.
    """

    weigh: Callable[[Item], int]
    updated: frozenset[int] = frozenset()
    values: frozenset[Symbol] = frozenset()


def cut(item: Item, limits: Limits, cuts: Cuts | None = None) -> Item:
    """The item with loops cut where a condition on their counter changes, unless it guards only branches and deallocs.

    If a body is cheap to copy, its first or last iterations are also cut off where a tensor takes another of its branches in them; however
    dear it is, if that tensor is updated in place, because under a condition all of it is copied.
    """
    if not isinstance(item, Loop):
        item = changed(item, lambda part: cut(part, limits, cuts))
        return simplified(item, limits) if isinstance(item, Block) else item
    places = _places(item, limits, cuts)
    if places:
        edges = [item.start, *map(Expr.of, places), item.stop]
        pieces: list[Item] = [Loop(item.counter, a, b, 1, item.body) for a, b in itertools.pairwise(edges)]
    else:
        pieces = [inside_limits(piece, limits) for piece in _cut_at_value(item, limits, cuts)]
    if not pieces:
        return changed(item, lambda part: cut(part, limited(item, limits), cuts))
    return simplified(Block(tuple(cut(simplified(piece, limits), limits, cuts) for piece in pieces)), limits)


def _cut_at_value(loop: Loop, limits: Limits, cuts: Cuts | None) -> list[Item]:
    """The two parts of a loop, cut at a place in terms of values of the run at which a condition changes.

    The body is copied for a part: so much of it stands under the condition, or something is computed under it at one end of the loop.
    """
    if loop.step != 1 or cuts is None or not cuts.values:
        return []
    weigh, values = cuts.weigh, cuts.values
    guards: Counter[Comparison] = Counter()  # with the weight of what they guard
    for inner in walk(loop.body):
        if isinstance(inner, If):
            guards.update(dict.fromkeys(comparisons_of(inner.condition), weigh(inner)))
    whole, dear = weigh(loop.body), {comparison for comparison, _ in _guards(loop.body, limits)}
    for comparison, weight in guards.most_common():
        sign, others = comparison.expr.coefficient(loop.counter), comparison.symbols - {loop.counter}
        if comparison.kind != ">=" or abs(sign) != 1 or not others or not others <= values:
            continue
        limit = loop.counter.expr - comparison.expr * sign  # the condition says `t >= limit` or `t <= limit`
        if loop.counter in limit.symbols:
            continue  # such as `t >= n - t % 4`
        place = limit if sign > 0 else limit + 1
        is_large = weight > 0 and weight >= LEAST_SHARE_TO_CUT_AT_VALUE * whole
        if is_large or (comparison in dear and _is_near_an_end(place, loop)):
            stop, start = resolved(minimum(place, loop.stop), limits), resolved(maximum(place, loop.start), limits)
            if is_large or (stop != loop.stop and start != loop.start):
                return [replace(loop, stop=stop), replace(loop, start=start)]
    return []


def _is_near_an_end(place: Expr, loop: Loop) -> bool:
    """Whether a place is inside of a loop, after a few iterations or before the last few, if there are so many."""
    return any(each.is_constant and 0 < each.constant < MOST_PIECES for each in (place - loop.start, loop.stop - place))


def _places(loop: Loop, limits: Limits, cuts: Cuts | None) -> list[int]:
    """The values of a loop's counter at which it is cut. If only limits of its end are known, these come before any end."""
    ends = extent(loop.stop, limits)
    if loop.step != 1 or not loop.start.is_constant or ends is None:
        return []
    longest = replace(loop, stop=Expr.of(ends[1]))
    places = _cuts(longest, limits) | (_ends_of_branches(longest, cuts) if cuts is not None else set())
    last = longest.stop.constant - 1 if loop.stop.is_constant else ends[0]
    return sorted(place for place in places if loop.start.constant < place <= last)


def _cuts(loop: Loop, limits: Limits) -> set[int]:
    """The values of a loop's counter at which a condition on it changes.

    A condition may be on counters of inner loops too (`i + j >= 1`): it changes where it begins to hold at all of their values, and
    where it begins to hold at some. The loop is cut there if there are few values of the counter between the two.
    """
    values: set[int] = set()
    for comparison, inner in _guards(loop.body, limited(loop, limits)):
        if comparison.symbols == {loop.counter}:
            values |= set(_changes_within(loop, comparison))
            continue
        places = sorted(place for end in _ends(comparison, loop.counter, inner) for place in _changes_within(loop, end))
        values |= set(places) if places and places[-1] - places[0] < MOST_PIECES else set()
    return values.union(*(_near_ends(loop, comparison) for comparison in _choices(loop.body)))


def _ends_of_branches(loop: Loop, cuts: Cuts) -> set[int]:
    """The values of a loop's counter near its limits at which a tensor changes from one of its branches to another."""
    if loop.stop.constant - loop.start.constant < WORTH_OWN_CODE or any(isinstance(inner, Loop) for inner in walk(loop.body)):
        return set()
    branches = {(leaf.node, leaf.branch) for leaf in leaves(loop.body) if isinstance(leaf, Execute)}
    count, is_cheap = Counter(node for node, _ in branches), cuts.weigh(loop.body) <= MOST_REPEATED
    values: set[int] = set()
    for inner in walk(loop.body):
        chosen = {leaf.node for leaf in leaves(inner) if isinstance(leaf, Execute)} if isinstance(inner, If) else set()
        if isinstance(inner, If) and (chosen & cuts.updated or (is_cheap and any(count[node] > 1 for node in chosen))):
            values = values.union(*(_near_ends(loop, comparison) for comparison in comparisons_of(inner.condition)))
    return values


def _near_ends(loop: Loop, comparison: Comparison) -> set[int]:
    """The values near the limits of a loop's counter at which a comparison of this counter alone changes."""
    if comparison.symbols != {loop.counter}:
        return set()
    start, stop = loop.start.constant, loop.stop.constant
    return {value for value in _changes_within(loop, comparison) if min(value - start, stop - value) < MOST_PIECES}


def _changes_within(loop: Loop, comparison: Comparison) -> list[int]:
    """The values of a loop's counter at which a comparison changes; those outside of the loop's limits are moved to the limits."""
    return [min(max(value, loop.start.constant), loop.stop.constant) for value in _changes(comparison, loop.counter)]


def _changes(comparison: Comparison, symbol: Symbol) -> Iterator[int]:
    """The values of `symbol` at which the truth value of a comparison changes; none if the comparison is not affine in it."""
    coefficient, constant = comparison.expr.coefficient(symbol), comparison.expr.constant
    if comparison.expr - coefficient * symbol.expr != Expr.of(constant):
        return  # such as t % 5 == 0, which changes too often to cut
    if comparison.kind == ">=":
        yield -(constant // coefficient) if coefficient > 0 else constant // -coefficient + 1
    elif constant % coefficient == 0:
        yield from (-constant // coefficient, -constant // coefficient + 1)


def _ends(comparison: Comparison, symbol: Symbol, limits: Limits) -> list[Comparison]:
    """The comparisons of `symbol` alone under which `comparison` holds for all values of the other counters, and for some."""
    coefficient = comparison.expr.coefficient(symbol)
    rest = comparison.expr - coefficient * symbol.expr
    interval = None if comparison.kind != ">=" or not coefficient or symbol in rest.symbols else extent(rest, limits)
    return [] if interval is None else [Comparison(">=", coefficient * symbol.expr + end) for end in interval]


def _guards(item: Item, limits: Limits) -> Iterator[tuple[Comparison, Limits]]:
    """The comparisons that guard statements other than branches of a `Merge` and deallocs, with the limits of the counters around."""
    if isinstance(item, If) and _computes(item):
        yield from ((comparison, limits) for comparison in comparisons_of(item.condition))
    inner = limited(item, limits) if isinstance(item, Loop) else limits
    for part in parts(item):
        yield from _guards(part, inner)


def _choices(item: Item) -> Iterator[Comparison]:
    """The comparisons that choose the operand of a minimum or maximum in the limits of inner loops with computations."""
    for inner in walk(item):
        if isinstance(inner, Loop) and _computes(inner.body):
            for atom in (*inner.start.atoms, *inner.stop.atoms):
                if isinstance(atom, (Minimum, Maximum)):
                    yield from (Comparison(">=", a - b) for a, b in itertools.combinations(atom.args, 2))


def _computes(item: Item) -> bool:
    return any(isinstance(leaf, Execute) and leaf.branch is None for leaf in leaves(item))


# -- iterations that begin elsewhere ----------------------------------------------------------------------------------


def rotated(item: Item) -> Item:
    """The item, where loops have no conditions for their first and last iteration: iterations begin and end elsewhere.

    The body of such a loop begins with statements of the second iteration on, and ends before the last. All statements run in the same
    order as before. A recurrence is such a loop: it takes over the last value, and computes the next one, except in the last iteration.

    Rewrite: `for t in 0:T: if t >= 1: h|1[t]; if t <= T - 2: next[t]` -> `for t in 0:T - 1: next[t]; h|1[t + 1]`
    """
    item = changed(item, rotated)
    if not isinstance(item, Loop):
        return item
    children = item.body.children
    after_first = at_least_zero(item.counter.expr - item.start - 1)
    before_last = at_least_zero(item.stop - 2 - item.counter.expr)
    first = list(itertools.takewhile(lambda child: _implies(child, before_last), reversed(children)))[::-1]
    last = children[: len(children) - len(first)]
    if item.step != 1 or not first or not last or not all(_implies(child, after_first) for child in last):
        return item
    following = {item.counter: item.counter.expr + 1}
    body = (
        *(without(child, {before_last}) for child in first),
        *(substitute(without(child, {after_first}), following) for child in last),
    )
    return Loop(item.counter, item.start, item.stop - 1, 1, Block(body))


def _implies(item: Item, limit: Bool) -> bool:
    """Whether an item runs only where a limit of the counter holds: `t >= 1` if it runs where `t >= 2`, or at t == 1."""
    return any(decided(limit, {}, facts_of(part)) is TRUE for part in conditions_of(item))


def begun(item: Item) -> Item:
    """The item with loops that begin with what their first iteration follows, where each iteration ends with the same for the next one.

    A run may choose the end of such a loop, so that it cannot be cut before the last iteration. All statements run in the same order as
    before, and the conditions are gone. If the loop has no iteration, its first statements did not run either.

    Rewrite: `if T >= 2: next[0]; for t in 1:T: h[t]; if t <= T - 2: next[t]` -> `for t in 0:T - 1: next[t]; h[t + 1]`
    """
    item = changed(item, begun)
    if not isinstance(item, Block):
        return item
    children: list[Item] = []
    for child in item.children:
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
    if loop.step != 1 or not first or before_last not in conditions_of(last):
        return None
    if before != substitute(last, {loop.counter: loop.start - 1}):
        return None
    following = [substitute(item, {loop.counter: loop.counter.expr + 1}) for item in first]
    start = as_block(without(last, {before_last})).children
    return Loop(loop.counter, loop.start - 1, loop.stop - 1, 1, Block((*start, *following)))
