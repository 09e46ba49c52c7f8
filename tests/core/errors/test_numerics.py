"""`Config(check_numerics=True)` traces NaN and infinities to the line where they began, in every executor."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tempo_core as tp
from tempo_core import errors

SETTINGS = {
    "staged": tp.Config(check_numerics=True),
    "staged, no passes": tp.Config(check_numerics=True, disable=("vectorize", "lift", "fuse")),
    "numpy": tp.Config(check_numerics=True, backend="numpy"),
    "interpreted": tp.Config(check_numerics=True, executor="interpreted"),
}
Outputs = list[tp.Tensor]


@pytest.fixture(params=SETTINGS)
def config(request: pytest.FixtureRequest) -> tp.Config:
    return SETTINGS[request.param]


class At:
    """Steps i and t, and an input x over t."""

    def __init__(self) -> None:
        self.ctx = tp.Context("i", "t")
        with self.ctx as ((self.i, self.I), (self.t, self.T)):
            self.x = tp.input("x", (), domain=(self.t,))


def run(build: Callable[[At], Outputs], values: Any, config: tp.Config) -> Any:
    at = At()
    with at.ctx:
        outputs = build(at)
    return at.ctx.run({at.I: 3, at.T: 5}, outputs=outputs, inputs={"x": np.array(values, np.float32)}, config=config)


# -- what is wrong ----------------------------------------------------------------------------------------------------


def of_a_recurrence(at: At) -> Outputs:
    h = tp.recurrence((), domain=(at.t,), name="h")
    h[0] = at.x[0]
    h[at.t] = tp.sqrt(h[at.t - 1] - 1).named("root") + at.x
    return [tp.isnan(h).any()]  # the output is not NaN, but the carried value is


def of_a_window(at: At) -> Outputs:
    return [(1 / at.x[0 : at.t + 1]).named("inverse").sum(0).named("total")]


def of_a_sink(at: At) -> Outputs:
    loss = tp.log(at.x).named("loss")
    tp.sink(lambda value, t: None, loss * 2, name="logger")
    return []


def of_a_host_function(at: At) -> Outputs:
    (lower,) = tp.udf(lambda v: (v - 1,), at.x, outputs=[tp.spec()], kind="host", stateful=True, name="env")
    return [tp.log(lower).named("log_lower")]


def of_a_gradient(at: At) -> Outputs:
    safe = tp.where(at.x > 0, tp.sqrt(at.x), 0.0)  # its value is finite; its gradient is 0 * inf
    return tp.grad(safe.sum(), [at.x])


def of_an_overflow(at: At) -> Outputs:
    return [tp.exp(at.x * 100).named("grown")]


WRONG: dict[str, tuple[Callable[[At], Outputs], list[float], str]] = {
    "recurrence": (
        of_a_recurrence,
        [1, 0.5, 2, 3, 4],
        "`root` (sqrt) is not a number at t = 2; it reaches the recurrence `h` at t = 2",
    ),
    "window": (
        of_a_window,
        [1, 2, 0, 3, 4],
        "`inverse` (div) is infinite at t = 2: 1 of 3 elements, the first at [2]; it reaches output 0",
    ),
    "sink": (of_a_sink, [1, 2, 3, -4, 5], "`loss` (log) is not a number at t = 3; it reaches the sink `logger` at t = 3"),
    "host function": (
        of_a_host_function,
        [2, 3, 1, 3, 4],
        "`log_lower` (log) is infinite at t = 2; it reaches output 0, `log_lower`",
    ),
    "gradient": (of_a_gradient, [1, 2, 0, 3, 4], "is not a number at t = 2"),
    "overflow": (of_an_overflow, [0.1, 0.2, 0.3, 0.4, 2], "`grown` (exp) is infinite at t = 4; it reaches output 0, `grown`"),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_value_that_is_not_finite_is_traced_to_where_it_begins(name: str, config: tp.Config) -> None:
    build, values, message = WRONG[name]
    with pytest.raises(errors.NumericsError) as caught:
        run(build, values, config)
    assert message in caught.value.message
    assert caught.value.where.startswith(__file__)
    assert caught.value.hint


@pytest.mark.parametrize("name", WRONG)
def test_it_is_not_looked_for_unless_asked(name: str) -> None:
    build, values, _ = WRONG[name]
    assert isinstance(run(build, values, tp.Config(backend="numpy")), list), (
        "a run without errors gives its outputs, whatever they are"
    )


def test_an_input_that_is_nan_is_named(config: tp.Config) -> None:
    with pytest.raises(errors.NumericsError, match=r"the input `x` is fed with NaN: 1 of 5 elements, the first at \[3\]"):
        run(lambda at: [at.x * 2], [1, 2, 3, np.nan, 5], config)


def test_the_operands_are_in_the_hint() -> None:
    with pytest.raises(errors.NumericsError) as caught:
        run(of_a_window, [1, 2, 0, 3, 4], SETTINGS["numpy"])
    assert str(caught.value.hint).startswith("its operands are 1 and 0 to 2; the divisor is 0")


# -- what is meant ----------------------------------------------------------------------------------------------------


def masked_softmax(at: At) -> Outputs:
    scores, positions = at.x[0 : at.T], tp.arange(at.T)
    return [tp.where(positions <= at.t, scores * at.x, -np.inf).softmax(-1)]


def infinite_scores(at: At) -> Outputs:
    return [tp.where(tp.arange(at.T) <= at.t, at.x[0 : at.T], -np.inf)]


def a_running_maximum(at: At) -> Outputs:
    best = tp.recurrence((), domain=(at.t,), name="best")
    best[0] = -np.inf
    best[at.t] = tp.maximum(best[at.t - 1], at.x)
    return [best]


def what_is_chosen_away(at: At) -> Outputs:
    return [tp.where(at.x > 0, tp.log(at.x), 0.0), tp.where(at.x > 0, 1 / at.x, 0.0)]


def padding(at: At) -> Outputs:
    return [tp.log(at.x[0 : at.t + 1] + 1).sum(0), (1 / (at.x[at.t : at.T] + 1)).sum(0)]


def infinite_inputs(at: At) -> Outputs:
    return [at.x, tp.exp(-tp.absolute(at.x)) if hasattr(tp, "absolute") else tp.exp(-tp.abs(at.x))]


def outside_of_a_triangle(at: At) -> Outputs:
    """The logarithm of what is not positive before t = i: nothing reads it there, and no sum of an interval contains it."""
    i, t = at.i, at.t
    table = tp.recurrence((), domain=(i, t), name="table")
    logs = tp.log(at.x - at.x[i] + 0.5) * table
    table[i, t, i < t] = logs[i, i:t].sum(0) * 0.1 + at.x
    table[i, t] = at.x
    total = (table**2)[0 : at.I, 0 : at.T].sum()
    return [table, *tp.grad(total, wrt=[at.x])]


MEANT: dict[str, tuple[Callable[[At], Outputs], list[float]]] = {
    "masked softmax": (masked_softmax, [1, 2, 3, 4, 5]),
    "infinite scores": (infinite_scores, [1, 2, 3, 4, 5]),
    "a running maximum": (a_running_maximum, [1, 3, 2, 5, 4]),
    "chosen away": (what_is_chosen_away, [1, 0, -2, 3, 0]),
    "padding": (padding, [0, 1, 2, 3, 4]),
    "outside of a triangle": (outside_of_a_triangle, [0, 1, 2, 3, 4]),
    "infinite inputs": (infinite_inputs, [0, np.inf, 2, -np.inf, 4]),
}


@pytest.mark.parametrize("name", MEANT)
def test_what_is_meant_is_no_error(name: str, config: tp.Config) -> None:
    build, values = MEANT[name]
    results = run(build, values, config)
    for one, other in zip(results, run(build, values, tp.Config(backend="numpy")), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5)


def test_a_mask_of_everything_is_an_error(config: tp.Config) -> None:
    """-inf - -inf is NaN, though the user wrote both infinities."""
    with pytest.raises(errors.NumericsError, match=r"the result of sub is not a number at t = 0: 5 of 5 elements"):
        run(lambda at: [tp.where(tp.arange(at.T) < at.t, at.x[0 : at.T], -np.inf).softmax(-1)], [1, 2, 3, 4, 5], config)


def test_host_functions_are_not_called_again_to_find_it() -> None:
    calls: list[int] = []

    def env(value: np.ndarray) -> tuple[np.ndarray]:
        calls.append(len(calls))
        return (value - len(calls),)

    def build(at: At) -> Outputs:
        (state,) = tp.udf(env, at.x, outputs=[tp.spec()], kind="host", stateful=True, name="env")
        tp.sink(lambda value, t: None, tp.log(state).named("log_state"), name="logger")
        return []

    with pytest.raises(errors.NumericsError, match=r"`log_state` \(log\) is infinite at t = 2"):
        run(build, [5, 5, 3, 9, 9], tp.Config(check_numerics=True))
    assert calls in ([0, 1, 2], [0, 1, 2, 3])  # the calls of the run alone


def test_a_program_runs_again_after_a_numerics_error(config: tp.Config) -> None:
    at = At()
    with at.ctx:
        outputs = of_a_window(at)
    program = at.ctx.compile({at.I: 2, at.T: 5}, outputs=outputs, config=config)
    with pytest.raises(errors.NumericsError):
        program.run({"x": np.zeros(5)})
    np.testing.assert_allclose(program.run({"x": np.ones(5)})[0], [1, 2, 3, 4, 5])
