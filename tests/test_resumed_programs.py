"""Seven programs, stopped at every iteration, saved, and resumed: the results are those of the run that was only stopped, bit for bit."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

import tempo_core as tp
from tempo_core.errors import BoundsError, InputError, StateError
from tempo_core.program import UserExpr
from tests.resumed import PPO, PROGRAMS, Arrays, Live, agent, lstm

ROOT = Path(__file__).resolve().parents[1]
STOPS = {  # how often each program is stopped: once an iteration of its outermost loops
    "PPO, environment in JAX": 4,
    "PPO, environment on the host": 4,
    "REINFORCE": 4,
    "LSTM": 4,
    "Kalman filter": 13,  # loops over the covariances, the means, and back
    "Q-learning with a replay window": 7,  # the loss of the last of 8 iterations needs no update
    "decoding": 6,  # the positions after the prompt
}
SLOW = ("PPO, environment in JAX", "PPO, environment on the host", "LSTM", "REINFORCE", "Kalman filter")


@dataclass(frozen=True)
class Stopped:
    """A run that was stopped and saved before each iteration, and after the last: its files, states, reports and outputs."""

    files: list[Path]
    states: list[Arrays]
    reports: list[Arrays]
    outputs: Arrays


def stopped(live: Live, folder: Path, by: str | None = None, count: int = 1) -> Stopped:
    """The run that is stopped after every `count` iterations of a loop, and the same run again, with its state saved at each stop.

    Saving changes nothing. The files are never read here.
    """
    run = live.program.start(live.inputs, seed=5, by=by)
    while not run.done:
        run.advance(by, count)
    outputs, reports = live.finish(run), list(live.reports)
    live.reports.clear()
    run = live.program.start(live.inputs, seed=5, by=by)
    files, states = [], []
    while True:
        files.append(run.save(folder / f"{len(files)}.safetensors"))
        states.append(run.state)
        if run.done:
            break
        run.advance(by, count)
    same(live.finish(run), outputs)
    for report, other in zip(live.reports, reports, strict=True):
        same(report, other)
    return Stopped(files, states, reports, outputs)


def same(values: Arrays, others: Arrays) -> None:
    assert values.keys() == others.keys()
    for name, value in values.items():
        assert value.dtype == others[name].dtype and value.shape == others[name].shape
        assert value.tobytes() == others[name].tobytes(), name  # NaN too


def assert_resumed_everywhere(name: str, folder: Path, by: str | None = None, count: int = 1) -> int:
    """Compare the runs that are resumed from each file with the one that wrote the files. Returns how often that one stopped."""
    first = PROGRAMS[name]()
    expected = stopped(first, folder, by, count)
    first.close()
    assert any(value.any() for value in (*expected.outputs.values(), *expected.states[-1].values()))
    with pytest.raises(AssertionError):  # an iteration changes the state
        same(expected.states[1], expected.states[2])
    second = PROGRAMS[name]()  # traced and compiled anew; its environments are never reset
    for at, file in enumerate(expected.files):
        second.reports.clear()
        run = second.program.resume(file)
        for state in expected.states[at:]:
            same(run.state, state)
            assert run.done == (state is expected.states[-1])
            run.advance(by, count)
        same(second.finish(run), expected.outputs)
        missed = len(expected.reports) - len(second.reports)
        for report, other in zip(second.reports, expected.reports[missed:], strict=True):
            same(report, other)
        assert by is not None or not expected.reports or missed == at
    second.close()
    return len(expected.files) - 1


@pytest.mark.parametrize("name", [pytest.param(name, marks=pytest.mark.slow if name in SLOW else ()) for name in PROGRAMS])
def test_resumed_at_every_iteration(name: str, tmp_path: Path) -> None:
    assert assert_resumed_everywhere(name, tmp_path) == STOPS[name]


@pytest.mark.slow
def test_resumed_within_episodes(tmp_path: Path) -> None:
    """Between the resets of each iteration, the environments on the host have a state of their own."""
    assert assert_resumed_everywhere("REINFORCE", tmp_path, "t", 5) == 10


@pytest.mark.parametrize("name", [pytest.param(name, marks=() if name == "REINFORCE" else pytest.mark.slow) for name in PROGRAMS])
def test_another_process_goes_on(name: str, tmp_path: Path) -> None:
    live = PROGRAMS[name]()
    expected = stopped(live, tmp_path)
    live.close()
    out, environment = tmp_path / "results.npz", {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONHASHSEED": "7"}
    command = [sys.executable, "-m", "tests.resumed", name, str(expected.files[len(expected.files) // 2]), str(out)]
    ended = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
    with np.load(out) as results:
        same(dict(results), expected.outputs | (expected.reports[-1] if expected.reports else {}))


# -- other bounds -----------------------------------------------------------------------------------------------------

FLAT = "anneal_lr=false"  # nothing depends on the number of iterations
DQN = (FLAT, "num_steps=4", "total_timesteps=32", "learning_starts=8", "buffer_size=40", "batch_size=4", "start_e=0.05")
GOING_ON: dict[str, Callable[[], Live]] = {
    "PPO, environment in JAX": lambda: agent("ppo_functional", *PPO, FLAT, of_runs=True),
    "PPO, environment on the host": lambda: agent("ppo", *PPO, FLAT, of_runs=True),
    "REINFORCE": lambda: agent("reinforce", "num_steps=12", "total_timesteps=96", FLAT, of_runs=True),
    "DQN": lambda: agent("dqn", *DQN, of_runs=True),
    "LSTM": lambda: lstm(tp.upto(9)),
}


def bound_of(live: Live, name: str) -> UserExpr:
    return next(UserExpr(bound.expr) for bound in live.program.bounds if bound.name == name)


def assert_goes_on(make: Callable[[], Live], folder: Path, more: int = 7) -> tuple[int, str]:
    """Compare runs that are resumed from each iteration with a larger bound with one that had it from its start."""
    first, whole, second = make(), make(), make()
    bound = bound_of(first, "I")
    larger = {bound: more}
    expected = whole.finish(whole.program.start(whole.inputs, seed=5, bounds=larger))
    run = first.program.start(first.inputs, seed=5, bounds={bound: 4})
    at, message = 0, ""
    while not run.done:
        file = run.save(folder / f"{at}.safetensors")
        second.reports.clear()
        resumed = second.program.resume(file, bounds=larger)
        same(second.finish(resumed), expected)
        for report, other in zip(second.reports, whole.reports[len(whole.reports) - len(second.reports) :], strict=True):
            same(report, other)
        message = resumed.message
        at += 1
        run.advance()
    with pytest.raises(StateError, match="the run has ended, so that I cannot change"):
        second.program.resume(run.snapshot(), bounds=larger)
    for live in (first, whole, second):
        live.close()
    return at, message


@pytest.mark.parametrize("name", [pytest.param(name, marks=() if name == "LSTM" else pytest.mark.slow) for name in GOING_ON])
def test_other_bounds_are_those_of_a_run_that_had_them(name: str, tmp_path: Path) -> None:
    """Stores of results grow, and what is computed for all iterations before the loop, such as random numbers, is computed anew."""
    at, message = assert_goes_on(GOING_ON[name], tmp_path)
    assert at == 4 and ("exploration" in name or not message or name == "DQN")


def powers(executor: str = "staged", *disable: str) -> tuple[tp.Program[dict[str, np.ndarray]], UserExpr]:
    """Sums over a growing number of steps, with an input, random numbers and a result over them."""
    ctx = tp.Context("t")
    with ctx as ((t, T),):
        x = tp.input("x", (3,), domain=(t,))
        h = tp.recurrence((3,), domain=(t,))
        h[0], h[t + 1] = tp.zeros((3,)), h[t] * 0.5 + x + tp.random.normal((3,), domain=(t,))
    config = tp.Config(executor=executor, disable=("vectorize(t)", *disable))
    return ctx.compile({T: tp.upto(64)}, {"h": h, "last": h[T - 1]}, config), T


@pytest.mark.parametrize("executor", ["staged", "interpreted"])
def test_a_result_over_the_step_has_more_points(executor: str) -> None:
    program, T = powers(executor, "capacities")
    x = np.random.default_rng(0).normal(size=(9, 3)).astype("float32")
    expected = program.run({"x": x}, seed=2)
    run = program.start({"x": x[:5]}, seed=2)
    run.advance(count=3)
    state = run.snapshot()
    resumed = program.resume(state, {"x": x}, bounds={T: 9}).finish()
    same(dict(resumed), dict(expected))
    same(dict(program.resume(state).finish()), dict(program.run({"x": x[:5]}, seed=2)))
    same(
        dict(program.resume(state, {"x": x[:4]}, bounds={T: 4}).finish()),
        dict(program.run({"x": x[:4]}, seed=2)),
    )
    with pytest.raises(StateError, match="the saved run has done 3 iterations over t, more than the 1 before the last ones"):
        program.resume(state, {"x": x[:2]}, bounds={T: 2})
    with pytest.raises(InputError, match="x"):
        program.resume(state, bounds={T: 9})
    with pytest.raises(StateError, match="the input `x` has other values at the points of the saved run"):
        program.resume(state, {"x": x + 1}, bounds={T: 9})
    with pytest.raises(BoundsError, match="U is not a bound of this program"):
        program.resume(state, {"x": x}, bounds={"U": 9})


def test_a_run_of_another_capacity() -> None:
    """A run with few points has smaller stores, and does not become one with many."""
    ctx = tp.Context("i", "t")
    with ctx as ((i, I), (t, T)):
        x, h = tp.input("x", (64, 64), domain=(t,)), tp.recurrence((64, 64), domain=(i,))
        h[0], h[i + 1] = tp.zeros((64, 64)), (tp.tanh(x @ h))[i, 0:T].mean(0)
    program = ctx.compile({I: 4, T: tp.upto(4096)}, h[I - 1])
    x = np.zeros((4096, 64, 64), "float32")
    run = program.start({"x": x[:5]})
    run.advance(count=3)
    with pytest.raises(StateError, match=r'another program: bound T is upto(.|\n)*with "capacities" switched off'):
        program.resume(run.snapshot(), {"x": x}, bounds={T: 4096})


def test_a_bound_that_is_compiled_in_stays() -> None:
    live = lstm()
    run = live.program.start(live.inputs)
    with pytest.raises(BoundsError, match=r"the bound I is 4 in this program; a run cannot choose 9\n.*\n.*tp.upto\(9\)"):
        live.program.resume(run.snapshot(), bounds={bound_of(live, "I"): 9})


def test_last_iterations_that_are_a_loop_of_their_own() -> None:
    """No iteration reads `early` of the last five, so that these have another body. A run that is in them cannot go on."""
    ctx = tp.Context("i")
    with ctx as ((i, I),):
        early, h = tp.recurrence((), domain=(i,)), tp.recurrence((), domain=(i,))
        early[i] = tp.random.normal(domain=(i,)) + h[i]
        h[0], h[i + 1] = 1.0, tp.where(i >= 6, early[tp.maximum(i - 5, 0)], 0.5) * 0.5
    program = ctx.compile({I: tp.upto(16)}, h, tp.Config(disable=("vectorize(i)", "lift", "capacities")))

    def state(number: int, count: int) -> tp.Snapshot:
        run = program.start(seed=3, bounds={I: number})
        run.advance(count=count)
        return run.snapshot()

    for number in (8, 12, 16):
        resumed = program.resume(state(9, 2), bounds={I: number}).finish()
        same({"h": resumed}, {"h": program.run(seed=3, bounds={I: number})})
    with pytest.raises(StateError, match="only the bound of that loop can change"):
        program.resume(state(5, 2), bounds={I: 12})
    with pytest.raises(StateError, match="has done 6 iterations over i, more than the 3 before the last ones"):
        program.resume(state(12, 5), bounds={I: 8})


def test_what_an_iteration_near_the_end_left_out() -> None:
    """The result is a value in the middle. A run that is behind it has left out what the middle of a longer one needs."""
    ctx = tp.Context("i")
    with ctx as ((i, I),):
        h, k = tp.recurrence((), domain=(i,)), tp.recurrence((), domain=(i,))
        h[0], h[i + 1] = 1.0, h[i] * 0.5 + tp.random.normal(domain=(i,))
        k[0], k[i + 1] = 1.0, k[i] * 0.5 + h[i]
    program = ctx.compile({I: tp.upto(16)}, k[I // 2], tp.Config(disable=("vectorize(i)", "lift", "capacities")))

    def resumed(count: int) -> np.ndarray:
        run = program.start(seed=3, bounds={I: 6})
        run.advance(count=count)
        return program.resume(run.snapshot(), bounds={I: 14}).finish()

    same({"k": resumed(1)}, {"k": program.run(seed=3, bounds={I: 14})})
    with pytest.raises(StateError, match="iteration 2 of the saved run, near its end, computed other values"):
        resumed(2)


def test_what_depends_on_the_bound_is_named() -> None:
    """A rate that falls to 0 over I iterations has the new I from here on: not the run that had it from its start."""
    ctx = tp.Context("i")
    with ctx as ((i, I),):
        w = tp.recurrence((), domain=(i,))
        w[0], w[i + 1] = 1.0, w[i] * (1.0 - i / I)
        mean = w[0:I].mean()
    program = ctx.compile({I: tp.upto(8)}, {"w": w, "mean": mean}, tp.Config(disable=("vectorize(i)", "lift", "capacities")))
    run = program.start(bounds={I: 4})
    run.advance(count=2)
    resumed = program.resume(run.snapshot(), bounds={I: 8})
    line = Path(__file__).read_text().splitlines().index("        w[0], w[i + 1] = 1.0, w[i] * (1.0 - i / I)") + 1
    assert resumed.message == f"depends on I, and has I = 8 from here on: {__file__}:{line}"
    w, mean = resumed.finish().values()
    rates = [1.0, 1.0 - 1 / 4, *(1.0 - k / 8 for k in range(2, 7))]
    np.testing.assert_allclose(w, np.cumprod([1.0, *rates]), rtol=1e-6)
    np.testing.assert_allclose(mean, np.mean(w), rtol=1e-6)


def test_an_inner_bound_and_a_loop_that_goes_back_stay() -> None:
    ctx = tp.Context("i", "t")
    with ctx as ((i, I), (t, T)):
        h = tp.recurrence((), domain=(i, t))
        h[i, 0], h[i, t + 1] = 0.0, h[i, t] * 0.5 + i
    config = tp.Config(disable=("vectorize(i)", "lift", "capacities"))
    program = ctx.compile({I: 4, T: tp.upto(6)}, {"h": h}, config)
    run = program.start(by=i, bounds={T: 3})
    run.advance()
    with pytest.raises(StateError, match="only the bound of that loop can change"):
        program.resume(run.snapshot(), bounds={T: 6})
    ctx = tp.Context("t")
    with ctx as ((t, T),):
        back = tp.recurrence((2,), domain=(t,))
        back[T - 1], back[t] = tp.ones((2,)), tp.sin(back[t + 1])
    program = ctx.compile({T: tp.upto(9)}, {"back": back}, tp.Config(disable=("capacities",)))
    run = program.start(bounds={T: 6})
    run.advance(count=2)
    with pytest.raises(StateError, match="does not go from its first point"):
        program.resume(run.snapshot(), bounds={T: 9})
