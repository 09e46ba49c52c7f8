"""Checkpoints: a written one is read back; a damaged or foreign file is refused."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import safetensors.numpy

from tempo_rl.checkpoint import Checkpoint, load_checkpoint, save_checkpoint
from tempo_rl.errors import CheckpointError, RunError
from tempo_rl.recipe import make_recipe
from tempo_rl.rundir import create_run, find_checkpoint


def example() -> Checkpoint:
    parameters = {"policy.0.weight": np.arange(6, dtype=np.float32).reshape(2, 3), "log_std": np.zeros(2, np.float32)}
    return Checkpoint(parameters, make_recipe({"algorithm": "ppo", "seed": 3}), 5, 10240)


def test_round_trip_leaves_no_temporary_file(tmp_path: Path) -> None:
    path = save_checkpoint(tmp_path / "deep" / "a.safetensors", example())
    loaded = load_checkpoint(path)
    assert loaded.recipe == example().recipe and (loaded.iterations, loaded.env_steps) == (5, 10240)
    assert loaded.parameters.keys() == example().parameters.keys()
    np.testing.assert_array_equal(loaded.parameters["policy.0.weight"], example().parameters["policy.0.weight"])
    assert [p.name for p in path.parent.iterdir()] == ["a.safetensors"]


def test_transposed_parameters_are_saved_as_they_read(tmp_path: Path) -> None:
    weight = np.arange(6, dtype=np.float32).reshape(2, 3).T
    checkpoint = Checkpoint({"w": weight}, example().recipe, 1, 1)
    np.testing.assert_array_equal(load_checkpoint(save_checkpoint(tmp_path / "t", checkpoint)).parameters["w"], weight)


@pytest.mark.parametrize("keep", [0, 4, 40, -1])
def test_truncated_files(tmp_path: Path, keep: int) -> None:
    path = save_checkpoint(tmp_path / "a.safetensors", example())
    path.write_bytes(path.read_bytes()[:keep])
    with pytest.raises(CheckpointError, match=r"a\.safetensors .* cannot be read.*\n.*truncated"):
        load_checkpoint(path)


def test_foreign_files(tmp_path: Path) -> None:
    text = tmp_path / "notes.txt"
    text.write_text("x" * 100)
    with pytest.raises(CheckpointError, match="cannot be read"):
        load_checkpoint(text)
    other = tmp_path / "other.safetensors"
    safetensors.numpy.save_file({"w": np.zeros(1, np.float32)}, other)
    with pytest.raises(CheckpointError, match="not a checkpoint of tempo-rl"):
        load_checkpoint(other)
    damaged = tmp_path / "damaged.safetensors"
    safetensors.numpy.save_file({"w": np.zeros(1, np.float32)}, damaged, {"format": "tempo-rl-1", "tempo_rl": "{}"})
    with pytest.raises(CheckpointError, match="damaged metadata"):
        load_checkpoint(damaged)


def test_the_newest_checkpoint_of_a_run(tmp_path: Path) -> None:
    run = create_run(tmp_path / "run")
    with pytest.raises(CheckpointError, match="holds no checkpoint"):
        find_checkpoint(run.path)
    for steps in (900, 10240, 2048):
        save_checkpoint(run.checkpoint(steps), example())
    assert find_checkpoint(run.path) == run.checkpoint(10240)
    assert find_checkpoint(run.checkpoint(900)) == run.checkpoint(900)
    with pytest.raises(CheckpointError, match="there is no run or checkpoint"):
        find_checkpoint(tmp_path / "nowhere")


def test_a_run_is_not_overwritten_unless_asked(tmp_path: Path) -> None:
    run = create_run(tmp_path)
    run.metrics.write_text("iteration\n")
    save_checkpoint(run.checkpoint(5), example())
    with pytest.raises(RunError, match=r"holds a run already\n.*--overwrite"):
        create_run(tmp_path)
    create_run(tmp_path, overwrite=True)
    assert not run.metrics.exists() and not run.checkpoint(5).exists()
    with pytest.raises(RunError, match="is a file"):
        (tmp_path / "file").write_text("")
        create_run(tmp_path / "file")
