"""Checkpoints: a written one is read back; a damaged or foreign file is refused."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import safetensors.numpy

import tempo_core as tp
from tempo_rl.checkpoint import FORMAT, Checkpoint, _checksum, load_checkpoint, save_checkpoint
from tempo_rl.errors import CheckpointError, RunError
from tempo_rl.recipe import make_recipe
from tempo_rl.rundir import RunDirectory, create_run, find_checkpoint

STATE = tp.Snapshot({"store/w": np.arange(3, dtype=np.float32)}, {"place": [[0, 5]]})


def example() -> Checkpoint:
    parameters = {"policy.0.weight": np.arange(6, dtype=np.float32).reshape(2, 3), "log_std": np.zeros(2, np.float32)}
    return Checkpoint(parameters, make_recipe({"algorithm": "ppo", "seed": 3}), 5, 10240, {"best": 0.1}, STATE)


def test_round_trip_leaves_no_temporary_file(tmp_path: Path) -> None:
    path = save_checkpoint(tmp_path / "deep" / "a.safetensors", example())
    loaded = load_checkpoint(path)
    assert loaded.recipe == example().recipe and (loaded.iterations, loaded.env_steps) == (5, 10240)
    assert loaded.progress == {"best": 0.1}
    assert loaded.program is not None and loaded.program.meta == STATE.meta
    np.testing.assert_array_equal(loaded.program.arrays["store/w"], STATE.arrays["store/w"])
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
    with pytest.raises(CheckpointError, match="not a checkpoint of this tempo-rl"):
        load_checkpoint(other)


def test_any_changed_byte_is_refused(tmp_path: Path) -> None:
    path = save_checkpoint(tmp_path / "a.safetensors", example())
    content = path.read_bytes()
    for place in (len(content) - 1, content.index(b"env_steps") + 13):
        path.write_bytes(content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :])
        with pytest.raises(CheckpointError, match="is damaged: its checksum"):
            load_checkpoint(path)


@pytest.mark.parametrize("trust", [False, True])
@pytest.mark.parametrize(
    "text", ["[]", "7", '{"recipe": [1]}', '{"recipe": "ppo"}', "[" * 100_000 + "]" * 100_000], ids=lambda text: text[:16]
)
def test_metadata_that_no_run_writes_are_one_line(text: str, trust: bool, tmp_path: Path) -> None:
    path = tmp_path / "a.safetensors"
    header = {"format": FORMAT, "tempo_rl": text, "checksum": _checksum({}, text)}
    safetensors.numpy.save_file({}, path, metadata=header)
    with pytest.raises(CheckpointError, match="has damaged metadata"):
        load_checkpoint(path, trust)


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (np.array([1.0, np.nan], np.float32), "the parameter w is not finite"),
        (np.array([np.inf], np.float32), "the parameter w is not finite"),
        (np.array([1, 2]), "the parameter w is of int64, but parameters must be floats"),
    ],
)
def test_parameters_that_no_policy_has_are_refused(value: np.ndarray, message: str, tmp_path: Path) -> None:
    path = save_checkpoint(tmp_path / "a.safetensors", Checkpoint({"w": value}, example().recipe, 1, 1))
    with pytest.raises(CheckpointError, match=message):
        load_checkpoint(path)


def test_a_checkpoint_that_cannot_be_written_is_one_line_and_keeps_the_earlier_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = save_checkpoint(tmp_path / "a.safetensors", example())
    before = path.read_bytes()

    def full(handle: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(CheckpointError, match=r"a\.safetensors cannot be written: No space left on device$"):
        save_checkpoint(path, Checkpoint({}, example().recipe, 9, 9))
    assert path.read_bytes() == before and [p.name for p in tmp_path.iterdir()] == ["a.safetensors"]


def test_the_newest_checkpoint_of_a_run(tmp_path: Path) -> None:
    run = create_run(tmp_path / "run")
    with pytest.raises(CheckpointError, match="there is no run or checkpoint"):
        find_checkpoint(run.path)
    run.checkpoints.mkdir(parents=True)
    with pytest.raises(CheckpointError, match="holds no checkpoint"):
        find_checkpoint(run.path)
    for steps in (900, 10240, 2048):
        save_checkpoint(run.checkpoint(steps), example())
    save_checkpoint(run.best, example())
    assert find_checkpoint(run.path) == run.checkpoint(10240)
    save_checkpoint(run.latest, example())
    assert find_checkpoint(run.path) == run.latest
    assert find_checkpoint(run.checkpoint(900)) == run.checkpoint(900)


# -- the directory ----------------------------------------------------------------------------------------------------


def begun(path: Path, overwrite: bool = False) -> RunDirectory:
    """A run directory as it is when training has begun."""
    run = create_run(path, overwrite)
    with run.locked():
        run.begin(example().recipe)
    return run


def test_a_run_is_replaced_only_when_training_begins(tmp_path: Path) -> None:
    run = begun(tmp_path / "run")
    run.metrics.write_text("iteration\n")
    save_checkpoint(run.checkpoint(5), example())
    with pytest.raises(RunError, match=r"holds a run already\n.*--resume auto.*--overwrite"):
        create_run(run.path)
    again = create_run(run.path, overwrite=True)
    assert run.metrics.exists() and run.checkpoint(5).exists()
    (run.checkpoints / ".latest.safetensors.7.8.tmp").write_text("left by a process that was killed")
    again.begin(example().recipe)
    assert not run.metrics.exists() and not list(run.checkpoints.iterdir())
    assert run.recipe() == example().recipe


def test_a_run_that_is_replaced_leaves_what_it_did_not_write(tmp_path: Path) -> None:
    run = begun(tmp_path / "run")
    for name in ("checkpoints", "tensorboard"):
        (run.path / name).mkdir(exist_ok=True)
    kept = ["checkpoints/.gitkeep", "checkpoints/step_mine.safetensors", "tensorboard/notes.txt", "checkpoints/.mine.tmp"]
    gone = [
        "tensorboard/events.out.tfevents.17.host",
        "checkpoints/step_000000000005.safetensors",
        "checkpoints/.latest.safetensors.7.8.tmp",
        "checkpoints/.step_000000000005.safetensors.tmp",
        ".metrics.csv.12.tmp",
    ]
    for name in kept + gone:
        (run.path / name).write_text("")
    create_run(run.path, overwrite=True).begin(example().recipe)
    files = {str(path.relative_to(run.path)) for path in run.path.rglob("*") if path.is_file()}
    assert files - {".lock"} == {"config.yaml", *kept}
    (run.path / ".notes.tmp").write_text("")
    with pytest.raises(RunError, match=r"files that are not of a run: \.notes\.tmp"):
        create_run(run.path, overwrite=True)


@pytest.mark.parametrize("overwrite", [False, True])
@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("notes.txt", "mine", "holds files that are not of a run: notes.txt"),
        ("config.yaml", "algorithm: ppo\n", r"config\.yaml was not written by tempo-rl"),
    ],
)
def test_files_of_the_user_are_never_replaced(overwrite: bool, name: str, content: str, message: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text(content)
    with pytest.raises(RunError, match=message):
        create_run(tmp_path, overwrite)


def test_checkpoints_without_metrics_are_a_run_too(tmp_path: Path) -> None:
    save_checkpoint(RunDirectory(tmp_path).checkpoint(5), example())
    with pytest.raises(RunError, match="holds a run already"):
        create_run(tmp_path)


def test_a_path_that_is_no_directory(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(RunError, match="is a file"):
        create_run(tmp_path / "file")
    with (
        pytest.raises(RunError, match=r"file/run cannot be written: Not a directory"),
        create_run(tmp_path / "file" / "run").locked(),
    ):
        pass


def test_a_directory_is_for_one_process_at_a_time(tmp_path: Path) -> None:
    first, second = (create_run(tmp_path / "run") for _ in range(2))
    with (
        first.locked(),
        pytest.raises(RunError, match=rf"another process \({os.getpid()}\) is training in .*run now"),
        second.locked(),
    ):
        pass
    assert not (tmp_path / "run").exists(), "training did not begin, and the directory was new"
    begun(tmp_path / "run")
    with RunDirectory(tmp_path / "run").locked():
        pass


def test_the_lock_of_a_killed_process_is_gone(tmp_path: Path) -> None:
    holding = "import sys, time; from pathlib import Path; from tempo_rl.rundir import RunDirectory\n"
    holding += "with RunDirectory(Path(sys.argv[1])).locked():\n    print('held', flush=True); time.sleep(60)"
    run = begun(tmp_path / "run")
    process = subprocess.Popen([sys.executable, "-c", holding, str(run.path)], stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None and process.stdout.readline() == "held\n"
        with pytest.raises(RunError, match=rf"another process \({process.pid}\) is training in"), run.locked():
            pass
    finally:
        process.kill()
        process.communicate()
    with run.locked():
        pass
