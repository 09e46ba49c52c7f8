"""Learning curves: the return over the steps in the environment, and the seconds that it took, each run from a cold start by its own command.

Ours is `tempo-rl train RECIPE`. The peer of PPO is Stable-Baselines3's with the recipe's hyperparameters, if it is installed
(`pip install stable-baselines3`). Seeds run in turn, ours and the peer's, so that other load on the machine affects both alike.

    python -m benchmarks.learning [--turns SEEDS] [--quick] [--control] [--out FILE]

The cases are those of CartPole, or, with --control, those of Gymnasium's other classic control.
"""

from __future__ import annotations

import argparse
import csv
import importlib.util
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks.common import Results, arguments, say

ROOT = Path(__file__).resolve().parents[1]
RECIPES = {  # by case: the recipe, and its steps in the environment
    "CartPole, PPO": ("recipes/ppo.yaml", 400_000),
    "CartPole in JAX, PPO": ("recipes/ppo_functional.yaml", 400_000),
    "CartPole, REINFORCE": ("recipes/reinforce.yaml", 400_000),
    "CartPole in JAX, REINFORCE with a baseline": ("recipes/reinforce_baseline.yaml", 400_000),
    "CartPole in JAX, n-step actor-critic": ("recipes/actor_critic.yaml", 500_000),
    "CartPole in JAX, DQN": ("recipes/dqn.yaml", 120_000),
}
CONTROL = {  # the same with the mean return that counts as solved: that of Gymnasium, where it has one
    "Pendulum in JAX, SAC": ("recipes/sac.yaml", 20_000, -200.0),
    "Pendulum in JAX, TD3": ("recipes/td3.yaml", 20_000, -200.0),
    "Mountain car in JAX, SAC": ("recipes/sac_mountain_car.yaml", 50_000, 90.0),
    "Acrobot in JAX, PPO": ("recipes/acrobot.yaml", 500_000, -100.0),
}
PEERS = ("CartPole, PPO",)  # cases that Stable-Baselines3 runs too: with environments on the host
QUICK_STEPS = 8192
SOLVED = 475.0  # the mean return at which Gymnasium calls CartPole-v1 solved

RECENT = 5  # points of a curve whose mean counts in CONTROL, where one episode may end well by chance

Curve = list[
    tuple[int, float]
]  # steps in the environment so far, and the mean return of the episodes that ended in the iteration


def main() -> None:
    options = arguments(__doc__ or "", _add_options)
    results = Results("learning", options)
    sides = {"tempo": _tempo}
    if importlib.util.find_spec("stable_baselines3"):
        sides["Stable-Baselines3"] = _stable_baselines
    else:
        results.skip("Stable-Baselines3 (pip install stable-baselines3)")
    cart_pole = {name: (*case, SOLVED) for name, case in RECIPES.items()}
    for name, (recipe, steps, enough) in (CONTROL if options.control else cart_pole).items():
        if not results.selects(name):
            continue
        sides_of_case = {side: train for side, train in sides.items() if side == "tempo" or name in PEERS}
        runs: dict[str, list[dict[str, Any]]] = {side: [] for side in sides_of_case}
        for seed in range(options.turns):
            for side, train in sides_of_case.items():
                began = time.perf_counter()
                curve = train(recipe, seed, QUICK_STEPS if options.quick else steps)
                seconds = time.perf_counter() - began
                solved = _solved(curve, enough, RECENT if options.control else 1)
                runs[side].append({"seed": seed, "seconds": seconds, "steps_to_solved": solved, "curve": curve})
                say(f"{name}, seed {seed}: {side} {seconds:.1f} s, last return {curve[-1][1]:.1f}, solved at {solved} steps")
        seconds_of = {side: statistics.median(run["seconds"] for run in each) for side, each in runs.items()}
        results.add(name, recipe=recipe, steps=QUICK_STEPS if options.quick else steps, seconds=seconds_of, runs=runs)
    results.finish()


def _solved(curve: Curve, enough: float, points: int) -> int | None:
    """The steps after which the mean of the last `points` of the curve is enough; None if it never is."""
    for k in range(points, len(curve) + 1):
        if statistics.fmean(value for _, value in curve[k - points : k]) >= enough:
            return curve[k - 1][0]
    return None


def _add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--control", action="store_true", help="the cases of classic control besides CartPole")


def _tempo(recipe: str, seed: int, steps: int) -> Curve:
    """The curve of `tempo-rl train`, with an empty cache of compiled programs."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "run"
        settings = [f"seed={seed}", f"total_timesteps={steps}", "eval_episodes=0"]
        command = [sys.executable, "-m", "tempo_rl", "train", str(ROOT / recipe), *settings, "--no-cache", "--out", str(out)]
        _run(command)
        with open(out / "metrics.csv", encoding="utf-8", newline="") as file:
            rows = [(int(row["env_steps"]), row["episodic_return"]) for row in csv.DictReader(file)]
    return [(step, float(value)) for step, value in rows if value not in ("", "nan")]


def _stable_baselines(recipe: str, seed: int, steps: int) -> Curve:
    """The curve of Stable-Baselines3, in a process of its own."""
    command = [sys.executable, "-m", "benchmarks.peers.sb3_ppo", str(ROOT / recipe), "--seed", str(seed), "--steps", str(steps)]
    printed = _run(command)
    curve: Curve = [(int(step), float(value)) for step, value in json.loads(printed.splitlines()[-1])]
    return curve


def _run(command: list[str]) -> str:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])}
    ended = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if ended.returncode:
        raise SystemExit(f"{' '.join(command)}: {ended.stderr}")
    return ended.stdout


if __name__ == "__main__":
    main()
