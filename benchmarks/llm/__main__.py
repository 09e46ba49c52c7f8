"""Language models: Tempo and other systems in turn, in one run. Random weights, the same for all; no model is downloaded.

Each system is a process that lives as long as its model is needed, and the coordinating process asks one after the other: A B A B. Systems:
tempo; the same by hand in JAX, padded and tiled; transformers; llama.cpp; mlx-lm. What is not installed is a line that says what to install.
A system may have a Python of its own: `--python transformers=/path/to/python`.

- decode: milliseconds a token, of tokens around position t; the prompt before them is not timed. On a busy machine look at the
  milliseconds of processors, of all threads together: they are recorded too
- first token: milliseconds from a prompt to the token after it
- memory: megabytes of resident memory at the peak of a process of its own, over what it had before it loaded the model
- the second start of the tiny model that comes with the package, through the command line (`benchmarks/second_start.py`)

    python -m benchmarks.llm [--rows 1,4] [--positions 100,1000] [--peers jax,mlx] [--dtype float32] [--quick] [--record]
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import groupby
from pathlib import Path
from typing import Any

from benchmarks import second_start
from benchmarks.common import Results, arguments, compared, say, show
from benchmarks.llm.cases import FULL, QUICK, Case, Sizes
from benchmarks.llm.models import random_prompts, write_models
from benchmarks.llm.process import Limits, Refused, Worker
from benchmarks.llm.systems import DTYPES, SYSTEMS

ROOT = Path(__file__).resolve().parents[2]
OURS = next(iter(SYSTEMS))
GROUPS = {"jax": ("jax-padded", "jax-tiled")}  # names for several systems
LONGEST = 60.0  # seconds of all turns of a side: slower work has fewer turns, at least one


def main() -> None:
    options = arguments(__doc__ or "", add_options)
    sizes = chosen_sizes(options)
    if options.record:
        options.out = options.out or ROOT / "benchmarks" / "results" / f"llm-{machine_name()}.json"
    results = Results("llm", options)
    bench = Bench(results, sizes, chosen_systems(options.peers), options.python, Limits(options.seconds, options.memory))
    with tempfile.TemporaryDirectory() as folder:
        bench.run(Path(folder), [case for case in sizes.cases() if results.selects(case.name)])
    if results.selects(second_start.COMMAND):
        second_start.compare(results, second_start.COMMAND)
    say(table(results.cases, bench.systems))
    earlier = next((case["systems"] for case in results.kept if case["case"] == "versions"), {})
    results.add("versions", systems={**earlier, **bench.versions})
    results.finish()


def add_options(parser: argparse.ArgumentParser) -> None:
    def numbers(text: str) -> tuple[int, ...]:
        return tuple(int(number) for number in text.split(","))

    def pair(text: str) -> tuple[str, str]:
        system, sign, path = text.partition("=")
        if not sign or system not in SYSTEMS:
            raise argparse.ArgumentTypeError(f"{text}: write SYSTEM=PATH, with a SYSTEM of {', '.join(SYSTEMS)}")
        return system, path

    parser.add_argument("--model", default="", metavar="SIZE", help="the model's size, of benchmarks.decode [100M; quick: tiny]")
    parser.add_argument("--rows", type=numbers, metavar="N,...", help="rows that are decoded together [1,4]")
    parser.add_argument(
        "--positions", type=numbers, metavar="N,...", help="positions around which tokens are timed [100,1000,2000]"
    )
    parser.add_argument(
        "--prompts", type=numbers, metavar="N,...", help="lengths of prompts, for the first token [512,2000,8000]"
    )
    parser.add_argument("--windows", type=numbers, metavar="N,...", help="positions that each token attends to; 0 is all [0,256]")
    parser.add_argument("--dtype", default="", metavar="NAME,...", help=f"of the weights [{','.join(DTYPES)}]")
    parser.add_argument(
        "--peers", default=",".join(list(SYSTEMS)[1:]), metavar="NAME,...", help="[%(default)s]; jax is both of JAX"
    )
    parser.add_argument(
        "--python", type=pair, action="append", default=[], metavar="SYSTEM=PATH", help="the interpreter of a system"
    )
    parser.add_argument("--seconds", type=float, default=600, help="of one answer of a system [600]")
    parser.add_argument(
        "--memory", type=float, default=_memory_gib() * 0.6, help="GiB that a system may hold [0.6 of the machine's]"
    )
    parser.add_argument("--record", action="store_true", help="write the file in benchmarks/results/")


def chosen_sizes(options: argparse.Namespace) -> Sizes:
    """The sizes of the options. Ends the program for a dtype that no system has, and for an unknown model."""
    from benchmarks.decode import SIZES

    chosen = {name: getattr(options, name) for name in ("model", "rows", "positions", "prompts", "windows")}
    if options.model and options.model not in SIZES:
        raise SystemExit(f"--model {options.model}: the models are {', '.join(SIZES)}")
    dtypes = tuple(filter(None, options.dtype.split(",")))
    for dtype in dtypes:
        if dtype not in DTYPES:
            raise SystemExit(f"--dtype {dtype}: the dtypes are {', '.join(DTYPES)}")
    sizes = replace(QUICK if options.quick else FULL, **{name: value for name, value in chosen.items() if value})
    return replace(sizes, dtypes=dtypes) if dtypes else sizes


def chosen_systems(peers: str) -> list[str]:
    """Ours and the peers. Ends the program for a name that is none."""
    names = [OURS, *(name for peer in filter(None, peers.split(",")) for name in GROUPS.get(peer, (peer,)))]
    for name in names:
        if name not in SYSTEMS:
            raise SystemExit(f"--peers {name}: the peers are {', '.join([*GROUPS, *list(SYSTEMS)[1:]])}")
    return list(dict.fromkeys(names))


class Bench:
    """Runs cases, with a worker for each system; a case whose model is another one has other workers."""

    def __init__(self, results: Results, sizes: Sizes, systems: list[str], pythons: Sequence[tuple[str, str]], limits: Limits):
        self.results, self.sizes, self.systems, self.limits = results, sizes, systems, limits
        self.pythons = dict(pythons)
        self.versions: dict[str, dict[str, str]] = {}
        self.workers: dict[str, Worker] = {}
        self.said: set[tuple[str, str]] = set()  # reasons that were printed
        self.refused: dict[str, str] = {}  # by system: why it has no figures for the present model

    def run(self, folder: Path, cases: list[Case]) -> None:
        directories = write_models(folder, self.sizes.model, self.sizes.windows)
        for _, group in groupby(cases, lambda case: (case.dtype, case.window)):
            self.refused = {}
            each = list(group)
            for case in each:
                if case.kind != "memory":
                    self.timed(case, directories[case.window])
            self._stop()
            for case in each:
                if case.kind == "memory":
                    self.measured(case, directories[case.window])
        self._stop()

    def timed(self, case: Case, directory: Path) -> None:
        """Milliseconds of each system, in turn."""
        turns = self.results.options.turns
        launches = turns + 2  # the first may compile, and so may the last, which ends the run and is not waited for
        count = max((self.sizes.tokens - 2) // launches, 1) if case.kind == "decode" else 0
        prompt = max(case.position - self.sizes.tokens // 2, 1) if case.kind == "decode" else case.position
        first = {"what": "start", "prompts": self._prompts(case.rows, prompt), "count": count, "times": launches if count else 0}
        each_turn: dict[str, Any] = {"what": "advance", "count": count} if count else first
        refusals: dict[str, str] = {}
        tokens: dict[str, list[list[int]]] = {}
        cpu: dict[str, float] = {}  # the least seconds of a turn

        def each(request: dict[str, Any], sides: Sequence[str]) -> dict[str, float]:
            """The seconds of the systems that did it."""
            seconds = {}
            for side in sides:
                try:
                    answer = self._worker(side, case, directory).ask(**request)
                except Refused as refusal:
                    self._note(side, refusal, refusals)
                else:
                    seconds[side] = answer["seconds"]
                    cpu[side] = min(cpu.get(side, float("inf")), answer["cpu_seconds"])
                    tokens[side] = [a + b for a, b in zip(tokens.get(side, [[]] * case.rows), answer["tokens"], strict=True)]
            return seconds

        warm = each(first, self.systems)  # compiles
        warm = each(each_turn, list(warm))  # a first turn, which may compile too
        turns = max(1, min(turns, int(LONGEST / max([*warm.values(), 1e-9]))))
        cpu.clear()
        seconds: dict[str, list[float]] = {side: [] for side in warm}
        for _ in range(turns):
            for side, one in each(each_turn, [side for side in seconds if side not in refusals]).items():
                seconds[side].append(one)
        seconds = {side: runs for side, runs in seconds.items() if len(runs) == turns}
        figures = compared(seconds, max(count, 1), 1e3) if seconds else {}
        if figures:
            show(case.name, figures, case.unit)
        reference = next(iter(figures), "")
        same = {side: _same(tokens[side], tokens[reference]) for side in figures if side != reference}
        for side, share in same.items():
            say(f"  {side}: {share:.0%} of the tokens are those of {reference}")
        cpu_ms = {side: cpu[side] / max(count, 1) * 1e3 for side in figures}
        say("  of processors, least: " + ", ".join(f"{side} {ms:.4g}" for side, ms in cpu_ms.items()))
        self._add(case, {"ms_per_token" if count else "ms": figures}, refusals, least_cpu_ms=cpu_ms, same_tokens=same)

    def measured(self, case: Case, directory: Path) -> None:
        """Bytes at the peak of each system, in a process of its own: the prompt, and a few tokens."""
        figures: dict[str, dict[str, int]] = {}
        refusals: dict[str, str] = {}
        prompts = self._prompts(case.rows, max(case.position - self.sizes.tokens // 2, 1))
        for side in self.systems:
            try:
                worker = self._worker(side, case, directory)
                worker.ask("start", prompts=prompts, count=4, times=1)
                worker.ask("advance", count=4)
                figures[side] = worker.ask("memory")
            except Refused as refusal:
                self._note(side, refusal, refusals)
            finally:
                self._stop()
        for side, each in figures.items():
            say(f"{case.name}: {side} {each['peak'] / 1e6:.0f} MB, {each['loading'] / 1e6:.0f} of them to load the model")
        self._add(case, {"bytes": figures}, refusals)

    # -- workers ------------------------------------------------------------------------------------------------------

    def _prompts(self, rows: int, tokens: int) -> list[list[int]]:
        from benchmarks.decode import SIZES

        return random_prompts(SIZES[self.sizes.model]["vocab_size"], rows, tokens)

    def _worker(self, side: str, case: Case, directory: Path) -> Worker:
        """The worker of a system, which is started if there is none. Raises Refused."""
        if side in self.refused:
            raise Refused(self.refused[side], is_final=True)
        if side not in self.workers:
            python = self.pythons.get(side, sys.executable)
            self.workers[side] = Worker(side, directory, case.dtype, case.window, self.limits, python)
            self.versions[side] = self.workers[side].versions
        return self.workers[side]

    def _note(self, side: str, refusal: Refused, refusals: dict[str, str]) -> None:
        """Keep why a system has no figure. A worker that ended gives its place to a new one."""
        refusals[side] = str(refusal)
        if refusal.is_final:
            self.refused[side] = str(refusal)
        if side in self.workers and not self.workers[side].alive:
            self.workers.pop(side).stop()

    def _stop(self) -> None:
        for worker in self.workers.values():
            worker.stop()
        self.workers = {}

    def _add(self, case: Case, figures: Mapping[str, Any], refusals: Mapping[str, str], **more: Any) -> None:
        for side, reason in refusals.items():
            if (side, reason) not in self.said:
                self.said.add((side, reason))
                self.results.skip(f"{SYSTEMS[side].title}: {reason} (first at {case.name})")
        sizes = {"rows": case.rows, "position": case.position, "window": case.window, "dtype": case.dtype}
        self.results.add(case.name, **sizes, **figures, **more, refused=dict(refusals))
        self.results.save()


def _same(tokens: list[list[int]], others: list[list[int]]) -> float:
    """The share of equal tokens."""
    pairs = [a == b for row, other in zip(tokens, others, strict=True) for a, b in zip(row, other, strict=False)]
    return sum(pairs) / max(len(pairs), 1)


# -- the table ---------------------------------------------------------------------------------------------------------


def table(cases: Sequence[Mapping[str, Any]], systems: Sequence[str]) -> str:
    """A row for each case, a column for each system: its figure, and in brackets ours divided by it. Below 1, ours is less."""
    lines = [["", *(SYSTEMS[system].title for system in systems)]]
    for case in cases:
        key = next((key for key in FIGURES if key in case), None)
        if key is None:
            continue
        values = {side: FIGURES[key](figure) for side, figure in case[key].items()}
        cells = []
        for side in systems:
            ratio = f" ({values[OURS] / values[side]:.2f})" if side != OURS and {side, OURS} <= values.keys() else ""
            cells.append(f"{values[side]:.4g}{ratio}" if side in values else case["refused"].get(side, "-").partition(":")[0])
        lines.append([f"{case['case']}, {UNITS[key]}", *cells])
    widths = [max(len(line[column]) for line in lines) for column in range(len(lines[0]))]
    return "\n" + "\n".join("  ".join(cell.rjust(width) for cell, width in zip(line, widths, strict=True)) for line in lines)


FIGURES: dict[str, Callable[[Any], float]] = {  # by the key of a case: the figure of a side
    "ms_per_token": lambda figure: figure["median"],
    "ms": lambda figure: figure["median"],
    "bytes": lambda figure: figure["peak"] / 1e6,
}
UNITS = {"ms_per_token": "ms/token", "ms": "ms", "bytes": "MB"}


def machine_name() -> str:
    """As in the names of the files in benchmarks/results/."""
    number = os.cpu_count() or 1
    words = {1: "one", 2: "two", 4: "four", 8: "eight", 16: "sixteen"}
    return f"{words.get(number, number)}-core-cpu"


def _memory_gib() -> float:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30


if __name__ == "__main__":
    main()
