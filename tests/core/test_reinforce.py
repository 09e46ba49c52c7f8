"""The paper's example (alg. 1): one changed index gives another schedule."""

from __future__ import annotations

import numpy as np
import pytest

import tempo_core as tp
from tests.core.programs import reinforce

STREAMED = tp.Config(disable=("vectorize(t)",))  # learning in a loop over t, as for observations that do not fit in memory


def program_text(window: int | None, config: tp.Config) -> str:
    ctx, bounds, outputs = reinforce(window)
    return ctx.compile(bounds, outputs, config).text("program", full=True)


def test_monte_carlo_simulates_then_learns(golden):
    golden("reinforce_monte_carlo", program_text(None, STREAMED))


def test_five_step_returns_learn_in_the_simulation_loop_four_steps_late(golden):
    golden("reinforce_five_step", program_text(5, STREAMED))


def test_vectorized_learning_is_one_statement(golden):
    golden("reinforce_vectorized", program_text(None, tp.Config()))


@pytest.mark.parametrize("window", [None, 5])
def test_schedules_give_the_same_numbers(window):
    ctx, bounds, outputs = reinforce(window)
    (vectorized,) = ctx.run(bounds, outputs)
    (streamed,) = ctx.run(bounds, outputs, config=STREAMED)
    np.testing.assert_allclose(vectorized, streamed, rtol=1e-5)
    assert len(set(vectorized.tolist())) == 3


def test_window_folds_what_it_reads_to_its_width():
    ctx, bounds, outputs = reinforce(5)
    plan = ctx.compile(bounds, outputs, STREAMED).plan()
    rewards = [t for t in plan.tensors if t.name.startswith("env") and t.kind == "window"]
    assert rewards and all(max(t.slots) == 5 for t in rewards)
    ctx, bounds, outputs = reinforce(None)
    plan = ctx.compile(bounds, outputs, STREAMED).plan()
    assert any(t.name.startswith("env") and max(t.slots) == 20 for t in plan.tensors)


def test_each_line_of_a_plan_has_a_name():
    """Sums of gradients over a loop are recurrences that no line of the user names."""
    ctx, bounds, outputs = reinforce(5)
    lines = [line.strip() for line in ctx.compile(bounds, outputs, STREAMED).text("plan").splitlines()]
    assert any(": start[i, 0]" in line for line in lines)
    assert not [line for line in lines if line.startswith(":") or ": :" in line]
