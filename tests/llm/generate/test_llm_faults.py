"""Damaged models, drawn from a seed, are one clear error each. `python -m benchmarks.faults llm` draws a thousand."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from benchmarks.faults import llm as faults
from tempo_llm.errors import LlmError, shown

pytest.importorskip("tokenizers")
pytest.importorskip("jinja2")


@pytest.mark.slow
def test_forty_damaged_models() -> None:
    endings, found = faults.run(40, seed=1)
    assert found == []
    assert sum(endings.values()) == 40 and {"CheckpointError", "ModelConfigError", "TokenizerError", "works"} <= set(endings)


@pytest.mark.slow
@pytest.mark.parametrize("kind", faults.DAMAGES)
def test_each_kind_of_damage_damages(kind: str, tmp_path: Path) -> None:
    """Of some cases of each kind, at least one is an error: what it does is not without effect."""
    refused = 0
    for number in range(8):
        directory = tmp_path / str(number)
        directory.mkdir()
        faults.write_model(directory, 0)
        faults.DAMAGES[kind][0](directory, random.Random(number))
        try:
            faults.use(directory)
        except Exception as error:
            assert isinstance(error, LlmError) or type(error).__module__ == "tempo_core.errors"
            refused += 1
    assert refused > 0


def test_the_model_itself_works(tmp_path: Path) -> None:
    faults.write_model(tmp_path, 0)
    faults.use(tmp_path)


def test_an_exception_of_another_kind_is_a_fault(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    faults.write_model(tmp_path, 0)
    monkeypatch.setattr(faults, "use", lambda directory: {}["missing"])
    ended, fault = faults.run_case(3, 0, tmp_path)
    assert ended == "fault" and fault is not None and "KeyError" in fault.what


def test_values_in_errors_are_cut() -> None:
    assert shown("a" * 200) == "'" + "a" * 76 + "..." and shown(5) == "5"
    assert shown(10**5000) == "a very long number"
