"""The thresholds that are left: each has a unit, a reason and a user, and acts on a program on each side of it."""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

import tempo_core as tp
from benchmarks.classics.table import load
from tempo_core import prices
from tempo_core.ir.graph_text import to_text
from tests.core.passes.programs import PROGRAMS
from tests.core.runtime.test_unroll import Stack

CORE = Path(prices.__file__).parent
SOURCE = inspect.getsource(prices)
NUMBERS = {name: value for name, value in vars(prices).items() if name.isupper() and isinstance(value, (int, float))}
UNITS = "points|operations|pieces|factors|times|seconds|elements|of a loop's body|statements|runs|sums|bytes"
Build = Callable[[], "tp.Program[Any]"]


def test_each_has_a_unit_a_reason_and_a_user() -> None:
    assert len(NUMBERS) <= 32
    others = [path.read_text(encoding="utf-8") for path in CORE.rglob("*.py") if path.name != "prices.py"]
    questions = SOURCE[SOURCE.index("# -- questions") :]
    for name in NUMBERS:
        above = re.search(rf"((?:^# [^-].*\n)+)(?:[A-Z_]+, )?{name}\b", SOURCE, re.MULTILINE)
        assert above is not None, f"{name} has no reason"
        assert re.match(rf"# ({UNITS})\b", above[1].lower()), f"{name}: of what?"
        assert any(re.search(rf"\b{name}\b", text) for text in (questions, *others)), f"nobody uses {name}"


# -- on each side -----------------------------------------------------------------------------------------------------


@contextmanager
def patched(name: str, value: float) -> Iterator[None]:
    """A threshold with another value, also where it was imported by name."""
    with ExitStack() as stack:
        for module in [m for key, m in sys.modules.items() if key.startswith("tempo_core") and name in vars(m)]:
            stack.enter_context(patch.object(module, name, value))
        yield


def text(program: tp.Program[Any]) -> str:
    """Graph, schedule and device programs."""
    staged = program._staged
    assert staged is not None
    lowered = [staged._lowered(segment, staged._expected(segment)).as_text() for segment in staged.segments]
    return "\n".join((to_text(program.graph), program.scheduled.text(), *lowered))


def hard(name: str) -> Build:
    def build() -> tp.Program[Any]:
        ctx, outputs = PROGRAMS[name].build()
        return ctx.compile({"I": 4, "T": 40}, outputs)

    return build


def classic(name: str, size: str = "tiny") -> Build:
    def build() -> tp.Program[Any]:
        traced = load()[name].program(**load()[name].sizes[size])
        program: tp.Program[Any] = traced.context.compile(traced.bounds, traced.outputs)
        return program

    return build


def one(make: Callable[..., Any], points: int) -> Build:
    """A program over t."""

    def build() -> tp.Program[Any]:
        ctx = tp.Context("t")
        with ctx as ((t, T),):
            return ctx.compile({T: points}, make(t, T))

    return build


def sums(axis: int, *shape: int) -> Build:
    return one(lambda t, T: tp.input("x", shape).sum(axis) + t, 3)


def loop(t: Any, T: Any) -> Any:
    h = tp.recurrence((64,), domain=(t,), name="h")
    h[0], h[t + 1] = tp.ones((64,)), tp.sin(h) @ tp.input("w", (64, 64))
    return h[T - 1]


def products(t: Any, T: Any) -> Any:
    """A running sum of products of 8 by 16 numbers."""
    x, y = tp.input("x", (8,), domain=(t,)), tp.input("y", (16,), domain=(t,))
    s = tp.recurrence((8, 16), domain=(t,), name="s")
    s[0], s[t] = tp.zeros((8, 16)), 0.9 * s[t - 1] + tp.exp(x).expand_dims(1) * y
    return s[0:T].max(0)


def compared(t: Any, T: Any) -> Any:
    """A running sum of a comparison, which reads twice as much as it gives."""
    x, y = tp.input("x", (64,), domain=(t,)), tp.input("y", (64,), domain=(t,))
    return (x > y).astype("float32")[0 : t + 1].sum(0).max(0)


def scattered(t: Any, T: Any) -> Any:
    """Writes at two positions of sixteen."""
    table, at = tp.recurrence((16, 2), domain=(t,), name="table"), tp.input("at", (), "int32", domain=(t,))
    rows = tp.stack([tp.ones((2,)), tp.ones((2,)) * 2])
    table[0], table[t + 1] = tp.zeros((16, 2)), table.scatter(tp.stack([at, at * 2 % 16]), rows)
    return table[T - 1]


def noisy(t: Any, T: Any) -> Any:
    """Draws of 64 numbers: 1,024 with the nominal number of points."""
    h = tp.recurrence((64,), domain=(t,), name="h")
    h[0], h[t + 1] = tp.ones((64,)), tp.sin(h) + tp.random.normal((64,), domain=(t,))
    return h[T - 1]


def attention(t: Any, T: Any) -> Any:
    """A running sum of products of 16 by 16 numbers."""
    q, k, v = (tp.input(name, (16,), domain=(t,)) for name in "qkv")
    return q @ (k.expand_dims(1) * v)[0 : t + 1].sum(0)


def ended() -> tp.Program[Any]:
    """A recurrence of which a run chooses how many points it needs."""
    ctx = tp.Context("n", "t")
    with ctx as ((_, N), (t, T)):
        h, z = tp.recurrence((8,), domain=(t,), name="h"), tp.recurrence((8,), domain=(t,), name="z")
        h[0], h[t + 1] = tp.ones((8,)), tp.sin(h)
        z[0], z[t + 1] = tp.ones((8,)), tp.sin(z * h) @ tp.input("w", (8, 8))
        return ctx.compile({N: tp.upto(30), T: 40}, [h[T - 1], z[N - 1]])


def chained(t: Any, T: Any) -> Any:
    """Two matrices and a vector: the last product first has fewer operations."""
    a, b, x = tp.input("a", (32, 32)), tp.input("b", (32, 32)), tp.input("x", (32,))
    return (a @ b) @ x + t


def small_product(t: Any, T: Any) -> Any:
    """The product has a 64th of the numbers that it reads."""
    h = tp.recurrence((256, 64), domain=(t,), name="h")
    h[0], h[t + 1] = tp.ones((256, 64)), (h * 0.5).sin()
    return ((h @ tp.input("w", (64, 1)))[0:T] ** 2).sum()


# By threshold: two values, and a program that lies between them.
ACTS: dict[str, tuple[float, float, Build]] = {
    "WORTH_OWN_CODE": (1, 8, hard("weight_gradients")),
    "MOST_WRITTEN_OUT": (3, 4, sums(1, 2000, 4)),
    "LEAST_SUMS_TO_WRITE_OUT": (2000, 2001, sums(1, 2000, 4)),
    "LEAST_WIDTH_TO_MULTIPLY": (128, 129, sums(0, 4, 128)),
    "MOST_PIECES": (1, 3, classic("CTC, places a dimension", "small")),
    "MOST_REPEATED": (1, 24, hard("invariant_in_a_loop")),
    "MOST_COMBINED": (1, 6, one(chained, 2)),
    "MOST_TIMES_A_LAUNCH": (1e-9, 1e9, one(loop, 1000)),
    "LEAST_SECONDS_OF_COPIES": (1e-9, 1.0, Stack().compiled),
    "MOST_OPERATIONS_TO_UNROLL": (1, 10_000, Stack().compiled),
    "MOST_PIECES_TO_COMPARE": (1, 16, classic("HMM forward-backward")),
    "SHORT_AXIS": (3, 10_000, classic("HMM Viterbi")),
    "LEAST_BYTES_TO_SLICE": (1, 10**9, hard("table_and_its_gradient")),
    "MOST_TIMES_THE_POINTS": (1.0, 2.5, hard("table_of_splits")),
    "MOST_STATEMENTS_FOR_ISL": (1, 60, classic("resonator")),
    "TIMES_SMALLER": (1, 10_000, one(products, 40)),
    "MOST_READ_BY_FAST_OPERATIONS": (0.5, 2, one(compared, 40)),
    "LEAST_LENGTH_TO_SCATTER": (16, 17, one(scattered, 40)),
    "MOST_KEPT": (1023, 1024, one(noisy, 40)),
    "MUCH_SMALLER": (64, 65, one(small_product, 40)),
    "POINTS_OF_A_BLOCK": (16, 32, one(attention, 40)),
    "LEAST_SHARE_TO_CUT_AT_VALUE": (0.5, 1.1, ended),
}

# Where the others are changed.
ELSEWHERE = {
    "NOMINAL": "runtime/test_capacities.py",
    "MOST_COPIED_OPERATIONS": "runtime/test_launches.py",
    "MOST_SHIFTED_OPERATIONS": "passes/test_shift.py",
    "MOST_SHIFTS": "passes/test_shift.py",
    "LEAST_ELEMENTS_OF_A_BLOCKED_SUM": "passes/test_running_sums.py",
    "LEAST_LENGTH_TO_UPDATE": "passes/test_update.py",
    "LEAST_GAIN": "test_planner.py",
    "LEAST_SECONDS_SAVED": "test_planner.py",
    "RUNS": "runtime/test_unroll.py",
    "OPERATIONS_OF_A_LONG_LOOP": "runtime/test_unroll.py",
}


def test_each_has_a_test() -> None:
    assert ACTS.keys() | ELSEWHERE.keys() == NUMBERS.keys() and not ACTS.keys() & ELSEWHERE.keys()
    for name, path in ELSEWHERE.items():
        assert re.search(rf"\b{name}\b", (Path(__file__).parent / path).read_text(encoding="utf-8")), name


@pytest.mark.cpu
@pytest.mark.parametrize("name", ACTS)
def test_each_decides_between_two_programs(name: str) -> None:
    below, above, build = ACTS[name]
    texts = []
    for value in (below, above):
        with patched(name, value):
            texts.append(text(build()))
    assert texts[0] != texts[1]
