"""Which dear tests run by default: those that reach lines of the libraries that cheap tests do not reach.

`tests/slow.txt` lists the others, by id; `tests/conftest.py` marks them slow. The list is chosen, not written:

    python3.13 -m pytest -p tests.choosing --record-lines=core.json tests/core    # in one process each: a part of the tests
    python3.13 -m tests.choosing core.json rl.json llm.json

The first command records for each test its CPU seconds, those of its children, and the lines of the three libraries that it runs, by
`sys.monitoring` (Python 3.12 and later). The second takes all tests of at most `--cheap` seconds, and the cheapest row of each table. Of the
others it takes the one that reaches most new lines a second, and so on (Chvatal's greedy cover, Mathematics of Operations Research 4(3),
1979), down to `--rate` lines a second: the last lines would cost many seconds each. Tests that start other processes are always taken, as
their lines are not seen; so are those about pages, records and types, and the fuzzer. `pytest --left-out=K` runs a tenth of the list, as
`.ci/run` does for each commit.
"""

from __future__ import annotations

import argparse
import heapq
import json
import os
import resource
import zlib
from collections.abc import Generator, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import CodeType
from typing import Any

import pytest

from benchmarks.monitoring import IS_THERE, first_events

TESTS = Path(__file__).resolve().parent
LIST = TESTS / "slow.txt"
LIBRARIES = tuple(f"{TESTS.parent}{os.sep}{name}{os.sep}" for name in ("tempo_core", "tempo_rl", "tempo_llm"))
ALWAYS = (  # what they ask is not in the lines of the libraries: types, pages, records, random programs
    *("tests/typing/", "tests/fuzz/", "tests/optimized/"),
    *(f"tests/test_{name}.py" for name in ("site", "records", "structure", "claims", "project", "release", "choosing")),
)
OF_CHILDREN = 0.1  # seconds of children from which on a test counts as one of other processes


@dataclass(frozen=True)
class Reached:
    """What a test costs, in CPU seconds of its process and of the children that ended meanwhile, and the lines that it runs."""

    seconds: float
    of_children: float
    lines: frozenset[int]


def listed(path: Path = LIST) -> frozenset[str]:
    """The ids of the tests that the list leaves out."""
    return frozenset(line for line in path.read_text(encoding="utf-8").splitlines() if line and not line.startswith("#"))


def share_of(test: str, count: int = 10) -> int:
    """The share that a test is in, of so many: a number below the count, whatever other tests there are."""
    return zlib.crc32(test.encode()) % count


def chosen(tests: Mapping[str, Reached], cheap: float, rate: float) -> set[str]:
    """The tests that run by default: those of at most `cheap` CPU seconds, and dearer ones with at least `rate` new lines a second.

    >>> a, b, c = Reached(0.1, 0, frozenset({1})), Reached(2.0, 0, frozenset({1, 2})), Reached(3.0, 0, frozenset({1, 2}))
    >>> sorted(chosen({"t::a": a, "t::b[1]": b, "t::b[2]": c}, cheap=0.2, rate=0.5))
    ['t::a', 't::b[1]']
    """
    taken = {
        test
        for test, reached in tests.items()
        if reached.seconds <= cheap or reached.of_children >= OF_CHILDREN or test.startswith(ALWAYS)
    }
    tables: dict[str, list[str]] = {}
    for test in tests:
        tables.setdefault(test.partition("[")[0], []).append(test)
    for rows in tables.values():
        if taken.isdisjoint(rows) and len(rows) > 1:
            taken.add(min(rows, key=lambda test: tests[test].seconds))
    reached = {line for test in taken for line in tests[test].lines}

    def gain(test: str) -> float:
        return len(tests[test].lines - reached) / tests[test].seconds

    waiting = [(-gain(test), test) for test in tests.keys() - taken]
    heapq.heapify(waiting)
    while waiting:
        before, test = heapq.heappop(waiting)
        now = -gain(test)  # it only shrinks, so the first that keeps its place is the best
        if now == 0 or -now < rate:
            continue
        if now > before:
            heapq.heappush(waiting, (now, test))
            continue
        taken.add(test)
        reached |= tests[test].lines
    return taken


def read(paths: Iterable[Path]) -> dict[str, Reached]:
    """The records of several runs; of a test that is in two, the later one's."""
    numbers: dict[str, int] = {}
    tests = {}
    for path in paths:
        content = json.loads(path.read_text(encoding="utf-8"))
        lines = [numbers.setdefault(line, len(numbers)) for line in content["lines"]]
        for test, (seconds, of_children, reached) in content["tests"].items():
            tests[test] = Reached(seconds, of_children, frozenset(lines[k] for k in reached))
    return tests


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("records", nargs="+", type=Path)
    parser.add_argument(
        "--cheap",
        type=float,
        default=0.12,
        help="CPU seconds up to which each test is taken (0.12; recording makes tests slower)",
    )
    parser.add_argument("--rate", type=float, default=2.0, help="new lines a CPU second from which on a dear test is taken (2)")
    options = parser.parse_args()
    tests = read(options.records)
    taken = chosen(tests, options.cheap, options.rate)
    left = sorted(tests.keys() - taken)
    head = f"# Tests that are slow: {len(left)} of {len(tests)}, chosen by `python -m tests.choosing` (--cheap {options.cheap} --rate {options.rate}).\n"
    LIST.write_text(head + "".join(f"{test}\n" for test in left), encoding="utf-8")
    cost = {name: sum(tests[test].seconds for test in group) for name, group in (("taken", taken), ("left out", left))}
    missed = len({n for test in left for n in tests[test].lines} - {n for test in taken for n in tests[test].lines})
    print(f"{missed} lines are reached by none that is taken")
    print(f"{len(taken)} tests of {cost['taken']:.0f} CPU s are taken, {len(left)} of {cost['left out']:.0f} CPU s are left out")


# -- the plugin ---------------------------------------------------------------------------------------------------------


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--record-lines", metavar="FILE", help="write what each test costs and which lines it runs; tests/slow.txt is ignored"
    )


def pytest_configure(config: pytest.Config) -> None:
    if file := config.getoption("--record-lines"):
        if not IS_THERE:
            raise pytest.UsageError("--record-lines needs Python 3.12 or later (sys.monitoring)")
        config.pluginmanager.register(Recorder(Path(file)), "lines")


def _seconds() -> tuple[float, float]:
    own, children = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return own.ru_utime + own.ru_stime, children.ru_utime + children.ru_stime


class Recorder:
    """Records the lines of each test: a line is seen once a test, and costs nothing after that."""

    def __init__(self, file: Path) -> None:
        self.file = file
        self.lines: dict[str, int] = {}
        self.tests: dict[str, tuple[float, float, list[int]]] = {}
        self.reached: set[tuple[str, int]] = set()
        self.monitoring = first_events("LINE", "tests.choosing", self.line)

    def line(self, code: CodeType, number: int) -> None:
        if code.co_filename.startswith(LIBRARIES):
            self.reached.add((code.co_filename, number))

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, Any, Any]:
        self.monitoring.restart_events()
        self.reached.clear()
        own, children = _seconds()
        try:
            return (yield)
        finally:
            reached = list(self.reached)  # at once: threads may still run lines
            after, of_children = _seconds()
            numbers = sorted(
                self.lines.setdefault(f"{file[len(str(TESTS.parent)) + 1 :]}:{line}", len(self.lines)) for file, line in reached
            )
            seconds = after - own + of_children - children
            self.tests[item.nodeid] = (round(seconds, 4), round(of_children - children, 4), numbers)

    def pytest_sessionfinish(self) -> None:
        self.file.write_text(json.dumps({"lines": list(self.lines), "tests": self.tests}), encoding="utf-8")


if __name__ == "__main__":
    main()
