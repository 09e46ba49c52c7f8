"""The plan of a Llama fits a screen, and uses the names of the variables in the model's file."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from tempo_core.report.graphs.overview import overview
from tempo_llm import Generator, Sampling
from tempo_llm.attention import Attention, parse_pattern, spelling_of
from tempo_llm.generate import Request, Sizes
from tempo_llm.sampling import GREEDY

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
