"""Which functions of the core act in programs that people write: in how many programs any line of each function runs.

The programs are the classics (tiny ones run, full ones are compiled and traced), those of the ledger, the recipes of tempo_rl, and the
tests of what is asked for by an option: memory of the host, limits of memory, checkpoints, saved runs. A function that acts in none of
them, and neither is an option's nor makes an error, is a candidate to go; one that acts in one to three needs a reason.

    python3.13 -m benchmarks.reach [--only NAME] [--least N] [--out FILE]   run the programs, print functions of at least N lines
    python -m benchmarks.reach --recorded                                   what was recorded last, of functions that are still there

Functions are those of modules and classes; what is inside of one belongs to it. Their lines are those of the source without docstrings.
Recording needs Python 3.12 or later (`sys.monitoring`).
"""

from __future__ import annotations

import argparse
import ast
import json
import os
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import CodeType
from typing import Any

from benchmarks.common import Results, arguments, say

ROOT = Path(__file__).resolve().parent.parent
CORE = ROOT / "tempo_core"
RECORD = ROOT / "benchmarks/results/reach.json"
ROOMS = ("passes", "ir/ranges", "frontend/autodiff", "schedule", "runtime/lower", "backends/xla_cpu")  # what the compiler decides
OPTIONS = (  # tests of what is asked for by an option, each file as one program
    "tests/core/runtime/test_host_stores.py",
    "tests/core/runtime/test_memory.py",
    "tests/core/runtime/test_live.py",
    "tests/core/runtime/test_run_bounds.py",
    "tests/core/passes/test_checkpoint.py",
)
SMALL = ("num_envs=4", "num_steps=8", "total_timesteps=64")


@dataclass(frozen=True)
class Function:
    """A function of a module or class: its file from the core on, its name in the file, its lines, and whether it only makes an error."""

    file: str
    name: str
    first: int
    last: int
    lines: int
    is_error: bool

    @property
    def room(self) -> str:
        """The room that it is in, of `ROOMS`; empty for the others."""
        return next((room for room in ROOMS if self.file.startswith(f"{room}/")), "")

    def __str__(self) -> str:
        return f"{self.file}: {self.name}"


def functions(source: str, file: str = "") -> list[Function]:
    """The functions of a module and of its classes.

    >>> [(f.name, f.lines) for f in functions("class A:\\n    def b(self):\\n        '''Doc.'''\\n        return 1\\n")]
    [('A.b', 2)]
    """
    found = []

    def visit(node: ast.AST, prefix: str) -> None:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.ClassDef):
                visit(child, f"{prefix}{child.name}.")
            elif isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
                found.append(_function(child, prefix, file))
            elif isinstance(child, ast.If | ast.Try):
                visit(child, prefix)

    visit(ast.parse(source), "")
    return found


def _function(node: ast.FunctionDef | ast.AsyncFunctionDef, prefix: str, file: str) -> Function:
    head, last = node.body[0], node.end_lineno or node.lineno
    doc = ast.get_docstring(node, clean=False) is not None
    lines = last - node.lineno + 1 - (doc and (head.end_lineno or 0) - head.lineno + 1)
    returned = ast.unparse(node.returns) if node.returns else ""
    is_error = isinstance(node.body[-1], ast.Raise) or returned.endswith(("Error", "NoReturn"))
    first = min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])
    return Function(file, prefix + node.name, first, last, lines, is_error)


def of_core() -> list[Function]:
    """All functions of the core with a body of their own: without overloads and protocols."""
    files = sorted(CORE.rglob("*.py"))
    return [
        function
        for path in files
        for function in functions(path.read_text(encoding="utf-8"), path.relative_to(CORE).as_posix())
        if function.lines > 1
    ]


class Watch:
    """Which functions run: each code object is seen once a program, and costs nothing after that."""

    def __init__(self, known: list[Function]) -> None:
        if sys.version_info < (3, 12):
            raise SystemExit("recording needs Python 3.12 or later (sys.monitoring); --recorded prints what was recorded")
        self.by_file: dict[str, list[Function]] = {}
        for function in known:
            self.by_file.setdefault(str(CORE / function.file), []).append(function)
        self.codes: set[CodeType] = set()
        monitoring: Any = sys.monitoring  # type: ignore[attr-defined, unused-ignore]
        self.monitoring = monitoring
        monitoring.use_tool_id(monitoring.COVERAGE_ID, "benchmarks.reach")
        monitoring.register_callback(monitoring.COVERAGE_ID, monitoring.events.PY_START, self._started)
        monitoring.set_events(monitoring.COVERAGE_ID, monitoring.events.PY_START)

    def _started(self, code: CodeType, offset: int) -> Any:
        if code.co_filename in self.by_file:
            self.codes.add(code)
        return self.monitoring.DISABLE

    def run(self, program: Callable[[], object]) -> set[Function]:
        """The functions that a program runs."""
        from benchmarks.compile_time import empty_caches

        empty_caches()  # what an earlier program computed is computed again
        self.monitoring.restart_events()
        self.codes.clear()
        program()
        return {function for code in list(self.codes) if (function := self._around(code))}

    def _around(self, code: CodeType) -> Function | None:
        functions = self.by_file[code.co_filename]
        return next((f for f in functions if f.first <= code.co_firstlineno <= f.last), None)


def programs() -> Iterator[tuple[str, Callable[[], object]]]:
    """By name, what runs or compiles each program."""
    import pytest

    from benchmarks.classics.table import load
    from benchmarks.ledger.programs import PROGRAMS
    from tempo_rl.recipe import shipped_recipes

    for name, classic in load().items():
        for size in ("tiny", "full"):
            yield f"classic, {size}: {name}", lambda classic=classic, size=size: _classic(classic, size)
    for name, build in PROGRAMS.items():
        yield f"ledger: {name}", lambda build=build: traced(build())
    for name, path in shipped_recipes().items():
        if "algorithm:" in path.read_text(encoding="utf-8"):
            yield f"recipe: {name}", lambda name=name: _recipe(name)
    for file in OPTIONS:
        yield f"tests: {file}", lambda file=file: pytest.main(["-q", "-p", "no:cacheprovider", "-m", "", str(ROOT / file)])


def _classic(classic: Any, size: str) -> None:
    if not hasattr(classic, "program"):  # of the libraries
        if size == "tiny":
            classic.sides(size).tempo()
        return
    program = classic.program(**classic.sizes[size]).compile()
    if size == "tiny":
        program.run(classic.fed(size))
    else:
        traced(program)


def _recipe(name: str) -> None:
    from benchmarks.ppo import LastMetrics
    from tempo_rl.agents import build_agent
    from tempo_rl.recipe import load_recipe
    from tempo_rl.train import compile_config

    recipe = load_recipe(name, [*SMALL, "device=cpu"])
    agent = build_agent(recipe, LastMetrics())
    program = agent.compile(compile_config(recipe))
    agent.environment.close()
    traced(program)


def traced(program: Any) -> None:
    """Lower all parts of a program, without XLA."""
    import jax

    staged = program._staged
    for segment in staged.segments if staged is not None else ():
        jax.jit(staged._function(segment), donate_argnums=0).trace(*staged._expected(segment))


def shares(known: list[Function], counts: Mapping[str, int]) -> list[tuple[str, int, list[int]]]:
    """For each room and for all: lines of functions, and those that act in none, in one to three, in four to seven programs."""
    rows = []
    for room in (*ROOMS, "all of these"):
        inside = [f for f in known if f.room and room in (f.room, "all of these")]
        spans = [(0, 0), (1, 3), (4, 7)]
        parts = [sum(f.lines for f in inside if least <= counts.get(str(f), 0) <= most) for least, most in spans]
        rows.append((room, sum(f.lines for f in inside), parts))
    return rows


def show(known: list[Function], counts: Mapping[str, int], by: Mapping[str, list[str]], least: int) -> None:
    say(f"{'room':20} {'lines':>7} {'in none':>14} {'in 1 to 3':>14} {'in 4 to 7':>14}")
    for room, lines, parts in shares(known, counts):
        say(f"{room:20} {lines:7}" + "".join(f"{part:7} {part / max(1, lines):6.1%}" for part in parts))
    idle = [f for f in known if f.room and not counts.get(str(f), 0) and f.lines >= least and not f.is_error]
    say(f"\nin none, without errors ({sum(f.lines for f in idle)} lines of functions of at least {least}):")
    for function in sorted(idle, key=lambda f: (f.file, f.first)):
        say(f"  {function.lines:4}  {function}")
    rare = [f for f in known if f.room and 1 <= counts.get(str(f), 0) <= 3 and f.lines >= max(least, 8)]
    say(f"\nin one to three, of at least {max(least, 8)} lines ({sum(f.lines for f in rare)}):")
    for function in sorted(rare, key=lambda f: (f.file, f.first)):
        say(f"  {function.lines:4}  {function}: {'; '.join(by.get(str(function), []))}")


def main() -> None:
    options = arguments(__doc__ or "", add_options)
    known = of_core()
    if options.recorded:
        (case,) = json.loads(RECORD.read_text(encoding="utf-8"))["cases"]
        show(known, case["counts"], case["rare"], options.least)
        return
    os.environ["TEMPO_CACHE"] = "off"
    watch, counts, by, failed = Watch(known), dict.fromkeys(map(str, known), 0), {}, []
    results = Results("reach", options)
    ran = 0
    for name, program in programs():
        if not results.selects(name):
            continue
        try:
            reached = {str(function) for function in watch.run(program)}
        except Exception as error:  # a recipe whose libraries are not installed
            failed.append(name)
            say(f"{name}: {''.join(traceback.format_exception_only(error)).strip().splitlines()[0]}")
            continue
        ran += 1
        for function in reached:
            counts[function] += 1
            by.setdefault(function, []).append(name)
    say(f"{ran} programs; {len(failed)} did not run\n")
    rare = {function: names for function, names in by.items() if len(names) <= 3}
    show(known, counts, rare, options.least)
    inside = {str(function) for function in known if function.room}
    counts, rare = ({name: each[name] for name in sorted(each) if name in inside} for each in (counts, rare))
    results.add("functions", programs=ran, failed=failed, counts=counts, rare=rare)
    results.finish()


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--recorded", action="store_true", help="print what was recorded last, without running a program")
    parser.add_argument("--least", type=int, default=4, metavar="N", help="print functions of at least N lines [default: 4]")


if __name__ == "__main__":
    main()
