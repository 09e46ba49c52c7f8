"""The parts that benchmarks share: sides that run in turn, their medians, and a JSON file with the figures and the machine."""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import statistics
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any

from benchmarks.sources import code_of

Run = Callable[[], object]  # does the work once, and returns when the results are on the host

VERSIONS = ("tempo-dl", "jax", "jaxlib", "numpy", "gymnasium", "islpy", "torch", "transformers", "stable-baselines3")


def arguments(description: str, add: Callable[[argparse.ArgumentParser], None] | None = None) -> argparse.Namespace:
    """The options of every benchmark, and those that `add` adds to the parser. Call it before JAX is imported."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="tiny sizes and one turn: does it run? The figures mean nothing")
    parser.add_argument(
        "--turns", type=int, default=None, help="how often each side runs after its warm-up [default: 7; quick: 1]"
    )
    parser.add_argument("--out", type=Path, default=None, metavar="FILE", help="write the figures, machine and versions as JSON")
    parser.add_argument("--add", action="store_true", help="keep the cases of the file of --out that this run does not take")
    parser.add_argument("--only", default="", metavar="TEXT", help="only the cases whose name contains TEXT")
    if add is not None:
        add(parser)
    options = parser.parse_args()
    options.turns = options.turns or (1 if options.quick else 7)
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")  # peers on the same GPU need memory too
    import jax

    jax.config.update("jax_enable_compilation_cache", False)  # a cached program would have no compile time
    return options


def in_turn(sides: Mapping[str, Run], turns: int) -> dict[str, list[float]]:
    """Seconds of `turns` runs of each side, A B A B ..., after one warm-up run of each. So other load affects all sides alike."""
    for run in sides.values():
        run()
    seconds: dict[str, list[float]] = {name: [] for name in sides}
    for _ in range(turns):
        for name, run in sides.items():
            start = time.perf_counter()
            run()
            seconds[name].append(time.perf_counter() - start)
    return seconds


def compared(seconds: Mapping[str, Sequence[float]], unit: float, scale: float = 1.0) -> dict[str, dict[str, float]]:
    """By side: the median, least and greatest of `seconds / unit * scale`, and the median of the ratios to the first side.

    Ratios are taken turn by turn. `unit` is the number of iterations or tokens in one run; `scale` is 1000 for milliseconds.
    """
    first = next(iter(seconds.values()))
    figures = {}
    for name, runs in seconds.items():
        each = [run / unit * scale for run in runs]
        ratio = statistics.median(a / b for a, b in zip(runs, first, strict=True))
        figures[name] = {"median": statistics.median(each), "least": min(each), "greatest": max(each), "ratio_to_first": ratio}
    return figures


def show(title: str, figures: Mapping[str, Mapping[str, float]], unit: str) -> None:
    """Print one comparison as a table."""
    print(f"\n{title}")
    width = max(map(len, figures))
    for name, row in figures.items():
        span = f"({row['least']:.4g} to {row['greatest']:.4g})"
        print(f"  {name:{width}}  {row['median']:10.4g} {unit:16} {span:24} x {row['ratio_to_first']:.2f}", flush=True)


def say(text: str) -> None:
    print(text, flush=True)


class Results:
    """Collects the figures of a benchmark and writes them."""

    def __init__(self, benchmark: str, options: argparse.Namespace):
        self.benchmark, self.options = benchmark, options
        self.started, self.load_before = datetime.now(UTC), _load()
        self.cases: list[dict[str, Any]] = []
        self.kept: list[dict[str, Any]] = []  # cases of the file before: they stay, if they are not taken anew
        self.skipped: list[str] = []
        self.peer_versions: dict[str, str] = {}  # of packages that peers have in environments of their own
        if options.add:
            self.keep()
        say(f"{benchmark}: {_processor()}, {os.cpu_count()} cores, {_devices()}; {options.turns} turns")

    def selects(self, name: str) -> bool:
        """Whether `--only` selects the case."""
        return self.options.only in name

    def add(self, name: str, **figures: Any) -> None:
        self.cases.append({"case": name, "code": code_of(self.benchmark, name), **figures})

    def replace(self, name: str, **figures: Any) -> None:
        """Add a case that may be there already, with fewer figures."""
        self.cases = [case for case in self.cases if case["case"] != name]
        self.add(name, **figures)

    def skip(self, what: str) -> None:
        self.skipped.append(what)
        say(f"skipped: {what}")

    def keep(self) -> None:
        """Keep the cases of the file of `--out` that are not taken anew, with the versions of packages that only they used."""
        if self.options.out is not None and self.options.out.exists():
            content = json.loads(self.options.out.read_text(encoding="utf-8"))
            self.kept, ours = content["cases"], versions()
            self.peer_versions |= {name: number for name, number in content["versions"].items() if number and not ours.get(name)}

    def finish(self) -> None:
        """Say how busy the machine was, and write the file of `--out`."""
        load = max(self.load_before, _load())
        if load > 0.5 + 0.5 * (os.cpu_count() or 1):
            say(f"\nnote: the load average was up to {load:.1f} on {os.cpu_count()} cores; ratios may hold, times do not")
        if self.options.quick:
            say("\nnote: --quick; the figures mean nothing")
        self.save()
        if self.options.out is not None:
            say(f"wrote {self.options.out}")

    def save(self) -> None:
        """Write the file of `--out`, if there is one."""
        if self.options.out is None:
            return
        content = {
            "benchmark": self.benchmark,
            "command": re.sub(r"(^|[\s=])/\S*/", r"\1", " ".join(sys.argv[1:])),  # of paths, the last names
            "started": self.started.isoformat(timespec="seconds"),
            "quick": self.options.quick,
            "turns": self.options.turns,
            "machine": machine() | {"load_before": self.load_before, "load_after": _load()},
            "versions": versions() | self.peer_versions,
            "cases": [*(case for case in self.kept if case["case"] not in {new["case"] for new in self.cases}), *self.cases],
            "skipped": self.skipped,
        }
        self.options.out.parent.mkdir(parents=True, exist_ok=True)
        self.options.out.write_text(_text(_rounded(content)), encoding="utf-8")


def _text(content: Any) -> str:
    """JSON with a line for each value, and one line for a list of numbers."""
    lines = json.dumps(content, indent=1) + "\n"
    return re.sub(r"\[[\s\d.,e+-]+\]", lambda match: re.sub(r"\s+", " ", match[0]).replace("[ ", "[").replace(" ]", "]"), lines)


def machine() -> dict[str, Any]:
    """A description of the machine that made the figures."""
    return {
        "processor": _processor(),
        "cores": os.cpu_count(),
        "memory_gib": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1),
        "system": platform.system(),
        "jax_devices": _devices(),
    }


def versions() -> dict[str, str | None]:
    numbers: dict[str, str | None] = {"python": platform.python_version()}
    for name in VERSIONS:
        try:
            numbers[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            numbers[name] = None
    return numbers


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


def _devices() -> str:
    import jax

    return ", ".join(f"{device.platform} {device.device_kind}" for device in jax.devices())


def _load() -> float:
    """The load average of the last minute."""
    return round(os.getloadavg()[0], 2) if hasattr(os, "getloadavg") else 0.0


def _rounded(value: Any) -> Any:
    if isinstance(value, float):
        return float(f"{value:.5g}")
    if isinstance(value, Mapping):
        return {k: _rounded(v) for k, v in value.items()}
    return [_rounded(v) for v in value] if isinstance(value, (list, tuple)) else value
