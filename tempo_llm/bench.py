"""How fast a model generates: time to the first token, tokens per second, and the share of the memory's speed."""

from __future__ import annotations

import statistics
import time
from dataclasses import dataclass

import numpy as np

from tempo_llm.config import LlamaConfig
from tempo_llm.errors import RequestError
from tempo_llm.generate import Generator, Request

MOST_ROWS = 4096


@dataclass(frozen=True)
class Figures:
    """Medians over some runs. Seconds are those of a clock on the wall, without compiling.

    `memory_share` is the speed at which a step would read all weights once, as a share of the speed at which this machine copies memory (of
    the bytes that a copy reads and writes).
    """

    rows: int
    prompt_tokens: int
    new_tokens: int
    compiles: int
    compile_seconds: float
    first_token_seconds: float
    seconds_per_step: float
    tokens_per_second: float
    weight_bytes: int
    memory_bytes_per_second: float
    memory_share: float

    def __str__(self) -> str:
        return (
            f"{self.rows} prompts of {self.prompt_tokens} tokens, {self.new_tokens} new ones each\n"
            f"compiled {self.compiles} programs in {self.compile_seconds:.2f} s\n"
            f"first token   {self.first_token_seconds * 1e3:.1f} ms\n"
            f"each step     {self.seconds_per_step * 1e3:.2f} ms\n"
            f"tokens        {self.tokens_per_second:.1f} a second\n"
            f"weights       {self.weight_bytes / 1e6:.1f} MB: {self.memory_share:.0%} of the speed of memory, "
            f"{self.memory_bytes_per_second / 1e9:.1f} GB/s"
        )


def measure(
    generator: Generator, rows: int, prompt_tokens: int, new_tokens: int, repeats: int, max_context: int | None = None
) -> Figures:
    """Generate from random prompts, once to compile, then `repeats` times. Raises RequestError if they do not fit the context."""
    prompts = random_prompts(generator.config, rows, prompt_tokens)
    request = Request(prompts, new_tokens, max_context=max_context)
    warm = generator.start(request)
    warm.finish()
    compiled = warm.generation()
    first, steps = [], []
    for _ in range(repeats):
        decoding = generator.start(request)
        begun = time.perf_counter()
        pieces = decoding.pieces(count=max(new_tokens, 1))
        next(pieces)
        at_first = time.perf_counter()
        for _piece in pieces:
            pass
        first.append(at_first - begun)
        steps.append((time.perf_counter() - at_first) / max(new_tokens - 1, 1))
    step, speed, weights = statistics.median(steps), memory_speed(), generator.weight_bytes
    return Figures(
        rows,
        prompt_tokens,
        new_tokens,
        compiled.compiles,
        compiled.compile_seconds,
        statistics.median(first),
        step,
        rows / max(step, 1e-9),
        weights,
        speed,
        weights / max(step, 1e-9) / speed,
    )


def random_prompts(config: LlamaConfig, rows: int, tokens: int) -> list[list[int]]:
    """So many prompts of random tokens. Raises RequestError for more than MOST_ROWS, and for prompts longer than the model's context."""
    if rows > MOST_ROWS:
        raise RequestError(f"{rows} rows are too many; the most are {MOST_ROWS}", hint=f"--rows {MOST_ROWS}")
    if tokens > config.max_position_embeddings:
        raise RequestError(f"prompts of {tokens} tokens do not fit the context of {config.max_position_embeddings} tokens")
    return np.random.default_rng(0).integers(0, config.vocab_size, (rows, tokens)).tolist()


def memory_speed(megabytes: int = 64, repeats: int = 5) -> float:
    """Bytes a second of the fastest of some copies of an array on the host."""
    source = np.ones(megabytes * 2**18, np.float32)
    target = np.empty_like(source)
    seconds = []
    for _ in range(repeats):
        begun = time.perf_counter()
        np.copyto(target, source)
        seconds.append(time.perf_counter() - begun)
    return 2 * source.nbytes / min(seconds)
