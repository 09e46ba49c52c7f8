"""A program for tests of the cache: `python -m tests.core.cached DIRECTORY` compiles and runs it, and prints what happened as JSON."""

from __future__ import annotations

import hashlib
import json
import sys
from pathlib import Path
from typing import Any

import jax
import numpy as np

import tempo_core as tp

X = np.random.default_rng(0).normal(size=(6, 3)).astype("float32")


def mixed(config: tp.Config, length: int = 6, scale: float = 0.5) -> tp.Program[dict[str, Any]]:
    """A recurrence with a function on the host in its loop, reads of the future, random draws, a QR decomposition, other functions that JAX has, and a sink."""
    ctx = tp.Context("t")
    with ctx as ((t, T),):
        x = tp.input("x", (3,), domain=(t,))
        basis = tp.nn.orthogonal()((3, 3))
        h = tp.recurrence((3,), domain=(t,), name="h")
        h[0] = tp.zeros((3,)) + scale
        (shown,) = tp.udf(lambda a: (a * 2,), h @ basis, outputs=[tp.spec((3,))], kind="host", name="shown")
        waves = tp.fft.irfft(tp.fft.rfft(tp.linalg.solve(basis + 2.0 * tp.eye(3), x)), 3)
        h[t + 1] = tp.tanh(shown + waves + tp.random.normal((3,), domain=(t,)) * 0.1)
        ahead = h[t : tp.min(t + 3, T)].sum(0)
        tp.sink(lambda a, t: None, ahead)
        return ctx.compile({T: length}, {"h": h, "ahead": ahead}, config)


def small(config: tp.Config, length: int = 6, scale: float = 0.5) -> tp.Program[dict[str, Any]]:
    """A recurrence with a function on the host in its loop."""
    ctx = tp.Context("t")
    with ctx as ((t, T),):
        x = tp.input("x", (3,), domain=(t,))
        h = tp.recurrence((3,), domain=(t,), name="h")
        h[0] = tp.zeros((3,)) + scale
        (shown,) = tp.udf(lambda a: (a * 2,), h, outputs=[tp.spec((3,))], kind="host", name="shown")
        h[t + 1] = shown * 0.25 + x + tp.random.normal((3,), domain=(t,)) * 0.1
        return ctx.compile({T: length}, {"h": h}, config)


def report(directory: str) -> dict[str, Any]:
    """What a process compiled, and a checksum of its results."""
    backend_compiles: list[str] = []

    def hear(event: str, seconds: float, **_: Any) -> None:
        if event.endswith("backend_compile_duration"):
            backend_compiles.append(event)

    jax.monitoring.register_event_duration_secs_listener(hear)
    program = mixed(tp.Config(cache=directory, seed=3))
    results = program.run({"x": X})
    return {
        "results": hashlib.sha256(b"".join(results[name].tobytes() for name in sorted(results))).hexdigest(),
        "compiles": program.compiles,
        "loads": program.loads,
        "message": program.message,
        "jax": len(backend_compiles),
    }


def beside_jax_cache(directory: str) -> dict[str, list[int]]:
    """The XLA programs that were compiled, loaded and kept in four starts, while JAX's own cache is on.

    The second and third start have another directory, and get their programs from JAX. The fourth has that of the first.
    """
    jax.config.update("jax_compilation_cache_dir", f"{directory}/jax")
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)
    jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)
    counts: dict[str, list[int]] = {}
    for start, name in (("first", "one"), ("second", "two"), ("third", "two"), ("fourth", "one")):
        program = small(tp.Config(cache=f"{directory}/{name}"))
        program.run({"x": X})
        counts[start] = [program.compiles, program.loads, len(list(Path(directory, name).glob("xla-*")))]
    return counts


if __name__ == "__main__":
    print(json.dumps(beside_jax_cache(sys.argv[2]) if sys.argv[1] == "jax" else report(sys.argv[1])))
