"""Runs that choose small bounds: they compute for a part of the capacity, with the same results."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import patch

import jax
import numpy as np
import pytest

import tempo_core as tp
from tempo_core import prices
from tempo_core.symbolic.expr import Symbol
from tests import reference
from tests.cases import slow
from tests.core.running import assert_same
from tests.core.runtime.test_live import EXECUTORS

CAPACITY, WIDTH = 512, 4
ALWAYS = {"LEAST_GAIN": -1e9}  # all runs take the least capacities
Built = tuple[tp.Context, list[tp.Expr], Any]


def numbers(*shape: int) -> np.ndarray:
    return np.random.default_rng(0).normal(size=shape).astype("float32")


def attention() -> Built:
    """Attention to the past, with the gradient of all keys."""
    ctx = tp.Context("t")
    with ctx as ((t, T),):
        x = tp.input("x", (WIDTH,), domain=(t,), requires_grad=True)
        past = x[0 : t + 1]
        y = (past @ x).softmax(-1) @ past
        (y**2).sum()[0:T].sum(0).backward()
    return ctx, [T], {"y": y, "slope": x.grad}


def recurrence() -> Built:
    ctx = tp.Context("t")
    with ctx as ((t, T),):
        x = tp.input("x", (WIDTH,), domain=(t,))
        h = tp.recurrence((WIDTH,), domain=(t,), name="h")
        h[0] = x[0]
        h[t + 1] = tp.tanh(h * 0.5 + x[t + 1])
    return ctx, [T], {"h": h}


def table() -> Built:
    """A table over two steps, each with a bound that a run chooses, and its gradient."""
    ctx = tp.Context("i", "j")
    with ctx as ((i, I), (j, J)):
        x, y = tp.input("x", (), domain=(i,), requires_grad=True), tp.input("y", (), domain=(j,))
        cost = (x - y) ** 2
        d = tp.recurrence((), domain=(i, j), name="d")
        d[0, 0] = cost[0, 0]
        d[0, j] = cost[0, j] + d[0, j - 1]
        d[i, 0] = cost[i, 0] + d[i - 1, 0]
        d[i, j] = cost + tp.minimum(d[i - 1, j - 1], tp.minimum(d[i - 1, j], d[i, j - 1]))
        d[I - 1, J - 1].backward()
    return ctx, [I, J], {"last": d[I - 1, J - 1], "slope": x.grad}


def compiled(build: Callable[[], Built], capacity: int = CAPACITY, config: tp.Config | None = None) -> tp.Program[Any]:
    ctx, bounds, outputs = build()
    return ctx.compile({bound: tp.upto(capacity) for bound in bounds}, outputs, config)


def taken(program: tp.Program[Any], *points: int) -> tuple[int, ...]:
    """The capacities of a run with these bounds."""
    chosen = dict(zip(program.limits, points, strict=True))
    return tuple(program._of_run({**program.bounds, **chosen}).bounds[bound] for bound in program.limits)


@pytest.mark.cpu
def test_a_run_of_few_points_computes_few() -> None:
    """Temporaries and operations follow the bound of the run, rounded up to a fourth of a power of two; those that take hardly longer share one."""
    program = compiled(attention)
    assert taken(program, 100) == (128,) and taken(program, 300) == (320,)
    few = taken(program, 3)
    assert taken(program, 10) == few and few[0] <= 64
    at_ten, at_all = (program._of_run({Symbol("T"): n}) for n in (10, CAPACITY))
    assert at_ten.cost().numbers["operations"] * (CAPACITY // 64) < at_all.cost().numbers["operations"]
    for each in (at_ten, at_all):
        each.compile()
    small, large = (sum(each._staged.temporaries(segment) for segment in each._staged.segments) for each in (at_ten, at_all))
    assert small * (CAPACITY // 64) < large
    assert "T up to 10: at" in program.explain()


@pytest.mark.parametrize("build", [attention, recurrence, slow(table)])
def test_results_are_those_of_the_bound(build: Callable[[], Built]) -> None:
    ctx, bounds, outputs = build()
    program = compiled(build, 12)
    with patch.multiple(prices, **ALWAYS):
        for n, size in ((1, 1), (2, 2), (5, 5), (9, 10), (12, 12)):
            shape = (n,) if build is table else (n, WIDTH)
            fed = {name: numbers(*shape) for name in program.inputs}
            assert taken(program, *[n] * len(bounds)) == (size,) * len(bounds)
            result, expected = program.run(fed), reference.evaluate(ctx, [*outputs.values()], dict.fromkeys(bounds, n), fed)
            for name, value in zip(outputs, expected, strict=True):
                assert_same(result[name], value, 1e-4, f"{name} of {n} points")
    assert program.compiles == 5


@pytest.mark.slow
def test_two_bounds_are_chosen_apart() -> None:
    with patch.multiple(prices, **ALWAYS):
        program = compiled(table, 64)
        assert taken(program, 3, 41) == (3, 48)
        fed = {"x": numbers(3), "y": numbers(41)}
        ctx, (rows, columns), outputs = table()
        expected = ctx.run({rows: 3, columns: 41}, outputs, fed)
        result = program.run(fed)
    for name, value in expected.items():
        assert_same(result[name], value, 1e-4, name)


@pytest.mark.slow
def test_runs_of_many_points_have_no_conditions_on_their_number() -> None:
    """`I + J >= 3` is true for all but the shortest runs, which have a program of their own; a traced bound may be one of them."""
    program = compiled(table, 64)
    few, many = (program._of_run({Symbol("I"): n, Symbol("J"): n}) for n in (prices.NOMINAL - 1, prices.NOMINAL))
    assert "if" in str(few.text("program")) and "if" not in str(many.text("program"))
    ctx, (rows, columns), outputs = table()
    pure = program.as_jax()
    function = jax.jit(lambda fed, n: pure(pure.init(), fed, {"I": n, "J": n})[1])
    padded = {"x": numbers(64), "y": numbers(64)}
    for n in (1, 2, 3, prices.NOMINAL, 64):
        fed = {name: array[:n] for name, array in padded.items()}
        bounds = {rows: n, columns: n}
        last, slope = (
            reference.evaluate(ctx, [*outputs.values()], bounds, fed) if n < 4 else ctx.run(bounds, outputs, fed).values()
        )
        for result in (program.run(fed), function(padded, n)):
            assert_same(np.asarray(result["last"]), last, 1e-4, f"{n} points")
            assert_same(np.asarray(result["slope"])[:n], slope, 1e-4, f"{n} points")


def test_a_loop_takes_as_long_at_any_capacity() -> None:
    program = compiled(recurrence)
    for n in (1, 3, 50, 200, CAPACITY):
        assert program.run({"x": numbers(n, WIDTH)})["h"].shape == (n, WIDTH)
    assert program.compiles == 1


def test_small_capacities_can_be_switched_off() -> None:
    program = compiled(attention, config=tp.Config(disable=("capacities",)))
    assert taken(program, 3) == (CAPACITY,)


@pytest.mark.parametrize("executor", EXECUTORS)
def test_runs_that_live(executor: str, tmp_path: Path) -> None:
    """A run is saved with its capacity, and goes on with it: also in a program of another capacity, for which it is the same."""
    ctx, (T,), outputs = recurrence()
    with patch.multiple(prices, **ALWAYS):
        program, wider = (ctx.compile({T: tp.upto(n)}, outputs, EXECUTORS[executor]) for n in (30, 60))
        fed = {"x": numbers(7, WIDTH)}
        expected = program.run(fed)["h"]
        run = program.start(fed, by="t")
        run.advance("t", 3)
        path = run.save(tmp_path / "state")
        for each in (run, program.resume(path), wider.resume(path)):
            np.testing.assert_array_equal(each.finish()["h"], expected)


def test_bound_inputs_are_on_the_device_once() -> None:
    ctx = tp.Context("t")
    with ctx as ((t, T),):
        w, x = tp.input("w", (3,)), tp.input("x", (3,), domain=(t,))
        y = (x * w)[0 : t + 1].sum(0)
    with patch.multiple(prices, **ALWAYS):
        program = ctx.compile({T: tp.upto(64)}, y).bind({"w": np.ones(3, "float32")})
        other = program.bind({})
        data = numbers(5, 3)
        for each in (program, other):
            assert_same(each.run({"x": data}), data.cumsum(0), 1e-5)
        smaller = program._of_run({Symbol("T"): 5})
    assert smaller is not program and smaller._inputs.prepared["w"] is program._inputs.prepared["w"]
    assert program.compiles == 1


@pytest.mark.cpu
def test_functions_of_jax_have_arrays_of_the_capacity_of_a_call() -> None:
    """A number that is known while JAX traces; a traced one may be any."""
    ctx, (T,), outputs = attention()
    function = ctx.compile({T: tp.upto(CAPACITY)}, outputs["y"]).as_jax()
    few, many = numbers(9, WIDTH), numbers(CAPACITY, WIDTH)
    traced = str(jax.make_jaxpr(lambda x: function(function.init(), {"x": x})[1])(few))
    assert f"[{CAPACITY}" not in traced
    assert_same(np.asarray(function(function.init(), {"x": few})[1]), ctx.run({T: 9}, outputs["y"], {"x": few}), 1e-5)
    of_any = jax.jit(lambda x, n: function(function.init(), {"x": x}, {T: n})[1])(many, 9)
    assert of_any.shape == (CAPACITY, WIDTH)
    assert_same(np.asarray(of_any)[:9], ctx.run({T: 9}, outputs["y"], {"x": many[:9]}), 1e-5)
