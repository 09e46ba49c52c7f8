"""Steps that end early: points after the end do not exist, the bound is the true end, and the loop ends where it happens."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tempo_core as tp
from tempo_core import errors
from tests import reference
from tests.cases import cells, slow
from tests.core.running import assert_same
from tests.core.runtime.test_live import EXECUTORS

MOST = 12
STARTS = (1.0, 7.0, 0.01, 1e9)  # ends in the middle, later, at once, and never


def halving(t: tp.Expr, T: tp.Expr, x: tp.Tensor) -> tuple[tp.Tensor, Any]:
    """A value that halves until it is small."""
    h = tp.recurrence((), domain=(t,), name="h")
    h[0] = x[0]
    h[t + 1] = h * 0.5
    return h < 0.1, {"h": h, "last": h[T - 1], "number": tp.ones(()) * T, "before": h[tp.max(T - 2, 0)]}


def ranges(t: tp.Expr, T: tp.Expr, x: tp.Tensor) -> tuple[tp.Tensor, Any]:
    ends, outputs = halving(t, T, x)
    h = outputs["h"]
    return ends, {
        "suffix": h[t:T].sum(0),
        "prefix": h[0 : t + 1].max(0),
        "ahead": x[t : tp.min(t + 3, T)].sum(0),
        "all": tp.tanh(h)[0:T].mean(0),
        "of inputs": x[0:T].sum(0),
        "backwards": h[T - 1 - t],
        "ragged": x[t:T] * 2.0,
        "noise": tp.random.normal((), domain=(t,)) + h,
    }


def of_inputs(t: tp.Expr, T: tp.Expr, x: tp.Tensor) -> tuple[tp.Tensor, Any]:
    """An end that inputs decide, which are all there at once."""
    y = x * 2.0
    return x[0 : t + 1].sum(0) > 20.0, {"y": y, "last": y[T - 1], "sum": y[0:T].sum(0)}


def gradient(t: tp.Expr, T: tp.Expr, x: tp.Tensor) -> tuple[tp.Tensor, Any]:
    """A loss over all points there are, and its gradient through them."""
    w = tp.input("w", (), requires_grad=True)
    h = tp.recurrence((), domain=(t,), name="h")
    h[0] = x[0]
    h[t + 1] = h * w
    loss = (h * h)[0:T].mean(0) + h[T - 1]
    (slope,) = tp.grad(loss, wrt=[w])
    return h < 0.1, {"loss": loss, "slope": slope}


def rows(t: tp.Expr, T: tp.Expr, x: tp.Tensor) -> tuple[tp.Tensor, Any]:
    """Three rows, which end together when all are small."""
    h = tp.recurrence((3,), domain=(t,), name="h")
    h[0] = x[0] * np.array([1.0, 2.0, 4.0], "float32")
    h[t + 1] = h * 0.5
    return h < 0.1, {"h": h}


BUILDS = (halving, ranges, of_inputs, rows, gradient)


@pytest.mark.parametrize(("build", "executor"), cells(BUILDS, EXECUTORS), ids=lambda value: getattr(value, "__name__", value))
def test_values(build: Callable[..., Any], executor: str) -> None:
    """One program, of which each run finds out where it ends; the values are those of a program for that bound."""
    config = EXECUTORS[executor]
    plain, ended = tp.Context("t"), tp.Context("t")
    with plain as ((t, P),):
        holds, outputs = build(t, P, tp.input("x", domain=(t,)))
        expected = {**outputs, "ends": holds if not holds.type.rank else holds.all(None)}
    with ended as ((t, T),):
        holds, outputs = build(t, T, tp.input("x", domain=(t,)))
        ended.ends(t, when=holds)
    program = ended.compile({T: MOST}, outputs, config)
    lengths = set()
    for start in STARTS:
        x = (np.arange(MOST) + 1).astype("float32") * np.float32(start)
        more = {"w": np.float32(0.5)} if build is gradient else {}
        whole = plain.run({P: MOST}, expected["ends"], {"x": x, **more}, config)
        n = int(np.argmax(whole)) + 1 if whole.any() else MOST
        result, wanted = program.run({"x": x, **more}), plain.run({P: n}, expected, {"x": x[:n], **more}, config)
        for name, value in result.items():
            assert_same(value, wanted[name], 1e-5, f"{name} of start {start}")
        lengths.add(n)
    assert len(lengths) >= 2
    if config == tp.Config():
        assert program.compiles == 1  # for all ends


def test_the_reference_ends_too() -> None:
    ctx = tp.Context("t")
    with ctx as ((t, T),):
        holds, outputs = halving(t, T, tp.input("x", domain=(t,)))
        ctx.ends(t, when=holds)
    values = reference.evaluate(ctx, list(outputs.values()), {T: MOST}, {"x": np.ones(MOST, "float32")})
    np.testing.assert_allclose(values[0], 0.5 ** np.arange(5), rtol=1e-6)
    assert values[2] == 5.0


def test_the_loop_ends_in_the_device_program() -> None:
    """Points after the end are not computed: a function on the device would see them."""
    ctx = tp.Context("t")
    with ctx as ((t, T),):
        h = tp.recurrence((), domain=(t,), name="h")
        h[0] = tp.constant(1.0)
        h[t + 1] = tp.where(h < 0.1, tp.constant(float("nan")), h * 0.5)  # what follows an end would be NaN
        ctx.ends(t, when=h < 0.1)
        total = h[0:T].sum(0)
    program = ctx.compile({T: 1000}, {"h": h, "total": total})
    result = program.run()
    assert result["h"].shape == (5,) and np.isfinite(result["h"]).all()
    np.testing.assert_allclose(result["total"], 1.9375)
    assert program.compiles == 1 and program.text("plan").count("once each") == 0  # no loop of the host
    assert "while t" not in program.text() and "for t in" in program.text()


class Countdown:
    """An environment with steps that are counted."""

    def __init__(self) -> None:
        self.calls = 0

    def step(self, left: np.ndarray) -> tuple[np.ndarray]:
        self.calls += 1
        return (np.asarray(left - 1, "float32"),)

    def state(self) -> dict[str, Any]:
        return {"calls": np.int64(self.calls)}

    def restore(self, arrays: dict[str, np.ndarray]) -> None:
        self.calls = int(arrays["calls"])


def counting(config: tp.Config, environment: Countdown, seen: list[float]) -> tuple[tp.Program[Any], Any]:
    ctx = tp.Context("t")
    with ctx as ((t, T),):
        left = tp.recurrence((), domain=(t,), name="left")
        left[0] = tp.input("start", ())
        (after,) = tp.udf(environment.step, left, outputs=[tp.spec()], kind="host", stateful=True, name="step")
        left[t + 1] = after
        tp.sink(lambda value, t: seen.append(float(value)), left, name="seen")
        ctx.ends(t, when=after <= 0)
    return ctx.compile({T: 50}, {"left": left, "last": after[T - 1]}, config), T


@pytest.mark.parametrize("executor", EXECUTORS)
def test_functions_on_the_host_are_not_called_after_the_end(executor: str) -> None:
    environment, seen = Countdown(), list[float]()
    program, T = counting(EXECUTORS[executor], environment, seen)
    for start, most in ((3, None), (7, None), (9, 4)):
        environment.calls = 0
        seen.clear()
        n = min(start, most or 50)
        result = program.run({"start": np.float32(start)}, bounds={} if most is None else {T: most})
        np.testing.assert_array_equal(result["left"], start - np.arange(n))
        assert result["last"] == start - n
        assert environment.calls == n and seen == [start - k for k in range(n)]


@pytest.mark.parametrize("executor", EXECUTORS)
def test_runs_that_live(executor: str, tmp_path: Path) -> None:
    environment = Countdown()
    program, _ = counting(EXECUTORS[executor], environment, [])
    whole = program.run({"start": np.float32(6)})
    run = program.start({"start": np.float32(6)})
    for stop in range(3):
        environment.calls = 0
        run.advance()
        saved = run.save(tmp_path / f"state {stop}")
        resumed = program.resume(saved)
        while not resumed.done:
            resumed.advance()
        for name, value in resumed.finish().items():
            np.testing.assert_array_equal(value, whole[name])
    for name, value in run.finish().items():
        np.testing.assert_array_equal(value, whole[name])


def test_profiles_and_explanations() -> None:
    ctx = tp.Context("t")
    with ctx as ((t, T),):
        holds, outputs = halving(t, T, tp.input("x", domain=(t,)))
        ctx.ends(t, when=holds)
    program = ctx.compile({T: MOST}, outputs)
    profile = program.profile({"x": np.ones(MOST)})
    assert profile.results["h"].shape == (5,)
    assert profile.plain_seconds is not None  # it may run twice: nothing outside sees it
    text = program.explain()
    assert "looked at in each iteration" in text and "waits for the condition of the end of t" in text
    assert program.plan().peak_device_bytes > 0 and program.cost().numbers["operations"] > 0


def test_streamed_inputs_are_taken_up_to_the_end() -> None:
    ctx = tp.Context("t")
    with ctx as ((t, T),):
        x = tp.input("x", domain=(t,), streamed=True)
        total = x[0 : t + 1].sum(0)
        ctx.ends(t, when=total > 10.0)
    program = ctx.compile({T: 100}, {"x": x, "total": total})
    values = iter(np.arange(100.0, dtype="float32"))
    result = program.run({"x": values})
    np.testing.assert_array_equal(result["x"], np.arange(6))
    assert next(values) == 6.0  # what follows the end is not taken


def test_an_ended_program_is_kept(tmp_path: Path) -> None:
    ctx = tp.Context("t")
    with ctx as ((t, T),):
        holds, outputs = halving(t, T, tp.input("x", domain=(t,)))
        ctx.ends(t, when=holds)
    config = tp.Config(cache=tmp_path)
    first, again = (ctx.compile({T: MOST}, outputs, config) for _ in range(2))
    expected = first.run({"x": np.ones(MOST)})
    for name, value in again.run({"x": np.ones(MOST)}).items():
        np.testing.assert_array_equal(value, expected[name])
    assert again.compiles == 0 and "passes, schedule" in again.message


def test_two_steps_of_which_one_ends() -> None:
    """Iterations go on until the loss is small; each has all points of the other step."""
    ctx = tp.Context("i", "t")
    with ctx as ((i, I), (t, T)):
        x, w = tp.input("x", domain=(t,)), tp.recurrence((), domain=(i,), name="w")
        w[0] = tp.constant(0.0)
        error = (x - w)[i, 0:T]
        loss = (error * error).mean(0)
        w[i + 1] = w + error.mean(0) * 0.5
        ctx.ends(i, when=loss < 1e-4)
    program = ctx.compile({I: 100, T: 4}, {"w": w, "loss": loss})
    result = program.run({"x": np.ones(4, "float32")})
    assert result["loss"].shape == (8,) and result["loss"][-1] < 1e-4 <= result["loss"][-2]
    np.testing.assert_allclose(result["w"], 1 - 0.5 ** np.arange(8), rtol=1e-5)


@pytest.mark.parametrize("executor", EXECUTORS)
@pytest.mark.parametrize("disable", [(), slow((("fuse",),))], ids=["all passes", "without fuse"])
def test_nothing_runs_at_a_time_counted_from_an_end_that_is_not_known(executor: str, disable: tuple[str, ...]) -> None:
    """The first points of `v` need the end for nothing. A loop after the end reads them, and isl puts them just before that loop."""
    ctx = tp.Context("t")
    with ctx as ((t, T),):
        x = tp.input("x", domain=(t,))
        u = tp.recurrence((), domain=(t,), name="u")
        u[0], u[1] = 0.75, 0.75
        u[t] = (u[t - 1] - u[t - 2] * 0.5) * 0.5
        last = tp.recurrence((), domain=(t,), name="last")
        last[t, t + 1 == T] = tp.tanh(u[t + 1 == T]) * 2
        last[t] = u
        v = tp.recurrence((), domain=(t,), name="v")
        v[t, t < 2] = u
        v[t] = tp.sin(v[t % 2]) - last
        ctx.ends(t, when=x > 0)
    config = EXECUTORS[executor]
    program = ctx.compile({T: 8}, [v[0:T], v], replace(config, disable=(*config.disable, *disable)))
    for end in (1, 2, 3, 8):
        x = np.where(np.arange(8) == end - 1, 1.0, -1.0).astype("float32")
        u = [0.75, 0.75]
        while len(u) < end:
            u.append((u[-1] - u[-2] * 0.5) * 0.5)
        last = [*u[: end - 1], np.tanh(u[end - 1]) * 2]
        wanted = np.array([u[k] if k < 2 else np.sin(u[k % 2]) - last[k] for k in range(end)])
        for value in program.run({"x": x}):
            np.testing.assert_allclose(value, wanted, rtol=1e-5)


@pytest.mark.parametrize("executor", EXECUTORS)
def test_an_end_after_a_number_of_points(executor: str) -> None:
    """No condition waits for the number of points that there are at least: the user vouches for it, and each run is checked."""
    ctx = tp.Context("t")
    with ctx as ((t, T),):
        x = tp.input("x", domain=(t,))
        ctx.ends(t, when=x > 0)
        outputs = {"y": x * 2.0, "third": x[2]}
    program = ctx.compile({T: tp.upto(6, at_least=3)}, outputs, EXECUTORS[executor])
    for end in (3, 5, 6):
        x = np.where(np.arange(6) == end - 1, 1.0, -1.0).astype("float32")
        result = program.run({"x": x})
        np.testing.assert_array_equal(result["y"], x[:end] * 2)
        assert result["third"] == x[2]
    with pytest.raises(errors.BoundsError, match=r"t ended before its point 2; .* tp.upto\(6, at_least=3\)") as raised:
        program.run({"x": np.array([-1, 1, -1, -1, -1, -1], "float32")})
    assert "test_ends.py" in str(raised.value) and "tp.upto(6)" in str(raised.value.hint)


def test_values_of_varying_size_decide_an_end() -> None:
    """Without the pass that pads them first."""
    ctx = tp.Context("t")
    with ctx as ((t, T),):
        sizes = tp.zeros((t + 1,)) + t
        padded = tp.pad(sizes, 1)
        ctx.ends(t, when=sizes.sum() > 5)
        outputs = {"sum": padded.sum(), "padded": padded * 2.0}
    result = ctx.compile({T: tp.upto(6, at_least=2)}, outputs, tp.Config(disable=("pad",))).run({})
    np.testing.assert_array_equal(result["sum"], [0, 2, 6])
    for k, row in enumerate(result["padded"]):
        np.testing.assert_array_equal(row, [0, *[2 * k] * (k + 1), 0])


@pytest.mark.parametrize("executor", EXECUTORS)
def test_points_that_are_needed_up_to_a_place_that_depends_on_an_end(executor: str) -> None:
    """Of `v`, only the end needs points: even ones, and odd ones before these. It is not known while they are computed."""
    ctx = tp.Context("t")
    with ctx as ((t, T),):
        v = tp.recurrence((), domain=(t,), name="v")
        v[0] = tp.input("start", ())
        v[t, t % 2 == 0] = v[t - 1] + 2.0
        v[t] = v[t // 2 * 2] * 0.5
        even = v[t // 2 * 2]
        ctx.ends(t, when=even > 3.0)
        outputs = {"first": v[0], "number": tp.ones(()) * T}
    program = ctx.compile({T: 9}, outputs, EXECUTORS[executor])
    for start, number in ((4.0, 1), (1.0, 5), (-20.0, 9)):
        result = program.run({"start": np.float32(start)})
        assert result["first"] == start and result["number"] == number


@pytest.mark.parametrize("executor", EXECUTORS)
def test_a_pass_has_a_number_of_its_own_for_a_bound_that_the_run_finds_out(executor: str) -> None:
    """Attention over the past takes the bound for a place after all others. It decides the end, and knows none; the true bound is a result."""
    ctx = tp.Context("t")
    with ctx as ((t, T),):
        x = tp.input("x", (3,), domain=(t,))
        attended = tp.softmax(x[0 : t + 1] @ x, 0) @ x[0 : t + 1]
        ctx.ends(t, when=attended.sum() > 1.0)
        outputs = {"attended": attended, "number": tp.ones(()) * T}
    program = ctx.compile({T: 4}, outputs, EXECUTORS[executor])
    for end in (1, 3, 4):
        x = np.where(np.arange(4)[:, None] < end - 1, -1.0, 4.0).astype("float32") * np.ones(3, "float32")
        result = program.run({"x": x})
        assert result["number"] == end and result["attended"].shape == (end, 3)


def test_tiles_of_what_decides_an_end() -> None:
    """How many tiles there are does not depend on the end."""
    ctx = tp.Context("t")
    with ctx as ((t, T),):
        sums = (tp.arange(t + 2) * 0.5).sum()
        ctx.ends(t, when=sums > 7.0)
    program = ctx.compile({T: 9}, [sums[tp.min(3, T - 1)], sums], tp.Config(tile={"t": 4}))
    at_three, whole = program.run({})
    np.testing.assert_allclose(whole, [0.5 * sum(range(k + 2)) for k in range(5)])
    assert at_three == whole[3]


# -- errors -----------------------------------------------------------------------------------------------------------


def misuses() -> Iterator[tuple[str, Callable[..., Any]]]:
    yield r"is not a step of this context", lambda ctx, t, T, x: ctx.ends(t + 1, when=x > 1)
    yield r"`ends` takes a step, got 't'", lambda ctx, t, T, x: ctx.ends("t", when=x > 1)
    yield r"must be a bool, not <Tensor x", lambda ctx, t, T, x: ctx.ends(t, when=x)
    yield r"is not a condition at every point of t", lambda ctx, t, T, x: ctx.ends(t, when=x[0] > 1)
    yield r"has an end already", lambda ctx, t, T, x: (ctx.ends(t, when=x > 1), ctx.ends(t, when=x > 2))


@pytest.mark.parametrize(("message", "misuse"), list(misuses()), ids=[message for message, _ in misuses()])
def test_misuses(message: str, misuse: Callable[..., Any]) -> None:
    ctx = tp.Context("t")
    with ctx as ((t, T),):
        x = tp.input("x", domain=(t,))
        with pytest.raises(errors.TempoError, match=message) as raised:
            misuse(ctx, t, T, x)
    assert raised.value.hint and "test_ends.py" in str(raised.value)


def test_an_end_that_depends_on_itself() -> None:
    for condition in (lambda x, t, T: x[t:T].sum(0) > 1, lambda x, t, T: x > x[T - 1], lambda x, t, T: x * T > 1):
        ctx = tp.Context("t")
        with ctx as ((t, T),):
            x = tp.input("x", domain=(t,))
            ctx.ends(t, when=condition(x, t, T))
        with pytest.raises(errors.CausalityError, match="depends on where it ends") as raised:
            ctx.compile({T: 5}, x * 2.0)
        assert "test_ends.py" in str(raised.value)


def test_what_needs_the_end_before_the_run() -> None:
    ctx = tp.Context("t")
    with ctx as ((t, T),):
        x = tp.input("x", domain=(t,))
        ctx.ends(t, when=x > 1)
    with pytest.raises(errors.ConfigError, match="check_numerics"):
        ctx.compile({T: 5}, x * 2.0, tp.Config(check_numerics=True))
    program = ctx.compile({T: 5}, x * 2.0)
    with pytest.raises(errors.ConfigError, match="as it was compiled"):
        program.stepping({"x": np.ones(5)}, as_written=True)
    assert [step.name for step in program.stepping({"x": np.ones(5)})]


@pytest.mark.parametrize("backend", ["jax", "numpy"])
def test_what_decides_an_end_varies_with_another_bound_that_a_run_chooses(backend: str) -> None:
    """Rows go on from prompts of any length, and all of them end when each has been large."""
    ctx = tp.Context("b", "p", "t")
    with ctx as ((b, B), (p, P), (t, T)):
        prompt = tp.input("prompt", (), "int32", domain=(b, p))
        token = tp.recurrence((), "int32", domain=(b, t), name="token")
        token[b, t, t < P] = prompt[b, t]
        token[b, t + 1] = token * 3 % 97
        over = token > 90
        done = tp.recurrence((), "bool", domain=(b, t), name="done")
        done[b, 0] = over[b, 0]
        done[b, t + 1] = done | over[b, t + 1]
        ctx.ends(t, when=done)
    program = ctx.compile({B: 2, P: tp.upto(8), T: tp.upto(40)}, token, tp.Config(backend=backend))
    for prompts in ([[1, 2, 5], [4, 5, 6]], [[1], [4]], [[95, 1, 1, 1, 1], [1, 1, 1, 93, 7]]):
        rows = [list(row) for row in prompts]
        while len(rows[0]) < 40 and not all(max(row) > 90 for row in rows):
            rows = [[*row, row[-1] * 3 % 97] for row in rows]
        end = max(next((k for k, token in enumerate(row) if token > 90), 39) for row in rows) + 1
        results = program.run({"prompt": np.asarray(prompts, np.int32)}, bounds={T: 40})
        np.testing.assert_array_equal(results, [row[:end] for row in rows])


FIRSTS: dict[str, Callable[[Any], Any]] = {
    "block": lambda t: t // 4 * 4,
    "window": lambda t: tp.max(t - 2, 0),
    "past": lambda t: 0,
}


@pytest.mark.parametrize("first", FIRSTS)
@pytest.mark.parametrize("backend", ["jax", "numpy"])
def test_what_decides_an_end_reads_a_varying_part_of_its_past(backend: str, first: str) -> None:
    """No value that decides where a step ends is masked by that end: it would wait for itself."""
    ctx = tp.Context("p", "t")
    with ctx as ((p, P), (t, T)):
        x = tp.recurrence((), domain=(t,), name="x")
        x[t, t < P] = tp.input("prompt", (), domain=(p,))[t]
        y = x * 0.5 + 1.0
        past = y[FIRSTS[first](t) : t + 1]
        x[t + 1] = (tp.softmax(past, 0) * past).sum(0)
        ctx.ends(t, when=x > 1.5)
    program = ctx.compile({P: tp.upto(8), T: tp.upto(30)}, {"x": x, "sum": y[0:T].sum(0)}, tp.Config(backend=backend))
    firsts = {"block": lambda k: k // 4 * 4, "window": lambda k: max(k - 2, 0), "past": lambda k: 0}
    for prompt in ([0.1] * 3, [-3.0, 0.1, -2.0, 0.3, 0.2, -7.0], [1.25, 1.75], [-80.0]):
        row = list(prompt)
        while len(row) < 30 and not max(row) > 1.5:
            k = len(row) - 1
            values = np.asarray(row[firsts[first](k) :]) * 0.5 + 1.0
            weights = np.exp(values - values.max())
            row.append(float((weights * values).sum() / weights.sum()))
        row = row[: next((k for k, value in enumerate(row) if value > 1.5), 29) + 1]
        results = program.run({"prompt": np.asarray(prompt, "float32")}, bounds={T: 30})
        np.testing.assert_allclose(results["x"], row, rtol=1e-5)
        np.testing.assert_allclose(results["sum"], sum(value * 0.5 + 1.0 for value in row), rtol=1e-5)


def test_the_gradient_of_weights_costs_what_the_run_takes() -> None:
    """Backwards, the loop begins where the run ended; it adds up what each point contributes, and keeps none of it up to the capacity."""
    ctx = tp.Context("t")
    with ctx as ((t, T),):
        x, weight = tp.input("x", (2, 4), domain=(t,)), tp.input("weight", (4, 4))
        h = tp.recurrence((2, 4), domain=(t,), name="h")
        h[0] = x[0]
        h[t] = tp.tanh(h[t - 1] @ weight + x)
        ctx.ends(t, when=abs(h).max((0, 1)) > 0.5)
        (gradient,) = tp.grad((h**2).sum((0, 1))[0:T].sum(0), wrt=[weight])
    program = ctx.compile({T: 5000}, [gradient])
    assert "for c0 in 1 - T:1" in program.text() and "5000" not in program.text()
    assert " gradient[-c0]" in program.text(), "a sum that the loop carries"
    random = np.random.default_rng(0)
    x = 0.05 * random.normal(size=(12, 2, 4)).astype("float32")
    x[9] = 1.0
    fed = {"x": x, "weight": random.normal(size=(4, 4)).astype("float32") / 4}
    small = ctx.compile({T: 12}, [gradient])
    assert_same(small.run(fed)[0], reference.evaluate(ctx, [gradient], {T: 12}, fed)[0])
