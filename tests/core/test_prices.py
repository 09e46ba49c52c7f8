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
    assert len(NUMBERS) <= 31
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


def one(make: Callable[..., Any], *bounds: int) -> Build:
    """A program over t (and s)."""

    def build() -> tp.Program[Any]:
        ctx = tp.Context(*"ts"[: len(bounds)])
        with ctx as pairs:
            outputs = make(*(each for pair in pairs for each in pair))
        return ctx.compile({pair[1]: n for pair, n in zip(pairs, bounds, strict=True)}, outputs)

    return build


def sums(axis: int, *shape: int) -> Build:
    return one(lambda t, T: tp.input("x", shape).sum(axis) + t, 3)


def triangle(t: Any, T: Any, s: Any, S: Any) -> Any:
    x, y = tp.input("x", (4,), domain=(t,)), tp.input("y", (4,), domain=(s,))
    return tp.tanh(x + y)[t, 0 : t + 1].sum(0)


def loop(t: Any, T: Any) -> Any:
    h = tp.recurrence((64,), domain=(t,), name="h")
    h[0], h[t + 1] = tp.ones((64,)), tp.sin(h) @ tp.input("w", (64, 64))
    return h[T - 1]


# By threshold: two values, and a program that lies between them.
ACTS: dict[str, tuple[float, float, Build]] = {
    "WORTH_OWN_CODE": (1, 8, hard("weight_gradients")),
    "MOST_WRITTEN_OUT": (3, 4, sums(1, 2000, 4)),
    "LEAST_SUMS_TO_WRITE_OUT": (2000, 2001, sums(1, 2000, 4)),
    "LEAST_WIDTH_TO_MULTIPLY": (128, 129, sums(0, 4, 128)),
    "MOST_PIECES": (1, 3, classic("CTC, places a dimension")),
    "MOST_REPEATED": (1, 24, hard("invariant_in_a_loop")),
    "MOST_COMBINED": (1, 6, hard("gradients_over_all_times")),
    "MOST_TIMES_A_LAUNCH": (1e-9, 1e9, one(loop, 1000)),
    "LEAST_SECONDS_OF_COPIES": (1e-9, 1.0, Stack().compiled),
    "MOST_OPERATIONS_TO_UNROLL": (1, 10_000, Stack().compiled),
    "MOST_PIECES_TO_COMPARE": (1, 16, classic("HMM forward-backward")),
    "SHORT_AXIS": (3, 10_000, classic("HMM Viterbi")),
    "LEAST_BYTES_TO_SLICE": (1, 10**9, hard("table_and_its_gradient")),
    "MOST_TIMES_THE_POINTS": (1.0, 2.5, one(triangle, 12, 12)),
}


@pytest.mark.cpu
@pytest.mark.parametrize("name", ACTS)
def test_each_decides_between_two_programs(name: str) -> None:
    below, above, build = ACTS[name]
    texts = []
    for value in (below, above):
        with patched(name, value):
            texts.append(text(build()))
    assert texts[0] != texts[1]
