"""fig:access_patterns: y[t] depends on a dynamic range of x. Each pattern's dependence, inverse, schedule, store and values.

The paper stores a tensor that windows read in a circular buffer of the window's length (twice, mirrored), and a tensor that blocks
read in a buffer of one block. Here the schedule decides how many values are alive: a window of w takes w slots; a block takes
2w - 1, because y always runs w - 1 steps behind x, and not after each block. Causal and anti-causal reads keep all T values.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pytest

import tempo_core as tp
from tests.core.running import Case
from tests.paper.running import LOOPS, assert_agree, index_text, inverse_of, rows, slots_of

LENGTH, WIDTH = 8, 3


@dataclass(frozen=True)
class Pattern:
    """`dependence` has the points of x that y reads, `inverse` the readers of a point of x; y[0] runs in step `first` of x's loop."""

    read: Callable[..., tp.Tensor]
    dependence: str
    shape: str
    inverse: str
    points: Callable[[int], range]
    first: int | None
    store: tuple[str, int]


PATTERNS = {
    "causal": Pattern(
        lambda x, t, T: x[0 : t + 1],
        "[0:t + 1]", "(t + 1, 2)", "[t:T]",
        lambda t: range(t + 1), 0, ("block", LENGTH),
    ),
    "forward_window": Pattern(
        lambda x, t, T: x[t : tp.min(t + WIDTH, T)],
        "[t:min(t + 3, T)]", "(min(t + 3, T) - t, 2)", "[max(t - 2, 0):t + 1]",
        lambda t: range(t, min(t + WIDTH, LENGTH)), WIDTH - 1, ("window", WIDTH),
    ),
    "anti_causal": Pattern(
        lambda x, t, T: x[t:T],
        "[t:T]", "(T - t, 2)", "[0:t + 1]",
        lambda t: range(t, LENGTH), None, ("block", LENGTH),
    ),
    "backward_window": Pattern(
        lambda x, t, T: x[tp.max(t - WIDTH + 1, 0) : t + 1],
        "[max(t - 2, 0):t + 1]", "(t - max(t - 2, 0) + 1, 2)", "[t:min(t + 3, T)]",
        lambda t: range(max(t - WIDTH + 1, 0), t + 1), 0, ("window", WIDTH),
    ),
    "block": Pattern(
        lambda x, t, T: x[t // WIDTH * WIDTH : tp.min((t // WIDTH + 1) * WIDTH, T)],
        "[3*(t//3):min(3*(t//3) + 3, T)]", "(min(3*(t//3) + 3, T) - 3*(t//3), 2)", "[t - (t%3):min(t - (t%3) + 3, T)]",
        lambda t: range(t // WIDTH * WIDTH, min((t // WIDTH + 1) * WIDTH, LENGTH)), WIDTH - 1, ("window", 2 * WIDTH - 1),
    ),
}  # fmt: skip


@dataclass
class Built:
    """The program of one pattern: x is computed step by step, y is the largest of the values that it reads."""

    case: Case
    x: tp.Tensor
    read: tp.Tensor
    y: tp.Tensor


def build(pattern: Pattern) -> Built:
    ctx = tp.Context("t")
    with ctx as ((t, T),):
        start = tp.input("start", (2,))
        x = tp.recurrence((2,), domain=(t,), name="x")
        x[0] = start
        x[t + 1] = tp.sin(3.0 * x)
        read = pattern.read(x, t, T)
        y = read.max(0).named("y")
    first = rows([0.5, -0.2])
    values = [first]
    for _ in range(1, LENGTH):
        values.append(np.sin(np.float32(3) * values[-1]))
    expected = [np.max([values[k] for k in pattern.points(at)], 0) for at in range(LENGTH)]
    return Built(Case(ctx, {T: LENGTH}, [y], [rows(expected)], {"start": first}), x, read, y)


@pytest.mark.parametrize("name", PATTERNS)
def test_the_dependence_is_a_symbolic_index_and_the_shape_follows(name):
    built = build(PATTERNS[name])
    assert index_text(built.read.edge.index) == PATTERNS[name].dependence
    assert f"({', '.join(map(str, built.read.shape))})" == PATTERNS[name].shape
    assert str(built.y.domain) == "(t)"


@pytest.mark.parametrize("name", PATTERNS)
def test_the_inverse_says_who_reads_a_point(name):
    built = build(PATTERNS[name])
    inverse = inverse_of(built.y, built.read)
    assert index_text(inverse.index) == PATTERNS[name].inverse
    assert str(inverse.condition) == "true"


@pytest.mark.parametrize("name", PATTERNS)
def test_the_schedule_waits_no_longer_than_the_pattern_asks(name, golden):
    """y[0] runs in the iteration that computes the last x it reads; with anti-causal reads, after the loop of x."""
    pattern, built = PATTERNS[name], build(PATTERNS[name])
    text = built.case.context.compile(built.case.bounds, [built.y], LOOPS).text("program", full=True)
    golden(f"paper/access_{name}.txt", text)
    at = text.splitlines()
    if pattern.first is None:
        first_y = next(k for k, line in enumerate(at) if " y" in line)
        assert all("x|" not in line for line in at[first_y:])
    else:
        ahead = int("x|1[t + 1]" in text)  # an iteration t of the rotated loop computes x at t + 1
        wait = pattern.first - ahead
        assert (f"y[t - {wait}]" if wait > 0 else "y[t]") in text


@pytest.mark.parametrize("name", PATTERNS)
def test_the_store_holds_what_the_pattern_keeps_alive(name):
    built = build(PATTERNS[name])
    program = built.case.context.compile(built.case.bounds, [built.y], LOOPS)
    assert slots_of(program, "x") == PATTERNS[name].store


@pytest.mark.parametrize("name", PATTERNS)
def test_values(name):
    assert_agree(build(PATTERNS[name]).case)


@pytest.mark.parametrize("width", [1, 2, 4, 5, 8])
def test_blocks_and_windows_of_any_width_are_folded(width):
    """No width makes the scheduler give up on one loop for both."""
    kinds = {
        2 * width - 1: lambda x, t, T: x[t // width * width : tp.min((t // width + 1) * width, T)],
        width: lambda x, t, T: x[t : tp.min(t + width, T)],
    }
    for slots, read in kinds.items():
        built = build(Pattern(read, "", "", "", lambda t: range(t, t + 1), None, ("", 0)))
        (T,) = built.case.bounds
        assert slots_of(built.case.context.compile({T: 100}, [built.y], LOOPS), "x")[1] == slots


def test_state_passing_keeps_one_value():
    """x may equal y: a tensor that depends on its own value one step before. Its store is a register, whatever T is."""
    data, ctx = rows(np.linspace(-1, 1, 6)), tp.Context("t")
    with ctx as ((t, T),):
        x = tp.input("x", domain=(t,))
        y = tp.recurrence((), domain=(t,), name="y")
        y[0] = x[0]
        before = y[t - 1]
        y[t] = tp.tanh(before + x)
        last = y[T - 1]
    assert index_text(before.edge.index) == "[t - 1]"
    inverse = inverse_of(before, before)
    assert index_text(inverse.index) == "[t + 1]" and str(inverse.condition) == "T >= t + 2"
    program = ctx.compile({T: 1000}, [last], LOOPS)
    assert slots_of(program, "y") == ("register", 1)
    value = data[0]
    for k in range(1, 6):
        value = np.tanh(value + data[k])
    assert_agree(Case(ctx, {T: 6}, [last], [np.float32(value)], {"x": data}))
