"""Attention to several sources is one softmax over all of them; and what a pattern's slices say about how far they reach."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tempo_core as tp
from tempo_core import nn
from tempo_core.nn.attention import Reached

PATTERNS = {
    "causal": nn.causal,
    "full": nn.full,
    "window": nn.window(5),
    "block": nn.block(4),
    "whole blocks": nn.block(4, causal=False),
    "sinks": nn.sinks(3, 4),
    "dilated": nn.dilated(3),
    "dilated window": nn.dilated(2, 3),
}
LENGTH = 23


@pytest.mark.parametrize("name", PATTERNS)
def test_how_far_the_slices_of_a_pattern_reach(name: str) -> None:
    pattern = PATTERNS[name]
    parts = pattern.parts(LENGTH)
    context = tp.Context("t")
    with context as ((t, T),):
        rows, columns = tp.zeros((), "int32") + t, tp.arange(LENGTH)
        results = [part.inside(rows, columns) for part in parts]
    inside = [np.broadcast_to(each, (LENGTH, LENGTH)) for each in context.run({T: LENGTH}, results)]
    reached = np.zeros((LENGTH, LENGTH), bool)
    for row in range(LENGTH):
        reached[row, pattern.positions(row, LENGTH)] = True
    np.testing.assert_array_equal(np.logical_or.reduce(inside), reached)
    at = np.arange(LENGTH)
    for part, mask in zip(parts, inside, strict=True):
        backs = [row - mask[row].argmax() for row in at if mask[row].any()]
        assert part.back == (max(backs) if max(backs) < LENGTH - 1 else None) or part.part.step not in (None, 1)
        end = max(int(np.flatnonzero(row).max()) + 1 for row in mask if row.any())
        assert part.end == (end if end < LENGTH else None)
        assert part.is_causal == (not np.triu(mask, 1).any())
        assert not part.is_all or mask[np.tril_indices(LENGTH)].all()
    assert any(part.is_all for part in parts) == (name in ("causal", "full"))


class WithRest(nn.GroupedQueryAttention):
    """Attention with one more score, whose share is dropped."""

    def rest(self) -> tp.Tensor | None:
        return tp.constant(np.full((self.key_heads, self.heads // self.key_heads, 1), 0.7, np.float32))


@pytest.mark.parametrize("kind", [nn.GroupedQueryAttention, WithRest])
@pytest.mark.parametrize("executor", ["staged", "interpreted"])
def test_several_sources_are_one_softmax(kind: Any, executor: str) -> None:
    """Of 4 heads over 2 key heads; one source has two dimensions of positions, and one is masked as a whole."""
    random = np.random.default_rng(0)
    shapes = {"first": (3, 2, 4), "second": (2, 5, 2, 4), "none": (4, 2, 4)}
    masks = {"first": np.array([1, 0, 1], bool), "second": random.random((2, 5)) < 0.6, "none": np.zeros(4, bool)}
    fed = {f"{part} {name}": random.normal(size=shape).astype(np.float32) for name, shape in shapes.items() for part in "kv"}
    query = random.normal(size=(4, 4)).astype(np.float32)

    def mixed(keys: np.ndarray, values: np.ndarray) -> np.ndarray:
        result = np.zeros((4, 4))
        for head in range(4):
            scores = np.append(keys[:, head // 2] @ query[head] / 2, [0.7] if kind is WithRest else [])
            shares = np.exp(scores - scores.max())
            result[head] = (shares / shares.sum())[: len(keys)] @ values[:, head // 2]
        return result.reshape(-1)

    context = tp.Context("t")
    with context as ((t, T),):
        attention = kind(16, 4, 2, head_width=4, domain=(t,))
        sources = []
        for name in shapes:
            is_by_head = name == "first"
            keys, values = (
                tp.constant(fed[f"{part} {name}"].swapaxes(0, 1) if is_by_head else fed[f"{part} {name}"]) for part in "kv"
            )
            sources.append(Reached(keys, values, tp.constant(masks[name]), is_by_head))
        together = attention.mixed(tp.constant(query), sources)
        alone = attention.mixed(tp.constant(query), sources[:1])
    results = context.run(
        {T: 1}, [together[0:T], alone[0:T]] if together.domain.steps else [together, alone], config=tp.Config(executor=executor)
    )

    def chosen(names: list[str]) -> list[np.ndarray]:
        return [
            np.concatenate([fed[f"{part} {name}"].reshape(-1, 2, 4)[masks[name].reshape(-1)] for name in names]) for part in "kv"
        ]

    np.testing.assert_allclose(np.asarray(results[0]).reshape(-1), mixed(*chosen(list(shapes))), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(np.asarray(results[1]).reshape(-1), mixed(*chosen(["first"])), rtol=1e-5, atol=1e-6)


def test_one_result_of_a_run() -> None:
    context = tp.Context("t")
    with context as ((t, T),):
        x = tp.recurrence((), domain=(t,), name="x")
        x[0] = 1.0
        x[t + 1] = tp.tanh(x) * 2
        program = context.compile({T: 6}, {"x": x, "y": x + 1}, tp.Config(disable=("vectorize(t)",)))
    run = program.start(by="t")
    run.advance("t", 2)
    for name in ("x", "y"):
        np.testing.assert_array_equal(run.result(name), run.results[name])
    with pytest.raises(tp.errors.ArgumentError, match="no output is called 'z'"):
        run.result("z")
    run.finish()
