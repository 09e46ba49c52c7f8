"""Any number of random programs against the reference: `python -m benchmarks.fuzz --programs 1000 --seed 7 --jobs 2`.

Each program is compiled with random options, run twice, and compared with the reference; gradients are compared with finite
differences. A failing program is made small and printed as a script. The coverage table at the end counts the language's
features in the programs. The exit code is 1 if a program failed.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.fuzz.checking import Outcome

EXECUTORS = ("staged", "numpy", "staged", "numpy", "staged", "interpreted", "staged", "staged", "numpy")  # by turns
OPTIMIZED = 5  # one program in five is compiled with all of XLA's optimizations, which cost most of the time (--optimized N)
LIMIT = 600.0  # the most CPU seconds of a program, all its runs and its shrinking together: XLA has compiled for hours
BATCH = 25  # programs per task


@dataclass
class Summary:
    """The outcomes of a batch of programs, or of all programs. Picklable."""

    kinds: Counter[str] = field(default_factory=Counter)
    features: Counter[str] = field(default_factory=Counter)
    refused_units: Counter[str] = field(default_factory=Counter)
    reports: list[str] = field(default_factory=list)
    executors: Counter[str] = field(default_factory=Counter)
    programs: int = 0

    def add(self, other: Summary) -> None:
        self.kinds += other.kinds
        self.features += other.features
        self.refused_units += other.refused_units
        self.reports += other.reports
        self.executors += other.executors
        self.programs += other.programs


def run_batch(
    first: int, count: int, size: int, executor: str, optimized: int = OPTIMIZED, only: str = "", grids: bool = False
) -> Summary:
    """Check the programs of the seeds `first, ..., first + count - 1`. Each seed that `optimized` divides has XLA's optimizations."""
    import jax

    from tests.fuzz.checking import check
    from tests.fuzz.choices import Seeded
    from tests.fuzz.generator import drawn

    summary = Summary()
    for seed in range(first, first + count):
        chosen = EXECUTORS[seed % len(EXECUTORS)] if executor == "all" else executor
        program, drawing = drawn(Seeded(seed), size, chosen, grids)
        jax.config.update("jax_disable_most_optimizations", seed % optimized != 0)
        with limited(seed):
            outcome = check(program, only)
        summary.programs += 1
        summary.executors[chosen] += 1
        summary.features.update(program.features)
        summary.refused_units.update(drawing.refused)
        summary.kinds[outcome.kind if not outcome.why or outcome.failed else f"{outcome.kind} ({outcome.why})"] += 1
        if outcome.failed:
            summary.reports.append(report(program, outcome, f"seed {seed}, {chosen}"))
    jax.clear_caches()
    return summary


@contextmanager
def limited(seed: int) -> Iterator[None]:
    """End this process if a program takes more than `LIMIT` CPU seconds: XLA's compiler can be ended in no other way."""
    start, is_done = time.process_time(), threading.Event()

    def watch() -> None:
        while not is_done.wait(5.0):
            if time.process_time() - start > LIMIT:
                print(f"seed {seed} takes more than {LIMIT:.0f} CPU seconds", file=sys.stderr, flush=True)
                os._exit(3)

    threading.Thread(target=watch, daemon=True).start()
    try:
        yield
    finally:
        is_done.set()


def report(program: object, first: Outcome, title: str) -> str:
    """A failing program, made small, as a script. A comment at its end says what went wrong."""
    from tests.fuzz.checking import broken_by, check
    from tests.fuzz.script import Program
    from tests.fuzz.shrinking import shrink

    assert isinstance(program, Program)
    outcome = check(program)
    if not outcome.failed:  # it depends on what ran before, so nothing can be left out
        return f"# -- {title}, not if checked again in the same process --\n{program.script()}\n{as_comment(first.why)}\n"
    symptom = outcome.error
    small = shrink(program, lambda candidate: check(candidate).error == symptom)
    try:
        name = broken_by(small)
        blame = f"the graph means something else after the pass {name!r}" if name else "every pass keeps the graph's meaning"
    except Exception as error:  # a graph that the reference cannot evaluate
        blame = f"the graph cannot be evaluated between passes: {type(error).__name__}: {error}"
    why = as_comment(f"{check(small).why}\n{blame}")
    return f"# -- {title} --\n{small.script()}\n{why}\n"


def as_comment(text: str) -> str:
    return "\n".join(f"# {line}" for line in text.splitlines())


def batches(options: argparse.Namespace) -> Iterator[tuple[int, int]]:
    for first in range(options.seed, options.seed + options.programs, BATCH):
        yield first, min(BATCH, options.seed + options.programs - first)


def _of_each(options: argparse.Namespace) -> tuple[int, str, int, str, bool]:
    return options.size, options.executor, options.optimized, options.only, options.grids


def results(options: argparse.Namespace, apart: bool = True) -> Iterator[Summary]:
    """The summaries of the batches, each when it is done, from processes of their own; unless `apart`, from this one."""
    if not apart:
        for first, count in batches(options):
            yield run_batch(first, count, *_of_each(options))
        return
    spawn = multiprocessing.get_context("spawn")  # JAX's threads do not survive a fork
    with ProcessPoolExecutor(options.jobs, mp_context=spawn, max_tasks_per_child=20) as pool:
        waiting: set[Future[Summary]] = set()
        for first, count in batches(options):
            waiting.add(pool.submit(run_batch, first, count, *_of_each(options)))
            if len(waiting) >= 2 * options.jobs:
                done, waiting = wait(waiting, return_when=FIRST_COMPLETED)
                yield from (future.result() for future in done)
        yield from (future.result() for future in waiting)


def arguments() -> argparse.ArgumentParser:
    """The options of the command, with their defaults."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--programs", type=int, default=200, help="the number of programs")
    parser.add_argument("--seed", type=int, default=0, help="the seed of the first program; the others have the next numbers")
    parser.add_argument("--size", type=int, default=8, help="the most units of a program")
    parser.add_argument("--jobs", type=int, default=1, help="the number of processes")
    parser.add_argument(
        "--executor", choices=("all", *sorted(set(EXECUTORS))), default="all", help="all: the executors take turns"
    )
    parser.add_argument(
        "--optimized", type=int, default=OPTIMIZED, metavar="N", help="one program in N has XLA's optimizations; 1: all of them"
    )
    parser.add_argument(
        "--only",
        choices=("values", "limits"),
        default="",
        help="values: of runs alone, twice as many programs in an hour; limits: each program under three limits of memory",
    )
    parser.add_argument(
        "--grids", action="store_true", help="each program ends with a grid of three steps or four, with bases, and its gradient"
    )
    parser.add_argument("--coverage", action="store_true", help="print the coverage table even for few programs")
    return parser


def main() -> int:
    options = arguments().parse_args()
    os.environ.setdefault("JAX_PLATFORMS", "cpu")
    os.environ.setdefault("TEMPO_VERIFY", "each")
    from tests.fuzz.coverage import table

    whole, start = Summary(), time.perf_counter()
    for part in results(options, apart=options.jobs > 1):
        whole.add(part)
        for text in part.reports:
            print(text, flush=True)
        seconds = time.perf_counter() - start
        shown = f"{whole.programs}/{options.programs} programs, {len(whole.reports)} failed, {seconds:.0f} s"
        print(shown, file=sys.stderr, end="\r" if sys.stderr.isatty() else "\n", flush=True)
    print(file=sys.stderr)
    if options.coverage or options.programs >= 200:
        print(table(whole.features, whole.programs))
        worst = ", ".join(f"{name} {count}" for name, count in whole.refused_units.most_common(10))
        print(f"units that Tempo refused while they were drawn, most often: {worst or 'none'}")
    kinds = ", ".join(f"{count} {kind}" for kind, count in whole.kinds.most_common())
    print(", ".join(f"{count} {name}" for name, count in whole.executors.most_common()))
    print(f"{kinds}; {time.perf_counter() - start:.0f} s")
    return 1 if whole.reports else 0


if __name__ == "__main__":
    sys.exit(main())
