"""The seconds of compiling, stage by stage, and the sizes of the programs.

Tempo's part runs from the first line in the context to the point where JAX begins to trace: building the graph, checks, each
pass, the verifier, the schedule, and the plan of launches. Beside it: JAX's tracing, which runs Tempo's lowering,
JAX's lowering to StableHLO, and XLA. Before each turn all caches of Tempo and of JAX are emptied.

python -m benchmarks.compile_time [--classics] [--quick] [--out FILE]
"""

from __future__ import annotations

import argparse
import functools
import gc
import statistics
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from benchmarks.common import Results, arguments, say

Compile = Callable[[], Any]  # compiles a program whose graph is built
Build = Callable[[], Compile]  # builds the graph of a program
SMALL = {"num_envs": 4, "num_steps": 8}  # sizes of --quick; sizes hardly change the times of compiling
SLOW_CLASSICS = (
    "CTC, places a step", "CTC, places a dimension", "soft-DTW", "stacked RNN, layers a step", "WaveNet training", "Jacobi",
    "Kalman smoother", "local alignment", "MAML, second order", "n-step Q, replay window, target network",
)  # fmt: skip
QUICK_CLASSICS = ("HMM forward", "LSTM")


def main() -> None:
    options = arguments(__doc__ or "", add_options)
    results = Results("compile_time", options)
    say("CPU seconds (wall seconds): Tempo, JAX's tracing and lowering, XLA")
    for name, (wanted, build) in cases(options.quick, options.classics).items():
        if results.selects(name):
            measure(results, name, wanted, build)
    late = [case["case"] for case in results.cases if case["wanted"] and case["cpu_seconds"]["tempo"] > case["wanted"]]
    say(f"\nslower than wanted: {', '.join(late) or 'none'}")
    results.finish()


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--classics", action="store_true", help="all classics, not only those that are slow to compile")


def cases(quick: bool, every_classic: bool) -> dict[str, tuple[float | None, Build]]:
    """By name: the seconds that Tempo's part may take, None without a limit, and what builds the program."""
    from benchmarks import compile_programs as programs
    from benchmarks.classics.table import load

    sizes = SMALL if quick else {}
    layers, branches, alternating = (4, 4, 8) if quick else (28, 8, 16)
    each: dict[str, tuple[float | None, Build]] = {
        "REINFORCE": (None, lambda: training("reinforce", sizes)),
        "PPO, environment in JAX": (0.5, lambda: training("ppo_functional", sizes)),
        "PPO, environment on the host": (0.5, lambda: training("ppo", sizes)),
        f"Llama, {layers} layers, decoding": (1.0, lambda: decoding(layers)),
        f"{layers} layers, written out, gradient": (1.0, lambda: traced(programs.stacked(layers))),
        f"{alternating} layers, alternating": (1.0, lambda: traced(programs.alternating(alternating))),
    }
    for name in programs.CONDITIONS:
        each[f"{branches} branches, {name}"] = (1.0, lambda name=name: traced(programs.branches(name, branches)))
    classics, size = load(), "tiny" if quick else "full"
    names = QUICK_CLASSICS if quick else tuple(classics) if every_classic else SLOW_CLASSICS
    for name in names:
        if hasattr(classics[name], "program"):  # PPO, REINFORCE and Llama come from the libraries, and are above
            program, numbers = classics[name].program, classics[name].sizes[size]
            each[f"classic: {name}"] = (1.5, lambda program=program, numbers=numbers: traced(program(**numbers)))
    return each


def traced(example: Any) -> Compile:
    """A program of `benchmarks.compile_programs`, or a classic."""
    return lambda: example.context.compile(example.bounds, example.outputs)


def training(name: str, sizes: dict[str, int]) -> Compile:
    """Two iterations of a recipe."""
    from benchmarks.ppo import LastMetrics
    from tempo_rl.agents import build_agent
    from tempo_rl.recipe import load_recipe
    from tempo_rl.train import compile_config

    changes = [f"{key}={value}" for key, value in sizes.items()]
    recipe = load_recipe(name, changes)
    recipe = load_recipe(name, [*changes, f"total_timesteps={2 * recipe.num_envs * recipe.num_steps}"])
    agent = build_agent(recipe, LastMetrics())

    def compile_agent() -> Any:
        program = agent.compile(compile_config(recipe))
        agent.environment.close()
        return program

    return compile_agent


def decoding(layers: int) -> Compile:
    """The decoding program of a Llama."""
    import tempo_core as tp
    from benchmarks.decode import llama_config
    from tempo_llm.attention import Attention
    from tempo_llm.generate import LOOPS
    from tempo_llm.llama import trace_decoder

    decoder = trace_decoder(llama_config("tiny", layers), Attention())
    return lambda: decoder.context.compile(decoder.bounds(1, 256), decoder.outputs, tp.Config(disable=LOOPS))


class Clock:
    """CPU and wall seconds by stage: `lap` adds the seconds since the last lap."""

    def __init__(self) -> None:
        self.cpu: dict[str, float] = {}
        self.wall: dict[str, float] = {}
        self.last = time.process_time(), time.monotonic()

    def lap(self, stage: str) -> None:
        now = time.process_time(), time.monotonic()
        for seconds, at, before in zip((self.cpu, self.wall), now, self.last, strict=True):
            seconds[stage] = seconds.get(stage, 0.0) + at - before
        self.last = now


@contextmanager
def in_cpu_seconds() -> Iterator[None]:
    """The compiler's stages measure themselves in CPU seconds: other programs on the machine then count less."""
    perf_counter = time.perf_counter
    time.perf_counter = time.process_time
    try:
        yield
    finally:
        time.perf_counter = perf_counter


def empty_caches() -> None:
    """Forget all that earlier programs left behind."""
    import jax

    jax.clear_caches()
    frozen = gc.get_freeze_count() > 0
    gc.unfreeze()  # `get_objects` leaves frozen objects out
    gc.collect()
    for cached in gc.get_objects():
        if isinstance(cached, functools._lru_cache_wrapper) and cached.__module__.startswith("tempo"):
            cached.cache_clear()
    if frozen:
        gc.freeze()


def turn(build: Build) -> tuple[dict[str, float], dict[str, float], dict[str, int]]:
    """CPU seconds of all stages, wall seconds of the three parts, and the sizes of the program."""
    import jax

    empty_caches()
    clock = Clock()
    with in_cpu_seconds():
        compile_it = build()
        clock.lap("build")
        program = compile_it()
        clock.lap("compile")
    executables = []
    staged = program._staged
    for segment in staged.segments:
        jitted, shapes = jax.jit(staged._function(segment), donate_argnums=0), staged._expected(segment)
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="Some donated buffers were not usable")
            clock.lap("other")
            trace = jitted.trace(*shapes)
            clock.lap("jax traces")
            lowered = trace.lower()
            clock.lap("jax lowers")
            executables.append(lowered.compile())
            clock.lap("xla")
    return stages(program, clock.cpu), parts(clock.wall), sizes_of(program, executables)


def stages(program: Any, seconds: dict[str, float]) -> dict[str, float]:
    """CPU seconds by stage. `verify and plan` is what the compiler does outside of its stages."""
    outside = seconds["compile"] - sum(program.timing.values())
    jax_and_xla = {stage: seconds[stage] for stage in ("jax traces", "jax lowers", "xla")}
    by_stage = {"build": seconds["build"], **program.timing, "verify and plan": outside, **jax_and_xla}
    return by_stage | parts(seconds)


def parts(seconds: dict[str, float]) -> dict[str, float]:
    """The sums of Tempo's part and of JAX's."""
    return {
        "tempo": seconds["build"] + seconds["compile"],
        "jax": seconds["jax traces"] + seconds["jax lowers"],
        "xla": seconds["xla"],
    }


def measure(results: Results, name: str, wanted: float | None, build: Build) -> None:
    """Compile a program anew each turn, and report the median of every stage."""
    turns = [turn(build) for _ in range(results.options.turns)]
    cpu, wall = ({stage: statistics.median(each[k].get(stage, 0.0) for each in turns) for stage in turns[0][k]} for k in (0, 1))
    sizes = turns[0][2]
    say(f"\n{name}:" + ",".join(f" {part} {cpu[part]:.2f} ({wall[part]:.2f})" for part in wall))
    say("  " + ", ".join(f"{stage} {value:.3f}" for stage, value in cpu.items() if stage not in wall and value >= 0.0005))
    say("  " + ", ".join(f"{value} {what}" for what, value in sizes.items()))
    results.add(name, wanted=wanted, cpu_seconds=cpu, wall_seconds=wall, sizes=sizes)


def sizes_of(program: Any, executables: list[Any]) -> dict[str, int]:
    """Counts: nodes as written and after the passes, scheduled statements, XLA programs and their instructions."""
    statements = {line.strip() for line in program.text("program").splitlines()}
    lines = [line for executable in executables for line in executable.as_text().splitlines()]
    return {
        "nodes traced": len(list(program.source)),
        "nodes after the passes": len(list(program.graph)),
        "statements": sum(bool(line) and not line.endswith(":") for line in statements),
        "XLA programs": len(executables),
        "XLA instructions": sum(line.lstrip().startswith(("%", "ROOT %")) and " = " in line for line in lines),
    }


if __name__ == "__main__":
    main()
