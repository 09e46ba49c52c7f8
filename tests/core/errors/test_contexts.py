"""Operations on tensors need no `with`: they run in their operands' context. Functions without tensor operands need a `with`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tempo_core as tp
from tempo_core import errors


class Made:
    """A context after its `with`: x over t, and a recurrence h whose update is not assigned."""

    def __init__(self) -> None:
        self.ctx = tp.Context("t")
        with self.ctx as ((self.t, self.T),):
            self.x = tp.input("x", (3,), domain=(self.t,))
            self.h = tp.recurrence((3,), domain=(self.t,), name="h")


OUTSIDE: dict[str, Callable[[Made], Any]] = {
    "number on the right": lambda m: m.x * 2,
    "number on the left": lambda m: 2 - m.x,
    "array": lambda m: np.arange(3.0) + m.x,
    "step": lambda m: m.x + m.t,
    "condition": lambda m: tp.where(m.t > 1, m.x, 0.0),
    "comparison": lambda m: (m.x > 1) & (m.x < 3),
    "function": lambda m: tp.clip(tp.softmax(m.x), 0.1, 0.5),
    "method": lambda m: m.x.mean(-1, keepdims=True).relu(),
    "list of tensors": lambda m: tp.stack([m.x, m.x * 2]),
    "constant in a list": lambda m: tp.concatenate([np.ones(3), m.x]),
    "spatial": lambda m: m.x.spatial[1:],
    "index": lambda m: m.x.index(0, 1),
    "temporal": lambda m: m.x[0 : m.T].sum(0),
    "gradient": lambda m: tp.grad((m.x**2).sum(), [m.x])[0],
    "function of the user's": lambda m: tp.udf(lambda v: (v * 2,), m.x, outputs=[tp.spec((3,))])[0],
    "like": lambda m: tp.zeros_like(m.x) + 1,
}


@pytest.mark.parametrize("name", OUTSIDE)
def test_an_operation_takes_its_operands_context(name: str) -> None:
    outside, inside = Made(), Made()
    with inside.ctx:
        expected = OUTSIDE[name](inside)
    result = OUTSIDE[name](outside)
    assert result.context is outside.ctx
    assert (result.type, result.domain) == (expected.type, expected.domain)
    values = [
        m.ctx.run({m.T: 4}, outputs=[y], inputs={"x": np.arange(12.0).reshape(4, 3)}, config=tp.Config(backend="numpy"))[0]
        for m, y in ((outside, result), (inside, expected))
    ]
    np.testing.assert_array_equal(*values)


def test_the_operands_context_wins_over_the_active_one() -> None:
    outside, other = Made(), tp.Context("k")
    with other:
        assert (outside.x * 2).context is outside.ctx
    assert not any(node.op for node in other.graph)


def test_recurrences_are_assigned_and_optimized_outside() -> None:
    outside = Made()
    outside.h[0] = 1.0
    loss = (outside.h * outside.x).sum()
    loss.backward()
    tp.optim.Adam([outside.h], lr=0.1).step()
    (result,) = outside.ctx.run(
        {outside.T: 2}, outputs=[outside.h], inputs={"x": np.ones((2, 3))}, config=tp.Config(backend="numpy")
    )
    np.testing.assert_allclose(result, [[1, 1, 1], [0.9, 0.9, 0.9]], atol=1e-5)


FROM_NOTHING: dict[str, Callable[[Made], Any]] = {
    "constant": lambda m: tp.constant(1.0),
    "zeros": lambda m: tp.zeros((2,)),
    "arange": lambda m: tp.arange(3),
    "random": lambda m: tp.random.normal((2,)),
    "input": lambda m: tp.input("z"),
    "recurrence": lambda m: tp.recurrence((2,)),
    "step as a number": lambda m: m.t * 0.5,
    "module": lambda m: tp.nn.Linear(2, 3, fed=True),
}


@pytest.mark.parametrize("name", FROM_NOTHING)
def test_what_is_made_from_nothing_needs_a_context(name: str) -> None:
    with pytest.raises(errors.ContextError, match="made inside a context, and no context is open") as caught:
        FROM_NOTHING[name](Made())
    assert caught.value.hint == "open one: with tp.Context('t') as ((t, T),): ..."


def test_contexts_are_left_in_any_order_and_after_errors() -> None:
    one, two = tp.Context("a"), tp.Context("b")
    with pytest.raises(ValueError, match="mine"), one, two:
        raise ValueError("mine")
    with one, two, one:
        assert tp.Context.current() is one
    with pytest.raises(errors.ContextError):
        tp.Context.current()
