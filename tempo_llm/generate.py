"""Generation: token ids in, continuations out, with compiled programs for all prompts and lengths up to a capacity."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import tempo_core as tp
from tempo_core.typing import Bounds
from tempo_llm.attention import Attention
from tempo_llm.checkpoint import Checkpoint, split
from tempo_llm.config import LlamaConfig
from tempo_llm.decoding import Decoding, Piece, Results, Rows, joined_costs
from tempo_llm.errors import RequestError, shown
from tempo_llm.llama import Decoder, Weights, trace_decoder, trace_scorer
from tempo_llm.past import past_of, prefix_of
from tempo_llm.plan import COARSE, by_layers, layers_text, with_layers
from tempo_llm.prefixes import Prefixes
from tempo_llm.requests import Completion, Generation, Group, Request, TokenLogprobs, check_tokens
from tempo_llm.sampling import Features, Sampling, chosen_sampling, uniform_draws
from tempo_llm.speculation import DRAFT, Draft, Speculation, check_draft, trace_speculating
from tempo_llm.stacks import stacks_of
from tempo_llm.types import FloatArray

__all__ = [
    "Completion",
    "Decoding",
    "Generation",
    "Generator",
    "Piece",
    "Request",
    "Rows",
    "TokenLogprobs",
    "check_tokens",
]

LEAST_CAPACITY = 64  # new tokens; capacities are this number, doubled as often as a request needs it
BLOCKS = {64: 16, 384: 64}  # the places of a block of prompts of up to so many tokens
LARGEST_BLOCK = 128  # of longer prompts
LEAST_BLOCKS = {16: 4, 64: 8, 128: 8}  # of a program: what a run does not need of them costs it next to nothing
TILE = 512  # positions of a prompt whose keys a block is multiplied with at a time
KEPT_FORM = 2  # of what is kept of prompts: a new number where the same model gives other keys
PROGRAMS_KEPT = 4  # with the weights bound to them
LOOPS = (
    "capacities",
    "vectorize(n)",
    "vectorize(u)",
)  # blocks and tokens come one after the other, and programs are compiled when needed


@dataclass(frozen=True)
class Sizes:
    """The sizes of a program: prompts of up to `blocks` blocks of `block` places, `new` tokens, `rows` prompts with `samples` each.

    Prompts that are `mixed` may have different numbers of blocks.
    """

    block: int
    blocks: int
    new: int
    rows: int
    samples: int
    is_mixed: bool

    @property
    def capacity(self) -> int:
        """The number of positions, those of prompts and of new tokens."""
        return self.block * self.blocks + self.new


@dataclass(frozen=True)
class Prepared:
    """A group of a request with its program, and what the program is run with."""

    group: Group
    program: tp.Program[dict[str, np.ndarray]]
    decoder: Decoder
    capacity: int
    inputs: Mapping[str, np.ndarray]
    bounds: Mapping[tp.Expr, int]
    prefixes: Prefixes | None

    def keep(self, results: Results) -> None:
        """Keep what a run has computed of its prompts, if anything is kept."""
        for row, prompt in enumerate(self.group.prompts if self.prefixes is not None else ()):
            prefix = prefix_of(self.decoder, prompt, len(self.inputs["prompt"]), results, row)
            if prefix is not None and self.prefixes is not None:
                self.prefixes.keep(prefix)


class Generator:
    """A loaded model, for token ids. Programs are compiled when first needed, and kept with the weights bound to them.

    A prompt is computed in blocks, so that it costs what its length needs. A program serves all prompts of up to its number of blocks, and all
    numbers of new tokens up to its capacity: 64, doubled as often as a request needs it. With `capacity`, one program serves prompts and
    texts of up to so many positions. Batches of other sizes, and other parts of the choice of tokens (`Features`), are other programs.
    """

    def __init__(
        self,
        config: LlamaConfig,
        weights: dict[str, np.ndarray],
        attention: Attention | None = None,
        capacity: int | None = None,
        prefixes: Prefixes | None = None,
        draft: Generator | None = None,
        read: Callable[[], dict[str, np.ndarray]] | None = None,
        **options: Any,
    ):
        """`weights` are those of `checkpoint.load_weights`; `options` are fields of `tempo_core.Config`, such as `executor`.

        With `read`, `weights` hold the shapes and dtypes of those that it gives, and it is called when a run first needs them.

        Without `attention`, each layer has the sliding window of the model's configuration, if there is one. In `prefixes`, what is computed
        of prompts is kept for those that begin in the same way. `draft` is a smaller model that drafts for requests with `speculate`; without it,
        n-grams of the text do.
        """
        check_draft(config, None if draft is None else draft.config, prefixes is not None)
        self.config: LlamaConfig = config
        self.draft = draft
        self.attention = Attention.of_windows(config.windows) if attention is None else attention
        self.capacity, self.prefixes = capacity, prefixes
        if capacity is not None and not (_is_whole(capacity) and 1 <= capacity <= config.max_position_embeddings):
            raise RequestError(
                f"the capacity is {shown(capacity)}; this model takes 1 to {config.max_position_embeddings} tokens"
            )
        self.form = Weights.of(weights)
        self._weights, self._read, self.read_seconds = self._arranged(weights), read, 0.0
        self._options = {**options, "disable": (*options.get("disable", ()), "order", *LOOPS)}
        self._decoders: dict[tuple[object, ...], Decoder] = {}
        self._programs: dict[tuple[Features, Sizes, bool, int], tp.Program[dict[str, np.ndarray]]] = {}
        self._scorers: dict[int, tp.Program[Any]] = {}
        self._dropped = (0, 0.0, 0)  # what programs cost that are not kept any more

    @staticmethod
    def from_directory(
        directory: str | Path,
        attention: Attention | None = None,
        dtype: str | None = None,
        capacity: int | None = None,
        draft: Generator | None = None,
        lazily: bool = False,
        **options: Any,
    ) -> Generator:
        """The model in a Hugging Face checkpoint directory (without its tokenizer). If `lazily`, weights are read when a run needs them."""
        config = LlamaConfig.from_directory(directory)
        (attention or Attention()).by_layer(config.num_hidden_layers)  # reports a mistake before the weights are read
        checkpoint = Checkpoint.opened(directory, config, dtype)
        generator = Generator(config, checkpoint.placeholders(), attention, capacity, None, draft, checkpoint.read, **options)
        if not lazily:
            generator.read()
        return generator

    def read(self) -> None:
        """Read the weights now, and those of the draft model, unless they are read already. Raises CheckpointError."""
        if self._read is not None:
            begun = time.perf_counter()
            weights = self._read()
            for array in weights.values():
                array.flags.writeable = False  # programs take them as they are, without a copy
            self._weights, self._read = self._arranged(weights), None
            self.read_seconds = time.perf_counter() - begun
        if self.draft is not None:
            self.draft.read()

    def _arranged(self, weights: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Weights of `checkpoint.load_weights` by the names of programs, as they store them."""
        return self.form.arranged(split(weights, self.config, stacks_of(self.config, self.attention)))

    # -- generation ---------------------------------------------------------------------------------------------------

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
        sampling: Sampling | None = None,
        samples: int = 1,
        logprobs: int = 0,
        speculate: int = 0,
    ) -> Generation:
        """Continue each prompt by up to `max_new_tokens` tokens, ending after the first of `stop_ids`, in one launch of each group.

        Temperature 0 takes the most likely token each time; above 0 tokens are drawn, as a function of `seed`, the prompt and the position.
        `sampling` says more about the choice (instead of `temperature`). With `speculate`, so many tokens are drafted in each round, and the
        result is the same. With `profile`, the run is profiled. Raises
        `RequestError` for prompts that are empty, hold unknown tokens or do not fit `max_context` (the model's own limit).
        """
        chosen = chosen_sampling(sampling, temperature)
        ends = tuple(check_tokens(stop_ids, "stop_ids", self.config))
        request = Request(prompts, max_new_tokens, chosen, seed, ends, max_context, samples, logprobs, speculate)
        if profile:
            return self.profiled(request)
        decoding = self.start(request)
        decoding.finish()
        return decoding.generation()

    def start(self, request: Request, prefixes: Prefixes | None = None) -> Decoding:
        """A run that goes on chunk by chunk. Raises RequestError for a request that cannot be served.

        `prefixes` are where what is computed of prompts is kept, in place of the generator's.
        """
        return Decoding(self, request, self.prefixes if prefixes is None else prefixes)

    def profiled(self, request: Request) -> Generation:
        """The whole of a request, in one profiled launch of each group; the profile is that of the last group, of the longest prompts."""
        request.needed(self.config)
        rows = Rows(request, self.config.short_context)
        before, capacity, compiling, running = self.costs, 0, 0.0, 0.0
        measured: tp.Profile | None = None
        for group in rows.groups():
            prepared = self.prepare(request, group, None)
            measured = prepared.program.profile(prepared.inputs, bounds=prepared.bounds)
            rows.take(measured.results, group)
            capacity = max(capacity, prepared.capacity)
            compiling, running = compiling + measured.compile_seconds, running + measured.seconds
        after = self.costs
        return Generation(
            rows.completions(),
            rows.reached,
            after[0] - before[0],
            after[1] - before[1] + compiling,
            running,
            after[2] - before[2],
            capacity,
            None,
            measured,
            rounds=sum(rows.rounds),
            accepted=sum(rows.accepted),
        )

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
        sampling: Sampling | None = None,
        samples: int = 1,
        logprobs: int = 0,
        speculate: int = 0,
    ) -> str:
        """The plan of `generate` with these arguments, as text: what it would store and run.

        With `full`, each statement and each store has a line of its own. At its end are the bytes of keys, values, states and weights by layers.
        `as_json` gives the memory of all tensors, its peaks and that of layers instead, and `picture` is a trace of them that is written (.json).
        Without `full`, XLA is not asked, and the peak on the device is a coarse estimate. No weights are read.
        """
        chosen = chosen_sampling(sampling, temperature)
        request = Request(prompts, max_new_tokens, chosen, 0, (), max_context, samples, logprobs, speculate)
        return self.plan_of(request, full=full, as_json=as_json, picture=picture)

    def plan_of(self, request: Request, *, full: bool = False, as_json: bool = False, picture: Path | None = None) -> str:
        """The plan of a request: of its last group, which has the longest prompts."""
        request.needed(self.config)
        features = request.sampling.features(request.logprobs)
        sizes = self.sizes(request.groups[-1])
        is_bound = self._read is None and (self.draft is None or self.draft._read is None)
        _, program = self.program(features, sizes, self.prefixes is not None, is_bound, request.speculate)
        plan = program.plan() if full else program.plan().coarse()
        if picture is not None:
            plan.draw(picture)
        layers = by_layers(plan, stacks_of(self.config, self.attention), self._weights)
        if as_json:
            return with_layers(plan.json(), layers)
        note = "" if full else f"  {COARSE}\n"
        return f"{plan.text(full)}{note}\n\n{layers_text(layers)}"

    def logits(self, ids: Sequence[int]) -> FloatArray:
        """The scores of all tokens of the vocabulary after each of `ids`: float32 [len(ids), vocabulary].

        Raises RequestError for unknown tokens, for no tokens, and for more than the model's context.
        """
        ids = check_tokens(ids, "ids", self.config)
        if not ids:
            raise RequestError("there are no tokens to score", hint="logits([1, 2, 3]), for example")
        if len(ids) > self.config.max_position_embeddings:
            raise RequestError(f"{len(ids)} tokens do not fit the context of {self.config.max_position_embeddings} tokens")
        capacity = self.capacity_for(len(ids))
        if capacity not in self._scorers:
            scorer = trace_scorer(self.config, self.attention, self.form)
            bounds: Bounds = {
                scorer.length: tp.upto(capacity),
                **scorer.loops,
            }
            options = {**self._options, "disable": tuple(name for name in self._options["disable"] if name not in LOOPS[1:])}
            program = scorer.context.compile(bounds, scorer.logits, tp.Config(**options))
            self.read()
            self._scorers = {capacity: program.bind(self._weights)}
        return self._scorers[capacity].run({"token": np.asarray(ids, np.int32)})

    @property
    def weights(self) -> Mapping[str, np.ndarray]:
        """The weights by their names in the program: those of `checkpoint.load_weights`, if all layers are of one kind."""
        self.read()
        return self._weights

    @property
    def compile_config(self) -> tp.Config:
        """The options of programs of this model that run without loops over positions."""
        return tp.Config(**{**self._options, "disable": self._options["disable"][: -len(LOOPS)]})

    @property
    def nbytes(self) -> int:
        """The bytes of all weights."""
        return sum(array.nbytes for array in self._weights.values())

    @property
    def weight_bytes(self) -> int:
        """The bytes of all weights that a step reads: the embedding, of which it reads a row, is left out unless it is the head."""
        return sum(array.nbytes for name, array in self._weights.items() if not name.startswith("embedding."))

    def digest(self) -> str:
        """A name for what keys and values depend on: the model, its weights, their dtype, and its attention patterns."""
        patterns = [pattern.name for pattern in self.attention.by_layer(self.config.num_hidden_layers)]
        digest = hashlib.blake2b(repr((self.config, patterns, self.form, KEPT_FORM)).encode(), digest_size=20)
        for name, array in sorted(self.weights.items()):
            digest.update(f"{name} {array.dtype} {array.shape}".encode())
            digest.update(np.ascontiguousarray(array).view(np.uint8).data)
        return digest.hexdigest()

    # -- programs -----------------------------------------------------------------------------------------------------

    def sizes(self, group: Group) -> Sizes:
        """The sizes of the program of a group. Raises RequestError for one that does not fit the generator's capacity."""
        longest = group.longest
        positions = max(len(prompt) + new for prompt, new in zip(group.prompts, group.new_tokens, strict=True))
        if self.capacity is None:
            block = block_of(longest)
            count = _doubled(LEAST_BLOCKS[block], -(-longest // block))
            blocks, new = min(count, -(-self.config.max_position_embeddings // block)), self.capacity_for(group.most_new)
        else:
            new = self.capacity_for(positions)
            block = block_of(new)
            blocks = -(-new // block)
        is_mixed = len({-(-len(prompt) // block) for prompt in group.prompts}) > 1
        return Sizes(block, blocks, new, len(group.prompts), group.samples, is_mixed)

    def program(
        self, features: Features, sizes: Sizes, has_past: bool = False, bind: bool = True, speculate: int = 0
    ) -> tuple[Decoder, tp.Program[dict[str, np.ndarray]]]:
        """The traced decoder, and its program, which drafts `speculate` tokens in a round. If `bind` is off, it is without its weights."""
        traced = (features, sizes.block, sizes.is_mixed, has_past, speculate, sizes if speculate else None)
        if traced not in self._decoders:
            form = self.config, self.attention, features, self.form, sizes.block, sizes.is_mixed, has_past
            if speculate:
                self._decoders[traced] = trace_speculating(*form, self._speculation(sizes, speculate, has_past))
            else:
                self._decoders[traced] = trace_decoder(*form)
        decoder, key = self._decoders[traced], (features, sizes, has_past, speculate)
        if key in self._programs:
            self._programs[key] = self._programs.pop(key)  # the last one used is the last one to go
            return decoder, self._programs[key]
        bounds = decoder.bounds(sizes.blocks, sizes.new, sizes.rows, sizes.samples)
        options = dict(self._options)
        if sizes.block * sizes.blocks > TILE:
            options["tile"] = {"n": TILE, **dict(options.get("tile", {}))}
        program = decoder.context.compile(bounds, decoder.outputs, tp.Config(**options))
        if not bind:
            return decoder, program
        self.read()
        self._programs[key] = program.bind(self._weights if self.draft is None or not speculate else self._weights_of_both)
        if len(self._programs) > PROGRAMS_KEPT:
            oldest = self._programs.pop(next(iter(self._programs)))
            self._dropped = joined_costs([self._dropped, _costs(oldest)])
        return decoder, self._programs[key]

    def prepare(self, request: Request, group: Group, prefixes: Prefixes | None) -> Prepared:
        """The program of a group of a request, and what it is run with; with the past from `prefixes`, if there are any."""
        features, sizes = request.sampling.features(request.logprobs), self.sizes(group)
        decoder, program = self.program(features, sizes, prefixes is not None, True, request.speculate)
        count = max(-(-len(prompt) // sizes.block) for prompt in group.prompts)
        bounds = {decoder.length: group.most_new}
        inputs = self._inputs(request, group, features, count, sizes)
        if decoder.past is not None and prefixes is not None:
            past, past_blocks = past_of(decoder, group.prompts, prefixes)
            inputs |= past
            dummy = np.zeros((1, *inputs["prompt"].shape[1:]), np.int32)
            inputs["prompt"] = np.concatenate([dummy, inputs["prompt"]])
            count, bounds = count + 1, {**bounds, decoder.past: past_blocks}
        bounds = {**bounds, decoder.blocks: count, decoder.copies: count}
        capacity = sizes.capacity if self.capacity is None else self.capacity
        return Prepared(group, program, decoder, capacity, inputs, bounds, prefixes)

    def capacity_for(self, positions: int) -> int:
        """The number of new tokens of the program that serves so many: those of a text, if the generator has a capacity."""
        if self.capacity is not None:
            if positions > self.capacity:
                raise RequestError(
                    f"{positions} positions do not fit the capacity of {self.capacity}",
                    hint="load the model with a larger capacity: tempo_llm.load(model, capacity=512)",
                )
            return self.capacity
        return min(_doubled(LEAST_CAPACITY, positions), self.config.max_position_embeddings)

    @property
    def costs(self) -> tuple[int, float, int]:
        """So far: the number of XLA programs compiled, the seconds of compiling, and the number of XLA programs from the cache on disk."""
        return joined_costs([self._dropped, *map(_costs, self._programs.values())])

    def _speculation(self, sizes: Sizes, count: int, has_past: bool) -> Speculation:
        """How a program drafts `count` tokens in a round. Raises RequestError for a draft model that cannot."""
        check_draft(self.config, None if self.draft is None else self.draft.config, has_past)
        draft = None if self.draft is None else Draft(self.draft.config, self.draft.attention, self.draft.form)
        return Speculation(count, sizes.new, sizes.capacity, draft)

    @property
    def _weights_of_both(self) -> dict[str, np.ndarray]:
        """The weights, with those of the draft model."""
        assert self.draft is not None
        return {**self._weights, **{f"{DRAFT}.{name}": array for name, array in self.draft.weights.items()}}

    def _inputs(self, request: Request, group: Group, features: Features, blocks: int, sizes: Sizes) -> dict[str, np.ndarray]:
        """The inputs of a group's program, but for the weights and the past."""
        block, speculate = sizes.block, request.speculate
        prompt = np.zeros((blocks * block, len(group.prompts)), np.int32)
        for row, tokens in enumerate(group.prompts):
            prompt[: len(tokens), row] = tokens
        ends = np.zeros(self.config.vocab_size, bool)
        ends[list(request.stop_ids)] = True
        start = np.asarray([len(tokens) for tokens in group.prompts], np.int32)
        draws = np.zeros((0, len(group.prompts), group.samples), np.float32)
        if features.is_sampled:
            each = [self._draws(request, *row, *group.begun(place)) for place, row in enumerate(group.rows)]
            longest = max(map(len, each))
            draws = np.stack([np.pad(row, (0, longest - len(row))) for row in each], -1).reshape(longest, -1, group.samples)
        texts: dict[str, np.ndarray] = {}
        if speculate:
            draws = np.moveaxis(np.pad(draws, ((0, sizes.new - len(draws)), (0, 0), (0, 0))), 0, -1)
            if self.draft is None:
                rest = sizes.capacity + speculate + 1 - len(prompt)
                texts["text_tokens"] = np.pad(prompt, ((0, rest), (0, 0))).T
        if features.is_penalized:
            counts = np.zeros((len(group.prompts), self.config.vocab_size), np.float32)
            for row, (tokens, written) in enumerate(zip(group.prompts, group.written, strict=False)):
                np.add.at(counts[row], list(tokens[len(tokens) - written :]), 1)
            texts["counts_before"] = counts
        prompts = [request.prompts[number] for number in group.numbers]
        return {
            **texts,
            "prompt": prompt.reshape(blocks, block, len(group.prompts)),
            "start": start,
            "limit": start + np.asarray(group.new_tokens, np.int32),
            "ends": ends,
            **request.sampling.inputs(features, prompts, draws, self.config.vocab_size),
        }

    def _draws(self, request: Request, number: int, sample: int, written: int, count: int) -> FloatArray:
        """The numbers by which `count` tokens are drawn, behind a prompt and so many tokens of its text: those of their positions."""
        prompt = request.prompts[number]
        first = len(prompt) + written
        return uniform_draws(request.seeds[number], prompt, sample, first + count)[first:]


def block_of(tokens: int) -> int:
    """The places of a block of prompts of up to so many tokens."""
    return next((block for most, block in BLOCKS.items() if tokens <= most), LARGEST_BLOCK)


def _doubled(least: int, needed: int) -> int:
    while least < needed:
        least *= 2
    return least


def _costs(program: tp.Program[dict[str, np.ndarray]]) -> tuple[int, float, int]:
    return program.compiles, program.compile_seconds, program.loads


def _is_whole(number: object) -> bool:
    return isinstance(number, (int, np.integer)) and not isinstance(number, bool)
