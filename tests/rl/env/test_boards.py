"""TensorBoard's event files and the offline records of W&B, read back; what the machine does; pictures of plans."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from typer.testing import CliRunner

from tempo_rl.boards import TensorBoardRecorder
from tempo_rl.cli import app
from tempo_rl.errors import RunError
from tempo_rl.recipe import make_recipe
from tempo_rl.recording import EVERY, Machine, Recorder
from tempo_rl.rundir import RunDirectory, create_run
from tempo_rl.tracking import Tracker
from tempo_rl.train import train

TINY: dict[str, Any] = {
    "algorithm": "reinforce", "num_envs": 2, "num_steps": 30, "total_timesteps": 180, "hidden": [4], "eval_every": 2, "eval_episodes": 2,
}  # fmt: skip


def quiet(text: str) -> None:
    pytest.fail(text) if text.startswith("note") else None


class Told(Recorder):
    """Keeps what it is told."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, Any]] = []

    def log(self, row: Any) -> None:
        self.calls.append(("log", row["env_steps"]))

    def evaluation(self, row: Any) -> None:
        self.calls.append(("evaluation", row))

    def machine(self, row: Any) -> None:
        self.calls.append(("machine", row))

    def film(self, film: Any, env_steps: int) -> None:
        self.calls.append(("film", (film.file.name, len(film.frames), env_steps)))

    def close(self) -> None:
        self.calls.append(("close", None))


def test_recorders_are_told_in_the_order_of_the_run(tmp_path: Path) -> None:
    told, run = Told(), create_run(tmp_path / "run")
    outcome = train(make_recipe(TINY), run, say=quiet, recorders=[told], film=True)
    kinds = [kind for kind, _ in told.calls]
    assert kinds == ["log", "machine", "log", "evaluation", "log", "machine", "evaluation", "film", "close"]
    evaluations = [value for kind, value in told.calls if kind == "evaluation"]
    assert [row["env_steps"] for row in evaluations] == [120, 180] and outcome.evaluation is not None
    assert evaluations[-1]["return_mean"] == outcome.evaluation.mean == outcome.result["eval_return_mean"]
    first, last = (value for kind, value in told.calls if kind == "machine")
    assert first["env_steps"] == 60 and last["env_steps"] == 180 and last["cpu_seconds"] >= first["cpu_seconds"] > 0.0
    assert last["memory_bytes"] > 1e7 and last["steps_per_second"] > 0.0
    name, frames, steps = told.calls[-2][1]
    assert (tmp_path / "run" / name) == outcome.video == run.video and frames > 1 and steps == 180
    assert not run.plan.exists()  # nobody tracks the run


def test_an_environment_that_cannot_be_drawn_costs_no_result(tmp_path: Path) -> None:
    recipe = tmp_path / "trivial.yaml"
    recipe.write_text("algorithm: reinforce\nenv: {id: Trivial}\nnum_envs: 2\nnum_steps: 4\ntotal_timesteps: 8\nhidden: [4]\n")
    arguments = ["train", str(recipe), "--out", str(tmp_path / "run"), "--capture-video", "--no-progress"]
    command = CliRunner().invoke(app, arguments)
    assert command.exit_code == 1 and "error: Trivial cannot be drawn" in command.output and "Traceback" not in command.output
    assert json.loads(RunDirectory(tmp_path / "run").result.read_text())["eval_return_mean"] is not None


def test_the_machine_is_measured_every_ten_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr("tempo_rl.recording.time.monotonic", lambda: now[0])
    machine = Machine(40)
    rows = []
    for iteration in range(5):
        now[0] += EVERY / 2
        rows.append(machine.row(iteration, 40 + 20 * (iteration + 1), iteration == 3))
    assert [row is not None for row in rows] == [True, False, True, True, False]
    assert rows[0] is not None and rows[2] is not None and rows[0]["steps_per_second"] == 4.0 == rows[2]["steps_per_second"]


class Refusing(Recorder):
    def plan(self, picture: Path, text: str, env_steps: int) -> None:
        raise ValueError("no pictures")

    def machine(self, row: Any) -> None:
        raise ValueError("no rows")


def test_a_picture_that_fails_ends_no_rows() -> None:
    said = list[str]()
    tracker = Tracker(Refusing(), "it", said.append)
    tracker.plan(Path("x"), "", 0)
    tracker.machine({})
    tracker.machine({})
    assert said == [
        "note: it does not get the picture of the plan: no pictures",
        "note: it gets no more rows: no rows; metrics.csv has all",
    ]


# -- TensorBoard ------------------------------------------------------------------------------------------------------


def events_of(folder: Path) -> Iterator[Any]:
    """The events in the files of a folder, oldest first. A record is a length, its checksum, an event and its checksum."""
    from tensorboardX.proto.event_pb2 import Event

    for file in sorted(folder.glob("events.out.tfevents.*")):
        data = file.read_bytes()
        while data:
            size = int.from_bytes(data[:8], "little")
            yield Event.FromString(data[12 : 12 + size])
            data = data[16 + size :]


def scalars_of(folder: Path) -> dict[str, dict[int, float]]:
    values: dict[str, dict[int, float]] = {}
    for event in events_of(folder):
        for value in event.summary.value:
            if value.HasField("simple_value"):
                values.setdefault(value.tag, {})[event.step] = value.simple_value
    return values


def test_event_files_have_all(tmp_path: Path) -> None:
    pytest.importorskip("tensorboardX")
    recipe = tmp_path / "tiny.yaml"
    recipe.write_text(json.dumps(TINY))  # YAML too
    arguments = ["train", str(recipe), "--out", str(tmp_path / "run"), "--tensorboard", "--capture-video", "--no-progress"]
    command = CliRunner().invoke(app, arguments)
    assert command.exit_code == 0 and "note" not in command.output, command.output
    run = RunDirectory(tmp_path / "run")
    scalars = scalars_of(run.path / "tensorboard")
    rows = [line.split(",") for line in run.metrics.read_text().splitlines()]
    losses = {int(row[1]): float(row[rows[0].index("loss")]) for row in rows[1:]}
    assert scalars["loss"].keys() == losses.keys() == {60, 120, 180}
    np.testing.assert_allclose([*scalars["loss"].values()], [*losses.values()], rtol=1e-6)
    result = json.loads(run.result.read_text())
    assert scalars["evaluation/return_mean"].keys() == {120, 180}
    np.testing.assert_allclose(scalars["evaluation/return_mean"][180], result["eval_return_mean"], rtol=1e-6)
    assert {60, 180} <= scalars["machine/memory_bytes"].keys() and scalars["machine/steps_per_second"][180] > 0.0
    assert "iteration" not in scalars
    others = {value.tag: value for event in events_of(run.path / "tensorboard") for value in event.summary.value}
    with Image.open(io.BytesIO(others["episode"].image.encoded_image_string)) as image:
        assert image.format == "GIF" and getattr(image, "n_frames", 1) > 1
        assert (image.width, image.height) == (others["episode"].image.width, others["episode"].image.height)
    assert others["plan"].image.encoded_image_string == run.plan.read_bytes()
    texts = {tag: value.tensor.string_val[0].decode() for tag, value in others.items() if value.tensor.string_val}
    assert any("num_steps: 30" in text for tag, text in texts.items() if "recipe" in tag)
    assert any("stores" in text for tag, text in texts.items() if "plan" in tag)


def test_a_resumed_run_hides_the_later_steps(tmp_path: Path) -> None:
    pytest.importorskip("tensorboardX")
    for start in (0, 64):
        board = TensorBoardRecorder(tmp_path, start)
        board.log({"iteration": 2, "env_steps": 96, "loss": 0.5, "episodic_return": float("nan")})
        board.close()
    assert scalars_of(tmp_path) == {"loss": {96: 0.5}}
    assert [event.step for event in events_of(tmp_path) if event.session_log.status] == [64]


def test_tensorboard_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "tensorboardX", None)
    with pytest.raises(RunError, match=r"needs the package tensorboardX\n.*pip install 'tempo-dl\[tensorboard\]'"):
        TensorBoardRecorder(tmp_path)


# -- Weights & Biases -------------------------------------------------------------------------------------------------

BLOCK, FULL, FIRST, LAST = 32_768, 1, 2, 4  # bytes; places of a part


def test_offline_records_have_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wandb = pytest.importorskip("wandb")
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_SILENT", "true")
    monkeypatch.setenv("WANDB_INIT_TIMEOUT", "100")
    run = create_run(tmp_path / "run")
    outcome = train(make_recipe(TINY | {"track": True}), run, say=quiet, film=True)
    wandb.teardown()  # its process writes the end of the record when it ends
    (record,) = (run.path / "wandb").glob("offline-run-*/*.wandb")
    history: dict[str, dict[int, Any]] = {}
    for values in rows_of_wandb(record):
        for name, value in values.items():
            history.setdefault(name, {})[int(values["_step"])] = value
    assert history["loss"].keys() == {60, 120, 180} and history["evaluation/return_mean"].keys() == {120, 180}
    assert history["evaluation/return_mean"][180] == outcome.result["eval_return_mean"]
    assert history["machine/memory_bytes"][180] > 1e7
    assert history["plan/_type"] == {0: "image-file"} and history["episode/_type"] == {180: "video-file"}
    media = {path.suffix for path in record.parent.rglob("media/**/*") if path.is_file()}
    assert media == {".png", run.video.suffix}


def rows_of_wandb(record: Path) -> Iterator[dict[str, Any]]:
    """The rows in a record of W&B: parts in blocks, as in LevelDB's logs, each with a checksum, a length and the place in its entry."""
    from wandb.proto import wandb_internal_pb2

    data, at, entry = record.read_bytes(), 7, b""
    while at + 7 <= len(data):
        size, place = int.from_bytes(data[at + 4 : at + 6], "little"), data[at + 6]
        if place == 0:  # the rest of a block
            at = (at // BLOCK + 1) * BLOCK
            continue
        entry = (b"" if place in (FULL, FIRST) else entry) + data[at + 7 : at + 7 + size]
        at += 7 + size
        at = (at // BLOCK + 1) * BLOCK if BLOCK - at % BLOCK < 7 else at
        if place in (FULL, LAST):
            row = wandb_internal_pb2.Record.FromString(entry)
            if row.WhichOneof("record_type") == "history":
                yield {item.key or "/".join(item.nested_key): json.loads(item.value_json) for item in row.history.item}
