"""wavefront: tables over three steps and four run by diagonals, all steps but one at once, whatever faces are base cases."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations, product
from typing import Any

import numpy as np
import pytest

import tempo_core as tp
from tempo_core.ir.ops import Merge
from tests import reference
from tests.cases import fast, first
from tests.core.running import assert_all_same

Face = frozenset[int]  # the steps that are at their first points there
Array = Any

NUMPY = tp.Config(backend="numpy")
WEIGHTS = (0.5, 0.3, 0.4, 0.2)  # of the points before, along each step
FACES = [frozenset(face) for count in (1, 2, 3) for face in combinations(range(3), count)]


def grid(count: int, bases: Sequence[Face], backwards: Sequence[int] = ()) -> tuple[tp.Context, list[Any], list[tp.Tensor]]:
    """Each point is the sum of the points before it, each by its weight, and of `c`; on the `bases`, it is `c` alone. Then its gradient.

    The steps in `backwards` go from their last points to the first ones.
    """
    context = tp.Context(*"hijk"[-count:])
    with context as pairs:
        steps, bounds = [step for step, _ in pairs], [bound for _, bound in pairs]
        first = [bound - 1 if s in backwards else 0 for s, bound in enumerate(bounds)]
        last = [0 if s in backwards else bound - 1 for s, bound in enumerate(bounds)]
        c = tp.input("c", domain=tuple(steps), requires_grad=True)
        d = tp.recurrence((), domain=tuple(steps), name="d")
        for face in (face for size in range(count, -1, -1) for face in map(frozenset, combinations(range(count), size))):
            here = [first[s] if s in face else step for s, step in enumerate(steps)]
            value = c[tuple(here)]
            for s in range(count) if face not in bases else ():
                if s not in face:
                    before = [*here[:s], steps[s] + (1 if s in backwards else -1), *here[s + 1 :]]
                    value = value + WEIGHTS[s] * d[tuple(before)]
            d[tuple(here)] = value
        out = d[tuple(last)]
        out.backward()
        return context, bounds, [out, c.grad, d]


def by_hand(c: Array, bases: Sequence[Face], backwards: Sequence[int] = ()) -> list[Array]:
    """The same in plain loops: the values forwards, the gradient backwards."""
    turned = np.flip(c, backwards)
    values, slopes = np.zeros_like(turned), np.zeros_like(turned)

    def before(point: tuple[int, ...]) -> list[tuple[float, tuple[int, ...]]]:
        face = frozenset(s for s, at in enumerate(point) if at == 0)
        if face in bases:
            return []
        return [(WEIGHTS[s], (*point[:s], at - 1, *point[s + 1 :])) for s, at in enumerate(point) if at > 0]

    points = list(np.ndindex(turned.shape))
    for point in points:
        values[point] = turned[point] + sum(weight * values[other] for weight, other in before(point))
    slopes[points[-1]] = 1.0
    for point in reversed(points):
        for weight, other in before(point):
            slopes[other] += weight * slopes[point]
    return [values[points[-1]], np.flip(slopes, backwards), np.flip(values, backwards)]


def normal(shape: Sequence[int]) -> Array:
    return np.random.default_rng(sum(shape)).normal(size=shape).astype("float32")


def over_diagonals(program: tp.Program) -> list[Merge]:
    """The recurrences of a program that run in a loop, if each runs over one step, which counts diagonals."""
    merges = [node for node in program.graph if isinstance(node.op, Merge) and node.domain.steps]
    domains = {tuple(step.name for step in node.domain.steps) for node in merges}
    assert domains == {("diagonal",)}, program.text()
    return [node.op for node in merges]


SUBSETS = {
    "none but the corner": [],
    "a face": FACES[:1],
    "two faces": FACES[1:3],
    "all faces, edges too": FACES,
    "all faces without their edges": FACES[:3],
    "an edge": FACES[3:4],
    "all edges": FACES[3:6],
    "a face and the opposite edge": [FACES[0], FACES[5]],
}


@pytest.mark.parametrize("name", fast(SUBSETS, "an edge"))
def test_bases_on_any_faces(name: str) -> None:
    """With a gradient, for small bounds in each order; both recurrences run over diagonals, and hold all places of two steps."""
    context, bounds, outputs = grid(3, SUBSETS[name])
    program = context.compile(dict(zip(bounds, (3, 4, 5), strict=True)), outputs[:2], NUMPY)
    if name != "all faces, edges too":
        assert {op.type.rank for op in over_diagonals(program)} == {2}
    for sizes in [(3, 4, 5), (1, 1, 1), (1, 3, 2), (4, 1, 1), (2, 2, 1)]:
        c = normal(sizes)
        results = program.with_bounds(dict(zip(bounds, sizes, strict=True))).run({"c": c})
        assert_all_same(results, by_hand(c, SUBSETS[name])[:2], 1e-5)


@pytest.mark.parametrize(
    ("name", "backwards"), first(1, [("none but the corner", (0, 1, 2)), ("two faces", (1,)), ("an edge", (0, 2))])
)
def test_steps_that_go_backwards(name: str, backwards: tuple[int, ...]) -> None:
    context, bounds, outputs = grid(3, SUBSETS[name], backwards)
    program = context.compile(dict(zip(bounds, (3, 2, 4), strict=True)), outputs, NUMPY)
    over_diagonals(program)
    assert_all_same(program.run({"c": normal((3, 2, 4))}), by_hand(normal((3, 2, 4)), SUBSETS[name], backwards), 1e-5)


@pytest.mark.parametrize("sizes", fast([[2, 3, 2, 3], [1, 2, 1, 2], [2, 1, 1, 1]], [1, 2, 1, 2]))
def test_four_steps(sizes: list[int]) -> None:
    context, bounds, outputs = grid(4, [frozenset((0,)), frozenset((1, 2)), frozenset((0, 1))])
    program = context.compile(dict(zip(bounds, sizes, strict=True)), outputs[:2], NUMPY)
    if min(sizes) > 1:
        assert {op.type.rank for op in over_diagonals(program)} == {3}
    expected = by_hand(normal(sizes), [frozenset((0,)), frozenset((1, 2)), frozenset((0, 1))])
    assert_all_same(program.run({"c": normal(sizes)}), expected[:2], 1e-5)


@pytest.mark.parametrize("step", fast("ijk", "j"))
def test_two_of_three_steps(step: str) -> None:
    """If one of them stays a loop, the others run by diagonals inside of it: conditions on this step are no conditions on diagonals."""
    context, bounds, outputs = grid(3, [])
    config = tp.Config(backend="numpy", disable=(f"vectorize({step})",))
    program = context.compile(dict(zip(bounds, (3, 4, 2), strict=True)), outputs, config)
    assert {step, "diagonal"} <= {each.name for node in program.graph if isinstance(node.op, Merge) for each in node.domain.steps}
    assert_all_same(program.run({"c": normal((3, 4, 2))}), by_hand(normal((3, 4, 2)), []), 1e-5)


@pytest.mark.parametrize("sizes", fast([[2, 3, 4], [1, 2, 2], [4, 1, 3]], [2, 3, 4]))
def test_three_sequences(sizes: list[int]) -> None:
    """An alignment of three sequences: each point is the least of seven before it, with costs of pairs; many results read it."""
    context = tp.Context("i", "j", "k")
    with context as ((i, I), (j, J), (k, K)):
        x, y, z = (tp.input(name, domain=(step,)) for name, step in (("x", i), ("y", j), ("z", k)))
        d = tp.recurrence((), domain=(i, j, k), name="d")
        d[0, 0, 0] = 0.0
        d[i, 0, 0], d[0, j, 0], d[0, 0, k] = d[i - 1, 0, 0] + 0.5, d[0, j - 1, 0] + 0.5, d[0, 0, k - 1] + 0.5
        d[0, j, k] = tp.minimum(d[0, j - 1, k - 1] + (y - z) ** 2, tp.minimum(d[0, j - 1, k], d[0, j, k - 1]) + 0.5)
        d[i, 0, k] = tp.minimum(d[i - 1, 0, k - 1] + (x - z) ** 2, tp.minimum(d[i - 1, 0, k], d[i, 0, k - 1]) + 0.5)
        d[i, j, 0] = tp.minimum(d[i - 1, j - 1, 0] + (x - y) ** 2, tp.minimum(d[i - 1, j, 0], d[i, j - 1, 0]) + 0.5)
        least = d[i - 1, j - 1, k - 1] + (x - y) ** 2 + (y - z) ** 2 + (x - z) ** 2
        for moved in list(product((0, 1), repeat=3))[1:-1]:
            a, b, c = moved
            least = tp.minimum(least, d[i - a, j - b, k - c] + 0.4 * sum(moved))
        d[i, j, k] = least
        last = d[I - 1, J - 1, K - 1]
        outputs = [last, d[I - 1, 0:J, 0:K].max((0, 1)), d[i, j, 0], d[i, 0:J, K - 1].sum(0), *tp.grad(last, [x, y, z])]
    bounds = dict(zip((I, J, K), sizes, strict=True))
    fed = {name: normal((size, number))[:, 0] for number, (name, size) in enumerate(zip("xyz", sizes, strict=True), 1)}
    program = context.compile(bounds, outputs, NUMPY)
    if min(sizes) > 1:
        over_diagonals(program)
    assert_all_same(program.run(fed), reference.evaluate(context, outputs, bounds, fed), 1e-5)
