"""Stable-Baselines3's PPO with the hyperparameters of one of our recipes. Prints the curve as JSON: steps, and the mean return.

The mean is that of the episodes that ended in the iteration, as in our `metrics.csv`; Stable-Baselines3's own log has the mean of the
last hundred episodes.

    python -m benchmarks.peers.sb3_ppo recipes/ppo.yaml --seed 0 --steps 400000
"""

from __future__ import annotations

import argparse
import json
import statistics
from pathlib import Path
from typing import Any

import yaml
from stable_baselines3 import PPO
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.env_util import make_vec_env


class Curve(BaseCallback):
    """Collects the returns of the episodes that end, iteration by iteration."""

    def __init__(self) -> None:
        super().__init__()
        self.points: list[tuple[int, float]] = []
        self._returns: list[float] = []

    def _on_step(self) -> bool:
        self._returns += [info["episode"]["r"] for info in self.locals["infos"] if "episode" in info]
        return True

    def _on_rollout_end(self) -> None:
        if self._returns:
            self.points.append((self.num_timesteps, statistics.fmean(self._returns)))
        self._returns = []


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("recipe", type=Path)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--steps", type=int, required=True)
    options = parser.parse_args()
    recipe: dict[str, Any] = yaml.safe_load(options.recipe.read_text(encoding="utf-8"))
    rate = float(recipe["learning_rate"])
    batch = recipe["num_envs"] * recipe["num_steps"]
    agent = PPO(
        "MlpPolicy",
        make_vec_env(recipe["env"]["id"], recipe["num_envs"], seed=options.seed),
        learning_rate=(lambda left: left * rate) if recipe["anneal_lr"] else rate,
        n_steps=recipe["num_steps"],
        batch_size=batch // recipe["num_minibatches"],
        n_epochs=recipe["update_epochs"],
        gamma=recipe["gamma"],
        gae_lambda=recipe["gae_lambda"],
        clip_range=recipe["clip_coef"],
        ent_coef=recipe["ent_coef"],
        vf_coef=recipe["vf_coef"],
        max_grad_norm=recipe["max_grad_norm"],
        seed=options.seed,
        device="cpu",
    )
    curve = Curve()
    agent.learn(options.steps // batch * batch, callback=curve)
    print(json.dumps(curve.points))


if __name__ == "__main__":
    main()
