"""Seven programs, stopped at every iteration, saved, and resumed: the results are those of the run that was only stopped, bit for bit."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from tests.resumed import PROGRAMS, Arrays, Live

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
