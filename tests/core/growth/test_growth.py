"""No pattern compiles badly: each row of the growth table grows as the best form by hand does, or is on the list of those that do not yet.

`python -m tests.core.growth.test_growth NAME` prints a row's program and its costs.
"""

from __future__ import annotations

import sys

import pytest

import tempo_core as tp
from tests.core.growth.measure import excess
from tests.core.growth.not_yet import NOT_YET
from tests.core.growth.table import Row, rows

ROWS = {row.name: row for row in rows()}


def compiled(row: Row) -> tuple[tp.Program, str]:
    """A row's program, and how it grows faster than wanted ("" if it does not)."""
    context, bounds, outputs = row.program()
    program = context.compile(bounds, outputs)
    cost = program.cost()
    figures = {
        "operations": cost.operations,
        "bytes moved": cost.bytes_moved,
        "memory": cost.temporaries + cost.stores,
        "executions": cost.executions,
    }
    faster = [
        f"{figure}: {figures[figure]}, wanted {wanted}"
        for figure, wanted in row.wanted.items()
        if excess(figures[figure], wanted)
    ]
    return program, "\n".join(faster)


@pytest.mark.parametrize("name", ROWS)
def test_growth(name: str) -> None:
    program, faster = compiled(ROWS[name])
    if name in NOT_YET:
        assert faster, f"{name!r} grows as wanted now: take it off the list of tests/core/growth/not_yet.py"
    else:
        assert not faster, f"{name} grows faster than the best form by hand\n{faster}\n\n{program.text()}\n\n{program.cost()}"


MEASURED = (
    "prefix, max, forward", "window back, max, gradient", "block, sum, gradient", "attention, forward", "RNN, gradient of a bias",
    "previous value, last value",
)  # fmt: skip
SMALL = 16_384  # bytes that do not tell how something grows


@pytest.mark.parametrize("name", MEASURED)
def test_memory_grows_in_xla_as_counted(name: str) -> None:
    """Twice the time steps: temporaries and stores become so many times as large in XLA's own count as in ours."""
    context, bounds, outputs = ROWS[name].program()
    (time,) = (bound for bound in bounds if str(bound) == "T")
    ours, measured = [], []
    for number in (128, 256):
        program = context.compile({**bounds, time: number}, outputs)
        staged, cost = program._staged, program.cost()
        assert staged is not None
        staged.lower_all()
        (segment,) = staged.segments
        measured.append(segment.lowered.compile().memory_analysis().temp_size_in_bytes)
        ours.append(cost.numbers["temporaries"] + cost.numbers["stores"])
    if max(measured) < SMALL:
        assert max(ours) < 4 * SMALL
    else:
        assert 0.7 < (measured[1] / measured[0]) / (ours[1] / ours[0]) < 1.4, (measured, ours)


def test_each_name_is_that_of_one_row() -> None:
    assert len(ROWS) == len(rows())
    assert set(NOT_YET) <= set(ROWS), "rows of the list that the table lacks"


if __name__ == "__main__":
    for chosen in (row for name, row in ROWS.items() if " ".join(sys.argv[1:]) in name):
        shown, growth = compiled(chosen)
        print(f"== {chosen.name}\n{shown.text()}\n\n{shown.cost()}\n\n{growth or 'as wanted'}\n")
