"""Prefixes of prompts that are kept in memory: which can be used, and which stay."""

from __future__ import annotations

import logging
import random
from collections.abc import Sequence

import numpy as np
import pytest

from tempo_llm.prefixes import Kept, Prefix, Prefixes
from tests.llm.generate.kept_prefixes import PLENTY, prefix_of

# -- what can be used -------------------------------------------------------------------------------------------------


def can_go_on(prefix: Prefix, count: int) -> bool:
    """The definition, position by position."""
    length = len(prefix.tokens)
    for kept in prefix.layers.values():
        there = set() if kept.is_state else set(range(length - len(kept.array), length))
        if kept.is_state and count != length:
            return False
        if not kept.is_state and kept.reach is None and there != set(range(length)):
            return False
        if not kept.is_state and kept.reach is not None and not set(range(max(count - kept.reach, 0), count)) <= there:
            return False
    return True


@pytest.mark.parametrize("reach", [None, 0, 1, 3, 7])
@pytest.mark.parametrize("positions", [0, 1, 4, 5])
@pytest.mark.parametrize("state", [False, True])
def test_usable_counts_of_every_kind(reach: int | None, positions: int, state: bool) -> None:
    layers = {"keys": Kept(np.zeros((positions, 2)), reach)} | ({"state": Kept(np.zeros(()), None, True)} if state else {})
    prefix = Prefix((1, 2, 3, 4, 5), layers)
    assert [prefix.usable(count) for count in range(6)] == [can_go_on(prefix, count) for count in range(6)]
    assert not prefix.usable(-1) and not prefix.usable(6)


def random_prefix(rng: random.Random, tokens: Sequence[int]) -> Prefix:
    layers = {}
    for name in "abc"[: rng.randint(1, 3)]:
        kind = rng.choice(["full", "window", "window", "part", "state"])
        positions = len(tokens) if kind == "full" else rng.randint(0, len(tokens))
        layers[name] = Kept(np.zeros((positions, 1)), rng.randint(0, 5) if kind == "window" else None, kind == "state")
    return Prefix(tuple(tokens), layers)


def branch(rng: random.Random, stems: Sequence[tuple[int, ...]]) -> tuple[int, ...]:
    """Some tokens that begin as others do."""
    stem = rng.choice(stems)
    return stem[: rng.randint(0, len(stem))] + tuple(rng.randint(0, 2) for _ in range(rng.randint(0, 6)))


@pytest.mark.parametrize("seed", range(4))
def test_find_is_the_best_of_all_that_were_kept(seed: int) -> None:
    """What covers another prefix, and takes its place, changes no result."""
    rng = random.Random(seed)
    for _ in range(60):
        store, everything = Prefixes(PLENTY), []
        stems: list[tuple[int, ...]] = [()]
        for _ in range(rng.randint(1, 8)):
            tokens = branch(rng, stems)
            stems.append(tokens)
            everything.append(random_prefix(rng, tokens))
            store.keep(everything[-1])
            for _ in range(4):
                prompt, unit = branch(rng, stems), rng.randint(1, 3)
                best = max(
                    count
                    for count in range(0, max(len(prompt), 1), unit)
                    if count == 0
                    or any(
                        prefix.tokens[:count] == prompt[:count] and can_go_on(prefix, count)
                        for prefix in everything
                        if count <= len(prefix.tokens)
                    )
                )
                result = store.find(prompt, unit)
                assert (0 if result is None else result[1]) == best
                if result is not None:
                    assert result[0].tokens[:best] == prompt[:best] and can_go_on(result[0], best)
                    assert any(
                        prefix.tokens == result[0].tokens and dict(prefix.layers).keys() == result[0].layers.keys()
                        for prefix in everything
                    )


@pytest.mark.parametrize("seed", range(2))
def test_no_entry_in_memory_covers_another(seed: int) -> None:
    rng = random.Random(seed)
    store, stems = Prefixes(PLENTY), [()]
    for _ in range(80):
        tokens = branch(rng, stems)
        stems.append(tokens)
        store.keep(random_prefix(rng, tokens))
        entries = [entry.prefix for entry in store._entries]
        for entry in entries:
            counts = [count for count in range(1, len(entry.tokens) + 1) if can_go_on(entry, count)]
            others = [other for other in entries if other is not entry and other.tokens[: len(entry.tokens)] == entry.tokens]
            assert counts and not any(all(can_go_on(other, count) for count in counts) for other in others)


def test_the_last_token_is_computed_and_counts_are_multiples_of_the_unit() -> None:
    store = Prefixes(PLENTY)
    store.keep(prefix_of(range(8)))
    assert [found and found[1] for found in (store.find(list(range(8)), unit) for unit in (1, 2, 4, 8))] == [7, 6, 4, None]
    assert store.find(range(9), 8) is not None and store.find([], 1) is None and store.find([0], 1) is None
    assert store.find([5, 6], 1) is None
    with pytest.raises(ValueError, match="the unit is 0"):
        store.find([1, 2], 0)


def test_prefixes_that_do_not_fit_together_are_errors() -> None:
    with pytest.raises(ValueError, match="keys has 3 positions, but the prefix has 2 tokens"):
        Prefix((1, 2), {"keys": Kept(np.zeros((3, 1)), None)})
    with pytest.raises(ValueError, match="no positions"):
        Kept(np.zeros(()), None)
    with pytest.raises(ValueError, match="a reach of -1"):
        Kept(np.zeros(2), -1)
    with pytest.raises(ValueError, match="Python objects"):
        Kept(np.array([None]), None)


# -- memory -----------------------------------------------------------------------------------------------------------


def test_those_that_were_not_used_for_longest_leave_memory() -> None:
    one = prefix_of([1, 1, 1]).nbytes
    store = Prefixes(3 * one)
    for token in (1, 2, 3):
        store.keep(prefix_of([token] * 3))
    assert store.nbytes == 3 * one
    assert store.find([1, 1, 1, 1], 1) is not None  # used now
    store.keep(prefix_of([2] * 3))  # kept before, and used now
    store.keep(prefix_of([4] * 3))
    assert [store.find([token] * 4, 1) is not None for token in (1, 2, 3, 4)] == [True, True, False, True]
    store.keep(prefix_of([5] * 9))
    assert len(store) == 1 and store.nbytes == 3 * one and store.find([5] * 9, 1) is not None
    store.keep(prefix_of([6] * 10))
    assert store.find([6] * 10, 1) is None and store.find([5] * 9, 1) is not None


def test_a_prefix_takes_the_place_of_those_that_it_covers() -> None:
    store = Prefixes(PLENTY)
    for length in (2, 4, 6):
        store.keep(prefix_of(range(length)))
    assert len(store) == 1
    store.keep(prefix_of(range(3)))  # covered
    assert len(store) == 1 and store.nbytes == prefix_of(range(6)).nbytes
    store.keep(prefix_of(range(8), state=True))  # which cannot be used before its end
    assert len(store) == 2
    store.keep(prefix_of([*range(7), 9], window=4))  # from 7 on
    assert len(store) == 3
    store.keep(prefix_of([*range(7), 9], window=6))  # from 5 on
    assert len(store) == 3
    sizes = [prefix_of(range(6)).nbytes, prefix_of(range(8), state=True).nbytes, prefix_of(range(8), window=6).nbytes]
    assert store.nbytes == sum(sizes)
    store.keep(prefix_of([*range(7), 9]))  # from the first token on
    assert len(store) == 2
    store.keep(prefix_of(range(8), window=5))  # from 6 on, where the state was of all 8
    assert len(store) == 2
    store.keep(prefix_of(range(9)))
    assert len(store) == 2
    store.keep(prefix_of([*range(7), 9, 9]))
    assert len(store) == 2


def test_of_prefixes_that_serve_equally_one_stays_in_use() -> None:
    store = Prefixes(PLENTY)
    for last in (3, 4):
        store.keep(prefix_of([1, 2, last]))
    for _ in range(3):
        found = store.find([1, 2, 5], 1)
        assert found is not None and found[0].tokens == (1, 2, 4)


def test_arrays_are_kept_as_they_were() -> None:
    buffer = np.arange(100, dtype=np.float32).reshape(10, 10)
    fixed = np.arange(6, dtype=np.float32).copy()
    fixed.flags.writeable = False
    part = np.zeros((2, 1000))
    part.flags.writeable = False
    owned, big = np.ones(2), np.ones(2, ">f4")
    big.flags.writeable = False
    states = {"fixed": fixed, "part": part[0, :3], "owned": owned, "big": big}
    store = Prefixes(PLENTY)
    kept_states = {name: Kept(state, None, is_state=True) for name, state in states.items()}
    store.keep(Prefix((1, 2, 3), {"view": Kept(buffer[:3].T[:3], None), **kept_states}))
    expected = buffer[:3].T[:3].copy()
    buffer[:] = owned[:] = 0
    found = store.find([1, 2, 3, 4], 1)
    assert found is not None
    np.testing.assert_array_equal(found[0].layers["view"].array, expected)
    assert found[0].layers["view"].array.base is found[0].layers["part"].array.base is None  # they do not hold whole buffers
    np.testing.assert_array_equal(found[0].layers["owned"].array, np.ones(2))
    assert found[0].layers["fixed"].array is fixed  # nobody can write it: no copy
    assert found[0].layers["big"].array.dtype == np.dtype(np.float32)
    for kept in found[0].layers.values():
        with pytest.raises(ValueError, match="read-only"):
            kept.array[...] = 0
    with pytest.raises(TypeError):
        found[0].layers["more"] = Kept(fixed, None)  # type: ignore[index]


def test_limits_are_said_to_those_who_ask(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "tempo")
    Prefixes(10).keep(prefix_of(range(20)))
    assert "a prompt of 80 bytes is not kept: at most 10 are" in caplog.text
