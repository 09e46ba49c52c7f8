"""Parts that are random programs, mutants and damaged models."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from pathlib import Path

from benchmarks.release.record import Record, environment
from benchmarks.release.tests import ROOT, end

AT_ONCE = 100  # random programs between two looks at what came of them


def run_programs(record: Record, executor: str, first: int, count: int, optimized: int, jobs: int, only: str = "") -> None:
    """Random programs of the seeds from `first` on, against the reference. One in `optimized` has XLA's optimizations."""
    with _environment():
        for seed in range(first, first + count, AT_ONCE):
            _run_some(record, executor, seed, min(AT_ONCE, first + count - seed), optimized, jobs, only)
            record.progress()


def _run_some(record: Record, executor: str, first: int, count: int, optimized: int, jobs: int, only: str) -> None:
    from benchmarks.fuzz import arguments, results

    numbers = {"programs": count, "seed": first, "jobs": jobs, "executor": executor, "optimized": optimized}
    options = arguments().parse_args(
        [*(f"--{name}={value}" for name, value in numbers.items()), *([f"--only={only}"] if only else [])]
    )
    done = 0
    try:
        for summary in results(options):
            done += summary.programs
            for kind, number in summary.kinds.items():
                record.details[kind] = record.details.get(kind, 0) + number
                record.add({"failed": "failed", "left out": "skipped"}.get(kind.partition(" (")[0], "passed"), number)
            for text in summary.reports:
                print(text, flush=True)
                record.find(_short(text))
    except BrokenProcessPool:  # a process of it has ended: it prints the seed of a program that takes too long
        record.add("failed", count - done)
        record.find(f"{executor}, seeds {first} to {first + count - 1}: a process ended, after {done} programs of them")


def _short(report: str) -> str:
    """The title of a report of the fuzzer, and why the program failed: the first line that is no part of a traceback."""
    lines = report.splitlines()
    comments = [line[2:] for line in lines[1:] if line.startswith("# ")]
    reasons = (comment for comment in comments if not comment.startswith((" ", "Traceback")))
    return f"{lines[0].strip('# -')}: {next(reasons, 'no reason')}"


@contextmanager
def _environment() -> Iterator[None]:
    """That of the fuzzer's processes, which are started with this one's."""
    before = dict(os.environ)
    os.environ.clear()
    os.environ.update(environment() | {"TEMPO_VERIFY": "each"})
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


# -- commands that print a line for each case -----------------------------------------------------------------------------

MUTANT = re.compile(r"\s*[\d.]+ s  (noticed|timed out|equivalent|survived|failed) +(.+)")
SUMMARY = re.compile(r"\d+ mutants in \d+ s")


def run_mutants(record: Record, options: Sequence[str], jobs: int) -> None:
    """Rows of tables made wrong, and code of those without rows: what no test notices is a finding."""
    last = ""
    for line in _lines(record, ["benchmarks.mutate", "--verbose", "--jobs", str(jobs), *options], limit=3 * 3600):
        last = line or last
        case = MUTANT.fullmatch(line)
        if case is not None:
            kind, name = case.groups()
            record.details[kind] = record.details.get(kind, 0) + 1
            record.add("failed" if kind in ("survived", "failed") else "passed")
            if kind in ("survived", "failed"):
                record.find(f"{kind}: {name}")
        elif ": is listed " in line:  # a fault of the list of mutants that change nothing
            record.find(line)
    if not SUMMARY.fullmatch(last):
        record.find(f"the run of mutants ended early: {last}")


MODELS_AT_ONCE = 50
FAULT = re.compile(r"case (\d+), .*")
MODELS = re.compile(r"(\d+) cases: (.*); \d+ faults")


def run_models(record: Record, count: int, seed: int, first: int = 0) -> None:
    """Damaged models: each of them works, or is refused in a line of ours. What takes too long is a finding too."""
    for number in range(first, first + count, MODELS_AT_ONCE):
        size = min(MODELS_AT_ONCE, first + count - number)
        command = ["benchmarks.faults", "llm", "--count", str(size), "--first", str(number), "--seed", str(seed)]
        faults, is_counted, cases = 0, False, f"models {number} to {number + size - 1} of seed {seed}"
        for line in _lines(record, command, limit=1800):
            if FAULT.match(line):
                faults += 1
                record.find(f"seed {seed}, {line}")
            counted = MODELS.fullmatch(line)
            if counted is not None:
                is_counted = True
                record.add("failed", faults)
                record.add("passed", size - faults)
                for kind in counted[2].split(", "):
                    times, _, name = kind.partition(" ")
                    record.details[name] = record.details.get(name, 0) + int(times)
        if not is_counted:
            record.add("failed", size)
            record.find(f"{cases}: the process hung, or ended before its last case")


def _lines(record: Record, command: Sequence[str], limit: float) -> Iterator[str]:
    """The lines that a module prints, errors among them. It is ended after `limit` seconds."""
    with tempfile.TemporaryDirectory() as folder:
        printed = Path(folder) / "printed.txt"
        with open(printed, "wb") as file:
            process = subprocess.Popen(
                [sys.executable, "-m", *command], stdout=file, stderr=file, cwd=ROOT, env=environment(), start_new_session=True
            )
        began, place = time.monotonic(), 0
        try:
            is_over = False
            while not is_over:
                is_over = process.poll() is not None or time.monotonic() - began > limit  # first, so that no line is missed
                with open(printed, "rb") as file:
                    file.seek(place)
                    content = file.read()
                whole = content if is_over else content[: content.rfind(b"\n") + 1]
                place += len(whole)
                yield from whole.decode(errors="replace").splitlines()
                record.progress()
                if not is_over:
                    time.sleep(0.5)
        finally:
            end(process)
