"""What XLA's reductions of rows hold in memory on a CPU, beside the temporaries that XLA counts.

Where rows are added up, or their maximum is looked for, XLA's library for reductions copies parts of them: the wider they are, the more.
"""

from __future__ import annotations

import math
import re

_CALLED = re.compile(r"calls=%([\w.-]+).*__ynn_fusion")
_REDUCTION = re.compile(r" reduce\(%([\w.-]+), [^)]*\), dimensions=\{([\d,]+)\}")
_SHAPE = r"%{} = (?:f|bf)\d+\[([\d,]+)\]"
# Of narrower rows, a share is held. On two cores, rows of 1,000, 3,000, 5,000, 10,000 and 20,000 elements: 2.5, 9.7, 17, 33 and 100 % of them.
WIDTH_HELD_WHOLE = 30_000
ITEM = 4  # bytes; narrower floats are added up as float32


def held(text: str) -> int:
    """The most bytes that a reduction of an optimized XLA program holds."""
    return max((_held(body) for name in _CALLED.findall(text) if (body := _body(text, name))), default=0)


def _body(text: str, name: str) -> str:
    return text.partition(f"\n%{name} (")[2].partition("\n}")[0]


def _held(body: str) -> int:
    most = 0
    for operand, axes in _REDUCTION.findall(body):
        for shape in re.findall(_SHAPE.format(re.escape(operand)), body):
            sizes = list(map(int, shape.split(",")))
            width = math.prod(sizes[max(map(int, axes.split(","))) + 1 :])
            most = max(most, int(ITEM * math.prod(sizes) * min(1.0, width / WIDTH_HELD_WHOLE) * (width > 1)))
    return most
