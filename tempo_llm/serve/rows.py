"""A row of the engine: the job that it serves, how far it has come, and what is told of it."""

from __future__ import annotations

import time
from collections.abc import Iterator

import numpy as np

from tempo_llm.config import LlamaConfig
from tempo_llm.past import names
from tempo_llm.prefixes import Kept, Prefix
from tempo_llm.requests import TokenLogprobs
from tempo_llm.sampling import NOT_FINITE, uniform_draws
from tempo_llm.serve.choice import Chosen, RowChoice, form_of
from tempo_llm.serve.jobs import Failure, Job, Update
from tempo_llm.serve.tiles import TILE
from tempo_llm.tokenizer import Tokenizer
from tempo_llm.writer import Writer

SHORT_BLOCK = 16  # places of a block of the rest of a prompt, if it is no longer


def choice_of(job: Job, vocabulary: int) -> RowChoice:
    """What a job asks of the choice of its tokens. Raises RequestError for a bias of tokens that the model does not know."""
    prompt, sampling = job.prompt, job.sampling
    features = form_of(sampling, job.grammar is not None, job.has_logprobs, vocabulary)
    draws = np.zeros(0, np.float32)
    if features.is_sampled:
        draws = uniform_draws(job.seed, prompt, job.sample, len(prompt) + job.max_new_tokens)[len(prompt) :]
    return RowChoice(sampling, features, prompt, draws, vocabulary)


class Row:
    """A job in the row `number`. Of its prompt, `filled` positions are in the cache; the last token is computed with the first new one.

    With LongRoPE, a text that grows beyond the short context is read anew from its beginning, as a prompt.
    """

    def __init__(self, number: int, job: Job, tokenizer: Tokenizer | None, config: LlamaConfig):
        self.number, self.job, self.filled, self._config = number, job, 0, config
        self.prompt = list(job.prompt)  # what is read: the prompt, and perhaps a part of the text
        self._text: list[int] = []
        assert job.choice is not None
        self.choice = job.choice
        self.writer = Writer(tokenizer, job.stops, job.prompt)
        self.blocks: list[dict[str, np.ndarray]] = []  # what was computed of whole blocks of the prompt, to be shared
        self.token, self.count = int(job.prompt[-1]), 0

    @property
    def is_reading(self) -> bool:
        """Whether a part of the prompt is not in the cache yet."""
        return self.filled < len(self.prompt) - 1

    @property
    def position(self) -> int:
        """That of the token whose successor comes next."""
        return len(self.job.prompt) - 1 + self.count

    @property
    def names(self) -> list[int]:
        """What is read, as prefixes are named by it."""
        return names(self.prompt, self._config)

    def outgrows(self) -> bool:
        """Whether the text has grown beyond the short context; it is read anew then."""
        short, tokens = self._config.short_context, [*self.job.prompt, *self._text]
        if short is None or not len(self.prompt) <= short < len(tokens):
            return False
        self.prompt, self.filled, self.blocks = tokens, 0, []
        return True

    def next_block(self) -> tuple[int, int, int]:
        """The first position of the next block of the prompt, the one after its last, and the size of its program."""
        stop = min(len(self.prompt) - 1, self.filled + TILE)
        return self.filled, stop, SHORT_BLOCK if stop - self.filled <= SHORT_BLOCK else TILE

    def read(self, stop: int, outputs: dict[str, np.ndarray]) -> None:
        """A block of the prompt is in the cache."""
        if stop - self.filled == TILE and self.filled == TILE * len(self.blocks):
            self.blocks.append(outputs)
        self.filled = stop

    def share(self, prefix: Prefix, count: int) -> Iterator[tuple[int, dict[str, np.ndarray]]]:
        """The first `count` positions are those of an earlier prompt: its blocks, with their first positions."""
        for start in range(0, count, TILE):
            block = {name: kept.array[start : start + TILE] for name, kept in prefix.layers.items()}
            yield start, block
            self.blocks.append(block)
        self.filled = self.job.cached_tokens = count

    def prefix(self) -> Prefix | None:
        """What later prompts may share: the whole blocks of this one."""
        if self.job.cached_tokens == TILE * len(self.blocks):  # all of it is kept already
            return None
        tokens = tuple(self.names[: TILE * len(self.blocks)])
        return Prefix(tokens, {name: Kept(np.concatenate([b[name] for b in self.blocks]), None) for name in self.blocks[0]})

    def take(self, chosen: Chosen) -> Update:
        """The next token."""
        job, token = self.job, chosen.token
        if token == NOT_FINITE:
            return Update(
                error=Failure(500, f"the model's logits are not finite after token {self.position} of the text", "model_error")
            )
        if job.first_token_at is None:
            job.first_token_at = time.monotonic()
        self.choice.took(token)
        self.token, self.count = token, self.count + 1
        self._text.append(token)
        if job.grammar is not None:
            job.grammar.take(token)
        is_end = token in job.stop_ids
        reason = "stop" if is_end or (job.grammar is not None and job.grammar.is_complete) else None
        if reason is None and self.count == job.max_new_tokens:
            reason = "length"
        text = self.writer.write([token], reason is not None)
        reason = "stop" if self.writer.is_stopped else reason
        logprobs = (TokenLogprobs(chosen.logprob, chosen.top),) if job.has_logprobs else ()
        return Update((token,), text, logprobs, reason)
