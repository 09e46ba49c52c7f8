"""Launches around calls of functions: joined at the edges of loops, first what is awaited, results kept on the host, long loops cut."""

from __future__ import annotations

import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import tempo_core as tp
from tempo_core import errors, prices
from tempo_core.config import CHOICES
from tempo_core.runtime.staged.chunks import next_count
from tempo_core.runtime.staged.host import Chunks, Segment
from tempo_core.runtime.staged.stage import Staged
from tests.cases import fast


@pytest.fixture
def launches(monkeypatch: pytest.MonkeyPatch) -> Iterator[Counter[int]]:
    """The launches by the number of their segment."""
    count: Counter[int] = Counter()
    compile = Staged.compile

    def counting(self: Staged, segment: Any, arguments: Any) -> Callable[..., Any]:
        function = compile(self, segment, arguments)

        def launch(*values: Any) -> Any:
            count[segment.number] += 1
            return function(*values)

        return launch

    monkeypatch.setattr(Staged, "compile", counting)
    yield count


class Game:
    """A state on the host: a step moves it by the action, and returns new memory or the same."""

    def __init__(self) -> None:
        self.at, self.log = np.zeros(2, "float32"), []

    def reset(self) -> tuple[np.ndarray]:
        self.at[:] = 0.5
        return (self.at,)

    def step(self, action: np.ndarray) -> tuple[np.ndarray, ...]:
        self.at += action
        self.log.append(action.tolist())
        return self.at, np.float32(self.at.sum()), np.full((3,), self.at[0])


def rollouts(
    rounds: int = 3, steps: int = 5, disable: tuple[str, ...] = (), heavy: bool = False, sinks: bool = False
) -> tuple[Callable[[], Any], tp.Program]:
    """Rollouts that go on from round to round. `learned` reads the rewards of whole rounds; nobody reads the third result."""
    game = Game()
    sunk: list[tuple[int, int, float]] = []
    ctx = tp.Context("i", "t")
    with ctx as ((i, I), (t, T)):
        (first,) = tp.udf(game.reset, outputs=[tp.spec((2,))], kind="host", stateful=True, name="reset")
        seen = tp.recurrence((2,), domain=(i, t), name="seen")
        weight = tp.recurrence((), domain=(i,), name="weight")
        weight[0] = 1.0
        action = tp.tanh(seen) * weight + tp.random.normal((2,), domain=(i, t)) * 0.1
        following, reward, _ = tp.udf(
            game.step, action, outputs=[tp.spec((2,)), tp.spec(), tp.spec((3,))], kind="host", stateful=True, name="step"
        )
        tp.carry(seen, first, following)
        learned = (reward[i, 0:T].sum(0) * 0.01 + seen[i, 0:T].mean()).named("learned")
        weight[i + 1] = tp.tanh(learned)
        outputs = {"learned": learned, "weight": weight, "reward": reward, "seen": seen}
        if heavy:  # work for each step that the next action does not need
            memory = tp.recurrence((2, 2), domain=(i, t), name="memory")
            tp.carry(memory, tp.zeros((2, 2)), tp.tanh(memory @ memory + following))
            outputs["memory"] = memory
        if sinks:
            tp.sink(lambda value, i, t: sunk.append((int(i), int(t), float(value))), reward, name="log")
    program = ctx.compile({I: rounds, T: steps}, outputs, tp.Config(disable=disable))

    def run() -> Any:
        game.log.clear()
        sunk.clear()
        results = program.run()
        return results, list(game.log), list(sunk)

    return run, program


def assert_equal(one: Any, other: Any) -> None:
    (results, log, sunk), (expected, expected_log, expected_sunk) = one, other
    for name, value in expected.items():
        np.testing.assert_allclose(results[name], value, rtol=1e-6, atol=1e-7, err_msg=name)
    np.testing.assert_allclose(log, expected_log, rtol=1e-6, atol=1e-7)
    np.testing.assert_allclose(sunk, expected_sunk, rtol=1e-6)


@pytest.mark.parametrize(("rounds", "steps"), fast([(3, 4), (1, 1), (2, 1), (1, 2)], (3, 4), (1, 1)))
def test_launches_change_no_value(rounds: int, steps: int) -> None:
    plain, _ = rollouts(rounds, steps, CHOICES, heavy=True, sinks=True)
    expected = plain()
    for disable in [(), ("join",), ("keep",), ("create",)] if steps == 4 else [()]:
        run, _ = rollouts(rounds, steps, disable, heavy=True, sinks=True)
        assert_equal(run(), expected)
        assert_equal(run(), expected)


def test_a_step_is_one_launch(launches: Counter[int]) -> None:
    run, program = rollouts()
    assert program.plan().programs_per("i, t") == 1
    run()
    assert launches.total() == 3 * 5 + 1  # learning runs with the last result of a round and the first action of the next
    launches.clear()
    run, program = rollouts(disable=CHOICES)
    assert program.plan().programs_per("i, t") == 2
    run()
    assert launches.total() == 1 + 3 * (2 * 5 + 2) + 1


def test_long_ends_of_iterations_are_launches_of_their_own(launches: Counter[int], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prices, "MOST_COPIED_OPERATIONS", 1)
    run, _ = rollouts()
    run()
    assert launches.total() == 1 + 3 * (2 * 5 + 2) + 1


def test_work_that_the_host_does_not_wait_for_is_a_launch_after_the_operands(launches: Counter[int]) -> None:
    _, program = rollouts(heavy=True)
    assert program._staged is not None
    edge = [s for s in program._staged.segments if len(s.counters) == 2]
    assert [bool(s.fetches) for s in edge] == [True, False]
    assert [bool(s.puts) for s in edge] == [True, False]


def test_results_that_the_loop_does_not_read_stay_on_the_host() -> None:
    _, program = rollouts()
    staged = program._staged
    assert staged is not None
    (put,) = {put.outputs for segment in staged.segments if len(segment.counters) == 2 for put in segment.puts}
    assert put == (0,)  # the new state; rewards are collected, the third result is dropped
    assert [shape for shape, _ in staged.kept.values()] == [(3, 5)]
    _, other = rollouts(disable=("keep",))
    assert other._staged is not None and not other._staged.kept


def test_stores_are_updated_in_place() -> None:
    """No launch in a loop copies a store: its temporaries are smaller than its stores."""
    run, program = rollouts(steps=4096)
    run()
    assert program._staged is not None
    (segment,) = [s for s in program._staged.segments if len(s.counters) == 2]
    memory = segment.compiled.memory_analysis()  # type: ignore[union-attr]
    assert memory.alias_size_in_bytes >= 3 * 4096 * 2 * 4
    assert memory.temp_size_in_bytes < 4096


def test_values_of_sinks_arrive_in_order_before_an_error() -> None:
    seen: list[int] = []

    def step(x: np.ndarray) -> tuple[np.ndarray]:
        if x > 3:
            raise ValueError("too far")
        return (x + 1,)

    ctx = tp.Context("t")
    with ctx as ((t, T),):
        h = tp.recurrence((), domain=(t,), name="h")
        h[0] = 0.0
        (after,) = tp.udf(step, h, outputs=[tp.spec()], kind="host", stateful=True, name="step")
        h[t + 1] = after
        tp.sink(lambda value, t: seen.append(int(t)), h, name="log")
    program = ctx.compile({T: 9}, [])
    with pytest.raises(errors.FunctionError, match="`step` raised ValueError at t = 4"):
        program.run()
    assert seen[:4] == [0, 1, 2, 3]


# -- long loops -------------------------------------------------------------------------------------------------------


def long_loop(points: int, **options: Any) -> tp.Program:
    """A recurrence with a window and a result inside of its loop."""
    ctx = tp.Context("t")
    with ctx as ((t, T),):
        h = tp.recurrence((4,), domain=(t,), name="h")
        h[0], h[1] = tp.ones((4,)), tp.ones((4,)) * 0.5
        h[t + 2] = tp.sin(h[t + 1] + h * 0.3 + tp.random.normal((4,), domain=(t,)) * 0.01)
        total = tp.recurrence((), domain=(t,), name="total")
        tp.carry(total, 0.0, total + h.sum(0))
        return ctx.compile({T: points}, {"total": total[T - 1], "every": h}, tp.Config(**options))


@pytest.mark.parametrize("points", [1, 2, 3, 20])
def test_chunks_give_the_same_bits(points: int) -> None:
    whole, cut = long_loop(points, launch_seconds=None).run(), long_loop(points, launch_seconds=0.0).run()
    for name, value in whole.items():
        np.testing.assert_array_equal(cut[name], value, err_msg=name)


def test_a_loop_that_no_result_needs_runs_in_chunks_too() -> None:
    ctx = tp.Context("i", "t")
    with ctx as ((i, I), (t, T)):
        x = tp.input("x", (3,), domain=(i, t), streamed=True)
        h = tp.recurrence((), domain=(i, t), name="h")
        h[0, t] = x[0, t].sum()
        h[i + 1, t] = h[i, T - 1 - t : T].mean(0) + tp.random.categorical(x).astype("float32")
    program = ctx.compile({I: 1, T: 2}, h[I - 1, 0], tp.Config(launch_seconds=0.0))
    assert program.run({"x": np.ones((1, 2, 3))}) == 3


def test_short_loops_are_one_launch(launches: Counter[int]) -> None:
    long_loop(50).run()
    assert launches.total() == 1


def test_chunks_grow_until_they_take_the_wanted_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a clock where an iteration takes 10 microseconds, launches grow to more than half of the wanted millisecond."""
    program, now, lengths = long_loop_alone(10_000, launch_seconds=0.001), [0.0], []
    staged = program._staged
    assert staged is not None
    (chunks,) = [item for item in staged.items if isinstance(item, Chunks)]
    chunks.count = 1
    compile = staged.compile

    def timed(segment: Segment, arguments: Any) -> Callable[..., Any]:
        function = compile(segment, arguments)

        def launch(*values: Any) -> Any:
            if segment.is_chunk:
                first, last = values[5]
                lengths.append(int(last - first))
                now[0] += 1e-5 * lengths[-1]
            return function(*values)

        return launch

    monkeypatch.setattr(staged, "compile", timed)
    monkeypatch.setattr(staged, "clock", lambda: now[0])
    result = program.run()
    assert lengths[:9] == [1, 1, 2, 4, 8, 16, 32, 64, 64]  # the first one is compiled, which tells nothing
    bounds = staged.lowering.bounds
    total = chunks.stop.evaluate(bounds) - chunks.start.evaluate(bounds)
    assert set(lengths[9:-1]) == {64} and sum(lengths) == total
    lengths.clear()
    np.testing.assert_array_equal(program.run(), result)
    assert lengths == [64] * (total // 64) + [total % 64]
    assert [next_count(600, 0.6, 0.25), next_count(1, 5.0, 0.25), next_count(8, 0.1, 0.0)] == [300, 1, 4]


def test_an_iteration_that_may_take_long_is_an_iteration_of_the_host() -> None:
    """A loop of loops: the outer one runs on the host, the inner one in chunks."""
    ctx = tp.Context("i", "t")
    with ctx as ((i, I), (t, T)):
        h = tp.recurrence((64,), domain=(i, t), name="h")
        h[0, 0] = tp.ones((64,))
        h[i, t + 1] = tp.sin(h * 0.9)
        h[i + 1, 0] = h[i, T - 1] * 0.5
        last = h[i, T - 1].named("last")
    program = ctx.compile({I: 3, T: 2_000_000}, last)
    assert "some t" in program.text("plan") and "i, some t" in program.text("plan")
    small = ctx.compile({I: 3, T: 20}, last, tp.Config(launch_seconds=0.0))
    np.testing.assert_array_equal(small.run(), ctx.compile({I: 3, T: 20}, last).run())


def test_an_interrupt_ends_a_long_loop_between_two_launches() -> None:
    program = long_loop_alone(2_000_000_000)
    small = long_loop_alone(10)
    expected = small.run()
    began = time.monotonic()
    alarm = threading.Timer(1.0, lambda: signal.raise_signal(signal.SIGINT))
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # libraries that other tests use may have set another one
    try:
        alarm.start()
        with pytest.raises(KeyboardInterrupt):
            program.run()
        assert time.monotonic() - began < 30  # the whole loop takes minutes
    finally:
        alarm.join()
        signal.signal(signal.SIGINT, before)
    np.testing.assert_array_equal(small.run(), expected)


def long_loop_alone(points: int, **options: Any) -> tp.Program:
    ctx = tp.Context("t")
    with ctx as ((t, T),):
        h = tp.recurrence((16,), domain=(t,), name="h")
        h[0] = tp.ones((16,))
        h[t + 1] = tp.sin(h * 0.999 + 0.1)
        return ctx.compile({T: points}, h[T - 1], tp.Config(**options))


def test_lengths_of_launches_are_checked() -> None:
    for wrong in (-1.0, float("nan"), True, "1"):
        with pytest.raises(errors.ConfigError, match="is not a time in seconds"):
            tp.Config(launch_seconds=wrong)  # type: ignore[arg-type]
