"""Many patterns in one program, run by JAX: one device program after the other, and statement by statement."""

from __future__ import annotations

import numpy as np
import pytest

import tempo_core as tp
from tests.cases import fast
from tests.core.dependences.patterns import EARLIER, READS
from tests.core.dependences.support import Setting, kinds_for, read_program, recurrent_program, usable
from tests.core.running import assert_all_same

EVERY = [(read_program, p, k) for p, k in kinds_for(READS)] + [(recurrent_program, p, k) for p, k in kinds_for(EARLIER)]
CONFIGS = [  # compiling takes most of the time: every pattern runs staged, and some run in other ways too
    [tp.Config(), tp.Config(disable=("vectorize",))],
    [tp.Config(), tp.Config(executor="interpreted")],
    [tp.Config()],
    [tp.Config()],
]


@pytest.mark.parametrize("part", fast(range(4), 2))
def test_patterns_together(part: int) -> None:
    s = Setting(2, 5)
    outputs, expected, names = [], [], []
    for build, pattern, kind in EVERY[part :: len(CONFIGS)]:
        if usable(s, pattern, kind):
            y, value = build(s, pattern, kind)
            outputs.append(y)
            expected.append(value.astype("float32"))
            names.append(pattern.name)
    assert len(names) > 20
    for config in CONFIGS[part]:
        results = s.context.run(s.bounds, outputs=outputs, inputs=s.inputs, config=config)
        wrong = [n for n, f, e in zip(names, results, expected, strict=True) if not np.allclose(f, e, rtol=1e-4, atol=1e-4)]
        assert not wrong, f"{config}: {wrong}"
        assert_all_same(results, expected, 1e-4)
