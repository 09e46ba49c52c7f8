"""Stepping through programs: the text of each statement, the places where a session stops, and the values it shows."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tempo_core as tp
from tempo_core import errors
from tempo_core.runtime.interpreted.session import Session, value_text

BACKENDS = {"numpy": tp.Config(backend="numpy"), "jax": tp.Config(executor="interpreted"), "staged": tp.Config()}
every_backend = pytest.mark.parametrize("backend", BACKENDS)


class Walk:
    """Two loops, a recurrence of two branches, a function on the host, a window, and a sink."""

    def __init__(self) -> None:
        self.ctx = tp.Context("i", "t")
        self.sunk: list[float] = []
        with self.ctx as ((i, I), (t, T)):
            self.i, self.t = i, t
            x = tp.input("x", (2,), domain=(t,))
            h = tp.recurrence((2,), domain=(i, t), name="h")
            h[i, 0] = tp.zeros((2,)) + i  # first
            h[i, t + 1] = tp.tanh(h * 0.5 + x[t + 1])  # then
            (score,) = tp.udf(lambda v: (v.sum(),), h, outputs=[tp.spec()], kind="host", stateful=True, name="score")
            recent = score[i, tp.max(t - 1, 0) : t + 1].sum(0).named("recent")  # window
            tp.sink(lambda value, **at: self.sunk.append(float(value)), recent, when=t == 2, name="log")
            self.outputs = {"recent": recent}
        self.bounds = {I: 2, T: 3}
        self.fed = {"x": np.arange(6.0).reshape(3, 2) / 10}

    def program(self, backend: str) -> tp.Program:
        return self.ctx.compile(self.bounds, self.outputs, BACKENDS[backend])

    def session(self, backend: str = "numpy", **options: Any) -> Session:
        return self.program(backend).stepping(self.fed, **options)


@pytest.fixture
def walk() -> Walk:
    return Walk()


def line_of(text: str) -> int:
    """The number of the line of this file with the comment at its end."""
    with open(__file__, encoding="utf-8") as file:
        return next(number for number, line in enumerate(file, 1) if line.rstrip().endswith(f"# {text}"))


def without_lines(text: str) -> str:
    """The text without the line numbers of this file, which change with each edit."""
    return re.sub(r"test_session\.py:\d+", "test_session.py", text)


# -- what is shown ----------------------------------------------------------------------------------------------------


@every_backend
@pytest.mark.parametrize("as_written", [False, True])
def test_a_session_as_text(walk: Walk, golden: Callable[[str, str], None], backend: str, as_written: bool) -> None:
    session = walk.session(backend, as_written=as_written)
    before = session.where
    shown = [str(step) for step in itertools.islice(session, 16)]
    text = "\n\n".join([before, *shown, session.where, repr(session)])
    kind = (
        "as_written" if as_written else "staged" if backend == "staged" else "interpreted"
    )  # interpreted programs show deallocations
    golden(f"runtime/session_{kind}", without_lines(text))


def test_a_step(walk: Walk) -> None:
    session = walk.session(as_written=True)
    step = session.until("h", i=1, t=2)
    assert step is session.current
    assert (step.statement, step.name, step.point, step.loops) == ("h|1[1, 2]", "h", {"i": 1, "t": 2}, {"i": 1})  # after t's loop
    assert step.operation == "branch 1"
    assert step.where.endswith(f"test_session.py:{line_of('then')}")
    assert repr(step) == f"<Step {session.steps}: h|1[1, 2]>"
    ((label, read),) = step.operands.items()
    assert label == "next h[1, 1]"
    np.testing.assert_array_equal(step.values[0], read)
    first = walk.session(as_written=True).until("h|0")
    assert first.where.endswith(f"test_session.py:{line_of('first')}")


@every_backend
def test_all_statements_of_a_run(walk: Walk, backend: str) -> None:
    """Stepping through a program gives the results of a run, with each statement once."""
    program = walk.program(backend)
    (expected,) = program.run(walk.fed).values()
    runs = [list(walk.sunk)]
    for as_written in (False, True):
        walk.sunk.clear()
        session = program.stepping(walk.fed, as_written=as_written)
        seen = [step.statement for step in session]
        assert len(seen) == len(set(seen)) == session.steps
        assert [f"h|{int(t > 0)}[{i}, {t}]" for i in range(2) for t in range(3)] == [s for s in seen if s.startswith("h|")]
        np.testing.assert_allclose(session.results["recent"], expected, rtol=1e-6)
        runs.append(list(walk.sunk))
    np.testing.assert_allclose(runs[1:], runs[:1] * 2, rtol=1e-6)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (np.float32(0.5), "float32[]  0.5"),
        (np.array([1, 2], "int32"), "int32[2]  [1, 2]"),
        (np.array([[True], [False]]), "bool[2, 1]  [[ True], [False]]"),
        (np.arange(100.0, dtype="float32"), "float32[100]  0 to 99, mean 49.5"),
        (np.array([np.nan, np.inf, *range(8)], "float32"), "float32[10]  0 to 7, mean 3.5, 2 not finite"),
        (np.full(9, np.nan, "float32"), "float32[9]  none finite"),
        (np.zeros((0, 3), "float32"), "float32[0, 3]  []"),
        ([np.zeros(1), np.zeros(2)], "2 values of different shapes"),
    ],
)
def test_values_on_one_line(value: Any, text: str) -> None:
    assert value_text(value) == text


# -- where it stops ---------------------------------------------------------------------------------------------------


def test_until(walk: Walk) -> None:
    session = walk.session(as_written=True)
    assert session.until("h").statement == "h|0[0, 0]"
    assert session.until("h").statement == "h|1[0, 1]"
    assert session.until("h|0").statement == "h|0[1, 0]"
    assert session.until("score", t=2).point == {"i": 1, "t": 2}
    assert session.until("h") is None
    assert session.finished
    assert session.next() is None


def test_until_a_line_or_a_condition(walk: Walk) -> None:
    line = line_of("window")
    for target in (line, str(line), f"test_session.py:{line}", f"{__file__}:{line}"):
        step = walk.session().until(target)
        assert step.name == "recent"  # with the mask of the window
    session = walk.session()
    assert session.until(lambda step: step.point.get("i") == 1).point["i"] == 1
    assert session.until(lambda step: "recent" in step.statement, t=1).point == {"i": 1, "t": 1}


def test_breakpoints(walk: Walk) -> None:
    session = walk.session()
    session.stop_at("h", t=2)
    session.stop_at("score", i=1)
    stops = []
    while (step := session.go()) is not None:
        stops.append(step.statement)
    assert stops == ["h|1[0, 2]", "score[1, 0]", "score[1, 1]", "h|1[1, 2]", "score[1, 2]"]
    session = walk.session()
    session.stop_at("h")
    session.go()
    session.breakpoints.clear()
    assert session.go() is None


def test_next(walk: Walk) -> None:
    session = walk.session()
    assert repr(session) == "<Session: 0 statements run, not begun>"
    third = session.next(3)
    assert (third.number, session.steps) == (3, 3)
    assert session.next().number == 4
    assert session.next(1000) is None
    assert repr(session).endswith("finished>")


def test_results_come_at_the_end(walk: Walk) -> None:
    session = walk.session()
    session.next()
    with pytest.raises(errors.TempoError, match="the program has not ended"):
        _ = session.results
    assert session.finish()["recent"].shape == (2, 3)


@pytest.mark.parametrize(
    ("target", "text", "hint"),
    [
        ("scor", "no statement is called `scor`", "did you mean `score`?"),
        ("h|7", "no statement is called", "did you mean `h|"),
        (1, "no statement is on line 1", "statements are on "),
        ("elsewhere.py:3", "no statement is on line elsewhere.py:3", "statements are on "),
    ],
)
def test_targets_that_do_not_exist(walk: Walk, target: Any, text: str, hint: str) -> None:
    session = walk.session()
    for stop in (session.until, session.stop_at):
        with pytest.raises(errors.ArgumentError, match=re.escape(text)) as raised:
            stop(target)
        assert raised.value.hint.startswith(hint)
    assert session.steps == 0


def test_a_step_that_does_not_exist(walk: Walk) -> None:
    session = walk.session()
    with pytest.raises(errors.ArgumentError, match="no statement has a step `q`") as caught:
        session.until("h", q=1)
    assert caught.value.hint is not None and caught.value.hint.startswith("the steps are ")


def test_an_exception_ends_a_session_and_not_the_program() -> None:
    ctx = tp.Context("t")
    with ctx as ((t, T),):
        x = tp.input("x", domain=(t,), streamed=True)
        program = ctx.compile({T: 3}, x * 2, BACKENDS["numpy"])
    session = program.stepping({"x": iter([1.0])})
    with pytest.raises(errors.InputError, match="ended at t = 1"):
        session.finish()
    assert session.next() is None
    assert session.value("x", t=0) == 1
    assert program.run({"x": np.ones(3)}).tolist() == [2, 2, 2]


# -- what can be looked at --------------------------------------------------------------------------------------------


@every_backend
def test_values(walk: Walk, backend: str) -> None:
    session = walk.session(backend)
    np.testing.assert_allclose(session.value("x"), walk.fed["x"], rtol=1e-6)
    np.testing.assert_allclose(session.value("x", t=1), [0.2, 0.3], rtol=1e-6)
    session.until("score", i=1, t=1)
    expected = np.tanh(np.array([0.5, 0.5]) + walk.fed["x"][1])
    np.testing.assert_allclose(session.value("h"), expected, rtol=1e-6)  # at the current point
    np.testing.assert_allclose(session.value("h", t=1), expected, rtol=1e-6)
    np.testing.assert_allclose(session.value("score"), expected.sum(), rtol=1e-6)
    np.testing.assert_allclose(session.value("score", t=0), 2.0)  # a window keeps the last values
    with pytest.raises(
        errors.ArgumentError, match="`h` at i = 0, t = 0 has no value now: it is not computed yet, or not kept any more"
    ) as raised:
        session.value("h", i=0, t=0)
    assert raised.value.hint == "its values now: i = 1, t = 1"


def test_all_values_of_a_program_as_written(walk: Walk) -> None:
    session = walk.session(as_written=True)
    session.finish()
    for i, t in itertools.product(range(2), range(3)):
        assert session.value("h", i=i, t=t).shape == (2,)
    np.testing.assert_allclose(
        session.value("recent", i=0, t=2), session.value("score", i=0, t=1) + session.value("score", i=0, t=2)
    )


def test_values_that_do_not_exist(walk: Walk) -> None:
    session = walk.session()
    for name, point, text in [
        ("hh", {}, "no statement is called `hh`"),
        ("h", {"k": 1}, "`h` has the steps (i, t), not k"),
        ("h", {"i": 0, "t": 0}, "has no value now: it is not computed yet"),
        ("x", {"i": 0}, "the input `x` has the steps (t), not i"),
        ("x", {"t": 3}, "the input `x` does not exist at t = 3"),
    ]:
        with pytest.raises(errors.ArgumentError, match=re.escape(text)):
            session.value(name, **point)


def test_seeds_and_streams() -> None:
    ctx = tp.Context("t")
    with ctx as ((t, T),):
        x = tp.input("x", domain=(t,), streamed=True)
        noise = tp.random.normal((), domain=(t,)).named("noise")
        program = ctx.compile({T: 3}, {"y": x + noise}, BACKENDS["numpy"])
    for seed in (0, 3):
        session = program.stepping({"x": itertools.count()}, seed=seed)
        step = session.until("x", t=1)
        assert (step.operation, step.values[0], step.operands) == ("fed by `x`", 1.0, {})
        expected = program.run({"x": itertools.count()}, seed=seed)
        np.testing.assert_array_equal(session.finish()["y"], expected["y"])


def test_step_goes_through_a_program(walk: Walk) -> None:
    assert [step.operation for step in walk.program("numpy").step(walk.fed)][-1] == "output 0"
