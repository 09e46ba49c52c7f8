"""The gradient rule of every op against finite differences in float64, one check per row; gradients of gradients; ties."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

import tempo_core as tp
from tempo_core import errors
from tempo_core.frontend.autodiff import slopes
from tempo_core.frontend.autodiff.gradients import CONSTANT, GRADIENTS, REDUCE
from tempo_core.frontend.tensor import apply
from tempo_core.ir import ops
from tempo_core.symbolic.expr import Expr
from tests import reference
from tests.core import every_op
from tests.core.gradient_checks import assert_gradients, normal

Build = Callable[..., tp.Tensor]

# -- one op after the other -------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Row:
    """A function of float operands whose last op is of class `op`; `operands` are their values."""

    op: type[ops.Op]
    name: str
    build: Build
    operands: tuple[np.ndarray, ...]


def positive(*shape: int, seed: int = 0) -> np.ndarray:
    return np.abs(normal(*shape, seed=seed)) + 0.5


def applied(op: ops.Op) -> Build:
    return lambda *operands: apply(op, *operands)


def within(fn: str) -> np.ndarray:
    """Operands inside the function's domain, away from its ends."""
    x = positive(2, 3) * 1.3
    return np.tanh(x) * 0.9 if fn in ("asin", "acos", "atanh") else x + 1 if fn == "acosh" else x


def index(*values: Any) -> tp.Tensor:
    return tp.constant(np.array(values, "int32"))


A, B = normal(2, 3), normal(2, 3, seed=1)
MATRIX, CUBE, OTHER_CUBE = normal(3, 4), normal(2, 3, 4), normal(4, 2, 3, seed=1)
ZEROS = np.array([[0.0, 2.0, 3.0], [0.0, 0.0, 4.0], [1.5, 2.0, -1.0]])
NOT_FLOAT = {"not", "isfinite", "isnan", "and", "or", "xor", "any", "all"}

LAST_IS_ANOTHER = {"cast", "pow of negative", "along an axis", "roll", "top k, along the first"}


def of_table(row: every_op.Row) -> Row:
    """The op of a row for operands of three elements; those that are not floats are constants."""
    op, values = row.drawn(3)
    floats = tuple(v for v in values if v.dtype == np.float32)

    def build(*leaves: tp.Tensor) -> tp.Tensor:
        rest = iter(leaves)
        return apply(op, *(next(rest) if v.dtype == np.float32 else tp.constant(v) for v in values))

    return Row(type(op), "of the table", build, tuple(v.astype("float64") for v in floats))


ROWS = [
    *(of_table(row) for row in every_op.ROWS if type(row.op) not in CONSTANT and row.has_slope and row.operands),
    *(Row(ops.Unary, fn, applied(ops.Unary(fn)), (within(fn),)) for fn in ops.UNARY if fn not in NOT_FLOAT),
    *(Row(ops.Unary, f"{fn} of negative", applied(ops.Unary(fn)), (-positive(2, 3),)) for fn in ("abs", "sigmoid", "tanh", "exp", "atan", "sinh", "trunc")),
    *(Row(ops.Binary, fn, applied(ops.Binary(fn)), (positive(2, 3) * 3, positive(2, 3, seed=1))) for fn in ops.BINARY if fn not in NOT_FLOAT),
    Row(ops.Binary, "pow of negative", lambda x: x**3, (A,)),
    Row(ops.Where, "where", lambda x, y: tp.where(x > 0, x, y), (A, B)),
    Row(ops.Cast, "cast", lambda x: x.astype("float64").astype("float32"), (A,)),
    *(Row(ops.Reduce, fn, applied(ops.Reduce(fn, (1,))), (A,)) for fn in ops.REDUCE if fn not in NOT_FLOAT),
    *(Row(ops.Reduce, f"{fn} over all", applied(ops.Reduce(fn, (0, 2))), (CUBE,)) for fn in ops.REDUCE if fn not in NOT_FLOAT),
    Row(ops.Reduce, "prod with zeros", applied(ops.Reduce("prod", (1,))), (ZEROS,)),
    *(Row(ops.CumSum, f"reverse={r}", applied(ops.CumSum(1, r)), (A,)) for r in (False, True)),
    *(Row(ops.CumMax, f"reverse={r}", applied(ops.CumMax(1, r)), (normal(2, 5),)) for r in (False, True)),
    *(Row(ops.LinearScan, f"reverse={r}, axis {a}", applied(ops.LinearScan(a, r)), (A, B)) for r in (False, True) for a in (0, 1)),
    *(Row(ops.DiscountedSum, f"gamma {g}", applied(ops.DiscountedSum(1, g)), (A,)) for g in (0.9, 0.0, -0.5)),
    Row(ops.Dot, "vectors", applied(ops.Dot((0,), (0,))), (normal(3), normal(3, seed=1))),
    Row(ops.Dot, "outer", applied(ops.Dot((), ())), (normal(2), normal(3))),
    Row(ops.Dot, "two contracted, crossed", applied(ops.Dot((2, 1), (0, 2))), (CUBE, OTHER_CUBE)),
    Row(ops.Dot, "batched", applied(ops.Dot((2,), (0,), (0,), (1,))), (CUBE, OTHER_CUBE)),
    Row(ops.Dot, "batched, batch last", applied(ops.Dot((1,), (2,), (2,), (0,))), (CUBE, OTHER_CUBE)),
    Row(ops.Conv, "one dimension", lambda x, w: tp.conv(x, w), (normal(2, 5, 2), normal(3, 2, 2))),
    Row(ops.Conv, "strides that leave elements over", lambda x, w: tp.conv(x, w, 2, "VALID"), (normal(6, 1), normal(3, 1, 2))),
    Row(ops.Conv, "dilated, uneven padding", lambda x, w: tp.conv(x, w, (2, 1), [(0, 2), (-1, 1)], (1, 2)), (normal(4, 5, 2), normal(2, 2, 2, 1))),
    Row(ops.Conv, "groups, two leading dimensions", lambda x, w: tp.conv(x, w, 2, groups=2), (normal(2, 1, 4, 4), normal(2, 2, 2))),
    Row(ops.Broadcast, "broadcast", lambda x: tp.broadcast_to(x, (4, 2, 3)), (A,)),
    Row(ops.Slice, "strided", applied(ops.Slice(2, Expr.of(1), Expr.of(4), 2)), (CUBE,)),
    Row(ops.Slice, "past the end", applied(ops.Slice(1, Expr.of(2), Expr.of(5))), (A,)),
    Row(ops.Slice, "strided past the end", applied(ops.Slice(1, Expr.of(1), Expr.of(6), 2)), (A,)),
    Row(ops.Pad, "cut", applied(ops.Pad(1, Expr.of(-1), Expr.of(1))), (A,)),
    Row(ops.Concat, "concat", lambda x, y: tp.concatenate([x, y, x], 1), (A, B)),
    Row(ops.Gather, "one", lambda x: x.index(0, 1), (A,)),
    Row(ops.Gather, "several, one twice, one clamped", lambda x: x.take(index([0, 2], [2, 7]), axis=1), (A,)),
    Row(ops.Gather, "batched", lambda x: apply(ops.Gather(2, 1), x, index([3, 0], [1, 1])), (CUBE,)),
    Row(ops.Scatter, "one twice, one outside", lambda x: tp.scatter_add(x, index(1, 1, 9), 4, 1), (A,)),
    *(Row(ops.Scatter, f"{fn}, several in one place", lambda x, fn=fn: apply(ops.Scatter(0, Expr.of(3), fn=fn), x, index(2, 0, 2, 1, -1)),
          (normal(5, 2),)) for fn in ops.COMBINING),
    Row(ops.Scatter, "mul, with zeros", lambda x: tp.segment_prod(x, index(1, 0, 1, 1, 0), 2), (normal(5) * np.float32([0, 1, 0, 1, 1]),)),
    Row(ops.Where, "relu", tp.relu, (A,)),
    Row(ops.Where, "norm", lambda x: tp.norm(x, 1), (A,)),
    Row(ops.Gather, "sort", lambda x: tp.sort(x, descending=True), (A,)),
    Row(ops.Gather, "top k, along the first", lambda x: tp.top_k(x, 2, 0)[0], (normal(3, 2),)),
    Row(ops.Gather, "along an axis", lambda x: tp.take_along_axis(x, index([2, 2], [0, 1]), 1), (A,)),
    Row(ops.Gather, "roll", lambda x: tp.roll(x, tp.Expr.of(1), 0), (A,)),
    Row(ops.LinearScan, "cumprod with zeros", lambda x: tp.cumprod(x, 1), (ZEROS,)),
    Row(ops.Where, "scatter, the last one counts", lambda x, y: tp.scatter(x, index(1, 1, 9, 0), y, 1), (A, normal(2, 4))),
    *(Row(ops.Reshape, f"scatter, {m}", lambda x, y, m=m: tp.scatter(x, (index(1, 0, 1, 3), index(2, 1, 2, 0)), y, (0, 1), m),
          (A, normal(4))) for m in ("set", "add", "mul", "min", "max")),
    Row(ops.Gather, "take, of two axes", lambda x: tp.take(x, (index(1, 0, 1), index(2, 1, 2)), (0, 1)), (A,)),
    Row(ops.Binary, "index_add", lambda x, y: tp.index_add(x, index(1, 1, 9), y, 1), (A, B)),
    Row(ops.Dot, "einsum", lambda x, y, z: tp.einsum("ij,jk,i->k", x, y, z), (A, MATRIX, normal(2))),
    Row(ops.Binary, "std", lambda x: tp.std(x, 1, ddof=1) * 1, (A,)),
    Row(ops.Binary, "hypot", tp.hypot, (A, B)),
    Row(ops.Binary, "logaddexp", tp.logaddexp, (A, B)),
    Row(ops.Binary, "median", lambda x: tp.median(x, 1) * 1, (normal(2, 4),)),
    Row(ops.Where, "gelu", tp.gelu, (A,)),
    Row(ops.Where, "gelu, approximate", lambda x: tp.gelu(x, approximate=True), (A,)),
    Row(ops.Where, "elu", tp.elu, (A,)),
    Row(ops.Where, "tril", lambda x: tp.tril(x, -1), (MATRIX,)),
    Row(ops.Where, "triu", lambda x: tp.triu(x, 1), (MATRIX,)),
    Row(ops.Gather, "diagonal", lambda x: tp.diagonal(x, 1), (MATRIX,)),
    Row(ops.Reshape, "tile", lambda x: tp.tile(x, (2, 2)), (A,)),
    Row(ops.Reshape, "repeat", lambda x: tp.repeat(x, 2, 1), (A,)),
    Row(ops.Scatter, "batched", lambda x: apply(ops.Scatter(1, Expr.of(4), 1), x, index([3, 0, 3], [1, 1, -1])), (A,)),
]  # fmt: skip


@pytest.mark.parametrize("row", ROWS, ids=lambda r: f"{r.op.__name__}-{r.name}")
def test_the_gradients_of_an_op_are_its_finite_differences(row: Row) -> None:
    """The gradient, and the gradient of the gradient: rules consist of ops that have rules."""
    ctx = tp.Context("t")
    with ctx as ((_, T),):
        inputs = {f"x{k}": value for k, value in enumerate(row.operands)}
        leaves = [tp.input(name, value.shape) for name, value in inputs.items()]
        result = row.build(*leaves)
        assert isinstance(result.node.op, row.op) or row.name in LAST_IS_ANOTHER
        if row.op is ops.Scatter:  # a place to which nothing goes is infinite for max and min
            result = tp.where(tp.isfinite(result), result, 0.0)
        loss = (result * tp.constant(normal(*map(int, result.shape), seed=7))).sum()
        firsts = assert_gradients(ctx, loss, leaves, {T: 1}, inputs)
        weighted = [(g * tp.constant(normal(*map(int, g.shape), seed=8))).sum() for g in firsts]
        assert_gradients(ctx, sum(weighted[1:], weighted[0]), leaves, {T: 1}, inputs)


# -- what is defined where there is no derivative ---------------------------------------------------------------------


def slopes_at(build: Build, *values: Any) -> list[np.ndarray]:
    """The gradients of the sum of `build(*values)` in float32."""
    ctx = tp.Context("t")
    with ctx as ((_, T),):
        leaves = [tp.input(f"x{k}", np.shape(value)) for k, value in enumerate(values)]
        gradients = tp.grad(build(*leaves).sum(), wrt=leaves)
    return reference.evaluate(ctx, gradients, {T: 1}, {f"x{k}": np.asarray(value) for k, value in enumerate(values)})


INFINITE, NOT = np.inf, np.nan
# name: function, its operands, its slopes there. Ties get equal shares; for functions of an order, the first element has all.
KINKS: dict[str, tuple[Build, tuple[Any, ...], tuple[Any, ...]]] = {
    "maximum of equals": (tp.maximum, (2.0, 2.0), (0.5, 0.5)),
    "minimum of equals": (tp.minimum, (2.0, 2.0), (0.5, 0.5)),
    "maximum of itself": (lambda x: tp.maximum(x, x), (2.0,), (1.0,)),
    "max of equals": (lambda x: x.max(), ([1.0, 3.0, 3.0],), ([0, 0.5, 0.5],)),
    "min of equals": (lambda x: x.min(), ([1.0, 1.0, 3.0],), ([0.5, 0.5, 0],)),
    "cummax of equals": (lambda x: tp.cummax(x), ([1.0, 3.0, 3.0],), ([1, 2, 0],)),
    "cummin of equals": (lambda x: tp.cummin(x), ([3.0, 1.0, 1.0],), ([1, 2, 0],)),
    "sort of equals": (lambda x: tp.sort(x) * np.float32([1, 2, 3]), ([2.0, 2.0, 1.0],), ([2, 3, 1],)),
    "relu at 0": (tp.relu, (0.0,), (0.0,)),
    "leaky_relu at 0": (tp.leaky_relu, (0.0,), (0.01,)),
    "elu at 0": (tp.elu, (0.0,), (1.0,)),
    "abs at 0": (tp.abs, (0.0,), (0.0,)),
    "sign, floor, ceil, round, trunc": (lambda x: tp.sign(x) + tp.floor(x) + tp.ceil(x) + tp.round(x) + tp.trunc(x), (1.0,), (0.0,)),
    "clip at its ends": (lambda x: tp.clip(x, 0, 1), ([0.0, 1.0],), ([0.5, 0.5],)),
    "softplus at 0": (tp.softplus, (0.0,), (0.5,)),
    "logaddexp of equals": (tp.logaddexp, (1.0, 1.0), (0.5, 0.5)),
    "logaddexp of equal infinities": (tp.logaddexp, (INFINITE, INFINITE), (0.5, 0.5)),
    "logsumexp of only -inf": (tp.logsumexp, ([-INFINITE, -INFINITE],), ([0, 0],)),
    "logsumexp with inf": (tp.logsumexp, ([INFINITE, 1.0],), ([0, 0],)),
    "arctan2 at 0": (tp.arctan2, (0.0, 0.0), (0.0, 0.0)),
    "sqrt at 0": (tp.sqrt, (0.0,), (INFINITE,)),
    "log at 0": (tp.log, (0.0,), (INFINITE,)),
    "norm at 0": (tp.norm, ([0.0, 0.0],), ([0, 0],)),
    "std at 0": (tp.std, ([2.0, 2.0],), ([0, 0],)),
    "hypot at 0": (tp.hypot, (0.0, 0.0), (0.0, 0.0)),
    "0 ** 0": (tp.power, (0.0, 0.0), (0.0, 0.0)),
    "0 ** 1": (tp.power, (0.0, 1.0), (1.0, 0.0)),
    "0 ** 2": (tp.power, (0.0, 2.0), (0.0, 0.0)),
    "0 ** 0.5": (tp.power, (0.0, 0.5), (INFINITE, 0.0)),
    "(-2) ** 3": (tp.power, (-2.0, 3.0), (12.0, 0.0)),
    "x ** 2 of a number": (lambda x: x**2, ([0.0, -3.0],), ([0, -6],)),
    "prod with one 0": (lambda x: x.prod(), ([2.0, 0.0, 3.0],), ([0, 6, 0],)),
    "prod with two 0": (lambda x: x.prod(), ([0.0, 0.0, 3.0],), ([0, 0, 0],)),
    "where, of what is not taken": (lambda x: tp.where(x > 1, x * x, 3 * x), ([1.0, 2.0],), ([3, 4],)),
    "where, infinite in what is not taken": (lambda x: tp.where(x > 0, tp.sqrt(x), 0.0), (0.0,), (NOT,)),
    "where, guarded": (lambda x: tp.where(x > 0, tp.sqrt(tp.where(x > 0, x, 1)), 0.0), (0.0,), (0.0,)),
    "gather outside": (lambda x: x.take(index(-1, 5)), ([1.0, 2.0],), ([1, 1],)),
    "scan past a reset": (lambda c, b: tp.linear_scan(c, b), ([0.0, 0.0], [INFINITE, 1.0]), ([0.0, INFINITE], [1.0, 1.0])),
    "stop_gradient": (lambda x: tp.stop_gradient(x) * x, (3.0,), (3.0,)),
}  # fmt: skip


@pytest.mark.parametrize("name", KINKS)
def test_where_there_is_no_derivative_the_gradient_is_defined(name: str) -> None:
    build, values, expected = KINKS[name]
    for result, right in zip(slopes_at(build, *values), expected, strict=True):
        np.testing.assert_allclose(result, np.asarray(right, "float32"), err_msg=name)


def test_functions_on_the_host_have_no_gradients_of_any_order() -> None:
    """A function on the host is a constant, in first and second gradients; a function of JAX has gradients of every order."""
    ctx = tp.Context("t")
    with ctx as ((_, T),):
        x = tp.input("x", (2,))
        (host,) = tp.udf(lambda v: (v * v,), x, outputs=[tp.spec((2,))], kind="host")
        (traced,) = tp.udf(lambda v: (v * v * v,), x, outputs=[tp.spec((2,))])
        (first,) = tp.grad((host * x + traced).sum(), wrt=[x])
        (second,) = tp.grad(first.sum(), wrt=[x])
        results = reference.evaluate(ctx, [first, second], {T: 1}, {"x": np.array([2.0, 3.0])})
        with pytest.raises(errors.GradientError, match="not of a float dtype"):
            tp.grad(x.argmax(0), wrt=[x])
    np.testing.assert_allclose(results, [[4 + 12, 9 + 27], [12, 18]])


def _classes() -> list[type[ops.Op]]:
    classes = [c for _, c in inspect.getmembers(ops, inspect.isclass) if issubclass(c, ops.Op) and c is not ops.Op]
    return [
        c for c in classes if c not in (ops.Merge, ops.Dataflow, ops.Update)
    ]  # autodiff.py's own, tested below; made by a pass, never differentiated


@pytest.mark.parametrize("op", _classes(), ids=lambda c: c.__name__)
def test_every_op_has_a_checked_rule_or_is_constant(op: type[ops.Op]) -> None:
    assert (op in GRADIENTS) != (op in CONSTANT), f"{op.__name__} must be in one of GRADIENTS and CONSTANT"
    if op in GRADIENTS and op is not ops.Udf:  # JAX's own rules: checked as functions of JAX below
        assert any(row.op is op for row in ROWS), (
            f"the rule of {op.__name__} has no numeric check: give it a row in tests/core/every_op.py"
        )


FUNCTIONS = {"Unary": (ops.UNARY, slopes.UNARY), "Binary": (ops.BINARY, slopes.BINARY), "Reduce": (ops.REDUCE, REDUCE)}


@pytest.mark.parametrize(("kind", "fn"), [(kind, fn) for kind, (names, _) in FUNCTIONS.items() for fn in names])
def test_every_function_has_a_slope_or_says_why_not(kind: str, fn: str) -> None:
    table: Any = FUNCTIONS[kind][1]
    assert fn in table, f"give {fn} a row in the table of slopes for {kind}: a slope, Zero or NoGradient"
    if not callable(table[fn]):
        assert table[fn].why


def test_tables_of_slopes_name_functions_that_exist() -> None:
    for names, table in FUNCTIONS.values():
        assert set(table) <= set(names)


NONE = slopes.NoGradient("its derivative has no closed form", "tp.tanh(x)")


@pytest.mark.parametrize("table", ["UNARY", "BINARY"])
@pytest.mark.parametrize("row", [NONE, None], ids=["says so", "is missing"])
def test_a_gradient_through_a_function_without_one_is_an_error(monkeypatch: Any, table: str, row: Any) -> None:
    """The error is at the line of the function, and appears only if the gradient is needed."""
    fn = {"UNARY": "erf", "BINARY": "atan2"}[table]
    rows = {name: slope for name, slope in getattr(slopes, table).items() if name != fn} | ({} if row is None else {fn: row})
    monkeypatch.setattr(slopes, table, rows)
    with tp.Context("t"):
        x, other = tp.input("x", (2,)), tp.input("other", (2,))
        y = tp.erf(x) if fn == "erf" else tp.arctan2(other, x)  # the line
        tp.grad((y.detach() * other).sum(), wrt=[other])
        (slope,) = tp.grad((x * other).sum() + y.sum(), wrt=[other]) if fn == "erf" else tp.grad((x * other).sum(), wrt=[other])
        assert slope.shape == other.shape
        with pytest.raises(errors.GradientError) as raised:
            tp.grad((y * other).sum(), wrt=[x])
    reason = "its derivative has no closed form" if row is NONE else "its table of slopes has no row for it"
    assert raised.value.message == f"`{fn}` has no gradient: {reason}"
    assert "# the line" in str(raised.value)
    assert raised.value.hint == (NONE.hint if row is NONE else slopes.NoGradient("").hint)


def test_a_gradient_through_a_reduction_without_a_slope_is_an_error(monkeypatch: Any) -> None:
    monkeypatch.delitem(REDUCE, "prod")
    with tp.Context("t"):
        x = tp.input("x", (2,))
        with pytest.raises(errors.GradientError, match="`prod` has no gradient: its table of slopes has no row for it"):
            tp.grad(x.prod(), wrt=[x])


def test_a_gradient_through_an_op_without_a_rule_is_an_error(monkeypatch: Any) -> None:
    monkeypatch.delitem(GRADIENTS, ops.Flip)
    with tp.Context("t"):
        x = tp.input("x", (2,))
        with pytest.raises(
            errors.GradientError, match="`Flip` has no gradient: it has a row neither in GRADIENTS nor in CONSTANT"
        ):
            tp.grad(x.flip(0).sum(), wrt=[x])


def test_positions_and_steps_are_constants() -> None:
    """As in JAX: wherever they have a derivative, it is 0."""
    jumps: tuple[Build, ...] = (
        lambda x: tp.argmax(x, 0).astype("float32"),
        lambda x: tp.argsort(x, 0).astype("float32"),
        lambda x: tp.count_nonzero(x).astype("float32"),
        lambda x: (x > 0).astype("float32"),
        lambda x: x.astype("int32").astype("float32"),
        lambda x: tp.floor_divide(x, 2.0),
        tp.round,
    )
    for jump in jumps:
        assert slopes_at(lambda x, jump=jump: jump(x) * x, [1.5, 2.5])[0].tolist() == [
            *slopes_at(lambda x, jump=jump: tp.stop_gradient(jump(x)) * x, [1.5, 2.5])[0]
        ]
