"""Functions of values, user-defined functions, sinks, inputs and random numbers: against NumPy and against the reference."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tempo_core as tp
from tests.core.running import SETTINGS, Case, assert_all_same, compiled, evaluated

RNG = np.random.default_rng(1)
every_setting = pytest.mark.parametrize("setting", SETTINGS)


def normal(*shape: int) -> np.ndarray:
    return RNG.normal(size=shape).astype("float32")


def assert_right(case: Case, setting: str) -> None:
    """The reference gives the expected values, and the compiler gives the values of the reference."""
    results = evaluated(case)
    assert_all_same(results, case.expected, case.tolerance)
    assert_all_same(compiled(case, SETTINGS[setting]), results, case.tolerance)


# -- functions --------------------------------------------------------------------------------------------------------


@every_setting
def test_elementwise_functions(setting: str) -> None:
    a, b, ctx = normal(3, 4), normal(3, 4), tp.Context("t")
    with ctx as ((t, T),):
        x, y = tp.input("x", (4,), domain=(t,)), tp.input("y", (4,), domain=(t,))
        outputs = [
            x + y, x - 2, 3 - x, x * y, x / (y * y + 1), 1 / (1 + x * x), -x, tp.abs(x), x**2, tp.exp(x), tp.log(x * x + 1),
            tp.log1p(x * x), tp.expm1(x), tp.sqrt(tp.abs(x)), tp.rsqrt(x * x + 1), tp.sin(x), tp.cos(x), tp.tanh(x), tp.sigmoid(x),
            tp.relu(x), tp.silu(x), tp.softplus(x), tp.sign(x), tp.floor(x), tp.ceil(x), tp.maximum(x, y), tp.minimum(x, 0.25),
            tp.clip(x, -0.5, 0.5), tp.square(x), x // 0.5, x % 0.5, tp.isfinite(x / 0.0 * 0.0),
        ]  # fmt: skip
    sigmoid = 1 / (1 + np.exp(-a))
    expected = [
        a + b, a - 2, 3 - a, a * b, a / (b * b + 1), 1 / (1 + a * a), -a, np.abs(a), a**2, np.exp(a), np.log(a * a + 1),
        np.log1p(a * a), np.expm1(a), np.sqrt(np.abs(a)), 1 / np.sqrt(a * a + 1), np.sin(a), np.cos(a), np.tanh(a), sigmoid,
        np.maximum(a, 0), a * sigmoid, np.log1p(np.exp(a)), np.sign(a), np.floor(a), np.ceil(a), np.maximum(a, b),
        np.minimum(a, np.float32(0.25)), np.clip(a, -0.5, 0.5), a * a, a // 0.5, a % 0.5, np.zeros((3, 4), bool),
    ]  # fmt: skip
    assert_right(Case(ctx, {T: 3}, outputs, expected, {"x": a, "y": b}), setting)


@every_setting
def test_logic_and_dtypes(setting: str) -> None:
    numbers, ctx = np.array([3, -2, 7, 0], "int32"), tp.Context("t")
    with ctx as ((t, T),):
        n = tp.input("n", dtype="int32", domain=(t,))
        odd = n % 2 == 1
        outputs = [
            odd & (n > 0), odd | (n < 0), ~odd, n // 2, n / 2, n + 0.5, n.astype("bool"), odd.astype("float32") * 3, n == t, n * True,
            n[0:T].sum(0), odd[0:T].sum(0), odd[0:T].any(0), odd[0:T].all(0), n.astype("uint8").astype("int32"),
        ]  # fmt: skip
    k, o = numbers, numbers % 2 == 1
    expected = [
        o & (k > 0), o | (k < 0), ~o, k // 2, (k / 2).astype("float32"), (k + 0.5).astype("float32"), k != 0, (o * 3).astype("float32"),
        k == np.arange(4), k, np.int32(8), np.int32(2), np.bool_(True), np.bool_(False), k.astype("uint8").astype("int32"),
    ]  # fmt: skip
    assert_right(Case(ctx, {T: 4}, outputs, expected, {"n": numbers}), setting)


@every_setting
def test_reductions_scans_and_sorting(setting: str) -> None:
    a, ctx = normal(2, 3, 4), tp.Context("t")
    with ctx as ((t, T),):
        x = tp.input("x", (3, 4), domain=(t,))
        outputs = [
            x.sum(), x.sum(0), x.mean((0, 1)), x.max(1), x.min(-1, keepdims=True), x.prod(0), (x > 0).any(1), (x > 0).all(0), x.argmax(1),
            x.argsort(1), x.softmax(1), x.log_softmax(0), tp.logsumexp(x, 1), tp.var(x, 0), x.cumsum(1), tp.cumsum(x, 0, reverse=True),
            x.discounted_sum(0.9, 1), tp.linear_scan(x, x * 2, 1), tp.linear_scan(x, x, 0, reverse=True), x.argmax(0).one_hot(3),
        ]  # fmt: skip
    e = np.exp(a)
    scan, back = np.zeros_like(a), np.zeros_like(a)
    for k in range(4):
        scan[:, :, k] = 2 * a[:, :, k] + (a[:, :, k] * scan[:, :, k - 1] if k else 0)
    for k in reversed(range(3)):
        back[:, k] = a[:, k] + (a[:, k] * back[:, k + 1] if k < 2 else 0)
    expected = [
        a.sum((1, 2)), a.sum(1), a.mean((1, 2)), a.max(2), a.min(2, keepdims=True), a.prod(1), (a > 0).any(2), (a > 0).all(1),
        a.argmax(2).astype("int32"), a.argsort(2).astype("int32"), e / e.sum(2, keepdims=True), a - np.log(e.sum(1, keepdims=True)),
        np.log(e.sum(2)), a.var(1), a.cumsum(2), a[:, ::-1].cumsum(1)[:, ::-1],
        (a * 0.9 ** np.arange(4)).sum(2).astype("float32"), scan, back, np.eye(3, dtype="float32")[a.argmax(1)],
    ]  # fmt: skip
    assert_right(Case(ctx, {T: 2}, outputs, expected, {"x": a}), setting)


@every_setting
def test_products_and_views(setting: str) -> None:
    a, b, v, ctx = normal(2, 3, 4), normal(2, 4, 2), normal(4), tp.Context("t")
    with ctx as ((t, T),):
        x, y, w = tp.input("x", (3, 4), domain=(t,)), tp.input("y", (4, 2), domain=(t,)), tp.input("w", (4,))
        whole = x[0:T]
        outputs = [
            x @ y, x @ w, w @ y, w @ w, whole @ y[0:T], whole @ y, whole.transpose(2, 0, 1), x.reshape(2, 6), x.reshape(-1, 2), x.flatten(),
            x.expand_dims(0), x.expand_dims(-1).squeeze(2), x.flip(1), tp.concatenate([x, w.expand_dims(0)], 0), tp.stack([x, x * 2], 1),
            tp.pad(x, ((0, 0), (1, 2))), tp.broadcast_to(w, (3, 4)), tp.take_along_last(x, x.argmax(1)),
            tp.scatter_add(x, tp.constant([1, 1, 5]), 3),
        ]  # fmt: skip
    scattered = np.zeros((2, 3, 4), "float32")
    scattered[:, 1] = a[:, 0] + a[:, 1]  # the position 5 lies outside
    expected = [
        a @ b, a @ v, np.einsum("k,tkn->tn", v, b), v @ v, a @ b, np.einsum("smk,tkn->tsmn", a, b), a.transpose(2, 0, 1),
        a.reshape(2, 2, 6), a.reshape(2, 6, 2), a.reshape(2, 12), a[:, None], a, a[:, :, ::-1],
        np.concatenate([a, np.broadcast_to(v, (2, 1, 4))], 1), np.stack([a, a * 2], 2), np.pad(a, ((0, 0), (0, 0), (1, 2))),
        np.broadcast_to(v, (3, 4)), a.max(2), scattered,
    ]  # fmt: skip
    assert_right(Case(ctx, {T: 2}, outputs, expected, {"x": a, "y": b, "w": v}), setting)


# -- user-defined functions -------------------------------------------------------------------------------------------


@every_setting
def test_a_jax_function_is_called_at_each_point(setting: str) -> None:
    """Two results, vectorized or not, with an operand that varies with the step and an operand that does not."""
    a, v, ctx = normal(4, 3), normal(3), tp.Context("t")

    def function(row: Any, shared: Any) -> tuple[Any, Any]:
        return row[::-1] * shared, (row * shared).sum()

    with ctx as ((t, T),):
        x, w = tp.input("x", (3,), domain=(t,)), tp.input("w", (3,))
        outputs = tp.udf(function, x, w, outputs=[tp.spec((3,)), tp.spec()])
    assert_right(Case(ctx, {T: 4}, outputs, [a[:, ::-1] * v, (a * v).sum(1)], {"x": a, "w": v}), setting)


@every_setting
def test_a_host_function_gets_and_gives_numpy_arrays(setting: str) -> None:
    ctx, seen = tp.Context("t"), []

    def function(x: np.ndarray) -> tuple[np.ndarray]:
        seen.append(type(x))
        x *= 2  # it may write into its operands
        return (x.sum(keepdims=True),)

    with ctx as ((t, T),):
        h = tp.recurrence((2,), domain=(t,), name="h")
        h[0] = tp.ones((2,))
        (total,) = tp.udf(function, h, outputs=[tp.spec((1,))], kind="host")
        h[t + 1] = h + total
    case = Case(
        ctx, {T: 3}, [h, total], [np.array([[1, 1], [5, 5], [25, 25]], "float32"), np.array([[4], [20], [100]], "float32")]
    )
    assert_right(case, setting)
    assert set(seen) == {np.ndarray}


class Counter:
    """An environment with a state outside of the program, which changes with each call."""

    def __init__(self) -> None:
        self.calls: list[float] = []

    def __call__(self, action: np.ndarray) -> tuple[np.ndarray]:
        self.calls.append(float(action))
        return (np.asarray(len(self.calls), "int32"),)


@every_setting
def test_a_stateful_function_is_called_once_a_point_in_their_order(setting: str) -> None:
    calls = []
    for run in ("reference", "compiled"):
        ctx, environment = tp.Context("i", "t"), Counter()
        with ctx as ((i, I), (t, T)):
            (number,) = tp.udf(environment, i * 10.0 + t, outputs=[tp.spec((), "int32")], kind="host", stateful=True)
        case = Case(ctx, {I: 2, T: 3}, [number], [np.array([[1, 2, 3], [4, 5, 6]], "int32")])
        assert_all_same(evaluated(case) if run == "reference" else compiled(case, SETTINGS[setting]), case.expected)
        calls.append(environment.calls)
    assert calls == [[0, 1, 2, 10, 11, 12]] * 2


@every_setting
def test_a_stateful_function_runs_though_nobody_reads_it(setting: str) -> None:
    ctx, environment = tp.Context("t"), Counter()
    with ctx as ((t, T),):
        tp.udf(environment, t * 2.0, outputs=[tp.spec((), "int32")], kind="host", stateful=True)
    assert compiled(Case(ctx, {T: 3}, [], []), SETTINGS[setting]) == []
    assert environment.calls == [0, 2, 4]


# -- sinks ------------------------------------------------------------------------------------------------------------


@every_setting
def test_sinks_get_values_and_steps_in_order(setting: str) -> None:
    ctx, seen = tp.Context("i", "t"), []
    with ctx as ((i, I), (t, T)):
        h = tp.recurrence((), domain=(i, t), name="h")
        h[i, 0] = i * 1.0
        h[i, t + 1] = h + 1
        tp.sink(lambda value, **at: seen.append((at, float(value))), h * 2)
    compiled(Case(ctx, {I: 2, T: 3}, [], []), SETTINGS[setting])
    assert seen == [({"i": a, "t": b}, 2.0 * (a + b)) for a in range(2) for b in range(3)]


@every_setting
def test_sinks_wait_for_their_condition(setting: str) -> None:
    ctx, seen = tp.Context("i", "t"), []
    with ctx as ((i, I), (t, T)):
        x = (i * 1.0 + t)[i, 0:T].sum(0)
        tp.sink(lambda a, b, i: seen.append((i, float(a), b.tolist())), x, tp.arange(2) + i, when=i % 2 == 1, name="log")
        outside = tp.constant(3.0)
        tp.sink(lambda value: seen.append(float(value)), outside)
    compiled(Case(ctx, {I: 4, T: 2}, [], []), SETTINGS[setting])
    assert sorted(map(str, seen)) == sorted(map(str, [3.0, (1, 3.0, [1, 2]), (3, 7.0, [3, 4])]))


# -- inputs -----------------------------------------------------------------------------------------------------------


@every_setting
def test_inputs_of_other_dtypes_are_converted_where_nothing_is_lost_in_kind(setting: str) -> None:
    ctx = tp.Context("t")
    with ctx as ((t, T),):
        x, n = tp.input("x", domain=(t,)), tp.input("n", (2,), "int32")
        outputs = [x + 1, n]
    doubles, narrow = np.array([0.5, 1.5]), np.array([1, 2], "int8")
    expected = [np.array([1.5, 2.5], "float32"), np.array([1, 2], "int32")]
    assert_right(Case(ctx, {T: 2}, outputs, expected, {"x": doubles, "n": narrow}), setting)


def test_a_program_runs_again_with_other_inputs_without_compiling() -> None:
    ctx = tp.Context("t")
    with ctx as ((t, T),):
        x = tp.input("x", domain=(t,))
        program = ctx.compile({T: 2}, outputs=[x[0:T].sum(0), x * 2])
    first = program.run({"x": np.ones(2, "float32")})
    compiles = program.compiles
    second = program.run({"x": np.array([3.0, 4.0], "float32")})
    assert_all_same(first, [np.float32(2), np.array([2, 2], "float32")])
    assert_all_same(second, [np.float32(7), np.array([6, 8], "float32")])
    assert program.compiles == compiles > 0


# -- random numbers ---------------------------------------------------------------------------------------------------


def _random() -> Case:
    ctx = tp.Context("i", "t")
    with ctx as ((i, I), (t, T)):
        first, second = tp.random.normal((3,), domain=(i, t)), tp.random.uniform((2,), -1.0, 2.0, domain=(t,))
        shuffled = tp.random.permutation(5, domain=(i,))
        bits = tp.random.bits((2,))
        chosen = tp.random.categorical(first * 2)
        walk = tp.recurrence((3,), domain=(i, t), name="walk")
        walk[i, 0] = first[i, 0]
        walk[i, t + 1] = walk + first[i, t + 1]
        outputs = [first, second, shuffled, bits, chosen, walk, first[i, T - 1 - t]]
    return Case(ctx, {I: 2, T: 3}, outputs, [])


@every_setting
def test_random_numbers_do_not_depend_on_how_a_program_runs(setting: str) -> None:
    case = _random()
    expected = evaluated(case)
    assert_all_same(compiled(case, SETTINGS[setting]), expected)


def test_random_numbers_differ_between_points_calls_and_seeds() -> None:
    case = _random()
    first, second, shuffled, bits, *_ = evaluated(case)
    assert len(np.unique(first)) == first.size
    assert len(np.unique(second)) == second.size
    assert (second >= -1).all()
    assert (second < 2).all()
    assert (np.sort(shuffled) == np.arange(5)).all()
    program = case.context.compile(case.bounds, outputs=case.outputs)
    again, other = program.run(), program.run(seed=7)
    assert_all_same([again[0], again[3]], [first, bits])
    assert not np.isclose(other[0], first).any()


@pytest.mark.parametrize("disable", [(), ("vectorize",), ("vectorize", "narrow")], ids=str)
@pytest.mark.parametrize("backend", ["numpy", "jax"])
def test_a_constant_read_as_a_range(backend: str, disable: tuple[str, ...]) -> None:
    """A gradient that is zero everywhere is a constant with the domain of its tensor."""
    ctx = tp.Context("t")
    with ctx as ((t, T),):
        x = tp.input("x", domain=(t,), requires_grad=True)
        y = tp.input("y", domain=(t,))
        (zero,) = tp.grad(y[0:T].sum(0), [x])
        total = ((zero * zero + 1)[0:T]).sum(0)
    data = {"x": np.ones(3, "float32"), "y": np.ones(3, "float32")}
    results = ctx.run({T: 3}, [zero, total], data, tp.Config(backend=backend, disable=disable))
    assert results[0].tolist() == [0, 0, 0] and results[1] == 3
