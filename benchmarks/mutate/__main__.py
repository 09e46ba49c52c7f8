"""Does a test notice? `python -m benchmarks.mutate` changes one row at a time of every table, and runs the tests that ought to.

A row is changed in two ways: a wrong result or constant, which a test of values must notice, and the row removed, which a
golden or a test of growth must notice. Survivors are listed, and the exit code is 1 where there is one; mutants that change
nothing are listed in `equivalent.txt`, each with its reason, and one of these that is noticed, or no longer exists, is a
failure too. A mutant that runs longer than the limit is listed as timed out: it was noticed, if its tests usually end.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from collections import Counter
from pathlib import Path

EQUIVALENT = Path(__file__).with_name("equivalent.txt")


def reasons() -> dict[str, str]:
    """The mutants that change nothing, by name, with why: lines of "name", each followed by an indented reason."""
    found: dict[str, str] = {}
    name = ""
    for line in EQUIVALENT.read_text(encoding="utf-8").splitlines() if EQUIVALENT.exists() else []:
        if not line.strip() or line.startswith("#"):
            continue
        if line.startswith(" "):
            found[name] = f"{found[name]} {line.strip()}".strip()
        else:
            name = line.strip()
            found[name] = ""
    return found


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.mutate", description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--table", action="append", default=[], help="only this table (as often as wanted)")
    parser.add_argument("--row", help="only rows whose name is this")
    parser.add_argument("--way", choices=("wrong", "code", "removed"), help="only this way")
    parser.add_argument("--name", action="append", default=[], help="only mutants whose whole name contains this")
    parser.add_argument("--sample", type=int, help="only so many, drawn at random")
    parser.add_argument("--seed", type=int, default=0, help="of the sample")
    parser.add_argument("--jobs", type=int, default=1, help="mutants that run at a time")
    parser.add_argument("--limit", type=int, default=30, help="seconds of the processor's time that a mutant may take (30)")
    parser.add_argument("--list", action="store_true", help="name the mutants, and run none")
    parser.add_argument("--verbose", action="store_true", help="print each mutant with the test that noticed it")
    options = parser.parse_args()

    from benchmarks.mutate.running import import_everything, run_all

    import_everything()
    from benchmarks.mutate.tables import TABLES, all_mutants

    unknown = [table for table in options.table if table not in TABLES]
    if unknown:
        parser.error(f"no table {unknown[0]!r}; one of: {', '.join(TABLES)}")
    everything = all_mutants(options.table)
    known = reasons()
    bad = [f"{name}: has no reason" for name, reason in known.items() if not reason]
    names = {mutant.name for mutant in everything}
    chosen_tables = set(options.table or TABLES)
    bad += [f"{name}: there is no such mutant" for name in known if name.split(" | ")[0] in chosen_tables and name not in names]
    mutants = [
        m
        for m in everything
        if options.row in (None, m.row) and options.way in (None, m.way) and (not options.name or any(n in m.name for n in options.name))
    ]
    if options.sample is not None and options.sample < len(mutants):
        mutants = random.Random(options.seed).sample(mutants, options.sample)
    if options.list:
        print("\n".join(mutant.name for mutant in mutants))
        return 0

    start, counts, lines = time.monotonic(), Counter(), []
    for outcome in run_all(mutants, options.jobs, options.limit):
        mutant, kind = outcome.mutant, outcome.kind
        if mutant.name in known:
            if kind == "survived":
                kind = "equivalent"
            else:
                bad.append(f"{mutant.name}: is listed as changing nothing, and {kind}: {outcome.by}")
        counts[mutant.table, mutant.way, kind] += 1
        if kind in ("survived", "timed out", "failed"):
            lines.append(f"{kind}: {mutant.name} {outcome.by}".strip())
        if options.verbose or kind in ("survived", "timed out", "failed"):
            print(f"{outcome.seconds:5.1f} s  {kind:10}  {mutant.name}  {outcome.by}", flush=True)

    report(counts, time.monotonic() - start)
    for line in [*sorted(lines), *bad]:
        print(line)
    return 1 if bad or any(kind in ("survived", "failed") for _, _, kind in counts) else 0


KINDS = ("noticed", "timed out", "equivalent", "survived", "failed")


def report(counts: Counter[tuple[str, str, str]], seconds: float) -> None:
    """Counts by table and way."""
    print(f"\n{'table':24} {'way':8} " + " ".join(f"{kind:>10}" for kind in KINDS))
    for table, way in dict.fromkeys((table, way) for table, way, _ in counts):
        print(f"{table:24} {way:8} " + " ".join(f"{counts[table, way, kind]:10}" for kind in KINDS))
    print(f"{'all':33} " + " ".join(f"{sum(n for (_, _, k), n in counts.items() if k == kind):10}" for kind in KINDS))
    print(f"{sum(counts.values())} mutants in {seconds:.0f} s\n")


if __name__ == "__main__":
    sys.exit(main())
