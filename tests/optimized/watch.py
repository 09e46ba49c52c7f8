"""Runs a program of the set in a process of its own, with XLA's defaults, and compares it with what is recorded."""

from __future__ import annotations

import json
import math
import os
import re
import signal
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent.parent
RECORD = Path(__file__).parent / "cpu_seconds.json"
TIMES = 10  # a bound is so many times what is recorded: only a blow-up passes it, no slower machine
LEAST = 1.0  # CPU seconds that count as recorded at least
WALL_SECONDS = 900.0  # after which a process counts as stuck: one that works passes its bound before, or ends
RELATIVE, ABSOLUTE = 0.02, 1e-3  # versions of XLA round differently, and a rounded number may change one sampled action
OF_OTHERS = ("XLA_", "JAX_", "TEMPO_", "TF_CPP_", "PYTEST_", "PYTHONPATH", "PYTHONWARNINGS")  # variables that no program inherits

# XLA's warnings and errors, except its alarms about slow operations: those look at a clock.
COMPLAINT = re.compile(r"^(?:(?:[WEF]\d{4}|\d{4}-\d\d-\d\d [\d:.]+: [WEF]) .*|.*circular simplification.*)$", re.MULTILINE)
ALARM = re.compile(r"slow_operation_alarm|Constant folding an instruction is taking")


class Failure(Exception):
    """A program that did not do as it should; the text names it."""


@dataclass(frozen=True)
class Outcome:
    cpu_seconds: float
    results: dict[str, float | str]
    xla_flags: str | None
    jax: str


def jax_version() -> str:
    """JAX's minor version, under which seconds are recorded."""
    return ".".join(version("jax").split(".")[:2])


def recorded() -> dict[str, Any]:
    figures: dict[str, Any] = json.loads(RECORD.read_text(encoding="utf-8")) if RECORD.exists() else {}
    return figures


def bound(name: str, of_version: str, figures: dict[str, Any]) -> float:
    """The CPU seconds that a program may take. What has no figure, of this version or at all, is bounded by the greatest one there is."""
    seconds = figures.get(name, {}).get("cpu_seconds", {})
    every = seconds or {key: value for entry in figures.values() for key, value in entry["cpu_seconds"].items()}
    return TIMES * max(LEAST, seconds.get(of_version, max(every.values(), default=LEAST)))


def run(name: str, cpu_seconds: float) -> Outcome:
    """The outcome of a program. Raises Failure if it takes more CPU seconds, fails, or if XLA complains."""
    kept = {key: value for key, value in os.environ.items() if not key.startswith(OF_OTHERS)}
    environment = kept | {"JAX_PLATFORMS": "cpu", "TEMPO_CACHE": "off", "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", "tests.optimized.child", name, str(cpu_seconds)]
    with tempfile.TemporaryDirectory() as folder:
        try:
            done = subprocess.run(
                command, cwd=folder, env=environment, capture_output=True, text=True, timeout=WALL_SECONDS, check=False
            )
        except subprocess.TimeoutExpired:
            raise Failure(f"{name}: no end after {WALL_SECONDS:.0f} seconds on the clock; it waits for something") from None
        if done.returncode == -signal.SIGPROF:
            raise Failure(f"{name}: ended at its bound, {cpu_seconds:.1f} CPU seconds\n{done.stdout}\n{done.stderr}")
        if done.returncode:
            raise Failure(f"{name}: exit code {done.returncode}\n{done.stdout}\n{done.stderr}")
        if lines := complaints(done.stderr):
            raise Failure(f"{name}: XLA complains\n" + "\n".join(lines))
        return Outcome(**json.loads((Path(folder) / "outcome.json").read_text(encoding="utf-8")))


def complaints(errors: str) -> list[str]:
    """The lines of a standard error in which XLA warns or complains."""
    return [line for line in COMPLAINT.findall(errors) if not ALARM.search(line)]


def differences(results: dict[str, float | str], expected: dict[str, float | str]) -> list[str]:
    """What differs from the recorded results by more than another version of XLA explains."""
    lines = [f"{name}: missing or new" for name in sorted(results.keys() ^ expected.keys())]
    for name in sorted(results.keys() & expected.keys()):
        now, before = results[name], expected[name]
        if isinstance(now, str) or isinstance(before, str):
            same = now == before
        else:
            same = math.isclose(now, before, rel_tol=RELATIVE, abs_tol=ABSOLUTE)
        if not same:
            lines.append(f"{name}: {now!r} instead of {before!r}")
    return lines
