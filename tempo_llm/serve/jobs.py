"""What the server is asked for: one continuation of one prompt, and what comes of it."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from tempo_llm.requests import TokenLogprobs
from tempo_llm.sampling import Sampling
from tempo_llm.serve.choice import RowChoice


class Grammar(Protocol):
    """What a text may go on with."""

    def mask(self) -> np.ndarray:
        """bool [vocabulary]: the tokens that may come next."""

    def take(self, token: int) -> None:
        """Go on by a token."""

    @property
    def is_complete(self) -> bool:
        """Whether nothing may come any more."""


@dataclass(frozen=True)
class Update:
    """What came of a job since the last update. The last one has a `finish_reason`, "stop" or "length", or an `error`."""

    token_ids: tuple[int, ...] = ()
    text: str = ""
    logprobs: tuple[TokenLogprobs, ...] = ()
    finish_reason: str | None = None
    error: Failure | None = None

    @property
    def is_last(self) -> bool:
        return self.finish_reason is not None or self.error is not None


@dataclass(frozen=True)
class Failure:
    """Why a job has no answer, with the HTTP status that says so."""

    status: int
    message: str
    code: str


@dataclass(eq=False)
class Job:
    """One continuation: up to `max_new_tokens` tokens after a prompt, up to the first of `stop_ids` or before a string of `stops`.

    `listener` is called from the engine's thread, with each update. `deadline` is a time of `time.monotonic`.
    """

    prompt: Sequence[int]
    max_new_tokens: int
    listener: Callable[[Update], None]
    sampling: Sampling = field(default_factory=Sampling)
    seed: int = 0
    sample: int = 0
    stop_ids: frozenset[int] = frozenset()
    stops: Sequence[str] = ()
    has_logprobs: bool = False
    grammar: Grammar | None = None
    deadline: float = float("inf")
    arrived: float = field(default_factory=time.monotonic)
    choice: RowChoice | None = None  # the engine's
    is_cancelled: bool = False  # set by any thread
    cached_tokens: int = 0  # of the prompt: shared with earlier prompts, and not computed
    first_token_at: float | None = None
    finished_at: float | None = None

    def cancel(self) -> None:
        """Nobody waits for the answer any more: the engine frees the row before its next step."""
        self.is_cancelled = True
