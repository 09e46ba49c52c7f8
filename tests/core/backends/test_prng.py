"""Random numbers: the cipher, its statistics, and independence of how points are batched."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tempo_core.backends import prng
from tempo_core.backends.base import numpy_dtype
from tempo_core.ir import ops
from tempo_core.symbolic.expr import Expr
from tests.cases import cells
from tests.core.backends.support import JAX, NUMPY, array, run

KINDS = ["bits", "uniform", "normal"]
each_library = pytest.mark.parametrize("xp", [np, jnp], ids=["numpy", "jax"])


def draw(kind, shape, *coordinates, seed=0, stream=0, backend=NUMPY, jit=False):
    op = ops.Random(kind, stream, tuple(map(Expr.of, shape)))
    return run(backend, op, *(array(c, "int32") for c in coordinates), seed=seed, jit=jit)[0]


@each_library
def test_threefry_gives_the_published_vectors(xp):
    # Random123's known answers for threefry2x32 with 20 rounds.
    for key, counter, expected in [
        ((0, 0), (0, 0), (0x6B200159, 0x99BA4EFE)),
        ((0xFFFFFFFF,) * 2, (0xFFFFFFFF,) * 2, (0x1CB996FC, 0xBB002BE7)),
        ((0x13198A2E, 0x03707344), (0x243F6A88, 0x85A308D3), (0xC4923A9C, 0x483DF7A0)),
    ]:
        words = [xp.asarray(np.array([w], np.uint32)) for w in (*key, *counter)]
        results = prng.threefry2x32(xp, (words[0], words[1]), (words[2], words[3]))
        assert tuple(int(w[0]) for w in results) == expected


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("coordinates", "shape"), cells([(), (3,), (3, 100_000), (0, 1, 2, 3)], [(2, 3), (), (1,), (5,), (0,)]))
def test_numpy_and_jax_agree(kind, shape, coordinates):
    expected = draw(kind, shape, *coordinates, seed=12, stream=5)
    for jit in (False, True):
        results = draw(kind, shape, *coordinates, seed=12, stream=5, backend=JAX, jit=jit)
        if kind == "normal":
            np.testing.assert_allclose(results, expected, rtol=1e-5, atol=1e-5)
        else:
            np.testing.assert_array_equal(results, expected)


@pytest.mark.parametrize("backend", [NUMPY, JAX], ids=["numpy", "jax"])
@pytest.mark.parametrize("kind", KINDS)
def test_batched_points_give_the_numbers_of_single_points(kind, backend):
    i, t = np.meshgrid(np.arange(3), np.arange(4), indexing="ij")
    batched = draw(kind, (5,), i, t, seed=3, backend=backend)
    assert batched.shape == (3, 4, 5)
    for at in np.ndindex(3, 4):
        single = draw(kind, (5,), *at, seed=3, backend=backend)
        if kind == "normal":
            np.testing.assert_allclose(batched[at], single, rtol=1e-6, atol=1e-6)
        else:
            np.testing.assert_array_equal(batched[at], single)


def test_an_element_depends_on_its_index_not_on_the_shape():
    long, short, square = draw("uniform", (9,), 1), draw("uniform", (4,), 1), draw("uniform", (3, 3), 1)
    np.testing.assert_array_equal(long[:4], short)
    np.testing.assert_array_equal(long, square.reshape(-1))


def test_everything_that_should_matter_matters():
    base = draw("bits", (4,), 1, 2, seed=0, stream=0)
    others = [
        draw("bits", (4,), 2, 1), draw("bits", (4,), 1, 2, seed=1), draw("bits", (4,), 1, 2, stream=1),
        draw("bits", (4,), 1), draw("bits", (4,), 1, 2, 0), draw("bits", (4,)), draw("bits", (4,), 1, -2),
        draw("bits", (4,), 1, 2, seed=-1),
    ]  # fmt: skip
    together = np.concatenate([base, *others])
    assert len(set(together.tolist())) == together.size


def test_seeds_count_modulo_two_to_the_32():
    np.testing.assert_array_equal(draw("bits", (3,), seed=2**32 + 5), draw("bits", (3,), seed=5))
    np.testing.assert_array_equal(draw("bits", (3,), seed=np.uint32(5)), draw("bits", (3,), seed=5))


COUNT = 100_000


def assert_independent(x, y):
    correlation = np.corrcoef(x.astype(np.float64).reshape(-1), y.astype(np.float64).reshape(-1))[0, 1]
    assert abs(correlation) < 5 / np.sqrt(x.size)


def test_uniform_is_uniform():
    x = draw("uniform", (COUNT,), 0)
    assert x.min() >= 0 and x.max() < 1
    assert abs(x.mean(dtype=np.float64) - 0.5) < 5 * np.sqrt(1 / 12 / COUNT)
    counts = np.histogram(x, bins=64, range=(0, 1))[0]
    statistic = ((counts - COUNT / 64) ** 2 / (COUNT / 64)).sum()
    assert 20 < statistic < 130  # chi-squared with 63 degrees of freedom: outside with probability below 1e-6


def test_normal_is_normal():
    x = draw("normal", (COUNT,), 0).astype(np.float64)
    assert np.isfinite(x).all()
    assert abs(x.mean()) < 5 / np.sqrt(COUNT)
    assert abs(x.var() - 1) < 5 * np.sqrt(2 / COUNT)
    assert abs((x**3).mean()) < 5 * np.sqrt(15 / COUNT)
    assert abs((x**4).mean() - 3) < 5 * np.sqrt(96 / COUNT)
    assert_independent(x[::2], x[1::2])  # the two numbers of one block
    assert_independent(x[::2] ** 2, x[1::2] ** 2)


@pytest.mark.parametrize("word", [0, 1, 2**31, 2**32 - 1])
@each_library
def test_normal_is_finite_at_the_ends(word, xp):
    words = xp.asarray(np.array([word], np.uint32))
    for other in (0, 2**32 - 1):
        for number in prng._box_muller(xp, words, xp.asarray(np.array([other], np.uint32))):
            assert np.isfinite(np.asarray(number)).all()
            assert np.abs(np.asarray(number)).max() < 6.7


@pytest.mark.parametrize("bit", [0, 7, 8, 23, 31])
def test_bits_are_fair(bit):
    ones = ((draw("bits", (COUNT,), 0) >> np.uint32(bit)) & np.uint32(1)).mean()
    assert abs(ones - 0.5) < 5 * np.sqrt(0.25 / COUNT)


@pytest.mark.parametrize("kind", ["uniform", "normal"])
def test_neighbours_are_independent(kind):
    t = np.arange(2000)
    x = draw(kind, (20,), t)
    assert_independent(x[1:], x[:-1])  # next point
    assert_independent(x[:, 1:], x[:, :-1])  # next element
    assert_independent(x, draw(kind, (20,), t, stream=1))
    assert_independent(x, draw(kind, (20,), t, seed=1))
    assert_independent(x, draw(kind, (20,), t, np.ones_like(t)))
    first = draw(kind, (), t).astype(np.float64)  # one number a point, over points
    assert abs(first.mean() - (0.5 if kind == "uniform" else 0)) < 5 * first.std() / np.sqrt(first.size)


def test_vmap_gives_the_same_numbers():
    traced = jax.vmap(lambda c: prng.random(jnp, "bits", 0, 0, [c], (3,)))(jnp.arange(4, dtype=jnp.int32))
    np.testing.assert_array_equal(np.asarray(traced), draw("bits", (3,), np.arange(4)))
    assert np.asarray(traced).dtype == numpy_dtype("uint32")


def test_each_kernel_has_one_block_of_the_cipher():
    """XLA would compute the key of a point again for each of its elements, in one kernel with them."""

    def points(seed, i):
        b, t = np.meshgrid(np.arange(6, dtype=np.int32), np.arange(4, dtype=np.int32), indexing="ij")
        return prng.random(jnp, "bits", seed, 3, [jnp.asarray(b), jnp.broadcast_to(i, b.shape), jnp.asarray(t)], (2,))

    program = jax.jit(points).lower(np.uint32(1), np.int32(2)).compile()
    kernels = [text.count(" xor(") for text in program.as_text().split("\n\n")]
    assert 20 <= max(kernels) <= 23, kernels  # 20 rounds, and the parity


@pytest.mark.parametrize("most", [0, 24, 100])
def test_how_keys_are_computed_changes_no_number(most, monkeypatch):
    monkeypatch.setattr(prng, "MOST_KEYS", most)
    i, t = np.meshgrid(np.arange(6), np.arange(4), indexing="ij")
    expected = draw("bits", (3,), i, t, i + t, seed=3)
    for jit in (False, True):
        np.testing.assert_array_equal(draw("bits", (3,), i, t, i + t, seed=3, backend=JAX, jit=jit), expected)
