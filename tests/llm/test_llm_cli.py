"""The command line: help, mistakes, and whole runs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from tempo_llm.cli import app


@pytest.fixture
def cli(monkeypatch: pytest.MonkeyPatch) -> Any:
    """`cli("generate", ...)` runs the command in a wide terminal without colours."""
    runner = CliRunner(env={"COLUMNS": "200", "NO_COLOR": "1", "TERM": "dumb"})

    def run(*arguments: object, stdin: str = "") -> Result:
        return runner.invoke(app, [str(a) for a in arguments], input=stdin)

    return run


def test_help_names_the_flags(cli: Any) -> None:
    assert "generate" in cli("--help").output
    text = cli("generate", "--help").output
    flags = ["--model", "-m", "--prompt", "--file", "--raw", "--max-new-tokens", "--max-tokens", "--temperature", "--seed"]
    for flag in [*flags, "--ignore-eos", "--json", "--attention", "--max-context", "--system-prompt", "--profile"]:
        assert flag in text, flag


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--prompt", "x"], "there is no model"),
        (["-m", "no-such-model", "--prompt", "x"], "no-such-model is neither a directory nor a model under checkpoints/"),
        (["-m", "."], "there is no prompt"),
        (["-m", ".", "some text"], "unexpected argument 'some text'"),
        (["-m", ".", "--file", "no-such-file"], "cannot read the prompt in no-such-file"),
        (["-m", ".", "--prompt", "x"], "no tokenizer.json or tokenizer.model"),
    ],
)
def test_mistakes_before_a_model_is_read(
    cli: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, arguments: list[str], message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    result = cli("generate", *arguments)
    assert result.exit_code == 1
    assert result.stderr.startswith("error: ") and message in result.stderr and result.stdout == ""


def test_mistakes_in_a_request(cli: Any, whole_model: Path) -> None:
    result = cli("generate", "-m", whole_model, "--prompt", "a dog", "--attention", "spiral")
    assert result.exit_code == 1 and "unknown attention pattern 'spiral'; the patterns are full" in result.stderr
    result = cli("generate", "-m", whole_model, "--prompt", "a dog", "--attention", "0:full,1-2:window=4")
    assert result.exit_code == 1 and "layer 2 in `1-2` is out of range: this model has the layers 0 to 1" in result.stderr
    result = cli("generate", "-m", whole_model, "--prompt", "a dog", "--max-new-tokens", "500")
    assert result.exit_code == 1 and "do not fit the context of 256 tokens" in result.stderr
    result = cli("generate", "-m", whole_model, "--prompt", "a dog", "--system-prompt", "be kind")
    assert result.exit_code == 1 and "a system prompt needs a chat template" in result.stderr


def test_a_damaged_checkpoint_is_one_line_and_no_traceback(cli: Any, whole_model: Path) -> None:
    file = whole_model / "model.safetensors"
    file.write_bytes(file.read_bytes()[:-4])
    result = cli("generate", "-m", whole_model, "--prompt", "a dog")
    assert result.exit_code == 1 and "model.safetensors is damaged" in result.stderr and "Traceback" not in result.output


def test_json_and_text_of_a_batch(cli: Any, whole_model: Path, tmp_path: Path) -> None:
    (tmp_path / "prompt.txt").write_text("the brown fox")
    common = ["generate", "-m", whole_model, "--prompt", "a dog", "--max-tokens", 6, "--temperature", 0, "--max-context", 24]
    common += ["--file", tmp_path / "prompt.txt", "--ignore-eos", "-"]
    result = cli(*common, "--json", stdin="all day")
    assert result.exit_code == 0, result.output
    report = json.loads(result.stdout)
    assert [c["prompt"] for c in report["completions"]] == ["a dog", "the brown fox", "all day"]
    assert [len(c["token_ids"]) for c in report["completions"]] == [6, 6, 6]
    assert all(c["prompt_token_ids"][0] == 1 and c["finish_reason"] == "length" for c in report["completions"])
    assert report["compiles"] >= 1 and set(report["timings"]) == {"load_seconds", "compile_seconds", "run_seconds"}
    assert "note: this model has no chat template" in result.stderr
    plain = cli(*common, "--raw", "--verbose", stdin="all day")
    assert plain.stdout == "\n\n".join(c["text"] for c in report["completions"]) + "\n"
    assert "note:" not in plain.stderr and "compiled" in plain.stderr


def test_a_second_start_compiles_nothing(cli: Any, whole_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    common = [
        "generate",
        "-m",
        whole_model,
        "--prompt",
        "a dog",
        "--max-tokens",
        4,
        "--max-context",
        24,
        "--raw",
        "--verbose",
        "--json",
    ]
    kept = [cli(*common, "--cache", tmp_path / "programs") for _ in range(2)]
    first, second = (json.loads(result.stdout) for result in kept)
    assert first["compiles"] >= 1 and first["loads"] == 0
    assert (second["compiles"], second["loads"]) == (0, first["compiles"]) and "came from the cache" in kept[1].stderr
    assert first["token_ids"] == second["token_ids"]
    monkeypatch.setenv("TEMPO_CACHE", str(tmp_path / "programs"))
    assert json.loads(cli(*common).stdout)["compiles"] == 0
    assert json.loads(cli(*common, "--no-cache").stdout)["compiles"] == first["compiles"]


def test_a_profile_goes_beside_the_text(cli: Any, whole_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    common = ["generate", "-m", whole_model, "--prompt", "a dog", "--max-tokens", 4, "--max-context", 24, "--raw", "--ignore-eos"]
    plain, profiled = cli(*common), cli(*common, "--profile")
    assert profiled.exit_code == 0, profiled.output
    assert profiled.stdout == plain.stdout
    assert "under the profiler" in profiled.stderr and "llama.py:" in profiled.stderr
    assert (tmp_path / "profile.svg").read_text().startswith("<svg")
    (tmp_path / "profile.svg").unlink()
    (tmp_path / "profile.svg").mkdir()
    refused = cli(*common, "--profile")
    assert refused.exit_code == 1 and "cannot write profile.svg" in refused.stderr and "Traceback" not in refused.output


def test_end_tokens_of_the_model_end_the_text(cli: Any, whole_model: Path) -> None:
    common = ["generate", "-m", whole_model, "--prompt", "a dog", "--max-tokens", 8, "--max-context", 24, "--raw", "--json"]
    free = json.loads(cli(*common, "--ignore-eos").stdout)["token_ids"]
    end = free[3]
    (whole_model / "generation_config.json").write_text(json.dumps({"eos_token_id": [end, 299]}))
    report = json.loads(cli(*common).stdout)
    assert report["token_ids"] == free[: free.index(end) + 1]
    assert report["completions"][0]["finish_reason"] == "stop"
    assert json.loads(cli(*common, "--ignore-eos").stdout)["token_ids"] == free
    stopped = json.loads(cli(*common, "--ignore-eos", "--stop-token-id", end).stdout)
    assert stopped["token_ids"] == report["token_ids"]
