"""The process of one program: `python -m tests.optimized.child NAME BOUND` runs it in the current folder, and writes outcome.json.

`BOUND` is in CPU seconds of the process, on all its threads: system and user time from the end of the imports to the program's
last result. They hold the whole of Tempo's compiler, JAX's tracing and XLA, and a short run, so that no compilation escapes. The
system itself ends the process at the bound (`SIGPROF`), whatever thread is busy, and whether or not Python would ever get to a
handler of its own.
"""

from __future__ import annotations

import importlib
import json
import os
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import jax

from tests.optimized.programs import FAULTS, PROGRAMS


@contextmanager
def bounded(seconds: float) -> Iterator[None]:
    """The process ends if the block takes more CPU seconds."""
    signal.setitimer(signal.ITIMER_PROF, seconds)
    yield
    signal.setitimer(signal.ITIMER_PROF, 0.0)


def main(name: str, bound: float) -> None:
    program = (PROGRAMS | FAULTS)[name]
    for module in program.imports:
        importlib.import_module(module)
    jax.devices()
    began = time.process_time()
    with bounded(bound):
        values = program.run()
    seconds = time.process_time() - began
    with bounded(bound):  # the forms by hand are compiled too
        results = program.results(values)
    outcome = {"cpu_seconds": seconds, "results": results, "xla_flags": os.environ.get("XLA_FLAGS"), "jax": jax.__version__}
    Path("outcome.json").write_text(json.dumps(outcome), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1], float(sys.argv[2]))
