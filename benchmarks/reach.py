"""Which functions of the core act in programs that people write: in how many programs any line of each function runs.

The programs are the classics (tiny ones run, full ones are compiled and traced), those of the ledger, the recipes of agents, a prefill, PPO
of the size that is measured, the pages of docs/, and tests of language models, of the paper's programs, and of what is asked for by an
option: memory of the host, limits of memory, checkpoints, tiles. A function that acts in at most three of them and makes no error goes, or
has a reason in `benchmarks/reasons.py`.

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
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import CodeType
from typing import Any

from benchmarks.common import Results, arguments, say
from benchmarks.monitoring import IS_THERE, first_events
from benchmarks.reasons import reason_of

ROOT = Path(__file__).resolve().parent.parent
CORE = ROOT / "tempo_core"
RECORD = ROOT / "benchmarks/results/reach.json"
ROOMS = ("passes", "ir/ranges", "frontend/autodiff", "schedule", "runtime/lower", "backends/xla_cpu")  # what the compiler decides
PAGES = "tests/test_docs.py"  # without the sections that are slow
TESTS = (  # of what is asked for by an option, of language models, of the paper's programs, and of pages: each is one program
    "tests/core/runtime/test_host_stores.py",
    "tests/core/runtime/test_memory.py",
    "tests/core/runtime/test_live.py",
    "tests/core/runtime/test_run_bounds.py",
    "tests/core/passes/test_checkpoint.py",
    "tests/core/passes/test_tile.py",
    "tests/llm/generate/test_llm_generate.py",
    "tests/llm/generate/test_llm_past.py",
    "tests/llm/generate/test_speculation.py",
    "tests/llm/training/test_llm_training.py",
    "tests/llm/training/test_llm_rewards.py",
    "tests/paper",
    PAGES,
)
SMALL = {"num_envs": 4, "num_steps": 8, "total_timesteps": 64, "learning_starts": 16}


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
    definitions = []

    def visit(node: ast.AST, prefix: str) -> None:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.ClassDef):
                visit(child, f"{prefix}{child.name}.")
            elif isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
                definitions.append(_function(child, prefix, file))
            elif isinstance(child, ast.If | ast.Try):
                visit(child, prefix)

    visit(ast.parse(source), "")
    return definitions


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
    """Which functions of the core run: each code object is seen once a program, and costs nothing after that."""

    def __init__(self, core: list[Function]) -> None:
        if not IS_THERE:
            raise SystemExit("recording needs Python 3.12 or later (sys.monitoring); --recorded prints what was recorded")
        self.by_file: dict[str, list[Function]] = {}
        for function in core:
            self.by_file.setdefault(str(CORE / function.file), []).append(function)
        self.codes: set[CodeType] = set()
        self.monitoring = first_events("PY_START", "benchmarks.reach", self._started)

    def _started(self, code: CodeType, offset: int) -> None:
        if code.co_filename in self.by_file:
            self.codes.add(code)

    def run(self, program: Callable[[], object]) -> set[Function]:
        """The functions that a program runs."""
        self.monitoring.restart_events()
        self.codes.clear()
        program()
        return {function for code in list(self.codes) if (function := self._around(code))}

    def _around(self, code: CodeType) -> Function | None:
        functions = self.by_file[code.co_filename]
        return next((f for f in functions if f.first <= code.co_firstlineno <= f.last), None)


def programs() -> Iterator[tuple[str, Callable[[], object]]]:
    """By name, what runs or compiles each program."""
    from benchmarks.classics.table import load
    from benchmarks.ledger.programs import PROGRAMS
    from benchmarks.ppo import build_ours, recipe_of
    from tempo_rl.recipe import shipped_recipes

    for name, classic in load().items():
        for size in ("tiny", "full"):
            yield f"classic, {size}: {name}", lambda classic=classic, size=size: _classic(classic, size)
    for name, build in PROGRAMS.items():
        yield f"ledger: {name}", lambda build=build: traced(build())
    yield "prefill: 2 rows, a prompt of 16 tokens", _prefill
    yield "PPO micro: 512x250", lambda: traced(build_ours(recipe_of("ppo_micro", 512, 250, 4))[1])
    for name, path in shipped_recipes().items():
        if "algorithm:" in path.read_text(encoding="utf-8"):
            yield f"recipe: {name}", lambda name=name: _recipe(name)


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


def _prefill() -> None:
    from benchmarks import prefill
    from benchmarks.decode import llama_config

    ctx, bounds, token = prefill.traced(llama_config("tiny"))
    traced(ctx.compile(dict(zip(bounds, (2, 16, 18, 2), strict=True)), [token]))


def _recipe(name: str) -> None:
    from benchmarks.ppo import LastMetrics
    from tempo_rl.agents import build_agent
    from tempo_rl.recipe import load_recipe, shipped_recipes
    from tempo_rl.train import compile_config

    text = shipped_recipes()[name].read_text(encoding="utf-8")
    changes = [f"{key}={value}" for key, value in SMALL.items() if key != "learning_starts" or f"{key}:" in text]
    recipe = load_recipe(name, changes)
    agent = build_agent(recipe, LastMetrics())
    program = agent.compile(compile_config(recipe))
    agent.environment.close()
    traced(program)


def of_tests(path: str) -> set[str]:
    """The functions that tests run, in a process of their own."""
    with tempfile.TemporaryDirectory() as directory:
        out = Path(directory) / "functions.json"
        command = [sys.executable, "-m", "benchmarks.reach", "--watch", path, "--out", str(out)]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
        if not out.exists():
            raise RuntimeError(f"{path} does not run: {(done.stdout + done.stderr)[-300:]}")
        return set(json.loads(out.read_text(encoding="utf-8")))


def watch_tests(path: str, out: Path) -> None:
    """What the process of `of_tests` does."""
    import pytest

    watch = Watch(of_core())
    with tempfile.TemporaryDirectory() as cache:
        os.environ["TEMPO_CACHE"] = cache
        reached = watch.run(
            lambda: pytest.main(
                ["-q", "-p", "no:cacheprovider", "-m", "not gpu and not slow" if path == PAGES else "not gpu", str(ROOT / path)]
            )
        )
    out.write_text(json.dumps(sorted(map(str, reached))), encoding="utf-8")


def traced(program: Any) -> None:
    """Lower all parts of a program, without XLA."""
    import jax

    staged = program._staged
    for segment in staged.segments if staged is not None else ():
        jax.jit(staged._function(segment), donate_argnums=0).trace(*staged._expected(segment))


def shares(core: list[Function], counts: Mapping[str, int]) -> list[tuple[str, int, list[int]]]:
    """For each room and for all: lines of functions, and those that act in none, in one to three, in four to seven programs."""
    rows = []
    for room in (*ROOMS, "all of these"):
        inside = [f for f in core if f.room and room in (f.room, "all of these")]
        spans = [(0, 0), (1, 3), (4, 7)]
        parts = [sum(f.lines for f in inside if least <= counts.get(str(f), 0) <= most) for least, most in spans]
        rows.append((room, sum(f.lines for f in inside), parts))
    return rows


def show(core: list[Function], counts: Mapping[str, int], by: Mapping[str, list[str]], least: int) -> None:
    say(f"{'room':20} {'lines':>7} {'in none':>14} {'in 1 to 3':>14} {'in 4 to 7':>14}")
    for room, lines, parts in shares(core, counts):
        say(f"{room:20} {lines:7}" + "".join(f"{part:7} {part / max(1, lines):6.1%}" for part in parts))
    for title, functions in (("none, without errors", idle(core, counts)), ("one to three", rare(core, counts))):
        say(
            f"\nin {title}: {sum(f.lines for f in functions)} lines of {len(functions)} functions; those of at least {least}, by reason:"
        )
        reasons: dict[str, list[Function]] = {}
        for function in functions:
            reasons.setdefault(reason_of(str(function))[1] or "no reason", []).append(function)
        for reason, together in sorted(reasons.items(), key=lambda each: -sum(f.lines for f in each[1])):
            say(f"{sum(f.lines for f in together):5} {reason}")
            for function in (f for f in together if f.lines >= least):
                say(f"{function.lines:10}  {function}" + "".join(f"; {name}" for name in by.get(str(function), ())))


def idle(core: list[Function], counts: Mapping[str, int]) -> list[Function]:
    """The functions that act in no program, but for those that only make an error."""
    return [f for f in core if f.room and not counts.get(str(f), 0) and not f.is_error]


def rare(core: list[Function], counts: Mapping[str, int]) -> list[Function]:
    """The functions that act in one to three programs."""
    return [f for f in core if f.room and 1 <= counts.get(str(f), 0) <= 3]


def main() -> None:
    options = arguments(__doc__ or "", add_options)
    if options.watch:
        watch_tests(options.watch, options.out)
        return
    core = of_core()
    if options.recorded:
        (case,) = json.loads(RECORD.read_text(encoding="utf-8"))["cases"]
        show(core, case["counts"], case["rare"], options.least)
        return
    results = Results("reach", options)
    by, failed, ran = reached_by(core, results)
    counts = {str(function): len(by.get(str(function), [])) for function in core if function.room}
    few = {function: by[function] for function, count in counts.items() if 1 <= count <= 3}
    say(f"{ran} programs; {len(failed)} did not run\n")
    show(core, counts, few, options.least)
    results.add("functions", programs=ran, failed=failed, counts=counts, rare=few)
    results.finish()


def reached_by(core: list[Function], results: Results) -> tuple[dict[str, list[str]], list[str], int]:
    """The programs that each function acts in, those that did not run, and the number of those that did."""
    from benchmarks.compile_time import empty_caches

    os.environ["TEMPO_CACHE"] = "off"
    watch, by, failed, ran = Watch(core), dict[str, list[str]](), list[str](), 0

    def of(program: Callable[[], object]) -> set[str]:
        empty_caches()  # what an earlier program computed is computed again
        return {str(function) for function in watch.run(program)}

    asked = [(f"tests: {path}", lambda path=path: of_tests(path)) for path in TESTS]
    asked += [(name, lambda program=program: of(program)) for name, program in programs()]
    for name, functions_of in asked:
        if not results.selects(name):
            continue
        try:
            reached = functions_of()
        except Exception as error:  # a recipe whose libraries are not installed
            failed.append(name)
            say(f"{name}: {''.join(traceback.format_exception_only(error)).strip().splitlines()[0]}")
            continue
        ran += 1
        for function in reached:
            by.setdefault(function, []).append(name)
    return by, failed, ran


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--recorded", action="store_true", help="print what was recorded last, without running a program")
    parser.add_argument("--watch", metavar="PATH", help="the functions that these tests run, as JSON to --out; without a table")
    parser.add_argument("--least", type=int, default=4, metavar="N", help="print functions of at least N lines [default: 4]")


if __name__ == "__main__":
    main()
