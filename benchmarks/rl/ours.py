"""Training as Tempo's user has it, in a process of its own: `python -m benchmarks.rl.ours '{"algorithm": "ppo", ...}'`.

It is what `tempo-rl train RECIPE --no-cache` runs: with metrics and checkpoints in a run directory, here a temporary one.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

from benchmarks.rl.trace import from_command


def main() -> None:
    values, trace = from_command(__doc__)
    from tempo_rl.monitor import Iteration
    from tempo_rl.recipe import make_recipe
    from tempo_rl.rundir import RunDirectory
    from tempo_rl.train import train

    trace.ready("jax", "gymnasium")

    def heard(iteration: Iteration) -> None:
        trace.add(iteration.env_steps, iteration.metrics.get("episodic_return"))

    with tempfile.TemporaryDirectory() as folder:
        train(make_recipe(dict(values)), RunDirectory(Path(folder) / "run"), say=lambda text: None, callbacks=[heard])
    trace.print()


if __name__ == "__main__":
    main()
