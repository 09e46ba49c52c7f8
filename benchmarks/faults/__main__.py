"""`python -m benchmarks.faults rl`, `python -m benchmarks.faults llm` and `python -m benchmarks.faults serve`, each with `--help`."""

from __future__ import annotations

import sys


def main(arguments: list[str]) -> int:
    family, *rest = arguments or [""]
    if family == "rl":
        from benchmarks.faults.rl import main as run
    elif family == "llm":
        from benchmarks.faults.llm import main as run
    elif family == "serve":
        from benchmarks.faults.serve import main as run
    else:
        print(__doc__, file=sys.stderr)
        return 2
    return run(rest)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
