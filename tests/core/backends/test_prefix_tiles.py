"""Products of prefixes, tile by tile: the same values, and no more read than the tiles that a prefix has."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import ml_dtypes
import numpy as np
import pytest

import tempo_core as tp
from benchmarks.hlo import Module, parse
from tempo_core.backends.xla_cpu import prefixes
from tests import reference
from tests.core.running import assert_all_same

WIDTH, LENGTH, TILE = 4, 39, 16  # the last tile of a whole prefix begins in the one before


@pytest.fixture(autouse=True)
def small_tiles(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prefixes, "LEAST_BYTES_FOR_TILES", 1)
    monkeypatch.setattr(prefixes, "POINTS_OF_A_TILE", TILE)


Reduction = Callable[[tp.Tensor, Any, Any], tp.Tensor]  # of what is read, with the step and its bound


def attention(h: tp.Tensor, t: Any, T: Any) -> tp.Tensor:
    return tp.softmax(h[0 : t + 1] @ h, -1) @ h[0 : t + 1]


def attention_of_rows(h: tp.Tensor, t: Any, T: Any) -> tp.Tensor:
    """Two rows, each with its own keys: the range is no leading dimension of a product."""
    rows, query = h[0 : t + 1].reshape(t + 1, 2, WIDTH // 2), h.reshape(2, WIDTH // 2)
    keys = rows.transpose(1, 2, 0)
    weights = tp.softmax((tp.expand_dims(query, 1) @ keys) * 0.5, -1)
    return (weights @ rows.transpose(1, 0, 2)).reshape(WIDTH)


def of_two_prefixes(h: tp.Tensor, t: Any, T: Any) -> tp.Tensor:
    later = tp.tanh(h).named("later")
    return ((h[0 : t + 1].transpose(1, 0) @ later[0 : t + 1]) * 0.02).sum(0)


TILED: dict[Reduction, int] = {attention: 2, attention_of_rows: 2, of_two_prefixes: 1}  # with their loops over tiles


def of_a_window(h: tp.Tensor, t: Any, T: Any) -> tp.Tensor:
    start = tp.maximum(t - 5, 0)
    return tp.softmax(h[start : t + 1] @ h, -1) @ h[start : t + 1]


def of_the_rest(h: tp.Tensor, t: Any, T: Any) -> tp.Tensor:
    """A range that becomes shorter."""
    return tp.softmax(tp.input("later", (WIDTH,), domain=(t,))[t:T] @ h, -1).max(0) * h


def of_sums(h: tp.Tensor, t: Any, T: Any) -> tp.Tensor:
    """Reductions, which XLA computes together with their masks."""
    return tp.exp(-abs(h[0 : t + 1] * h)).sum(0) / (t + 1)


WHOLE = (of_a_window, of_the_rest, of_sums)


def program(
    reduction: Reduction, bound: Any = LENGTH, dtype: str = "float32"
) -> tuple[tp.Context, Any, list[tp.Tensor], tp.Program[Any]]:
    """A recurrence whose next value is computed from a reduction of a range at the present point."""
    ctx = tp.Context("t")
    with ctx as ((t, T),):
        x = tp.input("x", (WIDTH,), dtype, domain=(t,))
        h = tp.recurrence((WIDTH,), dtype, domain=(t,), name="h")
        h[0] = x[0]
        h[t + 1] = tp.tanh(reduction(h, t, T) + x[t + 1])
        return ctx, T, [h], ctx.compile({T: bound}, [h])


def inputs_of(compiled: tp.Program[Any], length: int) -> dict[str, Any]:
    random = np.random.default_rng(0)
    return {name: random.normal(size=(length, WIDTH)).astype(np.float32) for name in compiled.inputs}


def module_of(compiled: tp.Program[Any]) -> Module:
    assert compiled._staged is not None
    (segment,) = (s for s in compiled._staged.segments if s.compiled is not None)
    return parse(segment.compiled.as_text())


def lengths_of_products(compiled: tp.Program[Any]) -> list[int]:
    """For each product of a device program, the largest dimension of its operands."""
    names = [(c.by_name(), i) for c in module_of(compiled).computations.values() for i in c.instructions if i.opcode == "dot"]
    return [max(size for operand in i.operands for shape in of[operand].shapes for size in shape.sizes) for of, i in names]


@pytest.mark.parametrize("reduction", TILED)
def test_values_and_tiles(reduction: Reduction) -> None:
    ctx, T, outputs, compiled = program(reduction)
    inputs = inputs_of(compiled, LENGTH)
    assert_all_same(compiled.run(inputs), reference.evaluate(ctx, outputs, {T: LENGTH}, inputs))
    assert lengths_of_products(compiled) == [TILE] * TILED[reduction]


@pytest.mark.parametrize("reduction", WHOLE)
def test_other_ranges_stay_whole(reduction: Reduction) -> None:
    ctx, T, outputs, compiled = program(reduction)
    inputs = inputs_of(compiled, LENGTH)
    assert_all_same(compiled.run(inputs), reference.evaluate(ctx, outputs, {T: LENGTH}, inputs))
    assert TILE not in lengths_of_products(compiled)


@pytest.mark.parametrize("length", [1, 2, TILE, TILE + 1, 2 * TILE])
def test_prefixes_of_few_points(length: int) -> None:
    ctx, T, outputs, compiled = program(attention, length)
    inputs = inputs_of(compiled, length)
    assert_all_same(compiled.run(inputs), reference.evaluate(ctx, outputs, {T: length}, inputs))


def test_a_run_chooses_the_length() -> None:
    ctx, T, outputs, compiled = program(attention, tp.upto(LENGTH))
    for length in (1, 7, LENGTH):
        inputs = inputs_of(compiled, length)
        assert_all_same(compiled.run(inputs, bounds={T: length}), reference.evaluate(ctx, outputs, {T: length}, inputs))


def test_what_lies_past_the_end_is_not_seen() -> None:
    """The store has NaN there, from a loop around."""
    ctx = tp.Context("e", "t")
    with ctx as ((e, E), (t, T)):
        x = tp.input("x", (WIDTH,), domain=(e, t))
        h = tp.recurrence((WIDTH,), domain=(e, t), name="h")
        h[e, 0] = x[e, 0]
        h[e, t + 1] = tp.tanh(tp.softmax(h[e, 0 : t + 1] @ h, -1) @ h[e, 0 : t + 1] + x[e, t + 1])
        total = h[e, T - 1]
        bounds = {E: 2, T: LENGTH}
        compiled = ctx.compile(bounds, [total], tp.Config(disable=("vectorize",)))
    x = np.random.default_rng(0).normal(size=(2, LENGTH, WIDTH)).astype(np.float32)
    x[0, 3] = np.nan
    expected = reference.evaluate(ctx, [total], bounds, {"x": x})
    assert np.isnan(expected[0][0]).all()
    assert not np.isnan(expected[0][1]).any()
    assert_all_same(compiled.run({"x": x}), expected)
    assert TILE in lengths_of_products(compiled)


def test_narrow_numbers_are_added_up_in_float32() -> None:
    ctx = tp.Context("t")
    with ctx as ((t, T),):
        x = tp.input("x", (2,), "bfloat16", domain=(t,))
        h = tp.recurrence((2,), "bfloat16", domain=(t,), name="h")
        h[0] = x[0]
        mixed = (h[0 : t + 1] @ h) @ h[0 : t + 1]
        h[t + 1] = x[t + 1] + 0 * mixed
        compiled = ctx.compile({T: LENGTH}, [mixed[T - 1]])
    x = np.full((LENGTH, 2), [0.25, 0], ml_dtypes.bfloat16)
    x[0] = [16, 0]
    (result,) = compiled.run({"x": x})
    assert TILE in lengths_of_products(compiled)
    assert float(result[0]) == 64.5, "64 and 38 times 1/64; bfloat16 has no number between 64 and 64.5, and a tile adds 1/4"


def test_derivatives_by_jax() -> None:
    _, _, _, compiled = program(attention, 9)
    inputs = inputs_of(compiled, 9)

    def loss(x: Any) -> Any:
        f = compiled.as_jax()
        return (f(f.init(), {"x": x})[1][0] ** 2).sum()

    cut = jax.grad(loss)(inputs["x"])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(prefixes, "LEAST_BYTES_FOR_TILES", 2**40)
        _, _, _, compiled = program(attention, 9)
        np.testing.assert_allclose(cut, jax.grad(loss)(inputs["x"]), 1e-4, 1e-5)
