"""PPO by hand in JAX (`jax_ppo.py`: one jitted `lax.scan` over the iterations) as a training process that reports each iteration.

It has the hyperparameters of one of our recipes, whose environment is one in JAX. A callback of JAX tells the host the return of each
iteration, as PureJaxRL's own `DEBUG` does; the program hands over nothing else before its end.
"""

from __future__ import annotations

from benchmarks.rl.trace import from_command


def main() -> None:
    values, trace = from_command(__doc__)
    import jax
    import numpy as np

    from benchmarks.peers.jax_ppo import make_training
    from tempo_rl.env.functional_env import make_single
    from tempo_rl.recipe import make_recipe

    trace.ready("jax")
    recipe = make_recipe(dict(values))
    batch = recipe.num_envs * recipe.num_steps

    def heard(number: np.ndarray, value: np.ndarray) -> None:
        trace.add((int(number) + 1) * batch, float(value))

    train = make_training(recipe, make_single(recipe.env.id), recipe.total_timesteps // batch, heard)
    jax.block_until_ready(train(np.uint32(recipe.seed)))
    jax.effects_barrier()
    trace.print()


if __name__ == "__main__":
    main()
