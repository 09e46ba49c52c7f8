"""Options: unknown values are refused with the nearest right one; a plan that does not fit is refused before it runs."""

from __future__ import annotations

import pytest

import tempo_core as tp
from tempo_core.config import size_in_bytes


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"backend": "jaxx"}, "did you mean 'jax'"),
        ({"executor": "stage"}, "did you mean 'staged'"),
        ({"disable": ("vectorise",)}, "did you mean 'vectorize'"),
        ({"disable": ("fuse(t)",)}, "names a step, but only vectorize takes one"),
        ({"memory_limit": "much"}, "is not a size"),
        ({"target": "a100"}, "one of cpu, h100, or what you measured: Config(target=tp.Target.load"),
        ({"target": 3}, "one of cpu, h100"),
    ],
)
def test_wrong_options_name_the_right_ones(options, text):
    with pytest.raises(tp.errors.ConfigError, match=text.replace("(", r"\(").replace(")", r"\)")):
        tp.Config(**options)


@pytest.mark.parametrize(
    ("size", "count"), [(7, 7), ("4096", 4096), ("2GiB", 2 << 30), ("1.5 MiB", 3 << 19), ("10kb", 10_000), ("0", 0)]
)
def test_sizes(size, count):
    assert size_in_bytes(size) == count


def test_a_plan_that_does_not_fit_is_refused_with_its_largest_stores():
    ctx = tp.Context("t")
    with ctx as ((t, T),):
        obs = tp.input("obs", (4,), domain=(t,))
        bounds, outputs = {T: 100}, [tp.tanh(obs)[0:T].sum(0)]
    peak = ctx.compile(bounds, outputs).plan().peak_device_bytes
    with pytest.raises(
        tp.errors.OutOfMemoryPlanError,
        match=r"obs \(\w+\): float32\[(?:T, )?4\]( x \d+ slots)? = [\d,]+ bytes\n      at tests/core/test_config.py",
    ):
        ctx.compile(bounds, outputs, tp.Config(memory_limit=20))
    ctx.compile(bounds, outputs, tp.Config(memory_limit=peak))
    ctx.compile(bounds, outputs, tp.Config(memory_limit="1MiB"))


def test_bounds_are_checked():
    ctx = tp.Context("t")
    with ctx as ((t, T),):
        x = tp.zeros(()) + t
    for bounds, text in [
        ({}, "the bound T is missing"),
        ({T: 0}, "must be an int from 1 to 2147483647"),
        ({t: 3}, "t is not a bound"),
        ({T: 2.5}, "must be an int from 1 to 2147483647"),
    ]:
        with pytest.raises(tp.errors.BoundsError, match=text):
            ctx.run(bounds, [x])
