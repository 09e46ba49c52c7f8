"""How good the compiler's decisions are: the time of the chosen program over the best of its variants, each decision switched off in turn.

At most 1.1 in the geometric mean and 1.5 at worst are wanted. Beside it: the time over that of the cost model, and over the roofline, which is
the least time for its operations and for the bytes of its stores, by constants that are measured first.

    python -m benchmarks.regret [--from FILE] [--only NAME] [--each N] [--quick] [--out FILE]

`--from` takes the measurements of `python -m benchmarks.ablation --out FILE`.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from benchmarks.ablation import measured
from benchmarks.common import Results, arguments, say
from benchmarks.variants import DECISIONS, mean, names

WANTED, WORST = 1.1, 1.5


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--seconds", type=float, default=60.0, help="how long a comparison may take [default: 60]")
    parser.add_argument("--each", type=int, default=1, metavar="N", help="only each N-th classic, for a shorter run [default: 1]")
    parser.add_argument("--from", dest="source", type=Path, default=None, metavar="FILE", help="figures that ablation wrote")


def main() -> None:
    options = arguments(__doc__ or "", add_options)
    from tempo_core import Target

    results = Results("regret", options)
    machine = Target.calibrated()
    say(f"{machine}\n")
    rows = {}
    if options.source is not None:
        rows = {case["case"]: case for case in json.loads(options.source.read_text(encoding="utf-8"))["cases"]}
    for name in rows or names(options.quick, options.each):
        if results.selects(name):
            row = rows.get(name) or measured(name, DECISIONS, options)
            if "error" in row["alone"]:
                results.skip(f"{name}: {row['alone']['error']}")
                continue
            figures = judged(row, machine)
            say(line(name, figures))
            results.add(name, **figures)
    regrets = {case["case"]: case["regret"] for case in results.cases}
    if regrets:
        worst = max(regrets, key=lambda name: regrets[name])
        say(f"\n{len(regrets)} programs: regret {mean(list(regrets.values())):.2f} in the geometric mean ({WANTED} wanted)")
        say(f"at worst {regrets[worst]:.2f}, {worst} ({WORST} wanted)")
        say(f"time over the model's: {mean([case['of_model'] for case in results.cases]):.2f} in the geometric mean")
        say(f"time over the roofline: {mean([case['of_roofline'] for case in results.cases]):.2f}")
    results.finish()


def judged(row: dict[str, Any], machine: Any) -> dict[str, Any]:
    """The regret of a case, the decision that it would be better without, and its distance from the model and the roofline."""
    times = {name: time for name, time in row["time"].items() if name in DECISIONS}
    best = min(times, key=lambda name: times[name]) if times else ""
    seconds, cost = row["alone"]["seconds"], row["alone"]["cost"]
    return {
        "ms": seconds * 1e3,
        "regret": max(1.0, 1 / times[best]) if best else 1.0,
        "without": best if best and times[best] < 1 else "",
        "of_model": seconds / max(row["alone"]["model_seconds"], 1e-9),
        "of_roofline": seconds / max(machine.roofline(cost["operations"], cost["stores"]), 1e-9),
    }


def line(name: str, figures: dict[str, Any]) -> str:
    better = f"faster without {figures['without']}" if figures["regret"] > 1.03 else ""
    rest = f"{figures['of_model']:6.1f} x model {figures['of_roofline']:8.1f} x roofline  {better}"
    return f"  {name:40} {figures['ms']:9.2f} ms  regret {figures['regret']:.2f} {rest}"


if __name__ == "__main__":
    main()
