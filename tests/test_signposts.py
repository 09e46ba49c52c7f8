"""What the pages for people from other systems deny is not there: no name of the libraries contradicts them.

Each line of a section "What is not there" has a row here: the names that would make it false. A name is a module, a command, an option, a
key of a recipe, an algorithm, a public name, a parameter, a model's type or a dtype. So a new feature finds the page that denies it.
"""

from __future__ import annotations

import dataclasses
import inspect
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import typer.main
from typer.core import TyperGroup

import tempo_core as tp
import tempo_llm
import tempo_llm.cli
import tempo_rl
from tempo_llm.checkpoint import DTYPES
from tempo_llm.families import FAMILIES
from tempo_llm.quantized import QUANTIZED
from tempo_rl.commands.app import app as rl
from tempo_rl.recipe import ALGORITHMS

ROOT = Path(__file__).resolve().parent.parent
PAGES = sorted(path.name for path in (ROOT / "docs" / "from").glob("*.md") if path.name != "README.md")
BULLET = re.compile(r"^- (.+?)(?=\n- |\n\n|\Z)", re.DOTALL | re.MULTILINE)

# By page: the beginning of a line, and the names that contradict it.
DENIED: dict[str, dict[str, str]] = {
    "flex-attention.md": {
        "A fused kernel": r"fused_attention|flash|cudnn",
        "Blocks that are skipped by a mask of data": r"block_mask|document",
        "A pattern for each head": r"head_patterns|patterns?_(of|by|per)_heads?",
        "Whole sequences as a dimension": r"dimension_pattern",
        "Pages of keys and values": r"paged?_(attention|keys|cache)|block_table|nested|jagged",
        "PyTorch": r"from_torch|to_torch|as_torch|dlpack",
    },
    "lax-scan.md": {
        "A read from a *timestep*": r"at_step|gather_steps?",
        "`jax.jvp`": r"jvp|jacfwd|hessian|forward_mode|linearize",
        "A complex dtype": r"complex(64|128)",
        "`lax.associative_scan`": r"associative_scan",
        "The freedom to choose": r"force_loop|keep_loop",
    },
    "purejaxrl-and-cleanrl.md": {
        "DDPG, C51": r"ddpg|c51|rnd|ppg|qdagger|pqn|rainbow",
        "Environments of EnvPool": r"envpool|procgen|self_play|opponent",
        "Networks of Flax": r"flax_(network|policy)|torch_policy",
        "`print` in the loop": r"debug_print|tap",
        "Several agents": r"multi_?agent|pettingzoo|shared_policy",
    },
    "stable-baselines3.md": {
        "DDPG, HER": r"ddpg|her|hindsight|trpo|qr_?dqn|tqc|maskable|action_mask|ars",
        "Functions of your own as the value": r"schedule_function",
        "Stable-Baselines3's own": r"vecenv|from_sb3",
        "A network in PyTorch": r"torch_policy|torch_network",
        "Generalised state-dependent": r"use_sde|gsde|sde_sample_freq|networks_by_part",
        "A resumed run inside": r"pickle_environment",
        "Going on with one member": r"train_member|continue_member",
    },
    "transformers.md": {
        "Families other than": r"bert|t5|whisper|gpt2|pipeline|vision|image_processor|audio",
        "Beam search": r"(num_)?beams?|beam_search|penalty_alpha|contrastive",
        "Output that follows a schema": r"grammar|json_schema|schema|regex",
        "A `LogitsProcessor`": r"logits_processor|stopping_criteria",
        "Weights that are stored quantized": r"gptq|awq|bitsandbytes|nf4",
    },
}


def lines_of(page: str) -> list[str]:
    text = (ROOT / "docs" / "from" / page).read_text(encoding="utf-8")
    section = re.split(r"^## ", text.split("## What is not there\n")[1], maxsplit=1, flags=re.MULTILINE)[0]
    return [" ".join(match[1].split()) for match in BULLET.finditer(section)]


def names_of_commands(group: object) -> Iterator[str]:
    assert isinstance(group, TyperGroup)
    for name, command in group.commands.items():
        yield name
        for parameter in command.params:
            yield from (option.lstrip("-").replace("-", "_") for option in parameter.opts)


def names_of(value: object) -> Iterator[str]:
    """The public names of a module or class, with the parameters of its functions."""
    for name, member in inspect.getmembers(value):
        if not name.startswith("_"):
            yield name
            if inspect.isfunction(member):
                yield from inspect.signature(member).parameters


@pytest.fixture(scope="module")
def inventory() -> set[str]:
    names: set[str] = set(FAMILIES) | set(DTYPES) | set(QUANTIZED) | set(ALGORITHMS)
    for package in (tp, tempo_rl, tempo_llm):
        folder = Path(inspect.getfile(package)).parent
        if package is not tp:  # the core's files are passes and their parts, not features
            names |= {path.stem for path in folder.rglob("*.py") if "serve" not in path.parts}
        names |= {*names_of(package)}
    for kind in (
        tp.Tensor,
        tp.Program,
        tp.Context,
        tp.nn,
        tp.optim,
        tp.linalg,
        tempo_llm.Model,
        tempo_rl.PPO,
        tempo_llm.Attention,
    ):
        names |= {*names_of(kind)}
    for fields in (tp.Config, tempo_llm.Sampling, tempo_llm.Completion):
        names |= {field.name for field in dataclasses.fields(fields)}
    for recipe in ALGORITHMS.values():
        names |= {*recipe.model_fields}
    names |= {*names_of_commands(typer.main.get_command(rl)), *names_of_commands(typer.main.get_command(tempo_llm.cli.app))}
    return {name.lower() for name in names}


def contradicting(line: str, rows: dict[str, str], inventory: set[str]) -> list[str]:
    """The names that make a line false. Raises KeyError for a line without a row."""
    beginning = next((each for each in rows if line.startswith(each)), None)
    if beginning is None:
        raise KeyError(line)
    return sorted(name for name in inventory if re.fullmatch(rows[beginning], name))


@pytest.mark.parametrize("page", PAGES)
def test_what_a_page_denies_is_not_there(page: str, inventory: set[str]) -> None:
    lines, rows = lines_of(page), DENIED[page]
    assert lines and not [each for each in rows if not any(line.startswith(each) for line in lines)], "rows without a line"
    for line in lines:
        assert not contradicting(line, rows, inventory), f"docs/from/{page} says that this is not there: {line}"


def test_the_inventory_has_what_pages_denied_once(inventory: set[str]) -> None:
    """The server, LoRA, GGUF, 4 bits, the prompt cache, SAC, TD3, many seeds, schedules, speculation, checkpoints."""
    there = {"serve", "lora", "gguf", "int4", "prompt_cache", "sac", "td3", "seeds", "schedule", "speculate", "checkpoint"}
    assert there <= inventory, there - inventory


@pytest.mark.parametrize(
    ("line", "names"),
    [("A server.", "serve"), ("Training of a loaded checkpoint, whole or with LoRA.", "lora"), ("SAC, TD3.", "sac|td3")],
)
def test_a_denied_feature_is_found(line: str, names: str, inventory: set[str]) -> None:
    assert contradicting(line, {line.split(",")[0]: names}, inventory) == sorted(names.split("|"))
    with pytest.raises(KeyError):
        contradicting("Another line.", {"A server": names}, inventory)
