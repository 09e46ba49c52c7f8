"""Programs without an affine schedule: statements are cut in pieces. Only a cycle of points is refused, and the error shows it."""

import re

import pytest

from tempo_core.errors import CausalityError
from tempo_core.ir.graph import Graph
from tempo_core.schedule import instances, schedule
from tempo_core.schedule import pieces as split
from tempo_core.symbolic.condition import TRUE
from tempo_core.symbolic.domain import Domain, Range
from tempo_core.symbolic.expr import Symbol, minimum
from tests.core.schedule.checker import at, check
from tests.core.schedule.programs import ORDER, T, define, i, merge, run, t

DT, DIT = Domain((t,)), Domain((i, t))
TE, IE = t.expr, i.expr


def bounds(T, I=1):
    return {Symbol("T"): T, Symbol("I"): I}


def mirrored_parity(odd, even):
    """a has its own values at even points and b at odd points; elsewhere each reads the other."""
    graph = Graph(ORDER)
    a, b, x = merge(graph, DT, "a"), merge(graph, DT, "b"), run(graph, "x", DT)
    f, g = run(graph, "f", DT, (b, at(*odd))), run(graph, "g", DT, (a, at(*even)))
    define(graph, a, (x, at(TE), TE % 2 == 0), (f, at(TE), TRUE))
    define(graph, b, (x, at(TE), TE % 2 == 1), (g, at(TE), TRUE))
    return graph


@pytest.mark.parametrize("length", [1, 2, 3, 8])
def test_two_that_follow_from_each_other_at_different_points(length):
    check(schedule(mirrored_parity((TE,), (TE,)), bounds(length)), dealloc=False)
    check(schedule(mirrored_parity((TE,), (TE,)), bounds(length), dealloc=True), dealloc=True)


def size(scheduled):
    return scheduled.text().count("\n") + 1


def joined(*moves):
    """g has one branch: an operation that reads, for each (distance, condition), g at that distance, or else the node "given"."""
    graph = Graph(ORDER)
    g, given = merge(graph, DIT, "g"), run(graph, "given", DIT)
    parts = []
    for number, (distance, condition) in enumerate(moves):
        part = merge(graph, DIT, f"part{number}")
        define(graph, part, (g, at(IE, TE + distance), condition), (given, at(IE, TE), TRUE))
        parts.append((part, None))
    define(graph, g, (run(graph, "total", DIT, *parts), at(IE, TE), TRUE))
    return graph


def test_time_with_two_directions_takes_loops_not_points():
    """Forwards in the second half, backwards in the first, as in gradients of such recurrences: the program does not grow."""
    graph = joined((1, TE + 1 < T // 2), (-1, TE > T // 2))
    small, large = (schedule(graph, bounds(n, 2)) for n in (12, 30))
    check(small)
    check(large)
    assert size(large) == size(small) < 60


def test_chains_that_follow_no_step():
    """Point 0, then points 2, 3 and 1 of each four: a loop over t does not have this order, loops over parts of t do."""
    three, one = (TE % 4 == 1) & (TE + 2 < T), (TE % 4 == 3) & (TE >= 1)
    graph = joined((-2, (TE % 4 == 2) & (TE >= 2)), (-1, one), (2, three))
    small, large = (schedule(graph, bounds(n, 2)) for n in (16, 32))
    check(small)
    check(large)
    assert size(large) == size(small) < 60
    for length in (1, 3, 4, 9):
        check(schedule(graph, bounds(length)))


def test_chains_of_points_are_unrolled():
    """Points that no loop over a step can order still have an order: point t needs point 5 * t + 1 modulo 16, with few exceptions."""
    moves = [(5 * k + 1) % 16 - k for k in range(12)]
    graph = joined(*((distance, k == TE) for k, distance in enumerate(moves)))
    check(schedule(graph, bounds(16)))


def test_too_many_points_to_order_one_by_one_is_an_error(monkeypatch):
    monkeypatch.setattr(split, "MOST_NEEDS_CUT", 1)
    with pytest.raises(
        CausalityError, match=r"no loops compute these reads in order, and there are too many points(.|\n)*a\[t\] reads f\[t\]"
    ):
        schedule(mirrored_parity((TE,), (TE,)), bounds(8))


def test_a_window_that_is_masked_at_the_present():
    """The gradient of h[t] = f(h[t // 3 * 3]): a sum over the rest of the block, used only at its first point."""
    graph = Graph(ORDER)
    g, seed = merge(graph, DT, "g"), run(graph, "seed", DT)
    masked = merge(graph, DT, "masked")
    define(graph, masked, (g, at(TE), TE % 3 >= 1), (seed, at(TE), TRUE))
    total = run(graph, "total", DT, (masked, (Range(TE, minimum(TE + 3, T)),)))
    chosen = merge(graph, DT, "chosen")
    define(graph, chosen, (total, at(TE), TE % 3 == 0), (seed, at(TE), TRUE))
    define(graph, g, (run(graph, "sum", DT, (chosen, None)), at(TE), TRUE))
    for length in (1, 2, 7):
        check(schedule(graph, bounds(length)))


def test_stateful_functions_keep_their_order_in_pieces():
    graph = Graph(ORDER)
    a, b, x = merge(graph, DT, "a"), merge(graph, DT, "b"), run(graph, "x", DT)
    f, g = run(graph, "f", DT, (b, None)), run(graph, "g", DT, (a, None), stateful=True)
    define(graph, a, (x, at(TE), TE % 2 == 0), (f, at(TE), TRUE))
    define(graph, b, (x, at(TE), TE % 2 == 1), (g, at(TE), TRUE))
    scheduled = schedule(graph, bounds(6))
    check(scheduled)
    assert [point for leaf, point in instances(scheduled.root) if leaf.node == g.id] == [(k,) for k in range(6)]


def test_the_cycle_is_named():
    """One point among many: a[2] reads b[2], which reads a[2]."""
    graph = Graph(ORDER)
    a, b, x = merge(graph, DT, "a"), merge(graph, DT, "b"), run(graph, "x", DT)
    define(graph, a, (x, at(TE), (TE % 2 == 0) & (TE < 2)), (b, at(TE), TE <= 2), (x, at(TE), TRUE))
    define(graph, b, (x, at(TE), TE % 2 == 1), (a, at(TE), TRUE))
    check(schedule(graph, bounds(2)))
    with pytest.raises(CausalityError, match="values depend on themselves") as error:
        schedule(graph, bounds(9))
    text = str(error.value)
    assert re.search(r"at t = 2, for example", text)
    assert "a[t] reads b[t]" in text
    assert "b[t] reads a[t]" in text


def test_a_long_cycle_is_named():
    """A cycle through all points: a[k] reads b[k + 1], b[k] reads a[k], and the last b reads the first a."""
    graph = Graph(ORDER)
    a, b = merge(graph, DT, "a"), merge(graph, DT, "b")
    define(graph, a, (b, at(TE + 1), TE + 1 < T), (b, at(0), TRUE))
    define(graph, b, (a, at(TE), TRUE))
    with pytest.raises(CausalityError, match="values depend on themselves") as error:
        schedule(graph, bounds(40))
    text = str(error.value)
    assert "a[t] reads b[t + 1]" in text
    assert "a[t] reads b[0]" in text
    assert "b[t] reads a[t]" in text
