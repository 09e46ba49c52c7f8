"""Programs as JAX functions: the values of a run, under jit, vmap and grad; carried state; declared gradients; errors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tempo_core as tp
from tempo_core import errors
from tests import reference
from tests.core.running import assert_all_same, assert_same
from tests.core.runtime.test_unroll import Stack

RANDOM = np.random.default_rng(0)
X = RANDOM.normal(size=(5, 3)).astype("float32")
W = RANDOM.normal(size=(3,)).astype("float32")
FED = {"x": X, "w": W}


class Network:
    """A recurrent network with noise, its loss, and Tempo's gradients of it."""

    def __init__(self, noise: float = 0.1):
        self.context = tp.Context("t")
        with self.context as ((t, T),):
            x, w = tp.input("x", (3,), domain=(t,)), tp.input("w", (3,))
            h = tp.recurrence((3,), domain=(t,), name="h")
            h[0] = tp.zeros((3,))
            h[t + 1] = tp.tanh(h * w + x + noise * tp.random.normal((3,), domain=(t,)))
            self.loss = tp.square(h[0:T]).mean()
            dw, dx = tp.grad(self.loss, [w, x])
            self.outputs = {"loss": self.loss, "dw": dw, "dx": dx, "h": h, "past": h[0 : t + 1], "odd": h[t % 2 == 1]}
        self.bounds = {T: 5}

    def compiled(self, *names: str, **options: Any) -> tp.Program[dict[str, Any]]:
        outputs = {name: self.outputs[name] for name in names or self.outputs}
        return self.context.compile(self.bounds, outputs, tp.Config(**options))


NETWORK = Network()


class Attention:
    """Attention to the past in tiles, whose number grows with t: a loop whose length is known only in the device program."""

    def __init__(self) -> None:
        self.context = tp.Context("t")
        with self.context as ((t, T),):
            w = tp.input("w", (3,))
            h = tp.recurrence((3,), domain=(t,), name="h")
            h[0] = w
            scores = h[0 : t + 1] @ h
            h[t + 1] = tp.tanh(tp.softmax(scores, 0) @ h[0 : t + 1]) + 0.1 * w  # in tiles
            loss = h[T - 1].sum()
            self.outputs = {"loss": loss, "dw": tp.grad(loss, [w])[0]}
        self.program = self.context.compile({T: 6}, self.outputs, tp.Config(tile={"t": 2}))


def dense(value: Any) -> Any:
    """A result of a run as a JAX function gives it: zeros where it is masked."""
    return value.filled(0) if isinstance(value, np.ma.MaskedArray) else value


def as_numpy(value: Any) -> Any:
    return jax.tree.map(np.asarray, value)


# -- values -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("options", [{}, {"launch_seconds": 0.0}, {"disable": ("vectorize", "create", "registers")}], ids=str)
def test_a_call_gives_what_a_run_gives(options: Any) -> None:
    program = NETWORK.compiled(**options)
    f = program.as_jax()
    state = f.init(seed=7)
    for call in (f, jax.jit(f)):
        seed = int(state.seed)
        state, results = call(state, FED)
        expected = program.run(FED, seed=seed)
        assert set(results) == set(expected)
        for name, value in expected.items():
            assert all(isinstance(leaf, jax.Array) for leaf in jax.tree.leaves(results[name]))
            assert_same(as_numpy(results[name]), dense(value), 1e-6, name)
    assert int(f.init(seed=7).seed) == 7 and seed != 7


def test_a_call_is_one_device_program_without_calls_of_the_host() -> None:
    f = NETWORK.compiled(launch_seconds=0.0).as_jax()
    program = jax.make_jaxpr(f)(f.init(), FED)
    assert [str(equation.primitive) for equation in program.eqns] == ["jit"]
    assert not program.effects


def test_the_results_have_the_form_of_the_outputs() -> None:
    context, bounds, loss, h = NETWORK.context, NETWORK.bounds, NETWORK.loss, NETWORK.outputs["h"]
    for outputs in (h, [loss, h], {"h": h}):
        program = context.compile(bounds, outputs)
        f = program.as_jax()
        _, results = f(f.init(), FED)
        assert jax.tree.structure(results) == jax.tree.structure(program.run(FED))
    f = context.compile(bounds, []).as_jax()
    assert f(f.init(), FED)[1] == []


@pytest.mark.cpu
def test_layers_that_are_written_out_take_their_weights_from_one_array() -> None:
    stack = Stack()
    program = stack.compiled()
    assert program._staged is not None and program._staged.unrolled.inputs
    f = program.as_jax()
    assert_all_same(as_numpy(jax.jit(f)(f.init(), stack.inputs)[1]), program.run(stack.inputs), 1e-5)


def test_a_state_is_not_used_up_and_each_state_draws_other_numbers() -> None:
    f = NETWORK.compiled("h").as_jax()
    first = f.init(seed=3)
    second, one = f(first, FED)
    _, same = f(first, FED)
    _, other = f(second, FED)
    np.testing.assert_array_equal(one["h"], same["h"])
    assert not np.array_equal(one["h"], other["h"])
    assert int(f.init().seed) == 0 and int(f.init(seed=-1).seed) == 2**32 - 1
    assert int(NETWORK.compiled("h", seed=9).as_jax().init().seed) == 9


def test_bound_inputs_are_part_of_the_function() -> None:
    program = NETWORK.compiled("h", "loss")
    f = program.bind({"w": W}).as_jax()
    assert repr(f) == "<JaxFunction x -> h, loss>"
    _, results = jax.jit(f)(f.init(seed=2), {"x": X})
    assert_same(np.asarray(results["h"]), program.run(FED, seed=2)["h"])


def test_inputs_are_converted_as_those_of_a_run_are() -> None:
    f = NETWORK.compiled("h").as_jax()
    _, expected = f(f.init(), FED)
    for w in (W.astype("float64"), W.tolist(), jnp.asarray(W)):
        np.testing.assert_array_equal(f(f.init(), {"x": X, "w": w})[1]["h"], expected["h"])
    whole = jnp.arange(3, dtype=jnp.int32)  # traced integers for an input of floats
    np.testing.assert_array_equal(
        jax.jit(f)(f.init(), {"x": X, "w": whole})[1]["h"], f(f.init(), {"x": X, "w": np.arange(3.0)})[1]["h"]
    )
    ctx = tp.Context("t")
    with ctx as ((_, T),):
        n = tp.input("n", (), "int8")
        doubled = n * 2
    g = ctx.compile({T: 1}, doubled).as_jax()
    assert int(jax.jit(g)(g.init(), {"n": jnp.int32(4)})[1]) == 8


# -- transformations --------------------------------------------------------------------------------------------------


def test_vmap_over_inputs_and_over_seeds() -> None:
    program = NETWORK.compiled("h", "loss")
    f = program.as_jax()
    seeds = jnp.arange(3)
    states = jax.vmap(lambda seed: f.init(seed=seed))(seeds)
    many = {"x": np.stack([X, 2 * X, -X]), "w": W}
    following, results = jax.vmap(f, in_axes=(0, {"x": 0, "w": None}))(states, many)
    for k in range(3):
        expected = program.run({"x": many["x"][k], "w": W}, seed=k)
        for name, value in expected.items():
            assert_same(np.asarray(results[name][k]), value, 1e-5, name)
        assert following.seed[k] == f(f.init(seed=k), FED)[0].seed


@pytest.mark.parametrize("options", [{}, {"disable": ("vectorize", "lift", "accumulate")}, {"disable": ("registers",)}], ids=str)
def test_jax_differentiates_the_device_program(options: Any) -> None:
    program = NETWORK.compiled("loss", "dw", "dx", **options)
    f = program.as_jax()
    state = f.init(seed=4)
    gradients = jax.jit(jax.grad(lambda inputs: f(state, inputs)[1]["loss"]))(FED)
    expected = program.run(FED, seed=4)
    assert_same(np.asarray(gradients["w"]), expected["dw"], 1e-5)
    assert_same(np.asarray(gradients["x"]), expected["dx"], 1e-5)


def test_jax_differentiates_large_stores_of_which_ranges_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """A run writes them in a loop of its own, through which JAX could not go backwards."""
    monkeypatch.setattr("tempo_core.prices.LEAST_SECONDS_OF_COPIES", 0.0)
    ctx = tp.Context("t")
    with ctx as ((t, T),):
        w = tp.input("w", (3,))
        h = tp.recurrence((3,), domain=(t,), name="h")
        h[0] = w
        h[t + 1] = tp.tanh(h[0 : t + 1].mean(0) * w)
        loss = h[T - 1].sum()
        program = ctx.compile({T: 5}, {"loss": loss, "dw": tp.grad(loss, [w])[0]}, tp.Config(disable=("lift", "accumulate")))
    f = program.as_jax()
    gradient = jax.grad(lambda w: f(f.init(), {"w": w})[1]["loss"])(W)
    assert_same(np.asarray(gradient), program.run({"w": W})["dw"], 1e-5)


@pytest.mark.slow
def test_a_loop_of_unknown_length_goes_forwards_only() -> None:
    attention = Attention()
    f = attention.program.as_jax()

    def loss(w: Any) -> Any:
        return f(f.init(), {"w": w})[1]["loss"]

    expected = attention.program.run({"w": W})
    assert_same(np.asarray(jax.jit(loss)(W)), expected["loss"], 1e-5)
    value, slope = jax.jvp(loss, (W,), (np.ones_like(W),))
    np.testing.assert_allclose(slope, expected["dw"].sum(), rtol=1e-4)
    np.testing.assert_allclose(jax.vmap(loss)(np.stack([W, W])), [value, value], rtol=1e-6)
    with pytest.raises(errors.GradientError, match="cannot differentiate backwards through the loop over t_tile") as caught:
        jax.jit(jax.grad(loss))(W)
    assert caught.value.where.startswith(__file__) and "# in tiles" in str(caught.value)
    assert 'program.as_jax(gradients={"loss": {"w": "dw"}})' in caught.value.hint
    with pytest.raises(errors.GradientError, match="backwards"):
        jax.vmap(jax.grad(loss))(np.stack([W, W]))


def test_training_loops_of_ones_own_equal_those_of_the_program() -> None:
    """Ten steps of gradient descent: in a scan over calls, and as a recurrence."""
    ctx = tp.Context("i", "t")
    with ctx as ((i, I), (t, T)):
        x, first = tp.input("x", (3,), domain=(t,)), tp.input("w", (3,))
        w = tp.recurrence((3,), domain=(i,), name="w")
        w[0] = first
        loss = tp.square(tp.tanh(x * w) - 0.5)[i, 0:T].mean()
        w[i + 1] = w - 0.5 * tp.grad(loss, [w])[0]
        trained = ctx.run({I: 10, T: 5}, w, FED)
    ctx = tp.Context("t")
    with ctx as ((t, T),):
        x, w = tp.input("x", (3,), domain=(t,)), tp.input("w", (3,))
        loss = tp.square(tp.tanh(x * w) - 0.5)[0:T].mean()
        dw = tp.grad(loss, [w])[0]
        program = ctx.compile({T: 5}, {"loss": loss, "dw": dw, "next_w": w - 0.5 * dw})
    f = program.as_jax()

    def descend(w: Any, _: None) -> Any:
        return w - 0.5 * jax.grad(lambda w: f(f.init(), {"x": X, "w": w})[1]["loss"])(w), w

    assert_same(np.asarray(jax.lax.scan(descend, W, None, 10)[1]), trained, 1e-5)
    carrying = program.as_jax(carry={"next_w": "w"})
    assert repr(carrying) == "<JaxFunction x -> loss, dw, next_w>"

    def step(state: tp.JaxState, _: None) -> Any:
        following, _ = carrying(state, {"x": X})
        return following, state.carried["w"]

    assert_same(np.asarray(jax.lax.scan(step, carrying.init({"w": W}), None, 10)[1]), trained, 1e-5)


@pytest.mark.slow
def test_donated_states_leave_the_callers_arrays_alone() -> None:
    program = Attention().program
    f = program.as_jax(carry={"dw": "w"})
    w, mine = jnp.asarray(W), jnp.asarray(W)
    state = f.init({"w": w})
    state, results = jax.jit(f, donate_argnums=0)(state, {})
    jax.jit(f, donate_argnums=0)(state, {})
    np.testing.assert_array_equal(w, W)
    np.asarray(results["dw"])  # is not donated with the state that holds the same value
    bound = program.bind({"w": mine}).as_jax()
    jax.jit(bound, donate_argnums=0)(bound.init(), {})
    np.testing.assert_array_equal(mine, W)


# -- declared gradients -----------------------------------------------------------------------------------------------


def test_declared_gradients_are_those_of_the_program() -> None:
    attention = Attention()
    f = attention.program.as_jax(gradients={"loss": {"w": "dw"}})

    def twice(w: Any) -> Any:
        return 2 * f(f.init(), {"w": w})[1]["loss"]

    expected = attention.program.run({"w": W})
    value, gradient = jax.value_and_grad(twice)(W)
    assert_same(np.asarray(gradient), 2 * expected["dw"], 1e-6)
    assert_same(np.asarray(value), 2 * expected["loss"], 1e-6)
    assert_same(np.asarray(jax.vmap(jax.grad(twice))(np.stack([W, W]))[1]), np.asarray(gradient), 1e-6)
    assert_same(np.asarray(jax.jit(jax.grad(lambda w: jax.jit(twice)(w)))(W)), np.asarray(gradient), 1e-6)


def test_a_declared_gradient_is_taken_as_it_is() -> None:
    """One with the wrong sign, too: JAX does not differentiate the program besides."""
    ctx = tp.Context("t")
    with ctx as ((_, T),):
        a, b = tp.input("a", (3,)), tp.input("b", (3,))
        outputs = {"p": (a * b).sum(), "q": (a + b).sum(), "minus": -a, "plus": b * 1, "twice": a * 2, "n": a.argmax(0)}
    f = ctx.compile({T: 1}, outputs).as_jax(gradients={"p": {"a": "minus", "b": "plus"}, "q": {"a": "twice", "b": "minus"}})

    def both(inputs: Any) -> Any:
        results = f(f.init(), inputs)[1]
        return 3 * results["p"] + results["q"] + jax.lax.stop_gradient(results["twice"].sum())

    gradients = jax.grad(both)({"a": W, "b": 2 * W})
    np.testing.assert_allclose(gradients["a"], -3 * W + 2 * W, rtol=1e-6)
    np.testing.assert_allclose(gradients["b"], 3 * 2 * W - W, rtol=1e-6)


@pytest.mark.parametrize("wrap", [lambda f: f, jax.jit], ids=["plain", "jit"])
def test_what_is_not_declared_is_an_error(wrap: Callable[..., Any]) -> None:
    f = NETWORK.compiled().as_jax(gradients={"loss": {"w": "dw"}})
    state = f.init()
    with pytest.raises(errors.GradientError, match=r"the gradient of the output `h` is not declared.*`loss` by `w`"):
        jax.grad(wrap(lambda w: f(state, {"x": X, "w": w})[1]["h"].sum()))(W)
    with pytest.raises(errors.GradientError, match="the gradient by the input `x` is not declared"):
        jax.grad(wrap(lambda x: f(state, {"x": x, "w": W})[1]["loss"]))(X)


# -- errors -----------------------------------------------------------------------------------------------------------


def small(**options: Any) -> tp.Program[dict[str, Any]]:
    ctx = tp.Context("t")
    with ctx as ((t, T),):
        x, w = tp.input("x", (3,), domain=(t,)), tp.input("w", (3,))
        y = x * w
        outputs = {"y": y, "last": y[T - 1], "loss": y[0:T].sum(), "past": x[0 : t + 1], "odd": y[t % 2 == 1], "n": y.argmax(0)}
    return ctx.compile({T: 5}, outputs, tp.Config(**options))


def on_the_host(kind: str) -> tp.Program[Any]:
    ctx = tp.Context("t")
    with ctx as ((t, T),):
        x = tp.input("x", domain=(t,), streamed=kind == "stream")
        y = x * 2
        if kind == "sink":
            tp.sink(lambda value, t: None, y, name="log")  # here
        if kind == "function":
            (y,) = tp.udf(lambda v: (v,), y, outputs=[tp.spec()], kind="host", name="step")  # here
        return ctx.compile({T: 3}, y)


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        ("sink", "calls the sink `log`"),
        ("function", "calls the function `step` on the host"),
        ("stream", "streams the input `x`"),
    ],
)
def test_a_program_that_calls_the_host_is_refused_at_its_line(kind: str, message: str) -> None:
    with pytest.raises(errors.TempoError, match=message) as caught:
        on_the_host(kind).as_jax()
    assert ("# here" in str(caught.value)) == (kind != "stream") and caught.value.where.startswith(__file__)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"backend": "numpy"}, "interpreted"),
        ({"executor": "interpreted"}, "interpreted"),
        ({"check_numerics": True}, "NumericsError"),
    ],
)
def test_options_that_do_not_fit(options: Any, message: str) -> None:
    with pytest.raises(errors.ConfigError, match=message):
        small(**options).as_jax()


MISTAKES: dict[str, tuple[type[errors.TempoError], str, Callable[[], Any]]] = {
    "an unknown output is carried": (errors.ArgumentError, "has no output 'z'", lambda: small().as_jax(carry={"z": "w"})),
    "an unknown input is carried to": (errors.InputError, "has no input 'z'", lambda: small().as_jax(carry={"last": "z"})),
    "another shape is carried": (errors.ArgumentError, r"float32\[5, 3\], and cannot be carried to the input `w`",
                                 lambda: small().as_jax(carry={"y": "w"})),
    "a varying shape is carried": (errors.ArgumentError, "of a shape that varies", lambda: small().as_jax(carry={"past": "x"})),
    "a partial output is carried": (errors.ArgumentError, "not at all points", lambda: small().as_jax(carry={"odd": "x"})),
    "two are carried to one": (errors.ArgumentError, "two outputs are carried", lambda: twice_carried()),
    "a bound input is carried to": (errors.InputError, "is bound", lambda: small().bind({"w": W}).as_jax(carry={"last": "w"})),
    "carry is a list": (errors.ArgumentError, "not a dict", lambda: small().as_jax(carry=["last"])),
    "a loss is an array": (errors.ArgumentError, "a loss is one float", lambda: small().as_jax(gradients={"y": {"w": "last"}})),
    "a loss is an integer": (errors.ArgumentError, "a loss is one float", lambda: small().as_jax(gradients={"n": {"w": "last"}})),
    "a gradient has another shape": (errors.ArgumentError, "the gradient by the input `w` is",
                                     lambda: small().as_jax(gradients={"loss": {"w": "y"}})),
    "no gradient is declared": (errors.ArgumentError, "at least one", lambda: small().as_jax(gradients={"loss": {}})),
    "the state is a number": (errors.ArgumentError, "not a JaxState", lambda: small().as_jax()(3, FED)),
    "the seed is a text": (errors.ArgumentError, "the seed is of type str, not a number", lambda: small().as_jax().init(seed="a")),
    "an input is an iterator": (errors.InputError, "a JAX function takes arrays", lambda: call({"x": iter(X), "w": W})),
    "an input is a function": (errors.InputError, "a JAX function takes arrays", lambda: call({"x": lambda t: X[t], "w": W})),
    "an input is missing": (errors.InputError, "`w` is missing", lambda: call({"x": X})),
    "an input is unknown": (errors.InputError, "no input `z`", lambda: call({**FED, "z": W})),
    "an input has another shape": (errors.InputError, "has shape", lambda: call({"x": X[:2], "w": W})),
    "inputs are a list": (errors.InputError, "a dict from names", lambda: call([X, W])),
    "a bound input is given": (errors.InputError, "is bound already", lambda: call(FED, small().bind({"w": W}).as_jax())),
    "a carried input is given": (errors.InputError, "is carried", lambda: carried_and_given()),
    "a carried input has no first value": (errors.InputError, "`w` is missing", lambda: small().as_jax(carry={"last": "w"}).init()),
}  # fmt: skip


def call(inputs: Any, f: Any = None) -> Any:
    f = f or small().as_jax()
    return f(f.init(), inputs)


def twice_carried() -> Any:
    ctx = tp.Context("t")
    with ctx as ((_, T),):
        w = tp.input("w", (3,))
        return ctx.compile({T: 1}, {"a": w * 2, "b": w * 3}).as_jax(carry={"a": "w", "b": "w"})


def carried_and_given() -> Any:
    f = small().as_jax(carry={"last": "w"})
    return f(f.init({"w": W}), FED)


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_is_an_error_with_a_hint(name: str) -> None:
    error, message, mistake = MISTAKES[name]
    with pytest.raises(error, match=message) as caught:
        mistake()
    assert caught.value.hint and caught.value.where.startswith(__file__)


def test_the_values_are_those_of_the_reference() -> None:
    network = Network(noise=0.0)
    f = network.compiled("h").as_jax()
    (expected,) = reference.evaluate(network.context, [network.outputs["h"]], network.bounds, FED)
    assert_same(np.asarray(f(f.init(), FED)[1]["h"]), expected)


# -- bounds that each call chooses ----------------------------------------------------------------------------------------


def of_any_length() -> tuple[tp.Program[Any], Any]:
    ctx = tp.Context("t")
    with ctx as ((t, T),):
        x, w = tp.input("x", (2,), domain=(t,)), tp.input("w", (2,))
        h = tp.recurrence((2,), domain=(t,), name="h")
        h[0] = x[0] * w
        h[t + 1] = tp.tanh(h * -0.7 + x[t + 1] * w)
        loss = (h[0:T] * h[0:T]).sum()
        dw, dx = tp.grad(loss, wrt=[w, x])
        outputs = {
            "h": h, "last": h[T - 1], "rest": x[t:T].sum(0), "row": x[0:T].reshape(T * 2), "loss": loss, "dw": dw, "dx": dx,
            "random": tp.random.normal((2,), domain=(t,)),
        }  # fmt: skip
    return ctx.compile({T: tp.upto(8, at_least=2)}, outputs), T


def fed_for(length: int, size: int) -> dict[str, Any]:
    x = np.zeros((size, 2), "float32")
    x[:length] = np.random.default_rng(length).normal(size=(length, 2))
    return {"x": x, "w": np.float32([0.5, 2.0])}


def test_the_shapes_of_inputs_tell_the_bound_and_one_program_serves_all() -> None:
    program, _ = of_any_length()
    function = program.as_jax()
    for length in (2, 5, 8):
        expected = program.run(fed_for(length, length), seed=3)
        _, results = function(function.init(seed=3), fed_for(length, length))
        for name in expected:
            assert results[name].shape == expected[name].shape
            np.testing.assert_allclose(results[name], expected[name], rtol=2e-5, atol=1e-6, err_msg=name)
    assert function._call._cache_size() == 1


@pytest.mark.slow
def test_a_traced_bound_is_a_value() -> None:
    program, T = of_any_length()
    function = program.as_jax(gradients={"loss": {"w": "dw", "x": "dx"}})

    def results(inputs: Any, length: Any) -> Any:
        return function(function.init(), inputs, {T: length})[1]

    for length in (2, 5, 8):
        expected = program.run(fed_for(length, length))
        traced = jax.jit(results)(fed_for(length, 8), length)
        for name, value in expected.items():
            whole = np.zeros_like(traced[name])
            whole[tuple(slice(0, size) for size in value.shape)] = value
            np.testing.assert_allclose(traced[name], whole, rtol=2e-5, atol=1e-6, err_msg=name)
        slopes = jax.jit(jax.grad(lambda inputs, length: results(inputs, length)["loss"]))(fed_for(length, 8), length)
        np.testing.assert_allclose(slopes["w"], expected["dw"], rtol=2e-5)
        np.testing.assert_allclose(slopes["x"][:length], expected["dx"], rtol=2e-5, atol=1e-6)
    losses = jax.vmap(lambda length: results(fed_for(8, 8), length)["loss"])(np.arange(20))
    assert losses[0] == losses[2] and losses[8] == losses[19]  # the limits are 2 and 8
    assert losses[2] != losses[3]


def test_a_step_that_ends_early_has_zeros_past_its_end() -> None:
    ctx = tp.Context("t")
    with ctx as ((t, T),):
        h = tp.recurrence((), domain=(t,), name="h")
        h[0] = tp.input("start", ())
        h[t + 1] = h * 0.5
        ctx.ends(t, when=h < 0.1)
        outputs = {"h": h, "sum": h[0:T].sum(0), "length": tp.ones(()) * T}
    program = ctx.compile({T: 12}, outputs)
    function = program.as_jax()
    starts = np.float32([1.0, 0.3, 8.0])
    _, results = jax.vmap(lambda start: function(function.init(), {"start": start}))(starts)
    for row, start in enumerate(starts):
        expected = program.run({"start": start})
        count = int(expected["length"])
        assert results["length"][row] == count and results["h"].shape == (3, 12)
        np.testing.assert_allclose(results["h"][row, :count], expected["h"], rtol=1e-6)
        assert not results["h"][row, count:].any()


def test_what_a_call_cannot_choose() -> None:
    program, T = of_any_length()
    function = program.as_jax()
    fed = fed_for(5, 5)
    with pytest.raises(errors.BoundsError, match=r"the bound T is 9 in this run"):
        function(function.init(), fed_for(9, 9))
    with pytest.raises(errors.BoundsError, match=r"the bound T is float32\[\]; it is one integer"):
        jax.jit(lambda length: function(function.init(), fed, {T: length}))(2.5)
    with pytest.raises(errors.InputError, match=r"the input `x` has shape \(5, 2\).*needs the shape \(8, 2\)"):
        jax.jit(lambda length: function(function.init(), fed, {T: length}))(3)
    with pytest.raises(errors.ArgumentError, match=r"the output `dx` cannot be carried to the input `x`: its size contains T"):
        program.as_jax(carry={"dx": "x"})
    with pytest.raises(errors.BoundsError, match=r"the program has no bound that a call chooses"):
        fixed = tp.Context("t")
        with fixed as ((t, N),):
            y = tp.input("y", domain=(t,))
        plain = fixed.compile({N: 3}, y).as_jax()
        plain(plain.init(), {"y": np.ones(3)}, {N: 3})
    ragged = tp.Context("t")
    with ragged as ((t, N),):
        y = tp.input("y", domain=(t,))
        prefix = y[0 : t + 1].named("prefix")
    with pytest.raises(errors.ConfigError, match=r"the output `.*` has a shape that varies with a step.*chooses T"):
        ragged.compile({N: tp.upto(4)}, {"prefix": prefix}).as_jax()
