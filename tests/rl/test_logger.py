"""The CSV log: whole rows, stable text, and repair of a damaged end; the monitor: order, saving, stopping."""

from __future__ import annotations

import math
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tempo_rl.checkpoint import load_checkpoint
from tempo_rl.errors import RunError
from tempo_rl.logger import CSVLogger, WandbLogger
from tempo_rl.monitor import Interrupted, TrainingMonitor
from tempo_rl.recipe import make_recipe
from tempo_rl.rundir import RunDirectory, create_run


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


def test_other_columns_are_refused(tmp_path: Path) -> None:
    logger = CSVLogger(tmp_path / "metrics.csv")
    logger.log({"a": 1})
    with pytest.raises(RunError, match="has the columns a, a row has b"):
        logger.log({"b": 1})
    logger.close()
    with pytest.raises(RunError, match="other columns"):
        CSVLogger(tmp_path / "metrics.csv").log({"b": 1})


def test_tracking_without_wandb_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "wandb", None)
    with pytest.raises(RunError, match=r"needs the package wandb\n.*tempo-dl\[wandb\]"):
        WandbLogger(make_recipe({"algorithm": "ppo"}), tmp_path)


class Rows:
    def __init__(self) -> None:
        self.rows: list[Any] = []

    def log(self, row: Any) -> None:
        self.rows.append(row)

    def close(self) -> None: ...


def monitor(tmp_path: Path, **overrides: Any) -> tuple[TrainingMonitor, Rows, RunDirectory]:
    small = {"algorithm": "ppo", "num_envs": 2, "num_steps": 4, "num_minibatches": 1, "total_timesteps": 80}
    rows, run = Rows(), create_run(tmp_path / "run")
    return TrainingMonitor(make_recipe(small | overrides), run, [rows], lambda row: None), rows, run


def feed(to: TrainingMonitor, iteration: int, loss: float = 1.0, weight: float = 0.0) -> None:
    to.finished(iteration, {"loss": np.float32(loss)}, {"w": np.full(2, weight, np.float32)})


def test_rows_count_environment_steps(tmp_path: Path) -> None:
    it, rows, _ = monitor(tmp_path)
    feed(it, 0, loss=2.0)
    assert rows.rows == [{"iteration": 0, "env_steps": 8, "loss": 2.0}]


def test_checkpoints_every_n_iterations_and_the_last_once(tmp_path: Path) -> None:
    it, _, run = monitor(tmp_path, save_every=2)
    for k in range(5):
        feed(it, k, weight=k)
    assert [p.name for p in sorted(run.checkpoints.iterdir())] == [run.checkpoint(16).name, run.checkpoint(32).name]
    it.save()
    assert load_checkpoint(run.latest_checkpoint()).parameters["w"].tolist() == [4, 4]
    assert load_checkpoint(run.checkpoint(16)).iterations == 2


@pytest.mark.parametrize(("loss", "weight"), [(math.nan, 0.0), (math.inf, 0.0), (1.0, math.nan)])
def test_divergence_stops_and_keeps_the_last_good_parameters(tmp_path: Path, loss: float, weight: float) -> None:
    it, rows, run = monitor(tmp_path)
    feed(it, 0, weight=7.0)
    with pytest.raises(RunError, match=r"diverged in iteration 1 .* last good parameters are in .*\n.*learning_rate"):
        feed(it, 1, loss, weight)
    assert load_checkpoint(run.latest_checkpoint()).parameters["w"].tolist() == [7, 7]
    assert len(rows.rows) == 2  # the diverged row is in the log


def test_divergence_at_once_leaves_no_checkpoint(tmp_path: Path) -> None:
    it, _, run = monitor(tmp_path)
    with pytest.raises(RunError, match="no iteration was good"):
        feed(it, 0, math.nan)
    assert not list(run.checkpoints.iterdir())


def test_interruption_ends_after_the_iteration(tmp_path: Path) -> None:
    it, rows, run = monitor(tmp_path)
    feed(it, 0)
    it.interrupt_requested = True
    with pytest.raises(Interrupted):
        feed(it, 1, weight=3.0)
    feed(it, 2, weight=4.0)  # was on its way when the monitor raised: ignored
    assert load_checkpoint(run.latest_checkpoint()).parameters["w"].tolist() == [3, 3]
    assert it.iterations == len(rows.rows) == 2


def test_results_are_kept_apart_from_reused_buffers(tmp_path: Path) -> None:
    it, _, _ = monitor(tmp_path)
    buffer = np.zeros(2, np.float32)
    it.finished(0, {"loss": np.float32(0)}, {"w": buffer})
    buffer[:] = 9
    assert it.latest is not None and it.latest["w"].tolist() == [0, 0]
