"""The systems: how each loads a model, takes prompts, and goes on. One file each, which imports only what the system needs."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

DTYPES = ("float32", "bfloat16", "int8", "int4")  # of the weights


class Unsupported(Exception):
    """The system cannot do this; the message says why."""


class Loaded(Protocol):
    """A model in memory. All tokens are the most likely ones, so that all systems do the same work."""

    def start(self, prompts: Sequence[Sequence[int]], count: int, times: int) -> list[list[int]]:
        """The first token after each prompt. So many times will `count` further tokens be asked for."""

    def advance(self, count: int) -> list[list[int]]:
        """The next `count` tokens of each row."""


PROBE = 8  # tokens, to choose the number of threads


def choose_threads(loaded: Loaded, use: Callable[[int], object]) -> None:
    """Let a system `use` all cores or one, whichever is faster now: beside other work, threads that wait for each other are slow."""
    seconds = {}
    for threads in sorted({1, os.cpu_count() or 1}):
        use(threads)
        loaded.start([[3, 4, 5]], PROBE, 2)
        loaded.advance(PROBE)
        begun = time.perf_counter()
        loaded.advance(PROBE)
        seconds[threads] = time.perf_counter() - begun
    use(min(seconds, key=seconds.__getitem__))


@dataclass(frozen=True)
class System:
    """A column of the table. `module` is the file here, with `load(directory, dtype, window, *options) -> Loaded`.

    `load` raises Unsupported. A module may have `prepare(directory, dtype, window)`, which writes files that the system needs into the directory.
    """

    title: str
    module: str
    install: str  # what `pip` installs for it
    packages: tuple[str, ...]  # whose versions are recorded
    options: tuple[str, ...] = ()


JAX = ("jax", "jaxlib")
SYSTEMS = {  # by their names on the command line; the first one is ours
    "tempo": System("tempo", "tempo", "'tempo-dl[llm]'", ("tempo-dl", *JAX)),
    "jax-padded": System("JAX, padded", "jax_by_hand", "jax", JAX, ("padded",)),
    "jax-tiled": System("JAX, tiled", "jax_by_hand", "jax", JAX, ("tiled",)),
    "transformers": System("transformers", "torch_transformers", "torch transformers", ("torch", "transformers")),
    "llama.cpp": System("llama.cpp", "llama_cpp_python", "llama-cpp-python gguf safetensors", ("llama-cpp-python",)),
    "mlx": System("mlx-lm", "mlx_lm_cpu", "'mlx[cpu]' mlx-lm", ("mlx", "mlx-lm")),
}
