"""Output that cannot be written, streams that are closed, and pipes in the place of files: one line each, and no waiting."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from tempo_llm import files
from tempo_llm.checkpoint import count_parameters
from tempo_llm.config import LlamaConfig
from tempo_llm.errors import LlmError
from tempo_llm.tokenizer import Tokenizer

pytest.importorskip("tokenizers")
if sys.platform == "win32":
    pytest.skip("needs named pipes and /dev/full", allow_module_level=True)

MAIN = "from tempo_llm.cli import main; main()"


def in_shell(arguments: list[object], redirection: str, directory: Path) -> subprocess.CompletedProcess[str]:
    """The command in a shell, which redirects its streams."""
    command = [sys.executable, "-c", MAIN, *map(str, arguments)]
    return subprocess.run(
        ["sh", "-c", f'"$@" {redirection}', "sh", *command],
        capture_output=True,
        text=True,
        timeout=120,
        cwd=directory,
        check=False,
    )


@pytest.mark.parametrize("arguments", [["info", "-m", "model"], ["info", "-m", "model", "--json"], ["--help"]], ids=" ".join)
@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs /dev/full")
def test_a_full_output_is_one_line(arguments: list[object], whole_model: Path) -> None:
    done = in_shell(arguments, ">/dev/full", whole_model.parent)
    assert done.returncode == 1
    assert done.stderr == "error: the output cannot be written: No space left on device\n"


def test_a_closed_output_is_an_error_before_anything_is_computed(whole_model: Path) -> None:
    for arguments in (["info", "-m", "model"], ["generate", "-m", "model", "-p", "a dog"]):
        done = in_shell(arguments, ">&-", whole_model.parent)
        assert done.returncode == 1
        assert done.stderr == "error: the standard output is closed\n  hint: write into a file: > FILE\n"


def test_closed_errors_and_a_closed_input(whole_model: Path) -> None:
    done = in_shell(["info", "-m", "model"], "2>&- <&-", whole_model.parent)
    assert done.returncode == 0 and "hidden size" in done.stdout
    talk = in_shell(["generate", "-m", "none", "-"], "<&-", whole_model.parent)
    assert talk.returncode == 1 and talk.stderr.startswith("error: none is not a model")


# -- pipes ------------------------------------------------------------------------------------------------------------


def use(directory: Path) -> None:
    LlamaConfig.from_directory(directory)
    Tokenizer.from_directory(directory)
    count_parameters(directory)


@pytest.mark.parametrize(
    "name",
    [
        "config.json",
        "generation_config.json",
        "tokenizer.json",
        "tokenizer.model",
        "tokenizer_config.json",
        "chat_template.jinja",
        "model.safetensors",
        "model.safetensors.index.json",
    ],
)
def test_a_pipe_in_the_place_of_a_file_of_a_model(name: str, whole_model: Path) -> None:
    use(whole_model)
    if name == "tokenizer.model":
        (whole_model / "tokenizer.json").unlink()
    if name == "model.safetensors.index.json":
        (whole_model / "model.safetensors").unlink()
    (whole_model / name).unlink(missing_ok=True)
    os.mkfifo(whole_model / name)
    errors: list[BaseException] = []

    def run() -> None:
        try:
            use(whole_model)
        except LlmError as error:
            errors.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(30)
    assert len(errors) == 1 and name in str(errors[0])


def test_a_pipe_that_nobody_writes_into(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "PATIENCE", 0.2)
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(OSError, match="nobody writes into this pipe"):
        files.read_prompt(tmp_path / "pipe")
    with pytest.raises(OSError, match="it is a pipe or a device, not a file"):
        files.read_text(tmp_path / "pipe")


def test_a_prompt_may_come_through_a_pipe(tmp_path: Path) -> None:
    pipe, text = tmp_path / "pipe", "a dog\n" * 50_000  # more than the pipe holds
    os.mkfifo(pipe)
    writer = threading.Thread(target=pipe.write_text, args=(text,), daemon=True)
    writer.start()
    assert files.read_prompt(pipe) == text
    slow = subprocess.Popen(["sh", "-c", "exec >pipe; sleep 0.3; echo late"], cwd=tmp_path)
    assert files.read_prompt(pipe) == "late\n"
    assert slow.wait(10) == 0
    pipe.unlink()
    pipe.write_text("of a file")
    assert files.read_prompt(pipe) == "of a file"


# -- names ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["a" * 300, "\ud800"], ids=["long", "no text"])
def test_names_of_shards_that_no_file_can_have(name: str, whole_model: Path) -> None:
    (whole_model / "model.safetensors").unlink()
    (whole_model / "model.safetensors.index.json").write_text(json.dumps({"weight_map": {"lm_head.weight": name}}))
    with pytest.raises(LlmError, match="names files that are not there"):
        count_parameters(whole_model)
