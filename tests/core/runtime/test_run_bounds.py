"""Bounds that each run chooses: one device program for all lengths, with the results of a program that was compiled for that length."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tempo_core as tp
from tempo_core import errors
from tests.cases import cells
from tests.core.cost_checks import assert_counted_as_run
from tests.core.running import assert_same
from tests.core.runtime.test_live import EXECUTORS
from tests.core.schedule.checker import check_runs

LENGTHS = (1, 3, 7, 12)
Build = Callable[[tp.Expr, tp.Expr, tp.Tensor], Any]


def numbers(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=shape).astype("float32")


def recurrence(t: tp.Expr, T: tp.Expr, x: tp.Tensor) -> Any:
    h = tp.recurrence((2,), domain=(t,), name="h")
    h[0] = x[0]
    h[t + 1] = tp.tanh(h * -0.7 + x[t + 1])
    return {"h": h, "last": h[T - 1], "total": h[0:T].sum(0), "middle": h[T // 2]}


def backwards(t: tp.Expr, T: tp.Expr, x: tp.Tensor) -> Any:
    h = tp.recurrence((2,), domain=(t,), name="h")
    h[T - 1] = x[T - 1]
    h[t] = tp.tanh(h[t + 1] * 0.7 - x)
    return {"h": h, "first": h[0]}


def ranges(t: tp.Expr, T: tp.Expr, x: tp.Tensor) -> Any:
    return {
        "prefix": x[0 : t + 1].max(0),
        "suffix": x[t:T].logsumexp(0),
        "window": x[tp.max(t - 2, 0) : t + 1].mean(0),
        "ahead": x[t : tp.min(t + 3, T)].prod(0),
        "block": x[t // 4 * 4 : tp.min(t // 4 * 4 + 4, T)].sum(0),
        "all": x[0:T].argmax(0),
        "sorted": tp.sort(x[0:T].sum(-1), 0),
        "ragged": x[0 : t + 1].flip(0),
        "reversed": x[T - 1 - t],
    }


def attention(t: tp.Expr, T: tp.Expr, x: tp.Tensor) -> Any:
    k = x[0 : t + 1]
    return ((k * x).sum(-1).softmax(-1).expand_dims(-1) * k).sum(0)


def random_numbers(t: tp.Expr, T: tp.Expr, x: tp.Tensor) -> Any:
    return {
        "each": tp.random.normal((2,), domain=(t,)) + x,
        "whole": tp.random.uniform((T, 3)).sum(0),
        "inner": tp.random.uniform((3, T)).sum(1),
    }


def sizes(t: tp.Expr, T: tp.Expr, x: tp.Tensor) -> Any:
    """Shapes in which the bound appears, and the bound as a number."""
    row = x[0:T].reshape(T * 2)
    return {
        "row": row,
        "double": tp.concatenate([row, row * 2.0], 0),
        "padded": tp.pad(row, (1, 2)),
        "number": x * T - t,
        "ones": tp.ones((T, 2)) @ numbers(2, 2),
        "table": tp.arange(T).expand_dims(0) + tp.arange(T).expand_dims(1),
    }


def vectorized_function(t: tp.Expr, T: tp.Expr, x: tp.Tensor) -> Any:
    (y,) = tp.udf(lambda a: (a * 2.0 + 1.0,), x, outputs=[tp.spec((2,))], kind="jax")
    return y[0:T].sum(0)


def gradient(t: tp.Expr, T: tp.Expr, x: tp.Tensor) -> Any:
    w = tp.input("w", (2,), requires_grad=True)
    h = tp.recurrence((2,), domain=(t,), name="h")
    h[0] = x[0] * w
    h[t + 1] = tp.tanh(h * w + x[t + 1])
    loss = (h[0:T] ** 2).mean(None) + (x * w)[0:T].logsumexp(0).sum()
    loss.backward()
    return {"loss": loss, "slope": w.grad}


BUILDS: tuple[Build, ...] = (
    recurrence, backwards, ranges, attention, random_numbers, sizes, vectorized_function, gradient,
)  # fmt: skip


@pytest.mark.parametrize(
    ("build", "executor"),
    cells(BUILDS, ["staged", "interpreted, NumPy", "interpreted, no passes"]),
    ids=lambda value: getattr(value, "__name__", value),
)
def test_values(build: Build, executor: str) -> None:
    """One program for all lengths, beside programs that were compiled for each."""
    ctx = tp.Context("t")
    with ctx as ((t, T),):
        outputs = build(t, T, tp.input("x", (2,), domain=(t,)))
    config = EXECUTORS[executor]
    program = ctx.compile({T: tp.upto(12)}, outputs, config)
    others = {"w": numbers(2, seed=1)} if "w" in program.inputs else {}
    compiles = []
    for n in LENGTHS:
        fed = {"x": numbers(n, 2), **others}
        result, expected = program.run(fed), ctx.run({T: n}, outputs, fed, config)
        for name in expected if isinstance(expected, dict) else (...,):
            assert_same(result[name], expected[name], 1e-5, f"{name} of length {n}")
        compiles.append(program.compiles)
    assert len(set(compiles)) == 1
    assert_counted_as_run(program)
    check_runs(program)


@pytest.mark.slow
def test_a_step_without_a_loop_is_where_the_run_says() -> None:
    """The points of the last row, `i = I - 1`, where the run chooses I, and only t has a loop."""
    ctx = tp.Context("i", "t")
    with ctx as ((i, I), (t, T)):
        x = tp.input("x", (), domain=(i, t), streamed=True)
        decay = tp.recurrence((), domain=(i,), name="decay")
        decay[0] = 0.7
        decay[i] = tp.tanh(decay[i - 1])
        heat = [tp.recurrence((), domain=(i, t), name=f"heat{k}") for k in range(2)]
        for each, last, source in zip(heat, (0.7, x[I - 1, t]), (x, decay), strict=True):
            each[i, 0] = 0.7
            each[0, t + 1] = each[0, t] * 0.9
            each[I - 1, t + 1] = last
            each[i, t + 1] = tp.tanh(each[i - 1, t] - each[i + 1, t] * 0.5 + each[i, 0] + source)
        tp.sink(lambda value, **point: None, heat[0], when=(t == 0) | (i % 2 == 1))
    program = ctx.compile({I: tp.upto(4), T: tp.upto(4)}, heat[1][I - 1, T - 1])
    check_runs(program)
    data = numbers(3, 3)
    np.testing.assert_array_equal(program.run({"x": data}), data[2, 1])


def test_fifty_lengths_share_one_device_program() -> None:
    ctx = tp.Context("t")
    with ctx as ((t, T),):
        h = recurrence(t, T, tp.input("x", (2,), domain=(t,)))
    program = ctx.compile({T: tp.upto(50)}, h)
    for n in range(1, 51):
        assert program.run({"x": numbers(n, 2)})["h"].shape == (n, 2)
    assert program.compiles == 1


def two_bounds() -> tuple[tp.Context, Any, Any, Any]:
    """A prompt of P tokens, which is a dimension of an input, and T steps after it."""
    ctx = tp.Context("p", "t")
    with ctx as ((p, P), (t, T)):
        prompt, more = tp.input("prompt", (P, 2)), tp.input("more", (2,), domain=(t,), streamed=True)
        s = tp.recurrence((2,), domain=(t,), name="s")
        s[0] = prompt.sum(0) / P
        s[t + 1] = s * 0.5 + more
        each = prompt.cumsum(0).spatial[p] + s[T - 1]
    return ctx, P, T, {"s": s, "each": each}


@pytest.mark.parametrize("executor", EXECUTORS)
def test_two_bounds(executor: str) -> None:
    """Chosen in a call, or told by the shape of an input; and one that is compiled in."""
    ctx, P, T, outputs = two_bounds()
    config = EXECUTORS[executor]
    both = ctx.compile({P: tp.upto(6), T: tp.upto(5)}, outputs, config)
    one = ctx.compile({P: tp.upto(9), T: 4}, outputs, config)
    for p, n in ((1, 1), (6, 4), (3, 5)):
        prompt, more = numbers(p, 2), numbers(n, 2)
        expected = ctx.run({P: p, T: n}, outputs, {"prompt": prompt, "more": more}, config)
        for result in (
            both.run({"prompt": prompt, "more": iter(more)}, bounds={T: n}),
            both.run({"prompt": prompt, "more": more}),
            both.run({"prompt": prompt, "more": lambda t, more=more: more[t]}, bounds={P: p, T: n}),
            *([one.run({"prompt": prompt, "more": more}, bounds={T: 4})] if n == 4 else []),
        ):
            for name, value in expected.items():
                assert_same(result[name], value, 1e-5, f"{name} of P = {p}, T = {n}")


@pytest.mark.parametrize("executor", EXECUTORS)
def test_functions_and_sinks_see_the_user_s_points(executor: str) -> None:
    seen: list[tuple[dict[str, int], np.ndarray]] = []
    ctx = tp.Context("t")
    with ctx as ((t, T),):
        x = tp.input("x", (2,), domain=(t,))
        (doubled,) = tp.udf(lambda a: (a * 2,), x[0 : t + 1].sum(0), outputs=[tp.spec((2,))], kind="host")
        tp.sink(lambda value, **point: seen.append((point, value)), x[t:T], name="rest")
    program = ctx.compile({T: tp.upto(6)}, doubled, EXECUTORS[executor])
    for n in (1, 4, 6):
        seen.clear()
        x_of_run = numbers(n, 2)
        np.testing.assert_allclose(program.run({"x": x_of_run}), 2 * np.cumsum(x_of_run, 0), rtol=1e-5, atol=1e-6)
        assert [point for point, _ in seen] == [{"t": k} for k in range(n)]
        for point, value in seen:
            np.testing.assert_array_equal(value, x_of_run[point["t"] :])


@pytest.mark.parametrize("executor", EXECUTORS)
def test_runs_that_live(executor: str, tmp_path: Path) -> None:
    ctx = tp.Context("i", "t")
    with ctx as ((i, I), (t, T)):
        x, w = tp.input("x", (2,), domain=(t,)), tp.recurrence((2,), domain=(i,), name="w")
        h = tp.recurrence((2,), domain=(i, t), name="h")
        h[i, 0] = x[0] * w
        h[i, t + 1] = tp.tanh(h * w + x[t + 1])
        w[0] = tp.ones((2,))
        w[i + 1] = w * 0.9 + h[i, T - 1]
    program = ctx.compile({I: tp.upto(9), T: tp.upto(7)}, {"w": w, "h": h}, EXECUTORS[executor])
    fed, bounds = {"x": numbers(5, 2)}, {I: 4}
    whole = program.run(fed, bounds=bounds)
    run = program.start(fed, bounds=bounds)
    run.advance()
    shapes = {name: value.shape for name, value in run.results.items() if value is not None}
    assert shapes == {"w": (4, 2), "h": (4, 5, 2)} or executor == "interpreted, no passes"  # whose first loop is another
    resumed = program.resume(run.save(tmp_path / "state"))
    for finished in (run.finish(), resumed.finish()):
        for name, value in whole.items():
            assert_same(finished[name], value, 1e-6)
    other = program.with_bounds({T: tp.upto(8)})
    with pytest.raises(errors.StateError, match=r"bound T is upto\(8\) here, and upto\(7\) in the file"):
        other.resume(tmp_path / "state")


def test_step_by_step_as_written() -> None:
    ctx = tp.Context("t")
    with ctx as ((t, T),):
        outputs = recurrence(t, T, tp.input("x", (2,), domain=(t,)))
    program = ctx.compile({T: tp.upto(9)}, outputs)
    fed = {"x": numbers(4, 2)}
    session = program.stepping(fed, as_written=True)
    assert [step.point["t"] for step in session if step.name == "h" and step.point] == [0, 1, 2, 3]
    for step in program.step(fed):
        last = step
    assert last.number > 4


def test_values_that_are_not_finite_are_found() -> None:
    ctx = tp.Context("t")
    with ctx as ((t, T),):
        x = tp.input("x", (), domain=(t,))
        y = tp.log(x)[0:T].sum(0)
    program = ctx.compile({T: tp.upto(8)}, y, tp.Config(check_numerics=True))
    assert np.isfinite(program.run({"x": np.ones(3, "float32")}))
    with pytest.raises(errors.NumericsError, match=r"log"):
        program.run({"x": np.array([1.0, -1.0, 1.0], "float32")})


def test_capacities_of_a_program() -> None:
    """Another capacity takes over the passes; `ctx.run` finds the program again."""
    ctx = tp.Context("t")
    with ctx as ((t, T),):
        outputs = recurrence(t, T, tp.input("x", (2,), domain=(t,)))
    program = ctx.compile({T: tp.upto(4)}, outputs)
    wider = program.with_bounds({T: tp.upto(8)})
    assert wider.timing.keys() == {"check", "schedule"} and program.limits != wider.limits
    assert wider.run({"x": numbers(7, 2)})["h"].shape == (7, 2)
    assert program.with_bounds({T: tp.upto(4)}) is program
    assert "T=upto(8)" in repr(wider)
    for n in (2, 3):
        assert ctx.run({T: tp.upto(4)}, outputs, {"x": numbers(n, 2)})["h"].shape == (n, 2)
    assert len(ctx._recent.programs) == 1


def test_the_bound_is_in_the_program_s_texts() -> None:
    ctx = tp.Context("t")
    with ctx as ((t, T),):
        h = recurrence(t, T, tp.input("x", (2,), domain=(t,)))["h"]
    program = ctx.compile({T: tp.upto(4)}, h)
    assert "for t in 0:T_last:" in program.text(full=True)  # and the last iteration, which computes no next value
    assert "for t in 0:T_last:" in program.with_bounds({T: tp.upto(64)}).text(full=True)  # the first value stands apart
    assert {str(symbol) for symbol in program.cost().operations.free_symbols} == {"T_max"}  # counted for the capacity
    fixed = ctx.compile({T: 4}, h)
    assert 0 <= program.cost().numbers["operations"] - fixed.cost().numbers["operations"] < 40


# -- errors -----------------------------------------------------------------------------------------------------------


def simple() -> tuple[tp.Context, tp.Program[Any], Any]:
    ctx = tp.Context("t")
    with ctx as ((t, T),):
        x = tp.input("x", (), domain=(t,))
        return ctx, ctx.compile({T: tp.upto(4)}, x * 2.0), T


def wrong_runs() -> Iterator[tuple[str, Callable[[tp.Program[Any], Any], Any]]]:
    x = np.ones(3, "float32")
    yield r"T is 5 in this run.*tp.upto\(4\)", lambda program, T: program.run({"x": np.ones(5)})
    yield r"T is 0 in this run", lambda program, T: program.run({"x": x}, bounds={T: 0})
    yield r"T is 2.0; it must be an int", lambda program, T: program.run({"x": x}, bounds={T: 2.0})
    yield r"U is not a bound of this program", lambda program, T: program.run({"x": x}, bounds={"U": 2})
    yield r"T is missing, and no input", lambda program, T: program.run({"x": iter(x)})
    yield r"needs the shape \(2,\)", lambda program, T: program.run({"x": x}, bounds={T: 2})
    yield r"compiled for the bound T up to a capacity", lambda program, T: program.with_bounds({T: 3})
    yield r"cannot be bound: each run chooses its size T", lambda program, T: program.bind({"x": x})
    yield r"tp.upto takes numbers from 1", lambda program, T: tp.upto(0)
    yield r"the argument `capacity` of `upto` must be an int", lambda program, T: tp.upto("4")
    yield r"no bound is at least 5 and at most 4", lambda program, T: tp.upto(4, at_least=5)


@pytest.mark.parametrize(("message", "run"), list(wrong_runs()), ids=[message[:24] for message, _ in wrong_runs()])
def test_wrong_runs(message: str, run: Callable[[tp.Program[Any], Any], Any]) -> None:
    _, program, T = simple()
    with pytest.raises(errors.TempoError, match=f"(?s){message}") as raised:
        run(program, T)
    assert raised.value.hint
    np.testing.assert_array_equal(program.run({"x": np.ones(3, "float32")}), np.full(3, 2.0))


def test_a_compiled_bound_is_not_chosen() -> None:
    ctx = tp.Context("t")
    with ctx as ((t, T),):
        x = tp.input("x", (), domain=(t,))
    program = ctx.compile({T: 3}, x * 2.0)
    assert program.run({"x": np.ones(3)}, bounds={T: 3}).shape == (3,)
    with pytest.raises(errors.BoundsError, match="the bound T is 3 in this program") as raised:
        program.run({"x": np.ones(2)}, bounds={T: 2})
    assert "tp.upto(2)" in str(raised.value.hint)


def test_programs_that_are_right_for_long_sequences_only() -> None:
    ctx = tp.Context("t")
    with ctx as ((t, T),):
        x = tp.input("x", (), domain=(t,))
        y = tp.recurrence((), domain=(t,), name="y")
        y[0] = x[3] + x[T - 2]
        y[t] = y[t - 1] + x
    with pytest.raises(errors.BoundsError, match="the bound T = 1 is too small") as raised:
        ctx.compile({T: tp.upto(8)}, y)
    assert "at_least" in str(raised.value.hint)
    program = ctx.compile({T: tp.upto(8, at_least=4)}, y)
    for n in (4, 8):
        fed = {"x": numbers(n)}
        np.testing.assert_allclose(program.run(fed), ctx.run({T: n}, y, fed), rtol=1e-6)
    with pytest.raises(errors.BoundsError, match="T is 3 in this run"):
        program.run({"x": numbers(3)})


def test_lengths_between_the_least_and_the_greatest_are_checked() -> None:
    """A program that is right for T = 1 and T = 8, and not for T = 2."""
    ctx = tp.Context("t")
    with ctx as ((t, T),):
        x = tp.input("x", (), domain=(t,))
        y = x[T // 2 * 2 % 4]
    program = ctx.compile({T: tp.upto(8)}, y)
    with pytest.raises(errors.OutOfDomainError):
        program.run({"x": numbers(2)})
    assert program.run({"x": numbers(8)}).shape == ()


def test_what_must_be_static_says_so() -> None:
    ctx = tp.Context("t")
    with ctx as ((t, T),):
        x = tp.input("x", (), domain=(t,))
        (y,) = tp.udf(lambda a: (a.cumsum(),), x[0:T], outputs=[tp.spec((T,))], kind="jax", name="running")
    with pytest.raises(errors.ShapeError, match=r"running|udf") as raised:
        ctx.compile({T: tp.upto(8)}, y)
    assert raised.value.hint and "test_run_bounds.py" in str(raised.value)


def test_profiles_explanations_and_functions_of_jax() -> None:
    _, program, T = simple()
    profile = program.profile({"x": np.ones(3, "float32")})
    assert profile.results.shape == (3,)
    assert program.profile({"x": lambda t: 1.0}, bounds={T: 2}).results.shape == (2,)
    assert "a run chooses" in program.explain()
    function = program.as_jax()
    assert function(function.init(), {"x": np.ones(3, "float32")})[1].shape == (3,)


def test_kept_programs_are_for_all_bounds(tmp_path: Path) -> None:
    ctx = tp.Context("t")
    with ctx as ((t, T),):
        h = recurrence(t, T, tp.input("x", (2,), domain=(t,)))["h"]
    config = tp.Config(cache=tmp_path)
    first = ctx.compile({T: tp.upto(6)}, h, config)
    expected = [first.run({"x": numbers(n, 2)}) for n in (2, 5)]
    again = ctx.compile({T: tp.upto(6)}, h, config)
    for n, value in zip((2, 5), expected, strict=True):
        np.testing.assert_array_equal(again.run({"x": numbers(n, 2)}), value)
    assert again.compiles == 0 and "passes, schedule" in again.message
    for other in ({T: tp.upto(6, at_least=2)}, {T: 6}):
        assert "passes" not in ctx.compile(other, h, config).message
