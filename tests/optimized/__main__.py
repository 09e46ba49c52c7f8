"""What the programs of the set take, in CPU seconds.

python -m tests.optimized [NAME]            the seconds of the programs whose names contain NAME, beside the recorded ones
python -m tests.optimized --update [NAME]   record them, for the JAX of this Python; results too, where they have changed
"""

from __future__ import annotations

import argparse
import importlib.util
import json

from tests.optimized.programs import PROGRAMS
from tests.optimized.watch import RECORD, Failure, differences, jax_version, recorded, run

MOST = 900.0  # CPU seconds of a program, while nothing is recorded


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name", nargs="?", default="", help="only the programs whose names contain NAME")
    parser.add_argument("--update", action="store_true", help="record the present figures")
    options = parser.parse_args()
    for name, program in PROGRAMS.items():
        if options.name not in name:
            continue
        if program.needs and importlib.util.find_spec(program.needs) is None:
            print(f"{name}: skipped, needs {program.needs}", flush=True)
            continue
        before = recorded()
        entry = before.get(name, {"cpu_seconds": {}, "results": {}})
        try:
            outcome = run(name, MOST)
        except Failure as error:
            print(f"FAILED {error}", flush=True)
            continue
        changed = differences(outcome.results, entry["results"]) if name in before else []
        figures = ", ".join(f"JAX {version} {seconds}" for version, seconds in entry["cpu_seconds"].items())
        print(f"{name}: {outcome.cpu_seconds:.1f} CPU seconds (recorded: {figures or 'none'})", flush=True)
        print("".join(f"    {line}\n" for line in changed), end="", flush=True)
        if options.update:
            seconds = entry["cpu_seconds"] | {jax_version(): round(outcome.cpu_seconds, 1)}
            results = {key: value if isinstance(value, str) else float(f"{value:.4g}") for key, value in outcome.results.items()}
            before[name] = {"cpu_seconds": seconds, "results": results if changed or name not in before else entry["results"]}
            RECORD.write_text(json.dumps(before, indent=1, sort_keys=True) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
