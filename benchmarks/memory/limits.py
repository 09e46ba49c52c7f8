"""REINFORCE and PPO on large pictures, whose rollout does not fit on the device: a limit moves it to the memory of the host.

Beside them, the same program without a limit. The limit is for the device's arrays alone (`swap="host"`), so that it can be measured on a
CPU too, where host and device share a memory; "grown" counts both.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

import tempo_core as tp
from benchmarks.common import Run
from benchmarks.memory.process import Case, Report, measured
from benchmarks.memory.ring import PLACES, move, picture

SHAPE = (3, 128, 128)
PIXELS = 3 * 128 * 128
SIDES = {"tempo": 0, "a quarter on the device": 4, "a twentieth on the device": 20}
ALGORITHMS = ("REINFORCE", "PPO")
LENGTH, QUICK, ROWS, HIDDEN, ITERATIONS = 1000, 150, 8, 4, 2
GAMMA, LAMBDA, CLIP, RATE = 0.95, 0.9, 0.2, 1e-3


def cases(quick: bool) -> list[Case]:
    steps = QUICK if quick else LENGTH
    sides = tuple(SIDES)[:2] if quick else tuple(SIDES)
    sizes = {"steps": steps, "rows": ROWS, "iterations": ITERATIONS, "rollout_bytes": steps * ROWS * PIXELS}
    return [
        Case(f"{name} on pictures of 3x128x128, {steps} steps", "limits", f"{name} {steps}", sides, sizes, in_turn=True)
        for name in ALGORITHMS
    ]


def report(side: str, work: str) -> Report:
    """`work` is the algorithm and the number of steps; "result" the norm of the last weights."""
    program = _program(side, work)
    results: list[float] = []
    run = lambda: results.append(sum(float(np.linalg.norm(each)) for each in program.run({})))  # noqa: E731
    return {**measured(lambda: program.plan().peak_device_bytes, run), "result": results[-1]}


def runs(work: str) -> dict[str, Run]:
    """By side: what its time is measured of."""
    sides = [side for side in SIDES if side != "a twentieth on the device" or not work.endswith(f" {QUICK}")]
    return {side: functools.partial(_program(side, work).run, {}) for side in sides}


def _program(side: str, work: str) -> tp.Program[Any]:
    algorithm, steps = work.split()[0], int(work.split()[1])
    ctx = tp.Context("i", "t")
    with ctx as ((i, I), (t, T)):
        hidden = tp.nn.Linear(PIXELS, HIDDEN, domain=(i,))
        policy, critic = tp.nn.Linear(HIDDEN, 2, domain=(i,)), tp.nn.Linear(HIDDEN, 1, domain=(i,))
        place = tp.recurrence((ROWS,), "int32", domain=(i, t), name="place")
        (obs,) = tp.udf(_picture, place, outputs=[tp.spec((ROWS, *SHAPE), "uint8")], name="picture")
        features = tp.tanh(hidden(obs.reshape(ROWS, PIXELS).astype("float32") / 255))
        logits = policy(features)
        action = tp.random.categorical(logits)
        following, reward = tp.udf(move, place, action, outputs=[tp.spec((ROWS,), "int32"), tp.spec((ROWS,))], name="move")
        place[i, 0], place[i, t + 1] = tp.arange(ROWS) * (PLACES // ROWS), following
        log_prob = (logits.log_softmax(-1) * action.one_hot(2)).sum(-1)
        if algorithm == "REINFORCE":
            loss = -log_prob * reward[i, t:T].discounted_sum(GAMMA)
            learned = hidden.parameters() | policy.parameters()
        else:
            loss, learned = _ppo(i, t, T, critic(features).squeeze(-1), reward, log_prob), _all(hidden, policy, critic)
        loss[i, 0:T].mean().backward()
        tp.optim.SGD(learned, lr=RATE).step()
        last = list(policy[I - 1].parameters().values())
    divisor = SIDES[side]
    limit = steps * ROWS * PIXELS // divisor if divisor else None
    return ctx.compile({I: ITERATIONS + 1, T: steps}, last, tp.Config(memory_limit=limit, swap="host"))


def _ppo(i: Any, t: Any, T: Any, value: tp.Tensor, reward: tp.Tensor, log_prob: tp.Tensor) -> tp.Tensor:
    """PPO's loss at a step: clipped ratio, value, with advantages by GAE."""
    fixed = value.detach()
    after = tp.where(t + 1 < T, GAMMA, 0.0) * fixed[i, tp.min(t + 1, T - 1)]
    advantage = (reward + after - fixed)[i, t:T].discounted_sum(GAMMA * LAMBDA)
    ratio = tp.exp(log_prob - log_prob.detach())
    surrogate = tp.minimum(ratio * advantage, tp.clip(ratio, 1 - CLIP, 1 + CLIP) * advantage)
    return 0.5 * (value - advantage - fixed) ** 2 - surrogate


def _all(*modules: Any) -> Any:
    return functools.reduce(lambda one, other: one | other, (module.parameters() for module in modules))


def _picture(place: Any) -> tuple[Any]:
    return (picture(place, SHAPE),)
