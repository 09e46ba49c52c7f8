"""The memory of training over the number of environments: what was planned, and by how much the process grew. Each case is a process.

The program is one iteration of `recipes/ppo_micro.yaml` (250 steps; one update on the whole batch). Ours is `plan().peak_device_bytes`; the
same by hand in JAX is what XLA says of arguments, results and temporaries. Growth is that of resident memory in a second run, over what
stayed after the first, which compiles. Linux only: it reads /proc.

    python -m benchmarks.memory [--quick] [--out FILE]
"""

from __future__ import annotations

import argparse
import ctypes
import gc
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.common import Results, arguments, say

ROOT = Path(__file__).resolve().parents[1]
SIDES = ("tempo", "JAX by hand")
ENVIRONMENTS = (256, 512, 1024, 2048, 4096, 8192)
QUICK = (64,)
STEPS = 250
# Freed memory goes back to the system at once, so that what is resident is what is in use.
ALLOCATOR = {"MALLOC_TRIM_THRESHOLD_": "0", "MALLOC_MMAP_THRESHOLD_": "65536"}


def main() -> None:
    options = arguments(__doc__ or "", add_options)
    if options.case:
        side, _, envs = options.case.partition("/")
        print(json.dumps(measured(side, int(envs))))
        return
    results = Results("memory", options)
    for envs in QUICK if options.quick else ENVIRONMENTS:
        name = f"PPO micro, {envs} environments"
        if not results.selects(name):
            continue
        figures = {side: _in_a_process(f"{side}/{envs}") for side in SIDES}
        for side, each in figures.items():
            say(f"{name}: {side} planned {each['planned'] / 1e6:.1f} MB, grew by {each['grown'] / 1e6:.1f} MB")
        results.add(name, envs=envs, steps=STEPS, bytes=figures)
    results.finish()


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--case", default="", help=argparse.SUPPRESS)  # for the processes that are measured


def measured(side: str, envs: int) -> dict[str, int]:
    """Bytes planned, and bytes by which the process grows in a run."""
    from benchmarks.ppo import recipe_of

    recipe = recipe_of("ppo_micro", envs, STEPS, 1, ())
    planned, run = (_tempo if side == "tempo" else _by_hand)(recipe)
    run()
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    Path("/proc/self/clear_refs").write_text("5")  # the greatest resident size starts again from the present one
    before = _status("VmRSS")
    run()
    return {"planned": planned(), "grown": _status("VmHWM") - before}


def _tempo(recipe: Any) -> tuple[Callable[[], int], Callable[[], object]]:
    from benchmarks.ppo import build_ours

    _, program, _, _ = build_ours(recipe)
    return lambda: program.plan().peak_device_bytes, lambda: program.run({})


def _by_hand(recipe: Any) -> tuple[Callable[[], int], Callable[[], object]]:
    import jax

    from benchmarks.peers.jax_micro import make_training
    from tempo_rl.env.functional_env import make_single

    single = make_single(recipe.env.id, recipe.num_steps, **recipe.env.kwargs)
    compiled = make_training(recipe, single, 1).lower(np.uint32(0)).compile()
    sizes = compiled.memory_analysis()
    planned = sizes.argument_size_in_bytes + sizes.output_size_in_bytes + sizes.temp_size_in_bytes
    return lambda: planned, lambda: jax.block_until_ready(compiled(np.uint32(recipe.seed)))


def _status(name: str) -> int:
    """A figure of /proc/self/status, in bytes."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(f"{name}:")) * 1024


def _in_a_process(case: str) -> dict[str, int]:
    path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    command = [sys.executable, "-m", "benchmarks.memory", "--case", case]
    ended = subprocess.run(
        command, env={**os.environ, **ALLOCATOR, "PYTHONPATH": path}, capture_output=True, text=True, check=False
    )
    if ended.returncode:
        raise SystemExit(f"{case}: {ended.stderr}")
    report: dict[str, int] = json.loads(ended.stdout.splitlines()[-1])
    return report


if __name__ == "__main__":
    main()
