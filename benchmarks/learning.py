"""Learning curves: the return over the steps in the environment, and the seconds that it took, each run a process from a cold start.

Ours is what `tempo-rl train RECIPE --no-cache` runs. The cases are those of CartPole, or, with --control, those of Gymnasium's other
classic control; with --budget, those of continuous control in a stated number of steps; with --members, runs with many seeds and values
in one program. With --beside, they are those that a peer runs too, with equal hyperparameters: Stable-Baselines3 on Gymnasium's
environments, and PPO by hand in JAX in the configuration of PureJaxRL. Seeds run in turn, ours and the peer's, so that other load on the
machine affects both alike.

    python -m benchmarks.learning [--turns SEEDS] [--quick] [--control | --budget | --members | --beside] [--python SB3=PATH] [--out FILE]
"""

from __future__ import annotations

import argparse
import math
import statistics
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from benchmarks.common import Results, arguments, say
from benchmarks.rl.sides import Sides, add_python, values_of
from benchmarks.rl.trace import Curve, Trace, thinned

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
BUDGET = {  # the return is one that a policy on the way reaches, not that of the best
    "HalfCheetah, SAC": ("recipes/half_cheetah.yaml", 100_096, 3000.0),
    "Hopper in Brax, PPO": ("recipes/brax_hopper.yaml", 4_194_304, 1000.0),
    "Ant in Brax, PPO": ("recipes/brax_ant.yaml", 4_194_304, 1000.0),
}
MEMBERS = {
    "CartPole in JAX, PPO, 16 seeds": ("recipes/ppo_seeds.yaml", 400_000),
    "CartPole in JAX, PPO, four learning rates": ("recipes/ppo_sweep.yaml", 400_000),
}
QUICK_STEPS = 16_384  # at most; 32 environments come to the end of their episodes of 500 steps
MEMBER_POINTS = 50  # of the curve of one of many members
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
    if options.control or options.budget:
        return {name: Case(*case, points=RECENT) for name, case in (CONTROL if options.control else BUDGET).items()}
    if options.members:
        return {name: Case(*case) for name, case in MEMBERS.items()}
    return {name: Case(*case) for name, case in RECIPES.items()}


def main() -> None:
    options = arguments(__doc__ or "", add_options)
    results = Results("learning", options)
    sides = Sides(results, dict(options.python))
    for name, case in chosen(options).items():
        if results.selects(name):
            learn(results, sides, name, case)
    results.finish()


def add_options(parser: argparse.ArgumentParser) -> None:
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--control", action="store_true", help="the cases of classic control besides CartPole")
    which.add_argument(
        "--budget", action="store_true", help="continuous control in MuJoCo and Brax, for a stated number of steps"
    )
    which.add_argument("--members", action="store_true", help="many seeds, and a sweep, in one run each")
    which.add_argument("--beside", action="store_true", help="the cases that peers run too")
    add_python(parser)


def learn(results: Results, sides: Sides, name: str, case: Case) -> None:
    """Run a case with each seed and side."""
    runs: dict[str, list[dict[str, Any]]] = {}
    steps = min(QUICK_STEPS, case.steps) if results.options.quick else case.steps
    sides_here = sides.available(case.sides)
    for seed in range(results.options.turns):
        for side in sides_here:
            settings = [*case.settings, *case.sides[side], f"seed={seed}", f"total_timesteps={steps}", "eval_episodes=0"]
            trace, seconds = sides.run(side, values_of(case.recipe, settings))
            whole = {"seed": seed, **of_run(trace, seconds, case)}
            ended = f"last return {whole['curve'][-1][1]:.1f}" if whole["curve"] else "no episode ended"
            say(f"{name}, seed {seed}: {side} {seconds:.1f} s, {ended}, solved at {whole['steps_to_solved']} steps")
            for member in trace.members:
                of_member = {**whole, **of_curve(member["curve"], case), "seed": member["seed"]}
                runs.setdefault(member["label"] or side, []).append(of_member)
            if not trace.members:
                runs.setdefault(side, []).append(whole)
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


def of_curve(curve: Curve, case: Case) -> dict[str, Any]:
    """The same of one member of a run, whose clock counts for all of them."""
    trace = Trace(0.0, 0.0, [steps for steps, _ in curve], [value for _, value in curve], [math.nan] * len(curve))
    steps_to_solved, _ = trace.solved(case.enough, case.points) or (None, None)
    return {"steps_to_solved": steps_to_solved, "seconds_to_solved": None, "curve": thinned(curve, MEMBER_POINTS)}


if __name__ == "__main__":
    main()
