"""The seconds from the start of a process to its first result: with an empty cache of compiled programs, and with one that is filled.

Each turn has a directory of its own. The first process finds it empty and fills it; the second one takes everything from there. The
first result is the report of the first iteration, or the tokens of the first request. JAX's own cache is off. CPU seconds are those of all
threads of the process until then.

python -m benchmarks.second_start [--quick] [--out FILE]
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import io
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.common import Results, arguments, compared, say, show

ROOT = Path(__file__).resolve().parents[1]
SIDES = ("empty cache", "filled cache")
COMMAND = "tiny-llama, command line"
TINY = {
    "num_envs": 2,
    "num_steps": 4,
    "gradient_steps": 2,
    "hidden": [8],
    "batch_size": 8,
    "buffer_size": 64,
}  # --quick, with a buffer
COUNTS = ("compiled", "loaded")  # XLA programs: by JAX's own count of all in the process, and from the cache


def main() -> None:
    options = arguments(__doc__ or "", add_options)
    if options.case:
        print(json.dumps(CASES[options.case](str(options.cache), options.quick, options.began)))
        return
    results = Results("second_start", options)
    for name in CASES:
        if results.selects(name):
            compare(results, name)
            results.save()
    results.finish()


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--case", default="", help=argparse.SUPPRESS)  # the following are for the processes that are measured
    parser.add_argument("--cache", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--began", type=float, help=argparse.SUPPRESS)


def compare(results: Results, name: str) -> None:
    """Start a case in two processes each turn, one after the other."""
    reports: dict[str, list[dict[str, Any]]] = {side: [] for side in SIDES}
    for _ in range(results.options.turns):
        with tempfile.TemporaryDirectory() as cache:
            for side in SIDES:
                reports[side].append(start(name, cache, results.options.quick))
    sums = {report["first_result"] for each in reports.values() for report in each}
    if len(sums) > 1:
        raise SystemExit(f"{name}: the first results differ between processes")
    figures = compared({side: [report["seconds"] for report in each] for side, each in reports.items()}, 1.0)
    show(f"{name}, to the first result", figures, "s")
    cpu = compared({side: [report["cpu_seconds"] for report in each] for side, each in reports.items()}, 1.0)
    say("  of processors: " + ", ".join(f"{side} {cpu[side]['median']:.2f} s" for side in SIDES))
    counts = {side: {count: max(report[count] for report in each) for count in COUNTS} for side, each in reports.items()}
    imports = {side: statistics.median(report["import_seconds"] for report in each) for side, each in reports.items()}
    for side in SIDES:
        compiled, loaded = (counts[side][count] for count in COUNTS)
        say(f"  {side}: imports {imports[side]:.2f} s; {compiled} XLA programs compiled, {loaded} loaded")
    results.add(name, seconds=figures, cpu_seconds=cpu, import_seconds=imports, xla_programs=counts)


def start(name: str, cache: str, quick: bool) -> dict[str, Any]:
    """The report of a new process."""
    command = [sys.executable, "-m", "benchmarks.second_start", "--case", name, "--cache", cache]
    command += [*(["--quick"] if quick else []), "--began", repr(time.time())]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])}
    ended = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if ended.returncode:
        raise SystemExit(f"{name}: {ended.stderr}")
    report: dict[str, Any] = json.loads(ended.stdout.splitlines()[-1])
    return report


# -- in the process that is measured ----------------------------------------------------------------------------------


class First:
    """A monitor that keeps the first report of an agent, and the time of it."""

    def __init__(self) -> None:
        self.values: list[np.ndarray] = []
        self.at = self.cpu = 0.0

    def finished(self, iteration: int, metrics: Mapping[str, np.ndarray], parameters: Mapping[str, np.ndarray]) -> None:
        if iteration == 0:
            self.at, self.cpu = time.time(), time.process_time()
            self.values = [np.array(value) for value in (*metrics.values(), *parameters.values())]


def training(recipe_name: str, cache: str, quick: bool, began: float) -> dict[str, Any]:
    """Two iterations of a recipe."""
    from benchmarks.compile_time import SMALL
    from tempo_rl.agents import build_agent
    from tempo_rl.compiles import CompileCounter
    from tempo_rl.recipe import load_recipe
    from tempo_rl.train import compile_config

    imported = time.time()
    sizes = {} if not quick else TINY if recipe_name in ("sac", "td3") else SMALL
    changes = [f"{key}={value}" for key, value in sizes.items()]
    recipe = load_recipe(recipe_name, changes)
    changes += ["learning_starts=0"] if "learning_starts" in type(recipe).model_fields else []
    recipe = load_recipe(recipe_name, [*changes, f"total_timesteps={2 * recipe.num_envs * recipe.num_steps}"])
    first = First()
    with CompileCounter() as counter:
        agent = build_agent(recipe, first)
        program = agent.compile(compile_config(recipe, cache))
        program.run({})
        agent.environment.close()
    return report(began, imported, first.at, first.cpu, first.values, counter.count, program.loads)


def decoding(cache: str, quick: bool, began: float) -> dict[str, Any]:
    """64 positions of one row of a Llama with random weights."""
    from benchmarks.decode import PROMPT, random_model
    from tempo_llm.generate import Generator
    from tempo_rl.compiles import CompileCounter

    imported = time.time()
    config, weights = random_model("tiny")
    length = 16 if quick else 64
    with CompileCounter() as counter:
        prompt = np.random.default_rng(1).integers(3, config.vocab_size, PROMPT).tolist()
        generation = Generator(config, weights, cache=cache).generate([prompt], length - PROMPT, max_context=length)
        at, cpu = time.time(), time.process_time()
    tokens = np.array(generation.completions[0].token_ids)
    return report(began, imported, at, cpu, [tokens], counter.count, generation.loads)


def command(cache: str, quick: bool, began: float) -> dict[str, Any]:
    """A few tokens of the model that comes with the package, as `tempo-llm generate` prints them."""
    from tempo_llm.cli import app
    from tempo_rl.compiles import CompileCounter

    imported = time.time()
    written = io.StringIO()
    with CompileCounter() as counter, contextlib.redirect_stdout(written):
        app(["generate", "12 + 30 =", "--json", "--max-new-tokens", "16", "--cache", cache], standalone_mode=False)
        at, cpu = time.time(), time.process_time()
    printed = json.loads(written.getvalue())
    return report(began, imported, at, cpu, [np.array(printed["token_ids"])], counter.count, printed["loads"])


def report(
    began: float, imported: float, at: float, cpu: float, values: list[np.ndarray], compiled: int, loaded: int
) -> dict[str, Any]:
    """What a process says of itself. Times are those of the clock on the wall, which all processes share; `cpu` is its own clock."""
    return {
        "seconds": at - began,
        "cpu_seconds": cpu,
        "import_seconds": imported - began,
        "first_result": hashlib.sha256(b"".join(value.tobytes() for value in values)).hexdigest(),
        "compiled": compiled,
        "loaded": loaded,
    }


CASES: dict[str, Callable[[str, bool, float], dict[str, Any]]] = {
    "PPO, environment in JAX": lambda *options: training("ppo_functional", *options),
    "PPO, environment on the host": lambda *options: training("ppo", *options),
    "REINFORCE, environment on the host": lambda *options: training("reinforce", *options),
    "SAC, environment in JAX": lambda *options: training("sac", *options),
    "TD3, environment in JAX": lambda *options: training("td3", *options),
    "Llama, tiny, decoding": decoding,
    COMMAND: command,
}

if __name__ == "__main__":
    main()
