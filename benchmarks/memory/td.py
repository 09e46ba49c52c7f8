"""n-step TD on pictures: each step learns the value of its picture, n steps later. So a picture is needed for n steps."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import jax
import numpy as np

import tempo_core as tp
from benchmarks.common import Run
from benchmarks.memory.process import Case, Report, measured, of_xla
from benchmarks.memory.ring import PIXELS, PLACES, SHAPE, move, picture, policy

SIDES = ("tempo", "JAX by hand", "JAX with a window")
LENGTHS, QUICK = (250, 500, 1000, 2000, 4000), (100,)
ENVIRONMENTS, HIDDEN, N = 16, 16, 5
GAMMA, RATE = 0.9, 1e-4


def cases(quick: bool) -> list[Case]:
    return [
        Case(f"n-step TD on pictures, {T} steps", "td", str(T), SIDES, {"steps": T, "rows": ENVIRONMENTS, "n": N}, in_turn=True)
        for T in (QUICK if quick else LENGTHS)
    ]


def report(side: str, work: str) -> Report:
    """`work` is the number of steps. "result" is the norm of the difference between the first and the last weights."""
    planned, run, first = _side(side, int(work))
    results: list[float] = []
    return {**measured(planned, lambda: results.append(float(np.linalg.norm(run()[0] - first)))), "result": results[-1]}


def runs(work: str) -> dict[str, Run]:
    """By side: what its time is measured of."""
    return {side: _side(side, int(work))[1] for side in SIDES}


def _side(side: str, steps: int) -> tuple[Callable[[], int], Callable[[], Any], Any]:
    """The bytes planned, a run, and the weights with which it starts."""
    random = np.random.default_rng(0)
    w = (random.normal(size=(HIDDEN, PIXELS)) / math.sqrt(PIXELS)).astype(np.float32)
    v = (random.normal(size=HIDDEN) / math.sqrt(HIDDEN)).astype(np.float32)
    start = np.arange(0, PLACES, PLACES // ENVIRONMENTS, dtype=np.int32)
    if side == "tempo":
        program = _program(steps)
        return lambda: program.plan().peak_device_bytes, lambda: program.run({"w": w, "v": v, "start": start}), w
    from benchmarks.peers.jax_td import make_learning

    learn = make_learning(steps, N, GAMMA, RATE, with_window=side == "JAX with a window")
    compiled = learn.lower(w, v, start).compile()
    return lambda: of_xla(compiled), lambda: jax.device_get(compiled(w, v, start)), w


def _step(place: Any) -> tuple[Any, ...]:
    return picture(place), *move(place, policy(place))


def _program(steps: int) -> tp.Program[Any]:
    ctx = tp.Context("t")
    with ctx as ((t, T),):
        place = tp.recurrence((ENVIRONMENTS,), "int32", domain=(t,), name="place")
        seen = [tp.spec((ENVIRONMENTS, *SHAPE), "uint8"), tp.spec((ENVIRONMENTS,), "int32"), tp.spec((ENVIRONMENTS,))]
        obs, following, reward = tp.udf(_step, place, outputs=seen, name="environment")
        place[0], place[t + 1] = tp.input("start", (ENVIRONMENTS,), "int32"), following

        w, v = tp.recurrence((HIDDEN, PIXELS), domain=(t,), name="w"), tp.recurrence((HIDDEN,), domain=(t,), name="v")
        w[0], v[0] = tp.input("w", (HIDDEN, PIXELS)), tp.input("v", (HIDDEN,))

        def value(pictures: tp.Tensor) -> tp.Tensor:
            return tp.tanh(tp.einsum("bp,hp->bh", pictures.reshape(ENVIRONMENTS, PIXELS).astype("float32"), w) / 255) @ v

        returns = reward[t : tp.min(t + N, T)].discounted_sum(GAMMA)
        target = returns + tp.where(t + N < T, GAMMA**N, 0.0) * value(obs[tp.min(t + N, T - 1)])
        (0.5 * ((target.detach() - value(obs)) ** 2).mean()).backward()
        w[t + 1], v[t + 1] = w - RATE * w.grad, v - RATE * v.grad
    return ctx.compile({T: steps}, [w[T - 1], v[T - 1]])
