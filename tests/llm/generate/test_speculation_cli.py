"""Speculation on the command line: the same text, what is reported, and mistakes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

pytest.importorskip("tokenizers")

from tempo_llm.cli import app
from tests.llm import models

FLAGS = ["--raw", "-n", "12", "--ignore-eos", "--json", "--no-cache", "-p", "a lazy dog a lazy dog"]


def generate(model: Path, *flags: str) -> dict[str, object]:
    result = CliRunner().invoke(app, ["generate", "-m", str(model), *FLAGS, *flags])
    assert result.exit_code == 0, result.output
    report: dict[str, object] = json.loads(result.stdout)
    return report


@pytest.mark.slow
def test_the_report_has_rounds_and_the_same_text(whole_model: Path) -> None:
    alone, report = generate(whole_model), generate(whole_model, "--speculate", "2")
    assert report["token_ids"] == alone["token_ids"] and "speculation" not in alone
    counts = report["speculation"]
    assert isinstance(counts, dict) and counts["rounds"] + counts["accepted"] == 11
    assert counts["accepted_per_round"] == counts["accepted"] / counts["rounds"]


@pytest.mark.slow
def test_a_draft_model_by_its_name(whole_model: Path) -> None:
    report = generate(whole_model, "--speculate", "10", "--draft-model", str(whole_model))
    assert report["speculation"] == {"rounds": 1, "accepted": 10, "accepted_per_round": 10.0}


def test_mistakes_are_one_line(whole_model: Path, tmp_path: Path) -> None:
    values = {**models.VALUES, "vocab_size": 90}
    other = models.write_model(tmp_path / "other", values, models.random_tensors(values))
    cases = {
        ("--draft-model", str(whole_model)): "error: --draft-model has no effect without --speculate",
        ("--speculate", "-1"): "error: speculate is -1; it must be a whole number of at least 0 and at most 64",
        ("--speculate", "2", "--draft-model", str(other)): "error: the draft model knows 90 tokens, but the model 300",
        ("--speculate", "2", "--draft-model", "nowhere"): "error: nowhere is not a model",
        ("--speculate", "2", "--draft-model", str(whole_model), "--prompt-cache", str(tmp_path)): "error: a draft model computes",
    }
    for flags, message in cases.items():
        result = CliRunner().invoke(app, ["generate", "-m", str(whole_model), *FLAGS, *flags])
        assert result.exit_code == 1 and result.stderr.startswith(message), result.stderr
