"""Dependence patterns: each index is written once, for Tempo (symbols) and for NumPy (numbers)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import tempo_core as tp
from tempo_core.symbolic.expr import Expr

Make = Callable[[Any, Any, Any, Any], Any]  # of i, I, t, T


def least(*parts: Any) -> Any:
    return tp.min(*parts) if any(isinstance(p, Expr) for p in parts) else min(parts)


def greatest(*parts: Any) -> Any:
    return tp.max(*parts) if any(isinstance(p, Expr) for p in parts) else max(parts)


def neither(left: Any, right: Any) -> Any:
    return not (left or right) if isinstance(left, bool) and isinstance(right, bool) else ~(left | right)


def always(i: Any, I: Any, t: Any, T: Any) -> Any:
    return True


@dataclass(frozen=True)
class Pattern:
    """The points that are read at (i, t), where `when` holds; `rank` is the number of slices in the index."""

    name: str
    index: Make
    when: Make = always

    @property
    def rank(self) -> int:
        return sum(isinstance(part, slice) for part in self.index(0, 1, 0, 1))

    def __str__(self) -> str:
        return self.name


# -- of a tensor that is given: any point in time may be read ---------------------------------------------------------

READS = [
    Pattern("identity", lambda i, I, t, T: (i, t)),
    Pattern("first", lambda i, I, t, T: (i, 0)),
    Pattern("last", lambda i, I, t, T: (i, T - 1)),
    Pattern("middle", lambda i, I, t, T: (i, T // 2)),
    Pattern("a corner", lambda i, I, t, T: (I - 1, 0)),
    Pattern("a constant row", lambda i, I, t, T: (0, t)),
    Pattern("previous", lambda i, I, t, T: (i, t - 1), lambda i, I, t, T: t >= 1),
    Pattern("three before", lambda i, I, t, T: (i, t - 3), lambda i, I, t, T: t >= 3),
    Pattern("previous, clamped", lambda i, I, t, T: (i, greatest(t - 1, 0))),
    Pattern("three before, clamped", lambda i, I, t, T: (i, greatest(t - 3, 0))),
    Pattern("next", lambda i, I, t, T: (i, t + 1), lambda i, I, t, T: t + 1 < T),
    Pattern("next but one", lambda i, I, t, T: (i, t + 2), lambda i, I, t, T: t < T - 2),
    Pattern("three after, clamped", lambda i, I, t, T: (i, least(t + 3, T - 1))),
    Pattern("clamped at both ends", lambda i, I, t, T: (i, least(greatest(t - 1, 0), T // 2))),
    Pattern("reversed", lambda i, I, t, T: (i, T - 1 - t)),
    Pattern("reversed, held", lambda i, I, t, T: (i, (T - 1 - t) // 2)),
    Pattern("reversed rows", lambda i, I, t, T: (I - 1 - i, T - 1 - t)),
    Pattern("modulo", lambda i, I, t, T: (i, t % 2), lambda i, I, t, T: T >= 2),
    Pattern("modulo, clamped", lambda i, I, t, T: (i, least(t % 3, T - 1))),
    Pattern("halved", lambda i, I, t, T: (i, t // 2)),
    Pattern("doubled", lambda i, I, t, T: (i, 2 * t), lambda i, I, t, T: 2 * t < T),
    Pattern("doubled and one", lambda i, I, t, T: (i, 2 * t + 1), lambda i, I, t, T: 2 * t + 1 < T),
    Pattern("doubled, clamped", lambda i, I, t, T: (i, least(2 * t, T - 1))),
    Pattern("start of the block", lambda i, I, t, T: (i, t // 3 * 3)),
    Pattern("end of the block", lambda i, I, t, T: (i, least(t // 3 * 3 + 2, T - 1))),
    Pattern("partner", lambda i, I, t, T: (i, t + 1 - 2 * (t % 2)), lambda i, I, t, T: t + 1 - 2 * (t % 2) < T),
    Pattern("causal", lambda i, I, t, T: (i, slice(0, t + 1))),
    Pattern("strictly causal", lambda i, I, t, T: (i, slice(0, t))),
    Pattern("anti-causal", lambda i, I, t, T: (i, slice(t, T))),
    Pattern("strictly anti-causal", lambda i, I, t, T: (i, slice(t + 1, T))),
    Pattern("whole", lambda i, I, t, T: (i, slice(0, T))),
    Pattern("all but the first", lambda i, I, t, T: (i, slice(1, T))),
    Pattern("all but the last", lambda i, I, t, T: (i, slice(0, T - 1))),
    Pattern("first half", lambda i, I, t, T: (i, slice(0, (T + 1) // 2))),
    Pattern("forward window", lambda i, I, t, T: (i, slice(t, least(t + 3, T)))),
    Pattern("strict forward window", lambda i, I, t, T: (i, slice(t + 1, least(t + 3, T))), lambda i, I, t, T: t + 1 < T),
    Pattern("backward window", lambda i, I, t, T: (i, slice(greatest(t - 2, 0), t + 1))),
    Pattern("strict backward window", lambda i, I, t, T: (i, slice(greatest(t - 2, 0), t))),
    Pattern("window around", lambda i, I, t, T: (i, slice(greatest(t - 1, 0), least(t + 2, T)))),
    Pattern("full windows alone", lambda i, I, t, T: (i, slice(t - 2, t + 1)), lambda i, I, t, T: t >= 2),
    Pattern("block", lambda i, I, t, T: (i, slice(t // 2 * 2, least((t // 2 + 1) * 2, T)))),
    Pattern("block so far", lambda i, I, t, T: (i, slice(t // 3 * 3, t + 1))),
    Pattern("rest of the block", lambda i, I, t, T: (i, slice(t, least((t // 3 + 1) * 3, T)))),
    Pattern("blocks before", lambda i, I, t, T: (i, slice(0, t // 2 * 2))),
    Pattern("every other", lambda i, I, t, T: (i, slice(0, T, 2))),
    Pattern("every other from here", lambda i, I, t, T: (i, slice(t, T, 2))),
    Pattern("every third so far", lambda i, I, t, T: (i, slice(0, t + 1, 3))),
    Pattern("every other of the same parity", lambda i, I, t, T: (i, slice(t % 2, t + 1, 2))),
    Pattern("dilated window", lambda i, I, t, T: (i, slice(greatest(t - 4, t % 2), t + 1, 2))),
    Pattern("all rows here", lambda i, I, t, T: (slice(0, I), t)),
    Pattern("rows so far", lambda i, I, t, T: (slice(0, i + 1), t)),
    Pattern("rows from here, previous", lambda i, I, t, T: (slice(i, I), t - 1), lambda i, I, t, T: t >= 1),
    Pattern("previous row, whole", lambda i, I, t, T: (i - 1, slice(0, T)), lambda i, I, t, T: i >= 1),
    Pattern("previous row, causal", lambda i, I, t, T: (i - 1, slice(0, t + 1)), lambda i, I, t, T: i >= 1),
    Pattern("next row, previous", lambda i, I, t, T: (i + 1, t - 1), lambda i, I, t, T: (i + 1 < I) & (t >= 1)),
    Pattern("a rectangle", lambda i, I, t, T: (slice(0, i + 1), slice(0, t + 1))),
    Pattern("a window of rows and time", lambda i, I, t, T: (slice(greatest(i - 1, 0), i + 1), slice(t, least(t + 2, T)))),
    Pattern("all", lambda i, I, t, T: (slice(0, I), slice(0, T))),
    Pattern("rows of a constant", lambda i, I, t, T: (slice(i, I), T - 1)),
    Pattern("the time is the row", lambda i, I, t, T: (least(t, I - 1), i), lambda i, I, t, T: i < T),
    Pattern("both by the time", lambda i, I, t, T: (least(t, I - 1), t)),
    Pattern("both by the row", lambda i, I, t, T: (i, least(i, T - 1))),
    Pattern("skewed", lambda i, I, t, T: (i, i + t), lambda i, I, t, T: i + t < T),
    Pattern("skewed, back", lambda i, I, t, T: (i, t - i), lambda i, I, t, T: t >= i),
    Pattern("skewed, slice", lambda i, I, t, T: (i, slice(i, i + t + 1)), lambda i, I, t, T: i + t < T),
    Pattern("skewed, clamped", lambda i, I, t, T: (i, least(i + t, T - 1))),
    Pattern("summed steps by a parity", lambda i, I, t, T: (i, t // 2 + i), lambda i, I, t, T: t // 2 + i < T),
    Pattern("at multiples", lambda i, I, t, T: (i, t - 2), lambda i, I, t, T: ((t + 1) % 3 == 0) & (t >= 2)),
    Pattern("but at multiples", lambda i, I, t, T: (i, t), lambda i, I, t, T: (t % 3 != 0) | (i == 0)),
    Pattern("in neither of two cases", lambda i, I, t, T: (i, least(t + 1, T - 1)), lambda i, I, t, T: neither(t < 1, i >= 1)),
    Pattern("modulo and row", lambda i, I, t, T: (i, t % 3 + i), lambda i, I, t, T: t % 3 + i < T),
    Pattern("modulo and row, with holes", lambda i, I, t, T: (i, t % 2 + i), lambda i, I, t, T: (t % 3 != 1) & (t % 2 + i < T)),
    Pattern("rows and time as one", lambda i, I, t, T: (0, 2 * t + i), lambda i, I, t, T: 2 * t + i < T),
    Pattern("above the diagonal", lambda i, I, t, T: (i, t - i - 1), lambda i, I, t, T: i < t),
]  # fmt: skip

# -- of the recurrence itself: some order of time must be left --------------------------------------------------------

EARLIER = [
    Pattern("previous", lambda i, I, t, T: (i, t - 1), lambda i, I, t, T: t >= 1),
    Pattern("three before", lambda i, I, t, T: (i, t - 3), lambda i, I, t, T: t >= 3),
    Pattern("halved", lambda i, I, t, T: (i, t // 2), lambda i, I, t, T: t >= 1),
    Pattern("halved, previous", lambda i, I, t, T: (i, (t - 1) // 2), lambda i, I, t, T: t >= 1),
    Pattern("first", lambda i, I, t, T: (i, 0), lambda i, I, t, T: t >= 1),
    Pattern("before the block", lambda i, I, t, T: (i, t // 2 * 2 - 1), lambda i, I, t, T: t >= 2),
    Pattern("start of the block", lambda i, I, t, T: (i, t // 3 * 3), lambda i, I, t, T: t % 3 != 0),
    Pattern("modulo", lambda i, I, t, T: (i, t % 2), lambda i, I, t, T: t >= 2),
    Pattern("strictly causal", lambda i, I, t, T: (i, slice(0, t)), lambda i, I, t, T: t >= 1),
    Pattern("window", lambda i, I, t, T: (i, slice(greatest(t - 3, 0), t)), lambda i, I, t, T: t >= 1),
    Pattern("full window", lambda i, I, t, T: (i, slice(t - 2, t)), lambda i, I, t, T: t >= 2),
    Pattern("blocks before", lambda i, I, t, T: (i, slice(0, t // 2 * 2)), lambda i, I, t, T: t >= 2),
    Pattern("block before", lambda i, I, t, T: (i, slice(t // 2 * 2 - 2, t // 2 * 2)), lambda i, I, t, T: t >= 2),
    Pattern("block so far", lambda i, I, t, T: (i, slice(t // 3 * 3, t)), lambda i, I, t, T: t % 3 != 0),
    Pattern("every other", lambda i, I, t, T: (i, slice(t % 2, t, 2)), lambda i, I, t, T: t >= 2),
    Pattern("every other before", lambda i, I, t, T: (i, slice(0, t, 2)), lambda i, I, t, T: t >= 1),
    Pattern("next", lambda i, I, t, T: (i, t + 1), lambda i, I, t, T: t + 1 < T),
    Pattern("two after", lambda i, I, t, T: (i, t + 2), lambda i, I, t, T: t + 2 < T),
    Pattern("strictly anti-causal", lambda i, I, t, T: (i, slice(t + 1, T)), lambda i, I, t, T: t + 1 < T),
    Pattern("window ahead", lambda i, I, t, T: (i, slice(t + 1, least(t + 3, T))), lambda i, I, t, T: t + 1 < T),
    Pattern("last", lambda i, I, t, T: (i, T - 1), lambda i, I, t, T: t + 1 < T),
    Pattern("doubled", lambda i, I, t, T: (i, 2 * t + 1), lambda i, I, t, T: 2 * t + 1 < T),
    Pattern("previous row", lambda i, I, t, T: (i - 1, t), lambda i, I, t, T: i >= 1),
    Pattern("previous row, whole", lambda i, I, t, T: (i - 1, slice(0, T)), lambda i, I, t, T: i >= 1),
    Pattern("previous row, next", lambda i, I, t, T: (i - 1, t + 1), lambda i, I, t, T: (i >= 1) & (t + 1 < T)),
    Pattern("previous row, causal", lambda i, I, t, T: (i - 1, slice(0, t + 1)), lambda i, I, t, T: i >= 1),
    Pattern("previous row, last", lambda i, I, t, T: (i - 1, T - 1), lambda i, I, t, T: i >= 1),
    Pattern("previous row, reversed", lambda i, I, t, T: (i - 1, T - 1 - t), lambda i, I, t, T: i >= 1),
    Pattern("rows before", lambda i, I, t, T: (slice(0, i), t), lambda i, I, t, T: i >= 1),
    Pattern("next row", lambda i, I, t, T: (i + 1, t), lambda i, I, t, T: i + 1 < I),
    Pattern("next row, previous", lambda i, I, t, T: (i + 1, t - 1), lambda i, I, t, T: (i + 1 < I) & (t >= 1)),
    Pattern("all rows, previous", lambda i, I, t, T: (slice(0, I), t - 1), lambda i, I, t, T: t >= 1),
    Pattern("all rows, next", lambda i, I, t, T: (slice(0, I), t + 1), lambda i, I, t, T: t + 1 < T),
    Pattern("rectangle before", lambda i, I, t, T: (slice(0, i), slice(0, t)), lambda i, I, t, T: (i >= 1) & (t >= 1)),
    Pattern("partner, from odd to even", lambda i, I, t, T: (i, t - 1), lambda i, I, t, T: t % 2 == 1),
    Pattern("partner, from even to odd", lambda i, I, t, T: (i, t + 1), lambda i, I, t, T: (t % 2 == 0) & (t + 1 < T)),
    Pattern("first half by the second", lambda i, I, t, T: (i, T - 1 - t), lambda i, I, t, T: 2 * t + 1 < T),
]  # fmt: skip

# -- those that run by default: shifts, ends, blocks, windows, prefixes, strides, other rows, mirrored time, holes -----

FAST = {
    "identity", "previous", "three after, clamped", "reversed", "modulo", "start of the block", "causal", "strictly anti-causal", "whole",
    "forward window", "full windows alone", "block so far", "every third so far", "rows so far", "previous row, whole", "a rectangle",
    "skewed, clamped", "at multiples", "modulo and row, with holes",
}  # fmt: skip
FAST_EARLIER = {
    "previous", "halved", "modulo", "strictly causal", "full window", "block so far", "every other before", "next", "window ahead", "doubled",
    "previous row, causal", "all rows, previous", "first half by the second",
}  # fmt: skip
