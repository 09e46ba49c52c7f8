"""A process with one system and one model: it does what lines of JSON on its input ask for, and answers each with a line.

    python -m benchmarks.llm.serve SYSTEM DIRECTORY DTYPE WINDOW

The first answer is that of loading. Imports are of the system alone, so another Python may run it.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import platform
import sys
import time
from collections.abc import Callable, Mapping
from importlib import metadata
from pathlib import Path
from typing import Any

from benchmarks.llm.systems import SYSTEMS, Loaded, System, Unsupported

Answer = dict[str, Any]  # with "refused" or "failed", why there is no other answer


def main(name: str, directory: str, dtype: str, window: str) -> None:
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # what libraries print is not an answer

    def say(answer: Answer) -> None:
        print(json.dumps(answer), file=answers, flush=True)

    try:
        serving = Serving(SYSTEMS[name], Path(directory), dtype, int(window))
        say({"versions": versions(SYSTEMS[name])})
    except (Unsupported, ModuleNotFoundError) as error:
        missing = isinstance(error, ModuleNotFoundError)
        say(
            {"refused": f"not installed: pip install {SYSTEMS[name].install} ({error})" if missing else f"not supported: {error}"}
        )
        return
    except Exception as error:  # any failure is a row of the table
        say({"failed": _of(error)})
        return
    for line in sys.stdin:
        request = json.loads(line)
        try:
            say(getattr(serving, request.pop("do"))(**request))
        except Exception as error:
            say({"failed": _of(error)})


class Serving:
    """The requests. Memory counts from the moment when the system's modules are imported."""

    def __init__(self, system: System, directory: Path, dtype: str, window: int):
        module = importlib.import_module(f"benchmarks.llm.systems.{system.module}")
        if hasattr(module, "prepare"):
            module.prepare(directory, dtype, window)
        gc.collect()
        _forget_the_peak()
        self.before = _status("VmRSS")
        self.loaded: Loaded = module.load(directory, dtype, window, *system.options)
        self.after_loading = _status("VmHWM")

    def start(self, prompts: list[list[int]], count: int, times: int) -> Answer:
        return _timed(lambda: self.loaded.start(prompts, count, times))

    def advance(self, count: int) -> Answer:
        return _timed(lambda: self.loaded.advance(count))

    def memory(self) -> Answer:
        """Bytes: the peak of the process since the imports, that of loading alone, and that of JAX's device if it counts."""
        stats: Mapping[str, int] = {}
        if "jax" in sys.modules:
            stats = sys.modules["jax"].local_devices()[0].memory_stats() or {}
        return {
            "peak": _status("VmHWM") - self.before,
            "loading": self.after_loading - self.before,
            "device": stats.get("peak_bytes_in_use"),
        }


def _timed(run: Callable[[], list[list[int]]]) -> Answer:
    begun, processor = time.perf_counter(), time.process_time()
    tokens = run()
    return {"seconds": time.perf_counter() - begun, "cpu_seconds": time.process_time() - processor, "tokens": tokens}


def versions(system: System) -> dict[str, str]:
    return {"python": platform.python_version(), **{package: metadata.version(package) for package in system.packages}}


def _of(error: Exception) -> str:
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0] if lines else ''}"[:200]


def _forget_the_peak() -> None:
    """The greatest resident size starts again from the present one. On Linux; elsewhere nothing counts it."""
    clear = Path("/proc/self/clear_refs")
    if clear.exists():
        clear.write_text("5")


def _status(name: str) -> int:
    """A figure of /proc/self/status, in bytes."""
    status = Path("/proc/self/status")
    lines = status.read_text().splitlines() if status.exists() else []
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith(f"{name}:")), 0)


if __name__ == "__main__":
    main(*sys.argv[1:])
