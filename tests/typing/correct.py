"""Correct uses, as a user writes them. A type checker reports no error, and infers the types in `assert_type`."""

from typing import assert_type

import jax
import numpy as np

import tempo_core as tp
from tempo_core import typing


def halved(value: typing.Array) -> tuple[typing.Array]:
    return (value * 0.5,)


def value_at(i: int, t: int) -> typing.Array:
    return np.full(3, i + t)


ctx = tp.Context("i", "t")
with ctx as ((i, I), (t, T)):
    # expressions of steps and bounds, conditions on them
    assert_type(t, tp.Expr)
    assert_type(t + 5, tp.Expr)
    assert_type(T - 1 - t, tp.Expr)
    assert_type(t // 2 * 2 % 3, tp.Expr)
    assert_type(t > 3, typing.Bool)
    assert_type(t == 3, typing.Bool)
    assert_type((t > 3) & ~(t == 5), typing.Bool)
    assert_type(tp.min(t + 5, T), tp.Expr)
    assert_type(tp.minimum(t, 3), tp.Expr)
    assert_type(t * 0.5, tp.Tensor)
    assert_type(0.99**i, tp.Tensor)

    # tensors
    x = tp.input("x", (3,), domain=(i, t))
    assert_type(x, tp.Tensor)
    assert_type(x + 1, tp.Tensor)
    assert_type(1 - x, tp.Tensor)
    assert_type(np.ones(3) * x, tp.Tensor)
    assert_type(t * x, tp.Tensor)
    assert_type(x > 0, tp.Tensor)
    assert_type(x == 0, tp.Tensor)
    assert_type(~(x > 0) | (x < -1), tp.Tensor)
    assert_type(x @ x, tp.Tensor)
    assert_type(-abs(x), tp.Tensor)
    assert_type(x[i, 0], tp.Tensor)
    assert_type(x[i, t : tp.min(t + 5, T)].sum(0), tp.Tensor)
    assert_type(x[i, 0:T:2], tp.Tensor)
    assert_type(x[t % 5 == 0], tp.Tensor)
    assert_type(x.spatial[0], tp.Tensor)
    assert_type(x.spatial[..., None, 1:], tp.Tensor)
    assert_type(x.mean(axis=(0,), keepdims=True), tp.Tensor)
    assert_type(x.reshape(3, 1).transpose(1, 0), tp.Tensor)
    assert_type(x.split(3), list[tp.Tensor])
    assert_type(tp.pad(x, ((1, 2), (0, x.shape[0]))), tp.Tensor)
    assert_type(x.top_k(2), tuple[tp.Tensor, tp.Tensor])
    assert_type(x.rank, int)
    assert_type(x.dtype, str)
    assert_type(x.shape[0], tp.Expr)
    assert_type(x.shape == (3,), bool)

    # functions, random numbers, inputs and sinks
    assert_type(tp.abs(x), tp.Tensor)
    assert_type(tp.sum(x, axis=0), tp.Tensor)
    assert_type(tp.linalg.cholesky(x), tp.Tensor)
    assert_type(abs(2 * tp.fft.rfft(x) + 1j), tp.Tensor)
    assert_type(x.scatter((0, tp.argmax(x)), 1.0, (0, 1), "max"), tp.Tensor)
    assert_type(tp.where(t > 3, x, 0.0), tp.Tensor)
    assert_type(tp.maximum(x, 0), tp.Tensor)
    assert_type(tp.concatenate([x, x]), tp.Tensor)
    assert_type(tp.constant([[1.0, 2.0], [3.0, 4.0]]), tp.Tensor)
    assert_type(tp.zeros((3, T)), tp.Tensor)
    assert_type(tp.random.normal((3,), domain=(t,)), tp.Tensor)
    assert_type(tp.udf(halved, x, outputs=[tp.spec((3,))]), tuple[tp.Tensor, ...])
    assert_type(tp.udf(halved, {"a": x, "b": (x, 1.0)}, outputs=[tp.spec((3,))], cost=(2 * T, 3)), tuple[tp.Tensor, ...])
    tp.sink(print, x, t, when=t % 2 == 0)

    h = tp.recurrence((3,), domain=(i, t), name="h")
    assert_type(h, tp.Recurrence)
    h[i, 0] = 0.0
    h[i, t + 1] = h * 0.5 + x
    assert_type(h[i, t - 1], tp.Tensor)

    # modules and optimizers
    model = tp.nn.Sequential(tp.nn.Linear(3, 4, domain=(i,)), tp.nn.Tanh(), tp.nn.Linear(4, 1, domain=(i,)))
    assert_type(model(x), tp.Tensor)
    assert_type(model(x, training=False), tp.Tensor)
    assert_type(model[I - 1](x), tp.Tensor)
    assert_type(tp.nn.LSTMCell(3, 4, domain=(i,))(x, x, x), tuple[tp.Tensor, tp.Tensor])
    assert_type(tp.nn.GRUCell(3, 4, domain=(i,)).recurrence(x, over=t), tp.Tensor)

    class Scaled(tp.nn.Module):
        def __init__(self, width: int, domain: typing.Domain = ()) -> None:
            super().__init__(domain=domain)
            self.norm = tp.nn.LayerNorm(width, domain=domain)
            self.scale = self.parameter("scale", (width,), tp.nn.ones())

        def forward(self, x: tp.Tensor, factor: float = 1.0) -> tp.Tensor:
            return self.norm(x) * self.scale * factor

    assert_type(Scaled(3, (i,))(x, factor=2.0), tp.Tensor)

    class Halves(tp.nn.Module[tuple[tp.Tensor, tp.Tensor]]):
        def forward(self, x: tp.Tensor) -> tuple[tp.Tensor, tp.Tensor]:
            return x * 0.5, x * 0.5

    first, second = Halves()(x)
    assert_type(first, tp.Tensor)

    loss = model(x).mean()[i, 0:T].mean(0)
    loss.backward()
    assert_type(model.parameters()["0.weight"].grad, tp.Tensor)
    assert_type(tp.grad(loss, [x]), list[tp.Tensor])
    assert_type(tp.optim.Adam(model.parameters(), lr=0.01 * 0.99**i).step(), dict[str, tp.Tensor])
    tp.optim.SGD([h], lr=tp.optim.schedules.cosine(0.1, T))

# programs: the results have the form of the outputs
bounds = {I: 2, T: 10}
fed = {"x": np.zeros((2, 10, 3), "float32")}
assert_type(ctx.run(bounds, outputs=x, inputs=fed), typing.Array)
assert_type(ctx.run(bounds, outputs=[x, loss], inputs=fed), list[typing.Array])
assert_type(ctx.run(bounds, outputs={"x": x}, inputs=fed), dict[str, typing.Array])
assert_type(ctx.run(bounds, inputs={"x": value_at}), list[typing.Array])
one = ctx.compile(bounds, outputs=x, config=tp.Config(backend="numpy"))
assert_type(one, tp.Program[typing.Array])
assert_type(one.profile(fed).results, typing.Array)
assert_type(one.profile(fed).rows("line")[0].seconds, float)
assert_type(one.explain("x"), str)
assert_type(one.run(fed).mean(axis=0).tolist()[0] is None, bool)
assert_type(one.with_bounds({T: 20}).run(fed), typing.Array)
assert_type(ctx.compile(bounds, {"x": x}).run(fed)["x"], typing.Array)
assert_type(ctx.compile(bounds, [x]).run(fed), list[typing.Array])
assert_type(one.text("plan"), str)
function = ctx.compile(bounds, {"x": x}).as_jax(carry={"x": "w"}, gradients={"loss": {"w": "dw"}})
assert_type(function, tp.JaxFunction[dict[str, jax.Array]])
assert_type(function(function.init({"w": np.ones(3)}, seed=3), fed), tuple[tp.JaxState, dict[str, jax.Array]])
assert_type(one.as_jax()(function.init())[1], jax.Array)
session = one.step(fed)
assert_type(session.finish(), typing.Array)
step = session.until("h", t=3)
if step is not None:
    assert_type(step.values, tuple[typing.Array, ...])


def mean_of(program: tp.Program[dict[str, typing.Array]]) -> float:
    return float(program.run(fed)["x"].mean())


mean_of(ctx.compile(bounds, outputs={"x": x}))
