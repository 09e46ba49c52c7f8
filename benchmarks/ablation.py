"""Each pass and each choice of the executor removed in turn, from PPO, REINFORCE, decoding and the classics: time and memory.

For each of them: how many programs it changes, the time and the memory of these without it over those with it (geometric means), and where it
earns most and costs most. `regret` reads the file that this writes.

    python -m benchmarks.ablation [--only NAME] [--each N] [--quick] [--seconds 60] [--out FILE]
"""

from __future__ import annotations

import argparse
from typing import Any

from benchmarks.common import Results, arguments, say
from benchmarks.variants import EVERY, Worker, mean, names, ratio

EARNS = 1.05  # what makes a program so many times slower or larger by its absence earns its place


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--seconds", type=float, default=60.0, help="how long a comparison may take [default: 60]")
    parser.add_argument("--each", type=int, default=1, metavar="N", help="only each N-th classic, for a shorter run [default: 1]")


def main() -> None:
    options = arguments(__doc__ or "", add_options)
    results = Results("ablation", options)
    for name in names(options.quick, options.each):
        if results.selects(name):
            row = measured(name, EVERY, options)
            say(text_of(name, row))
            results.add(name, **row)
            results.save()
    for line in summary(results.cases):
        say(line)
    results.finish()


def measured(name: str, off: tuple[str, ...], options: argparse.Namespace) -> dict[str, Any]:
    """A case: its time and cost, the time and memory of each variant over its own, the variants that are the same, and the failures."""
    worker = Worker(options.seconds, options.quick)
    try:
        alone = worker.compare(name, "", options.turns)
        row: dict[str, Any] = {"alone": alone, "time": {}, "memory": {}, "same": [], "failed": {}}
        for each in off if "error" not in alone else ():
            compared = worker.compare(name, each, options.turns)
            if "error" in compared:
                row["failed"][each] = compared["error"]
            elif "same" in compared:
                row["same"].append(each)
            else:
                row["time"][each] = ratio(compared)
                row["memory"][each] = compared["bytes"]["variant"] / max(1, compared["bytes"]["chosen"])
        return row
    finally:
        worker.stop()


def text_of(name: str, row: dict[str, Any]) -> str:
    if "error" in row["alone"]:
        return f"  {name:40} failed: {row['alone']['error']}"
    without = ", ".join(
        f"{each} {time:.2f}" for each, time in sorted(row["time"].items(), key=lambda item: -item[1]) if abs(time - 1) > 0.05
    )
    failed = f"; failed without {', '.join(row['failed'])}" if row["failed"] else ""
    return f"  {name:40} {row['alone']['seconds'] * 1e3:9.2f} ms; without {without or 'any, the same'}{failed}"


def summary(cases: list[dict[str, Any]]) -> list[str]:
    """A line for each pass and choice."""
    lines = ["", "without            programs   time  memory   earns most                              costs most"]
    for each in EVERY:
        rows = {case["case"]: case for case in cases if each in case["time"]}
        failed = [case["case"] for case in cases if each in case["failed"]]
        if not rows:
            lines.append(f"{each:18} {0:8}" + (f"   needed by {', '.join(failed[:3])}" if failed else "   changes nothing here"))
            continue
        times = {name: row["time"][each] for name, row in rows.items()}
        memory = {name: row["memory"][each] for name, row in rows.items()}
        most, least = max(times, key=lambda name: times[name]), min(times, key=lambda name: times[name])
        largest = max(memory, key=lambda name: memory[name])
        earned = f"{most} {times[most]:.2f}" if times[most] >= EARNS else "no time"
        earned += f"; memory of {largest} {memory[largest]:.2f}" if memory[largest] >= EARNS else ""
        cost = f"{least} {times[least]:.2f}" if times[least] <= 1 / EARNS else "nowhere"
        needed = f"; needed by {', '.join(failed[:3])}" if failed else ""
        means = f"{mean(list(times.values())):6.2f}  {mean(list(memory.values())):6.2f}"
        lines.append(f"{each:18} {len(rows):8} {means}   {earned:40} {cost}{needed}")
    return lines


if __name__ == "__main__":
    main()
