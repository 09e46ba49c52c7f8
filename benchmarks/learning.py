"""Learning curves: the return over the steps in the environment, and the seconds that it took, each run a process from a cold start.

Ours is what `tempo-rl train RECIPE --no-cache` runs. The cases are those of CartPole, or, with --control, those of Gymnasium's other
classic control. With --beside, they are those that a peer runs too, with equal hyperparameters: Stable-Baselines3 on Gymnasium's
environments, and PPO by hand in JAX in the configuration of PureJaxRL. Seeds run in turn, ours and the peer's, so that other load on the
machine affects both alike.

    python -m benchmarks.learning [--turns SEEDS] [--quick] [--control | --beside] [--python SB3=PATH] [--out FILE]
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from benchmarks.common import Results, arguments, say
from benchmarks.rl.sides import Sides, add_python, values_of
from benchmarks.rl.trace import Trace, thinned

SOLVED = 475.0  # the mean return at which Gymnasium calls CartPole-v1 solved
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
QUICK_STEPS = 8192  # at most
RECENT = 5  # points of a curve in CONTROL, where one episode may end well by chance


@dataclass(frozen=True)
class Case:
    """A recipe with its steps in the environment, and the mean return that counts as solved. Each side has settings of its own."""

    recipe: str
    steps: int
    enough: float = SOLVED
    points: int = 1  # of the curve, whose mean counts
    settings: tuple[str, ...] = ()
    sides: Mapping[str, tuple[str, ...]] = field(default_factory=lambda: {"tempo": ()})


IN_JAX = "tempo, environment in JAX"
PUREJAXRL = (  # the configuration for CartPole-v1 in purejaxrl/ppo.py; networks and initial values are those of our recipes too
    "learning_rate=2.5e-4", "num_envs=4", "num_steps=128", "update_epochs=4", "num_minibatches=4", "gamma=0.99", "gae_lambda=0.95",
    "clip_coef=0.2", "clip_vloss=true", "ent_coef=0.01", "vf_coef=0.5", "max_grad_norm=0.5", "anneal_lr=true", "hidden=[64, 64]",
    "activation=tanh", "norm_adv=true",
)  # fmt: skip
BESIDE = {
    "CartPole as in PureJaxRL, PPO": Case(
        "recipes/ppo_functional.yaml", 500_000, settings=PUREJAXRL, sides={"tempo": (), "JAX by hand": ()}
    ),
    "CartPole, PPO": Case(
        "recipes/ppo.yaml", 400_000, sides={"tempo": (), "Stable-Baselines3": (), IN_JAX: ("env.id=phys2d/CartPole-v1",)}
    ),
    "Acrobot, PPO": Case(
        "recipes/acrobot.yaml",
        200_000,
        -100.0,
        sides={"tempo": ("env.id=Acrobot-v1",), "Stable-Baselines3": ("env.id=Acrobot-v1",), IN_JAX: ()},
    ),
    "Pendulum, SAC": Case(  # Stable-Baselines3 has one learning rate for all
        "recipes/sac.yaml",
        8_000,
        -200.0,
        ("policy_lr=1e-3", "q_lr=1e-3"),
        {"tempo": ("env.id=Pendulum-v1",), "Stable-Baselines3": ("env.id=Pendulum-v1",), IN_JAX: ()},
    ),
}


def chosen(options: argparse.Namespace) -> dict[str, Case]:
    """The cases of the options."""
    if options.beside:
        return BESIDE
    if options.control:
        return {name: Case(*case, points=RECENT) for name, case in CONTROL.items()}
    return {name: Case(*case) for name, case in RECIPES.items()}


def main() -> None:
    options = arguments(__doc__ or "", add_options)
    results = Results("learning", options)
    if options.add:
        results.keep()
    sides = Sides(results, dict(options.python))
    for name, case in chosen(options).items():
        if results.selects(name):
            learn(results, sides, name, case)
    results.finish()


def add_options(parser: argparse.ArgumentParser) -> None:
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--control", action="store_true", help="the cases of classic control besides CartPole")
    which.add_argument("--beside", action="store_true", help="the cases that peers run too")
    parser.add_argument("--add", action="store_true", help="keep the cases of the file that this run does not take")
    add_python(parser)


def learn(results: Results, sides: Sides, name: str, case: Case) -> None:
    """Run a case with each seed and side."""
    runs: dict[str, list[dict[str, Any]]] = {side: [] for side in sides.available(case.sides)}
    steps = min(QUICK_STEPS, case.steps) if results.options.quick else case.steps
    for seed in range(results.options.turns):
        for side, each in runs.items():
            settings = [*case.settings, *case.sides[side], f"seed={seed}", f"total_timesteps={steps}", "eval_episodes=0"]
            trace, seconds = sides.run(side, values_of(case.recipe, settings))
            each.append({"seed": seed, **of_run(trace, seconds, case)})
            ended, solved = each[-1]["curve"][-1][1], each[-1]["steps_to_solved"]
            say(f"{name}, seed {seed}: {side} {seconds:.1f} s, last return {ended:.1f}, solved at {solved} steps")
        seconds_of = {side: statistics.median(run["seconds"] for run in each) for side, each in runs.items()}
        figures = {"recipe": case.recipe, "settings": list(case.settings), "steps": steps, "enough": case.enough}
        results.replace(name, **figures, seconds=seconds_of, runs=runs)
        results.save()  # a case of many minutes that is interrupted has the seeds that are done


def of_run(trace: Trace, seconds: float, case: Case) -> dict[str, Any]:
    """What is recorded of a run that lived so many seconds."""
    steps_to_solved, seconds_to_solved = trace.solved(case.enough, case.points) or (None, None)
    return {
        "seconds": seconds,
        "cpu_seconds": trace.cpu_seconds[-1],
        "first_report_seconds": trace.seconds[0],
        "steps_to_solved": steps_to_solved,
        "seconds_to_solved": seconds_to_solved,
        "curve": thinned(trace.curve),
    }


if __name__ == "__main__":
    main()
