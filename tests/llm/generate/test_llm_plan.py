"""The plan of a Llama fits a screen, and uses the names of the variables in the model's file."""

from __future__ import annotations

import json
import re
import time
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import tempo_llm
from tempo_core.report.graphs.overview import overview
from tempo_core.runtime.staged.stage import Staged
from tempo_llm import Generator, Sampling
from tempo_llm.attention import Attention, parse_pattern, spelling_of
from tempo_llm.checkpoint import Checkpoint, is_placeholder
from tempo_llm.cli import app
from tempo_llm.config import LlamaConfig
from tempo_llm.generate import Request, Sizes
from tempo_llm.gguf_model import GgufTensors
from tempo_llm.plan import COARSE
from tempo_llm.sampling import GREEDY
from tempo_llm.tensor_file import TensorFile
from tests.llm import models
from tests.llm.model.test_llm_families import ROWS

MOST = 40  # lines of the schedule and of the table, boxes of the drawing, and labels in it, for the prompt and the tokens after it together


@pytest.fixture
def generator(values: dict[str, Any], random_tensors: Any, write_model: Any) -> Generator:
    return Generator.from_directory(write_model(values, random_tensors(values)))


def sizes(generator: Generator, prompts: list[list[int]]) -> Sizes:
    (group,) = Request(prompts, 40).groups
    return generator.sizes(group)


def test_the_plan_of_a_llama(generator: Generator, golden: Any) -> None:
    text = generator.plan([[1, 2, 3], [1, 2]], 40)
    shown = re.sub(r"(peak on the device: about) [\d.]+ \w+", r"\1 ...", text)  # XLA's figure changes with its version
    golden("llm/plan.txt", re.sub(r"(\.py):\d+(-\d+)?", r"\1", shown))
    for part in text.split("\n\n"):
        assert part.count("\n") < MOST
    full = generator.plan([[1, 2, 3], [1, 2]], 40, full=True)
    assert full.count("\n") >= text.count("\n") and "@" not in full
    _, program = generator.program(GREEDY, sizes(generator, [[1, 2, 3], [1, 2]]), bind=False)
    assert program.text("schedule").count("\n") < 2 * MOST  # times of the program's statements, in two forms


@pytest.mark.parametrize("sampled", [False, True])
def test_the_drawing_of_a_llama(generator: Generator, sampled: bool) -> None:
    _, program = generator.program(Sampling(0.5 if sampled else 0.0).features(), sizes(generator, [[1, 2, 3]]), bind=False)
    picture = overview(program.graph)
    assert len(picture) <= MOST
    assert sum(bool(label) for box in picture.values() for _, label in box.reads) <= MOST
    titles = {box.lines[0].partition(":")[0] for box in picture.values()}
    assert {"hidden", "text", "attention"} <= titles and any("logits" in title for title in titles)


@pytest.mark.slow
def test_bytes_by_layers(values: dict[str, Any], random_tensors: Any, write_model: Any) -> None:
    """A window holds a multiple of its size, the whole past grows with the text; the weights of all layers are the model's."""
    values["num_hidden_layers"] = 3
    attention = Attention.parse("0:full,1:window=4,2:full")
    generator = Generator.from_directory(write_model(values, random_tensors(values)), attention)
    rows = {}
    for count in (60, 120):
        of_run = json.loads(generator.plan([[1, 2, 3]], count, as_json=True))
        rows[count] = {tuple(row["layers"]): row for row in of_run["layers"]}
    assert [row["kind"] for row in rows[60].values()] == ["full", "window=4", "full"]
    assert rows[120][0,]["stored"] > rows[60][0,]["stored"]
    assert rows[120][1,]["stored"] == rows[60][1,]["stored"]
    outer = sum(generator.weights[name].nbytes for name in generator.weights if name.startswith(("head", "final_norm")))
    assert sum(row["weights"] for row in rows[60].values()) == generator.weight_bytes - outer
    text = generator.plan([[1, 2, 3]], 60).splitlines()[-3:]
    assert [line.split()[:2] for line in text] == [["0", "full"], ["1", "window=4"], ["2", "full"]]


@pytest.mark.parametrize("spelling", ["full", "window=4", "window=8+sink=2", "block=3", "dilated=2", "dilated=3+window=7"])
def test_patterns_are_named_as_they_are_written(spelling: str) -> None:
    assert spelling_of(parse_pattern(spelling)) == spelling


# -- plans read no weights ------------------------------------------------------------------------------------------------


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The tensors that are read of files."""
    names: list[str] = []
    for kind in (TensorFile, GgufTensors):
        for method in ("read", "matrix"):
            original = getattr(kind, method)
            monkeypatch.setattr(kind, method, lambda self, name, original=original: names.append(name) or original(self, name))
    return names


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "int8", "int4"])
@pytest.mark.parametrize("family", ["llama", "gemma3_text", "qwen3_5_text", "gpt_oss"])
def test_placeholders_are_like_the_weights(family: str, dtype: str, tmp_path: Path) -> None:
    values = {**models.VALUES, "model_type": family, **ROWS.get(family, {})}
    directory = models.write_model(tmp_path / "model", values, models.random_tensors(values))
    checkpoint = Checkpoint.opened(directory, LlamaConfig.from_directory(directory), dtype)
    weights, placeholders = checkpoint.read(), checkpoint.placeholders()
    assert {name: (a.shape, a.dtype) for name, a in placeholders.items()} == {
        name: (a.shape, a.dtype) for name, a in weights.items()
    }
    assert all(is_placeholder(array) or array.size == 1 for array in placeholders.values())
    read, planned = (
        Generator.from_directory(directory, dtype=dtype),
        Generator.from_directory(directory, dtype=dtype, lazily=True),
    )
    assert read.form == planned.form and read.weight_bytes == planned.weight_bytes


def test_weights_that_are_read_when_they_are_needed_are_the_same(
    values: dict[str, Any], random_tensors: Any, write_model: Any
) -> None:
    directory = write_model(values, random_tensors(values))
    read, lazy = Generator.from_directory(directory), Generator.from_directory(directory, lazily=True)
    assert read.plan([[1, 2]], 4) == lazy.plan([[1, 2]], 4)
    assert read.generate([[1, 2]], 4).completions == lazy.generate([[1, 2]], 4).completions


def test_a_plan_opens_no_weights_and_asks_xla_for_nothing(
    values: dict[str, Any], random_tensors: Any, write_model: Any, reads: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = write_model(values, random_tensors(values))
    compiled: list[Staged] = []
    original = Staged.lower_all
    monkeypatch.setattr(Staged, "lower_all", lambda self: compiled.append(self) or original(self))
    model = tempo_llm.load(directory, lazily=True)
    text = model.generator.plan([[1, 2, 3]], 8)
    assert COARSE in text and "of which the temporaries are a coarse estimate" in text
    model.generator.plan([[1, 2, 3]], 8, as_json=True)
    assert not reads and not compiled
    assert COARSE not in model.generator.plan([[1, 2, 3]], 8, full=True)
    assert not reads and compiled
    model.generator.generate([[1, 2, 3]], 8)
    assert set(reads) == set(random_tensors(values))
    count = len(reads)
    model.generator.logits([1, 2, 3])
    assert len(reads) == count


@pytest.mark.parametrize(
    "arguments",
    [
        ["plan"],
        ["plan", "--json"],
        ["generate", "--plan", "-p", "12"],
        ["generate", "-p", "12", "--max-context", "100000"],
        ["generate", "-p", "12", "--max-new-tokens", "0"],
        ["info"],
        ["serve", "--rows", "0"],
        ["serve", "--attention", "window=0"],
        ["serve", "--plan", "--rows", "2"],
    ],
)
def test_commands_that_need_no_weights_read_none(arguments: list[str], reads: list[str]) -> None:
    command, *rest = arguments
    result = CliRunner().invoke(app, [command, "--model", "tiny-llama", *rest])
    assert result.exit_code == (1 if "0" in rest or "100000" in rest or "window=0" in rest else 0), result.output
    assert not reads


@pytest.mark.parametrize(
    "recipe", ["finetune", *(pytest.param(name, marks=pytest.mark.slow) for name in ("dpo_tiny", "grpo_tiny"))]
)
def test_plans_of_training_read_no_weights(recipe: str, reads: list[str]) -> None:
    result = CliRunner().invoke(app, ["train", recipe, "--plan"])
    assert result.exit_code == 0, result.output
    assert COARSE in result.output and not reads


def test_a_plan_of_many_layers_costs_what_one_of_few_does(values: dict[str, Any], random_tensors: Any, write_model: Any) -> None:
    """The statements that are scheduled are those of one layer, however many there are; and the functions that are traced, with `full`."""

    def costs(layers: int) -> tuple[int, float]:
        values["num_hidden_layers"] = layers
        generator = Generator.from_directory(write_model(values, random_tensors(values), f"model-{len(texts)}"), lazily=True)
        begun = time.process_time()
        texts.append(generator.plan([[1, 2, 3]], 8))
        return texts[-1].partition("storage")[0].count("\n"), time.process_time() - begun

    texts: list[str] = []
    costs(4)  # what is done once
    few, many = costs(4), costs(28)
    assert few[0] == many[0]
    assert many[1] < 10 * few[1]
