"""The CSV log: whole rows, stable text, repair of a damaged end; the monitor and signals; what is saved, and when."""

from __future__ import annotations

import errno
import math
import os
import signal
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tempo_core as tp
from tempo_core.runs.logger import CSVLogger, WandbLogger
from tempo_core.runs.stop import SIGNALS, StopRequest
from tempo_rl.checkpoint import Checkpoint, load_checkpoint, save_checkpoint
from tempo_rl.errors import CheckpointError, RunError
from tempo_rl.keeper import Keeper
from tempo_rl.monitor import Iteration, TrainingMonitor
from tempo_rl.recipe import WandbRecipe, make_recipe
from tempo_rl.rundir import RunDirectory


def test_rows_are_readable_at_once(tmp_path: Path) -> None:
    path = tmp_path / "metrics.csv"
    logger = CSVLogger(path)
    logger.log({"iteration": 0, "loss": 0.1})
    assert path.read_text() == "iteration,loss\n0,0.1\n"  # before close
    logger.log({"iteration": 1, "loss": math.nan})
    logger.close()
    assert path.read_text() == "iteration,loss\n0,0.1\n1,nan\n"


def test_a_row_cut_short_by_a_crash_is_dropped(tmp_path: Path) -> None:
    path = tmp_path / "metrics.csv"
    path.write_text("iteration,loss\n0,0.5\n1,0.")
    logger = CSVLogger(path)
    logger.log({"iteration": 1, "loss": 0.25})
    logger.close()
    assert path.read_text() == "iteration,loss\n0,0.5\n1,0.25\n"


def test_a_resumed_run_drops_the_rows_after_its_checkpoint(tmp_path: Path) -> None:
    path = tmp_path / "metrics.csv"
    path.write_text("iteration,loss\n0,0.5\n1,0.4\n2,0.3\n")
    logger = CSVLogger(path, rows=1)
    logger.log({"iteration": 1, "loss": 0.25})
    logger.close()
    assert path.read_text() == "iteration,loss\n0,0.5\n1,0.25\n"


@pytest.mark.parametrize("written", [0, 3])
def test_a_row_that_does_not_fit_on_the_disk_is_absent(written: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    logger = CSVLogger(tmp_path / "metrics.csv")
    logger.log({"iteration": 0, "loss": 0.5})
    write = os.write

    def full(handle: int, data: bytes) -> int:
        if written == 0:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return write(handle, data[:written])

    monkeypatch.setattr(os, "write", full)
    with pytest.raises(RunError, match=r"metrics\.csv cannot be written: No space left on device$"):
        logger.log({"iteration": 1, "loss": 0.25})
    logger.close()
    assert (tmp_path / "metrics.csv").read_text() == "iteration,loss\n0,0.5\n"


def test_a_directory_in_the_place_of_a_log_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(RunError, match=f"^{tmp_path} cannot be read: Is a directory$"):
        CSVLogger(tmp_path).log({"iteration": 0})


def test_other_columns_are_refused(tmp_path: Path) -> None:
    logger = CSVLogger(tmp_path / "metrics.csv")
    logger.log({"a": 1})
    with pytest.raises(RunError, match="has the columns a, a row has b"):
        logger.log({"b": 1})
    logger.close()
    with pytest.raises(RunError, match=r"the columns of .* are not those of this run"):
        CSVLogger(tmp_path / "metrics.csv").log({"b": 1})


def test_tracking_without_wandb_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "wandb", None)
    with pytest.raises(RunError, match=r"needs the package wandb\n.*tempo-dl\[wandb\]"):
        WandbLogger(WandbRecipe(), {}, tmp_path, "env_steps")


class Rows:
    def __init__(self) -> None:
        self.rows: list[Any] = []

    def log(self, row: Any) -> None:
        self.rows.append(row)

    def close(self) -> None: ...


def monitor(**overrides: Any) -> tuple[TrainingMonitor, Rows]:
    small = {"algorithm": "ppo", "num_envs": 2, "num_steps": 4, "num_minibatches": 1, "total_timesteps": 80}
    rows = Rows()
    return TrainingMonitor(make_recipe(small | overrides), [rows], lambda row: None), rows


def feed(to: TrainingMonitor, iteration: int, loss: float = 1.0, weight: float = 0.0, episodic_return: float = math.nan) -> None:
    metrics = {"loss": np.float32(loss), "episodic_return": np.float32(episodic_return)}
    to.finished(iteration, metrics, {"w": np.full(2, weight, np.float32)})


def test_rows_count_environment_steps() -> None:
    it, rows = monitor()
    feed(it, 0, loss=2.0, episodic_return=3.0)
    assert rows.rows == [{"iteration": 0, "env_steps": 8, "loss": 2.0, "episodic_return": 3.0}]


@pytest.mark.parametrize(("loss", "weight"), [(math.nan, 0.0), (math.inf, 0.0), (1.0, math.nan)])
def test_divergence_stops_and_keeps_the_last_good_parameters(loss: float, weight: float) -> None:
    it, rows = monitor()
    feed(it, 0, weight=7.0)
    with pytest.raises(RunError, match=r"diverged in iteration 1 .*\n.*learning_rate"):
        feed(it, 1, loss, weight)
    feed(it, 2, weight=8.0)  # was on its way when the monitor raised: ignored
    assert it.latest is not None and it.latest["w"].tolist() == [7, 7] and it.iterations == 1
    assert len(rows.rows) == 2  # the diverged row is in the log


def test_results_are_kept_apart_from_reused_buffers() -> None:
    it, _ = monitor()
    buffer = np.zeros(2, np.float32)
    it.finished(0, {"loss": np.float32(0)}, {"w": buffer})
    buffer[:] = 9
    assert it.latest is not None and it.latest["w"].tolist() == [0, 0]


def test_the_recent_return_is_that_of_iterations_in_which_episodes_ended() -> None:
    it, _ = monitor(total_timesteps=800)
    assert it.recent_return is None
    for k, value in enumerate([1.0, math.nan, 3.0]):
        feed(it, k, episodic_return=value)
    assert it.recent_return == 2.0
    other, _ = monitor(total_timesteps=800)
    other.go_on_from(3, {}, it.recent_returns)
    for k in range(10):
        feed(other, 3 + k, episodic_return=5.0 if k < 9 else 14.0)
    assert other.recent_return == (9 * 5.0 + 14.0) / 10


# -- signals ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("number", SIGNALS, ids=lambda number: number.name)
def test_the_first_signal_asks_and_the_second_stops(number: signal.Signals) -> None:
    said: list[str] = []
    request = StopRequest(said.append)
    outside = signal.signal(number, signal.SIG_DFL)  # who started the tests may have it ignored
    try:
        with request.listening():
            request.can_finish = True
            signal.raise_signal(number)
            assert request.reason == number.name
            assert said == [f"{number.name}: finishing the iteration and saving it; once more stops at once"]
            with pytest.raises(KeyboardInterrupt):
                signal.raise_signal(number)
        assert signal.getsignal(number) is signal.SIG_DFL
    finally:
        signal.signal(number, outside)


def test_a_signal_before_iterations_run_stops_at_once() -> None:
    request = StopRequest(print)
    with request.listening(), pytest.raises(KeyboardInterrupt):
        signal.raise_signal(signal.SIGTERM)


def test_nohup_is_respected() -> None:
    if not hasattr(signal, "SIGHUP"):
        pytest.skip("a signal of POSIX")
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        request = StopRequest(print)
        with request.listening():
            request.can_finish = True
            signal.raise_signal(signal.SIGHUP)
        assert request.reason is None
    finally:
        signal.signal(signal.SIGHUP, before)


def test_the_time_is_up() -> None:
    assert StopRequest(print, seconds=0.0).reason == "the time limit"
    assert StopRequest(print, seconds=1e6).reason is None and StopRequest(print).reason is None


# -- what is saved, and when ------------------------------------------------------------------------------------------


class Live:
    """A running program whose state is its number of iterations."""

    def __init__(self) -> None:
        self.saves = 0

    def snapshot(self) -> tp.Snapshot:
        self.saves += 1
        return tp.Snapshot({}, {"saves": self.saves})


class Kept:
    """A keeper, its monitor, and a clock that stands still unless it is told."""

    def __init__(self, path: Path, **overrides: Any):
        self.now, self.live = 0.0, Live()
        self.monitor, _ = monitor(**overrides)
        self.run = RunDirectory(path)
        self.run.checkpoints.mkdir(parents=True, exist_ok=True)
        self.keeper = Keeper(self.run, self.monitor.recipe, self.monitor, lambda: self.now)

    def iterate(self, seconds: float, episodic_return: float = math.nan, wait: bool = True) -> None:
        feed(self.monitor, self.monitor.iterations, weight=self.monitor.iterations, episodic_return=episodic_return)
        self.now += seconds
        self.keeper.ran(1, seconds)
        self.keeper.keep(self.live)  # type: ignore[arg-type]
        if wait:
            self.keeper.wait()


def test_the_state_is_saved_after_the_first_iteration_and_then_by_time(tmp_path: Path) -> None:
    kept = Kept(tmp_path, total_timesteps=8 * 1000)
    saved = []
    for _ in range(9):
        kept.iterate(0.4)
        saved.append(load_checkpoint(kept.run.latest).iterations)
    assert saved == [1, 1, 1, 4, 4, 4, 7, 7, 7]  # at least a second lies between two states
    assert kept.live.saves == 3 and not kept.run.numbered_checkpoints()
    program = load_checkpoint(kept.run.latest).program
    assert program is not None and program.meta == {"saves": 3}


def test_numbered_checkpoints_come_every_n_iterations_and_the_last_ones_stay(tmp_path: Path) -> None:
    kept = Kept(tmp_path, total_timesteps=8 * 9, save_every=2, keep=2)
    for _ in range(9):
        kept.iterate(0.0)
    assert [load_checkpoint(path).iterations for path in kept.run.numbered_checkpoints()] == [8, 9]
    assert load_checkpoint(kept.run.latest).iterations == 9
    assert load_checkpoint(kept.run.checkpoint(64)).parameters["w"].tolist() == [7, 7]


def test_the_best_checkpoint_stays(tmp_path: Path) -> None:
    kept = Kept(tmp_path, total_timesteps=8 * 4, save_every=1)
    for value in (1.0, 9.0, -8.0, 1.0):  # the means are 1, 5, 2/3, 3/4
        kept.iterate(0.0, value)
    best = load_checkpoint(kept.run.best)
    assert best.iterations == 2 and best.progress["best"] == 5.0
    assert load_checkpoint(kept.run.latest).progress["best"] == 5.0
    again = Kept(tmp_path / "again", total_timesteps=8 * 4)
    again.keeper.go_on_from(load_checkpoint(kept.run.latest))
    assert again.keeper.best == 5.0


def test_iterations_run_together_up_to_the_next_checkpoint(tmp_path: Path) -> None:
    kept = Kept(tmp_path, total_timesteps=8 * 45, save_every=20)
    assert kept.keeper.count() == 1
    kept.keeper.ran(1, 0.05)
    assert kept.keeper.count() == 10  # half a second, so that signals are heard
    kept.keeper.ran(1, 0.0001)
    assert kept.keeper.count() == 20
    kept.monitor.iterations = 18
    assert kept.keeper.count() == 2
    kept.monitor.iterations = 40
    assert kept.keeper.count() == 4  # the state before the last iteration is kept: from it a run goes on to more
    kept.keeper.ran(1, 100.0)
    assert kept.keeper.count() == 1


def test_training_goes_on_while_a_state_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No second state is copied meanwhile, unless a checkpoint is numbered; and what is written is the state at its time."""
    kept, may_write, began = Kept(tmp_path, total_timesteps=8 * 100), threading.Event(), threading.Event()

    def slowly(path: Path, checkpoint: Checkpoint) -> Path:
        began.set()
        assert may_write.wait(60.0)
        return save_checkpoint(path, checkpoint)

    monkeypatch.setattr("tempo_rl.keeper.save_checkpoint", slowly)
    for _ in range(5):
        kept.iterate(30.0, wait=False)
    assert began.wait(60.0) and kept.live.saves == 1 and kept.keeper.saved == 0 and not kept.run.latest.exists()
    may_write.set()
    kept.keeper.wait()
    assert kept.keeper.saved == load_checkpoint(kept.run.latest).iterations == 1
    for _ in range(5):
        kept.iterate(30.0, wait=False)
    kept.keeper.wait()
    assert kept.keeper.saved == 10 and kept.run.numbered_checkpoints()


def test_a_state_that_could_not_be_written_is_an_error_at_the_next(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kept = Kept(tmp_path, total_timesteps=8 * 1000)

    def full(path: Path, checkpoint: Checkpoint) -> Path:
        raise CheckpointError("the disk is full")

    with monkeypatch.context() as patch:
        patch.setattr("tempo_rl.keeper.save_checkpoint", full)
        kept.iterate(1.0, wait=False)
        kept.keeper._writer.shutdown()
    with pytest.raises(CheckpointError, match="the disk is full"):
        kept.iterate(200.0)
    assert kept.keeper.saved == 0
    kept.keeper.close()


def test_a_state_that_could_not_be_written_gets_no_number(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`latest` is then an earlier state."""
    kept = Kept(tmp_path, total_timesteps=8 * 100, save_every=2)
    kept.iterate(0.0)

    def full(path: Path, checkpoint: Checkpoint) -> Path:
        raise CheckpointError("the disk is full")

    monkeypatch.setattr("tempo_rl.keeper.save_checkpoint", full)
    with pytest.raises(CheckpointError, match="the disk is full"):
        kept.iterate(0.0)
    kept.keeper.close()
    assert load_checkpoint(kept.run.latest).iterations == 1 and not kept.run.numbered_checkpoints()


def test_a_number_is_that_of_the_run_that_goes_on(tmp_path: Path) -> None:
    """Not of the one that went on from the same checkpoint before: environments may begin other episodes."""
    kept = Kept(tmp_path, total_timesteps=8 * 100, save_every=1)
    kept.iterate(0.0, 1.0)
    first = load_checkpoint(kept.run.checkpoint(8))
    kept.iterate(0.0, 2.0)
    again = Kept(tmp_path, total_timesteps=8 * 100, save_every=1)
    again.keeper.go_on_from(first)
    again.monitor.go_on_from(1, first.parameters, [1.0])
    again.iterate(0.0, 6.0)
    assert load_checkpoint(again.run.checkpoint(16)).progress["recent_returns"] == [1.0, 6.0]
    assert not list(again.run.checkpoints.glob(".*"))


def test_what_a_callback_writes_changes_nothing(tmp_path: Path) -> None:
    def spoil(iteration: Iteration) -> None:
        iteration.parameters["w"][:] = 7.0

    spoiled = TrainingMonitor(monitor()[0].recipe, [], lambda row: None, [spoil])
    feed(spoiled, 0, weight=1.0)
    assert spoiled.latest is not None and spoiled.latest["w"].tolist() == [1, 1]


def test_a_mode_that_wandb_does_not_have_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WANDB_MODE", "banana")
    with pytest.raises(RunError, match=r"WANDB_MODE is 'banana'\n  hint: it is one of online, offline, disabled"):
        WandbLogger(WandbRecipe(), {}, tmp_path, "env_steps")
