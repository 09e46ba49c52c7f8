"""The op set, for tests that walk over it: one test for each op, so that the failure of a missing row names the op."""

from __future__ import annotations

import pytest

from tempo_core.ir import ops
from tempo_core.ir.ops import Op


def _below(cls: type[Op]) -> list[type[Op]]:
    return [c for s in cls.__subclasses__() if s.__module__.startswith("tempo_core") for c in (s, *_below(s))]


EVERY_OP: tuple[type[Op], ...] = tuple(sorted(_below(ops.Op), key=lambda c: c.__name__))
each_op = pytest.mark.parametrize("op", EVERY_OP, ids=lambda c: c.__name__)
