"""The ledger: what fifteen programs cost, without a clock. A test fails if a figure rises.

python -m benchmarks.ledger                  figures of all programs, and which of them have risen or fallen
python -m benchmarks.ledger --show NAME      why: the program, its costs, and the HLO operations of each loop
python -m benchmarks.ledger --update [NAME]  record the present figures
"""

from __future__ import annotations

import argparse
import json
import os


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name", nargs="?", default="", help="only the programs whose names contain NAME")
    parser.add_argument("--show", metavar="NAME", help="explain the figures of a program")
    parser.add_argument("--update", action="store_true", help="record the present figures")
    options = parser.parse_args()
    os.environ.setdefault("JAX_PLATFORMS", "cpu")  # the figures are those of XLA on a CPU
    from benchmarks.ledger.figures import SLACK, compiled, exact, explanation, jax_version, record, recorded, risen
    from benchmarks.ledger.programs import PROGRAMS

    if options.show is not None:
        for name in (name for name in PROGRAMS if options.show in name):
            print(f"== {name}\n\n{explanation(PROGRAMS[name]())}\n")
        return
    before = recorded()
    for name in (name for name in PROGRAMS if options.name in name):
        program = PROGRAMS[name]()
        figures, of_xla = exact(program), compiled(program)
        entry = before.get(name, {"exact": figures, "hlo": {}})
        higher = risen(entry["exact"], figures) + risen(entry["hlo"].get(jax_version(), of_xla), of_xla, SLACK)
        print(f"{name}: {json.dumps(figures | of_xla)}" + "".join(f"\n    risen: {line}" for line in higher), flush=True)
        if options.update:
            before[name] = {"exact": figures, "hlo": entry["hlo"] | {jax_version(): of_xla}}
            record(before)


if __name__ == "__main__":
    main()
