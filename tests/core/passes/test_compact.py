"""compact: a loop keeps narrow values, and what reads wide ones at all points computes them from these."""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace

import jax.numpy as jnp
import numpy as np
import pytest

import tempo_core as tp
from tempo_core import target
from tempo_core.ir.graph import Graph
from tempo_core.passes.keep.compact import Compact
from tempo_core.symbolic.condition import TRUE, equal
from tempo_core.symbolic.expr import Expr, Symbol
from tempo_core.target import Target
from tests import targets
from tests.cases import fast, first
from tests.core.passes.support import Golden, after, check
from tests.core.running import assert_all_same

# A loop over bytes, and the sum of the squares of what they mean.
BYTES = """\
steps t<T
%0 scale = Input(name="scale", dtype="float32", shape=())() : float32[] over ()
%1 start = Input(name="start", dtype="uint8", shape=(3,))() : uint8[3] over ()
%2 b = Merge(type=uint8[3])(%1 if t == 0, %7[t - 1] if t >= 1) : uint8[3] over (t)
%3 wide = Cast(dtype="float32")(%2[t]) : float32[3] over (t)
%4 factor = Broadcast(shape=(3,), axes=())(%0) : float32[3] over ()
%5 x = Binary(fn="mul")(%3[t], %4) : float32[3] over (t)
%6 next = Unary(fn="tanh")(%5[t]) : float32[3] over (t)
%7 byte = Cast(dtype="uint8")(%6[t]) : uint8[3] over (t)
%8 square = Binary(fn="mul")(%5[0:T], %5[0:T]) : float32[T, 3] over ()
%9 all = Reduce(fn="sum", axes=(0, 1))(%8) : float32[] over ()
%10 = Output(position=0)(%9) over ()
"""
COUNT = """\
%11 = Output(position=1)(%{value}[0:T]) over ()
"""
RAGGED = """\
%11 = Broadcast(shape=(t + 1, 3), axes=(1,))(%3[t]) : float32[t + 1, 3] over (t)
%12 = Eval(value=0)() : int32[] over ()
%5 x = Gather(axis=0)(%11[t], %12) : float32[3] over (t)
"""
MERGED = """\
%11 = Broadcast(shape=(T, 3), axes=())(%0) : float32[T, 3] over ()
%12 = Merge(type=float32[T, 3])(%5[i, 0:T] if i == 0, %11 if i >= 1) : float32[T, 3] over (i)
"""
CHAIN = """\
%13 w = Input(name="w", dtype="float32", shape=(3, 3))() : float32[3, 3] over ()
%14 y = Dot(left_contract=(1,), right_contract=(0,), left_batch=(), right_batch=())(%5[0:T], %13) : float32[T, 3] over ()
"""
BACKWARDS = """\
%11 g = Merge(type=float32[3])(%5[t] if t + 1 == T, %12[t + 1] if T >= t + 2) : float32[3] over (t)
%12 back = Binary(fn="add")(%11[t], %5[t]) : float32[3] over (t)
%13 = Output(position=1)(%12[0]) over ()
"""
PRODUCT = """\
%8 square = Dot(left_contract=(0,), right_contract=(0,), left_batch=(), right_batch=())(%5[0:T], %5[0:T]) : float32[3, 3] over ()
"""


def read(graph: Graph) -> set[str]:
    """The names of the values of the loop that are read at all points outside of it."""
    outside = [node for node in graph if "t" not in map(str, node.domain.steps)]
    return {
        graph[edge.source].name for node in outside for edge in node.inputs if edge.lengths and graph[edge.source].domain.steps
    }


def again_and_again(text: str) -> str:
    """A text in which another loop reads all points."""
    reader, total, result = text.splitlines()[-3:]
    lines = (
        reader.replace("()", "(i)"),
        total.replace("(%8) : float32[] over ()", "(%8[i]) : float32[] over (i)"),
        result.replace("%9", "%9[0]"),
    )
    return "\n".join([*text.replace("t<T", "i<I t<T").splitlines()[:-3], *lines, ""])


def in_each_iteration(index: str) -> str:
    """The loop runs in each iteration of another one, and all points of the iteration `index` are read."""
    text = again_and_again(re.sub(r"%(\d)\[t", r"%\1[i, t", BYTES).replace("over (t)", "over (i, t)"))
    return text.replace("%5[0:T]", f"%5[{index}, 0:T]")


def reshaped(text: str) -> str:
    """A text that reads all points in another shape."""
    view = "%11 flat = Reshape(shape=(T, 1, 3))(%5[0:T]) : float32[T, 1, 3] over ()\n"
    back = "%12 = Reshape(shape=(T, 3))(%11) : float32[T, 3] over ()\n"
    return text.replace("%5[0:T], %5[0:T]", "%12, %12") + view + back


def product(text: str) -> str:
    """A text with a product in place of the squares."""
    return "".join(PRODUCT if line.startswith("%8") else line for line in text.splitlines(keepends=True))


def test_the_loop_keeps_the_bytes(golden: Golden) -> None:
    assert read(after(BYTES)) == {"x"}
    assert read(check(golden, "compact", BYTES, Compact())) == {"b"}
    assert read(after(reshaped(BYTES), Compact())) == {"b"}
    assert read(after(in_each_iteration("i"), Compact())) == {"b"}


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        (BYTES + COUNT.replace("{value}", "5"), {"x"}),  # it is a result: all of it is in memory anyway
        (BYTES + COUNT.replace("{value}", "3"), {"wide"}),
        (BYTES.replace("%3[t], %4", "%3[T - 1 - t], %4"), {"x"}),
        (BYTES.replace("%5[0:T], %5[0:T]", "%5[1:T], %5[1:T]").replace("[T, 3]", "[T - 1, 3]"), {"x"}),
        (BYTES.replace('"mul")(%3', '"pow")(%3'), {"x"}),
        (BYTES.replace("over (t)", "over (t) where T >= t + 1"), {"x"}),
        (again_and_again(BYTES), {"x"}),
        (in_each_iteration("I - 1 - i"), {"x"}),
        (in_each_iteration("i").replace("%5[i, 0:T], %5[i, 0:T]", "%12[i], %12[i]") + MERGED, {"x"}),
        ("".join(line for line in BYTES.splitlines(keepends=True) if line[:2] != "%5") + RAGGED, {"x"}),
        (BYTES + BACKWARDS, {"x"}),
        (reshaped(product(BYTES)), {"x"}),
        (product(BYTES), {"x"}),  # a product needs its operand in memory
    ],
    ids=[
        "a result",
        "a source that is a result",
        "another point",
        "some points",
        "slow",
        "a condition",
        "another loop",
        "another iteration",
        "a recurrence",
        "a size that varies",
        "a loop that goes back",
        "a view of a product",
        "a product",
    ],
)
def test_what_is_read_as_before(text: str, kept: set[str]) -> None:
    assert read(after(text, Compact())) == kept


def test_products_in_tiles_read_copies() -> None:
    assert read(after(product(BYTES), Compact(tiles=(("t", 2),)))) == {"b"}
    assert read(after(product(BYTES), Compact(tiles=(("t", 2),), but=("t",)))) == {"x"}


def test_the_numbers_that_decide_about_strips() -> None:
    strips = Compact(((Symbol("T"), 12),))
    assert after(product(BYTES), strips).decided_for == TRUE, "a product of what no product made is never in strips"
    chain = product(BYTES).replace("%5[0:T], %5[0:T]", "%5[0:T], %14") + CHAIN
    for pays, kept in ((False, {"x"}), (True, {"b"})):
        with targets.strips(100) if pays else nullcontext():
            graph = after(chain, replace(strips, target=Target.at_hand()))
        assert read(graph) == kept
        assert graph.decided_for == equal(Symbol("T").expr, Expr.of(12))


Row = Callable[[tp.Tensor], tp.Tensor]
WIDTH = 40


def codes(state: tp.Tensor) -> tp.Tensor:
    return tp.arange(WIDTH) + state


ROWS: dict[str, Row] = {
    "mask": lambda state: tp.where(codes(state) > 20, 1.0, 0.0),
    "one hot": lambda state: state.one_hot(WIDTH),
    "cast": lambda state: codes(state).astype("float32"),
    "normalised": lambda state: (codes(state).astype("float32") - 20.0) / 12.0,
    "of a table": lambda state: tp.take(tp.arange(5 * WIDTH).astype("float32").reshape(5, WIDTH), state, axis=0),
}


def trained(row: Row, T: int, disable: tuple[str, ...]) -> tp.Program:
    """A state with feedback: the variance of its rows, and the gradient of returns."""
    ctx = tp.Context("t")
    with ctx as ((t, n_t),):
        w, state = tp.input("w", (WIDTH,)), tp.recurrence((), "int32", domain=(t,))
        x = row(state)
        y = tp.tanh((x * w).sum(0))
        state[0] = tp.full((), 1, "int32")
        state[t + 1] = (state + (y > 0).astype("int32") + 1) % 5
        variance = ((x - x[0:n_t].mean(0)) ** 2)[0:n_t].mean(0)
        returns = state.astype("float32")[t:n_t].discounted_sum(0.9)
        (gradient,) = tp.grad((y * returns)[0:n_t].sum(0), wrt=[w])
    return ctx.compile({n_t: T}, [variance, gradient], tp.Config(disable=disable))


@pytest.mark.parametrize("name", first(3, ROWS))
@pytest.mark.parametrize("T", fast([1, 30], 30))
def test_rows_of_a_state_take_the_bytes_of_the_state(name: str, T: int) -> None:
    weights = {"w": np.random.default_rng(0).normal(size=WIDTH).astype(np.float32)}
    compact, wide = (trained(ROWS[name], T, off) for off in ((), ("compact",)))
    assert_all_same(compact.run(weights), wide.run(weights))
    assert T == 1 or wide.plan().bytes - compact.plan().bytes >= 4 * (WIDTH - 1) * T
    assert ("narrower" in str(compact.explain())) and "narrower" not in str(wide.explain())


SIDE, ROWS_OF_PICTURES = 16, 4


def picture(place: jnp.ndarray) -> tuple[jnp.ndarray]:
    pixels = jnp.arange(SIDE * SIDE).reshape(1, SIDE, SIDE)
    return (((place[:, None, None] * 79 + pixels * 3) % 251).astype(jnp.uint8),)


def reinforced(T: int, config: tp.Config) -> tp.Program:
    """A policy on pictures, whose actions choose the next ones."""
    ctx = tp.Context("t")
    with ctx as ((t, n_t),):
        hidden, head = tp.input("hidden", (SIDE * SIDE, 3)), tp.input("head", (3, 2))
        place = tp.recurrence((ROWS_OF_PICTURES,), "int32", domain=(t,))
        (seen,) = tp.udf(picture, place, outputs=[tp.spec((ROWS_OF_PICTURES, SIDE, SIDE), "uint8")])
        pixels = (seen.reshape(ROWS_OF_PICTURES, SIDE * SIDE).astype("float32") / 255.0).named("pixels")
        logits = tp.tanh(pixels @ hidden) @ head
        action = logits.argmax(-1).astype("int32")
        place[0], place[t + 1] = tp.arange(ROWS_OF_PICTURES), (place + action * 2 + 1) % 16
        returns = (place % 2).astype("float32")[t:n_t].discounted_sum(0.9)
        log_prob = (logits.log_softmax(-1) * action.one_hot(2)).sum(-1)
        gradients = tp.grad((log_prob * returns)[0:n_t].mean(), wrt=[hidden, head])
    return ctx.compile({n_t: T}, list(gradients), config)


@pytest.mark.parametrize("parts", fast(["strips", "tiles"], "strips"))
def test_a_gradient_keeps_the_pictures(parts: str, monkeypatch: pytest.MonkeyPatch) -> None:
    T, pixels = 60, ROWS_OF_PICTURES * SIDE * SIDE
    tiles = {"t": 5} if parts == "tiles" else {}
    if parts == "strips":
        monkeypatch.setattr(target, "CPU", replace(target.CPU, cache_bytes=2 * T * pixels - 1, operation=0.0))
    generator = np.random.default_rng(1)
    weights = {"hidden": generator.normal(size=(SIDE * SIDE, 3)), "head": generator.normal(size=(3, 2))}
    weights = {name: value.astype(np.float32) for name, value in weights.items()}
    compact, wide = (reinforced(T, tp.Config(tile=tiles, disable=off)) for off in ((), ("compact",)))
    assert_all_same(compact.run(weights), wide.run(weights))
    assert [str(tensor.type) for tensor in compact.plan().tensors if tensor.bytes >= T * pixels] == ["uint8[4, 256]"]
    assert compact.plan().peak_device_bytes < 0.5 * wide.plan().peak_device_bytes
    shorter = compact.with_bounds({"T": T // 2})  # without strips
    assert ("pixels" in [tensor.name for tensor in shorter.plan().tensors]) == (parts == "strips")


def test_a_gradient_in_one_piece_keeps_what_it_multiplies() -> None:
    """All pixels would be in memory as floats and as bytes."""
    assert any(tensor.name == "pixels" for tensor in reinforced(60, tp.Config()).plan().tensors)
