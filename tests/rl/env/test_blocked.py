"""Environments that block: in calls of Python and in C code. The work ends with their name."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tempo_rl.env.blocked
from tempo_rl import A2C
from tempo_rl.checkpoint import load_checkpoint
from tempo_rl.env.blocked import within
from tempo_rl.env.source import source_of
from tempo_rl.env.vector import HostVectorEnvironment, vectorized
from tempo_rl.errors import EnvError
from tempo_rl.rundir import RunDirectory
from tests.cases import fast
from tests.rl.scripted import Scripted

HERE = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[3])}
ENOUGH = 60.0  # seconds in which a test ends, if all is well


def asleep() -> None:
    time.sleep(ENOUGH)


def in_a_loop() -> None:
    until = time.monotonic() + ENOUGH
    while time.monotonic() < until:
        pass


def locked() -> None:
    lock = threading.Lock()
    lock.acquire()
    lock.acquire(timeout=ENOUGH)


def trying_again() -> None:
    """Code that takes each error for a reason to try again."""
    until = time.monotonic() + ENOUGH
    while time.monotonic() < until:
        with suppress(Exception):
            time.sleep(ENOUGH)


WAYS = {"asleep": asleep, "in a loop": in_a_loop, "locked": locked, "trying again": trying_again}


class Blocking(Scripted):
    """It blocks in one of its functions: at the third step of an episode, at its second reset, or as it is made."""

    def __init__(self, where: str, way: str = "asleep"):
        super().__init__([("terminated", 5)])
        self.where, self.way, self.resets = where, way, 0
        if where == "making":
            WAYS[way]()

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        self.resets += 1
        if self.where == "reset" and self.resets == 2:
            WAYS[self.way]()
        return super().reset(seed=seed)

    def step(self, action: Any) -> Any:
        if self.where == "step" and self.count == 2:
            WAYS[self.way]()
        return super().step(action)

    def state(self) -> dict[str, Any]:
        if self.where == "state":
            WAYS[self.way]()
        return {}

    def restore(self, state: dict[str, Any]) -> None: ...


def play_until_blocked(env: HostVectorEnvironment) -> None:
    env.reset()
    for _ in range(6):
        env.step(np.zeros(env.num_envs, np.int32))
    env.state()


@pytest.mark.parametrize(
    ("where", "way"), [("reset", "asleep"), ("making", "asleep"), ("state", "asleep"), *(("step", way) for way in WAYS)]
)
def test_an_environment_in_this_process_that_blocks_ends_with_its_name(where: str, way: str) -> None:
    began = time.monotonic()
    message = rf"Slow(\.{where}\(\))? has not returned within 0\.2 s\n  at .*test_blocked\.py:\d+: .*\n.*endless loop"
    with pytest.raises(EnvError, match=message):
        play_until_blocked(vectorized(partial(Blocking, where, way), "Slow", 2, timeout=0.2))
    assert time.monotonic() - began < ENOUGH / 2


def test_one_that_blocks_in_another_thread_ends_too() -> None:
    errors = list[str]()

    def work() -> None:
        with pytest.raises(EnvError) as raised:
            play_until_blocked(vectorized(partial(Blocking, "step", "in a loop"), "Slow", 1, timeout=0.2))
        errors.append(str(raised.value))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join(ENOUGH / 2)
    assert errors and "Slow.step() has not returned within 0.2 s" in errors[0]


@pytest.mark.parametrize("where", fast(["reset", "state"], "state"))
def test_one_in_another_process_ends_with_its_name(where: str) -> None:
    env = vectorized(partial(Blocking, where), "Slow", 1, vectorization="async")
    env.timeout = 2.0
    try:
        with pytest.raises(EnvError, match=rf"Slow has not answered a {where} within 2 s"):
            env.reset()
            env.reset()
            env.state()
    finally:
        env.close()


def test_calls_that_return_are_left_alone() -> None:
    """A limit belongs to one call, and not to those around it or after it."""
    values = [within(0.5, "a call", lambda: within(0.3, "an inner call", lambda: time.sleep(0.15))) for _ in range(4)]
    assert values == [None] * 4
    time.sleep(0.5)
    assert not tempo_rl.env.blocked._CALLS
    with pytest.raises(EnvError, match="the outer call has not returned"):
        within(0.3, "the outer call", lambda: [within(60.0, "an inner call", lambda: time.sleep(0.1)) for _ in range(600)])


def test_an_object_that_blocks_as_it_is_checked_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempo_rl.env.source.TIMEOUT", 0.2)
    with pytest.raises(EnvError, match=r"a reset or step of WaitsAtOnce has not returned within 0\.2 s"):
        source_of(lambda: WaitsAtOnce("step"))


class WaitsAtOnce(Blocking):
    def step(self, action: Any) -> Any:
        time.sleep(ENOUGH)


@pytest.mark.slow
def test_training_ends_and_keeps_the_last_iteration(tmp_path: Path) -> None:
    agent = A2C(
        lambda: BlocksLate(),
        num_envs=1,
        num_steps=4,
        total_timesteps=400,
        hidden=[4],
        eval_episodes=0,
        save_every=1,
        env_timeout=1.0,
    )
    with pytest.raises(tempo_rl.RunError, match=r"BlocksLate\.step\(\) has not returned within 1 s(.|\n)*holds iteration 2"):
        agent.train(tmp_path / "run")
    run = RunDirectory(tmp_path / "run")
    assert load_checkpoint(run.latest).iterations == 2 and "has not returned" in json.loads(run.result.read_text())["error"]


class BlocksLate(Scripted):
    """It blocks in its third iteration."""

    steps = 0

    def __init__(self) -> None:
        super().__init__([("terminated", 5)])

    def step(self, action: Any) -> Any:
        self.steps += 1
        if self.steps == 10:
            time.sleep(ENOUGH)
        return super().step(action)


PROGRAM = """
import hashlib, time
import tempo_rl.env.blocked as blocked
blocked.GRACE = 0.3

def call():
    print("it begins", flush=True)
    time.sleep(0.5)
    {call}

with blocked.last_words(lambda message: print("last words:", message, flush=True)):
    blocked.within({limit}, "Slow.step()", call)
print("it went on")
"""


@pytest.mark.skipif(sys.platform == "win32", reason="it has no such signal")
def test_code_in_c_that_cannot_be_interrupted_ends_the_process() -> None:
    code = PROGRAM.format(call='hashlib.pbkdf2_hmac("sha256", b"", b"", 2**30)', limit=0.8)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=ENOUGH, check=False, env=HERE)
    assert done.returncode == 1 and "it went on" not in done.stdout, done.stderr
    assert "error: Slow.step() has not returned" in done.stderr and "cannot be interrupted" in done.stderr, done.stderr
    assert "last words: Slow.step() has not returned within 0.8 s" in done.stdout


@pytest.mark.skipif(sys.platform == "win32", reason="it has no such signal")
def test_the_time_in_which_a_process_is_stopped_does_not_count() -> None:
    """After Ctrl-Z, a call has the seconds that it had left."""
    code = PROGRAM.format(call="time.sleep(1.5)", limit=4.0)
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, env=HERE)
    assert process.stdout is not None and process.stdout.readline() == "it begins\n"
    process.send_signal(signal.SIGSTOP)
    time.sleep(5.0)
    process.send_signal(signal.SIGCONT)
    rest, _ = process.communicate(timeout=ENOUGH)
    assert rest == "it went on\n" and process.returncode == 0
