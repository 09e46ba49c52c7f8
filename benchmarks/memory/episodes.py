"""REINFORCE beside n-step returns, over the time of a run: the paper's example, in which one index decides how long a picture is needed.

With `reward[i, t:T]`, learning waits for the end of an episode, and all its pictures are kept. With `reward[i, t : min(t + n, T)]` it may
run in the loop that acts, n - 1 steps later: a limit of memory lets the compiler choose so.
"""

from __future__ import annotations

import functools
from typing import Any

import tempo_core as tp
from benchmarks.common import Run
from benchmarks.memory.process import Case, Report, curve, measured
from benchmarks.memory.ring import PIXELS, PLACES, SHAPE, move, picture

N, ENVIRONMENTS, HIDDEN, ITERATIONS = 5, 8, 16, 2
SIDES = ("REINFORCE", f"{N}-step returns")
LENGTH, QUICK = 1000, 600
GAMMA, RATE = 0.95, 1e-3
LIMIT = "16MB"  # of the side with n-step returns


def cases(quick: bool) -> list[Case]:
    steps = QUICK if quick else LENGTH
    sizes = {"steps": steps, "rows": ENVIRONMENTS, "iterations": ITERATIONS, "n": N}
    return [
        Case(f"REINFORCE and {N}-step returns on pictures, {steps} steps", "episodes", str(steps), SIDES, sizes, in_turn=True)
    ]


def report(side: str, work: str) -> Report:
    """`work` is the number of steps. "moments" are the bytes planned for each moment of the program, in its order."""
    program = _program(side, int(work))
    planned, run = lambda: program.plan().peak_device_bytes, lambda: program.run({})
    figures = measured(planned, run)
    moments = [moment.device_bytes + moment.host_bytes for moment in program.plan().usage.moments]
    return {**figures, "moments": moments, "curve": curve(run)}


def runs(work: str) -> dict[str, Run]:
    """By side: what its time is measured of."""
    programs = {side: _program(side, int(work)) for side in SIDES}
    return {side: functools.partial(program.run, {}) for side, program in programs.items()}


def _program(side: str, steps: int) -> tp.Program[Any]:
    waits = side == "REINFORCE"
    ctx = tp.Context("i", "t")
    with ctx as ((i, I), (t, T)):
        hidden, head = tp.nn.Linear(PIXELS, HIDDEN, domain=(i,)), tp.nn.Linear(HIDDEN, 2, domain=(i,))
        place = tp.recurrence((ENVIRONMENTS,), "int32", domain=(i, t), name="place")
        (obs,) = tp.udf(_picture, place, outputs=[tp.spec((ENVIRONMENTS, *SHAPE), "uint8")], name="picture")
        pixels = obs.reshape(ENVIRONMENTS, PIXELS).astype("float32") / 255
        logits = head(tp.tanh(hidden(pixels)))
        action = tp.random.categorical(logits)
        following, reward = tp.udf(
            move, place, action, outputs=[tp.spec((ENVIRONMENTS,), "int32"), tp.spec((ENVIRONMENTS,))], name="move"
        )
        place[i, 0], place[i, t + 1] = tp.arange(ENVIRONMENTS) * (PLACES // ENVIRONMENTS), following

        rewards = reward[i, t:T] if waits else reward[i, t : tp.min(t + N, T)]
        log_prob = (logits.log_softmax(-1) * action.one_hot(2)).sum(-1)
        (-log_prob * rewards.discounted_sum(GAMMA))[i, 0:T].mean().backward()
        tp.optim.Adam(hidden.parameters() | head.parameters(), lr=RATE).step()
        learned = head[I - 1].parameters()
    return ctx.compile({I: ITERATIONS + 1, T: steps}, list(learned.values()), tp.Config(memory_limit=None if waits else LIMIT))


def _picture(place: Any) -> tuple[Any]:
    return (picture(place),)
