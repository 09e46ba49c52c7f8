"""The command line: help, mistakes, and whole runs."""

from __future__ import annotations

import json
import math
import re
import signal
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from tempo_core.planner import Planner
from tempo_llm.cli import app
from tempo_llm.generate import Decoding, Generator, Request
from tests.cases import fast
from tests.llm import models


@pytest.fixture
def cli(monkeypatch: pytest.MonkeyPatch, shared_programs: Path) -> Any:
    """`cli("generate", ...)` runs the command in a wide terminal without colours."""
    monkeypatch.setenv("TEMPO_CACHE", str(shared_programs))
    runner = CliRunner(env={"COLUMNS": "200", "NO_COLOR": "1", "TERM": "dumb"})

    def run(*arguments: object, stdin: str = "") -> Result:
        return runner.invoke(app, [str(a) for a in arguments], input=stdin)

    return run


def test_help_names_the_flags(cli: Any) -> None:
    assert all(command in cli("--help").output for command in ("generate", "chat", "bench", "info", "plan"))
    text = cli("generate", "--help").output
    flags = ["--model", "-m", "--prompt", "--file", "--raw", "--max-new-tokens", "--max-tokens", "--temperature", "--seed"]
    flags += [
        "--top-p",
        "--top-k",
        "--min-p",
        "--repetition-penalty",
        "--num-samples",
        "--stream",
        "--dtype",
        "--device",
        "--devices",
        "--memory-limit",
        "--jsonl",
    ]
    flags += ["--stop-token-id", "--logprobs", "--config", "--compile-cache", "--logit-bias"]
    for flag in [*flags, "--ignore-eos", "--json", "--attention", "--max-context", "--system-prompt", "--profile"]:
        assert flag in text, flag


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["-m", "", "--prompt", "x"], "there is no model"),
        (
            ["-m", "no-such-model", "--prompt", "x"],
            "no-such-model is not a model: looked for the directory no-such-model, checkpoints/no-such-model",
        ),
        (["-m", "."], "there is no prompt"),
        (["-m", ".", "some text"], "config.json does not exist"),
        (["-m", ".", "--file", "no-such-file"], "cannot read the prompt in no-such-file"),
        (["-m", ".", "--prompt", "x"], "config.json does not exist"),
        (["-m", ".", "--prompt", "x", "--dtype", "int2"], "the dtype 'int2' is unknown"),
        (["-m", ".", "--prompt", "x", "--logit-bias", "a=1"], "the logit bias 'a=1' is not of the form TOKEN=NUMBER"),
        (
            ["-m", ".", "--prompt", "x", "--logit-bias", "3=1", "--logit-bias", "3=-inf"],
            "the token 3 has two logit biases, 1 and -inf\n  hint: leave one of them out",
        ),
        (["-m", ".", "--prompt", "x", "--logit-bias", "3=1", "--logit-bias", " 3=1.0"], "config.json does not exist"),
        (["-m", ".", "--prompt", "x", "--top-p", "1.5"], "top_p is 1.5; it must be a number above 0 and at most 1"),
        (["-m", ".", "--prompt", "x", "--device", "abacus"], "there is no device 'abacus'; JAX sees cpu"),
        (["-m", ".", "--prompt", "x", "--devices", "0"], "--devices 0 is not a number of devices"),
        (["-m", ".", "--prompt", "x", "--memory-limit", "1x"], "memory_limit='1x' is not a size"),
        (["-m", ".", "--jsonl", "no-such-file"], "cannot read the prompt in no-such-file"),
        (["-m", ".", "--prompt", "\udce9"], "a prompt is not UTF-8 text"),
        (["-m", ".", "-", "--file", "-"], "standard input is named twice"),
        (["-m", ".", "-", "--jsonl", "-"], "standard input is named twice"),
    ],
)
def test_mistakes_before_a_model_is_read(
    cli: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, arguments: list[str], message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    result = cli("generate", *arguments)
    assert result.exit_code == 1
    assert result.stderr.startswith("error: ") and message in result.stderr and result.stdout == ""


def test_flags_of_draws_without_a_temperature(cli: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    flags = ["generate", "-m", ".", "--jsonl", "-", "--top-k", 5, "--top-p", 0.5, "--min-p", 0.1, "--num-samples", 2]
    text = cli(*flags, stdin='"x"').stderr
    for flag in ("--top-k", "--top-p", "--min-p", "--num-samples"):
        assert f"note: {flag} has no effect without --temperature: the most likely token is taken\n" in text
    assert "note: " not in cli(*flags, "--temperature", 0.5, stdin='"x"').stderr
    assert "note: " not in cli(*flags, stdin='{"prompt": "x", "temperature": 0.5}').stderr


def test_mistakes_in_a_request(cli: Any, whole_model: Path) -> None:
    result = cli("generate", "-m", whole_model, "--prompt", "a dog", "--attention", "spiral")
    assert result.exit_code == 1 and "unknown attention pattern 'spiral'; the patterns are full" in result.stderr
    result = cli("generate", "-m", whole_model, "--prompt", "a dog", "--attention", "0:full,1-2:window=4")
    assert result.exit_code == 1 and "layer 2 in `1-2` is out of range: this model has the layers 0 to 1" in result.stderr
    result = cli("generate", "-m", whole_model, "--prompt", "a dog", "--max-context", "3")
    assert result.exit_code == 1 and "do not fit the context of 3 tokens" in result.stderr
    result = cli("generate", "-m", whole_model, "--prompt", "a dog", "--logprobs", 2)
    assert result.exit_code == 1 and "--logprobs has no effect without --json or --jsonl" in result.stderr
    result = cli("generate", "-m", whole_model, "--prompt", "a dog", "--system-prompt", "be kind")
    assert result.exit_code == 1 and "a system prompt needs a chat template" in result.stderr


def test_a_damaged_checkpoint_is_one_line_and_no_traceback(cli: Any, whole_model: Path) -> None:
    file = whole_model / "model.safetensors"
    file.write_bytes(file.read_bytes()[:-4])
    result = cli("generate", "-m", whole_model, "--prompt", "a dog")
    assert result.exit_code == 1 and "model.safetensors is damaged" in result.stderr and "Traceback" not in result.output


@pytest.mark.slow
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
    assert report["compiles"] + report["loads"] >= 1 and set(report["timings"]) == {
        "load_seconds",
        "prepare_seconds",
        "compile_seconds",
        "run_seconds",
    }
    assert "note: this model has no chat template" in result.stderr
    for completion in report["completions"]:
        assert len(completion["tokens"]) == 6 and _letters("".join(completion["tokens"])) == _letters(completion["text"])
    plain = cli(*common, "--raw", "--verbose", stdin="all day")
    assert plain.stdout == "\n\n".join(c["text"] for c in report["completions"]) + "\n"
    assert "note:" not in plain.stderr
    parts = r"loaded the model in .* s; prepared its program in .* s; loaded \d+ programs from the cache in .* s; 18 tokens in "
    assert re.match(parts, plain.stderr), plain.stderr


def _letters(text: str) -> str:
    """A text without the parts of characters."""
    return text.replace("\ufffd", "")


@pytest.mark.slow
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
    assert (second["compiles"], second["loads"]) == (0, first["compiles"]) and "programs from the cache in" in kept[1].stderr
    assert first["token_ids"] == second["token_ids"]
    monkeypatch.setenv("TEMPO_CACHE", str(tmp_path / "programs"))
    assert json.loads(cli(*common).stdout)["compiles"] == 0
    assert json.loads(cli(*common, "--no-cache").stdout)["compiles"] == first["compiles"]


@pytest.mark.slow
def test_a_profile_goes_beside_the_text(cli: Any, whole_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    common = ["generate", "-m", whole_model, "--prompt", "a dog", "--max-tokens", 4, "--max-context", 24, "--raw", "--ignore-eos"]
    plain, profiled = cli(*common), cli(*common, "--profile")
    assert profiled.exit_code == 0, profiled.output
    assert profiled.stdout == plain.stdout
    assert "under the profiler" in profiled.stderr and "llama.py:" in profiled.stderr
    assert json.loads((tmp_path / "profile.json").read_text())["traceEvents"]
    (tmp_path / "profile.json").unlink()
    (tmp_path / "profile.json").mkdir()
    refused = cli(*common, "--profile")
    assert refused.exit_code == 0 and refused.stdout == plain.stdout, "a picture that cannot be drawn costs no text"
    assert "note: the picture profile.json cannot be written" in refused.stderr and "Traceback" not in refused.output


def test_help_does_not_import_the_compiler() -> None:
    code = "import sys; sys.argv[1:] = ['generate', '--help']\nfrom tempo_llm.cli import main\n"
    code += "try: main()\nexcept SystemExit: print('modules:', {'jax', 'numpy', 'tempo_core'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.endswith("modules: set()\n")


@pytest.mark.slow
def test_prompts_and_completions_as_lines_of_json(cli: Any, whole_model: Path, tmp_path: Path) -> None:
    lines = ['{"prompt": "a dog"}', '"the fox"', ""]
    (tmp_path / "prompts.jsonl").write_text("\n".join(lines))
    common = ["generate", "-m", whole_model, "--raw", "--max-tokens", 3, "--ignore-eos", "--num-samples", 2, "--logprobs", 2]
    result = cli(*common, "--jsonl", tmp_path / "prompts.jsonl", "--temperature", 1.5, "--top-k", 50)
    assert result.exit_code == 0, result.output
    rows = [json.loads(line) for line in result.stdout.splitlines()]
    assert [(row["prompt"], row["sample"]) for row in rows] == [("a dog", 0), ("a dog", 1), ("the fox", 0), ("the fox", 1)]
    assert all(len(row["token_ids"]) == len(row["logprobs"]) == 3 and len(row["logprobs"][0]["top"]) == 2 for row in rows)
    assert all(len(row["tokens"]) == 3 and [len(each["top_tokens"]) for each in row["logprobs"]] == [2] * 3 for row in rows), (
        "each token with its text"
    )
    for line, message in (("{", "line 1 of - is not JSON"), ('{"text": 1}', "line 1 of - has no prompt")):
        wrong = cli(*common, "--jsonl", "-", stdin=line)
        assert wrong.exit_code == 1 and message in wrong.stderr


@pytest.mark.slow
def test_text_streams(cli: Any, whole_model: Path) -> None:
    common = ["generate", "-m", whole_model, "--prompt", "a dog", "--max-tokens", 6, "--raw", "--ignore-eos"]
    streamed, whole = cli(*common, "--stream", "--verbose"), cli(*common).stdout
    assert streamed.stdout == whole and "first token after" in streamed.stderr
    stop = whole[3:5]
    assert cli(*common, "--stop", stop).stdout == whole[: whole.index(stop)] + "\n"


@pytest.fixture
def in_the_box(whole_model: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A model in the place of the one that comes with the package."""
    monkeypatch.setattr("tempo_llm.hub.IN_THE_BOX", whole_model.name)
    monkeypatch.setattr("tempo_llm.hub.shipped_checkpoints", lambda: whole_model.parent)
    return whole_model


@pytest.mark.slow
def test_a_text_alone_is_continued_by_the_model_in_the_box(cli: Any, in_the_box: Path, tmp_path: Path) -> None:
    flags = ["--raw", "-n", 3, "--ignore-eos"]
    named = cli("generate", "-m", in_the_box, "--prompt", "a dog", *flags)
    assert named.exit_code == 0 and named.stdout.strip(), named.output
    for arguments in (["a dog"], ["--prompt", "a dog"], ["-"]):
        result = cli(*arguments, *flags, stdin="a dog\n")
        assert result.stdout == named.stdout, result.output
        assert result.stderr.startswith("note: the model is model, which knows a small language; --model DIR takes another\n")
    assert json.loads(cli("a dog", "-p", "all day", *flags, "--json").stdout)["completions"][0]["prompt"] == "a dog"
    assert json.loads(cli("info", "--json").stdout)["model"] == str(in_the_box)


def test_a_command_that_is_mistyped_is_no_prompt(cli: Any) -> None:
    for word, command in (("chatt", "chat"), ("generat", "generate"), ("plans", "plan")):
        result = cli(word)
        assert result.exit_code == 2 and f"Did you mean '{command}'?" in result.stderr
    for text in ("what", "plan 9", "-m"):
        assert "Did you mean" not in cli(text, "-m", "none").stderr, text


@pytest.mark.slow
def test_tokens_that_do_not_fit_are_cut(cli: Any, whole_model: Path) -> None:
    common = ["generate", "-m", whole_model, "--raw", "--ignore-eos", "--max-context", 12, "-p", "a dog", "-p", "the fox"]
    result = cli(*common, "-n", 500, "--json")
    assert result.exit_code == 0, result.output
    rows = json.loads(result.stdout)["completions"]
    lengths = [len(row["prompt_token_ids"]) for row in rows]
    assert lengths[0] != lengths[1] and [len(row["token_ids"]) for row in rows] == [12 - length for length in lengths]
    for length in lengths:
        note = f"note: {12 - length} new tokens at most, not 500: the prompt has {length} of the 12 that fit\n"
        assert note in result.stderr
    lines = '{"prompt": "a dog", "max_tokens": 3}\n{"prompt": "a dog", "max_tokens": 99}'
    answered = cli(*common[:-4], "--jsonl", "-", stdin=lines)
    assert [len(json.loads(line)["token_ids"]) for line in answered.stdout.splitlines()] == [3, 12 - lengths[0]]
    assert (
        answered.stderr
        == f"note: line 2 of -: {12 - lengths[0]} new tokens at most, not 99: the prompt has {lengths[0]} of the 12 that fit\n"
    )


@pytest.mark.slow
def test_the_model_says_how_tokens_are_chosen(cli: Any, whole_model: Path) -> None:
    own = {"do_sample": True, "temperature": 0.6, "top_k": 5, "eos_token_id": 2}
    settings = ["--temperature", 0.6, "--top-k", 5]
    common = ["generate", "-m", whole_model, "--raw", "--ignore-eos", "-p", "a dog", "-n", 4]
    greedy, drawn = cli(*common), cli(*common, *settings)
    assert greedy.stdout != drawn.stdout and "generation_config" not in drawn.stderr
    file = whole_model / "generation_config.json"
    file.write_text(json.dumps(own))
    result = cli(*common)
    assert result.stdout == drawn.stdout
    assert result.stderr == "note: temperature 0.6, top-k 5, as the model's generation_config.json says; flags change it\n"
    again = cli(*common, "--temperature", 0)
    assert again.stdout == greedy.stdout and again.stderr == "", "a model's top-k says nothing where none is drawn"
    assert "note: top-k 5, as" in cli(*common, "--temperature", 0.6).stderr
    file.write_text(json.dumps({**own, "do_sample": False}))
    assert (cli(*common).stdout, cli(*common).stderr) == (greedy.stdout, "")
    file.write_text(json.dumps({**own, "top_k": "many"}))
    assert "generation_config.json: top_k is 'many'; it must be a whole number" in cli(*common).stderr


@pytest.mark.slow
def test_flags_from_a_file(cli: Any, whole_model: Path, tmp_path: Path) -> None:
    file = tmp_path / "flags.json"
    common = ["generate", "-m", whole_model, "--prompt", "a dog", "--raw", "--json", "--ignore-eos", "--config", file]
    file.write_text(json.dumps({"max-new-tokens": 3, "temperature": 0.0}))
    assert len(json.loads(cli(*common).stdout)["token_ids"]) == 3
    assert len(json.loads(cli(*common, "-n", 2).stdout)["token_ids"]) == 2
    file.write_text(json.dumps({"max_tokens": 20, "stop": json.loads(cli(*common, "-n", 4).stdout)["text"][2:3]}))
    assert json.loads(cli(*common).stdout)["completions"][0]["finish_reason"] == "stop"
    for text, message in (
        ('{"temprature": 1}', "unknown key 'temprature'"),
        ('{"max_tokens": 1, "max-new-tokens": 2}', "'max-new-tokens' and another key are the same flag"),
        ('{"config": "other.json"}', "unknown key 'config'"),
        ("[]", "holds no JSON object"),
        ("{", "cannot be read"),
    ):
        file.write_text(text)
        result = cli(*common)
        assert result.exit_code == 2 and message in " ".join(result.stderr.replace("│", " ").split())


def test_info_reads_no_weights(cli: Any, whole_model: Path) -> None:
    facts = json.loads(cli("info", "-m", whole_model, "--json").stdout)
    assert facts["parameters"] == sum(
        array.size for array in models.random_tensors({**models.VALUES, "vocab_size": 300}).values()
    )
    assert (facts["layers"], facts["vocabulary"], facts["attention"], facts["chat_template"]) == (2, 300, ["causal"], False)
    text = cli("info", "-m", whole_model).stdout
    assert "hidden size         32\n" in text and "tokenizer           yes\n" in text
    assert cli("info", "-m", "").exit_code == 1 and "there is no model" in cli("info", "-m", "").stderr


def test_a_limit_of_memory(cli: Any, whole_model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With no other forms to try: `tests/core/test_planner.py` tries them."""
    monkeypatch.setattr(Planner, "_singles", lambda self: ())
    request = ["generate", "-m", whole_model, "--raw", "--prompt", "aa", "-n", 4, "--temperature", 0]
    free, limited = cli(*request), cli(*request, "--memory-limit", "1GiB")
    assert limited.exit_code == 0 and limited.stdout == free.stdout, limited.output
    refused = cli(*request, "--memory-limit", "1kB")
    assert refused.exit_code == 1 and "but memory_limit allows 1,000" in refused.output and "allow that much" in refused.output


def test_plans_and_figures(cli: Any, whole_model: Path) -> None:
    common = ["-m", whole_model, "--prompt-tokens", 5, "--rows", 2, "--max-tokens", 6]
    assert "attention" in cli("plan", *common).stdout and "attention.keys" in cli("plan", *common, "--full").stdout
    stores = json.loads(cli("plan", *common, "--json", "--attention", "window=4").stdout)
    assert stores["peak_device_bytes"] > 0 and stores["moments"]
    figures = json.loads(cli("bench", *common, "--json", "--repeats", 1).stdout)
    assert figures["rows"] == 2 and figures["weight_bytes"] > 0 and figures["tokens_per_second"] > 0
    assert "of the speed of memory" in cli("bench", *common, "--repeats", 1).stdout
    assert cli("plan", "-m", whole_model, "--rows", 0).exit_code == cli("bench", "-m", whole_model, "--repeats", 0).exit_code == 1


@pytest.mark.parametrize("command", ["plan", "bench"])
@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--rows", 10000], "10000 rows are too many; the most are 4096"),
        (["--prompt-tokens", 10**12], "prompts of 1000000000000 tokens do not fit the context of 256 tokens"),
    ],
)
def test_sizes_are_measured_as_given_or_refused(
    cli: Any, whole_model: Path, command: str, flags: list[Any], message: str
) -> None:
    result = cli(command, "-m", whole_model, "--prompt-tokens", 1, "-n", 1, *flags)
    assert result.exit_code == 1 and result.stderr.startswith(f"error: {message}") and result.stdout == ""


@pytest.mark.slow
def test_stop_strings_end_a_profiled_text_too(
    cli: Any, whole_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    common = ["generate", "-m", whole_model, "--prompt", "a dog", "--max-tokens", 4, "--raw", "--ignore-eos"]
    whole = cli(*common).stdout.rstrip("\n")
    stopped = cli(*common, "--profile", "--stop", whole[2:4], "--json")
    assert json.loads(stopped.stdout)["text"] == whole[: whole.index(whole[2:4])]
    (completion,) = json.loads(stopped.stdout)["completions"]
    assert completion["finish_reason"] == "stop" and len(completion["token_ids"]) < 4
    assert "the flame picture is profile.json" in stopped.stderr
    assert cli(*common, "--profile", "--stop", "").exit_code == 1
    (tmp_path / "profile.json").unlink()
    (tmp_path / "profile.json").mkdir()
    again = cli(*common, "--profile")
    assert again.stdout == whole + "\n", again.output
    assert "note: the picture profile.json cannot be written: " in again.stderr


def test_the_version(cli: Any) -> None:
    result = cli("--version")
    assert result.exit_code == 0 and result.stdout == f"tempo-llm {version('tempo-dl')}\n"


@pytest.mark.slow
def test_the_last_newline_of_a_file_is_no_part_of_a_prompt(cli: Any, whole_model: Path, tmp_path: Path) -> None:
    (tmp_path / "unix.txt").write_bytes(b"a dog\n")
    (tmp_path / "windows.txt").write_bytes(b"a dog\r\n")
    (tmp_path / "two.txt").write_bytes(b"a dog\n\n")
    files = [flag for name in ("unix", "windows", "two") for flag in ("--file", tmp_path / f"{name}.txt")]
    common = ["generate", "-m", whole_model, "--raw", "-n", 1, "--json"]
    result = cli(*common, "-p", "a dog\n", *files, "-", stdin="a dog\n")
    prompts = [each["prompt"] for each in json.loads(result.stdout)["completions"]]
    assert prompts == ["a dog\n", "a dog", "a dog", "a dog\n", "a dog"]


def test_the_mark_at_the_beginning_of_a_file_is_no_part_of_a_prompt(cli: Any, whole_model: Path, tmp_path: Path) -> None:
    (tmp_path / "marked.txt").write_text("a dog", encoding="utf-8-sig")
    (tmp_path / "marked.jsonl").write_text('"a dog"', encoding="utf-8-sig")
    files = ["--file", tmp_path / "marked.txt", "--jsonl", tmp_path / "marked.jsonl"]
    result = cli("generate", "-m", whole_model, "--raw", "-n", 1, *files, "-", stdin="\ufeffa dog")
    assert [json.loads(line)["prompt"] for line in result.stdout.splitlines()] == ["a dog"] * 3, result.output


@pytest.mark.slow
def test_lines_have_ids_and_settings(cli: Any, whole_model: Path) -> None:
    common = ["generate", "-m", whole_model, "--raw", "--ignore-eos", "-n", 3, "--seed", 4, "--jsonl", "-"]
    lines = [
        {"prompt": "a dog", "id": "first"},
        {"prompt": "the fox", "id": {"row": 2}, "max_tokens": 2},
        {"prompt": "a dog", "id": None},
        {"prompt": "a dog", "id": 3, "temperature": 5.0},
        "a dog",
    ]
    result = cli(*common, stdin="\n".join(map(json.dumps, lines)))
    assert result.exit_code == 0, result.output
    rows = [json.loads(line) for line in result.stdout.splitlines()]
    assert [row.get("id") for row in rows] == ["first", {"row": 2}, None, 3, None]
    assert [len(row["token_ids"]) for row in rows] == [3, 2, 3, 3, 3] and "id" in rows[2] and "id" not in rows[4]
    assert rows[0]["token_ids"] == rows[2]["token_ids"] == rows[4]["token_ids"] != rows[3]["token_ids"]
    for line, message in (
        ({"prompt": "a", "max_token": 2}, "line 1 of - has the unknown key 'max_token'\n  hint: did you mean max_tokens?"),
        ({"prompt": "a", "max_tokens": 0}, "line 1 of -: max_tokens is 0; it must be a whole number of at least 1"),
        ({"prompt": "a", "temperature": -1}, "line 1 of -: temperature is -1; it must be 0 (greedy) or a positive number"),
        ({"prompt": "a dog " * 200}, "new ones do not fit the context of 256 tokens"),
        ({"prompt": "a", "seed": 1.5}, "line 1 of -: seed is 1.5; it must be a whole number"),
        ({"prompt": "a", "stop": ["b", ""]}, "line 1 of -: stop is ['b', '']; it must be a text that is not empty"),
        (b"\xff", "line 1 of - is not UTF-8 text"),
        ('{"prompt": "a", "prompt": "b"}', "line 1 of -: the key 'prompt' is there twice\n  hint: leave one of them out"),
        ('{"prompt": "a", "id": {"b": 1, "b": 1}}', "line 1 of -: the key 'b' is there twice"),
        ({"prompt": "\ud800"}, "the prompt of line 1 of - is not UTF-8 text"),
        ({"prompt": "a", "id": {"row": math.inf}}, "line 1 of -: id is {'row': inf}; JSON has no number that is not finite"),
    ):
        wrong = cli(*common, stdin=line if isinstance(line, (str, bytes)) else json.dumps(line))
        assert wrong.exit_code == 1 and message in wrong.stderr and wrong.stdout == "", wrong.output


@pytest.mark.slow
def test_lines_have_seeds_and_stops(cli: Any, whole_model: Path) -> None:
    common = ["generate", "-m", whole_model, "--raw", "--ignore-eos", "-n", 4, "--temperature", 1.5]
    alone = [cli(*common, "-p", "a dog", "--seed", seed).stdout[:-1] for seed in (1, 2)]
    assert alone[0] != alone[1]
    stop = next(letter for letter in alone[1] if letter != "\ufffd")
    lines = [
        {"prompt": "a dog", "seed": 1},
        {"prompt": "a dog", "seed": 2},
        {"prompt": "a dog", "seed": 2, "stop": stop},
        {"prompt": "a dog", "seed": 2, "stop": ["no such text", stop]},
    ]
    rows = [
        json.loads(line) for line in cli(*common, "--jsonl", "-", stdin="\n".join(map(json.dumps, lines))).stdout.splitlines()
    ]
    assert [row["text"] for row in rows] == [*alone, *[alone[1][: alone[1].index(stop)]] * 2]
    assert [row["finish_reason"] for row in rows] == ["length", "length", "stop", "stop"]


def test_a_line_that_is_wrong_is_named_and_the_rest_goes_on(cli: Any, whole_model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempo_llm.batches.MOST_ROWS", 2)
    monkeypatch.setattr("tempo_llm.cli.WAITING", 3)
    monkeypatch.setattr("tempo_llm.batches.WAITING", 3)
    texts = [
        '"a dog"',
        "nonsense",
        '"the fox"',
        '{"prompt": "a", "colour": 1}',
        '"all day"',
        json.dumps("a dog " * 200),
        '"a"',
        b"\xff",
    ]
    stdin = b"\n".join(text if isinstance(text, bytes) else text.encode() for text in texts)
    result = cli("generate", "-m", whole_model, "--raw", "--ignore-eos", "-n", 2, "--jsonl", "-", stdin=stdin)
    assert result.exit_code == 1
    assert [json.loads(line)["prompt"] for line in result.stdout.splitlines()] == ["a dog", "the fox", "all day", "a"]
    errors = re.findall(r"error: line (\d) of -:? (.*)", result.stderr)
    assert [(int(number), reason[:20]) for number, reason in errors] == [
        (2, "is not JSON: Expecti"), (4, "has the unknown key "), (6, "a prompt of 402 toke"), (8, "is not UTF-8 text: '"),
    ]  # fmt: skip


def test_lines_with_equal_settings_share_batches(cli: Any, whole_model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempo_llm.batches.MOST_ROWS", 4)
    begin, sizes = Generator.start, []

    def start(self: Generator, request: Request) -> Decoding:
        sizes.append(len(request.prompts))
        return begin(self, request)

    monkeypatch.setattr(Generator, "start", start)
    lines = [json.dumps({"prompt": "a dog", "id": number, "temperature": number % 2}) for number in range(10)]
    common = ["generate", "-m", whole_model, "--raw", "--ignore-eos", "-n", 2, "--jsonl", "-", "-v"]
    result = cli(*common, stdin="\n".join(lines))
    assert [json.loads(line)["id"] for line in result.stdout.splitlines()] == list(range(10)), "in their order"
    assert sizes == [4, 4, 4, 4], "the last one of each kind uses the program of those before"
    assert [int(count) for count in re.findall(r"(\d+) tokens in", result.stderr)] == [8, 8, 2, 2]


@pytest.mark.parametrize("is_interrupted", fast([False, True], True))
def test_lines_of_a_pipe_are_answered_as_they_come(whole_model: Path, shared_programs: Path, is_interrupted: bool) -> None:
    arguments = ["generate", "-m", str(whole_model), "--raw", "-n", "2", "--cache", str(shared_programs), "--jsonl", "-"]
    command = [sys.executable, "-c", "from tempo_llm.cli import main; main()", *arguments]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdin is not None and process.stdout is not None and process.stderr is not None
        for prompt in (b"a dog", b"the fox"):
            process.stdin.write(b'"%s"\n' % prompt)
            process.stdin.flush()
            assert json.loads(process.stdout.readline())["prompt"].encode() == prompt  # while the pipe is open
        if is_interrupted:
            process.send_signal(signal.SIGINT)
        else:
            process.stdin.close()
        assert process.wait(60) == (128 + signal.SIGINT if is_interrupted else 0)
        errors = process.stderr.read()
        assert errors.endswith(b"interrupted\n") == is_interrupted and b"Fatal" not in errors and b"Traceback" not in errors


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=lambda number: number.name)
def test_what_is_finished_is_out_when_the_rest_is_interrupted(
    number: signal.Signals, cli: Any, whole_model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempo_llm.batches.MOST_ROWS", 2)
    begin, begun = Generator.start, []

    def start(self: Generator, request: Request) -> Decoding:
        begun.append(request)
        if len(begun) == 3:
            signal.raise_signal(number)
        return begin(self, request)

    monkeypatch.setattr(Generator, "start", start)
    lines = [json.dumps({"prompt": "a dog", "id": number}) for number in range(6)]
    before = signal.getsignal(number)
    if number == signal.SIGTERM:  # without a handler of the command, it would end the tests
        signal.signal(number, lambda *_: pytest.fail("nobody listens"))
    try:
        result = cli("generate", "-m", whole_model, "--raw", "--ignore-eos", "-n", 2, "--jsonl", "-", stdin="\n".join(lines))
    finally:
        signal.signal(number, before)
    assert result.exit_code == 128 + number and "interrupted" in result.stderr
    assert [json.loads(line)["id"] for line in result.stdout.splitlines()] == [0, 1, 2, 3]


def test_a_picture_into_nowhere(cli: Any, whole_model: Path, tmp_path: Path) -> None:
    for path in (tmp_path / "none/memory.json", tmp_path / f"{'a' * 300}.json"):
        result = cli("generate", "-m", whole_model, "--raw", "-p", "a", "-n", 2, "--plan", "--memory-picture", path)
        error = f"error: the picture {path} cannot be written: "  # behind a note, where the program took long to compile
        assert result.exit_code == 1 and any(line.startswith(error) for line in result.stderr.splitlines())


def test_a_run_directory_that_no_file_system_can_have(cli: Any) -> None:
    for flags in (["--out", "a" * 300], ["--resume", "a" * 300]):
        result = cli("train", "tiny_llama", *flags)
        assert result.exit_code == 1 and "cannot be used: File name too long" in result.stderr, result.stderr


def test_flags_that_change_nothing_of_training(cli: Any, tmp_path: Path) -> None:
    for flags, needed in ((["--full", "--out", tmp_path / "run"], "--plan"), (["--overwrite"], "--out")):
        result = cli("train", "tiny_llama", *flags)
        assert result.exit_code == 1 and result.stderr.startswith(f"error: {flags[0]} has no effect without {needed}\n")
    assert not (tmp_path / "run").exists()


def test_a_chat_without_tokens_is_refused_at_once(cli: Any, tmp_path: Path) -> None:
    for command in (["chat"], ["chat", "--config", tmp_path / "flags.json"]):
        (tmp_path / "flags.json").write_text('{"max_tokens": 0}')
        result = cli(*command, "-m", tmp_path / "none", *([] if len(command) > 1 else ["-n", 0]), stdin="a dog\n")
        assert result.exit_code == 1 and result.stdout == ""
        assert result.stderr.startswith("error: max_new_tokens is 0; it must be a whole number of at least 1\n  hint: --max-new")


def test_flags_of_a_file_are_there_once(cli: Any, tmp_path: Path) -> None:
    (tmp_path / "flags.json").write_text('{"seed": 1, "seed": 2}')
    result = cli("generate", "--config", tmp_path / "flags.json", "-p", "a")
    assert result.exit_code == 2 and "the key 'seed' is there twice" in result.stderr


def test_a_chat_keeps_its_caches(cli: Any, whole_model: Path) -> None:
    template = "{% for m in messages %}{% if m.role == 'user' %}<user>{{ m.content }}<answer>{% else %}{{ m.content }}</s><unk>{% endif %}{% endfor %}"
    (whole_model / "tokenizer_config.json").write_text(json.dumps({"chat_template": template}))
    common = ["chat", "-m", whole_model, "--max-tokens", 4, "--temperature", 0, "--verbose"]
    result = cli(*common, stdin="a dog\n\nthe fox\n/clear\na dog\n/exit\n")
    assert result.exit_code == 0, result.output
    replies = result.stdout.splitlines()
    first = replies[0]
    assert len(replies) == 3 and first == replies[2] and result.stderr.count("began anew 0 times") == 3
    assert cli(*common, stdin="a dog\n").stdout == first + "\n"
    odd = cli(*common, stdin=b"\xff\na dog\n")
    assert odd.stdout == first + "\n" and "error: a message is not UTF-8 text" in odd.stderr and odd.exit_code == 0
    long = cli(*common, "--max-context", 9, stdin="the quick brown fox jumps\nfox\n")
    assert long.exit_code == 0 and "fill the context of 9" in long.stderr
    assert re.search(r"loaded the model in .* s\n(.*\n)+.* characters in .* s, after .* s for the program", result.stderr)
    (whole_model / "generation_config.json").write_text('{"do_sample": false}')
    default = cli(*common[:5], stdin="a dog\n")
    assert default.stdout == first + "\n" and "note: temperature 0, as the model's generation_config.json says" in default.stderr


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
