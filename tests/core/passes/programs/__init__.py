"""Programs that are difficult for a pass. Each must have the same meaning, whichever passes run."""

from __future__ import annotations

from tests.core.passes.programs import hard_cleaning, hard_loops, hard_ranges, hard_shapes, hard_tables
from tests.core.passes.programs.declare import Program

PROGRAMS: dict[str, Program] = {
    **hard_cleaning.PROGRAMS,
    **hard_tables.PROGRAMS,
    **hard_ranges.PROGRAMS,
    **hard_shapes.PROGRAMS,
    **hard_loops.PROGRAMS,
}
HARD = tuple({program.hard_on: name for name, program in PROGRAMS.items()}.values())  # one for each pass, for which it is hard
