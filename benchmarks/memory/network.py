"""The gradient of a recurrent network through many steps: with all at once that can be, under a limit, and by hand without and with checkpoints."""

from __future__ import annotations

import math
from typing import Any

import jax
import numpy as np

import tempo_core as tp
from benchmarks.memory.process import Case, Report, measured, milliseconds, of_xla

SIDES = ("tempo", "tempo with a limit", "JAX by hand", "JAX with checkpoints")
STEPS, QUICK_STEPS, ROWS, WIDTH = 100_000, 400, 8, 64
SHARE, QUICK_SHARE = 0.01, 0.1  # of what the program takes with all at once: the limit


def cases(quick: bool) -> list[Case]:
    steps = QUICK_STEPS if quick else STEPS
    sizes = {"steps": steps, "rows": ROWS, "width": WIDTH}
    return [Case(f"gradient of a recurrent network, {steps} steps", "network", str(steps), SIDES, sizes)]


def report(side: str, work: str) -> Report:
    """`work` is the number of steps."""
    steps, random = int(work), np.random.default_rng(0)
    x = random.normal(size=(steps, ROWS)).astype(np.float32)
    w = (random.normal(size=(WIDTH, WIDTH)) / math.sqrt(WIDTH)).astype(np.float32)
    v = random.normal(size=WIDTH).astype(np.float32)
    inputs = {"x": x, "w": w, "v": v}
    if side.startswith("tempo"):
        program = _program(steps, None)
        if side == "tempo with a limit":
            share = SHARE if steps == STEPS else QUICK_SHARE
            program = _program(steps, int(share * program.plan().peak_device_bytes))
        planned, run = lambda: program.plan().peak_device_bytes, lambda: program.run(inputs)
    else:
        from benchmarks.peers.jax_rnn import make_gradient

        compiled = make_gradient(side == "JAX with checkpoints").lower(x, w, v).compile()
        planned, run = lambda: of_xla(compiled), lambda: jax.device_get(compiled(x, w, v))
    return {**measured(planned, run), "ms": milliseconds(run)}


def _program(steps: int, limit: int | None) -> tp.Program[Any]:
    ctx = tp.Context("t")
    with ctx as ((t, T),):
        x, w, v = tp.input("x", (ROWS,), domain=(t,)), tp.input("w", (WIDTH, WIDTH)), tp.input("v", (WIDTH,))
        h = tp.recurrence((ROWS, WIDTH), domain=(t,), name="h")
        h[0] = tp.zeros((ROWS, WIDTH))
        h[t + 1] = tp.tanh(h @ w + x.reshape(ROWS, 1) * v)
        loss = (h[T - 1] ** 2).sum()
        gradients = tp.grad(loss, [w, v])
    return ctx.compile({T: steps}, [loss, *gradients], tp.Config(memory_limit=limit, disable=("loop",)))
