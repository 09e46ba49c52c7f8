"""Mutants in processes of their own: forked from one that has imported everything, changed in memory, run, and gone."""

from __future__ import annotations

import contextlib
import importlib
import io
import json
import os
import pkgutil
import resource
import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent.parent
MEMORY = 8 << 30  # bytes that a mutant may take: one that builds ever longer lists ends by itself
WAITING = 20  # a mutant that sleeps, or gets so little of the processor, is ended after so many times the limit


@dataclass(frozen=True)
class Tests:
    """What ought to notice: a file, or a test of one, under `tests`; of it what `keyword` chooses (pytest's `-k`)."""

    path: str
    keyword: str = ""


@dataclass(frozen=True)
class Mutant:
    """One change to one row of a table. `way`: "wrong" (its result), "code" (a literal or operator in it), or "removed"."""

    table: str
    row: str
    way: str
    change: str
    apply: Callable[[], None]
    tests: tuple[Tests, ...]

    @property
    def name(self) -> str:
        return f"{self.table} | {self.row} | {self.way} | {self.change}"


@dataclass(frozen=True)
class Outcome:
    """What became of a mutant: "noticed" by the test `by`, "survived", "timed out", or "failed" (to be made, or run)."""

    mutant: Mutant
    kind: str
    by: str
    seconds: float


def import_everything() -> None:
    """What tests import, once, before the forks; nothing that starts threads or a device."""
    os.environ.setdefault("JAX_PLATFORMS", "cpu")
    for package in ("tempo_core", "tempo_rl", "tempo_llm"):
        for module in pkgutil.walk_packages(importlib.import_module(package).__path__, f"{package}."):
            if package == "tempo_core":
                importlib.import_module(module.name)
    for name in ("pytest", "hypothesis", "numpy.testing", "jax.numpy", "tests.core.running", "tests.core.programs"):
        importlib.import_module(name)
    import hypothesis

    # The same examples each time, none kept on disk, and a failing one is not made smaller.
    phases = (hypothesis.Phase.explicit, hypothesis.Phase.generate)
    hypothesis.settings.register_profile("mutate", database=None, derandomize=True, phases=phases)


def run_all(mutants: Sequence[Mutant], jobs: int, limit: int) -> Iterator[Outcome]:
    """Each mutant's outcome, as it comes; `jobs` at a time, none longer than `limit` seconds of the processor's time."""
    waiting, running = list(reversed(mutants)), {}
    try:
        while waiting or running:
            while waiting and len(running) < jobs:
                mutant, (report, end) = waiting.pop(), os.pipe()
                running[_forked(mutant, end, limit)] = mutant, report, time.monotonic()
                os.close(end)
            time.sleep(0.02)
            for pid, (mutant, report, start) in list(running.items()):
                seconds = time.monotonic() - start
                if seconds > WAITING * limit:
                    os.kill(pid, signal.SIGKILL)
                ended, status = os.waitpid(pid, 0 if seconds > WAITING * limit else os.WNOHANG)
                if ended:
                    del running[pid]
                    text = ""
                    os.set_blocking(report, False)  # other mutants may hold its other end
                    with contextlib.suppress(BlockingIOError):
                        text = os.read(report, 1 << 16).decode()
                    os.close(report)
                    yield _read(mutant, text, status, seconds)
    finally:
        for pid in running:
            os.kill(pid, signal.SIGKILL)


def _read(mutant: Mutant, text: str, status: int, seconds: float) -> Outcome:
    if text:
        return Outcome(mutant, *json.loads(text), seconds)
    late = os.WIFSIGNALED(status) and os.WTERMSIG(status) in (signal.SIGXCPU, signal.SIGKILL)
    return Outcome(mutant, *(("timed out", "") if late else ("noticed", f"the process ended with status {status}")), seconds)


def _forked(mutant: Mutant, report: int, limit: int) -> int:
    """A process that makes the change and runs the tests, and writes what came of it to the pipe `report`."""
    sys.stdout.flush()
    pid = os.fork()
    if pid:
        return pid
    try:
        resource.setrlimit(resource.RLIMIT_DATA, (MEMORY, MEMORY))
        resource.setrlimit(resource.RLIMIT_CPU, (limit, limit + 1))
        os.write(report, json.dumps(_outcome(mutant)).encode())
    except BaseException as error:
        os.write(report, json.dumps(("failed", f"{type(error).__name__}: {error}")).encode())
    finally:
        os._exit(0)


class _FirstFailure:
    """A plugin of pytest that keeps the name of the first test that fails, or that cannot run because a row is gone, and stops there."""

    name = ""
    session: Any = None

    def pytest_sessionstart(self, session) -> None:  # type: ignore[no-untyped-def]
        self.session = session

    def pytest_runtest_logreport(self, report) -> None:  # type: ignore[no-untyped-def]
        if not self.name and (
            report.failed or "needs a row that is not there" in str(report.longrepr)
        ):  # as `tests/conftest.py` says
            self.name = report.nodeid
            self.session.shouldstop = "noticed"

    def pytest_collectreport(self, report) -> None:  # type: ignore[no-untyped-def]
        if report.failed and not self.name:
            self.name = f"{report.nodeid} (collection)"


def _outcome(mutant: Mutant) -> tuple[str, str]:
    import hypothesis
    import pytest

    os.chdir(ROOT)
    os.environ["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"  # the tests need none, and to load them takes longer than most tests
    os.environ.pop("PYTEST_ADDOPTS", None)  # options of the run outside may name plugins that are not there
    hypothesis.settings.load_profile("mutate")
    mutant.apply()
    ran = False
    for tests in mutant.tests:
        first = _FirstFailure()
        arguments = [
            f"tests/{tests.path}",
            "-x",
            "-q",
            "-m",
            "not gpu and not optimized",  # slow rows of tables too
            "-p",
            "no:cacheprovider",
            "-p",
            "no:unraisableexception",  # collects garbage at each end
            "--assert=plain",
            "--tb=native",
        ]
        text = io.StringIO()
        with contextlib.redirect_stdout(text), contextlib.redirect_stderr(text):
            code = pytest.main([*arguments, *(["-k", tests.keyword] if tests.keyword else [])], plugins=[first])
        if first.name:
            return "noticed", first.name.removeprefix("tests/")
        if code not in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED):
            return "failed", f"pytest: {text.getvalue()[-800:]}"
        ran = ran or code == pytest.ExitCode.OK
    return ("survived", "") if ran else ("failed", "no test was chosen")
