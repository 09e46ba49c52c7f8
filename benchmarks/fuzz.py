"""Random programs for as long as one likes: `python -m benchmarks.fuzz --programs 1000 --seed 7`.

Each is compiled under random options and compared with the reference, and gradients with finite differences. A failing one
is made small and printed as a script. Exits with 1 if one failed.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from dataclasses import replace

from tests.fuzz.checking import broken_by, check, shrink
from tests.fuzz.generator import Program, draw_program

EXECUTORS = ("numpy", "staged", "interpreted")


def drawn(seed: int, size: int, executor: str) -> Program:
    """The program of a seed; the executor only changes its options."""
    staged = executor == "staged"
    program = draw_program(seed, size, staged)
    if executor == "interpreted":
        return replace(program, config=program.config.replace('backend="numpy"', 'executor="interpreted"'))
    return program


def _blame(program: Program) -> str:
    try:
        name = broken_by(program)
    except Exception as error:  # a graph that the reference cannot evaluate
        return f"the graph cannot be evaluated between passes: {type(error).__name__}\n"
    return f"the graph means something else after the pass {name!r}\n" if name else "every pass keeps the graph's meaning\n"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--programs", type=int, default=200, help="how many")
    parser.add_argument("--seed", type=int, default=0, help="of the first; the others follow")
    parser.add_argument("--size", type=int, default=8, help="units of a program, at most")
    parser.add_argument("--executor", choices=(*EXECUTORS, "all"), default="all", help="all: one after the other")
    options = parser.parse_args()
    found: Counter[str] = Counter()
    start = time.perf_counter()
    for seed in range(options.seed, options.seed + options.programs):
        executor = EXECUTORS[seed % len(EXECUTORS)] if options.executor == "all" else options.executor
        program = drawn(seed, options.size, executor)
        outcome = check(program)
        found[outcome.kind if not outcome.why or outcome.failed else f"{outcome.kind} ({outcome.why})"] += 1
        if outcome.failed:
            small = shrink(program, lambda candidate: check(candidate).failed)
            print(f"# -- seed {seed}, {executor} --\n{small.script()}\n'''\n{check(small).why}{_blame(small)}'''\n", flush=True)
    summary = ", ".join(f"{count} {kind}" for kind, count in found.most_common())
    print(f"{summary}; {time.perf_counter() - start:.0f} s", file=sys.stderr)
    return 1 if found["failed"] else 0


if __name__ == "__main__":
    sys.exit(main())
