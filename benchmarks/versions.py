"""Two environments side by side: Tempo's figures under this Python and JAX, and under another one, on one machine.

    python -m benchmarks.versions --other /path/to/other/bin/python [--only classics] [--out FILE]

Each part is a benchmark of this folder, run whole by one interpreter and then by the other. A row whose ratio (other divided by this) is
above `LIMIT` is measured again, alone, in turns: this, other, this, other. What is above it then is listed at the end. The file is written
after each part; with `--only`, it keeps the rows of other parts that are in it.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.common import Results, arguments, say

ROOT = Path(__file__).resolve().parents[1]
LIMIT = 1.3  # a ratio above it needs a cure, or a reason
AGAIN = 2  # turns of a row that is measured again
SIDES = ("this", "other")


@dataclass(frozen=True)
class Part:
    """A benchmark with its arguments, and where its rows have a figure of Tempo, and one of the peer (of the same work by hand)."""

    name: str
    arguments: tuple[str, ...]
    tempo: tuple[str, ...]
    peer: tuple[str, ...] = ()


PARTS = {
    "classics": Part("classics", ("--turns", "3", "--seconds", "60"), ("ms", "tempo"), ("ms", "by hand")),
    "small classics": Part("classics", ("--turns", "3", "--sizes", "small"), ("ms", "tempo"), ("ms", "by hand")),
    "ppo": Part("ppo", ("--turns", "3"), ("ms_per_iteration", "tempo", "median"), ("ms_per_iteration", "JAX by hand", "median")),
    "decode": Part(
        "decode",
        ("--turns", "3", "--only", "length="),
        ("ms_per_token", "tempo", "median"),
        ("ms_per_token", "JAX by hand", "median"),
    ),
    "copies": Part("copies", (), ("moved_bytes_in_loops",), ("needed_bytes",)),
    "second start": Part(
        "second_start", ("--turns", "2"), ("seconds", "filled cache", "median"), ("seconds", "empty cache", "median")
    ),
}


def main() -> None:
    options = arguments(__doc__ or "", add_options)
    interpreters = {"this": sys.executable, "other": str(options.other)}
    results = Results("versions", options)
    results.add("versions", this=versions_of(interpreters["this"]), other=versions_of(interpreters["other"]))
    if options.only and options.out is not None and options.out.exists():
        before = json.loads(options.out.read_text(encoding="utf-8"))["cases"]
        others = tuple(f"{title}: " for title in PARTS if not results.selects(title))
        results.cases += [case for case in before if case["case"].startswith(others)]
    for title, part in PARTS.items():
        if not results.selects(title):
            continue
        say(f"\n{title}: Tempo here and there, their ratio; the same work by hand, their ratio")
        both = {side: rows_of(part, interpreters[side], options.quick) for side in SIDES}
        for name, row in compared(part, both):
            ratio = row["ratio"]["tempo"]
            if ratio is not None and ratio > LIMIT and not options.quick:
                row = measured_again(part, name, interpreters)
            say(line(name, row))
            results.add(f"{title}: {name}", **row)
        results.save()
    summarize([case for case in results.cases if "ratio" in case])
    results.finish()


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--other", type=Path, required=True, metavar="PYTHON", help="the interpreter of the other environment")


def versions_of(python: str) -> dict[str, str]:
    """The versions in another environment."""
    program = "import json; from benchmarks.common import versions; print(json.dumps(versions()))"
    return json.loads(subprocess.run([python, "-c", program], cwd=ROOT, check=True, capture_output=True, text=True).stdout)


def rows_of(part: Part, python: str, quick: bool, only: str = "") -> dict[str, Mapping[str, Any]]:
    """The rows of a benchmark in an environment, by name; none if it fails there, which is said."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "figures.json"
        command = [python, "-m", f"benchmarks.{part.name}", *part.arguments, "--out", str(out)]
        done = subprocess.run(
            [*command, *(["--quick"] if quick else []), *(["--only", only] if only else [])], cwd=ROOT, stdout=subprocess.DEVNULL
        )
        if done.returncode or not out.exists():
            say(f"  {' '.join(command)} ended with {done.returncode}")
            return {}
        return {case["case"]: case for case in json.loads(out.read_text())["cases"]}


def figure(row: Mapping[str, Any] | None, path: Sequence[str]) -> float | None:
    value: Any = row
    for key in path:
        value = value.get(key) if isinstance(value, Mapping) else None
    return float(value) if path and isinstance(value, (int, float)) else None


def compared(part: Part, both: Mapping[str, Mapping[str, Any]]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Each row with the figures of both sides and their ratios."""
    for name in dict.fromkeys((*both["this"], *both["other"])):
        figures = {
            kind: {side: figure(both[side].get(name), path) for side in SIDES}
            for kind, path in (("tempo", part.tempo), ("peer", part.peer))
        }
        yield name, with_ratios(figures)


def with_ratios(figures: Mapping[str, Mapping[str, float | None]]) -> dict[str, Any]:
    ratios = {kind: _ratio(each["other"], each["this"]) for kind, each in figures.items()}
    return {**figures, "ratio": ratios}


def _ratio(above: float | None, below: float | None) -> float | None:
    return None if above is None or below is None or (not below and above) else above / below if below else 1.0


def measured_again(part: Part, name: str, interpreters: Mapping[str, str]) -> dict[str, Any]:
    """A row alone, in turns: the medians of both sides."""
    turns: dict[str, list[Mapping[str, Any]]] = {side: [] for side in SIDES}
    for _ in range(AGAIN):
        for side, python in interpreters.items():
            turns[side].append(rows_of(part, python, False, name).get(name, {}))
    figures = {
        kind: {side: _median(figure(row, path) for row in turns[side]) for side in SIDES}
        for kind, path in (("tempo", part.tempo), ("peer", part.peer))
    }
    return {**with_ratios(figures), "again": AGAIN}


def _median(figures: Iterator[float | None]) -> float | None:
    known = [value for value in figures if value is not None]
    return statistics.median(known) if known else None


def line(name: str, row: Mapping[str, Any]) -> str:
    def pair(kind: str) -> str:
        numbers = " ".join("         -" if row[kind][side] is None else f"{row[kind][side]:10.4g}" for side in SIDES)
        ratio = row["ratio"][kind]
        return f"{numbers}  x {'   -' if ratio is None else f'{ratio:4.2f}'}"

    return f"  {name:44} {pair('tempo')}   {pair('peer')}{'   (again)' if 'again' in row else ''}"


def summarize(cases: Sequence[Mapping[str, Any]]) -> None:
    """The geometric mean of Tempo's ratios, and the rows above the limit."""
    ratios = {case["case"]: case["ratio"]["tempo"] for case in cases if case["ratio"]["tempo"]}
    if ratios:
        mean = math.exp(sum(map(math.log, ratios.values())) / len(ratios))
        say(f"\n{len(ratios)} rows: {mean:.2f} x in the geometric mean; above {LIMIT:g} x:")
        for name in sorted((n for n in ratios if ratios[n] > LIMIT), key=lambda n: -ratios[n]):
            say(f"  {ratios[name]:9.2f}  {name}")
    missing = [case["case"] for case in cases if case["ratio"]["tempo"] is None]
    if missing:
        say(f"without a figure on one side: {', '.join(missing)}")


if __name__ == "__main__":
    main()
