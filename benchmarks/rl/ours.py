"""Training as Tempo's user has it, in a process of its own: `python -m benchmarks.rl.ours '{"algorithm": "ppo", ...}'`.

It is what `tempo-rl train RECIPE --no-cache` runs: with metrics and checkpoints in a run directory, here a temporary one.
"""

from __future__ import annotations

import csv
import tempfile
from pathlib import Path

from benchmarks.rl.trace import Curve, Member, from_command


def main() -> None:
    values, trace = from_command(__doc__)
    from tempo_rl.monitor import Iteration
    from tempo_rl.recipe import make_recipe
    from tempo_rl.rundir import RunDirectory
    from tempo_rl.train import train

    trace.ready("jax", "gymnasium")

    def heard(iteration: Iteration) -> None:
        trace.add(iteration.env_steps, iteration.metrics.get("episodic_return"))

    recipe = make_recipe(dict(values))
    with tempfile.TemporaryDirectory() as folder:
        run = RunDirectory(Path(folder) / "run")
        train(recipe, run, say=lambda text: None, callbacks=[heard])
        if recipe.count > 1:
            trace.members = members_of(run.path)
    trace.print()


def members_of(run: Path) -> list[Member]:
    """The members of a run with many."""
    from tempo_rl.groups import groups_of

    groups = groups_of([run])
    return [
        {"label": group.label if len(groups) > 1 else "", "seed": int(str(seed)), "curve": curve_of(path)}
        for group in groups
        for path, seed in zip(group.runs, group.seeds, strict=True)
    ]


def curve_of(metrics: Path) -> Curve:
    """The steps and returns in a file of metrics, where episodes ended."""
    with open(metrics, newline="", encoding="utf-8") as file:
        rows = [(int(row["env_steps"]), row["episodic_return"]) for row in csv.DictReader(file)]
    return [(steps, float(value)) for steps, value in rows if value not in ("", "nan")]


if __name__ == "__main__":
    main()
