"""Standard streams that an environment closes, or writes into by their descriptors: nothing is lost, and JSON stays JSON."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = """
import os, subprocess, sys
from tempo_rl.streams import aside, echo, kept, screen

with kept():
    echo("first")
    sys.stdout.close()
    print("closed")
    sys.stdout.detach()
    echo("second")
    os.close(1)
    echo("third")
    os.close(1)
    with open("taken.txt", "w") as taken:  # the system gives it the number of the standard output
        assert taken.fileno() == 1
        echo("fourth")
        print("a print of the environment")
        taken.write("its own")
    echo("fifth")
    drawing = screen()
    sys.stderr.close()
    os.close(2)
    echo("an error", err=True)
    drawing.write("a bar")
    drawing.flush()
    with aside():
        os.write(1, b"bytes|")
        subprocess.run(["echo", "child"])
        sys.stdout.close()
        echo("aside")
        os.close(1)
    echo("result")
print("last")
"""


def test_streams_that_are_closed_are_opened_again(tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, cwd=tmp_path, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [
        "first", "closed", "second", "third", "fourth", "a print of the environment", "fifth", "result", "last",
    ]  # fmt: skip
    assert done.stderr.replace("a bar", "a bar\n").splitlines() == ["an error", "a bar", "bytes|child", "aside"]
    assert (tmp_path / "taken.txt").read_text() == "its own"


def test_a_test_runner_keeps_its_streams(capsys: pytest.CaptureFixture[str]) -> None:
    from tempo_rl.streams import aside, echo, kept

    with kept():
        echo("one")
        with aside():
            echo("two")
    assert capsys.readouterr() == ("one\n", "two\n")


ENVIRONMENT = """
import os, sys
import gymnasium as gym
import numpy as np

class Noisy(gym.Env):
    observation_space, action_space = gym.spaces.Box(-1, 1, (2,), np.float32), gym.spaces.Discrete(2)
    steps = 0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.count = 0
        return np.zeros(2, np.float32), {}

    def step(self, action):
        Noisy.steps += 1
        self.count += 1
        print("noise")
        if Noisy.steps == 1:
            os.write(1, b"bytes")
        if Noisy.steps in (3, 50):
            sys.stdout.close()
            os.close(1)
        return np.zeros(2, np.float32), 1.0, self.count >= 4, False, {}

gym.register("Noisy-v0", entry_point=Noisy)
"""


@pytest.mark.slow
@pytest.mark.parametrize("flags", [["--json"], ["--progress"]], ids=" ".join)
def test_an_environment_that_closes_the_standard_output_loses_no_run(flags: list[str], tmp_path: Path) -> None:
    (tmp_path / "noisy.py").write_text(ENVIRONMENT)
    recipe = "algorithm: reinforce\nenv: {id: 'noisy:Noisy-v0'}\nhidden: [4]\nnum_envs: 2\nnum_steps: 4\ntotal_timesteps: 80\n"
    (tmp_path / "noisy.yaml").write_text(recipe + "eval_episodes: 2\n")
    command = [sys.executable, "-m", "tempo_rl", "train", "noisy.yaml", "--out", "run", "--no-picture", *flags]
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).resolve().parents[3])}
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, timeout=300, check=False, env=environment)
    assert done.returncode == 0 and "Traceback" not in done.stderr, done.stderr
    assert len((tmp_path / "run/metrics.csv").read_text().splitlines()) == 11
    if flags == ["--json"]:
        events = [json.loads(line) for line in done.stdout.splitlines()]
        assert [event["event"] for event in events] == ["start", *["iteration"] * 10, "evaluation", "result"]
        assert events[-1]["eval_return_mean"] == 4.0 and "noise" in done.stderr and "bytes" in done.stderr
    else:
        assert done.stdout.splitlines()[-1] == "play with it: tempo-rl eval run"
