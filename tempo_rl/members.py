"""Many members in one run: seeds, and values of a sweep. They are copies of one program, `ctx.copies`, which computes them at once.

Member k has the seed `seed + k`, and its values of the sweep; it learns what a run alone with these learns, up to rounding.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, TypeVar, cast

import numpy as np

import tempo_core as tp
from tempo_rl.agents import Agent, Monitor, build_agent
from tempo_rl.errors import RecipeError
from tempo_rl.recipe import Recipe

R = TypeVar("R", bound=Recipe)
STEP = "member"


def build_members(recipe: Recipe, monitor: Monitor) -> tuple[Agent, dict[str, np.ndarray]]:
    """The program of all members of a recipe, and its inputs: the values of the sweep. Raises `RecipeError` for what cannot be swept."""
    if recipe.count == 1:
        return build_agent(recipe.member(0), monitor), {}
    swept, read = _traced(recipe)
    try:
        agent = build_agent(swept, monitor)
    except (tp.errors.TempoError, TypeError) as error:
        if not recipe.sweep:
            raise
        raise RecipeError(
            f"{recipe.algorithm} cannot be built with tensors for {', '.join(recipe.sweep)}: {error}",
            hint="sweep other keys, or run the values one after the other",
        ) from error
    if unused := [key for key in recipe.sweep if key not in read]:
        raise RecipeError(f"{recipe.algorithm} does not use {', '.join(unused)} in its program", hint="sweep other keys")
    try:
        copies = agent.context.copies(STEP, inputs=[_input(key) for key in recipe.sweep])
    except tp.errors.ArgumentError as error:
        raise RecipeError(
            f"{recipe.algorithm} on {recipe.env.id} cannot train {recipe.count} members at once: {error}",
            hint="train them one after the other: seed=0, seed=1, ...",
        ) from error
    inputs = {_input(key): np.array([point[key] for point in recipe.members], np.float32) for key in recipe.sweep}
    return replace(agent, context=copies.context, bounds={copies.bound: recipe.count, **agent.bounds}), inputs


def _input(key: str) -> str:
    return f"sweep.{key}"


def _traced(recipe: R) -> tuple[R, set[str]]:
    """The recipe whose swept keys are tensors where a program is written, and the keys that were read there."""
    keys, read = frozenset(recipe.sweep), set[str]()
    tensors: dict[tuple[int, str], tp.Tensor] = {}

    def value_of(self: Recipe, name: str) -> Any:
        context = tp.Context.innermost() if name in keys else None
        if context is None:
            return object.__getattribute__(self, name)
        read.add(name)
        if (id(context), name) not in tensors:
            tensors[id(context), name] = tp.input(_input(name), ())
        return tensors[id(context), name]

    swept = recipe.model_copy()
    swept.__class__ = cast("type[R]", type(type(recipe).__name__, (type(recipe),), {"__getattribute__": value_of}))
    return swept, read


def of_member(arrays: Mapping[str, np.ndarray], member: int) -> dict[str, np.ndarray]:
    """The arrays of one member, from those of all."""
    return {name: np.array(value[member]) for name, value in arrays.items()}
