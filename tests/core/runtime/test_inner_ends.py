"""Inner steps that end at another place for each point of the outer steps."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import jax
import numpy as np
import pytest

import tempo_core as tp
from tempo_core import errors
from tempo_core.config import PASSES
from tempo_core.ir.types import TensorType
from tempo_core.schedule.build import check_inner_ends
from tempo_core.schedule.tree import Block, Loop, walk
from tests import reference
from tests.cases import cells
from tests.core.running import assert_same
from tests.core.runtime.test_live import EXECUTORS

CONFIGS = {**EXECUTORS, "vectorize only": tp.Config(disable=tuple(p for p in PASSES if p not in ("vectorize", "pad")))}
PROGRAMS: dict[str, Callable[[], Any]] = {}


def program(make: Callable[[], Any]) -> Callable[[], Any]:
    PROGRAMS[make.__name__] = make
    return make


@program
def newton() -> Any:
    """A solver inside of an implicit method: each time begins where the solver ended."""
    ctx = tp.Context("t", "k")
    with ctx as ((t, T), (k, K)):
        y = tp.recurrence((), domain=(t,), name="y")
        z = tp.recurrence((), domain=(t, k), name="z")
        rest = z - y + 0.1 * z**3
        z[t, 0] = y
        z[t, k + 1] = z - rest / (1 + 0.3 * z**2)
        ctx.ends(k, when=abs(rest) < 1e-4, each=t)
        y[0] = tp.input("start", ())
        y[t + 1] = z[t, K - 1] * 1.7
        outputs = {"y": y, "number": tp.ones(()) * K, "sum": z[t, 0:K].sum(0), "all": z[t, 0:K].sum(0)[0:T].sum(0)}
    return ctx, {T: 6, K: 20}, outputs, {"start": np.float32(2.0)}


@program
def lengths() -> Any:
    """Outer points that do not depend on each other."""
    ctx = tp.Context("i", "k")
    with ctx as ((i, I), (k, K)):
        n = tp.recurrence((), "int32", domain=(i, k), name="n")
        n[i, 0] = tp.input("x", (), "int32", domain=(i,))
        n[i, k + 1] = tp.where(n % 2 == 0, n // 2, 3 * n + 1)
        ctx.ends(k, when=n == 1, each=i)
        number = tp.ones((), "int32") * K
        outputs = {
            "number": number,
            "max": n[i, 0:K].max(0),
            "last": n[i, K - 1],
            "first": n[0, K - 1],
            "sum": number[0:I].sum(0),
        }
        outputs |= {"start": n[i - 1, 0][i >= 1], "lasts": n[0:I, K - 1], "half": n[i, K // 2], "constant": n[i, 0]}
    return ctx, {I: 9, K: 15}, outputs, {"x": np.arange(1, 10, dtype="int32")}  # 9 needs more than 15


@program
def carried() -> Any:
    """The last point of one outer point is the first of the next; values of the inner step alone have no end."""
    ctx = tp.Context("t", "k")
    with ctx as ((t, T), (k, K)):
        part = tp.recurrence((), domain=(k,), name="part")
        part[0] = 1.0
        part[k + 1] = part * 0.5
        w = tp.recurrence((), domain=(t, k), name="w")
        w[0, 0] = 5.0
        w[t, k + 1] = w * 0.7 - 0.1 * part
        ctx.ends(k, when=w < 1.0, each=t)
        w[t + 1, 0] = w[t, K - 1] * 4.0 + t
        outputs = {"last": w[T - 1, K - 1], "ends": w[t, K - 1], "before": w[t, tp.max(K - 2, 0)]}
    return ctx, {T: 5, K: 20}, outputs, {}


def of_rows(*each: str) -> Any:
    ctx = tp.Context("b", "t", "k")
    with ctx as ((b, B), (t, T), (k, K)):
        h = tp.recurrence((2,), domain=(b, t, k), name="h")
        s = tp.recurrence((2,), domain=(b, t), name="s")
        s[b, 0] = tp.zeros((2,))
        h[b, t, 0] = tp.input("x", (2,), domain=(b, t)) + s
        h[b, t, k + 1] = h * 0.5
        ctx.ends(k, when=abs(h) < 0.1, each=tuple({"b": b, "t": t}[name] for name in each))
        s[b, t + 1] = h[b, t, K - 1]
        outputs = {"s": s, "number": tp.ones(()) * K, "sum": h[b, t, 0:K].sum(0)}
    return ctx, {B: 3, T: 4, K: 12}, outputs, {"x": np.random.default_rng(0).normal(size=(3, 4, 2)).astype("float32")}


@program
def rows_together() -> Any:
    """All rows of a batch end together, at another place for each t."""
    return of_rows("t")


@program
def rows_alone() -> Any:
    return of_rows("b", "t")


@program
def half_of_the_way() -> Any:
    """A gradient at a point in the middle of what ran, which is another one for each t."""
    ctx = tp.Context("t", "k")
    with ctx as ((t, T), (k, K)):
        x = tp.input("x", (), domain=(t,), requires_grad=True)
        z = tp.recurrence((), domain=(t, k), name="z")
        z[t, 0] = x
        z[t, k + 1] = z * 0.5
        ctx.ends(k, when=abs(z) < 0.4, each=t)
        middle = z[t, K // 2]
        outputs = {"middle": middle, "slope": tp.grad(middle[0:T].sum(), [x])[0]}
    return ctx, {T: 4, K: 9}, outputs, {"x": np.array([0.1, 0.7, 3.0, 20.0], "float32")}


@program
def one_outer_point() -> Any:
    ctx, bounds, outputs, inputs = newton()
    return ctx, dict(zip(bounds, (1, 20), strict=True)), outputs, inputs


@program
def gradients() -> Any:
    """First and second gradients, through the points that there are."""
    ctx = tp.Context("t", "k")
    with ctx as ((t, T), (k, K)):
        a, start = tp.input("a", (), requires_grad=True), tp.input("start", (), requires_grad=True)
        x = tp.input("x", domain=(t,), requires_grad=True)
        y = tp.recurrence((), domain=(t,), name="y")
        z = tp.recurrence((), domain=(t, k), name="z")
        rest = z - y + a * z**3
        z[t, 0] = y
        z[t, k + 1] = z - rest / (1 + 3 * a * z**2)
        ctx.ends(k, when=abs(rest) < 1e-3, each=t)
        y[0] = start
        y[t + 1] = z[t, K - 1] * 1.3 + x
        loss = (y * y)[0:T].sum(0) + z[T - 1, K - 1] + (z * x)[t, 0:K].sum(0)[0:T].sum(0)
        loss = loss + z[t, K // 2][0:T].sum(0)
        da, dstart, dx = tp.grad(loss, wrt=[a, start, x])
        (second,) = tp.grad(da, wrt=[a])
        outputs = {"loss": loss, "a": da, "start": dstart, "x": dx, "second": second}
    inputs = {"a": np.float32(0.1), "start": np.float32(1.5), "x": np.array([0.3, -0.2, 0.5, 0.1], "float32")}
    return ctx, {T: 4, K: 20}, outputs, inputs


@pytest.mark.parametrize(("name", "executor"), cells(PROGRAMS, CONFIGS))
def test_values_are_those_of_the_equations(name: str, executor: str) -> None:
    ctx, bounds, outputs, inputs = PROGRAMS[name]()
    expected = reference.evaluate(ctx, list(outputs.values()), bounds, inputs)
    results = ctx.compile(bounds, outputs, CONFIGS[executor]).run(inputs)
    for output, wanted in zip(outputs, expected, strict=True):
        assert_same(results[output], wanted, 1e-4, output)


def test_the_reference_ends_where_a_loop_by_hand_does() -> None:
    ctx, bounds, outputs, inputs = lengths()
    numbers = []
    for n in range(1, 10):
        path = [n]
        while path[-1] != 1 and len(path) < 15:
            path.append(path[-1] // 2 if path[-1] % 2 == 0 else 3 * path[-1] + 1)
        numbers.append(len(path))
    np.testing.assert_array_equal(reference.evaluate(ctx, [outputs["number"]], bounds, inputs)[0], numbers)
    assert len(set(numbers)) > 3


def test_gradients_are_differences() -> None:
    ctx, bounds, outputs, inputs = gradients()

    def at(name: str, change: float, output: str) -> float:
        moved = {**inputs, name: np.asarray(inputs[name], np.float64) + change}
        return float(reference.evaluate(ctx, [outputs[output]], bounds, moved, dtype="float64")[0])

    values = dict(zip(outputs, reference.evaluate(ctx, list(outputs.values()), bounds, inputs, dtype="float64"), strict=True))
    for name, of, slope in (("a", "loss", "a"), ("start", "loss", "start"), ("a", "a", "second")):
        difference = (at(name, 1e-6, of) - at(name, -1e-6, of)) / 2e-6
        np.testing.assert_allclose(values[slope], difference, rtol=1e-5)


@pytest.mark.parametrize("kind", ["jax", "host"])
def test_work_is_proportional_to_the_points_that_there_are(kind: Any) -> None:
    """A function sees its calls: none after an end, in the device program and on the host."""
    calls = []

    def halved(x: Any) -> Any:
        if kind == "jax":
            jax.debug.callback(lambda: calls.append(1))
        else:
            calls.append(1)
        return (x * np.float32(0.5),)

    ctx = tp.Context("t", "k")
    with ctx as ((t, T), (k, K)):
        h = tp.recurrence((), domain=(t, k), name="h")
        (half,) = tp.udf(halved, h, outputs=[TensorType("float32")], kind=kind)
        h[t, 0] = tp.input("x", domain=(t,))
        h[t, k + 1] = half
        ctx.ends(k, when=h < 1.0, each=t)
        outputs = {"last": h[t, K - 1], "number": tp.ones((), "int32") * K}
    program = ctx.compile({T: 4, K: 1000}, outputs)
    numbers = program.run({"x": np.array([0.5, 3.0, 100.0, 7.0], "float32")})["number"]
    np.testing.assert_array_equal(numbers, [1, 3, 8, 4])
    assert len(calls) <= sum(numbers)


@pytest.mark.slow
def test_loops_end_in_the_program() -> None:
    ctx, bounds, outputs, inputs = gradients()
    program = ctx.compile(bounds, outputs)
    assert "for k in 1:K:" in program.text(), "forwards"
    assert "for c1 in 1 - K:1:" in program.text(), "backwards, from the end"
    assert program.plan().peak_device_bytes > 0 and program.cost().numbers["operations"] > 0
    assert "looked at in each iteration" in program.explain()
    assert program.profile(inputs).results["loss"].shape == ()


def test_each_run_may_choose_the_other_bounds() -> None:
    ctx, bounds, outputs, inputs = carried()
    T, K = bounds
    program = ctx.compile({T: tp.upto(8), K: tp.upto(30)}, outputs)
    for number in (1, 3, 8):
        expected = reference.evaluate(ctx, list(outputs.values()), {T: number, K: 30}, inputs)
        results = program.run(inputs, bounds={T: number, K: 30})
        for output, wanted in zip(outputs, expected, strict=True):
            assert_same(results[output], wanted, 1e-4, output)


def test_an_inner_end_in_a_function_of_jax() -> None:
    ctx, bounds, outputs, inputs = newton()
    program = ctx.compile(bounds, outputs)
    function = program.as_jax()
    _, results = function(function.init(), inputs)
    for name, value in program.run(inputs).items():
        np.testing.assert_allclose(results[name], value, rtol=1e-5)


def test_a_program_with_an_inner_end_is_kept(tmp_path: Any) -> None:
    ctx, bounds, outputs, inputs = newton()
    first, again = (ctx.compile(bounds, outputs, tp.Config(cache=tmp_path)) for _ in range(2))
    expected = first.run(inputs)
    for name, value in again.run(inputs).items():
        np.testing.assert_array_equal(value, expected[name])
    assert again.compiles == 0


# -- errors -----------------------------------------------------------------------------------------------------------


def misuses() -> Iterator[tuple[str, Callable[..., Any]]]:
    yield "is not inside of k", lambda ctx, t, k, K, x, z: ctx.ends(t, when=z > 1, each=k)
    yield "is not a step of this context", lambda ctx, t, k, K, x, z: ctx.ends(k, when=z > 1, each=t + 1)
    yield "is not a condition at every point of t, k", lambda ctx, t, k, K, x, z: ctx.ends(k, when=x > 1, each=t)
    yield "must be a bool", lambda ctx, t, k, K, x, z: ctx.ends(k, when=z, each=t)
    yield "has an end already", lambda ctx, t, k, K, x, z: (ctx.ends(k, when=z > 1), ctx.ends(k, when=z > 1, each=t))
    yield "or ends itself", lambda ctx, t, k, K, x, z: (ctx.ends(t, when=x > 1), ctx.ends(k, when=z > 1, each=t))
    yield "uses K before it is said where k ends", lambda ctx, t, k, K, x, z: (z[t, K - 1] * 2, ctx.ends(k, when=z > 1, each=t))


@pytest.mark.parametrize(("message", "misuse"), list(misuses()), ids=[message for message, _ in misuses()])
def test_misuses(message: str, misuse: Callable[..., Any]) -> None:
    ctx = tp.Context("t", "k")
    with ctx as ((t, _), (k, K)):
        x = tp.input("x", domain=(t,))
        z = tp.input("z", domain=(t, k))
        with pytest.raises(errors.TempoError, match=message) as raised:
            misuse(ctx, t, k, K, x, z)
    assert raised.value.hint and "test_inner_ends.py" in str(raised.value)


REFUSED: dict[str, tuple[type[errors.TempoError], str, Callable[..., Any]]] = {
    "another outer point": (
        errors.OutOfDomainError,
        "k may have ended before",
        lambda t, T, k, K, z: z[tp.max(t - 1, 0), k] * 2.0,
    ),
    "all outer points": (errors.OutOfDomainError, "k may have ended before", lambda t, T, k, K, z: z[0:T, k].sum(0)),
    "the inner step alone": (errors.IndexingError, "has no step t", lambda t, T, k, K, z: tp.input("y", domain=(k,))[0:K].sum(0)),
    "a whole result": (errors.ShapeError, "which ends at another place for each t", lambda t, T, k, K, z: z),
    "a ragged result": (errors.ShapeError, "which ends at another place for each t", lambda t, T, k, K, z: z[t, 0:K]),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_may_not_be_there_is_refused(name: str) -> None:
    kind, message, build = REFUSED[name]
    ctx = tp.Context("t", "k")
    with ctx as ((t, T), (k, K)):
        z = tp.input("z", domain=(t, k))
        ctx.ends(k, when=z > 1, each=t)
        value = build(t, T, k, K, z)
        outputs = value[t, 0:K].sum(0) if k in value.domain.steps and "result" not in name else value
    with pytest.raises(kind, match=message) as raised:
        ctx.compile({T: 3, K: 4}, outputs)
    assert raised.value.hint and "test_inner_ends.py" in str(raised.value)


def test_an_end_that_depends_on_itself() -> None:
    ctx = tp.Context("t", "k")
    with ctx as ((t, T), (k, K)):
        z = tp.input("z", domain=(t, k))
        ended = tp.recurrence((), "bool", domain=(t, k), name="ended")
        ended[t, 0] = False
        ctx.ends(k, when=ended, each=t)
        ended[t, k + 1] = z > z[t, K - 1]
    with pytest.raises(errors.CausalityError, match="depends on where it ends") as raised:
        ctx.compile({T: 3, K: 4}, z[t, K - 1])
    assert "test_inner_ends.py" in str(raised.value)


def test_the_error_of_an_inner_end_without_each_says_each() -> None:
    ctx = tp.Context("t", "k")
    with ctx as ((t, T), (k, K)):
        total, x = tp.recurrence((), domain=(t,), name="total"), tp.recurrence((), domain=(t, k), name="x")
        total[0] = 10.0
        x[t, 0] = total
        x[t, k + 1] = x * 0.5
        ctx.ends(k, when=x < 1.0)
        total[t + 1] = x[t, K - 1] + 3.0
    with pytest.raises(errors.CausalityError, match="end of k depends on where it ends") as raised:
        ctx.compile({T: 3, K: 20}, total)
    assert "ctx.ends(k, when=..., each=t)" in str(raised.value)


def test_a_run_does_not_stop_between_inner_ends() -> None:
    ctx, bounds, outputs, inputs = newton()
    with pytest.raises(errors.ConfigError, match="a run cannot stop in a program where K varies with t") as raised:
        ctx.compile(bounds, outputs).start(inputs)
    assert "test_inner_ends.py" in str(raised.value)


def test_an_inner_end_has_no_least_number() -> None:
    ctx, bounds, outputs, _ = newton()
    T, K = bounds
    with pytest.raises(errors.BoundsError, match="K varies with t, and may be 1") as raised:
        ctx.compile({T: 4, K: tp.upto(20, at_least=2)}, outputs)
    assert "test_inner_ends.py" in str(raised.value)


def test_a_loop_that_is_not_at_one_outer_point_is_refused() -> None:
    """As if a schedule had put the inner loop around the outer one."""
    ctx, bounds, outputs, _ = newton()
    program = ctx.compile(bounds, {"last": outputs["y"]})
    outer = next(item for item in walk(program.scheduled.root) if isinstance(item, Loop))
    inner = next(item for item in walk(outer.body) if isinstance(item, Loop))
    check_inner_ends(program.scheduled.root, program.graph)
    swapped = replace(inner, body=Block((replace(outer, body=inner.body),)))
    with pytest.raises(errors.CausalityError, match="the loop that end of k ends is not inside of a loop over t") as raised:
        check_inner_ends(swapped, program.graph)
    assert raised.value.hint and "test_inner_ends.py" in str(raised.value)
