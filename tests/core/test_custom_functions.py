"""JAX functions of the user's as ops: operands that are pytrees, rules for batches and slopes, costs, Pallas kernels."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.experimental import pallas as pl

import tempo_core as tp
from tempo_core import errors
from tempo_core.ir.graph_text import function_table, to_text
from tempo_core.ir.ops import Udf
from tests import reference
from tests.cases import cells, first
from tests.core.running import SETTINGS, assert_all_same
from tests.graph_parser import parse

RANDOM = np.random.default_rng(0)
FED = {
    "x": RANDOM.normal(size=(4, 3)).astype("float32"),
    "w": RANDOM.normal(size=(2, 3)).astype("float32"),
    "b": RANDOM.normal(size=(2,)).astype("float32"),
}
SPECS = [tp.spec((2,)), tp.spec(), tp.spec((), "int32")]


def layer(p: Any, x: Any) -> Any:
    return jnp.tanh(p["w"] @ x + p["b"][0] * p["b"][1]), x.sum(), x.argmax().astype("int32")


class Rules:
    """The rules of `layer`, and how often they are used. `wrong` is added to their results, so that a test sees them."""

    def __init__(self, wrong: float = 0.0):
        self.batches: list[Any] = []
        self.slopes: list[Any] = []
        self.wrong = wrong

    def batch(self, size: int, batched: Any, p: Any, x: Any) -> Any:
        self.batches.append((size, batched))
        axes = jax.tree.map(lambda has: 0 if has else None, batched)
        first, second, third = jax.vmap(layer, in_axes=axes, axis_size=size)(p, x)
        return [first + self.wrong, second, third]

    def slope(self, operands: Any, results: Any, gradients: Any) -> Any:
        (p, x), (y, _, place), (g, total, none) = operands, results, gradients
        assert none is None and place.dtype == jnp.int32
        self.slopes.append(len(operands))
        d = g * (1 - y * y)
        return {"w": jnp.outer(d, x) + self.wrong, "b": (d * p["b"][1], None)}, p["w"].T @ d + total


class Layer:
    """`layer` at each t, its results and its gradients."""

    def __init__(self, differentiated: bool = True, moving: bool = False, **options: Any):
        self.context = tp.Context("t")
        with self.context as ((t, T),):
            x, w, b = tp.input("x", (3,), domain=(t,)), tp.input("w", (2, 3)), tp.input("b", (2,))
            scale = tp.full((2,), 0.5) * (t + 1 if moving else 1)
            self.y, self.total, place = tp.udf(layer, {"w": w * 2, "b": (b, scale)}, x, outputs=SPECS, **options)
            self.loss = tp.square(self.y[0:T]).sum() + tp.square(self.total)[0:T].sum()
            self.outputs = [self.y, self.total, place]
            if differentiated:
                self.outputs += tp.grad(self.loss, [w, b, x])
        self.bounds = {T: 4}

    def run(self, setting: str = "staged") -> list[Any]:
        return self.context.run(self.bounds, self.outputs, FED, SETTINGS[setting])

    def expected(self) -> list[Any]:
        return reference.evaluate(self.context, self.outputs, self.bounds, FED)


def by_jax() -> list[Any]:
    """The results and gradients of `Layer`, in plain JAX."""

    def results(w: Any, b: Any, x: Any) -> Any:
        return jax.vmap(layer, in_axes=(None, 0))({"w": w * 2, "b": (b, jnp.full((2,), 0.5))}, x)

    def loss(*arrays: Any) -> Any:
        y, total, _ = results(*arrays)
        return (y**2).sum() + (total**2).sum()

    arrays = (FED["w"], FED["b"], FED["x"])
    return [np.asarray(a) for a in (*results(*arrays), *jax.grad(loss, argnums=(0, 1, 2))(*arrays))]


OPTIONS: dict[str, Callable[[], dict[str, Any]]] = {
    "trees alone": dict,
    "batch": lambda: {"batch": Rules().batch},
    "slope": lambda: {"slope": Rules().slope},
    "both": lambda: {"batch": Rules().batch, "slope": Rules().slope},
}


@pytest.mark.parametrize(("name", "setting"), cells(OPTIONS, SETTINGS))
def test_values_and_gradients_are_those_of_jax(name: str, setting: str) -> None:
    network = Layer(**OPTIONS[name]())
    assert_all_same(network.run(setting), by_jax(), 1e-5)


@pytest.mark.parametrize("name", OPTIONS)
def test_the_reference_follows_the_same_rules(name: str) -> None:
    network = Layer(**OPTIONS[name]())
    assert_all_same(network.run(), network.expected(), 1e-5)


def test_a_batch_rule_computes_all_points_at_once() -> None:
    rules = Rules(wrong=1.0)
    network = Layer(differentiated=False, batch=rules.batch)
    assert rules.batches == []
    y, total, _ = network.run()
    assert set(map(str, rules.batches)) == {str((4, ({"b": (False, False), "w": False}, True)))}
    np.testing.assert_allclose(y, by_jax()[0] + 1.0, rtol=1e-5)
    np.testing.assert_allclose(total, FED["x"].sum(-1), rtol=1e-5)


def test_a_batch_rule_is_told_which_operands_points_share() -> None:
    rules = Rules()
    network = Layer(differentiated=False, moving=True, batch=rules.batch)
    assert_all_same(network.run(), network.expected(), 1e-5)
    assert {str(batched) for _, batched in rules.batches} == {str(({"b": (False, True), "w": False}, True))}


def test_a_slope_takes_the_place_of_jaxs() -> None:
    rules = Rules(wrong=1.0)
    results, expected = Layer(slope=rules.slope).run(), by_jax()
    assert rules.slopes
    np.testing.assert_allclose(results[3], expected[3] + 2 * 4, rtol=1e-5)  # w is doubled before, and there are four points
    assert_all_same(results[:3], expected[:3], 1e-5)


def test_jax_follows_the_rules_through_a_program() -> None:
    rules = Rules(wrong=1.0)
    network = Layer(differentiated=False, slope=rules.slope)
    program = network.context.compile(network.bounds, {"loss": network.loss})
    f = program.as_jax()
    gradient = jax.grad(lambda w: f(f.init(), {**FED, "w": w})[1]["loss"])(FED["w"])
    np.testing.assert_allclose(gradient, by_jax()[3] + 2 * 4, rtol=1e-5)
    batching = Rules(wrong=1.0)
    network = Layer(differentiated=False, batch=batching.batch)
    f = network.context.compile(network.bounds, network.y).as_jax()
    many = jax.vmap(lambda w: f(f.init(), {**FED, "w": w})[1])(np.stack([FED["w"], FED["w"]]))
    np.testing.assert_allclose(many[1], by_jax()[0] + 1.0, rtol=1e-5)
    gradient = jax.grad(lambda w: jnp.sum(f(f.init(), {**FED, "w": w})[1]))(FED["w"])  # that of the function, without the rule
    assert gradient.shape == (2, 3) and np.isfinite(gradient).all()


def test_functions_with_equal_rules_are_computed_once() -> None:
    rules = Rules()
    ctx = tp.Context("t")
    with ctx as ((t, T),):
        x = tp.input("x", (3,), domain=(t,))
        p = {"w": tp.input("w", (2, 3)), "b": [tp.input("b", (2,)), tp.ones((2,))]}
        same = [tp.udf(layer, p, x, outputs=SPECS, slope=rules.slope)[0] for _ in range(2)]
        other = tp.udf(layer, p, x, outputs=SPECS, slope=rules.batch)[0]
        listed = tp.udf(layer, {**p, "b": tuple(p["b"])}, x, outputs=SPECS, slope=rules.slope)[0]
        program = ctx.compile({T: 4}, [*same, other, listed], tp.Config(disable=("fuse",)))
    assert len([node for node in program.graph if isinstance(node.op, Udf)]) == 3


def test_host_functions_take_pytrees_too() -> None:
    class Counter:
        def __init__(self) -> None:
            self.count = np.zeros(())

        def state(self) -> dict[str, Any]:
            return {"count": self.count}

        def restore(self, arrays: Any) -> None:
            self.count = arrays["count"]

        def __call__(self, tree: Any) -> Any:
            assert isinstance(tree["pair"], tuple) and isinstance(tree["x"], np.ndarray)
            self.count = self.count + 1
            return (tree["x"] + tree["pair"][1].astype("float32") + np.float32(self.count),)

    ctx = tp.Context("t")
    with ctx as ((t, T),):
        x = tp.input("x", (3,), domain=(t,))
        (y,) = tp.udf(Counter(), {"x": x, "pair": (1.0, t)}, outputs=[tp.spec((3,))], kind="host", stateful=True)
        h = tp.recurrence((3,), domain=(t,), name="h")
        h[0] = y[0]
        h[t] = h[t - 1] + y
        program = ctx.compile({T: 4}, h)
    expected = (FED["x"] + (2 * np.arange(4) + 1)[:, None]).cumsum(0)
    np.testing.assert_allclose(program.run({"x": FED["x"]}), expected, rtol=1e-6)
    run = program.start({"x": FED["x"]})
    run.advance()
    assert any("count" in name for name in run.state)


# -- costs ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("disable", [(), ("vectorize",), ("vectorize", "fuse")], ids=str)
def test_a_declared_cost_is_what_the_program_counts(disable: tuple[str, ...]) -> None:
    def program(cost: Any) -> tp.Program[Any]:
        ctx = tp.Context("t")
        with ctx as ((t, T),):
            x = tp.input("x", (3,), domain=(t,))
            options = {} if cost is None else {"cost": cost(T)}
            outputs = tp.udf(lambda v: (v * 2, v.sum()), x, outputs=[tp.spec((3,)), tp.spec()], name="f", **options)
            return ctx.compile({T: 4}, outputs, tp.Config(disable=disable))

    without = program(None).cost().numbers
    cheap = program(lambda T: (100, 20)).cost().numbers
    dear = program(lambda T: (1000 * T, 400 + T)).cost().numbers
    assert dear["operations"] - cheap["operations"] == 4 * (1000 * 4 - 100)
    assert dear["bytes_moved"] - cheap["bytes_moved"] == 4 * (400 + 4 - 20)
    assert dear["bytes_written"] == cheap["bytes_written"] == without["bytes_written"]
    assert cheap["operations"] - without["operations"] == 4 * (100 - 4)  # by default, one for each element of a result
    assert (
        program(lambda T: (1, 0)).cost().numbers["bytes_moved"] == cheap["bytes_moved"] - 4 * 4
    )  # at least the results: 16 bytes


def test_a_cost_is_part_of_the_graphs_text() -> None:
    graph = Layer(cost=(10, 20)).context.graph
    table = function_table(graph)
    text = to_text(graph, table)
    assert "cost=(10, 20)" in text
    assert to_text(parse(text, table), table) == text


# -- Pallas -----------------------------------------------------------------------------------------------------------


def squared_relu(x: Any) -> Any:
    def kernel(x: Any, y: Any) -> None:
        y[...] = jnp.maximum(x[...], 0.0) ** 2

    return (pl.pallas_call(kernel, jax.ShapeDtypeStruct(x.shape, x.dtype), interpret=True)(x),)


@pytest.mark.parametrize("rule", first(1, [None, lambda size, batched, x: squared_relu(x)]), ids=["vmap", "own grid"])
def test_a_pallas_kernel_is_an_op(rule: Any) -> None:
    ctx = tp.Context("t")
    with ctx as ((t, T),):
        x = tp.input("x", (3,), domain=(t,))
        (y,) = tp.udf(
            squared_relu,
            x,
            outputs=[tp.spec((3,))],
            batch=rule,
            slope=lambda operands, results, gradients: (2 * jnp.maximum(operands[0], 0.0) * gradients[0],),
            cost=(6, 24),
        )
        h = tp.recurrence((3,), domain=(t,), name="h")
        h[0] = y[0]
        h[t] = tp.udf(squared_relu, h[t - 1] * 0.5 + x, outputs=[tp.spec((3,))])[0]  # inside of a loop
        outputs = [y, tp.grad(y[0:T].sum(), [x])[0], h]
        results = ctx.run({T: 4}, outputs, {"x": FED["x"]})
        expected = reference.evaluate(ctx, outputs, {T: 4}, {"x": FED["x"]})
    assert_all_same(results, expected, 1e-5)
    np.testing.assert_allclose(results[1], 2 * np.maximum(FED["x"], 0), rtol=1e-6)


# -- mistakes ---------------------------------------------------------------------------------------------------------

MISTAKES: dict[str, tuple[type[errors.TempoError], str, dict[str, Any]]] = {
    "a batch rule without the dimension": (errors.ShapeError, r"the batch rule of `layer` returned as output 1 .*\(\); it must have the shape \(4,\)",
                                           {"batch": lambda n, b, p, x: (jnp.zeros((n, 2)), jnp.zeros(()), jnp.zeros(n, "int32"))}),
    "a batch rule of another dtype": (errors.DTypeError, "the batch rule of `layer` returned as output 2 .* float32; .* int32",
                                      {"batch": lambda n, b, p, x: (jnp.zeros((n, 2)), jnp.zeros(n), jnp.zeros(n))}),
    "a batch rule with fewer results": (errors.ShapeError, "the batch rule of `layer` returned", {"batch": lambda n, b, p, x: (x,)}),
    "a slope of another shape": (errors.ShapeError, r"the slope of `layer` returned for operand 1 .*\(2,\); .* shape \(3,\)",
                                 {"slope": lambda o, r, g: (None, jnp.zeros(2))}),
    "a slope of another dtype": (errors.DTypeError, "the slope of `layer` returned for operand 1 .* float16",
                                 {"slope": lambda o, r, g: (None, jnp.zeros(3, "float16"))}),
    "a slope with one gradient": (errors.ShapeError, "returned 1 gradients for 2 operands", {"slope": lambda o, r, g: (None,)}),
    "a slope that is no tuple": (errors.ShapeError, "for 2 operands", {"slope": lambda o, r, g: g[0]}),
    "a slope of another structure": (errors.ShapeError, "returned for operand 0 another structure", {"slope": lambda o, r, g: ({"w": None}, None)}),
}  # fmt: skip


@pytest.mark.parametrize("name", MISTAKES)
def test_a_wrong_rule_is_an_error_at_the_users_line(name: str) -> None:
    error, message, options = MISTAKES[name]
    with pytest.raises(errors.FunctionError) as caught:
        Layer(**options).run()
    cause = caught.value.__cause__
    assert type(cause) is error
    assert cause.hint and "tp.udf(layer" in str(cause)
    assert re.search(message, str(cause))


@pytest.mark.parametrize(
    ("returned", "error", "message"),
    [
        (lambda v: (v[:2],), errors.ShapeError, r"shape \(2,\), but its declared type float32\[3\] needs"),
        (
            lambda v: (v.astype("float16"),),
            errors.DTypeError,
            "dtype float16, but its declared type is float32[\\s\\S]*jnp.asarray",
        ),
    ],
)
@pytest.mark.parametrize("rules", [{}, {"slope": lambda o, r, g: g}], ids=["plain", "with a slope"])
def test_wrong_results_are_errors_at_the_users_line(returned: Any, error: Any, message: str, rules: Any) -> None:
    ctx = tp.Context("t")
    with ctx as ((t, T),):
        (y,) = tp.udf(returned, tp.input("x", (3,), domain=(t,)), outputs=[tp.spec((3,))], name="f", **rules)
    with pytest.raises(error, match=message) as caught:
        ctx.run({T: 4}, y, {"x": FED["x"]}, tp.Config(disable=("vectorize",)))
    assert "tp.udf(returned" in str(caught.value)


def test_a_wrong_shape_is_that_of_a_point() -> None:
    """Whether the function is vectorized or not: the hint is what the user declares."""
    ctx = tp.Context("i", "t")
    with ctx as ((i, n_i), (t, T)):
        (y,) = tp.udf(lambda v: (v[:2],), tp.input("x", (3,), domain=(i, t)), outputs=[tp.spec((3,))], name="f")
        total = y[0:n_i, 0:T].sum()
    with pytest.raises(
        errors.ShapeError, match=r"of shape \(2,\), but its declared type float32\[3\] needs the shape \(3,\)"
    ) as caught:
        ctx.run({n_i: 2, T: 4}, total, {"x": np.zeros((2, 4, 3), "float32")})
    assert caught.value.hint == "return an array of the declared shape, or declare the other one: outputs=[tp.spec((2,))]"


def test_a_size_that_a_run_chooses_is_no_size_of_a_step() -> None:
    ctx = tp.Context("t")
    with ctx as ((t, T),):
        x = tp.input("x", (), domain=(t,))
        outputs = {kind: tp.udf(lambda v: (v.sum(),), x[0:T], outputs=[tp.spec(())], kind=kind)[0] for kind in ("jax", "host")}
    with pytest.raises(errors.ShapeError, match="depends on T, but each run chooses T") as caught:
        ctx.compile({T: tp.upto(8)}, outputs["jax"])
    hint = str(caught.value.hint)
    assert "{T: 100}" in hint and 'kind="host"' in hint and "x[0:T]" not in hint
    for limit, kind in ((5, "jax"), (tp.upto(8), "host")):  # as the hint says
        assert ctx.compile({T: limit}, outputs[kind]).run({"x": np.ones(5, "float32")}) == 5


@pytest.mark.parametrize("rules", ["batch", "slope", "both"])
def test_second_derivatives_follow_the_rules(rules: str) -> None:
    def cube(x: Any) -> Any:
        return (x * x * x,)

    options: dict[str, Any] = {
        "batch": lambda size, batched, x: jax.vmap(cube)(x) if batched[0] else cube(x),
        "slope": lambda operands, results, gradients: (3.0 * gradients[0] * operands[0] * operands[0],),
    }
    ctx = tp.Context("t")
    with ctx as ((t, T),):
        x = tp.input("x", (2,), domain=(t,), requires_grad=True)
        (y,) = tp.udf(cube, x, outputs=[tp.spec((2,))], kind="jax", **{k: v for k, v in options.items() if rules in (k, "both")})
        (dx,) = tp.grad((y.sum() * 0.5)[0:T].sum(), wrt=[x])
        (dxx,) = tp.grad((dx * dx).sum()[0:T].sum(), wrt=[x])
    data = RANDOM.normal(size=(3, 2)).astype("float32")
    result, expected = ctx.run({T: 3}, outputs=dxx, inputs={"x": data}), 9 * data**3
    np.testing.assert_allclose(result, expected, rtol=1e-5)
    (by_reference,) = reference.evaluate(ctx, [dxx], {T: 3}, {"x": data})
    np.testing.assert_allclose(by_reference, expected, rtol=1e-5)
