"""What all tests of agents share."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where these tests keep compiled programs: many of them train the same small agents."""
    return tmp_path_factory.mktemp("programs")


@pytest.fixture(autouse=True)
def kept_programs(programs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TEMPO_CACHE", str(programs))


@pytest.fixture(autouse=True)
def own_folder(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """No test writes to the list of the user's runs."""
    folder = tmp_path_factory.mktemp("state")
    monkeypatch.setenv("XDG_STATE_HOME", str(folder))
    return folder
