"""Relations against brute force: every answer of isl is checked point by point on small bounds."""

import doctest
import itertools

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from tempo_core.errors import GradientError, NonAffineError
from tempo_core.symbolic import factor, groups
from tempo_core.symbolic.condition import FALSE, TRUE
from tempo_core.symbolic.domain import Domain, Point, Range
from tempo_core.symbolic.expr import Expr, Symbol, maximum, minimum
from tempo_core.symbolic.isl import inverse, relation, sets
from tempo_core.symbolic.isl.inverse import Inverse, hulls, invert
from tempo_core.symbolic.isl.relation import maximum_over, minimum_over, never, outside, uncovered
from tempo_core.symbolic.isl.sets import coalesced, dependence, domain_set
from tempo_core.symbolic.proof import provably_nonnegative

i, t = Symbol("i", "I"), Symbol("t", "T")
BI, T, B, C = Symbol("I").expr, Symbol("T").expr, Symbol("B").expr, Symbol("C").expr
DI, DT, DIT = Domain((i,)), Domain((t,)), Domain((i, t))
ZERO = Expr.of(0)


def test_docstrings():
    results = [doctest.testmod(module) for module in (factor, groups, inverse, relation, sets)]
    assert all(outcome.failed == 0 and outcome.attempted for outcome in results)


def points(domain, bounds):
    for point in itertools.product(*(range(bounds[step.bound_symbol]) for step in domain.steps)):
        env = {**bounds, **dict(zip(domain.steps, point, strict=True))}
        if domain.condition.evaluate(env):
            yield point, env


def read(index, env):
    along = []
    for part in index:
        if isinstance(part, Point):
            along.append((part.expr.evaluate(env),))
        else:
            along.append(range(part.start.evaluate(env), part.stop.evaluate(env), part.stride))
    return set(itertools.product(*along))


# -- inverse ----------------------------------------------------------------------------------------------------------

TE, IE = t.expr, i.expr
INVERTIBLE = [
    (DT, (Point(TE),), DT, (Point(TE),), "true"),
    (DT, (Point(TE + 3),), DT, (Point(TE - 3),), "t >= 3"),
    (DT, (Point(TE - 1),), DT, (Point(TE + 1),), "T >= t + 2"),
    (DT, (Point(T - 1 - TE),), DT, (Point(T - 1 - TE),), "true"),
    (DT, (Point(Expr.of(5)),), DT, (Range(ZERO, T),), "t == 5"),
    (DT, (Point(T - 1),), DT, (Range(ZERO, T),), "t + 1 == T"),
    (DT, (Range(TE, T),), DT, (Range(ZERO, TE + 1),), "true"),
    (DT, (Range(ZERO, TE + 1),), DT, (Range(TE, T),), "true"),
    (DT, (Range(ZERO, T),), DT, (Range(ZERO, T),), "true"),
    (DT, (Range(maximum(0, TE - 3), TE + 1),), DT, (Range(TE, minimum(TE + 4, T)),), "true"),
    (DT, (Range(TE, minimum(TE + 5, T)),), DT, (Range(maximum(TE - 4, 0), TE + 1),), "true"),
    (DT, (Range(TE, T, 5),), DT, (Range(TE % 5, TE + 1, 5),), "true"),
    (DT, (Range(ZERO, T, 5),), DT, (Range(ZERO, T),), None),
    (DT, (Point(TE // 5),), DT, (Range(5 * TE, minimum(5 * TE + 5, T)),), None),
    (DT, (Point(5 * TE),), DT, (Point(TE // 5),), None),
    (DI, (Point(IE), Range(ZERO, T)), DIT, (Point(IE),), "true"),
    (DI, (Point(IE), Point(T - 1)), DIT, (Point(IE),), "t + 1 == T"),
    (DIT, (Point(IE),), DI, (Point(IE), Range(ZERO, T)), "true"),
    (DIT, (), Domain(()), (Range(ZERO, BI), Range(ZERO, T)), "true"),
    (Domain(()), (Range(ZERO, T),), DT, (), "true"),
    (Domain((i,), (IE + 1) % 5 == 0), (Point(IE),), DI, (Point(IE),), None),
]


@pytest.mark.parametrize("reader, index, source, expected, condition", INVERTIBLE, ids=lambda x: str(x))
def test_inverse(reader, index, source, expected, condition):
    inverse = invert(reader, index, source)
    assert tuple(map(str, inverse.index)) == tuple(map(str, expected))
    if condition is not None:
        assert str(inverse.condition) == condition
    for bounds in ({Symbol("I"): 2, Symbol("T"): 1}, {Symbol("I"): 6, Symbol("T"): 4}, {Symbol("I"): 1, Symbol("T"): 11}):
        assert_inverse(reader, index, source, inverse, bounds)


def assert_inverse(reader, index, source, inverse, bounds):
    inside = {point for point, _ in points(source, bounds)}
    readers = {q: set() for q in inside}
    for point, env in points(reader, bounds):
        for q in read(index, env) & inside:
            readers[q].add(point)
    for q, env in points(source, bounds):
        computed = read(inverse.index, env) if inverse.condition.evaluate(env) else set()
        assert computed == readers[q], f"readers of {q} at {bounds}"


@pytest.mark.parametrize("index", [(Point(TE % 5 + IE),), (Point(TE + IE),), (Range(TE, TE + IE),)], ids=str)
def test_readers_that_are_no_ranges_are_refused(index):
    with pytest.raises(GradientError, match="no inverse"):
        invert(DIT, index, DT)


@pytest.mark.parametrize("condition", [TRUE, TE % 3 != 1, (IE <= TE) | (TE == 0)], ids=str)
@pytest.mark.parametrize(
    "index", [(Point(TE % 5 + IE),), (Point(TE + IE),), (Range(TE, TE + IE),), (Point(2 * TE + IE),), (Point(TE // 2),)], ids=str
)
def test_hulls_hold_all_readers_and_no_more_than_what_lies_between(index, condition):
    reader = Domain((i, t), condition)
    ranges = hulls(reader, index, DT)
    slack = 2 * ("%3" in str(condition)) + 4 * ("%5" in str(index))  # where readers have gaps, a hull may end inside of a gap
    loose = all(part == Range(ZERO, step.bound_expr) for h in ranges for part, step in zip(h.index, (i, t), strict=True))
    for bounds in ({Symbol("I"): 3, Symbol("T"): 7}, {Symbol("I"): 1, Symbol("T"): 1}):
        inside = {point for point, _ in points(DT, bounds)}
        readers = {q: set() for q in inside}
        for point, env in points(reader, bounds):
            for q in read(index, env) & inside:
                readers[q].add(point)
        for q, env in points(DT, bounds):
            holds = [h for h in ranges if h.condition.evaluate(env)]
            assert len(holds) == 1 if readers[q] or loose else len(holds) <= bool(slack)
            held = read(holds[0].index, env) if holds else set()
            assert readers[q] <= held
            for along in range(2 if readers[q] and not loose else 0):
                values = {point[along] for point in readers[q]}
                between = range(min(values) - slack, max(values) + slack + 1)
                assert {point[along] for point in held} <= set(between)


def test_readers_at_distances_are_ranges_with_strides():
    every_third = Domain((t,), (TE + 1) % 3 == 0)
    for reader, index in ((DT, (Point(TE % 5),)), (every_third, (Point(ZERO),)), (every_third, (Point(TE),))):
        inverse = invert(reader, index, DT)
        for length in (1, 3, 8):
            assert_inverse(reader, index, DT, inverse, {Symbol("I"): 1, Symbol("T"): length})
    with pytest.raises(GradientError):
        invert(Domain((t,), TE % 3 != 1), (Point(ZERO),), DT)  # 0, 2, 3, 5: no even distances
    (readers,) = invert(Domain((t,), TE <= 1), (), Domain(())).index
    assert readers == Range(ZERO, minimum(T, 2))


def test_a_read_that_never_happens_has_no_readers():
    assert invert(DT, (Point(TE - T),), DT) == Inverse((Range(ZERO, T),), FALSE)


@settings(max_examples=60, deadline=None)
@given(
    st.integers(-3, 3),
    st.integers(-4, 0),
    st.integers(0, 4),
    st.sampled_from(["point", "past", "future", "window"]),
    st.integers(1, 3),
)
def test_inverses_of_random_windows(shift, low, high, kind, scale):
    index = {
        "point": Point(scale * TE + shift),
        "past": Range(ZERO, minimum(TE + high, T)),
        "future": Range(maximum(TE + low, 0), T),
        "window": Range(maximum(TE + low, 0), minimum(TE + high, T)),
    }[kind]
    assume(kind != "window" or high > low)
    try:
        inverse = invert(DT, (index,), DT)
    except GradientError:
        assume(False)
    for length in (1, 2, 5, 9):
        assert_inverse(DT, (index,), DT, inverse, {Symbol("T"): length})


# -- bounds of expressions --------------------------------------------------------------------------------------------

SIZES = [
    (minimum(TE + 5, T) - TE, DT, "min(5, T)"),
    (minimum(TE + 5, T) - TE, DIT, "min(5, T)"),
    (TE + 1 - maximum(0, TE - 3), DT, "min(4, T)"),
    (TE + 1, DT, "T"),
    (T - TE, DIT, "T"),
    (TE % 5, DT, "min(4, T - 1)"),
    (TE, Domain((t,), TE < 3), "min(2, T - 1)"),
    (3 * IE + 2 * TE, DIT, "3*I + 2*T - 5"),
    (TE * TE, DT, "T**2 - 2*T + 1"),
    (T - 1, DT, "T - 1"),
    (B * (TE + 1 - maximum(TE - 3, 0)), DT, "B*min(4, T)"),
    ((B + 1) * (TE + 1 - maximum(TE - 3, 0)), DT, "B*min(4, T) + min(4, T)"),
    (B * (TE + 1 - maximum(TE - 3, 0)) + 5 * B + 7, DT, "B*min(9, T + 5) + 7"),
    (B * (TE + 1 - maximum(TE - 3, 0)) - TE, DT, "B*min(4, T) - min(4, T) + 1"),
    (B * (TE + 1 - maximum(TE - 3, 0)) + IE, DIT, "B*min(4, T) + I - 1"),
    (minimum(B * TE, B * (T - 1 - TE)), DT, "((T + 1)//2)*B - B"),
    (minimum(B * (TE + 1 - maximum(TE - 3, 0)), 7), DT, "min(7, B*min(4, T))"),
    ((B * (TE + 1 - maximum(TE - 3, 0)) + 2) // 4, DT, "((B*min(4, T) + 2)//4)"),
    (minimum(B, 3) * (minimum(TE + 5, T) - TE), DT, "min(3, B)*min(5, T)"),
    ((B - 3) * (TE + 1), DT, "max(B - 3, B*T - 3*T)"),
    (B * TE - B * IE, DIT, "B*T - B"),
]


@pytest.mark.parametrize("expr, domain, expected", SIZES, ids=lambda x: str(x))
def test_maximum_over(expr, domain, expected):
    greatest = maximum_over(expr, domain)
    assert str(greatest) == expected
    for bounds in ({Symbol("I"): 2, Symbol("T"): n, Symbol("B"): b} for n in (1, 2, 4, 5, 6, 9) for b in (1, 2, 5)):
        assert greatest.evaluate(bounds) == max(expr.evaluate(env) for _, env in points(domain, bounds))


@settings(max_examples=60, deadline=None)
@given(st.integers(-4, 4), st.integers(-4, 4), st.integers(1, 4), st.sampled_from(["min", "max", "//", "%", "sum"]))
def test_maximum_over_is_a_bound(a, b, c, kind):
    expr = {
        "min": minimum(a * TE + b, T) - TE,
        "max": maximum(a * TE, b) + IE,
        "//": (a * TE + b) // c,
        "%": (a * TE + b) % c + TE,
        "sum": a * TE + b * IE + c,
    }[kind]
    greatest = maximum_over(expr, DIT)
    assert not greatest.steps
    for bounds in ({Symbol("I"): k, Symbol("T"): n} for k in (1, 3) for n in (1, 2, 5, 8)):
        assert greatest.evaluate(bounds) >= max(expr.evaluate(env) for _, env in points(DIT, bounds))


FACTORS = (B, 2 * B, B + 1, B - 1, B * C, minimum(B, 3), B - C, -B)
OF_T = (
    TE + 1,
    T - TE,
    TE + 1 - maximum(TE - 3, 0),
    minimum(TE + 3, T) - TE,
    minimum(TE, T - 1 - TE),
    TE // 3 * 3,
    TE - TE // 3 * 3,
)
OF_BOTH = (maximum(IE - 2, TE), IE + TE, IE - TE, TE % 3 + IE, minimum(3 * TE, 2 * IE + 4))


@pytest.mark.slow
@settings(max_examples=15, deadline=None, derandomize=True)  # for a few of the draws, isl takes a minute or more
@given(
    st.sampled_from(FACTORS), st.sampled_from(FACTORS), st.sampled_from(OF_T + OF_BOTH), st.sampled_from(OF_T + OF_BOTH),
    st.integers(-3, 3), st.sampled_from([TRUE, TE >= 1]),
)  # fmt: skip
def test_maxima_are_as_tight_with_factors_of_bounds_as_without(f, g, first, second, k, condition):
    domain = Domain((i, t), condition)
    most, least, nearest = maximum_over(first, domain), minimum_over(first, domain), maximum_over(minimum(first, second), domain)
    product, halved = maximum_over(f * first + k * f, domain), maximum_over((f * first) // 2, domain)
    mixed = maximum_over(f * first + g * second + k, domain)
    below = maximum_over(minimum(f * first, f * second, g + 9), domain)
    above = maximum_over(maximum(f * first, g * second), domain)
    apart = maximum_over(f * (TE + 1 - maximum(TE - 3, 0)) + g * (IE + k), domain)
    for sizes in itertools.product((1, 3), (2, 5, 8), (1, 2, 4), (1, 3)):
        bounds = dict(zip((Symbol("I"), Symbol("T"), Symbol("B"), Symbol("C")), sizes, strict=True))
        pairs = [(first.evaluate(env), second.evaluate(env)) for _, env in points(domain, bounds)]
        by, other = f.evaluate(bounds), g.evaluate(bounds)
        limit = max(by * most.evaluate(bounds), by * least.evaluate(bounds))
        assert limit >= max(by * a for a, _ in pairs)
        assert product.evaluate(bounds) <= limit + k * by
        assert halved.evaluate(bounds) <= limit // 2
        assert mixed.evaluate(bounds) >= max(by * a + other * b for a, b in pairs) + k
        assert below.evaluate(bounds) >= max(min(by * a, by * b, other + 9) for a, b in pairs)
        if provably_nonnegative(f):
            assert below.evaluate(bounds) <= min(by * nearest.evaluate(bounds), other + 9)
        assert above.evaluate(bounds) >= max(max(by * a, other * b) for a, b in pairs)
        windows = [by * min(t_ + 1, 4) for t_ in range(1 if condition is not TRUE else 0, sizes[1])]
        assert apart.evaluate(bounds) == max(windows) + max(other * (i_ + k) for i_ in range(sizes[0]))


def test_an_expression_without_a_known_bound():
    with pytest.raises(NonAffineError):
        maximum_over(minimum(TE - 3, 2) * IE, DIT)


# -- mistakes ---------------------------------------------------------------------------------------------------------


def test_reads_outside_the_domain_have_a_sample():
    assert outside(DT, TRUE, (Point(TE + 1),), DT) == {"T": 2, "t": 1}
    assert outside(DT, TE + 1 < T, (Point(TE + 1),), DT) is None
    assert outside(DT, TRUE, (Point(TE - 1),), DT) == {"T": 2, "t": 0}
    assert outside(DT, TRUE, (Range(TE - 3, TE + 1),), DT) is not None
    assert outside(DT, TRUE, (Range(maximum(TE - 3, 0), TE + 1),), DT) is None
    assert outside(DT, TRUE, (Range(TE, TE + 2),), DT) == {"T": 2, "t": 1}
    assert outside(DT, TRUE, (Point(TE),), Domain((t,), TE >= 1)) == {"T": 2, "t": 0}
    assert outside(DIT, TRUE, (Point(IE), Point(TE)), DIT) is None


def test_an_empty_range_reads_nothing_but_must_not_be_negative():
    assert outside(DT, TRUE, (Range(TE, TE),), DT) is None
    assert outside(DT, TRUE, (Range(ZERO, TE),), DT) is None
    sample = outside(DT, TRUE, (Range(ZERO, TE - 1),), DT)
    assert sample is not None and sample["t"] == 0


def test_reads_are_outside_for_given_bounds_alone():
    assert outside(DT, TRUE, (Point(Expr.of(5)),), DT, {Symbol("T"): 6}) is None
    assert outside(DT, TRUE, (Point(Expr.of(5)),), DT, {Symbol("T"): 5}) == {"T": 5, "t": 0}


def test_uncovered_points():
    assert uncovered(DIT, [TE == 0, TE >= 1]) is None
    assert uncovered(DIT, [TE == 0]) == {"I": 2, "T": 2, "i": 0, "t": 1}
    assert uncovered(DIT, [TE == 0, TE >= 2], {Symbol("I"): 3, Symbol("T"): 1}) is None
    assert uncovered(DT, [TE + 1 == T, TE + 1 < T]) is None
    assert uncovered(DT, []) == {"T": 2, "t": 0}


def test_branches_that_never_run():
    assert never(DT, TE < 0)
    assert never(Domain((t,), TE >= 3), TE == 1)
    assert not never(DT, TE >= 7)


def test_what_is_not_affine_is_refused():
    for index in (TE * TE, TE * IE, TE // IE, TE * T):
        with pytest.raises(NonAffineError, match=r"at .*test_relation"):
            dependence("y", DIT, "x", DT, (Point(index),))
    with pytest.raises(NonAffineError, match="not a step here"):
        dependence("y", DT, "x", DT, (Point(IE),))
    with pytest.raises(NonAffineError):
        domain_set("x", Domain((t,), TE * TE >= 3))


def test_sets_hold_exactly_the_points_of_a_domain():
    domain = Domain((i, t), ((TE % 3 == 1) | (IE + TE < 3)) & (TE // 2 != IE))
    bounds = {Symbol("I"): 4, Symbol("T"): 7}
    members = sets.fixed(sets.isl.Map.from_range(domain_set("x", domain)), bounds).range()
    expected = {point for point, _ in points(domain, bounds)}
    assert members.count_val().to_python() == len(expected)
    inside = []
    members.foreach_point(
        lambda p: inside.append(tuple(p.get_coordinate_val(relation.isl.dim_type.set, k).to_python() for k in (0, 1)))
    )
    assert set(inside) == expected


def test_a_set_is_coalesced_in_one_way():
    """isl itself coalesces this one in two or three ways."""
    differ = (t.expr % 2) + (i.expr % 2) != 1
    condition = (differ | ((t.expr % 2) >= i.expr) | (2 * i.expr + 1 >= BI)) & (differ | (2 * i.expr <= BI))
    points = [domain_set("x", DIT, condition) for _ in range(40)]
    assert len({str(coalesced(each)) for each in points}) == 1
    assert coalesced(points[0]).is_equal(points[0])


@pytest.mark.parametrize("name", ["mod", "min", "floor", "exists", "@0"])
def test_a_set_is_coalesced_whatever_its_steps_are_called(name: str):
    """isl writes such names into a text that it cannot read."""
    step = Symbol(name, "T")
    points = domain_set("x", Domain((step,)), (step.expr % 3 != 1) | (step.expr >= 4))
    assert points.n_basic_set() > 1
    result = coalesced(points)
    assert result.is_equal(points) and result.get_space().is_equal(points.get_space())
