"""The resident memory of a process over time, seen by another: `python -m benchmarks.memory.resident PID`, until its input ends.

It prints a line when it begins; then, as JSON, a time (`time.perf_counter`, which processes of a machine share) and bytes for each sample.
"""

from __future__ import annotations

import json
import os
import select
import sys
import time
from pathlib import Path

EVERY = 0.002  # seconds
PAGE = os.sysconf("SC_PAGE_SIZE")


def main(pid: str) -> None:
    samples: list[tuple[float, int]] = []
    print("begins", flush=True)
    while not select.select([sys.stdin], [], [], EVERY)[0]:
        samples.append((time.perf_counter(), int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * PAGE))
    print(json.dumps(samples))


if __name__ == "__main__":
    main(sys.argv[1])
