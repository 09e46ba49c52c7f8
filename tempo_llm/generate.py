"""Generation: token ids in, continuations out, with one compiled program for all prompts and lengths up to a capacity."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

import tempo_core as tp
from tempo_core.typing import Bounds
from tempo_llm.attention import Attention
from tempo_llm.checkpoint import load_weights, split
from tempo_llm.config import LlamaConfig
from tempo_llm.errors import CheckpointError, RequestError, shown
from tempo_llm.llama import Decoder, Weights, trace_decoder, trace_scorer
from tempo_llm.sampling import NOT_FINITE, Features, Sampling, chosen_sampling, uniform_draws
from tempo_llm.stacks import stacks_of
from tempo_llm.types import FloatArray, IntArray

LEAST_CAPACITY = 64  # positions; capacities are this number, doubled as often as a request needs it
PROGRAMS_KEPT = 4  # with the weights bound to them
PAUSE = 0.1  # seconds between two pieces of a stream, about
MOST_LOGPROBS = 1024


@dataclass(frozen=True)
class TokenLogprobs:
    """The natural logarithms of probabilities at one position, before penalties, bias and temperature.

    `logprob` is that of the token that was taken; `top` has the most likely tokens with theirs, in this order.
    """

    logprob: float
    top: tuple[tuple[int, float], ...]


@dataclass(frozen=True)
class Completion:
    """The tokens that followed one prompt. `finish_reason` is "stop" (the last token, or a stop string, ends the text) or "length".

    `prompt` is the prompt's number in the request, and `sample` that of the sample. `logprobs` has a row for each token if they were asked
    for. `text` is there if the request was made of a model with a tokenizer.
    """

    prompt_ids: tuple[int, ...]
    token_ids: tuple[int, ...]
    finish_reason: str
    prompt: int = 0
    sample: int = 0
    logprobs: tuple[TokenLogprobs, ...] | None = None
    text: str | None = None


@dataclass(frozen=True)
class Generation:
    """The result of one call: completions in the order of the prompts, the samples of a prompt one after the other; and the cost.

    `length` is the number of positions computed for each prompt; `compiles` is the number of XLA programs compiled in this call, and
    `loads` of those that came from the cache on disk instead: both take `compile_seconds`. Before that, `prepare_seconds` went into the
    program itself: Tempo's passes, and the weights bound to it. `capacity` is the number of positions of the program.
    `first_token_seconds` is the time from the start of the run to the first new token, without compiling. It is there if tokens were asked
    for as they come. `profile` is there if it was asked for; `run_seconds` are then those of the profiled run.
    """

    completions: tuple[Completion, ...]
    length: int
    compiles: int
    compile_seconds: float
    run_seconds: float
    loads: int = 0
    capacity: int = 0
    first_token_seconds: float | None = None
    profile: tp.Profile | None = None
    prepare_seconds: float = 0.0

    @property
    def text(self) -> str:
        """The text of the first completion. Empty without a tokenizer."""
        return self.completions[0].text or ""


@dataclass(frozen=True)
class Request:
    """What to generate: each prompt of token ids is continued `samples` times, by up to `max_new_tokens` tokens.

    The text ends after the first of `stop_ids`. `max_context` limits prompt and text together, below the model's own limit. With `logprobs`,
    the logarithms of the probabilities of that many of the most likely tokens are reported too. `max_new_tokens` and `seed` are one number,
    or one for each prompt.
    """

    prompts: Sequence[Sequence[int]]
    max_new_tokens: int | Sequence[int] = 128
    sampling: Sampling = field(default_factory=Sampling)
    seed: int | Sequence[int] = 0
    stop_ids: Iterable[int] = ()
    max_context: int | None = None
    samples: int = 1
    logprobs: int = 0

    @property
    def rows(self) -> list[tuple[int, int]]:
        """For each row of the program, the number of its prompt and of its sample."""
        return [(prompt, sample) for prompt in range(len(self.prompts)) for sample in range(self.samples)]

    @property
    def shortest(self) -> int:
        """The number of tokens of the shortest prompt."""
        return min(map(len, self.prompts))

    @property
    def new_tokens(self) -> Sequence[int]:
        """`max_new_tokens` of each prompt."""
        return self._of_each(self.max_new_tokens)

    @property
    def seeds(self) -> Sequence[int]:
        """`seed` of each prompt."""
        return self._of_each(self.seed)

    def _of_each(self, number: int | Sequence[int]) -> Sequence[int]:
        return number if isinstance(number, Sequence) else [number] * len(self.prompts)

    def check_settings(self, config: LlamaConfig) -> None:
        """Raise RequestError for settings that no prompt can be served with."""
        if not isinstance(self.sampling, Sampling):
            raise RequestError(
                f"sampling is {shown(self.sampling)}; it must be a Sampling", hint="sampling=tempo_llm.Sampling(0.8, top_k=10)"
            )
        limits: list[tuple[str, Any, int | None, int | None]] = [
            *(("max_new_tokens", value, 1, None) for value in _listed(self.max_new_tokens)),
            *(("seed", value, None, None) for value in _listed(self.seed)),
            ("samples", self.samples, 1, 4096),
            ("logprobs", self.logprobs, 0, min(config.vocab_size, MOST_LOGPROBS)),
        ]
        for name, value, least, most in limits:
            if not _is_whole(value) or (least is not None and value < least) or (most is not None and value > most):
                words = "" if least is None else f" of at least {least}" + ("" if most is None else f" and at most {most}")
                raise RequestError(f"{name} is {shown(value)}; it must be a whole number{words}")

    def needed(self, config: LlamaConfig) -> int:
        """The number of positions of the longest row. Raises RequestError for a request that cannot be served."""
        self.check_settings(config)
        if not isinstance(self.prompts, Sequence):
            raise RequestError(
                f"prompts is {shown(self.prompts)}; it must be lists of token ids", hint="generate([[1, 2, 3]], 16)"
            )
        if not self.prompts:
            raise RequestError("there is no prompt", hint='give one with --prompt TEXT, or generate(["text"])')
        for number, prompt in enumerate(self.prompts):
            if not check_tokens(prompt, f"prompt {number}", config):
                raise RequestError(
                    f"prompt {number} has no tokens",
                    hint='an empty prompt needs a model that begins with a token of its own. Write some text: --prompt "Hello"',
                )
        check_tokens(self.stop_ids, "stop_ids", config)
        most = config.max_position_embeddings
        limit: Any = most if self.max_context is None else self.max_context
        if not _is_whole(limit) or not 1 <= limit <= most:
            raise RequestError(f"max_context is {self.max_context}; this model takes 1 to {most} tokens")
        needed, length, count = max(
            (len(prompt) + count, len(prompt), count) for prompt, count in zip(self.prompts, self.new_tokens, strict=True)
        )
        if needed > limit:
            raise RequestError(
                f"a prompt of {length} tokens and {count} new ones do not fit the context of {limit} tokens",
                hint="shorten the prompt, or ask for fewer new tokens: --max-new-tokens 16",
            )
        return needed


def check_tokens(tokens: Iterable[int], what: str, config: LlamaConfig) -> list[int]:
    """The ids as a list. Raises RequestError for what is not token ids, and for tokens that the model does not know."""
    try:
        ids = None if isinstance(tokens, (str, bytes)) else list(tokens)
    except TypeError:
        ids = None
    if ids is None:
        example = _EXAMPLES.get(what, "generate([1, 2, 3])")
        raise RequestError(f"{what} is {shown(tokens)}; it must be token ids", hint=f"{example}, for example")
    unknown = [token for token in ids if not _is_whole(token) or not 0 <= token < config.vocab_size]
    if unknown:
        raise RequestError(
            f"{what} has token {shown(unknown[0])}, but the model knows {config.vocab_size} tokens",
            hint=f"token ids go from 0 to {config.vocab_size - 1}. Take them from the tokenizer of this model: model.tokenizer.encode(text, raw=True)",
        )
    return ids


_EXAMPLES: Mapping[str, str] = {"stop_ids": "stop_ids=[2]", "ids": "logits([1, 2, 3])"}  # of tokens, by the name of the argument


def _listed(number: object) -> Sequence[object]:
    return number if isinstance(number, (list, tuple)) else [number]


def _is_whole(number: object) -> bool:
    return isinstance(number, (int, np.integer)) and not isinstance(number, bool)


class Generator:
    """A loaded model, for token ids. Programs are compiled when first needed, and kept with the weights bound to them.

    A program serves all prompts and lengths up to its capacity: 64 positions, doubled as often as a request needs it, or `capacity` if it
    is given. Batches of other sizes, and other parts of the choice of tokens (`Features`), are other programs.
    """

    def __init__(
        self,
        config: LlamaConfig,
        weights: dict[str, np.ndarray],
        attention: Attention | None = None,
        capacity: int | None = None,
        **options: Any,
    ):
        """`weights` are those of `checkpoint.load_weights`; `options` are fields of `tempo_core.Config`, such as `executor`.

        Without `attention`, each layer has the sliding window of the model's configuration, if there is one.
        """
        self.config = config
        self.attention = Attention.of_windows(config.windows) if attention is None else attention
        self.capacity = capacity
        if capacity is not None and not (_is_whole(capacity) and 1 <= capacity <= config.max_position_embeddings):
            raise RequestError(
                f"the capacity is {shown(capacity)}; this model takes 1 to {config.max_position_embeddings} tokens"
            )
        self.form = Weights.of(weights)
        self._weights = self.form.arranged(split(weights, config, stacks_of(config, self.attention)))
        # Programs of other capacities are compiled here, where prompts and caches ask for them.
        self._options = {**options, "disable": (*options.get("disable", ()), "capacities")}
        self._decoders: dict[Features, Decoder] = {}
        self._programs: dict[tuple[int, int, int, Features], tp.Program[dict[str, np.ndarray]]] = {}
        self._talking: dict[Features, tuple[Decoder, dict[tuple[int, int], tp.Program[dict[str, np.ndarray]]]]] = {}
        self._scorers: dict[int, tp.Program[Any]] = {}
        self._dropped = (0, 0.0, 0)  # what programs cost that are not kept any more

    @staticmethod
    def from_directory(
        directory: str | Path,
        attention: Attention | None = None,
        dtype: str | None = None,
        capacity: int | None = None,
        **options: Any,
    ) -> Generator:
        """The model in a Hugging Face checkpoint directory (without its tokenizer)."""
        config = LlamaConfig.from_directory(directory)
        (attention or Attention()).by_layer(config.num_hidden_layers)  # reports a mistake before the weights are read
        return Generator(config, load_weights(directory, config, dtype), attention, capacity, **options)

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
    ) -> Generation:
        """Continue each prompt by up to `max_new_tokens` tokens, ending after the first of `stop_ids`, in one launch.

        Temperature 0 takes the most likely token each time; above 0 tokens are drawn, as a function of `seed`, the prompt and the position.
        `sampling` says more about the choice (instead of `temperature`). With `profile`, the run is profiled. Raises
        `RequestError` for prompts that are empty, hold unknown tokens or do not fit `max_context` (the model's own limit).
        """
        chosen = chosen_sampling(sampling, temperature)
        ends = tuple(check_tokens(stop_ids, "stop_ids", self.config))
        request = Request(prompts, max_new_tokens, chosen, seed, ends, max_context, samples, logprobs)
        if profile:
            return self.profiled(request)
        decoding = self.start(request)
        decoding.finish()
        return decoding.generation()

    def start(self, request: Request) -> Decoding:
        """A run that goes on chunk by chunk. Raises RequestError for a request that cannot be served."""
        return Decoding(self, request)

    def profiled(self, request: Request) -> Generation:
        """The whole of a request, in one profiled launch."""
        needed = request.needed(self.config)
        features = request.sampling.features(request.logprobs)
        program, capacity = self.program(len(request.rows), needed, features, request.shortest)
        before = self.costs
        measured = program.profile(self.inputs(request, needed, features), bounds={self.length(features): needed})
        rows = Rows(self, request, needed)
        rows.take(measured.results)
        after = self.costs
        seconds = after[1] - before[1] + measured.compile_seconds
        return Generation(
            rows.completions(),
            rows.reached,
            after[0] - before[0],
            seconds,
            measured.seconds,
            after[2] - before[2],
            capacity,
            None,
            measured,
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
    ) -> str:
        """The plan of `generate` with these arguments, as text: what it would store and run.

        With `full`, each statement and each store has a line of its own. `as_json` gives the memory of all tensors and its peaks
        instead, and `picture` is an .svg of them that is written.
        """
        chosen = chosen_sampling(sampling, temperature)
        request = Request(prompts, max_new_tokens, chosen, 0, (), max_context, samples, logprobs)
        return self.plan_of(request, full=full, as_json=as_json, picture=picture)

    def plan_of(self, request: Request, *, full: bool = False, as_json: bool = False, picture: Path | None = None) -> str:
        """The plan of a request."""
        needed, features = request.needed(self.config), request.sampling.features(request.logprobs)
        program, _ = self.program(len(request.rows), needed, features, request.shortest, bind=False)
        made = program.plan()
        if picture is not None:
            made.draw(picture)
        return made.json() if as_json else made.text(full)

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
            program = scorer.context.compile(bounds, scorer.logits, tp.Config(**self._options))
            self._scorers = {capacity: program.bind(self._weights)}
        return self._scorers[capacity].run({"token": np.asarray(ids, np.int32)})

    @property
    def weights(self) -> Mapping[str, np.ndarray]:
        """The weights by their names in the program: those of `checkpoint.load_weights`, if all layers are of one kind."""
        return self._weights

    @property
    def weight_bytes(self) -> int:
        """The bytes of all weights that a step reads: the embedding, of which it reads a row, is left out unless it is the head."""
        return sum(array.nbytes for name, array in self._weights.items() if not name.startswith("embedding."))

    # -- programs -----------------------------------------------------------------------------------------------------

    def program(
        self, rows: int, positions: int, features: Features, prompt: int = 1, bind: bool = True
    ) -> tuple[tp.Program[dict[str, np.ndarray]], int]:
        """The program for so many rows, at least so many positions, and prompts of at least `prompt` tokens, and its capacity.

        All positions up to the capacity of the prompt are computed at once. If `bind` is off, the program is without its weights.
        """
        capacity, at_once = self.capacity_for(positions), self.prompt_capacity(prompt, positions)
        key = (rows, capacity, at_once, features)
        if key in self._programs:
            self._programs[key] = self._programs.pop(key)  # the last one used is the last one to go
            return self._programs[key], capacity
        if features not in self._decoders:
            self._decoders[features] = trace_decoder(self.config, self.attention, features, self.form)
        program = self.bound(self._decoders[features], rows, capacity, at_once, features.logprobs > 0, bind)
        if bind:
            self._programs[key] = program
            if len(self._programs) > PROGRAMS_KEPT:
                oldest = self._programs.pop(next(iter(self._programs)))
                self._dropped = (
                    self._dropped[0] + oldest.compiles, self._dropped[1] + oldest.compile_seconds, self._dropped[2] + oldest.loads
                )  # fmt: skip
        return program, capacity

    def bound(
        self, decoder: Decoder, rows: int, capacity: int, at_once: int, keeps_loop: bool = False, bind: bool = True
    ) -> tp.Program[dict[str, np.ndarray]]:
        """A decoder compiled for so many rows and positions, `at_once` of a prompt, with the weights bound if `bind` is on.

        With `keeps_loop`, all that is computed at a position stays there: logits of all positions are not kept until the end.
        """
        lengths: Bounds = {decoder.prompt: tp.upto(at_once), decoder.length: tp.upto(capacity)}
        bounds = {**lengths, decoder.rows: rows, **decoder.loops}
        options = dict(self._options)
        if keeps_loop:
            options["disable"] = (*options["disable"], "vectorize(t)")
        program = decoder.context.compile(bounds, decoder.outputs, tp.Config(**options))
        return program.bind(self._weights) if bind else program

    def conversation(self, features: Features, capacity: int, at_once: int) -> tuple[Decoder, tp.Program[dict[str, np.ndarray]]]:
        """The program of a conversation of up to so many positions, which begins with up to `at_once` tokens."""
        if features not in self._talking:
            traced = trace_decoder(self.config, self.attention, features, self.form, is_conversation=True)
            self._talking[features] = traced, {}
        decoder, programs = self._talking[features]
        if (capacity, at_once) not in programs:
            programs[capacity, at_once] = self.bound(decoder, 1, capacity, at_once)
        return decoder, programs[capacity, at_once]

    def length(self, features: Features) -> tp.Expr:
        """The bound of the number of positions, of the programs with these features."""
        return self._decoders[features].length

    def prompt_capacity(self, prompt: int, positions: int) -> int:
        """The number of a prompt's positions that the program for so many positions computes at once: at least `prompt`."""
        doubled = LEAST_CAPACITY
        while doubled < prompt:
            doubled *= 2
        return min(doubled, self.capacity_for(positions))

    def capacity_for(self, positions: int) -> int:
        """The number of positions of the program that serves so many."""
        if self.capacity is not None:
            if positions > self.capacity:
                raise RequestError(
                    f"{positions} positions do not fit the capacity of {self.capacity}",
                    hint="load the model with a larger capacity: tempo_llm.load(model, capacity=512)",
                )
            return self.capacity
        doubled = LEAST_CAPACITY
        while doubled < positions:
            doubled *= 2
        return min(doubled, self.config.max_position_embeddings)

    @property
    def costs(self) -> tuple[int, float, int]:
        """So far: the number of XLA programs compiled, the seconds of compiling, and the number of XLA programs from the cache on disk."""
        programs = self._programs.values()
        return (
            self._dropped[0] + sum(program.compiles for program in programs),
            self._dropped[1] + sum(program.compile_seconds for program in programs),
            self._dropped[2] + sum(program.loads for program in programs),
        )

    def inputs(self, request: Request, needed: int, features: Features) -> dict[str, np.ndarray]:
        """The inputs of a request's program, but for the weights."""
        rows = [request.prompts[prompt] for prompt, _ in request.rows]
        shortest = min(map(len, rows))
        given = np.full((needed, len(rows)), -1, np.int32)
        for number, row in enumerate(rows):
            given[shortest : len(row), number] = row[shortest:]
        ends = np.zeros(self.config.vocab_size, bool)
        ends[list(request.stop_ids)] = True
        start = np.asarray([len(row) for row in rows], np.int32)
        draws = np.zeros((0, len(rows)), np.float32)
        if features.is_sampled:
            each = [(request.seeds[prompt], request.prompts[prompt], sample) for prompt, sample in request.rows]
            draws = np.stack([uniform_draws(seed, ids, sample, needed) for seed, ids, sample in each], 1)
        return {
            "prompt": np.asarray([row[:shortest] for row in rows], np.int32).T,
            "given": given,
            "start": start,
            "limit": start + np.asarray([request.new_tokens[prompt] for prompt, _ in request.rows], np.int32),
            "ends": ends,
            **request.sampling.inputs(features, rows, draws, self.config.vocab_size),
        }


@dataclass(frozen=True)
class Piece:
    """What came of one row since its last piece: the tokens, and the text if there is a tokenizer. The last piece has a `finish_reason`."""

    prompt: int
    sample: int
    token_ids: tuple[int, ...]
    finish_reason: str | None = None
    logprobs: tuple[TokenLogprobs, ...] | None = None
    text: str = ""


class Rows:
    """The rows of a request, as far as a run has come."""

    def __init__(self, generator: Generator, request: Request, needed: int):
        self.request = request
        self._rows = request.rows
        self._prompts = [tuple(int(token) for token in request.prompts[prompt]) for prompt, _ in self._rows]
        self._stops = frozenset(request.stop_ids)
        self._most = [request.new_tokens[prompt] for prompt, _ in self._rows]
        self._needed = needed
        self.tokens: list[list[int]] = [[] for _ in self._rows]
        self.logprobs: list[list[TokenLogprobs]] = [[] for _ in self._rows]
        self.reasons: list[str | None] = [None for _ in self._rows]
        self.reached = 0

    @property
    def done(self) -> bool:
        return None not in self.reasons

    def take(self, results: dict[str, Any]) -> list[Piece]:
        """The new tokens of each row that has some, from the results of a run so far. Raises CheckpointError where logits are not finite."""
        text: IntArray = np.asarray(results["text"])
        filled = (text != 0).all(1)
        self.reached = len(text) if filled.all() else int(np.argmin(filled))
        pieces = []
        for row, prompt in enumerate(self._prompts):
            if self.reasons[row] is not None:
                continue
            first = len(prompt) + len(self.tokens[row])
            last = min(self.reached, len(prompt) + self._most[row])
            for position in range(first, last):
                token = int(text[position, row]) - 1
                if token == NOT_FINITE:
                    raise CheckpointError(
                        f"the model's logits are not finite after token {position - 1} of prompt {self._rows[row][0]}",
                        hint="the weights may be damaged, or too large for float16: try --dtype bfloat16",
                    )
                self.tokens[row].append(token)
                if self.request.logprobs:
                    self.logprobs[row].append(_logprobs(results, position, row))
                if token in self._stops:
                    self.reasons[row] = "stop"
                    break
            if self.reasons[row] is None and len(self.tokens[row]) == self._most[row]:
                self.reasons[row] = "length"
            new = self.tokens[row][first - len(prompt) :]
            if new:
                number, sample = self._rows[row]
                logprobs = tuple(self.logprobs[row][first - len(prompt) :]) if self.request.logprobs else None
                pieces.append(Piece(number, sample, tuple(new), self.reasons[row], logprobs))
        return pieces

    def completions(self) -> tuple[Completion, ...]:
        return tuple(
            Completion(
                self._prompts[row],
                tuple(self.tokens[row]),
                self.reasons[row] or "length",
                prompt,
                sample,
                tuple(self.logprobs[row]) if self.request.logprobs else None,
            )
            for row, (prompt, sample) in enumerate(self._rows)
        )


def _logprobs(results: dict[str, Any], position: int, row: int) -> TokenLogprobs:
    """Those of the token at a position: it was chosen at the position before."""
    tokens, values = np.asarray(results["top_tokens"][position - 1, row]), np.asarray(results["top_logprobs"][position - 1, row])
    return TokenLogprobs(float(results["logprob"][position, row]), tuple(zip(tokens.tolist(), values.tolist(), strict=True)))


class Decoding:
    """A run that generates: `pieces()` are the tokens as they come, `finish()` runs it to its end.

    `stop(row, length)` ends a row from outside, after its first `length` tokens. If all rows have ended, so has the run.
    """

    def __init__(self, generator: Generator, request: Request):
        needed = request.needed(generator.config)
        features = request.sampling.features(request.logprobs)
        self.rows = Rows(generator, request, needed)
        self._generator, self._before, started = generator, generator.costs, time.perf_counter()  # `started`: before the passes
        program, self.capacity = generator.program(len(request.rows), needed, features, request.shortest)
        self._shortest = request.shortest
        self._run = program.start(
            generator.inputs(request, needed, features), by="t", bounds={generator.length(features): needed}
        )
        self._started, self._first_token_seconds = time.perf_counter(), 0.0
        self._seconds_before = self._compile_seconds
        self._prepare_seconds = self._started - started - self._seconds_before
        self._is_streamed = False

    def stop(self, row: int, length: int) -> None:
        self.rows.reasons[row] = "stop"
        del self.rows.tokens[row][length:], self.rows.logprobs[row][length:]

    def pieces(self, count: int | None = None) -> Iterator[Piece]:
        """New tokens as they come: first those of the first position after the shortest prompt, then chunk by chunk.

        Each chunk is one launch of `count` positions. Without `count`, chunks take about a tenth of a second.
        """
        self._is_streamed = True
        chunk = 0
        while not self.rows.done:
            begun, costs = time.perf_counter(), self._compile_seconds
            self._run.advance("t", chunk or self._shortest + 1)
            pieces = self.rows.take(self._run.results)
            if pieces and not self._first_token_seconds:
                self._first_token_seconds = self._run_seconds
            yield from pieces
            if self._run.done:
                break
            seconds = time.perf_counter() - begun - (self._compile_seconds - costs)
            chunk = count or (_next_chunk(chunk, seconds) if chunk else 1)

    def finish(self) -> None:
        """Go on to the end, in one launch: the program ends by itself when all rows have ended."""
        if not self.rows.done:
            self.rows.take(self._run.finish())

    def generation(self) -> Generation:
        """What came of the run so far."""
        before, after = self._before, self._generator.costs
        return Generation(
            self.rows.completions(),
            self.rows.reached,
            after[0] - before[0],
            self._compile_seconds,
            self._run_seconds,
            after[2] - before[2],
            self.capacity,
            self._first_token_seconds if self._is_streamed else None,
            prepare_seconds=self._prepare_seconds,
        )

    @property
    def _run_seconds(self) -> float:
        return time.perf_counter() - self._started - (self._compile_seconds - self._seconds_before)

    @property
    def _compile_seconds(self) -> float:
        return self._generator.costs[1] - self._before[1]


def _next_chunk(chunk: int, seconds: float) -> int:
    """The length of the next chunk, after one that took so long."""
    if seconds < PAUSE / 2:
        return min(2 * chunk, 256)
    return max(chunk // 2, 1) if seconds > 2 * PAUSE else chunk
