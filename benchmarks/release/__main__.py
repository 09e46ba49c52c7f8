"""Everything that the usual tests leave out, before a release: `python -m benchmarks.release --all`, or some parts: `--part fuzz-staged`.

The parts are the tests that are slow, 5,000 random programs, mutants, 1,000 damaged models, and 100 kills. Each
takes at most an hour on two cores, and may run apart from the others. Its counts, versions, seconds and findings are recorded in
`benchmarks/results/release.json`, beside the records of the other parts, also while it runs. The exit code is 1 where a part found
something, or did not end.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from benchmarks.release.kills import kill_llm, kill_rl
from benchmarks.release.programs import run_models, run_mutants, run_programs
from benchmarks.release.record import Record, saved
from benchmarks.release.tests import ROOT, run_tests

OUT = ROOT / "benchmarks" / "results" / "release.json"
SHARES = 4  # of the tests
REST = "slow and not gpu and not optimized"
NEVER = 10**9  # no seed of a part is divisible by it


@dataclass(frozen=True)
class Part:
    """What a part runs, whole or as `quick`, which shows in a minute or two that it works. Both get the record and the processes."""

    about: str
    run: Callable[[Record, int], None]
    quick: Callable[[Record, int], None]


def _programs(executor: str, first: int, count: int, optimized: int) -> Part:
    def run(count: int, record: Record, jobs: int) -> None:
        run_programs(record, executor, first, count, optimized, jobs)

    how = ", with XLA's optimizations" if optimized == 1 else ""
    return Part(f"{count:,} random programs, {executor}{how}", partial(run, count), partial(run, 10))


def _tests(about: str, marks: str, share: str, quick: str) -> Part:
    return Part(
        about,
        lambda record, jobs: run_tests(record, marks, share, jobs),
        lambda record, jobs: run_tests(record, marks, quick, jobs),
    )


PARTS: dict[str, Part] = {
    **{
        f"tests-{number}": _tests(
            f"share {number} of {SHARES} of the slow tests",
            REST,
            f"{number}/{SHARES}",
            f"{number}/400",
        )
        for number in range(1, SHARES + 1)
    },
    "optimized": _tests("programs as users run them", "optimized", "1/1", "1/10"),
    "fuzz-optimized": _programs("staged", 1_000_000, 1250, 1),
    "fuzz-staged": _programs("staged", 1_100_000, 1250, NEVER),
    "fuzz-numpy": _programs("numpy", 1_200_000, 1250, NEVER),
    "fuzz-interpreted": _programs("interpreted", 1_300_000, 1250, NEVER),
    "mutants": Part(
        "rows of tables made wrong or taken away, and code of the tables without rows",
        lambda record, jobs: run_mutants(record, (), jobs),
        lambda record, jobs: run_mutants(record, ("--sample", "4"), jobs),
    ),
    "models": Part(
        "1,000 damaged language models",
        lambda record, jobs: run_models(record, 1000, 0),
        lambda record, jobs: run_models(record, 20, 0),
    ),
    "kills-rl": Part(
        "50 kills of `tempo-rl train`", lambda record, jobs: kill_rl(record, 50, 0), lambda record, jobs: kill_rl(record, 2, 0)
    ),
    "kills-llm": Part(
        "50 kills of `tempo-llm train`",
        lambda record, jobs: kill_llm(record, 50, 0),
        lambda record, jobs: kill_llm(record, 2, 0, 40),
    ),
}


def run_part(name: str, quick: bool, jobs: int, out: Path) -> Record:
    """Run a part and save its record. What it raises is a finding."""
    part = PARTS[name]
    print(f"\n{name}: {part.about}", flush=True)
    record = Record(name, quick, lambda values: saved(out, name, values))
    try:
        (part.quick if quick else part.run)(record, jobs)
        record.status = "done"
    except Exception as error:
        record.find(f"the part itself failed: {type(error).__name__}: {error}")
        record.status = "failed"
    finally:
        record.save(record.values())
    print(record.text(), flush=True)
    return record


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--list", action="store_true", help="name the parts, and run none")
    parser.add_argument(
        "--part", action="append", default=[], choices=[*PARTS], metavar="NAME", help="run this one (may be repeated)"
    )
    parser.add_argument("--all", action="store_true", help="run all parts, one after the other")
    parser.add_argument("--quick", action="store_true", help="a minute or two of each, to see that it works; recorded as quick")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes at a time (as many as there are cores)")
    parser.add_argument(
        "--out", type=Path, help="the file of the records [default: benchmarks/results/release.json; none if quick]"
    )
    options = parser.parse_args(arguments)
    if options.list:
        for name, part in PARTS.items():
            print(f"{name:18} {part.about}")
        return 0
    names = [*PARTS] if options.all else options.part
    if not names or options.jobs < 1:
        parser.error("name a part (--part NAME, --list names them) or all of them (--all), and at least one process (--jobs)")
    out = options.out or (Path(os.devnull) if options.quick else OUT)
    records = [run_part(name, options.quick, options.jobs, out) for name in names]
    return 0 if all(record.status == "done" and not record.findings for record in records) else 1


if __name__ == "__main__":
    sys.exit(main())
