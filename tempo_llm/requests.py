"""What is asked of a model, and what comes of it, in token ids."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

import tempo_core as tp
from tempo_llm.config import LlamaConfig
from tempo_llm.errors import RequestError, shown
from tempo_llm.sampling import Sampling

MOST_LOGPROBS = 1024
MOST_DRAFTED = 64  # tokens of a round of speculation
LEAST_DOUBLED = 16  # tokens: shorter prompts run with prompts of twice as many


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
    for as they come. With speculation, `rounds` is the number of rounds of all rows after their first tokens, and `accepted` that of drafted
    tokens that stayed; without, both are 0. `profile` is there if it was asked for; `run_seconds` are then those of the profiled run.
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
    rounds: int = 0
    accepted: int = 0

    @property
    def accepted_per_round(self) -> float:
        """How many drafted tokens stay in a round, on average; each round gives one more. 0 without speculation."""
        return self.accepted / max(self.rounds, 1)

    @property
    def text(self) -> str:
        """The text of the first completion. Empty without a tokenizer."""
        return self.completions[0].text or ""


@dataclass(frozen=True)
class Group:
    """Prompts of a request that run together: their numbers in the request, their tokens, and how many tokens each may get.

    Each has so many `samples`; or texts go on that were begun: then the prompts are prompts with their texts so far, of the sample
    `sample_of` each, and `written` are the numbers of tokens of these texts.
    """

    numbers: tuple[int, ...]
    prompts: Sequence[Sequence[int]]
    new_tokens: Sequence[int]
    samples: int = 1
    sample_of: tuple[int, ...] | None = None
    written: tuple[int, ...] = ()

    @property
    def rows(self) -> list[tuple[int, int]]:
        """For each row of the program, the number of its prompt in the request, and of its sample."""
        if self.sample_of is not None:
            return list(zip(self.numbers, self.sample_of, strict=True))
        return [(number, sample) for number in self.numbers for sample in range(self.samples)]

    def begun(self, place: int) -> tuple[int, int]:
        """Of a row, the number of tokens of its text that stand in its prompt, and how many more it may get here."""
        prompt = place // self.samples
        return self.written[prompt] if self.written else 0, self.new_tokens[prompt]

    @property
    def longest(self) -> int:
        """The number of tokens of the longest prompt."""
        return max(map(len, self.prompts))

    @property
    def most_new(self) -> int:
        return max(self.new_tokens)


@dataclass(frozen=True)
class Request:
    """What to generate: each prompt of token ids is continued `samples` times, by up to `max_new_tokens` tokens.

    The text ends after the first of `stop_ids`. `max_context` limits prompt and text together, below the model's own limit. With `logprobs`,
    the logarithms of the probabilities of that many of the most likely tokens are reported too. With `speculate`, so many tokens are drafted
    in each round: the tokens are the same, perhaps sooner. `max_new_tokens` and `seed` are one number, or one for each prompt.
    """

    prompts: Sequence[Sequence[int]]
    max_new_tokens: int | Sequence[int] = 128
    sampling: Sampling = field(default_factory=Sampling)
    seed: int | Sequence[int] = 0
    stop_ids: Iterable[int] = ()
    max_context: int | None = None
    samples: int = 1
    logprobs: int = 0
    speculate: int = 0

    @property
    def rows(self) -> list[tuple[int, int]]:
        """For each row of the program, the number of its prompt and of its sample."""
        return [(prompt, sample) for prompt in range(len(self.prompts)) for sample in range(self.samples)]

    @property
    def groups(self) -> list[Group]:
        """The prompts that run together: those of a group have at most twice as many tokens as the shortest of them."""
        groups: list[list[int]] = []
        for number in sorted(range(len(self.prompts)), key=lambda number: len(self.prompts[number])):
            if not groups or len(self.prompts[number]) > 2 * max(len(self.prompts[groups[-1][0]]), LEAST_DOUBLED):
                groups.append([])
            groups[-1].append(number)
        new, prompts = self.new_tokens, self.prompts
        ordered = [tuple(sorted(each)) for each in groups]
        return [Group(each, [prompts[k] for k in each], [new[k] for k in each], self.samples) for each in ordered]

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
            ("speculate", self.speculate, 0, MOST_DRAFTED),
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
