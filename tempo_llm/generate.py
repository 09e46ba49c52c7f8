"""Generation: prompts in, continuations out, with one compiled program for all prompts of a range of lengths."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import tempo_core as tp
from tempo_llm.attention import Attention
from tempo_llm.checkpoint import load_weights
from tempo_llm.config import LlamaConfig
from tempo_llm.errors import RequestError
from tempo_llm.llama import Decoder, trace_decoder

LENGTH_BUCKET = 64  # lengths are rounded up to a multiple of this, so that prompts of similar length share a program


@dataclass(frozen=True)
class Completion:
    """The tokens that followed one prompt. `finish_reason` is "stop" (the last token ends the text) or "length"."""

    prompt_ids: tuple[int, ...]
    token_ids: tuple[int, ...]
    finish_reason: str


@dataclass(frozen=True)
class Generation:
    """The result of one call: completions in the order of the prompts, and the cost.

    `length` is the number of positions computed for each prompt; `compiles` is the number of XLA programs compiled in this call, and
    `loads` of those that came from the cache on disk instead.
    `profile` is there if it was asked for; `run_seconds` are then those of the profiled run.
    """

    completions: tuple[Completion, ...]
    length: int
    compiles: int
    compile_seconds: float
    run_seconds: float
    loads: int = 0
    profile: tp.Profile | None = None


class Generator:
    """A loaded model. Programs are compiled when first needed, and kept."""

    def __init__(self, config: LlamaConfig, weights: dict[str, np.ndarray], attention: Attention | None = None, **options: Any):
        """`weights` are those of `checkpoint.load_weights`; `options` are fields of `tempo_core.Config`, such as `executor`."""
        self.config = config
        self.attention = attention or Attention()
        self._weights = weights
        self._options = options
        self._decoders: dict[bool, Decoder] = {}
        self._programs: dict[tuple[int, int, bool], tp.Program] = {}

    @staticmethod
    def from_directory(directory: str | Path, attention: Attention | None = None, **options: Any) -> Generator:
        """The model in a Hugging Face checkpoint directory (without its tokenizer)."""
        config = LlamaConfig.from_directory(directory)
        (attention or Attention()).by_layer(config.num_hidden_layers)  # reports a mistake before the weights are read
        return Generator(config, load_weights(directory, config), attention, **options)

    def generate(
        self,
        prompts: Sequence[Sequence[int]],
        max_new_tokens: int,
        *,
        temperature: float = 0.0,
        seed: int = 0,
        stop_ids: Iterable[int] = (),
        max_context: int | None = None,
        profile: bool = False,
    ) -> Generation:
        """Continue each prompt by up to `max_new_tokens` tokens, ending after the first of `stop_ids`.

        Temperature 0 takes the most likely token each time; above 0 tokens are drawn, as a function of `seed`. With `profile`, the
        run is profiled. Raises
        `RequestError` for prompts that are empty, hold unknown tokens or do not fit `max_context` (the model's own limit).
        """
        length = self._length(prompts, max_new_tokens, temperature, max_context)
        started, programs = time.perf_counter(), len(self._programs)
        program = self._program(len(prompts), length, temperature > 0)
        is_new = len(self._programs) > programs
        before = (0, 0.0, 0) if is_new else (program.compiles, program.compile_seconds, program.loads)
        inputs = self._inputs(prompts, length, temperature)
        measured = program.profile(inputs, seed=seed) if profile else None
        (tokens,) = program.run(inputs, seed=seed) if measured is None else measured.results
        compile_seconds = program.compile_seconds - before[1] + (0.0 if measured is None else measured.compile_seconds)
        run_seconds = time.perf_counter() - started - compile_seconds if measured is None else measured.seconds
        stops = frozenset(stop_ids)
        completions = tuple(
            _completion(tuple(prompt), np.asarray(row)[len(prompt) : len(prompt) + max_new_tokens].tolist(), stops)
            for prompt, row in zip(prompts, tokens, strict=True)
        )
        compiles, loads = program.compiles - before[0], program.loads - before[2]
        return Generation(completions, length, compiles, compile_seconds, run_seconds, loads, measured)

    def plan(
        self,
        prompts: Sequence[Sequence[int]],
        max_new_tokens: int,
        *,
        temperature: float = 0.0,
        max_context: int | None = None,
        full: bool = False,
        as_json: bool = False,
        picture: Path | None = None,
    ) -> str:
        """The plan of `generate` with these arguments, as text: what it would store and run.

        With `full`, each statement and each store has a line of its own. `as_json` gives the memory of all tensors and its peaks
        instead, and `picture` is an .svg of them that is written.
        """
        length = self._length(prompts, max_new_tokens, temperature, max_context)
        made = self._program(len(prompts), length, temperature > 0).plan()
        if picture is not None:
            made.draw(picture)
        return made.json() if as_json else made.text(full)

    # -- parts --------------------------------------------------------------------------------------------------------

    def _length(self, prompts: Sequence[Sequence[int]], max_new_tokens: int, temperature: float, max_context: int | None) -> int:
        """The number of positions to compute: prompt and new tokens, rounded up to the bucket within the context."""
        if not prompts:
            raise RequestError("there is no prompt")
        if max_new_tokens < 1:
            raise RequestError(f"max_new_tokens is {max_new_tokens}; it must be at least 1")
        if not temperature >= 0 or temperature == float("inf"):
            raise RequestError(f"temperature is {temperature}; it must be 0 (greedy) or a positive number")
        for number, prompt in enumerate(prompts):
            if not prompt:
                raise RequestError(
                    f"prompt {number} has no tokens",
                    hint='this tokenizer adds no begin token, so write some text: --prompt "Hello"',
                )
            unknown = [token for token in prompt if not 0 <= token < self.config.vocab_size]
            if unknown:
                raise RequestError(
                    f"prompt {number} has token {unknown[0]}, and the model knows {self.config.vocab_size} tokens",
                    hint="the tokenizer does not belong to this model",
                )
        most = self.config.max_position_embeddings
        limit = most if max_context is None else max_context
        if not 1 <= limit <= most:
            raise RequestError(f"max_context is {max_context}; this model takes 1 to {most} tokens")
        longest = max(map(len, prompts))
        if longest + max_new_tokens > limit:
            raise RequestError(
                f"a prompt of {longest} tokens and {max_new_tokens} new ones do not fit the context of {limit} tokens",
                hint="shorten the prompt, or ask for fewer new tokens, such as --max-new-tokens 16",
            )
        return min(-(-(longest + max_new_tokens) // LENGTH_BUCKET) * LENGTH_BUCKET, limit)

    def _program(self, rows: int, length: int, sampled: bool) -> tp.Program:
        key = (rows, length, sampled)
        if key not in self._programs:
            if sampled not in self._decoders:
                tied = "embedding.weight" not in self._weights
                self._decoders[sampled] = trace_decoder(self.config, self.attention, sampled=sampled, tied=tied)
            decoder = self._decoders[sampled]
            bounds = {decoder.rows: rows, decoder.length: length, decoder.layers: self.config.num_hidden_layers}
            self._programs[key] = decoder.context.compile(bounds, outputs=[decoder.token], config=tp.Config(**self._options))
        return self._programs[key]

    def _inputs(self, prompts: Sequence[Sequence[int]], length: int, temperature: float) -> dict[str, np.ndarray]:
        padded = np.zeros((len(prompts), length), np.int32)
        for row, prompt in zip(padded, prompts, strict=True):
            row[: len(prompt)] = prompt
        inputs = {**self._weights, "prompt": padded, "prompt_length": np.asarray([len(p) for p in prompts], np.int32)}
        return {**inputs, "temperature": np.asarray(temperature, np.float32)} if temperature > 0 else inputs


def _completion(prompt: tuple[int, ...], tokens: list[int], stops: frozenset[int]) -> Completion:
    """The completion up to the first of `tokens` that ends the text. That token is included, as in `transformers`."""
    for position, token in enumerate(tokens):
        if token in stops:
            return Completion(prompt, tuple(tokens[: position + 1]), "stop")
    return Completion(prompt, tuple(tokens), "length")
