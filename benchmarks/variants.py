"""Programs with one decision of the compiler switched off at a time: what `regret` and `ablation` measure.

A case is a program at a size, and a variant of it is the program compiled with `Config(disable=(name,))`. Both run in turn, in one process. A
variant whose device programs are those of the case itself is not run: the decision changes nothing there.
"""

from __future__ import annotations

import math
import multiprocessing
import statistics
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any

SHORTEST = 0.02  # seconds of a turn: faster programs run several times
# "pad" is left out: without it, programs whose shapes vary are interpreted.
CLEANING = ("simplify", "dce", "cse", "narrow")
DECISIONS = (
    "split", "lift", "shift", "associate", "precompute", "wavefront", "vectorize", "accumulate", "compact", "tile", "strip", "trim",
    "recompute", "update", "fuse", "loop", "capacities", "unroll", "registers", "keep", "join", "chunk", "create",
)  # fmt: skip
EVERY = (*CLEANING, *DECISIONS)
Compile = Callable[[Any], tuple[Any, Callable[[], object]]]  # from a Config to the program and a function that runs it


@dataclass(frozen=True)
class Case:
    name: str
    compile: Compile


def names(quick: bool, each: int = 1) -> list[str]:
    """The names of all cases, with each n-th classic."""
    from benchmarks.classics.table import load

    classics = list(load())
    return (
        ["edit distance", "PPO functional"]
        if quick
        else ["PPO functional", "PPO micro", "REINFORCE", "decoding", *classics[each // 2 :: each]]
    )


def case(name: str, quick: bool) -> Case:
    if name in _RECIPES:
        return Case(name, lambda config: _recipe(*_RECIPES[name][quick], config=config))
    if name == "decoding":
        return Case(name, _decoding)
    from benchmarks.classics.table import load

    classic = load()[name]
    size = "tiny" if quick else "full"

    def compiled(config: Any) -> tuple[Any, Callable[[], object]]:
        traced, inputs = classic.program(**classic.sizes[size]), classic.fed(size)
        program = traced.context.compile(traced.bounds, traced.outputs, config)
        return program, lambda: program.run(inputs)

    return Case(name, compiled)


# (recipe, environments, steps, iterations, options), and the same for --quick
_FUNCTIONAL = ["env.id=phys2d/CartPole-v1"]
_RECIPES: dict[str, tuple[tuple[str, int, int, int, list[str]], tuple[str, int, int, int, list[str]]]] = {
    "PPO functional": (("ppo_functional", 32, 64, 2, []), ("ppo_functional", 4, 8, 2, [])),
    "PPO micro": (("ppo_micro", 512, 250, 1, []), ("ppo_micro", 8, 16, 1, [])),
    "REINFORCE": (("reinforce", 8, 250, 2, _FUNCTIONAL), ("reinforce", 4, 8, 2, _FUNCTIONAL)),
}


def _recipe(
    name: str, envs: int, steps: int, iterations: int, settings: list[str], config: Any
) -> tuple[Any, Callable[[], object]]:
    from benchmarks.ppo import LastMetrics, recipe_of
    from tempo_rl.agents import build_agent

    program = build_agent(recipe_of(name, envs, steps, iterations, settings), LastMetrics()).compile(config)
    return program, lambda: program.run({})


def _decoding(config: Any) -> tuple[Any, Callable[[], object]]:
    """Greedy decoding of one row by a Llama of 5M parameters, 8 tokens of a prompt and 248 new ones."""
    import numpy as np

    from benchmarks.decode import PROMPT, random_model
    from tempo_llm.generate import Generator

    model, weights = random_model("5M")
    generator = Generator(model, weights, disable=config.disable)
    prompt = np.random.default_rng(1).integers(3, model.vocab_size, (1, PROMPT)).tolist()
    generator.generate(prompt, 256 - PROMPT, max_context=256)
    (program,) = (program for _, program in _programs(generator))
    return program, lambda: generator.generate(prompt, 256 - PROMPT, max_context=256)


def _programs(generator: Any) -> Iterator[tuple[Any, Any]]:
    yield from generator._programs.items()


# -- measuring, in a process that may fail ----------------------------------------------------------------------------


class Worker:
    """A process that compares variants. If one ends it or takes too long, a fresh one compares the next."""

    def __init__(self, seconds: float, quick: bool):
        self.seconds, self.quick = seconds, quick
        self.process: Any = None

    def compare(self, name: str, off: str, turns: int) -> dict[str, Any]:
        """`{"same": True}`, `{"error": text}`, or seconds and bytes of "chosen" and of the variant; of the case alone if `off` is ""."""
        if self.process is None:
            spawn = multiprocessing.get_context("spawn")
            self.connection, theirs = spawn.Pipe()
            self.process = spawn.Process(target=_serve, args=(theirs, self.quick), daemon=True)
            self.process.start()
            theirs.close()
        self.connection.send((name, off, turns))
        try:
            if self.connection.poll(self.seconds):
                row: dict[str, Any] = self.connection.recv()
                return row
            error = f"longer than {self.seconds:g} s"
        except EOFError:
            self.process.join()
            error = f"the process ended with code {self.process.exitcode}"
        self.stop()
        return {"error": error}

    def stop(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.join()
            self.process = None


def _serve(connection: Connection, quick: bool) -> None:
    import jax

    import tempo_core as tp
    from tempo_core.config import PASSES

    jax.config.update("jax_enable_compilation_cache", False)
    current, chosen, run, identity = "", None, None, ""
    while True:
        try:
            name, off, turns = connection.recv()
        except EOFError:
            return
        try:
            if name != current or run is None:
                jax.clear_caches()
                chosen, run = case(name, quick).compile(tp.Config())
                current, identity = name, _identity(chosen)
                run()
            if not off:
                connection.send(_alone(chosen, run, turns))
                continue
            variant, other = case(name, quick).compile(tp.Config(disable=(off,)))
            if (off in PASSES and _text(variant) == _text(chosen)) or _identity(variant) == identity:
                connection.send({"same": True})
                continue
            other()
            seconds = _in_turn({"chosen": run, "variant": other}, turns)
            bytes = {"chosen": chosen.plan().peak_device_bytes, "variant": variant.plan().peak_device_bytes}
            connection.send({"seconds": seconds, "bytes": bytes})
        except Exception as error:  # any failure is a row
            text = str(error).strip().splitlines()
            connection.send({"error": f"{type(error).__name__}: {text[0] if text else ''}"[:200]})


def _alone(program: Any, run: Callable[[], object], turns: int) -> dict[str, Any]:
    """The time of a case, and what it costs."""
    cost = program.cost()
    numbers = {name: float(cost.numbers[name]) for name in ("operations", "bytes_read", "bytes_written", "stores")}
    from tempo_core import Target

    model = Target.named("cpu").seconds(cost, len(program.plan().device_programs))
    return {"seconds": statistics.median(_in_turn({"chosen": run}, turns)["chosen"]), "cost": numbers, "model_seconds": model}


def _text(program: Any) -> str:
    """Graph and schedule. Passes have no other effect."""
    from tempo_core.ir.graph_text import to_text

    return f"{to_text(program.graph)}\n{program.scheduled.text()}"


def _identity(program: Any) -> str:
    """The text of all device programs, and of what the host does between them."""
    staged = program._staged
    if staged is None:
        return "interpreted"
    from tempo_core.runtime.staged.stage import _identity as of_lowered

    every = [staged._lowered(segment, staged._expected(segment)) for segment in staged.segments]
    texts = [of_lowered(lowered.as_text(), lowered, staged.spread, staged.options) for lowered in every]
    return "\n".join([*texts, *program.plan().device_programs])


def _in_turn(runs: Mapping[str, Callable[[], object]], turns: int) -> dict[str, list[float]]:
    seconds: dict[str, list[float]] = {name: [] for name in runs}
    repeats = {}
    for name, run in runs.items():
        start = time.perf_counter()
        run()
        repeats[name] = max(1, round(SHORTEST / (time.perf_counter() - start)))
    for _ in range(turns):
        for name, run in runs.items():
            start = time.perf_counter()
            for _ in range(repeats[name]):
                run()
            seconds[name].append((time.perf_counter() - start) / repeats[name])
    return seconds


def ratio(row: Mapping[str, Any]) -> float:
    """The variant's time over that of the case itself, turn by turn: above 1, the decision pays."""
    return statistics.median(b / a for a, b in zip(row["seconds"]["chosen"], row["seconds"]["variant"], strict=True))


def mean(ratios: list[float]) -> float:
    """The geometric mean."""
    return math.exp(sum(map(math.log, ratios)) / len(ratios)) if ratios else 1.0
