"""fig:autodiff: the gradient of x[t] sums the contributions of all its readers y[t']; t' is the inverse of the dependence.

In the picture, y[1] depends on x[1:4], and so its gradient contributes to the gradients of x[1], x[2] and x[3].
"""

from __future__ import annotations

import numpy as np
import pytest

import tempo_core as tp
from tests.core.running import Case
from tests.paper.running import assert_agree, index_text, inverse_of, normal, rows

INVERSES = {
    "t + 3": (lambda x, t, T: x[t + 3], "[t - 3]", "t >= 3"),
    "max(0, t - 3):t + 1": (lambda x, t, T: x[tp.max(0, t - 3) : t + 1], "[t:min(t + 4, T)]", "true"),
    "t:T": (lambda x, t, T: x[t:T], "[0:t + 1]", "true"),
    "t:min(t + 5, T)": (lambda x, t, T: x[t : tp.min(t + 5, T)], "[max(t - 4, 0):t + 1]", "true"),  # alg. 1's window
}


@pytest.mark.parametrize("index", INVERSES)
def test_the_papers_inverses(index):
    """The first three are the examples of the text; an inverse exists under a condition where an index may leave the domain."""
    read_at, inverse, condition = INVERSES[index]
    ctx = tp.Context("t")
    with ctx as ((t, T),):
        x = tp.input("x", domain=(t,), requires_grad=True)
        read = read_at(x, t, T)
        y = read * 1.0
    result = inverse_of(y, read)
    assert (index_text(result.index), str(result.condition)) == (inverse, condition)


@pytest.mark.parametrize("index", INVERSES)
def test_an_inverse_holds_exactly_the_readers(index):
    """A check against the dependence, point by point: p reads q exactly where the inverse of q holds p."""
    ctx, length = tp.Context("t"), 7
    with ctx as ((t, T),):
        x = tp.input("x", domain=(t,), requires_grad=True)
        read = INVERSES[index][0](x, t, T)
        y = read * 1.0
    (there,), back = read.edge.index, inverse_of(y, read)

    def points(part, at):
        env = {next(iter(t.steps)): at, next(iter(T.symbols)): length}
        if hasattr(part, "expr"):
            return {part.expr.evaluate(env)}
        return set(range(part.start.evaluate(env), part.stop.evaluate(env)))

    def holds(condition, at):
        return condition.evaluate({next(iter(t.steps)): at, next(iter(T.symbols)): length})

    reads = {(p, q) for p in range(length) if holds(y.domain.condition, p) for q in points(there, p)}
    inverted = {(p, q) for q in range(length) if holds(back.condition, q) for p in points(back.index[0], q)}
    assert inverted == reads != set()


def test_the_picture():
    """y = x[t:T] at T = 4: the gradient of x[t] sums those of y[0], ..., y[t], each at the place of x[t] in its slice."""
    weights, ctx = np.triu(normal(4, 4)), tp.Context("t")
    with ctx as ((t, T),):
        x = tp.input("x", domain=(t,), requires_grad=True)
        sent = tp.input("sent", (4,), domain=(t,))  # row t: what y[t] sends back to each x
        future = x[t:T]
        y = (future * sent.spatial[t:T]).sum(0)
        y.backward()
        gradient = x.grad
    assert (gradient.dtype, gradient.shape, str(gradient.domain)) == (x.dtype, x.shape, str(x.domain))
    inputs = {"x": normal(4, seed=1), "sent": weights}
    gradients = assert_agree(Case(ctx, {T: 4}, [gradient], [weights.sum(0)], inputs))[0]
    only_second = np.where(np.arange(4)[:, None] == 1, weights, 0)
    (alone,) = ctx.run({T: 4}, outputs=[gradient], inputs={**inputs, "sent": only_second}, config=tp.Config(backend="numpy"))
    assert alone[0] == 0 and np.all(alone[1:] == only_second[1, 1:]) and np.all(gradients[1:] != 0)


def test_reads_at_constants_are_indexed_by_the_step():
    """y = f(x[0:T]) does not vary with t: the gradient of x[t] is element t of the slice's gradient. A point, x[2], is similar."""
    data, ctx = normal(5), tp.Context("t")
    with ctx as ((t, T),):
        x = tp.input("x", domain=(t,), requires_grad=True)
        y = (x[0:T] ** 2).sum(0)
        z = tp.exp(x[2])
        assert y.domain.steps == z.domain.steps == ()
        from_all, from_one = (tp.grad(v, wrt=[x])[0] for v in (y, z))
    expected = [2 * data, np.where(np.arange(5) == 2, np.exp(data), 0).astype("float32")]
    assert_agree(Case(ctx, {T: 5}, [from_all, from_one], expected, {"x": data}))


def test_gradients_through_a_recurrence_run_backwards_in_time():
    """The gradient of a cycle through a merge is a recurrence too: back-propagation through time is not a special case."""
    data, ctx = normal(5), tp.Context("t")
    with ctx as ((t, T),):
        x = tp.input("x", domain=(t,), requires_grad=True)
        h = tp.recurrence((), domain=(t,), name="h")
        h[0] = x[0]
        h[t + 1] = tp.tanh(h) * x[t + 1]
        h[T - 1].backward()
        gradient = x.grad
    states = [data[0]]
    for k in range(1, 5):
        states.append(np.tanh(states[-1]) * data[k])
    back, expected = np.float32(1), np.zeros(5, "float32")
    for k in range(4, 0, -1):
        expected[k] = back * np.tanh(states[k - 1])
        back = back * data[k] * (1 - np.tanh(states[k - 1]) ** 2)
    expected[0] = back
    assert_agree(Case(ctx, {T: 5}, [gradient], [expected], {"x": data}))


def test_several_steps_are_inverted_at_once():
    """Each step of the source has its own index; the gradient is summed over the other steps of the readers."""
    data, weights, ctx = normal(2, 4), normal(3, seed=1), tp.Context("b", "i", "t")
    with ctx as ((b, B), (i, I), (t, T)):
        x = tp.input("x", domain=(b, t), requires_grad=True)
        w = tp.input("w", domain=(i,))
        read = x[b, t : tp.min(t + 2, T)]
        y = read.sum(0) * w
        y.backward()
        gradient = x.grad
    inverse = inverse_of(y, read)
    assert index_text(inverse.index) == "[b, 0:I, max(t - 1, 0):t + 1]"
    readers = np.minimum(np.arange(4) + 1, 2)
    expected = np.broadcast_to(readers * weights.sum(), (2, 4)).astype("float32")
    assert_agree(Case(ctx, {B: 2, I: 3, T: 4}, [gradient], [expected], {"x": data, "w": weights}))
    assert rows(expected).shape == data.shape
