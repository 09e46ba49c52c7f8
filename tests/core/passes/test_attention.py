"""lift: contractions of running sums of outer products (linear attention), in blocks of points."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tempo_core as tp
from tempo_core.compiler import with_outputs
from tempo_core.ir.graph import Graph
from tempo_core.ir.ops import CumSum, LinearScan
from tempo_core.passes.pipeline import pipeline
from tests import reference
from tests.core.gradient_checks import normal
from tests.core.passes.support import ops_of
from tests.core.running import assert_same

Step = tuple[Any, Any]
Program = Callable[[Step, Step, tp.Tensor, tp.Tensor, tp.Tensor], tp.Tensor]


def outer(k: tp.Tensor, v: tp.Tensor) -> tp.Tensor:
    return k.expand_dims(1) * v


def state(b: Step, t: Step, q: tp.Tensor, k: tp.Tensor, v: tp.Tensor) -> tp.Tensor:
    s = tp.recurrence((3, 3), domain=(b[0], t[0]), name="s")
    new = outer(k, v)
    s[b[0], 0] = new[b[0], 0]
    s[b[0], t[0]] = s[b[0], t[0] - 1] + new
    return q @ s


def carried(b: Step, t: Step, q: tp.Tensor, k: tp.Tensor, v: tp.Tensor) -> tp.Tensor:
    s = tp.recurrence((3, 3), domain=(b[0], t[0]), name="s")
    after = s + outer(k, v)
    tp.carry(s, tp.zeros((3, 3)), after, kept=(b[0],))
    return q @ after


def of_neighbours(b: Step, t: Step, q: tp.Tensor, k: tp.Tensor, v: tp.Tensor) -> tp.Tensor:
    """The sum of the points before each one, and its contraction by the other factor."""
    s = tp.recurrence((3, 3), domain=(b[0], t[0]), name="s")
    new = outer(k, v)
    s[b[0], 0] = new[b[0], 0]
    s[b[0], t[0]] = s[b[0], t[0] - 1] + new
    y = tp.recurrence((3,), domain=(b[0], t[0]), name="y")
    y[b[0], 0] = q[b[0], 0]
    y[b[0], t[0]] = s[b[0], t[0] - 1] @ q
    return y


def from_the_end(b: Step, t: Step, q: tp.Tensor, k: tp.Tensor, v: tp.Tensor) -> tp.Tensor:
    s = tp.recurrence((3, 3), domain=(b[0], t[0]), name="s")
    new = outer(k, v)
    s[b[0], t[1] - 1] = new[b[0], t[1] - 1]
    s[b[0], t[0]] = s[b[0], t[0] + 1] + new
    return (s * q.expand_dims(1)).sum(0)


def of_heads(b: Step, t: Step, q: tp.Tensor, k: tp.Tensor, v: tp.Tensor) -> tp.Tensor:
    """A dimension that both factors share, and queries with a dimension of their own."""
    heads = [tp.stack([x, x * 0.5]) for x in (k, v)]
    s = tp.recurrence((2, 3, 3), domain=(b[0], t[0]), name="s")
    new = heads[0].expand_dims(2) * heads[1].expand_dims(1)
    s[b[0], 0] = new[b[0], 0]
    s[b[0], t[0]] = s[b[0], t[0] - 1] + new
    queries = tp.stack([tp.stack([q, tp.sin(q), q * q]), tp.stack([tp.cos(q), q * 0.5, tp.tanh(q)])])
    return tp.tanh(queries @ s).sum((0, 1))


def shared_keys(b: Step, t: Step, q: tp.Tensor, k: tp.Tensor, v: tp.Tensor) -> tp.Tensor:
    """One sum for all rows of the batch, contracted with the queries of each."""
    new = outer(k[0, t[0]], v[0, t[0]])
    s = tp.recurrence((3, 3), domain=(t[0],), name="s")
    s[0] = new[0]
    s[t[0]] = s[t[0] - 1] + new
    return q @ s


PROGRAMS: dict[str, Program] = {
    program.__name__: program for program in (state, carried, of_neighbours, from_the_end, of_heads, shared_keys)
}


def program(name: str) -> tuple[tp.Context, Any, Any, list[tp.Tensor]]:
    ctx = tp.Context("b", "t")
    with ctx as ((b, B), (t, T)):
        q, k, v = (tp.input(each, (3,), domain=(b, t)) for each in "qkv")
        y = PROGRAMS[name]((b, B), (t, T), q, k, v)
        return ctx, B, T, [y, *tp.grad((tp.sin(y) * (t + 1)).sum(), [q, k, v])]


def lifted(ctx: tp.Context, outputs: list[tp.Tensor]) -> Graph:
    """The graph after all passes up to lift."""
    graph = with_outputs(ctx, outputs)
    for each in pipeline():
        graph = each.apply(graph)
        if each.name == "lift":
            break
    return graph


def fed(b: int, t: int) -> dict[str, np.ndarray]:
    return {each: normal(b, t, 3, seed=seed).astype("float32") for seed, each in enumerate("qkv")}


@pytest.mark.parametrize("name", PROGRAMS)
def test_values_and_gradients(name: str) -> None:
    ctx, B, T, outputs = program(name)
    for b, t in ((2, 5), (1, 1), (1, 2), (1, 33), (2, 70)):
        expected = reference.evaluate(ctx, outputs, {B: b, T: t}, fed(b, t))
        configs = [tp.Config(backend="numpy"), tp.Config(backend="numpy", disable=("simplify",))]
        for config in (*configs, *((tp.Config(),) if t == 70 else ())):
            for result, value in zip(ctx.run({B: b, T: t}, outputs, fed(b, t), config), expected, strict=True):
                assert_same(result, value, 1e-4, f"{name}, {b}, {t}, {config}")


@pytest.mark.parametrize("name", PROGRAMS)
def test_no_sum_is_there_for_each_point(name: str) -> None:
    """What runs along t are the sums of blocks; in plain sums the gradients' too."""
    ctx, _, _, outputs = program(name)
    graph = lifted(ctx, outputs if name in ("state", "carried", "from_the_end") else outputs[:1])
    scans = [node for node in graph if isinstance(node.op, (CumSum, LinearScan)) and node.outputs[0].rank >= 3]
    assert scans and all("//32" in str(node.outputs[0].shape[0]) for node in scans)
    assert not ops_of(graph, LinearScan)


@pytest.mark.parametrize("number", [math.nan, math.inf])
@pytest.mark.parametrize("name", ["state", "of_neighbours", "from_the_end"])
def test_points_outside_of_a_sum_do_not_count(name: str, number: float) -> None:
    """Their weight is zero, but 0 times infinity would be NaN."""
    ctx, B, T, outputs = program(name)
    for where, point in (("v", 3), ("k", 4), ("q", 2), ("v", 35)):
        inputs = fed(1, 40)
        inputs[where][0, point, 1] = number
        expected = reference.evaluate(ctx, outputs[:1], {B: 1, T: 40}, inputs)
        results = ctx.run({B: 1, T: 40}, outputs[:1], inputs, tp.Config(backend="numpy"))
        for result, value in zip(results, expected, strict=True):
            np.testing.assert_array_equal(np.isfinite(result), np.isfinite(value), err_msg=f"{where}, {point}")


STAYING: dict[str, Callable[[Any, tp.Tensor, tp.Tensor], tp.Tensor]] = {
    "a result": lambda s, q, k: s,
    "another function of the sum": lambda s, q, k: tp.sin(s) @ q,
    "a contraction of both factors": lambda s, q, k: (s * (q.expand_dims(1) * k)).sum((0, 1)),
}


@pytest.mark.parametrize("what", STAYING)
def test_sums_that_are_read_otherwise_stay(what: str) -> None:
    ctx = tp.Context("t")
    with ctx as ((t, T),):
        q, k = (tp.input(each, (3,), domain=(t,)) for each in "qk")
        s = tp.recurrence((3, 3), domain=(t,), name="s")
        s[0] = outer(q, k)[0]
        s[t] = s[t - 1] + outer(q, k)
        y = STAYING[what](s, q, k)
    graph = lifted(ctx, [y])
    assert [str(node.outputs[0].shape[0]) for node in graph if isinstance(node.op, CumSum)] == ["T"]
    inputs = {each: normal(5, 3, seed=seed).astype("float32") for seed, each in enumerate("qk")}
    (expected,) = reference.evaluate(ctx, [y], {T: 5}, inputs)
    assert_same(ctx.run({T: 5}, [y], inputs, tp.Config(backend="numpy"))[0], expected)
