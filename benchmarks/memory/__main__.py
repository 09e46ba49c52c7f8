"""Memory: what was planned, by how much the process grew, and the time of a run. Each case is a process.

- PPO over the number of environments: one iteration of `recipes/ppo_micro.yaml` (250 steps; one update on the whole batch).
- A recurrent network: the gradient through 100,000 steps, as it comes, under a limit of memory, and by hand in JAX, without checkpoints
  and with them.
- n-step TD on pictures: each step learns, n steps later. By hand in JAX: the whole rollout, and then the learning.
- REINFORCE beside n-step returns: the same program but for one index, over the time of a run.
- Decoding with attention over a window, over a window and the first tokens, and over all tokens. By hand: one cache, as long as the longest
  request.

- REINFORCE and PPO on large pictures, with a quarter and a twentieth of the rollout on the device; the rest is on the host.
- Ten gigabytes on disk: mean and variance, normalisation to disk, linear regression over epochs. By hand: NumPy.

Ours is `plan().peak_device_bytes`; by hand it is what XLA says of arguments, results and temporaries. Growth is that of resident memory in
a second run, over what stayed after the first, which compiles. Linux only: it reads /proc.

    python -m benchmarks.memory [--quick] [--only TEXT] [--out FILE]
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping, Sequence
from types import ModuleType

from benchmarks.common import Results, arguments, in_turn, say
from benchmarks.memory import caches, disk, episodes, limits, network, ppo, td

FAMILIES: dict[str, ModuleType] = {
    "ppo": ppo,
    "network": network,
    "td": td,
    "episodes": episodes,
    "caches": caches,
    "limits": limits,
    "disk": disk,
}
IN_BYTES, OVER_TIME = ("planned", "grown", "cache"), ("moments", "curve")


def main() -> None:
    options = arguments(__doc__ or "", add_options)
    if options.case:
        family, side, work = json.loads(options.case)
        module = FAMILIES[family]
        print(json.dumps(module.report(side, work) if side else least(in_turn(module.runs(work), options.turns))))
        return
    results = Results("memory", options)
    cases = [case for family in FAMILIES.values() for case in family.cases(options.quick)]
    for case in (case for case in cases if results.selects(case.name)):
        reports = case.reports(options.turns)
        for side, each in reports.items():
            cache = f", a cache of {each['cache'] / 1e6:.1f} MB" if "cache" in each else ""
            time = f", {each['ms']:.1f} ms" if "ms" in each else ""
            say(f"{case.name}: {side} planned {each['planned'] / 1e6:.1f} MB, grew by {each['grown'] / 1e6:.1f} MB{cache}{time}")
        bytes = {side: {key: each[key] for key in IN_BYTES if key in each} for side, each in reports.items()}
        times = {side: each["ms"] for side, each in reports.items() if "ms" in each}
        curves = {side: {key: each[key] for key in OVER_TIME} for side, each in reports.items() if "curve" in each}
        rest = {"ms": times, "over_time": curves}
        results.add(case.name, **case.sizes, bytes=bytes, **{key: figures for key, figures in rest.items() if figures})
    disk.clean()
    results.finish()


def least(seconds: Mapping[str, Sequence[float]]) -> dict[str, float]:
    """Milliseconds by side."""
    return {side: min(runs) * 1e3 for side, runs in seconds.items()}


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--case", default="", help=argparse.SUPPRESS)  # for the processes that are measured


if __name__ == "__main__":
    main()
