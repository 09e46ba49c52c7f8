"""Steps in the environment a second while PPO trains, after compiling, and the seconds of setting up and compiling before that.

Each run is a process from a cold start, ours and the peers' in turn, with equal sizes and hyperparameters:

- eight of Gymnasium's CartPoles, against Stable-Baselines3 and against the environments alone with random actions
- inverted_pendulum and hopper of Brax, against the PPO of `brax.training`

    python -m benchmarks.training_speed [--quick] [--turns N] [--python SB3=PATH] [--out FILE]
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec

from benchmarks.common import Results, arguments, compared, say, show
from benchmarks.rl.sides import Sides, add_python, values_of
from benchmarks.rl.trace import Trace


@dataclass(frozen=True)
class Case:
    """A recipe with settings, the iterations of a run, and the sides that train it. `quick` are sizes that show that it runs.

    `needs` is the package of the environments, without which the case is skipped.
    """

    recipe: str
    settings: tuple[str, ...]
    iterations: int
    sides: tuple[str, ...]
    quick: tuple[str, ...]
    needs: str = "gymnasium"


BRAX = ("tempo", "brax.training")
CASES = {
    "8 of Gymnasium's CartPoles": Case(
        "recipes/ppo.yaml",
        ("num_envs=8", "num_steps=128"),
        60,
        ("tempo", "Stable-Baselines3", "environments alone"),
        ("num_envs=8", "num_steps=16"),
    ),
    "Brax, inverted_pendulum": Case(
        "recipes/brax_inverted_pendulum.yaml",
        (),
        16,
        BRAX,
        ("num_envs=4", "num_steps=4", "num_minibatches=2", "hidden=[8]"),
        "brax",
    ),
    "Brax, hopper": Case(
        "recipes/brax_hopper.yaml", (), 6, BRAX, ("num_envs=4", "num_steps=4", "num_minibatches=2", "hidden=[8]"), "brax"
    ),
}
FIGURES: dict[str, Callable[[Trace], float]] = {
    "steps_per_second": Trace.steps_per_second,
    "steps_per_cpu_second": Trace.steps_per_cpu_second,
    "start_seconds": Trace.start_seconds,
}


def main() -> None:
    options = arguments(__doc__ or "", add_options)
    results = Results("training_speed", options)
    sides = Sides(results, dict(options.python))
    for name, case in CASES.items():
        if not results.selects(name) or (options.quick and name == "Brax, hopper"):  # it compiles for a minute
            continue
        if find_spec(case.needs) is None:
            results.skip(f"{name} (pip install 'tempo-dl[{case.needs}]')")
        else:
            compare(results, sides, name, case)
            results.save()
    results.finish()


def add_options(parser: argparse.ArgumentParser) -> None:
    add_python(parser)


def compare(results: Results, sides: Sides, name: str, case: Case) -> None:
    quick = results.options.quick
    plain = values_of(case.recipe, [*case.settings, *(case.quick if quick else ()), "eval_episodes=0"])
    iterations = 3 if quick else case.iterations
    plain["total_timesteps"] = iterations * plain["num_envs"] * plain["num_steps"]
    traces: dict[str, list[Trace]] = {side: [] for side in sides.available(case.sides)}
    for seed in range(results.options.turns):
        for side, each in traces.items():
            each.append(sides.run(side, {**plain, "seed": seed})[0])
            say(
                f"{name}, turn {seed}: {side} {each[-1].steps_per_second():,.0f} steps/s, starts in {each[-1].start_seconds():.1f} s"
            )
    figures = {what: compared({s: [of(t) for t in each] for s, each in traces.items()}, 1.0) for what, of in FIGURES.items()}
    sizes = {key: plain[key] for key in ("num_envs", "num_steps", "num_minibatches", "update_epochs", "hidden")}
    show(
        f"{name}: {iterations} iterations of {sizes['num_envs']} x {sizes['num_steps']} steps",
        figures["steps_per_second"],
        "steps/s",
    )
    start = {side: statistics.median(trace.start_seconds() for trace in each) for side, each in traces.items()}
    say("  seconds to set up and compile: " + ", ".join(f"{side} {seconds:.1f}" for side, seconds in start.items()))
    results.add(name, recipe=case.recipe, iterations=iterations, **sizes, **figures)


if __name__ == "__main__":
    main()
