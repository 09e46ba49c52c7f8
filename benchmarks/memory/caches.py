"""Decoding with a layer of attention over the length of the text: the cache that each pattern keeps. By hand, one cache fits all requests.

One program serves requests of up to `LONGEST` tokens, on both sides. A request of fewer tokens is a run of it.
"""

from __future__ import annotations

import math
from typing import Any

import jax
import numpy as np

import tempo_core as tp
from benchmarks.memory.process import Case, Report, measured, of_xla

SIDES = ("tempo", "JAX by hand")
LENGTHS, QUICK = (250, 500, 1000, 2000, 4000), (40,)
LONGEST, QUICK_LONGEST = max(LENGTHS), 64
ROWS, WIDTH, HEADS = 4, 256, 4
REACH, SINKS = 256, 4  # positions that windows keep, and how many of them are the first ones
PATTERNS = {
    "window attention": tp.nn.window(REACH),
    "attention with sinks": tp.nn.sinks(SINKS, REACH - SINKS),
    "causal attention": tp.nn.causal,
}


def cases(quick: bool) -> list[Case]:
    lengths, longest = (QUICK, QUICK_LONGEST) if quick else (LENGTHS, LONGEST)
    sizes = {"longest": longest, "rows": ROWS, "width": WIDTH, "reach": REACH}
    return [
        Case(f"{pattern}, {T} tokens", "caches", f"{pattern}/{longest}/{T}", SIDES, {"tokens": T} | sizes)
        for pattern in PATTERNS
        for T in lengths
    ]


def report(side: str, work: str) -> Report:
    """`work` is the pattern, the tokens of the longest request, and those of this one. "cache" is the bytes of keys and values."""
    pattern, longest, tokens = work.split("/")[0], *map(int, work.split("/")[1:])
    random = np.random.default_rng(0)
    names = [f"layer.{name}.weight" for name in ("query", "key", "value", "output")]
    weights = {name: (random.normal(size=(WIDTH, WIDTH)) / math.sqrt(WIDTH)).astype(np.float32) for name in names}
    first = random.normal(size=(ROWS, WIDTH)).astype(np.float32)
    if side == "tempo":
        program, T = _program(pattern, longest)
        plan = program.plan()
        cache = sum(tensor.bytes for tensor in plan.tensors if tensor.name.startswith(("layer.keys", "layer.values")))
        inputs = weights | {"first": first}
        planned, run = lambda: plan.peak_device_bytes, lambda: program.run(inputs, bounds={T: tokens})
    else:
        from benchmarks.peers.jax_attention import cache_bytes, make_decoder

        reach, sinks = {"causal attention": (longest, 0), "window attention": (REACH, 0)}.get(pattern, (REACH - SINKS, SINKS))
        cache = cache_bytes(ROWS, WIDTH, longest)
        compiled = make_decoder(longest, HEADS, reach, sinks).lower(list(weights.values()), first, tokens).compile()
        planned, run = lambda: of_xla(compiled), lambda: jax.device_get(compiled(list(weights.values()), first, tokens))
    results: list[float] = []
    return {**measured(planned, lambda: results.append(float(np.linalg.norm(run())))), "cache": cache, "result": results[-1]}


def _program(pattern: str, longest: int) -> tuple[tp.Program[Any], Any]:
    ctx = tp.Context("t")
    with ctx as ((t, T),):
        layer = tp.nn.MultiHeadAttention(WIDTH, HEADS, pattern=PATTERNS[pattern], fed=True, name="layer")
        x = tp.recurrence((ROWS, WIDTH), domain=(t,), name="x")
        x[0] = tp.input("first", (ROWS, WIDTH))
        x[t + 1] = tp.tanh(x + layer(x, over=t))
    return ctx.compile({T: tp.upto(longest)}, x[T - 1]), T
