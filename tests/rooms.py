"""CPU seconds of the tests by rooms, printed at the end of a run; a plugin that `tests/conftest.py` registers.

A test has the CPU seconds of its process and of the children that ended meanwhile, from its setup to the end of its teardown. With workers of
xdist, the seconds are the sums over all workers. `--cpu-seconds=FILE` writes them by test, and `--record-rooms=LABEL` those of rooms
to `benchmarks/results/tests.json`.
"""

from __future__ import annotations

import json
import resource
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest

RECORD = Path(__file__).resolve().parent.parent / "benchmarks/results/tests.json"
DIVIDED = ("core", "llm", "rl")  # folders of tests with rooms in them
NAME = "cpu_seconds"  # of a report, and of what a worker returns


def cpu_seconds() -> float:
    """Of this process since its start, and of its children that have ended."""
    usages = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(usage.ru_utime + usage.ru_stime for usage in usages)


def room(path: str) -> str:
    """The folder of tests that a file is in, three levels deep at most, or the files beside such folders.

    >>> room("tests/core/passes/ranges/test_pad.py"), room("tests/llm/serve/test_server.py"), room("tests/core/test_cache.py")
    ('tests/core/passes', 'tests/llm/serve', 'tests/core/*.py')
    """
    folders = path.split("/")[:-1]
    divided = folders in ([], ["tests"], *(["tests", name] for name in DIVIDED))
    return "/".join([*folders, "*.py"] if divided else folders[:3])


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
        figures = self.figures()
        terminalreporter.section("CPU seconds of rooms")
        for name, of_room in figures["rooms"].items():
            share = of_room["cpu_seconds"] / max(figures["in_tests"], 1e-9)
            terminalreporter.write_line(f"{of_room['cpu_seconds']:8.1f} s {share:6.1%} {of_room['tests']:6,} tests  {name}")
        terminalreporter.write_line(
            f"{figures['in_tests']:8.1f} s in tests, {figures['cpu_seconds']:.1f} s in all; processes of tests: {figures['processes']}, "
            f"each with {figures['until_collected']:.1f} s until its tests were collected"
        )
        if file := self.config.getoption("--cpu-seconds"):
            Path(file).write_text(json.dumps(dict(sorted(self.tests.items())), indent=1) + "\n", encoding="utf-8")
        if label := self.config.getoption("--record-rooms"):
            record(label, figures)

    def figures(self) -> dict[str, Any]:
        """CPU seconds by room, the dearest first, of all tests, and of all processes of tests."""
        rooms: dict[str, dict[str, Any]] = {}
        for test, seconds in self.tests.items():
            of_room = rooms.setdefault(room(test.partition("::")[0]), {"tests": 0, "cpu_seconds": 0.0})
            of_room["tests"] += 1
            of_room["cpu_seconds"] = round(of_room["cpu_seconds"] + seconds, 3)
        processes = max(len(self.workers), 1)
        return {
            "tests": len(self.tests),
            "cpu_seconds": round(sum(worker["whole"] for worker in self.workers), 1),
            "in_tests": round(sum(self.tests.values()), 3),
            "processes": len(self.workers),
            "until_collected": round(sum(worker["collected"] for worker in self.workers) / processes, 1),
            "rooms": dict(sorted(rooms.items(), key=lambda row: -row[1]["cpu_seconds"])),
        }


def record(label: str, figures: dict[str, Any]) -> None:
    """Write the figures of a run to `benchmarks/results/tests.json`, beside those of other labels."""
    from benchmarks.common import machine, versions

    content = json.loads(RECORD.read_text(encoding="utf-8")) if RECORD.exists() else {"benchmark": "tests", "runs": {}}
    content["runs"][label] = {"machine": machine(), "versions": versions(), **figures}
    RECORD.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
