"""Classical programs: Tempo against JAX written by hand.

Each row is a program in Tempo's language and the same computation by hand, values and gradients: both are compared, and timed
in one process in turn. The ratio is Tempo's time divided by that of the form by hand: below 1, Tempo is faster.

    python -m benchmarks.classics [--sizes small|full|long] [--only NAME] [--quick] [--out FILE]
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Mapping
from typing import Any

from benchmarks.common import Results, arguments, say

WANTED = 2.0  # no ratio is to be above it


def main() -> None:
    options = arguments(__doc__ or "", add_options)
    from benchmarks.classics.measure import Worker
    from benchmarks.classics.table import load

    size = "tiny" if options.quick else options.sizes
    results = Results("classics", options)
    worker = Worker(options.seconds, options.memory)
    rows: dict[str, dict[str, Any]] = {}
    say(f"sizes: {size}; milliseconds of Tempo and by hand, their ratio (least to greatest), compile seconds of both")
    for name, classic in load().items():
        if not results.selects(name):
            continue
        if size not in classic.sizes:
            results.skip(f"{name}: has no size {size!r}")
            continue
        rows[name] = worker.row(name, size, options.turns)
        say(line(name, rows[name]))
        results.add(name, size=size, sizes=dict(classic.sizes[size]), **rows[name])
    worker.stop()
    summarize(rows)
    results.finish()


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--sizes", choices=("small", "full", "long"), default="full", help="[default: full]")
    parser.add_argument("--seconds", type=float, default=300.0, help="how long a row may take [default: 300]")
    parser.add_argument("--memory", type=float, default=12.0, metavar="GIB", help="how much memory a row may take [default: 12]")


def line(name: str, row: Mapping[str, Any]) -> str:
    """One row as text."""
    if "error" in row:
        return f"  {name:40} failed: {row['error']}"
    ms, ratio, seconds = row["ms"], row["ratio"], row["compile_seconds"]
    span = f"({ratio['least']:.2f} to {ratio['greatest']:.2f})"
    wrong = "" if row["agrees"] else f"   RESULTS DIFFER by {row['difference']:.1e}"
    times = f"{ms['tempo']:10.3f} {ms['by hand']:9.3f} ms"
    return f"  {name:40} {times}  x {ratio['median']:7.2f} {span:20} {seconds['tempo']:5.1f} {seconds['by hand']:5.1f} s{wrong}"


def summarize(rows: Mapping[str, Mapping[str, Any]]) -> None:
    """The geometric mean of the ratios, the rows above the wanted ratio, and the failures."""
    ratios = {name: row["ratio"]["median"] for name, row in rows.items() if "error" not in row}
    if ratios:
        mean = math.exp(sum(map(math.log, ratios.values())) / len(ratios))
        say(f"\n{len(ratios)} programs: {mean:.2f} x in the geometric mean")
        say(f"above {WANTED:g} x:" + ("" if any(r > WANTED for r in ratios.values()) else " none"))
        for name in sorted(ratios, key=lambda name: -ratios[name]):
            if ratios[name] > WANTED:
                say(f"  {ratios[name]:9.2f}  {name}")
    for title, names in (
        ("failed", [name for name, row in rows.items() if "error" in row]),
        ("results differ", [name for name, row in rows.items() if not row.get("agrees", True)]),
    ):
        if names:
            say(f"{title}: {', '.join(names)}")


if __name__ == "__main__":
    main()
