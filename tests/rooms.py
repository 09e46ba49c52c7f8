"""CPU seconds of the tests by rooms, printed at the end of a run; a plugin that `tests/conftest.py` registers.

A test has the CPU seconds of its process and of the children that ended meanwhile, from its setup to the end of its teardown. With workers of
xdist, the seconds are the sums over all workers. `--cpu-seconds FILE` writes them by test.
"""

from __future__ import annotations

import json
import resource
from collections import Counter
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest

NAME = "cpu_seconds"  # of a report, and of what a worker returns


def cpu_seconds() -> float:
    """Of this process since its start, and of its children that have ended."""
    usages = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(usage.ru_utime + usage.ru_stime for usage in usages)


def room(path: str) -> str:
    """The folder of tests that a file is in, two levels deep at most: `tests/core/passes`, `tests/llm`, and `tests/*.py`.

    >>> room("tests/core/passes/test_pad.py"), room("tests/llm/serve/test_server.py"), room("tests/core/test_cache.py")
    ('tests/core/passes', 'tests/llm', 'tests/core/*.py')
    """
    folders = path.split("/")[:-1]
    if folders[:2] == ["tests", "core"] and len(folders) > 2:
        return "/".join(folders[:3])
    if folders in ([], ["tests"], ["tests", "core"]):
        return "/".join([*folders, "*.py"])
    return "/".join(folders[:2])


class Rooms:
    """Measures in each process that runs tests, and adds up in the one that reports."""

    def __init__(self, config: pytest.Config) -> None:
        self.config = config
        self.began = 0.0
        self.collected = 0.0  # CPU seconds of this process until its tests were collected
        self.tests: dict[str, float] = {}
        self.workers: list[dict[str, float]] = []

    @pytest.hookimpl(trylast=True)
    def pytest_collection_finish(self) -> None:
        self.collected = cpu_seconds()

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self) -> Generator[None, Any, Any]:
        self.began = cpu_seconds()
        return (yield)

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_makereport(self, call: pytest.CallInfo[None]) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        report = yield
        if call.when == "teardown":
            setattr(report, NAME, round(cpu_seconds() - self.began, 4))  # xdist sends it on
        return report

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when == "teardown":
            self.tests[report.nodeid] = self.tests.get(report.nodeid, 0.0) + getattr(report, NAME, 0.0)

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self) -> None:
        figures = {"whole": cpu_seconds(), "collected": self.collected}
        if hasattr(self.config, "workeroutput"):
            self.config.workeroutput[NAME] = figures
        elif self.collected:
            self.workers.append(figures)

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        """Of xdist: a worker has ended."""
        if NAME in getattr(node, "workeroutput", {}):
            self.workers.append(node.workeroutput[NAME])

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        if not self.tests:
            return
        seconds, counts = Counter[str](), Counter[str]()
        for test, of_test in self.tests.items():
            seconds[room(test.partition("::")[0])] += of_test  # type: ignore[assignment]
            counts[room(test.partition("::")[0])] += 1
        total = sum(seconds.values())
        terminalreporter.section("CPU seconds of rooms")
        for name, of_room in seconds.most_common():
            share = of_room / total if total else 0.0
            terminalreporter.write_line(f"{of_room:8.1f} s {share:6.1%} {counts[name]:6,} tests  {name}")
        whole, collected = (sum(worker[key] for worker in self.workers) for key in ("whole", "collected"))
        processes = f"{len(self.workers)} process{'' if len(self.workers) == 1 else 'es'}"
        terminalreporter.write_line(
            f"{total:8.1f} s in tests, and {collected / max(len(self.workers), 1):.1f} s until they were collected in each of {processes}: {whole:.1f} s in all"
        )
        if file := self.config.getoption("--cpu-seconds"):
            Path(file).write_text(json.dumps(dict(sorted(self.tests.items())), indent=1) + "\n", encoding="utf-8")
