"""Weights & Biases that refuses a key, does not answer, or does not end: a line says so, and nothing of the run is lost."""

from __future__ import annotations

import json
import os
import sys
import threading
import time
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tempo_core.runs.recipe import WandbRecipe
from tempo_rl.errors import RunError
from tempo_rl.recipe import make_recipe
from tempo_rl.rundir import RunDirectory, create_run
from tempo_rl.tracking import ANSWER, wandb_tracker
from tempo_rl.train import train
from tests.cases import fast

TINY: dict[str, Any] = {
    "algorithm": "reinforce", "env": {"id": "CartPole-v1"}, "num_envs": 2, "num_steps": 4, "total_timesteps": 24, "hidden": [4],
    "eval_episodes": 2, "track": True,
}  # fmt: skip


class AuthenticationError(Exception): ...


class CommError(Exception): ...


class UsageError(Exception): ...


ERRORS = {
    "a bad key": AuthenticationError(
        "API key verification failed for host https://api.wandb.ai. Make sure your API key is valid."
    ),
    "a short key": UsageError("API key must be 40 characters long, yours was 3"),
    "no network": CommError("Run initialization has timed out after 8.0 sec. Please try increasing the timeout."),
}


class FakeWandb(types.ModuleType):
    """`wandb.init` fails or blocks online as the real one does; offline it gives a run, unless `is_broken`."""

    def __init__(self, problem: str, enough: threading.Event, is_broken: bool = False):
        super().__init__("wandb")
        self.problem, self.enough, self.is_broken = problem, enough, is_broken
        self.modes, self.rows, self.finished, self.waits = list[str](), list[int](), list[str](), list[str | None]()

    def init(self, mode: str, **_: Any) -> types.SimpleNamespace:
        self.modes.append(mode)
        self.waits.append(os.environ.get("WANDB_INIT_TIMEOUT"))
        if mode == "online" and self.problem in ERRORS:
            raise ERRORS[self.problem]
        if mode == "online" and self.problem == "blocks":
            assert self.enough.wait(60)
        if mode == "offline" and self.is_broken:
            raise OSError("no space left on device")

        def finish() -> None:
            if self.problem == "blocks at its end" and mode == "online":
                assert self.enough.wait(60)
            self.finished.append(mode)

        def log(row: dict[str, Any], step: int) -> None:
            self.rows.extend([step] if "loss" in row else [])

        return types.SimpleNamespace(log=log, finish=finish)

    def Image(self, *_: Any, **__: Any) -> None:
        """Of the plan."""


@pytest.fixture
def enough() -> Iterator[threading.Event]:
    event = threading.Event()
    yield event
    event.set()


def installed(monkeypatch: pytest.MonkeyPatch, fake: FakeWandb) -> FakeWandb:
    monkeypatch.setitem(sys.modules, "wandb", fake)
    monkeypatch.setenv("WANDB_API_KEY", "bad")
    monkeypatch.delenv("WANDB_MODE", raising=False)
    return fake


@pytest.mark.parametrize("problem", fast([*ERRORS, "blocks"], "no network"))
def test_the_run_goes_on_offline(problem: str, enough: threading.Event, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake = installed(monkeypatch, FakeWandb(problem, enough))
    if problem == "blocks":
        monkeypatch.setenv("WANDB_INIT_TIMEOUT", "0.1")
    said = list[str]()
    outcome = train(make_recipe(TINY), create_run(tmp_path / "run"), say=said.append)
    assert outcome.evaluation is not None and outcome.stopped is None
    assert fake.modes == ["online", "offline"] and fake.rows == [8, 16, 24] and fake.finished == ["offline"]
    (note,) = [line for line in said if "W&B" in line]
    expected = (
        "W&B has not answered within 0.1 s"
        if problem == "blocks"
        else f"W&B does not begin the run: {type(ERRORS[problem]).__name__}: "
    )
    assert note.startswith(f"note: {expected}") and f"wandb sync {tmp_path / 'run' / 'wandb'}" in note
    assert "WANDB_MODE" not in os.environ
    if problem == "blocks":  # it comes late, and nobody needs it
        enough.set()
        until = time.monotonic() + 60
        while len(fake.finished) < 2 and time.monotonic() < until:
            time.sleep(0.01)
        assert fake.finished == ["offline", "online"]


def test_w_and_b_has_ten_seconds_to_answer(enough: threading.Event, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("WANDB_INIT_TIMEOUT", raising=False)
    fake = installed(monkeypatch, FakeWandb("", enough))
    tracker = wandb_tracker(WandbRecipe(), {}, tmp_path, lambda text: pytest.fail(text))
    assert tracker is not None and fake.modes == ["online"] and fake.waits == [f"{ANSWER:g}"] and ANSWER + 1.0 < 10.0
    assert "WANDB_INIT_TIMEOUT" not in os.environ


def test_a_run_that_cannot_be_tracked_at_all_goes_on(
    enough: threading.Event, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    installed(monkeypatch, FakeWandb("a bad key", enough, is_broken=True))
    said = list[str]()
    outcome = train(make_recipe(TINY), create_run(tmp_path / "run"), say=said.append)
    assert outcome.result["env_steps"] == 24
    assert said[1] == (
        "note: W&B does not begin the run: OSError: no space left on device, also offline: the run is not tracked; metrics.csv has all"
    )


def test_an_upload_that_never_ends_costs_no_result(
    enough: threading.Event, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    installed(monkeypatch, FakeWandb("blocks at its end", enough))
    monkeypatch.setattr("tempo_rl.tracking.UPLOAD", 0.05)
    said = list[str]()
    outcome = train(make_recipe(TINY), create_run(tmp_path / "run"), say=said.append)
    assert outcome.evaluation is not None
    assert json.loads(RunDirectory(tmp_path / "run").result.read_text())["eval_return_mean"] is not None
    (note,) = [line for line in said if "W&B" in line]
    assert note.startswith(
        "note: close() of W&B has not returned within 0.05 s, and is left behind; what it has is uploaded later with: wandb sync"
    )


def test_what_is_wrong_in_the_recipe_is_an_error_and_no_note(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "wandb", None)
    with pytest.raises(RunError, match="track=true needs the package wandb"):
        wandb_tracker(WandbRecipe(), {}, tmp_path, print)
