"""A model with its tokenizer: `load(path)`, then `.generate("text")` and `.logits(ids)`."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, overload

from tempo_core import Config
from tempo_core.nn import Pattern
from tempo_llm.attention import Attention, Layers
from tempo_llm.checkpoint import check_dtype
from tempo_llm.config import LlamaConfig
from tempo_llm.conversation import Conversation
from tempo_llm.errors import PatternError, RequestError, TokenizerError, shown
from tempo_llm.generate import Completion, Decoding, Generation, Generator, Piece, Request, check_tokens
from tempo_llm.hub import locate
from tempo_llm.prefixes import Prefixes
from tempo_llm.sampling import Sampling, chosen_sampling
from tempo_llm.speculation import check_draft
from tempo_llm.tokenizer import Tokenizer
from tempo_llm.types import FloatArray
from tempo_llm.writer import Writer

Prompts = str | Sequence[str] | Sequence[int] | Sequence[Sequence[int]]
"""A text, texts, the token ids of one prompt, or those of several."""


def load(
    model: str | Path,
    dtype: str | None = None,
    attention: str | Attention | Pattern | None = None,
    *,
    capacity: int | None = None,
    prompt_cache: bool | str | Path = False,
    prompt_cache_bytes: int = 4 * 2**30,
    draft_model: str | Path | None = None,
    lazily: bool = False,
    **options: Any,
) -> Model:
    """The model in a checkpoint directory or a GGUF file, under `checkpoints/`, or in a repository of Hugging Face.

    `dtype` is that of weights and keys: "float32", "bfloat16", "float16", "int8" or "int4" (quantized matrices, float32 numbers otherwise).
    Without it, a quantized model keeps its own, and others are float32. `attention` is a pattern, or patterns by layers
    (`"0-3:full,4-:window=1024+sink=4"`); without it, the windows of the model's configuration.
    `capacity` is the greatest number of positions of a program; without it, programs have as many as requests need. With
    `prompt_cache`, what is computed of prompts is kept for prompts that begin in the same way, at most `prompt_cache_bytes`: in memory, or in
    the directory that it names. `draft_model` is a smaller model with the same vocabulary: `generate(..., speculate=4)` lets it draft.
    If `lazily`, the weights are read when a run first needs them: plans, and requests that are refused, need none.
    `options` are fields of `tempo_core.Config`, such as `cache`.

    Raises RequestError if there is no such model or dtype, ModelConfigError, CheckpointError, TokenizerError and PatternError.
    """
    if dtype is not None:
        check_dtype(dtype)
    Config(**options)  # reports a mistake before the weights are read
    directory = locate(model)
    config = LlamaConfig.from_directory(directory)
    chosen = _attention(attention, config)
    chosen.by_layer(config.num_hidden_layers)  # reports a mistake before the weights are read
    tokenizer, draft = Tokenizer.if_there(directory), None
    if draft_model is not None:
        of_draft = locate(draft_model)
        check_draft(config, LlamaConfig.from_directory(of_draft), prompt_cache is not False)
        draft = Generator.from_directory(of_draft, None, dtype, lazily=True, **options)
    generator = Generator.from_directory(directory, chosen, dtype, capacity, draft, lazily, **options)
    if prompt_cache is not False:
        kept_in = None if prompt_cache is True else Path(prompt_cache)
        generator.prefixes = Prefixes(_bytes(prompt_cache_bytes), kept_in, generator.digest)
    return Model(generator, tokenizer, directory)


def _bytes(number: object) -> int:
    if not isinstance(number, int) or isinstance(number, bool) or number < 0:
        raise RequestError(
            f"prompt_cache_bytes is {shown(number)}; it must be a whole number of bytes", hint="prompt_cache_bytes=2**30"
        )
    return number


def _attention(attention: object, config: LlamaConfig) -> Attention:
    if attention is None:
        return Attention.of_windows(config.windows)
    if isinstance(attention, Pattern):
        return Attention((Layers(0, None, attention),))
    if isinstance(attention, Attention):
        return attention
    if not isinstance(attention, str):
        raise PatternError(f"{shown(attention)} is not an attention pattern", hint='attention="window=1024+sink=4", for example')
    return Attention.parse(attention)


def stop_texts(stop: str | Sequence[str]) -> tuple[str, ...]:
    """The texts that end a continuation. Raises RequestError if they are not texts, or empty."""
    stops = (stop,) if isinstance(stop, str) else tuple(stop) if isinstance(stop, Sequence) else (stop,)
    if not all(isinstance(text, str) and text for text in stops):
        raise RequestError(f"stop is {shown(stop)}; it must be strings that are not empty", hint='stop=["END"], or leave it out')
    return stops


class Model:
    """A model: `generate` continues prompts, `logits` scores a text. `tokenizer` is None if the directory has none.

    All prompts and lengths up to a capacity share one compiled program, to which the weights are bound once.
    """

    def __init__(self, generator: Generator, tokenizer: Tokenizer | None, directory: Path):
        self.generator, self.directory = generator, directory
        self._tokenizer = tokenizer

    @property
    def config(self) -> LlamaConfig:
        return self.generator.config

    @property
    def tokenizer(self) -> Tokenizer:
        """Raises TokenizerError if the model's directory has no tokenizer."""
        if self._tokenizer is None:
            raise TokenizerError(
                f"no tokenizer.json or tokenizer.model in {self.directory}",
                hint="copy it from the model's own directory, or give token ids",
            )
        return self._tokenizer

    @property
    def has_tokenizer(self) -> bool:
        return self._tokenizer is not None

    @property
    def compiles(self) -> int:
        """The number of XLA programs compiled so far for `generate`."""
        return self.generator.costs[0]

    def __repr__(self) -> str:
        config, form = self.config, self.generator.form
        return f"<Model {self.directory}: {config.model_type}, {config.num_hidden_layers} layers of {config.hidden_size}, {form.dtype}>"

    def logits(self, ids: str | Sequence[int]) -> FloatArray:
        """The scores of all tokens after each token of a text: float32 [len(ids), vocabulary]. Raises RequestError."""
        return self.generator.logits(self._ids(ids) if isinstance(ids, str) else ids)

    @overload
    def generate(
        self,
        prompts: Prompts,
        max_new_tokens: int = 128,
        *,
        stream: Literal[False] = False,
        sampling: Sampling | None = None,
        temperature: float = 0.0,
        samples: int = 1,
        seed: int = 0,
        stop: str | Sequence[str] = (),
        stop_ids: Iterable[int] = (),
        ignore_eos: bool = False,
        logprobs: int = 0,
        max_context: int | None = None,
        chunk: int | None = None,
        speculate: int = 0,
    ) -> Generation: ...
    @overload
    def generate(
        self,
        prompts: Prompts,
        max_new_tokens: int = 128,
        *,
        stream: Literal[True],
        sampling: Sampling | None = None,
        temperature: float = 0.0,
        samples: int = 1,
        seed: int = 0,
        stop: str | Sequence[str] = (),
        stop_ids: Iterable[int] = (),
        ignore_eos: bool = False,
        logprobs: int = 0,
        max_context: int | None = None,
        chunk: int | None = None,
        speculate: int = 0,
    ) -> Stream: ...
    def generate(
        self,
        prompts: Prompts,
        max_new_tokens: int = 128,
        *,
        stream: bool = False,
        sampling: Sampling | None = None,
        temperature: float = 0.0,
        samples: int = 1,
        seed: int = 0,
        stop: str | Sequence[str] = (),
        stop_ids: Iterable[int] = (),
        ignore_eos: bool = False,
        logprobs: int = 0,
        max_context: int | None = None,
        chunk: int | None = None,
        speculate: int = 0,
    ) -> Generation | Stream:
        """Continue each prompt, a text or token ids, by up to `max_new_tokens` tokens.

        The text ends after an end token of the model (unless `ignore_eos`), one of `stop_ids`, or before a string of `stop`. `sampling` says
        how tokens are chosen, or `temperature` alone: 0 takes the most likely one. `samples` continues each prompt so many times. Draws are a
        function of `seed`, the prompt, the sample and the position. With `logprobs` K, the K most likely tokens at each position are
        reported. Texts are given as they are: `model.tokenizer.encode(text, raw=False)` applies the chat template.

        With `speculate` K, each round drafts K tokens, and takes those that the model chooses too, and one more: the text is the same, and
        comes sooner where many stay. A draft model drafts if the model was loaded with one; else n-grams of prompt and text do.

        With `stream`, the result is an iterator over pieces of text as they come, in launches of `chunk` positions or rounds (by default, about
        a tenth of a second each); its `.generation` is the same as without. Raises RequestError.
        """
        stops = stop_texts(stop)
        ids = self._prompts(prompts)
        chosen = chosen_sampling(sampling, temperature)
        ends = self.end_ids(stop_ids, ignore_eos)
        request = Request(ids, max_new_tokens, chosen, seed, ends, max_context, samples, logprobs, speculate)
        streamed = self.start(request, [stops] * len(ids), chunk)
        return streamed if stream else streamed.finished()

    def end_ids(self, stop_ids: Iterable[int] = (), ignore_eos: bool = False) -> tuple[int, ...]:
        """The tokens that end a text: `stop_ids`, and the model's end tokens unless `ignore_eos`."""
        own = () if ignore_eos else (i for i in self.config.eos_ids if i < self.config.vocab_size)
        return tuple(sorted({*check_tokens(stop_ids, "stop_ids", self.config), *own}))

    def start(self, request: Request, stops: Sequence[Sequence[str]], chunk: int | None = None) -> Stream:
        """The stream of a request, with the stop strings of each of its prompts. Raises RequestError."""
        if chunk is not None and (not isinstance(chunk, int) or isinstance(chunk, bool) or chunk < 1):
            raise RequestError(f"a chunk is {shown(chunk)} positions; it must be at least 1")
        if any(stops) and self._tokenizer is None:
            raise TokenizerError("stop strings need a tokenizer, and this model has none", hint="stop at token ids: stop_ids=[2]")
        return Stream(self.generator.start(request), self._tokenizer, stops, chunk)

    def chat(
        self,
        system_prompt: str | None = None,
        *,
        sampling: Sampling | None = None,
        seed: int = 0,
        max_context: int | None = None,
    ) -> Conversation:
        """A conversation in the model's chat template: `"".join(chat.say("Hello"))` is a reply.

        Keys and values stay from turn to turn. Raises TokenizerError if the model has no chat template.
        """
        return Conversation(self.generator, self.tokenizer, system_prompt, sampling, seed, max_context)

    def _prompts(self, prompts: Prompts) -> list[list[int]]:
        if isinstance(prompts, str):
            return [self._ids(prompts)]
        has_no_order = isinstance(prompts, (Mapping, Set)) or getattr(prompts, "ndim", 1) == 0
        if has_no_order or isinstance(prompts, bytes) or not isinstance(prompts, Iterable):
            raise RequestError(f"the prompts are {shown(prompts)}", hint='generate("text"), or generate([1, 2, 3])')
        each: list[Any] = list(prompts)
        if each and all(isinstance(prompt, str) for prompt in each):
            return [self._ids(prompt) for prompt in each]
        if each and not any(isinstance(prompt, (str, Sequence)) or hasattr(prompt, "__len__") for prompt in each):
            return [each]  # the ids of one prompt
        if any(isinstance(prompt, str) or not hasattr(prompt, "__len__") for prompt in each):
            raise RequestError(
                "prompts are strings or token ids, not both", hint='generate(["one", "two"]) or generate([[1, 2], [3]])'
            )
        return [list(check_tokens(prompt, f"prompt {number}", self.config)) for number, prompt in enumerate(each)]

    def _ids(self, text: str) -> list[int]:
        return self.tokenizer.encode(text, raw=True)


class Stream(Iterator[Piece]):
    """Pieces of text as they come. After the last one, or any before, `generation` is what came so far."""

    def __init__(self, decoding: Decoding, tokenizer: Tokenizer | None, stops: Sequence[Sequence[str]], chunk: int | None):
        """`stops` are the stop strings of each prompt."""
        self._decoding, self._has_stops = decoding, any(stops)
        rows = decoding.rows.request.rows
        self._writers = {place: Writer(tokenizer, stops[place[0]], decoding.rows.request.prompts[place[0]]) for place in rows}
        self._row = {place: number for number, place in enumerate(rows)}
        self._pieces = decoding.pieces(chunk)
        self._lock = threading.Lock()

    def __next__(self) -> Piece:
        with self._lock:
            return self._told(next(self._pieces))

    def _told(self, piece: Piece) -> Piece:
        """A piece with its text. A stop string in it ends the row."""
        place = piece.prompt, piece.sample
        writer = self._writers[place]
        before = writer.length
        text = writer.write(piece.token_ids, piece.finish_reason is not None)
        if not writer.is_stopped:
            return replace(piece, text=text)
        self._decoding.stop(self._row[place], writer.length)
        count = writer.length - before
        logprobs = None if piece.logprobs is None else piece.logprobs[:count]
        return replace(piece, token_ids=piece.token_ids[:count], finish_reason="stop", logprobs=logprobs, text=text)

    def finished(self) -> Generation:
        """The whole: in one launch, unless there are stop strings to look for."""
        if self._has_stops:
            for _ in self:
                pass
        else:
            before = [len(tokens) for tokens in self._decoding.rows.tokens]
            self._decoding.finish()
            for place, row in self._row.items():
                self._writers[place].write(self._decoding.rows.tokens[row][before[row] :], True)
        return self.generation

    @property
    def generation(self) -> Generation:
        """What came so far, as a whole."""
        generation = self._decoding.generation()
        return replace(generation, completions=tuple(self._completion(each) for each in generation.completions))

    def _completion(self, completion: Completion) -> Completion:
        return replace(completion, text=self._writers[completion.prompt, completion.sample].text)
