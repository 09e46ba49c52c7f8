"""The record of a part, and the file that holds the records of all parts."""

from __future__ import annotations

import json
import os
import resource
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from benchmarks.common import machine, versions
from tempo_core.files import write_whole

COUNTS = ("run", "passed", "failed", "skipped")
MOST_FINDINGS = 200  # of a part in the file: where all fails, the first ones say why
OFTEN = 20.0  # seconds between two records of a part that runs


@dataclass
class Record:
    """What is known of a part. It is saved while the part runs, as "interrupted", so that a killed run leaves what it has."""

    part: str
    quick: bool = False
    save: Callable[[dict[str, Any]], None] = lambda record: None
    status: str = "interrupted"  # until it is "done"
    counts: dict[str, int] = field(default_factory=lambda: dict.fromkeys(COUNTS, 0))
    findings: list[str] = field(default_factory=list)
    details: dict[str, int] = field(default_factory=dict)  # further counts, such as the kinds of a part's outcomes

    def __post_init__(self) -> None:
        self.started, self._began, self._cpu_began = datetime.now(UTC), time.monotonic(), _cpu_seconds()
        self._saved = self._began
        self._where = {"machine": machine(), "versions": versions()}

    def add(self, outcome: str, count: int = 1) -> None:
        """Count cases that "passed", "failed" or were "skipped". A skipped case did not run."""
        self.counts[outcome] += count
        if outcome != "skipped":
            self.counts["run"] += count

    def find(self, text: str) -> None:
        """Add a finding, as one short line."""
        line = " ".join(text.split())
        self.findings.append(line if len(line) <= 300 else line[:297] + "...")
        print(f"finding: {self.findings[-1]}", flush=True)

    def progress(self) -> None:
        """Save what is known so far, if that is some time ago."""
        if time.monotonic() - self._saved >= OFTEN:
            self._saved = time.monotonic()
            self.save(self.values())

    def values(self) -> dict[str, Any]:
        left_out = len(self.findings) - MOST_FINDINGS
        more = [f"and {left_out} more"] if left_out > 0 else []
        return {
            "status": self.status,
            "quick": self.quick,
            "started": self.started.isoformat(timespec="seconds"),
            "seconds": round(time.monotonic() - self._began, 1),
            "cpu_seconds": round(_cpu_seconds() - self._cpu_began, 1),
            "counts": dict(self.counts),
            **({"details": dict(sorted(self.details.items()))} if self.details else {}),
            "findings": [*self.findings[:MOST_FINDINGS], *more],
            **self._where,
        }

    def text(self) -> str:
        numbers = ", ".join(f"{self.counts[name]} {name}" for name in COUNTS)
        findings = f"{len(self.findings)} finding{'' if len(self.findings) == 1 else 's'}"
        return f"{self.part}: {self.status}, {numbers}, {findings}; {time.monotonic() - self._began:.0f} s"


def _cpu_seconds() -> float:
    """System and user time of this process, and of all its processes that have ended."""
    used = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(each.ru_utime + each.ru_stime for each in used)


def saved(path: Path, part: str, values: dict[str, Any]) -> None:
    """Put the record of one part into the file. The records of other parts stay; the file is whole at every moment."""
    content: dict[str, Any] = {"benchmark": "release", "parts": {}}
    if path == Path(os.devnull):
        return
    if path.exists():
        content = json.loads(path.read_text(encoding="utf-8"))
    content["parts"] = dict(sorted({**content["parts"], part: values}.items()))
    path.parent.mkdir(parents=True, exist_ok=True)
    write_whole(path, (json.dumps(content, indent=1) + "\n").encode())


def environment() -> dict[str, str]:
    """Of the processes of parts: JAX on the CPU, and no flags of XLA from the user's shell."""
    kept = {name: value for name, value in os.environ.items() if name != "XLA_FLAGS"}
    return {**kept, "JAX_PLATFORMS": "cpu"}
