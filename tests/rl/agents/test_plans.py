"""The plans of shipped recipes read like the algorithm: few lines and boxes, the user's names, and the true stores and programs."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from tempo_core.report.graphs.overview import overview
from tempo_core.schedule import Execute, leaves
from tempo_rl.agents import build_agent
from tempo_rl.cli import app
from tempo_rl.recipe import load_recipe
from tempo_rl.train import compile_config

RECIPES = Path(__file__).resolve().parents[3] / "recipes"
GOLDEN = Path(__file__).resolve().parents[2] / "golden" / "rl"
MOST = 40  # lines of the schedule and of the table, boxes of the drawing, and labels in it


class Silent:
    def finished(self, iteration: int, metrics: Any, parameters: Any) -> None: ...


@pytest.fixture(scope="module", params=["ppo", "ppo_functional", "reinforce"])
def compiled(request: pytest.FixtureRequest) -> Iterator[tuple[str, Any]]:
    recipe = load_recipe(str(RECIPES / f"{request.param}.yaml"), [])
    agent = build_agent(recipe, Silent())
    yield request.param, agent.compile_for_runs(compile_config(recipe))
    agent.environment.close()


def without_numbers(text: str) -> str:
    """The plan without the numbers of lines, which change with every edit of a file that is shown, and without XLA's figure, which
    changes with its version.
    """
    return re.sub(r"(peak on the device: about) [\d.]+ \w+", r"\1 ...", re.sub(r"(\.py):\d+(-\d+)?", r"\1", text))


def test_the_plan(compiled: tuple[str, Any], golden: Any) -> None:
    name, program = compiled
    golden(f"rl/plan_{name}.txt", without_numbers(program.text("plan")))


@pytest.mark.parametrize("kind", ["program", "memory", "schedule"])
def test_each_part_is_short(compiled: tuple[str, Any], kind: str) -> None:
    _, program = compiled
    assert program.text(kind).count("\n") < MOST <= program.text(kind, full=True).count("\n")


def test_the_drawing_is_small(compiled: tuple[str, Any], tmp_path: Path) -> None:
    _, program = compiled
    picture = overview(program.graph)
    assert len(picture) <= MOST
    assert sum(bool(label) for box in picture.values() for _, label in box.reads) <= MOST
    program.draw(tmp_path / "few.dot")
    program.draw(tmp_path / "all.dot", full=True)
    few, every = ((tmp_path / name).read_text().count("fillcolor") for name in ("few.dot", "all.dot"))
    assert few == len(picture) and every == len(program.graph)
    assert "ppo.py:" in (tmp_path / "few.dot").read_text() or "reinforce.py:" in (tmp_path / "few.dot").read_text()


def test_every_name_says_something(compiled: tuple[str, Any]) -> None:
    """No name is the number of a node or the name of another tensor: beta2_power is one store, not 26."""
    _, program = compiled
    names = [t.name for t in program.plan().tensors]
    assert len(set(names)) == len(names)
    assert not [name for name in names if "%" in name]
    assert sum("beta2_power" in name for name in names) <= 3  # the power, its first value and its next
    assert "%" not in program.text("program", full=True)


def test_the_user_finds_parameters_state_and_what_the_environment_gives(compiled: tuple[str, Any]) -> None:
    _, program = compiled
    names = {t.name for t in program.plan().tensors}
    assert {"policy.0.weight", "adam.m(policy.0.weight)", "adam.v(policy.2.bias)", "obs"} <= names
    assert {"step.reward", "step.terminated", "step.truncated", "action"} & names


def test_the_table_sums_what_it_joins(compiled: tuple[str, Any]) -> None:
    """The row of a group has the bytes of its tensors, and both tables end with the same sum, that of all stores."""
    _, program = compiled
    short, full = program.text("memory"), program.text("memory", full=True)
    for table in (short, full):
        rows = table[: table.index("in all")].splitlines()[1:]
        assert sum(int(row.split()[-1]) for row in rows) == int(re.search(r"in all (\d+) bytes", table)[1])  # type: ignore[index]
    assert re.search(r"in all .*", short)[0] == re.search(r"in all .*", full)[0]  # type: ignore[index]
    members = [t for t in program.plan().tensors if re.fullmatch(r"policy\.\d\.(weight|bias)", t.name)]
    row = next(row for row in short.splitlines() if row.startswith("policy: "))
    assert len(members) == 6 and row.split()[1:3] == ["6", "parameters"]
    assert int(row.split()[-1]) == sum(t.bytes for t in members)


def test_the_short_schedule_has_the_loops_of_the_full_one(compiled: tuple[str, Any]) -> None:
    _, program = compiled
    loops = [
        [line.strip() for line in program.text("program", full=full).splitlines() if line.lstrip().startswith("for ")]
        for full in (False, True)
    ]
    loops[1] = [line.replace("I_last + 1", "I") for line in loops[1]]  # the run's number of iterations, as the user calls it
    assert loops[0] == loops[1]
    statements = sum(isinstance(leaf, Execute) for leaf in leaves(program.scheduled.root))
    full_lines = [line for line in program.text("program", full=True).splitlines() if not line.endswith(":")]
    assert len(full_lines) == statements


def test_the_page_on_plans_shows_the_plan_of_ppo() -> None:
    assert (GOLDEN / "plan_ppo.txt").read_text() in without_numbers((GOLDEN.parents[2] / "docs" / "plans.md").read_text())


def test_parameters_and_state_share_a_line() -> None:
    """The lines for the first and the later values of a module's parameters."""
    text = (GOLDEN / "plan_ppo.txt").read_text()
    assert "policy: start[i, 0, 0]" in text and "if m >= 1: adam, value, policy: update[i, e, m]" in text


def test_the_command_prints_the_plan_short_and_full() -> None:
    short, full = (CliRunner().invoke(app, ["plan", str(RECIPES / "reinforce.yaml"), *flags]) for flags in ([], ["--full"]))
    assert short.exit_code == full.exit_code == 0
    assert without_numbers(short.output).strip() == (GOLDEN / "plan_reinforce.txt").read_text().strip()
    assert (
        "policy, clock, adam: start[i]" in short.output
        and "adam.m(policy.0.weight)" in full.output
        and "adam.m(policy.0.weight)" not in short.output
    )
