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
ITERATIONS = {  # of the outermost loops, at whose ends each program is stopped
    "PPO, environment in JAX": 4,
    "PPO, environment on the host": 4,
    "REINFORCE": 4,
    "LSTM": 4,
    "Kalman filter": 5,
    "Q-learning with a replay window": 8,
    "decoding": 7,
}


@dataclass(frozen=True)
class Stopped:
    """A run that was stopped and saved before each iteration, and after the last: its files, states, reports and results."""

    files: list[Path]
    states: list[Arrays]
    reports: list[Arrays]
    results: Arrays


def stopped(live: Live, folder: Path) -> Stopped:
    """The run that is stopped at every iteration. The files are written, and never read."""
    run = live.program.start(live.inputs, seed=5)
    files, states = [], []
    while not run.done:
        files.append(run.save(folder / f"{len(files)}.safetensors"))
        states.append(run.state)
        run.advance()
    files.append(run.save(folder / f"{len(files)}.safetensors"))
    states.append(run.state)
    return Stopped(files, states, list(live.reports), live.results(run))


def same(values: Arrays, others: Arrays) -> None:
    assert values.keys() == others.keys()
    for name, value in values.items():
        assert value.dtype == others[name].dtype and value.shape == others[name].shape
        assert value.tobytes() == others[name].tobytes(), name  # NaN too


@pytest.mark.parametrize("name", PROGRAMS)
def test_resumed_at_every_iteration(name: str, tmp_path: Path) -> None:
    first = PROGRAMS[name]()
    expected = stopped(first, tmp_path)
    first.close()
    assert len(expected.files) == ITERATIONS[name] + 1
    assert any(value.any() for value in expected.results.values())
    second = PROGRAMS[name]()  # traced and compiled anew; its environments are never reset
    for at, file in enumerate(expected.files):
        second.reports.clear()
        run = second.program.resume(file)
        for state in expected.states[at:]:
            same(run.state, state)
            assert run.done == (state is expected.states[-1])
            run.advance()
        same(second.results(run) if second.reports or not expected.reports else expected.results, expected.results)
        for report, other in zip(second.reports, expected.reports[at:], strict=True):
            same(report, other)
    second.close()


def test_a_resumed_run_depends_on_its_state(tmp_path: Path) -> None:
    """The comparison can fail: another seed gives other results."""
    live = PROGRAMS["LSTM"]()
    runs = [live.program.start(live.inputs, seed=seed) for seed in (5, 6)]
    with pytest.raises(AssertionError):
        same(live.results(runs[0]), live.results(runs[1]))


@pytest.mark.parametrize(
    "name", [name if name == "REINFORCE" else pytest.param(name, marks=pytest.mark.slow) for name in PROGRAMS]
)
def test_another_process_goes_on(name: str, tmp_path: Path) -> None:
    live = PROGRAMS[name]()
    expected = stopped(live, tmp_path)
    live.close()
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONHASHSEED": "7"}
    for at in (1, len(expected.files) - 2):
        out = tmp_path / "results.npz"
        command = [sys.executable, "-m", "tests.resumed", name, str(expected.files[at]), str(out)]
        ended = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
        assert ended.returncode == 0, ended.stderr
        with np.load(out) as results:
            same(dict(results), expected.results)
