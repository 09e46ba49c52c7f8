"""What a shell completes for both commands: its scripts, and the words that it is offered."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from typer import Typer
from typer.testing import CliRunner

import tempo_llm.cli
import tempo_rl.cli
from tempo_core.runs.commands import assignments

COMMANDS = {"tempo-rl": tempo_rl.cli.app, "tempo-llm": tempo_llm.cli.app}


def answer(app: Typer, instruction: str, **environment: str) -> str:
    """What a command prints in answer to a shell's script."""
    (name,) = [name for name, each in COMMANDS.items() if each is app]
    variable = f"_{name.replace('-', '_').upper()}_COMPLETE"
    return CliRunner().invoke(app, [], prog_name=name, env={variable: instruction, **environment}).output


def offered(*words: str) -> list[str]:
    """The words that bash is offered for the last of `words`."""
    return answer(COMMANDS[words[0]], "complete_bash", COMP_WORDS="\n".join(words), COMP_CWORD=str(len(words) - 1)).split()


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
@pytest.mark.parametrize("name", COMMANDS)
def test_each_shell_has_a_script(name: str, shell: str) -> None:
    assert f"complete_{shell}" in answer(COMMANDS[name], f"source_{shell}")


@pytest.mark.parametrize("name", COMMANDS)
def test_the_help_names_the_installation(name: str) -> None:
    assert "--install-completion" in CliRunner().invoke(COMMANDS[name], ["--help"]).output


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("tempo-rl vali", ["validate"]),
        ("tempo-rl train ppo_", ["ppo_functional", "ppo_gru", "ppo_micro", "ppo_pixels", "ppo_seeds", "ppo_sweep"]),
        ("tempo-rl plan dq", ["dqn"]),
        ("tempo-rl train ppo --no-pic", ["--no-picture"]),
        ("tempo-rl train ppo env.i", ["env.id=CartPole-v1"]),
        ("tempo-rl train ppo_gru network", ["network=gru"]),
        ("tempo-rl train nowhere lear", []),
        ("tempo-llm generate --model tiny", ["tiny-llama"]),
        ("tempo-llm train tiny", ["tiny_llama", "tiny_llama_chat"]),
        ("tempo-llm gen", ["generate"]),
        ("tempo-llm train tiny_llama model.num_h", ["model.num_hidden_layers=4"]),
        ("tempo-llm train nowhere l", []),
    ],
)
def test_a_word_is_completed(line: str, words: list[str]) -> None:
    assert offered(*line.split()) == words


def test_zsh_and_fish_are_offered_the_same() -> None:
    line = "tempo-rl train ppo seed=1 env.i"
    app = COMMANDS["tempo-rl"]
    assert "env.id=CartPole-v1" in answer(app, "complete_zsh", _TYPER_COMPLETE_ARGS=line)
    fish = answer(app, "complete_fish", _TYPER_COMPLETE_ARGS=line, _TYPER_COMPLETE_FISH_ACTION="get-args")
    assert fish.split() == ["env.id=CartPole-v1"]


def test_bash_is_offered_no_key_in_the_place_of_a_value() -> None:
    """It hands on `seed=1` as three words."""
    assert offered("tempo-rl", "train", "ppo", "seed", "=") == []
    assert offered("tempo-rl", "train", "ppo", "seed", "=", "gam") == []
    assert offered("tempo-rl", "train", "ppo", "seed", "=", "1", "gam") == ["gamma=0.98"]
    assert offered("tempo-rl", "train", "ppo", "seed", "=", "1", "see") == ["seeds=1"]


def test_no_code_of_a_user_is_imported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "marked.py").write_text("raise SystemExit('imported')\n")
    Path("own.yaml").write_text("algorithm: marked:learn\npolicy: marked:Policy\nenv: {id: 'marked:Env'}\nseed: 3\n")
    assert offered("tempo-rl", "train", "own.yaml", "see") == ["seed=3", "seeds=1"]
    assert "marked" not in sys.modules


def test_values_that_a_shell_would_split_are_left_to_the_user() -> None:
    recipe = {
        "rate": 0.5,
        "on": True,
        "name": "a b",
        "kind": "gru",
        "none": None,
        "wide": [8, 8],
        "env": {"id": "X", "kwargs": {}},
    }
    assert assignments(recipe, "") == [
        "rate=0.5", "on=true", "name=", "kind=gru", "none=", "wide=", "env.id=X", "env.kwargs=",
    ]  # fmt: skip
    assert assignments(recipe, "env", ["env.id=Y"]) == ["env.kwargs="]
