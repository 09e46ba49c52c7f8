"""Parts that are tests of pytest: those that the usual run leaves out, in shares."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from benchmarks.release.record import Record, environment
from benchmarks.release.share import OUTCOMES, SHARE

ROOT = Path(__file__).resolve().parents[2]
LIMIT = 3 * 3600  # seconds, after which tests hang
ENDINGS = {0: "", 1: "", 5: ""}  # of pytest: tests passed, tests failed, and no tests in this share


def run_tests(record: Record, marks: str, share: str, jobs: int, paths: Sequence[str] = ("tests",)) -> None:
    """Run a share of the tests that have the marks, and count them as they end. Failures are findings."""
    if not jobs:
        raise ValueError("tests need at least one process")
    workers = ["-n", str(jobs), "--dist", "worksteal"] if jobs > 1 else []
    command = [sys.executable, "-m", "pytest", "-q", "-m", marks, "-p", "benchmarks.release.share", "-p", "no:cacheprovider"]
    with tempfile.TemporaryDirectory() as folder:
        outcomes, printed = Path(folder) / "outcomes.jsonl", Path(folder) / "printed.txt"
        outcomes.touch()
        settings = {**environment(), OUTCOMES: str(outcomes), SHARE: share}
        with open(printed, "wb") as file:
            process = subprocess.Popen(
                [*command, *workers, *paths], stdout=file, stderr=file, env=settings, cwd=ROOT, start_new_session=True
            )
        began, place = time.monotonic(), 0
        try:
            while process.poll() is None and time.monotonic() - began < LIMIT:
                time.sleep(1)
                place = _read(record, outcomes, place)
                record.progress()
            if process.poll() is None:
                record.find(f"the tests did not end in {LIMIT // 3600} hours")
        finally:
            end(process)
            _read(record, outcomes, place)
        if process.returncode not in ENDINGS:
            lines = printed.read_text(errors="replace").strip().splitlines() or [""]
            record.find(f"pytest ended with status {process.returncode}: {lines[-1]}")


def _read(record: Record, outcomes: Path, place: int) -> int:
    """Count the outcomes that were written behind `place`. Returns the new place."""
    with open(outcomes, "rb") as file:
        file.seek(place)
        for line in file:
            if not line.endswith(b"\n"):
                break
            place += len(line)
            values = json.loads(line)
            if "outcome" in values:
                record.add(values["outcome"])
            else:
                where = "" if values["when"] == "call" else f" ({values['when']})"
                record.find(f"{values['failed']}{where}: {values['why']}")
    return place


def end(process: subprocess.Popen[bytes]) -> None:
    """End a process of a session of its own, and all that it has started."""
    if process.poll() is None:
        os.killpg(process.pid, 15)
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, 9)
            process.wait()
