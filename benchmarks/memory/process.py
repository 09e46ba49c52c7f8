"""A process for each case and side, and how it measures its own memory. Linux only: it reads /proc."""

from __future__ import annotations

import ctypes
import gc
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
BINS = 100  # of a curve over time
# Freed memory goes back to the system at once, so that what is resident is what is in use.
ALLOCATOR = {"MALLOC_TRIM_THRESHOLD_": "0", "MALLOC_MMAP_THRESHOLD_": "65536"}

Report = dict[
    str, Any
]  # "planned" and "grown", in bytes; perhaps "ms", "cache" (bytes), "result" (a number), "moments" and "curve"


@dataclass(frozen=True)
class Case:
    """Work that several sides do. A process gets the name of the `family` and the `work`; the record has the name and the `sizes`.

    With `in_turn`, one more process runs all sides in turn, for their times.
    """

    name: str
    family: str
    work: str
    sides: tuple[str, ...]
    sizes: Mapping[str, int]
    in_turn: bool = False

    def reports(self, turns: int) -> dict[str, Report]:
        """By side. Raises SystemExit where a process fails, or where sides have different results."""
        reports: dict[str, Report] = {
            side: _in_a_process([self.family, side, self.work], turns, ALLOCATOR) for side in self.sides
        }
        if self.in_turn:
            for side, ms in _in_a_process([self.family, "", self.work], turns, {}).items():
                reports[side]["ms"] = ms
        results = [report["result"] for report in reports.values() if "result" in report]
        if results and max(results) - min(results) > 1e-3 * abs(max(results)):
            raise SystemExit(f"{self.name}: the sides differ: {results}")
        return reports


def measured(planned: Callable[[], int], run: Callable[[], object]) -> Report:
    """Bytes planned, and bytes by which the process grows in a second run, over what stayed after the first, which compiles."""
    run()
    settle()
    Path("/proc/self/clear_refs").write_text("5")  # the greatest resident size starts again from the present one
    before = _status("VmRSS")
    run()
    return {"planned": planned(), "grown": _status("VmHWM") - before}


def milliseconds(run: Callable[[], object]) -> float:
    """The least of three runs."""
    times = []
    for _ in range(3):
        start = time.perf_counter()
        run()
        times.append(time.perf_counter() - start)
    return min(times) * 1e3


def curve(run: Callable[[], object], pause: float = 0.1) -> dict[str, list[float]]:
    """By how much the process has grown at each moment of a run: milliseconds since its start, and bytes.

    Another process samples the resident size from `pause` seconds before the run to as long after it. The curve has the greatest growth
    in each of `BINS` parts of this time.
    """
    settle()
    before = _status("VmRSS")
    command = [sys.executable, "-m", "benchmarks.memory.resident", str(os.getpid())]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as sampler:
        assert sampler.stdout
        sampler.stdout.readline()
        time.sleep(pause)
        start = time.perf_counter()
        run()
        gc.collect()
        time.sleep(pause)
        samples: list[tuple[float, int]] = json.loads(sampler.communicate()[0])
    first, last = samples[0][0], samples[-1][0]
    largest: dict[int, int] = {}
    for at, size in samples:
        part = min(int((at - first) / (last - first) * BINS), BINS - 1)
        largest[part] = max(size, largest.get(part, 0))
    middle = [first + (part + 0.5) / BINS * (last - first) for part in largest]
    return {"ms": [(at - start) * 1e3 for at in middle], "bytes": [size - before for size in largest.values()]}


def settle() -> None:
    """Give freed memory back to the system."""
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)


def of_xla(compiled: Any) -> int:
    """Arguments, results and temporaries of a compiled function, in bytes."""
    sizes = compiled.memory_analysis()
    return int(sizes.argument_size_in_bytes + sizes.output_size_in_bytes + sizes.temp_size_in_bytes)


def _status(name: str) -> int:
    """A figure of /proc/self/status, in bytes."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(f"{name}:")) * 1024


def _in_a_process(case: list[str], turns: int, variables: Mapping[str, str]) -> Report:
    """What a process for a case prints; without a side, the milliseconds of each side."""
    return reported("benchmarks.memory", ["--case", json.dumps(case), "--turns", str(turns)], variables)


def reported(module: str, arguments: list[str], variables: Mapping[str, str] = ALLOCATOR) -> Report:
    """The JSON in the last line that `python -m module arguments` prints. Raises SystemExit if it fails."""
    path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    command = [sys.executable, "-m", module, *arguments]
    ended = subprocess.run(
        command, env={**os.environ, **variables, "PYTHONPATH": path}, capture_output=True, text=True, check=False
    )
    if ended.returncode:
        raise SystemExit(f"{module} {arguments}: {ended.stderr}")
    report: Report = json.loads(ended.stdout.splitlines()[-1])
    return report
