"""Numbers that a recipe may let change over the run: learning rates, the clip range, the weight of the entropy, exploration."""

from __future__ import annotations

import tempo_core as tp
from tempo_rl.recipe import DQNRecipe, Recipe, ScheduleRecipe


def scheduled(recipe: Recipe, value: float | ScheduleRecipe, i: tp.Expr, I: tp.Expr) -> tp.Tensor | float:
    """`value` in iteration i of I: itself, or a float32 tensor of its schedule."""
    if not isinstance(value, ScheduleRecipe):
        return value
    schedules = tp.optim.schedules
    if value.schedule == "steps":
        return schedules.piecewise(value.values, value.at)(i * (recipe.num_envs * recipe.num_steps))
    assert value.start is not None, "the recipe was checked"
    kinds = {"linear": schedules.linear(value.start, value.end, I), "cosine": schedules.cosine(value.start, I, value.end)}
    return kinds[value.schedule](i)


def rate(recipe: Recipe, value: float | ScheduleRecipe, i: tp.Expr, I: tp.Expr) -> tp.Tensor | tp.Expr | float:
    """A learning rate in iteration i of I: `value`, which falls to 0 in a line if the recipe says `anneal_lr`, or its schedule."""
    if not isinstance(value, ScheduleRecipe) and recipe.anneal_lr:
        return value * (1.0 - i / I)
    return scheduled(recipe, value, i, I)


def exploration(recipe: DQNRecipe, i: tp.Expr, I: tp.Expr) -> tp.Tensor:
    """The probability of a random action in iteration i of I, float32: it falls in a line, and then stays."""
    if isinstance(recipe.start_e, float) and recipe.start_e == recipe.end_e:  # it does not depend on I
        return tp.zeros(()) + recipe.start_e
    falling = recipe.start_e - (recipe.start_e - recipe.end_e) * i / (recipe.exploration_fraction * I)
    return tp.maximum(tp.zeros(()) + falling, recipe.end_e)
