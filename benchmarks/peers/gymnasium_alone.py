"""The environments of a recipe with random actions, and no training: no program on Gymnasium's environments in one process can be much faster."""

from __future__ import annotations

from benchmarks.rl.trace import from_command


def main() -> None:
    recipe, trace = from_command(__doc__)
    import gymnasium

    trace.ready("gymnasium")
    count, steps = recipe["num_envs"], recipe["num_steps"]
    env = gymnasium.make_vec(recipe["env"]["id"], count, vectorization_mode="sync")
    env.action_space.seed(recipe["seed"])
    env.reset(seed=recipe["seed"])
    for number in range(recipe["total_timesteps"] // (count * steps)):
        for _ in range(steps):
            env.step(env.action_space.sample())
        trace.add((number + 1) * count * steps)
    env.close()
    trace.print()


if __name__ == "__main__":
    main()
