"""Fixtures around the tiny models of `tests/llm/models.py`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tempo_core.config import Config
from tempo_core.store import cache
from tests.llm import models


@pytest.fixture(autouse=True)
def kept_programs(request: pytest.FixtureRequest, shared_programs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Compiled programs without a cache of their own are kept for all tests of this folder: many of them use the same tiny models.

    Tests of what is compiled ask for `fresh_programs`: they do not depend on what ran before.
    """
    if "fresh_programs" in request.fixturenames:
        return
    chosen = cache.directory

    def directory(config: Config) -> Path | None:
        return chosen(config) if config.cache else shared_programs

    monkeypatch.setattr(cache, "directory", directory)


@pytest.fixture
def fresh_programs() -> None:
    """No program is kept, unless the test gives a directory."""


@pytest.fixture
def values() -> dict[str, Any]:
    """`config.json` of a model with 2 layers and grouped queries."""
    return dict(models.VALUES)


@pytest.fixture
def llama3_scaling() -> dict[str, Any]:
    return dict(models.LLAMA3_SCALING)


@pytest.fixture
def random_tensors() -> Callable[..., dict[str, np.ndarray]]:
    """`random_tensors(values, seed=0, tied=False)`: weights under their names in a checkpoint."""
    return models.random_tensors


@pytest.fixture
def write_tensors() -> Callable[[Path, Mapping[str, np.ndarray]], None]:
    return lambda path, tensors: (path.write_bytes(models.tensor_bytes(tensors)), None)[1]


@pytest.fixture
def write_model(tmp_path: Path) -> Callable[..., Path]:
    """`write_model(values, tensors)`: a checkpoint directory without a tokenizer."""

    def write(values: Mapping[str, Any], tensors: Mapping[str, np.ndarray], name: str = "model") -> Path:
        return models.write_model(tmp_path / name, values, tensors)

    return write


@pytest.fixture
def write_tokenizer() -> Callable[[Path], int]:
    """`write_tokenizer(directory)` trains a byte-level BPE tokenizer that prepends `<s>`, and returns its vocabulary's size."""
    pytest.importorskip("tokenizers")
    return models.train_tokenizer


@pytest.fixture
def whole_model(values: dict[str, Any], tmp_path: Path) -> Path:
    """A model directory with everything in it."""
    pytest.importorskip("tokenizers")
    values["vocab_size"] = 300
    return models.whole_model(tmp_path / "model")[0]
