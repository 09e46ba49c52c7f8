"""An iteration of PPO over the number of environments: `recipes/ppo_micro.yaml`, one update on the whole batch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from benchmarks.memory.process import Case, Report, measured, of_xla

SIDES = ("tempo", "JAX by hand")
ENVIRONMENTS, QUICK = (256, 512, 1024, 2048, 4096, 8192), (64,)
STEPS = 250


def cases(quick: bool) -> list[Case]:
    return [
        Case(f"PPO micro, {n} environments", "ppo", str(n), SIDES, {"envs": n, "steps": STEPS})
        for n in (QUICK if quick else ENVIRONMENTS)
    ]


def report(side: str, work: str) -> Report:
    """`work` is the number of environments."""
    from benchmarks.ppo import recipe_of

    recipe = recipe_of("ppo_micro", int(work), STEPS, 1, ())
    planned, run = (_tempo if side == "tempo" else _by_hand)(recipe)
    return measured(planned, run)


def _tempo(recipe: Any) -> tuple[Callable[[], int], Callable[[], object]]:
    from benchmarks.ppo import build_ours

    _, program, _, _ = build_ours(recipe)
    return lambda: program.plan().peak_device_bytes, lambda: program.run({})


def _by_hand(recipe: Any) -> tuple[Callable[[], int], Callable[[], object]]:
    from benchmarks.peers.jax_micro import make_training
    from tempo_rl.env.functional_env import make_single

    single = make_single(recipe.env.id, recipe.num_steps, **recipe.env.kwargs)
    compiled = make_training(recipe, single, 1).lower(np.uint32(0)).compile()
    return lambda: of_xla(compiled), lambda: jax.block_until_ready(compiled(np.uint32(recipe.seed)))
