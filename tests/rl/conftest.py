"""What all tests of agents share."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def kept_programs(shared_programs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Compiled programs are kept for all tests of this folder: many of them train the same small agents.

    Tests of what is compiled switch that off, `monkeypatch.setenv("TEMPO_CACHE", "off")`: they do not depend on what ran before.
    """
    monkeypatch.setenv("TEMPO_CACHE", str(shared_programs))


@pytest.fixture(autouse=True)
def own_folder(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """No test writes to the list of the user's runs."""
    folder = tmp_path_factory.mktemp("state")
    monkeypatch.setenv("XDG_STATE_HOME", str(folder))
    return folder
