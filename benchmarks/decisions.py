"""docs/decisions.md: the cost model, and what the compiler decides for five programs. Nothing is run or timed.

python -m benchmarks.decisions [--write]
"""

from __future__ import annotations

import argparse
import re
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

PAGE = Path(__file__).resolve().parent.parent / "docs" / "decisions.md"
Compile = Callable[[Any], Any]  # from a Config to a program

HEAD = """# What the compiler decides

This page is generated: `python -m benchmarks.decisions --write`. Nothing on it is measured; `benchmarks/results/` has what is.

## The cost model

`program.cost()` counts operations, bytes and executions of every statement. `tp.Target` has the constants of a device, and makes a time of
them: a statement that runs n times takes

    n * (operation + max(work, bytes / bandwidth))

with the bandwidth of the cache if what one execution moves fits there, else that of memory. The work is that of products, of dear functions
(`exp`) and scans, and of other operations, each at its own rate. Each launch has a price of its own, and so has memory that an allocator does
not keep from run to run. The *roofline* is
the least time of all operations, and of the bytes of all stores. It leaves out what a compiler of loops cannot know: which operations XLA makes
one, and how well it uses vector instructions. So it tells which of two forms is better where they differ by much, and the rules of
`tempo_core/prices.py`, each with its unit and reason, decide the rest.

The constants are fixed for a kind of device, so that the same program is compiled alike everywhere; `tempo-rl doctor --calibrate --out
machine.json` measures them, and `TEMPO_MACHINE=machine.json` uses what was measured. Those of a CPU:

"""


def page() -> str:
    """The whole page."""
    import tempo_core as tp

    cpu = tp.Target.named("cpu")
    text = HEAD + "\n".join(f"    {line}" for line in str(cpu).splitlines()) + "\n"
    for name, (about, compiled) in PROGRAMS.items():
        text += f"\n## {name}\n\n{about}\n\n" + section(compiled, cpu)
    return text


def section(compiled: Compile, machine: Any) -> str:
    """What was decided for a program, and what the model says of it with and without each decision that changes it."""
    import tempo_core as tp
    from benchmarks.variants import DECISIONS

    chosen = compiled(tp.Config())
    rows = [("as it is compiled", *figures(chosen, machine))]
    for off in DECISIONS:
        variant = compiled(tp.Config(disable=(off,)))
        row = figures(variant, machine)
        if row != rows[0][1:]:
            rows.append((f"without `{off}`", *row))
    lines = ["| | the model's time | stores | device programs |", "| --- | --- | --- | --- |"]
    lines += [f"| {' | '.join(row)} |" for row in rows]
    cost = chosen.cost()
    least = machine.roofline(float(cost.numbers["operations"]), float(cost.numbers["stores"]))
    lines += ["", f"The roofline is {milliseconds(least)}. What passes noted, and of how many operations:", ""]
    lines += [f"- {text}" + (f" ({count} operations)" if count > 1 else "") for text, count in reasons(chosen)]
    return "\n".join(lines) + "\n"


def figures(program: Any, machine: Any) -> tuple[str, str, str]:
    cost, plan = program.cost(), program.plan()
    seconds = machine.seconds(cost, len(plan.device_programs))
    return milliseconds(seconds), f"{float(cost.numbers['stores']) / 1e6:,.2f} MB", str(len(plan.device_programs))


def milliseconds(seconds: float) -> str:
    return f"{seconds * 1e3:,.3g} ms"


def reasons(program: Any) -> Iterator[tuple[str, int]]:
    """The decisions that `explain` tells, without the places where operations end up; the most frequent first."""
    told: Counter[str] = Counter()
    for line in program.explain().splitlines():
        text = line.strip()
        if line.startswith("    ") and not re.match(
            r"(runs as|kept in|used only|fed to|read by|called on|not computed|in parts)", text
        ):
            told[re.sub(r" ?\([\w./]+\.py:[\d-]+\)", "", text)] += 1
    yield from sorted(told.items(), key=lambda item: (-item[1], item[0]))[:12]


# -- the programs -----------------------------------------------------------------------------------------------------


def _recipe(name: str, envs: int, steps: int, *settings: str) -> Compile:
    def compiled(config: Any) -> Any:
        from benchmarks.ppo import LastMetrics, recipe_of
        from tempo_rl.agents import build_agent

        agent = build_agent(recipe_of(name, envs, steps, 4, list(settings)), LastMetrics())
        return agent.compile(config)

    return compiled


def _decoding(config: Any) -> Any:
    from benchmarks.decode import llama_config
    from tempo_llm.attention import Attention
    from tempo_llm.llama import trace_decoder

    llama = llama_config("5M")
    decoder = trace_decoder(llama, Attention())
    return decoder.context.compile(decoder.bounds(8, 512), decoder.outputs, config)


def _classic(name: str) -> Compile:
    def compiled(config: Any) -> Any:
        from benchmarks.classics.table import load

        classic = load()[name]
        traced = classic.program(**classic.sizes["full"])
        return traced.context.compile(traced.bounds, traced.outputs, config)

    return compiled


PROGRAMS: dict[str, tuple[str, Compile]] = {
    "PPO": (
        "`recipes/ppo_micro.yaml`, 512 environments and 250 steps, one update on the whole batch, 4 iterations.",
        _recipe("ppo_micro", 512, 250),
    ),
    "REINFORCE": (
        "`recipes/reinforce.yaml` with its environments in JAX, 8 environments and 250 steps, 4 iterations.",
        _recipe("reinforce", 8, 250, "env.id=phys2d/CartPole-v1"),
    ),
    "Decoding": ("A Llama of 5M parameters, one row of up to 512 positions, of which up to 128 are a prompt.", _decoding),
    "A wave": ("The wave equation on a grid, with its gradient (`benchmarks/classics/stencils.py`).", _classic("wave")),
    "Edit distance": ("A table over two steps (`benchmarks/classics/alignment.py`).", _classic("edit distance")),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true", help="write docs/decisions.md")
    options = parser.parse_args()
    text = page()
    if options.write:
        PAGE.write_text(text, encoding="utf-8")
    else:
        print(text)


if __name__ == "__main__":
    main()
