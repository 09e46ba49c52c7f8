"""Stable-Baselines3's PPO and SAC with the hyperparameters of one of our recipes, on Gymnasium's environments.

The return of an iteration is the mean of the episodes that ended in it, as in our `metrics.csv`; Stable-Baselines3's own log has the mean
of the last hundred episodes. An iteration is reported after it has learned. PyTorch has one thread: with these small networks, two were
slower.

    python -m benchmarks.peers.sb3 '{"algorithm": "ppo", "env": {"id": "CartPole-v1"}, ...}'
"""

from __future__ import annotations

import statistics
from typing import Any

from benchmarks.rl.trace import Recipe, Trace, from_command


def main() -> None:
    recipe, trace = from_command(__doc__)
    import torch
    from stable_baselines3 import PPO, SAC
    from stable_baselines3.common.callbacks import BaseCallback
    from stable_baselines3.common.env_util import make_vec_env
    from stable_baselines3.common.vec_env import VecNormalize

    torch.set_num_threads(1)
    trace.ready("stable-baselines3", "torch", "gymnasium")

    class Reports(BaseCallback):
        """Adds an iteration to the trace when the next one begins, or training ends."""

        def __init__(self, trace: Trace):
            super().__init__()
            self.trace, self.returns, self.last = trace, [], None

        def _on_step(self) -> bool:
            self.returns += [info["episode"]["r"] for info in self.locals["infos"] if "episode" in info]
            return True

        def _on_rollout_end(self) -> None:
            self.last = (self.num_timesteps, statistics.fmean(self.returns) if self.returns else None)
            self.returns = []

        def _on_rollout_start(self) -> None:
            if self.last is not None:
                self.trace.add(*self.last)
            self.last = None

        _on_training_end = _on_rollout_start

    env = make_vec_env(recipe["env"]["id"], recipe["num_envs"], seed=recipe["seed"])
    if recipe["norm_obs"]:
        env = VecNormalize(env, norm_reward=False)
    layers = {"tanh": torch.nn.Tanh, "relu": torch.nn.ReLU}[recipe["activation"]]
    shared = {"policy_kwargs": {"net_arch": recipe["hidden"], "activation_fn": layers}, "seed": recipe["seed"], "device": "cpu"}
    settings = {"ppo": ppo_settings, "sac": sac_settings}[recipe["algorithm"]](recipe)
    agent = {"ppo": PPO, "sac": SAC}[recipe["algorithm"]]("MlpPolicy", env, gamma=recipe["gamma"], **settings, **shared)
    batch = recipe["num_envs"] * recipe["num_steps"]
    agent.learn(recipe["total_timesteps"] // batch * batch, callback=Reports(trace))
    trace.print()


def ppo_settings(recipe: Recipe) -> dict[str, Any]:
    rate = recipe["learning_rate"]
    return {
        "learning_rate": (lambda left: left * rate) if recipe["anneal_lr"] else rate,
        "n_steps": recipe["num_steps"],
        "batch_size": recipe["num_envs"] * recipe["num_steps"] // recipe["num_minibatches"],
        "n_epochs": recipe["update_epochs"],
        "gae_lambda": recipe["gae_lambda"],
        "clip_range": recipe["clip_coef"],
        "ent_coef": recipe["ent_coef"],
        "vf_coef": recipe["vf_coef"],
        "max_grad_norm": recipe["max_grad_norm"],
    }


def sac_settings(recipe: Recipe) -> dict[str, Any]:
    """Raises SystemExit for two learning rates: Stable-Baselines3's SAC has one."""
    if recipe["q_lr"] != recipe["policy_lr"]:
        raise SystemExit(f"Stable-Baselines3's SAC has one learning rate: q_lr={recipe['q_lr']}, policy_lr={recipe['policy_lr']}")
    return {
        "learning_rate": recipe["q_lr"],
        "buffer_size": recipe["buffer_size"],
        "learning_starts": recipe["learning_starts"],
        "batch_size": recipe["batch_size"],
        "tau": recipe["tau"],
        "train_freq": (recipe["num_steps"], "step"),
        "gradient_steps": recipe["gradient_steps"],
        "ent_coef": "auto" if recipe["autotune"] else recipe["alpha"],
    }


if __name__ == "__main__":
    main()
