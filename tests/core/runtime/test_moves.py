"""Loops that only move values are one write into each store."""

from __future__ import annotations

import jax
import numpy as np
import pytest

import tempo_core as tp
from benchmarks.hlo import parse
from tempo_core import prices
from tests import reference
from tests.core.running import assert_all_same

WIDTH = 4


def loops(program: tp.Program) -> int:
    """The loops of the XLA programs."""
    assert program._staged is not None
    modules = [parse(segment.compiled.as_text()) for segment in program._staged.segments if segment.compiled is not None]
    return sum(len(list(module.loops())) for module in modules)


def attention(past: tp.Tensor, x: tp.Tensor) -> tp.Tensor:
    return tp.softmax(past @ x, axis=0) @ past


class Told:
    """A model that attends to its past, in `layers` layers or in one without a step. Before P, it is given its tokens."""

    def __init__(self, layers: int = 0):
        self.context = tp.Context("p", "t", "l") if layers else tp.Context("p", "t")
        with self.context as ((p, P), (t, T), *rest):
            given, w = tp.input("given", (WIDTH,), domain=(p,)), tp.input("w", (WIDTH, WIDTH))
            token = tp.recurrence((WIDTH,), domain=(t,), name="token")
            self.bounds = {"P": P, "T": T}
            if layers:
                ((layer, L),) = rest
                self.bounds["L"] = L
                h = tp.recurrence((WIDTH,), domain=(t, layer), name="h")
                key = tp.tanh(h @ w).named("key")
                after = h + attention(key[0 : t + 1, layer], h)
                tp.carry(h, token, after, kept=(t,))
                last = after[t, L - 1]
            else:
                key = tp.tanh(token @ w).named("key")
                last = attention(key[0 : t + 1], token) + token
            token[t < P] = given[t]
            token[t] = tp.tanh(last)[t - 1]
            self.outputs = [token]
        self.layers = layers

    def numbers(self, P: object, T: object) -> dict[tp.Expr, object]:
        named = {"P": P, "T": T, "L": self.layers}
        return {bound: named[name] for name, bound in self.bounds.items()}

    def fed(self, P: int) -> dict[str, np.ndarray]:
        random = np.random.default_rng(P)
        return {
            "given": random.normal(size=(P, WIDTH)).astype("float32"),
            "w": random.normal(size=(WIDTH, WIDTH)).astype("float32"),
        }

    def expected(self, P: int, T: int) -> list[np.ndarray]:
        return reference.evaluate(self.context, self.outputs, self.numbers(P, T), self.fed(P))


@pytest.mark.parametrize("layers", [0, 3])
def test_what_is_kept_of_a_prompt_is_moved_without_a_loop(layers: int):
    told = Told(layers)
    program = told.context.compile(told.numbers(20, 24), told.outputs)
    assert_all_same(program.run(told.fed(20)), told.expected(20, 24), 1e-5)
    # With layers: one loop over the layers of the prompt, one over the points after it, and one over their layers.
    assert loops(program) == (3 if layers else 1)


@pytest.mark.parametrize(("P", "T"), [(1, 3), (9, 24), (20, 20), (20, 24), (12, 5)])
@pytest.mark.parametrize("layers", [0, 3])
def test_how_much_is_moved_may_be_known_in_the_run_only(layers: int, P: int, T: int, programs: dict[int, tp.Program]):
    told = Told(layers)
    if layers not in programs:
        programs[layers] = told.context.compile(told.numbers(tp.upto(20), tp.upto(24)), told.outputs)
    (bound,) = [each for each in programs[layers].limits if str(each) == "T"]
    results = programs[layers].run(told.fed(P), bounds={bound: T})
    assert_all_same(results, told.expected(P, T), 1e-5)


@pytest.fixture(scope="module")
def programs() -> dict[int, tp.Program]:
    return {}


def test_a_value_that_is_handed_on_is_not_moved_at_once():
    ctx = tp.Context("t")
    with ctx as ((t, T),):
        x = tp.input("x", (), domain=(t,))
        first = tp.recurrence((), domain=(t,), name="first")
        first[0] = x[0] * 2
        first[t + 1] = first
        delayed = tp.recurrence((), domain=(t,), name="delayed")
        delayed[0] = 0.0
        delayed[t + 1] = x
    data = {"x": np.arange(20, dtype="float32") + 1}
    program = ctx.compile({T: 20}, [first, delayed], tp.Config(disable=("vectorize",)))
    first_, delayed_ = program.run(data)
    np.testing.assert_array_equal(first_, np.full(20, 2.0, "float32"))
    np.testing.assert_array_equal(delayed_, [0.0, *data["x"][:-1]])


def test_several_points_of_a_tensor_in_an_iteration_are_moved():
    ctx = tp.Context("b", "i", "t")
    with ctx as ((b, B), (i, I), (t, T)):
        x, y = (tp.input(name, (1,), domain=(b, i, t)) for name in "xy")
        rounded = tp.ceil(x)
        outputs = [y[b, i, t], rounded[b, i, t, (i >= 1) & (t < T - 1)]]
    data = np.arange(40, dtype="float32").reshape(1, 20, 2, 1)
    program = ctx.compile({B: 1, I: 20, T: 2}, outputs, tp.Config(disable=("simplify", "vectorize", "trim")))
    assert program.text("program").count("\n  y[0, i, ") == 2
    np.testing.assert_array_equal(program.run({"x": data, "y": data})[0], data)


def test_few_or_large_moves_stay_a_loop(monkeypatch: pytest.MonkeyPatch):
    told = Told()
    monkeypatch.setattr(prices, "MOST_BYTES_OF_A_MOVE", WIDTH * 4 - 1)
    program = told.context.compile(told.numbers(20, 24), told.outputs)
    assert_all_same(program.run(told.fed(20)), told.expected(20, 24), 1e-5)
    assert loops(program) == 2
    few = told.context.compile(told.numbers(7, 24), told.outputs)
    assert_all_same(few.run(told.fed(7)), told.expected(7, 24), 1e-5)
    assert loops(few) == 2


def test_jax_goes_through_moves_backwards():
    told = Told()
    with told.context:
        loss = (told.outputs[0] ** 2)[0 : told.bounds["T"]].sum()
    program = told.context.compile(told.numbers(20, 24), {"loss": loss})
    function, fed = program.as_jax(), told.fed(20)
    gradient = jax.grad(lambda w: function(function.init(), {**fed, "w": w})[1]["loss"])(fed["w"])
    small = 1e-2 * np.eye(WIDTH, dtype="float32")
    ahead, behind = (program.run({**fed, "w": fed["w"] + sign * small})["loss"] for sign in (1, -1))
    np.testing.assert_allclose((ahead - behind) / 2, (np.asarray(gradient) * small).sum(), rtol=2e-2)
