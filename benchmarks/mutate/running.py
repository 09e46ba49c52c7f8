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
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
MEMORY = 8 << 30  # bytes that a mutant may take: one that builds ever longer lists is to end by itself


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


def run_all(mutants: Sequence[Mutant], jobs: int, limit: float) -> Iterator[Outcome]:
    """Each mutant's outcome, as it comes; `jobs` at a time, none longer than `limit` seconds."""
    waiting, running = list(reversed(mutants)), {}
    while waiting or running:
        while waiting and len(running) < jobs:
            mutant = waiting.pop()
            report = tempfile.TemporaryFile("w+")
            running[_forked(mutant, report.fileno(), limit)] = mutant, report, time.monotonic()
        time.sleep(0.02)
        for pid, (mutant, report, start) in list(running.items()):
            seconds = time.monotonic() - start
            ended, status = os.waitpid(pid, os.WNOHANG)
            late = seconds > limit
            if not ended and not late:
                continue
            if not ended:
                os.killpg(pid, signal.SIGKILL)
                os.waitpid(pid, 0)
            del running[pid]
            report.seek(0)
            text = report.read()
            kind, by = json.loads(text) if text else ("timed out" if late else "noticed", f"ended with status {status}")
            yield Outcome(mutant, kind, by, seconds)


def _forked(mutant: Mutant, report: int, limit: float) -> int:
    sys.stdout.flush()
    pid = os.fork()
    if pid:
        return pid
    try:
        os.setpgid(0, 0)
        resource.setrlimit(resource.RLIMIT_DATA, (MEMORY, MEMORY))
        os.write(report, json.dumps(_outcome(mutant)).encode())
    except BaseException as error:
        os.write(report, json.dumps(("failed", f"{type(error).__name__}: {error}")).encode())
    finally:
        os._exit(0)
    raise AssertionError("not reached")


class _FirstFailure:
    """A plugin of pytest that keeps the name of the first test that fails."""

    name = ""

    def pytest_runtest_logreport(self, report) -> None:  # type: ignore[no-untyped-def]
        if report.failed and not self.name:
            self.name = report.nodeid

    def pytest_collectreport(self, report) -> None:  # type: ignore[no-untyped-def]
        if report.failed and not self.name:
            self.name = f"{report.nodeid} (collection)"


def _outcome(mutant: Mutant) -> tuple[str, str]:
    import hypothesis
    import pytest

    os.chdir(ROOT)
    hypothesis.settings.load_profile("mutate")
    mutant.apply()
    ran = False
    for tests in mutant.tests:
        first = _FirstFailure()
        arguments = [f"tests/{tests.path}", "-x", "-q", "-p", "no:cacheprovider", "--hypothesis-seed=0", "-W", "ignore::pytest.PytestAssertRewriteWarning"]
        text = io.StringIO()
        with contextlib.redirect_stdout(text), contextlib.redirect_stderr(text):
            code = pytest.main([*arguments, *(["-k", tests.keyword] if tests.keyword else [])], plugins=[first])
        if first.name:
            return "noticed", first.name.removeprefix("tests/")
        if code not in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED):
            return "failed", f"pytest: {text.getvalue()[-800:]}"
        ran = ran or code == pytest.ExitCode.OK
    return ("survived", "") if ran else ("failed", "no test was chosen")
