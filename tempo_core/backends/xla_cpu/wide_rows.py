"""What XLA's reductions of rows hold in memory on a CPU, beside the temporaries that XLA counts.

Where rows are added up, or their maximum is looked for, XLA's library for reductions copies parts of them: the wider they are, the more.
"""

from __future__ import annotations

import math
import re

from tempo_core.prices import WIDTH_HELD_WHOLE

_CALLED = re.compile(r"calls=%([\w.-]+).*__ynn_fusion")
_REDUCTION = re.compile(r" reduce\(%([\w.-]+), [^)]*\), dimensions=\{([\d,]+)\}")
_SHAPE = r"%{} = (?:f|bf)\d+\[([\d,]+)\]"
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
