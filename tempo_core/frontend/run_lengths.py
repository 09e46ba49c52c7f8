"""Bounds that each run chooses."""

from __future__ import annotations

from tempo_core.errors import BoundsError
from tempo_core.frontend.arguments import checked
from tempo_core.symbolic.limits import UpTo


@checked
def upto(capacity: int, at_least: int = 1) -> UpTo:
    """A bound for `ctx.compile` that each run chooses: `ctx.compile({T: tp.upto(4096)}, loss)`, `program.run(inputs, bounds={T: 137})`.

    Runs share the device programs. Stores are as large as the capacity, loops run as often as the bound says. A run with a small bound may take
    a smaller capacity, of four to each power of two, for which its device programs are compiled once. A program that is right for long sequences only (it
    reads `x[3]`, say) names the least bound: `tp.upto(4096, at_least=4)`. Raises BoundsError for numbers that are no bounds.
    """
    for number in (capacity, at_least):
        if isinstance(number, bool) or not hasattr(number, "__index__") or not 1 <= number.__index__() < 2**31:
            raise BoundsError(
                f"tp.upto takes numbers from 1 to {2**31 - 1}, not {number!r}",
                hint="give the greatest bound of a run: tp.upto(4096)",
            )
    if at_least > capacity:
        raise BoundsError(
            f"no bound is at least {at_least} and at most {capacity}",
            hint=f"give a capacity of at least {at_least}: tp.upto({at_least})",
        )
    return UpTo(capacity.__index__(), at_least.__index__())
