"""Does a test notice? `python -m benchmarks.mutate` changes one row at a time of every table, and runs the tests that ought to.

A row is changed in two ways: a wrong result or constant, which a test of values must notice, and the row removed, which a
golden or a test of growth must notice. Of stores and of the verifier, which have no rows, each number, operator and guard in the
code is changed; the same in the code of the other tables' rows is a deeper run, `--deep`, and not part of the usual one.
Survivors are listed, and the exit code is 1 where there is one; mutants that change nothing are listed in `equivalent.txt`,
each with its reason, and one of these that is noticed, or no longer exists, is a failure too, in a run of its table and way.
A mutant that runs longer than the limit is listed as timed out: it was noticed, if its tests usually end.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from benchmarks.mutate.running import Outcome, import_everything, run_all

EQUIVALENT = Path(__file__).with_name("equivalent.txt")


def reasons(path: Path) -> dict[str, str]:
    """The mutants that change nothing, by name, with why: lines of "name", each followed by an indented reason."""
    listed: dict[str, str] = {}
    name = ""
    for line in path.read_text(encoding="utf-8").splitlines():
        if not line.strip() or line.startswith("#"):
            continue
        if line.startswith(" "):
            listed[name] = f"{listed[name]} {line.strip()}".strip()
        else:
            name = line.strip()
            listed[name] = ""
    return listed


KINDS = ("noticed", "timed out", "equivalent", "survived", "failed")


@dataclass
class Tally:
    """The outcomes of a run, judged by the list of mutants that change nothing, `equivalents`: their names and reasons."""

    equivalents: Mapping[str, str]
    counts: Counter[tuple[str, str, str]] = field(default_factory=Counter)  # by table, way and kind
    survivors: list[str] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)  # of the list, and of the tool

    def check_list(self, names: Collection[str], runs: Callable[[str, str], bool]) -> None:
        """Whether the list fits the mutants `names`: all those of each table and way of which `runs` says that it runs."""
        for name, reason in self.equivalents.items():
            if not reason:
                self.faults.append(f"{name}: is listed without a reason")
            table, _, way = name.split(" | ")[:3]
            if runs(table, way) and name not in names:
                self.faults.append(f"{name}: is listed, and there is no such mutant")

    def add(self, outcome: Outcome) -> str:
        """Count an outcome, and give its kind: one of `KINDS`."""
        mutant, kind = outcome.mutant, outcome.kind
        if kind == "survived" and mutant.name in self.equivalents:
            kind = "equivalent"
        elif mutant.name in self.equivalents:
            self.faults.append(f"{mutant.name}: is listed to change nothing, and is {kind} {outcome.by}".rstrip())
        if kind == "survived":
            self.survivors.append(mutant.name)
        if kind == "failed":
            self.faults.append(f"{mutant.name}: {outcome.by}")
        self.counts[mutant.table, mutant.way, kind] += 1
        return kind

    def text(self) -> str:
        """A table of the counts, survivors, and faults."""
        columns = " ".join(f"{kind:>10}" for kind in KINDS)
        rows = [f"{'table':24} {'way':8} {columns}"]
        for table, way in dict.fromkeys((table, way) for table, way, _ in self.counts):
            rows.append(f"{table:24} {way:8} " + " ".join(f"{self.counts[table, way, kind]:10}" for kind in KINDS))
        sums = (sum(n for (_, _, k), n in self.counts.items() if k == kind) for kind in KINDS)
        rows.append(f"{'all':33} " + " ".join(f"{number:10}" for number in sums))
        return "\n".join([*rows, "", *(f"survived: {name}" for name in sorted(self.survivors)), *self.faults])


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.mutate", description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--table", action="append", default=[], help="only this table (may be repeated)")
    parser.add_argument("--row", help="only rows whose name is this")
    parser.add_argument("--way", action="append", choices=("wrong", "code", "removed"), help="only this way (may be repeated)")
    parser.add_argument("--deep", action="store_true", help="also changes in the code of rows; so do --table, --way and --name")
    parser.add_argument("--name", action="append", default=[], help="only mutants whose whole name contains this")
    parser.add_argument("--sample", type=int, help="only so many, drawn at random")
    parser.add_argument("--seed", type=int, default=0, help="of the sample")
    parser.add_argument("--jobs", type=int, default=1, help="mutants that run at a time")
    parser.add_argument("--limit", type=int, default=30, help="seconds of the processor's time that a mutant may take (30)")
    parser.add_argument("--equivalent", type=Path, default=EQUIVALENT, help="the mutants that change nothing (equivalent.txt)")
    parser.add_argument("--list", action="store_true", help="name the mutants, and run none")
    parser.add_argument("--unchanged", action="store_true", help="change nothing: all must survive, or tests fail by themselves")
    parser.add_argument("--verbose", action="store_true", help="print each mutant with the test that noticed it")
    options = parser.parse_args()

    import_everything()
    from benchmarks.mutate.tables import (
        TABLES,
        all_mutants,
        is_deep,
    )  # imports the library, whose backends the line above has set

    unknown = [table for table in options.table if table not in TABLES]
    if unknown:
        parser.error(f"no table {unknown[0]!r}; one of: {', '.join(TABLES)}")
    tables, deep = options.table or list(TABLES), options.deep or options.table or options.way or options.name

    def runs(table: str, way: str) -> bool:
        return table in tables and way in (options.way or [way]) and (bool(deep) or not is_deep(table, way))

    mutants = [m for m in all_mutants(tables) if runs(m.table, m.way)]
    tally = Tally(reasons(options.equivalent))
    tally.check_list({mutant.name for mutant in mutants}, runs)
    mutants = [m for m in mutants if options.row in (None, m.row)]
    if options.name:
        mutants = [m for m in mutants if any(part in m.name for part in options.name)]
    if options.sample is not None and options.sample < len(mutants):
        mutants = random.Random(options.seed).sample(mutants, options.sample)
    if options.unchanged:
        by_tests = {m.tests: replace(m, way="wrong", change="nothing", apply=lambda: None) for m in mutants}
        mutants = list(by_tests.values())
    if options.list:
        print("\n".join(mutant.name for mutant in mutants))
        return 0

    start = time.monotonic()
    for outcome in run_all(mutants, options.jobs, options.limit):
        kind = tally.add(outcome)
        if options.verbose or kind not in ("noticed", "equivalent"):
            print(f"{outcome.seconds:5.1f} s  {kind:10}  {outcome.mutant.name}  {outcome.by}", flush=True)
    print(f"\n{tally.text()}\n{len(mutants)} mutants in {time.monotonic() - start:.0f} s")
    return 1 if tally.survivors or tally.faults else 0


if __name__ == "__main__":
    sys.exit(main())
