"""What Tempo estimates that the device programs of the classics need besides arguments and results, against what XLA lays out.

Nothing runs and nothing is timed: each program is traced and compiled. The figure of a program is that of its largest device program.

    python -m benchmarks.temporaries [--sizes small|full] [--only NAME] [--out FILE]
"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from benchmarks.common import Results, arguments, say

if TYPE_CHECKING:
    from benchmarks.classics.classic import Classic


def main() -> None:
    options = arguments(__doc__ or "", add_options)
    from benchmarks.classics.classic import Classic
    from benchmarks.classics.table import load

    results = Results("temporaries", options)
    for name, classic in load().items():
        size = "tiny" if options.quick else options.sizes
        if not results.selects(name) or not isinstance(classic, Classic) or size not in classic.sizes:
            continue
        estimate, xla = figures(classic, size)
        say(f"  {name:40} {estimate:14,} of {xla:14,} bytes  x {estimate / max(xla, 1):.2f}")
        results.add(name, size=size, bytes={"estimate": estimate, "XLA": xla})
    results.finish()


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--sizes", choices=("small", "full"), default="full", help="[default: full]")


def figures(classic: Classic, size: str) -> tuple[int, int]:
    """Our estimate of the temporaries of a classic, and XLA's own figure, in bytes."""
    program = classic.program(**classic.sizes[size]).compile()
    staged = program._staged
    assert staged is not None
    estimates = [staged.temporaries(segment).bytes for segment in staged.segments]
    program.compile()
    measured = [staged.measured(segment) for segment in staged.segments]
    return max(estimates), max(bytes or 0 for bytes in measured)


if __name__ == "__main__":
    main()
