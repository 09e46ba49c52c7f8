"""Memory: what was planned, by how much the process grew, and the time of a run. Each case is a process.

PPO over the number of environments: one iteration of `recipes/ppo_micro.yaml` (250 steps; one update on the whole batch). A recurrent
network: the gradient through 100,000 steps, as it comes, under a limit of memory, and by hand in JAX, without checkpoints and with them.
Ours is `plan().peak_device_bytes`; by hand it is what XLA says of arguments, results and temporaries. Growth is that of resident memory in
a second run, over what stayed after the first, which compiles. Linux only: it reads /proc.

    python -m benchmarks.memory [--quick] [--out FILE]
"""

from __future__ import annotations

import argparse
import ctypes
import gc
import json
import math
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import numpy as np

import tempo_core as tp
from benchmarks.common import Results, arguments, say

ROOT = Path(__file__).resolve().parents[1]
SIDES = ("tempo", "JAX by hand")
NETWORKS = ("tempo", "tempo with a limit", "JAX by hand", "JAX with checkpoints")
STEPS_OF_A_NETWORK, QUICK_STEPS, ROWS, WIDTH = 100_000, 400, 8, 64
SHARE, QUICK_SHARE = 0.01, 0.1  # of what the program takes as it comes: the limit
ENVIRONMENTS = (256, 512, 1024, 2048, 4096, 8192)
QUICK = (64,)
STEPS = 250
# Freed memory goes back to the system at once, so that what is resident is what is in use.
ALLOCATOR = {"MALLOC_TRIM_THRESHOLD_": "0", "MALLOC_MMAP_THRESHOLD_": "65536"}


def main() -> None:
    options = arguments(__doc__ or "", add_options)
    if options.case:
        kind, side, size = options.case.split("/")
        print(json.dumps((ppo if kind == "ppo" else network)(side, int(size))))
        return
    results = Results("memory", options)
    steps = QUICK_STEPS if options.quick else STEPS_OF_A_NETWORK
    cases = [(f"PPO micro, {n} environments", "ppo", SIDES, n) for n in (QUICK if options.quick else ENVIRONMENTS)]
    cases.append((f"gradient of a recurrent network, {steps} steps", "network", NETWORKS, steps))
    for name, kind, sides, size in cases:
        if not results.selects(name):
            continue
        figures = {side: _in_a_process(f"{kind}/{side}/{size}") for side in sides}
        for side, each in figures.items():
            time = f", {each['ms']:.1f} ms" if "ms" in each else ""
            say(f"{name}: {side} planned {each['planned'] / 1e6:.1f} MB, grew by {each['grown'] / 1e6:.1f} MB{time}")
        sizes = {"envs": size, "steps": STEPS} if kind == "ppo" else {"steps": size, "rows": ROWS, "width": WIDTH}
        bytes = {side: {key: each[key] for key in ("planned", "grown")} for side, each in figures.items()}
        times = {side: each["ms"] for side, each in figures.items() if "ms" in each}
        results.add(name, **sizes, bytes=bytes, **({"ms": times} if times else {}))
    results.finish()


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--case", default="", help=argparse.SUPPRESS)  # for the processes that are measured


def ppo(side: str, envs: int) -> dict[str, float]:
    """Bytes planned, and bytes by which the process grows in a run, of an iteration of PPO."""
    from benchmarks.ppo import recipe_of

    recipe = recipe_of("ppo_micro", envs, STEPS, 1, ())
    planned, run = (_tempo if side == "tempo" else _by_hand)(recipe)
    return _measured(planned, run)


def network(side: str, steps: int) -> dict[str, float]:
    """The same of a network's gradient, with the milliseconds of a run (the least of three)."""
    random = np.random.default_rng(0)
    x = random.normal(size=(steps, ROWS)).astype(np.float32)
    w = (random.normal(size=(WIDTH, WIDTH)) / math.sqrt(WIDTH)).astype(np.float32)
    v = random.normal(size=WIDTH).astype(np.float32)
    inputs = {"x": x, "w": w, "v": v}
    if side.startswith("tempo"):
        program = _network(steps, None)
        if side == "tempo with a limit":
            share = SHARE if steps == STEPS_OF_A_NETWORK else QUICK_SHARE
            program = _network(steps, int(share * program.plan().peak_device_bytes))
        planned, run = lambda: program.plan().peak_device_bytes, lambda: program.run(inputs)
    else:
        from benchmarks.peers.jax_rnn import make_gradient

        compiled = make_gradient(side == "JAX with checkpoints").lower(x, w, v).compile()
        planned, run = lambda: _of_xla(compiled), lambda: jax.device_get(compiled(x, w, v))
    figures = _measured(planned, run)
    times = []
    for _ in range(3):
        start = time.perf_counter()
        run()
        times.append(time.perf_counter() - start)
    return {**figures, "ms": min(times) * 1e3}


def _network(steps: int, limit: int | None) -> tp.Program[Any]:
    ctx = tp.Context("t")
    with ctx as ((t, T),):
        x, w, v = tp.input("x", (ROWS,), domain=(t,)), tp.input("w", (WIDTH, WIDTH)), tp.input("v", (WIDTH,))
        h = tp.recurrence((ROWS, WIDTH), domain=(t,), name="h")
        h[0] = tp.zeros((ROWS, WIDTH))
        h[t + 1] = tp.tanh(h @ w + x.reshape(ROWS, 1) * v)
        loss = (h[T - 1] ** 2).sum()
        gradients = tp.grad(loss, [w, v])
    return ctx.compile({T: steps}, [loss, *gradients], tp.Config(memory_limit=limit))


def _measured(planned: Callable[[], int], run: Callable[[], object]) -> dict[str, float]:
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
    from benchmarks.peers.jax_micro import make_training
    from tempo_rl.env.functional_env import make_single

    single = make_single(recipe.env.id, recipe.num_steps, **recipe.env.kwargs)
    compiled = make_training(recipe, single, 1).lower(np.uint32(0)).compile()
    return lambda: _of_xla(compiled), lambda: jax.block_until_ready(compiled(np.uint32(recipe.seed)))


def _of_xla(compiled: Any) -> int:
    sizes = compiled.memory_analysis()
    return int(sizes.argument_size_in_bytes + sizes.output_size_in_bytes + sizes.temp_size_in_bytes)


def _status(name: str) -> int:
    """A figure of /proc/self/status, in bytes."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(f"{name}:")) * 1024


def _in_a_process(case: str) -> dict[str, float]:
    path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    command = [sys.executable, "-m", "benchmarks.memory", "--case", case]
    ended = subprocess.run(
        command, env={**os.environ, **ALLOCATOR, "PYTHONPATH": path}, capture_output=True, text=True, check=False
    )
    if ended.returncode:
        raise SystemExit(f"{case}: {ended.stderr}")
    report: dict[str, float] = json.loads(ended.stdout.splitlines()[-1])
    return report


if __name__ == "__main__":
    main()
