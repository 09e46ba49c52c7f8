"""The seconds of compiling, stage by stage: tracing, each pass, scheduling, XLA; and the sizes of the programs.

python -m benchmarks.compile_time [--quick] [--out FILE]
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any

from benchmarks.common import Results, arguments, say

RECIPES = [("REINFORCE", "reinforce"), ("PPO, environment in JAX", "ppo_functional"), ("PPO, environment on the host", "ppo")]
SMALL = {"num_envs": 4, "num_steps": 8}  # sizes of --quick, whose programs run too; sizes hardly change the times of compiling


def main() -> None:
    options = arguments(__doc__ or "")
    results = Results("compile_time", options)
    for name, recipe in RECIPES:
        if results.selects(name):
            measure(results, name, lambda recipe=recipe: trained(recipe, options.quick))
    if results.selects("decode"):
        measure(results, "decode", lambda: decoded("tiny" if options.quick else "5M", 16 if options.quick else 256))
    for name, make in hard_programs(4 if options.quick else 8).items():
        if results.selects(name):
            measure(results, name, lambda make=make: traced(make))
    results.finish()


def hard_programs(count: int) -> dict[str, Callable[[], Any]]:
    """Programs of `benchmarks.compile_programs`, each with its gradient: branches, and layers that alternate or are stacked."""
    from benchmarks import compile_programs as programs

    cases: dict[str, Callable[[], Any]] = {
        f"{count} branches, {name}": lambda name=name: programs.branches(name, count) for name in programs.CONDITIONS
    }
    cases[f"{2 * count} layers, alternating"] = lambda: programs.alternating(2 * count)
    cases[f"{2 * count} layers, stacked"] = lambda: programs.stacked(2 * count)
    return cases


def traced(make: Callable[[], Any]) -> tuple[dict[str, float], Any]:
    """Seconds of each stage, and the program after one run on zeros."""
    import numpy as np

    start = time.perf_counter()
    example = make()
    end_of_trace = time.perf_counter()
    program = example.context.compile(example.bounds, example.outputs)
    compiled = time.perf_counter()
    numbers = program.bounds
    fed = {}
    for node in program.source.inputs():
        sizes = (*(step.bound_expr for step in node.domain.steps), *node.outputs[0].shape)
        fed[node.op.name] = np.zeros([size.evaluate(numbers) for size in sizes], "float32")
    program.run(fed)
    return stages(program, end_of_trace - start, compiled - end_of_trace), program


def trained(name: str, quick: bool) -> tuple[dict[str, float], Any]:
    """Seconds of each stage, and the program of a recipe after two iterations."""
    from benchmarks.ppo import LastMetrics
    from tempo_rl.agents import build_agent
    from tempo_rl.recipe import load_recipe
    from tempo_rl.train import compile_config

    sizes = SMALL if quick else {}
    recipe = load_recipe(name, [f"{key}={value}" for key, value in sizes.items()])
    recipe = load_recipe(
        name, [*(f"{k}={v}" for k, v in sizes.items()), f"total_timesteps={2 * recipe.num_envs * recipe.num_steps}"]
    )
    start = time.perf_counter()
    agent = build_agent(recipe, LastMetrics())
    traced = time.perf_counter()
    program = agent.compile(compile_config(recipe))
    compiled = time.perf_counter()
    program.run({})
    agent.environment.close()
    return stages(program, traced - start, compiled - traced), program


def decoded(size: str, length: int) -> tuple[dict[str, float], Any]:
    """Seconds of each stage, and the decoding program of a random Llama after one run."""
    import numpy as np

    import tempo_core as tp
    from benchmarks.decode import random_model
    from tempo_llm.attention import Attention
    from tempo_llm.llama import trace_decoder

    config, weights = random_model(size)
    start = time.perf_counter()
    decoder = trace_decoder(config, Attention(), sampled=False, tied=False)
    traced = time.perf_counter()
    bounds = {decoder.rows: 1, decoder.length: length, decoder.layers: config.num_hidden_layers}
    program = decoder.context.compile(bounds, outputs=[decoder.token], config=tp.Config())
    compiled = time.perf_counter()
    program.run({**weights, "prompt": np.ones((1, length), np.int32), "prompt_length": np.ones(1, np.int32)})
    return stages(program, traced - start, compiled - traced), program


def stages(program: Any, traced: float, compiled: float) -> dict[str, float]:
    """Seconds by stage. `verify` is the time of Tempo's compiler outside of its stages: nearly all of it is checks after passes."""
    tempo_stages = dict(program.timing)
    xla = program.compile_seconds - sum(tempo_stages.values())
    return {"trace": traced, **tempo_stages, "verify": compiled - sum(tempo_stages.values()), "xla": xla}


def measure(results: Results, name: str, make: Callable[[], tuple[dict[str, float], Any]]) -> None:
    """Compile a program anew each turn, and report the median of every stage."""
    turns, program = [], None
    for _ in range(results.options.turns):
        stage_seconds, program = make()
        turns.append(stage_seconds)
    seconds = {stage: statistics.median(turn[stage] for turn in turns) for stage in turns[0]}
    sizes = sizes_of(program)
    say(f"\n{name}: {sum(seconds.values()):.2f} s")
    say("  " + ", ".join(f"{stage} {value:.2f}" for stage, value in seconds.items()) + " s")
    say("  " + ", ".join(f"{value} {what}" for what, value in sizes.items()))
    results.add(name, seconds=seconds, total_seconds=sum(seconds.values()), sizes=sizes)


def sizes_of(program: Any) -> dict[str, int]:
    """Counts: nodes as written and after the passes, scheduled statements, XLA programs and their instructions."""
    statements = {line.strip() for line in program.text("program").splitlines()}
    statements = {line for line in statements if line and not line.endswith(":")}
    compiled = [segment.compiled for segment in program._staged.segments if segment.compiled is not None]
    texts = [executable.as_text() for executable in compiled]
    return {
        "nodes traced": len(list(program.source)),
        "nodes after the passes": len(list(program.graph)),
        "statements": len(statements),
        "XLA programs": program.compiles,
        "XLA instructions": sum(
            line.lstrip().startswith(("%", "ROOT %")) and " = " in line for t in texts for line in t.splitlines()
        ),
    }


if __name__ == "__main__":
    main()
