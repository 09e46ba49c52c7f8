"""Brax's own PPO (`brax.training`) with the sizes and hyperparameters of one of our recipes. Only its speed is reported, no returns.

Not the same: minibatches are whole unrolls instead of single steps, the learning rate is constant, rewards are not scaled, and an episode
begins again in its first state (Brax's `AutoResetWrapper`), where ours is reset.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

from benchmarks.rl.trace import from_command


def main() -> None:
    recipe, trace = from_command(__doc__)
    import jax
    import jax.numpy as jnp
    from brax import envs

    def replicated(tree: Any, devices: Sequence[Any]) -> Any:
        """A copy for each device, placed as the results of `pmap` are: placed in another way, the first iterations would compile twice."""
        return jax.pmap(lambda x: x, axis_name=ppo._PMAP_AXIS_NAME, devices=devices)(
            jax.tree.map(lambda x: jnp.stack([x] * len(devices)), tree)
        )

    if not hasattr(jax, "device_put_replicated"):  # brax 0.14 calls it, and JAX no longer has it
        jax.device_put_replicated = replicated
    from brax.training.agents.ppo import networks
    from brax.training.agents.ppo import train as ppo

    trace.ready("brax", "jax")
    iterations = recipe["total_timesteps"] // (recipe["num_envs"] * recipe["num_steps"])
    hidden = tuple(recipe["hidden"])
    activation = {"tanh": jnp.tanh, "relu": jax.nn.relu}[recipe["activation"]]
    ppo.train(
        environment=envs.get_environment(recipe["env"]["id"].partition("/")[2], backend="generalized"),
        num_timesteps=iterations * recipe["num_envs"] * recipe["num_steps"],
        episode_length=1000,
        num_envs=recipe["num_envs"],
        unroll_length=recipe["num_steps"],
        batch_size=recipe["num_envs"] // recipe["num_minibatches"],
        num_minibatches=recipe["num_minibatches"],
        num_updates_per_batch=recipe["update_epochs"],
        learning_rate=recipe["learning_rate"],
        entropy_cost=recipe["ent_coef"],
        discounting=recipe["gamma"],
        gae_lambda=recipe["gae_lambda"],
        clipping_epsilon=recipe["clip_coef"],
        vf_loss_coefficient=recipe["vf_coef"],
        max_grad_norm=recipe["max_grad_norm"],
        normalize_observations=recipe["norm_obs"],
        network_factory=functools.partial(
            networks.make_ppo_networks, policy_hidden_layer_sizes=hidden, value_hidden_layer_sizes=hidden, activation=activation
        ),
        seed=recipe["seed"],
        num_evals=iterations + 1,  # a report after each iteration,
        run_evals=False,  # which evaluates nothing
        progress_fn=lambda steps, metrics: trace.add(steps),
    )
    trace.print()


if __name__ == "__main__":
    main()
