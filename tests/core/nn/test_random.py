"""Dropout and initial values: their statistics, and their dependence on the seed, the call and the point alone."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

import tempo_core as tp
from tempo_core.errors import ShapeError
from tests import reference
from tests.core.running import SETTINGS

nn = tp.nn
NUMPY = tp.Config(backend="numpy")


def dropped(condition: Any = None, domain: bool = False, **options: Any) -> tuple[tp.Context, dict[Any, int], list[tp.Tensor]]:
    ctx = tp.Context("i", "t")
    with ctx as ((i, I), (t, T)):
        x = tp.ones((200,)) * (t + 1)
        layer = nn.Dropout(0.25, domain=(i,) if domain else ())
        if condition is not None:
            layer.train(condition(i, t))
        y = layer(x, **options)
    return ctx, {I: 3, T: 4}, [y]


def test_dropout_zeroes_a_share_and_keeps_the_mean() -> None:
    ctx, bounds, outputs = dropped(domain=True)
    (y,) = ctx.run(bounds, outputs, config=NUMPY)
    assert y.shape == (3, 4, 200)
    scaled = y / np.arange(1, 5, dtype="float32")[:, None]
    assert set(np.unique(np.round(scaled, 5))) == {np.float32(0), np.round(np.float32(1 / 0.75), 5)}
    assert abs((y == 0).mean() - 0.25) < 4 * math.sqrt(0.25 * 0.75 / y.size)
    masks = (y == 0).reshape(12, 200)
    assert len({m.tobytes() for m in masks}) == 12  # another mask at each point
    together = (masks[:, None] & masks[None]).mean(-1)[~np.eye(12, dtype=bool)]
    assert abs(together.mean() - 0.0625) < 0.01  # and independent ones


def test_dropout_is_the_same_again_and_on_every_executor() -> None:
    ctx, bounds, outputs = dropped(domain=True)
    expected = reference.evaluate(ctx, outputs, bounds, {}, seed=7)[0]
    for config in SETTINGS.values():
        program = ctx.compile(bounds, outputs, config)
        np.testing.assert_array_equal(program.run(seed=7)[0], expected)
        assert not np.array_equal(program.run(seed=8)[0], expected)


def test_dropout_varies_with_its_operand_unless_it_is_given_a_domain() -> None:
    _, _, (y,) = dropped()
    assert [s.name for s in y.domain.steps] == ["t"]
    _, _, (z,) = dropped(domain=True)
    assert [s.name for s in z.domain.steps] == ["i", "t"]


@pytest.mark.parametrize("way", ["call", "eval", "sequential"])
def test_dropout_is_off_in_evaluation(way: str) -> None:
    ctx = tp.Context("t")
    with ctx as ((t, _T),):
        x = tp.ones((8,)) * t
        layer = nn.Dropout(0.9)
        if way == "call":
            y = layer(x, training=False)
        elif way == "eval":
            y = layer.eval()(x)
        else:
            y = nn.Sequential(nn.Sequential(layer))(x, training=False)
        assert y is x
        assert layer.training is (way != "eval")  # a call changes the mode for this call only
        assert nn.Dropout(0.0)(x) is x


def test_dropout_follows_a_condition_on_steps() -> None:
    ctx, bounds, outputs = dropped(lambda i, t: (i < 2) & (t != 1), domain=True)
    (y,) = ctx.run(bounds, outputs, config=NUMPY)
    on = np.array([[i < 2 and t != 1 for t in range(4)] for i in range(3)])
    np.testing.assert_array_equal((y == 0).any(-1), on)


def drawn(initial: nn.Initializer, shape: tuple[int, ...]) -> np.ndarray:
    ctx = tp.Context("i")
    with ctx as ((_, I),):
        value = initial(shape)
    return ctx.run({I: 1}, [value], config=NUMPY)[0]


FAN_IN, FAN_OUT, COUNT = 3 * 40, 3 * 60, 3 * 40 * 60  # of the shape (3, 40, 60): a kernel of 3
INITIALIZERS: dict[
    str, tuple[nn.Initializer, float, float | None]
] = {  # with the deviation, and the largest value if there is one
    "glorot_uniform": (nn.glorot_uniform(), math.sqrt(2 / (FAN_IN + FAN_OUT)), math.sqrt(6 / (FAN_IN + FAN_OUT))),
    "glorot_normal": (nn.glorot_normal(), math.sqrt(2 / (FAN_IN + FAN_OUT)), None),
    "glorot_normal, gain 3": (nn.glorot_normal(3.0), 3 * math.sqrt(2 / (FAN_IN + FAN_OUT)), None),
    "he_uniform": (nn.he_uniform(), math.sqrt(2 / FAN_IN), math.sqrt(6 / FAN_IN)),
    "he_normal": (nn.he_normal(), math.sqrt(2 / FAN_IN), None),
    "he_normal, gain 1": (nn.he_normal(1.0), math.sqrt(1 / FAN_IN), None),
    "normal": (nn.normal(0.02), 0.02, None),
    "uniform": (nn.uniform(-2.0, 2.0), 2 / math.sqrt(3), 2.0),
    "uniform_fan_in": (nn.uniform_fan_in(16), 0.25 / math.sqrt(3), 0.25),
}


@pytest.mark.parametrize("name", INITIALIZERS)
def test_an_initializer_has_its_deviation_and_range(name: str) -> None:
    initial, deviation, largest = INITIALIZERS[name]
    values = drawn(initial, (3, 40, 60))
    assert abs(values.mean()) < 4 * deviation / math.sqrt(COUNT)
    assert abs(values.std() / deviation - 1) < 0.03
    if largest is None:
        assert 3 * deviation < np.abs(values).max() < 6 * deviation
        assert abs(((values / deviation) ** 4).mean() - 3) < 0.3  # of a normal distribution
    else:
        assert 0.999 * largest < np.abs(values).max() <= largest * (1 + 1e-6)
        assert abs(((values / deviation) ** 4).mean() - 1.8) < 0.1  # of a uniform one


def test_constants_and_names() -> None:
    np.testing.assert_array_equal(drawn(nn.zeros(), (2, 3)), np.zeros((2, 3), "float32"))
    np.testing.assert_array_equal(drawn(nn.ones(), (2,)), np.ones(2, "float32"))
    np.testing.assert_array_equal(drawn(nn.constant(2.5), (2,)), np.full(2, 2.5, "float32"))
    assert nn.xavier_uniform is nn.glorot_uniform and nn.kaiming_normal is nn.he_normal


@pytest.mark.parametrize("shape", [(5, 3), (3, 5), (4, 4)])
def test_orthogonal_weights(shape: tuple[int, int]) -> None:
    weights = drawn(nn.orthogonal(2.0), shape)
    small = weights if shape[0] <= shape[1] else weights.T
    np.testing.assert_allclose(small @ small.T, 4 * np.eye(min(shape)), atol=1e-5)


def test_a_fan_needs_two_dimensions() -> None:
    with tp.Context("i"), pytest.raises(ShapeError, match=r"weights of shape \(4,\) have no fan"):
        nn.he_normal()((4,))
