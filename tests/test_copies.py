"""What programs move: bytes of copies, transpositions, slices, gathers and concatenations, counted in the optimized HLO."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from jax import lax

from benchmarks.copies import ONE_WRITE, PROGRAMS, Traffic, modules, stores, traffic
from benchmarks.hlo import Shape, parse


def counted(function: Callable[..., Any], *arguments: Any) -> Traffic:
    return traffic(parse(jax.jit(function).lower(*arguments).compile().as_text()))


def test_moves_in_a_loop_count_as_often_as_it_runs() -> None:
    def program(stack: Any, x: Any) -> Any:
        return lax.fori_loop(0, 5, lambda k, x: jnp.tanh(stack[k] @ x), x)

    moved = counted(program, jnp.zeros((5, 64, 64)), jnp.zeros(64))
    slices = [move for move in moved.moves if move.instruction.bytes == 64 * 64 * 4]
    assert [(move.times, move.in_loop) for move in slices] == [(5.0, True)]
    assert moved.share_in_loops > 0.9  # each slice is copied, then read


def test_what_is_computed_is_needed() -> None:
    weight, row = 64 * 64 * 4, 64 * 4
    moved = counted(lambda w, x: w @ x, jnp.zeros((64, 64)), jnp.zeros(64))
    assert not moved.moves and moved.needed == weight + 2 * row


def test_a_write_into_a_store_needs_what_it_writes() -> None:
    def program(store: Any, x: Any) -> Any:
        return lax.fori_loop(0, 8, lambda k, s: lax.dynamic_update_slice_in_dim(s, jnp.tanh(x)[None] * k, k, 0), store)

    moved = counted(program, jnp.zeros((8, 64)), jnp.zeros(64))
    assert 8 * 64 * 4 <= moved.needed <= 3 * 8 * 64 * 4 + 64


def test_moves_of_a_shape_are_found_in_any_order() -> None:
    transposed = counted(lambda x: x.transpose(2, 0, 1), jnp.zeros((3, 40, 50)))
    assert len(transposed.of_shapes([Shape("f32", (50, 3, 40))])) == 1
    assert not transposed.of_shapes([Shape("f32", (3, 40, 51)), Shape("s32", (3, 40, 50))])


SLOW = ("PPO 512x250", "Llama 100M, 4 rows")  # the ledger counts what smaller ones move
RINGS = ("window attention",)  # their keys lie in a ring, which is gathered whole, in the order of positions


@pytest.mark.skipif(jax.default_backend() != "cpu", reason="the counts are those of XLA's CPU compiler")
@pytest.mark.parametrize("name", [pytest.param(name, marks=pytest.mark.slow if name in SLOW else ()) for name in PROGRAMS])
def test_loops_move_less_than_a_tenth_of_what_they_need(name: str) -> None:
    program = PROGRAMS[name][1]()
    parts = [traffic(module, ONE_WRITE) for module in modules(program)]
    moved = sum(move.bytes for part in parts for move in part.moves if move.in_loop)
    assert moved < 0.1 * sum(part.needed for part in parts)
    assert name in RINGS or not [str(m.instruction) for part in parts for m in part.of_shapes(stores(program)) if m.in_loop]
