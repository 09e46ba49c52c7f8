"""The keys, values and states of all rows, on the device: what programs give is written into them, in place."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from tempo_llm.serve.programs import Traced
from tempo_llm.serve.tiles import Array

Arrays = Mapping[str, Any]


class RowCache:
    """Keys and values [layers, rows, key heads, positions, head width], and states [rows, layers, ...], by the names of programs' inputs."""

    def __init__(self, program: Traced):
        """`program` is that of a token of each row."""
        self.caches = {name: jnp.zeros(shape, dtype) for name, (shape, dtype) in program.caches().items()}
        self.states = {name: np.zeros(shape, dtype) for name, (shape, dtype) in program.states().items()}
        self.places = next((array.shape[3] for array in self.caches.values()), 0)

    @property
    def nbytes(self) -> int:
        return sum(array.nbytes for array in (*self.caches.values(), *self.states.values()))

    def inputs_of_rows(self, rows: np.ndarray) -> dict[str, Array]:
        """The inputs of the program of a token of each of some rows."""
        return {**self.caches, **{name: state[rows] for name, state in self.states.items()}}

    def inputs_of(self, row: int) -> dict[str, Array]:
        """The inputs of the program of a block of one row."""
        return {**self.caches, **{name: state[row] for name, state in self.states.items()}}

    def reset(self, row: int) -> None:
        """A row begins: its states are zeros. Of the cache it reads what it has written, and nothing else."""
        for state in self.states.values():
            state[row] = 0

    def write_tokens(self, outputs: Arrays, rows: np.ndarray, positions: np.ndarray, active: np.ndarray) -> None:
        """What the program of tokens gave of some rows, at their positions. Rows that are not `active` write nothing."""
        if self.caches:
            self.caches = _tokens(self.caches, self._new(outputs), rows, np.where(active, positions, self.places))
        for name, state in self.states.items():
            state[rows[active]] = outputs[_output(name)][active]

    def write_block(self, outputs: Arrays, row: int, start: int) -> None:
        """What the program of a block gave of a row, from the position `start` on."""
        if self.caches:
            self.caches = _block(self.caches, self._new(outputs), np.int32(row), np.int32(start))
        for name in self.states:
            self.states[name][row] = outputs[_output(name)]

    def _new(self, outputs: Arrays) -> dict[str, Any]:
        return {name: outputs[_output(name)] for name in self.caches}


def _output(name: str) -> str:
    """The output that goes into an input: `attention.keys` into `cache.attention.keys`."""
    kind, _, rest = name.partition(".")
    return rest if kind == "cache" else f"{rest}.state"


def _written(caches: Any, new: Any, rows: Any, positions: Any) -> Any:
    def written(cache: Any, tokens: Any) -> Any:  # tokens [rows, layers, key heads, head width]
        return cache.at[:, rows, :, positions].set(tokens, mode="drop")

    return {name: written(cache, new[name]) for name, cache in caches.items()}


def _written_block(caches: Any, new: Any, row: Any, start: Any) -> Any:
    def written(cache: Any, block: Any) -> Any:  # block [positions, layers, key heads, head width]
        return jax.lax.dynamic_update_slice(cache, block.transpose(1, 2, 0, 3)[:, None], (0, row, 0, start, 0))

    return {name: written(cache, new[name]) for name, cache in caches.items()}


_tokens = jax.jit(_written, donate_argnums=0)
_block = jax.jit(_written_block, donate_argnums=0)
