"""A run that generates: the tokens of each row as they come, group by group of a request."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

import tempo_core as tp
from tempo_llm.errors import CheckpointError
from tempo_llm.requests import Completion, Generation, Group, Request, TokenLogprobs
from tempo_llm.sampling import NOT_FINITE
from tempo_llm.types import IntArray

if TYPE_CHECKING:
    from tempo_llm.generate import Generator, Prepared
    from tempo_llm.prefixes import Prefixes

PAUSE = 0.1  # seconds between two pieces of a stream, about


@dataclass(frozen=True)
class Piece:
    """What came of one row since its last piece: the tokens, and the text if there is a tokenizer. The last piece has a `finish_reason`."""

    prompt: int
    sample: int
    token_ids: tuple[int, ...]
    finish_reason: str | None = None
    logprobs: tuple[TokenLogprobs, ...] | None = None
    text: str = ""


class Results:
    """The results of a run so far, by name, each copied when it is first asked for."""

    def __init__(self, run: tp.Run[dict[str, np.ndarray]]):
        self._run, self._copied = run, dict[str, np.ndarray]()

    def __getitem__(self, name: str) -> np.ndarray:
        if name not in self._copied:
            result = self._run.result(name)
            assert result is not None
            self._copied[name] = np.asarray(result)
        return self._copied[name]


class Rows:
    """The rows of a request, as far as its runs have come."""

    def __init__(self, request: Request, short_context: int | None = None):
        """With a `short_context`, a run ends for a text that has more tokens, with its prompt: the text goes on in another run."""
        self.request, self._short_context = request, short_context
        self._rows = request.rows
        self._prompts = [tuple(int(token) for token in request.prompts[prompt]) for prompt, _ in self._rows]
        self._stops = frozenset(request.stop_ids)
        self._most = [request.new_tokens[prompt] for prompt, _ in self._rows]
        self.tokens: list[list[int]] = [[] for _ in self._rows]
        self.logprobs: list[list[TokenLogprobs]] = [[] for _ in self._rows]
        self.reasons: list[str | None] = [None for _ in self._rows]
        self.reached = 0  # positions
        self.rounds = [0 for _ in self._rows]  # of speculation, after the first token
        self.accepted = [0 for _ in self._rows]  # drafted tokens
        self._speculated = [(0, 0) for _ in self._rows]  # rounds and drafted tokens of earlier runs

    @property
    def done(self) -> bool:
        return None not in self.reasons

    def groups(self) -> Iterator[Group]:
        """What runs together, one group after the other; at last the texts that outgrew the short context, which are computed anew."""
        for group in self.request.groups:
            yield replace(group, new_tokens=[self._within(*each) for each in zip(group.prompts, group.new_tokens, strict=True)])
        rest = [row for row, reason in enumerate(self.reasons) if reason is None]
        if rest:
            self._speculated = list(zip(self.rounds, self.accepted, strict=True))
            numbers, samples = zip(*(self._rows[row] for row in rest), strict=True)
            texts = [[*self._prompts[row], *self.tokens[row]] for row in rest]
            new = [self._most[row] - len(self.tokens[row]) for row in rest]
            yield Group(numbers, texts, new, 1, samples, tuple(len(self.tokens[row]) for row in rest))

    def _within(self, prompt: Sequence[int], new: int) -> int:
        """How many new tokens a run may give: the last one that follows from a text of the short context, or all."""
        if self._short_context is None or len(prompt) > self._short_context:
            return new
        return min(new, self._short_context + 1 - len(prompt))

    def of(self, group: Group) -> list[int]:
        """The numbers of the rows of a group: the samples of its prompts."""
        return [prompt * self.request.samples + sample for prompt, sample in group.rows]

    def is_done(self, group: Group) -> bool:
        """Whether each of its texts is complete, or has what this run may give."""
        begun = (group.begun(place) for place in range(len(group.rows)))
        return all(
            self.reasons[row] is not None or len(self.tokens[row]) == sum(each)
            for row, each in zip(self.of(group), begun, strict=True)
        )

    def take(self, results: Results | dict[str, np.ndarray], group: Group) -> list[Piece]:
        """The new tokens of each row of a group that has some. Raises CheckpointError where logits are not finite."""
        text: IntArray = np.asarray(results["text"])
        text = text.reshape(len(text), self.request.speculate + 1, -1)  # [tokens or rounds, places, rows]
        filled = (text[:, 0] != 0).all(1)
        reached = len(text) if filled.all() else int(np.argmin(filled))
        pieces = []
        for place, row in enumerate(self.of(group)):
            if self.reasons[row] is not None:
                continue
            first, (begun, new) = len(self.tokens[row]), group.begun(place)
            ours = text[:reached, :, place]
            places = np.argwhere(ours)  # [tokens, 2]
            for number, at in enumerate(places[first - begun : new].tolist(), first):
                token = int(ours[tuple(at)]) - 1
                if token == NOT_FINITE:
                    position = len(self._prompts[row]) + number - 1
                    raise CheckpointError(
                        f"the model's logits are not finite after token {position} of prompt {self._rows[row][0]}",
                        hint="the weights may be damaged, or too large for float16: try --dtype bfloat16",
                    )
                self.tokens[row].append(token)
                if self.request.logprobs:
                    self.logprobs[row].append(self._logprobs(results, at, place, group.samples))
                if token in self._stops:
                    self.reasons[row] = "stop"
                    break
            if self.reasons[row] is None and len(self.tokens[row]) == self._most[row]:
                self.reasons[row] = "length"
            fresh = self.tokens[row][first:]
            if fresh and self.request.speculate:
                last = len(self.tokens[row]) - 1 - begun
                rounds, (rounds_before, accepted_before) = int(places[last, 0]), self._speculated[row]
                self.rounds[row], self.accepted[row] = rounds_before + rounds, accepted_before + last - rounds
            if fresh:
                prompt, sample = self._rows[row]
                logprobs = tuple(self.logprobs[row][first:]) if self.request.logprobs else None
                pieces.append(Piece(prompt, sample, tuple(fresh), self.reasons[row], logprobs))
        most = reached
        if self.request.speculate:
            most = max(len(self.tokens[row]) - group.begun(place)[0] for place, row in enumerate(self.of(group)))
        self.reached = max(self.reached, group.longest + most)
        return pieces

    def _logprobs(self, results: Results | dict[str, np.ndarray], at: Sequence[int], row: int, samples: int) -> TokenLogprobs:
        """What is reported of a token, the one at a place of a round; without speculation, each round has one place."""
        point = *at[: 1 + (self.request.speculate > 0)], *divmod(row, samples)
        tokens, values = (np.asarray(results[name])[point] for name in ("top_tokens", "top_logprobs"))
        return TokenLogprobs(float(results["logprob"][point]), tuple(zip(tokens.tolist(), values.tolist(), strict=True)))

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


class Decoding:
    """A run that generates: `pieces()` are the tokens as they come, `finish()` runs it to its end.

    Prompts of very different lengths run one group after the other. Texts that outgrow the short context of LongRoPE go on in a group of
    their own: each token follows from a text of the length so far, whatever comes later. `stop(row, length)` ends a row from outside, after
    its first `length` tokens. If all rows of a group have ended, so has its run.
    """

    def __init__(self, generator: Generator, request: Request, prefixes: Prefixes | None = None):
        request.needed(generator.config)  # raises RequestError
        self.rows = Rows(request, generator.config.short_context)
        self._generator, self._request, self._prefixes = generator, request, prefixes
        self._before = generator.costs
        self._groups = self.rows.groups()
        self.capacity, self._prepare_seconds, self._first_token_seconds = 0, 0.0, 0.0
        self._is_streamed = False
        self._begin()
        self._started, self._prepared_before, self._compiled_before = (
            time.perf_counter(),
            self._prepare_seconds,
            self._compile_seconds,
        )

    def _begin(self) -> bool:
        """Begin the run of the next group. False if there is none."""
        group = next(self._groups, None)
        if group is None:
            return False
        begun, compiled = time.perf_counter(), self._compile_seconds
        prepared = self._generator.prepare(self._request, group, self._prefixes)
        self._prepared: Prepared = prepared
        self.capacity = max(self.capacity, prepared.capacity)
        self._run = prepared.program.start(prepared.inputs, by="u", bounds=prepared.bounds)
        self._is_kept = False
        self._prepare_seconds += time.perf_counter() - begun - (self._compile_seconds - compiled)
        return True

    @property
    def _group(self) -> Group:
        return self._prepared.group

    def stop(self, row: int, length: int) -> None:
        self.rows.reasons[row] = "stop"
        del self.rows.tokens[row][length:], self.rows.logprobs[row][length:]

    def pieces(self, count: int | None = None) -> Iterator[Piece]:
        """New tokens as they come: first those after the prompts of a group, then chunk by chunk.

        Each chunk is one launch of `count` tokens. Without `count`, chunks take about a tenth of a second.
        """
        self._is_streamed = True
        while not self.rows.done:
            chunk = 0
            while not self.rows.is_done(self._group):
                begun, costs = time.perf_counter(), self._compile_seconds
                self._run.advance("u", chunk or 1)
                pieces = self._take()
                if pieces and not self._first_token_seconds:
                    self._first_token_seconds = self._run_seconds
                yield from pieces
                if self._run.done:
                    break
                seconds = time.perf_counter() - begun - (self._compile_seconds - costs)
                chunk = count or (_next_chunk(chunk, seconds) if chunk else 1)
            if not self.rows.done and not self._begin():
                break

    def finish(self) -> None:
        """Go on to the end, in one launch of each group: it ends by itself when all of its rows have ended."""
        while not self.rows.done:
            if not self.rows.is_done(self._group):
                self._run.advance("u", self._group.most_new)
                self._take()
            if not self.rows.done and not self._begin():
                break

    def _take(self) -> list[Piece]:
        """The new tokens of the present group. What was computed of its prompts is kept, if anything is."""
        if not self._is_kept:
            self._is_kept = True
            self._prepared.keep(Results(self._run))
        return self.rows.take(Results(self._run), self._group)

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
            rounds=sum(self.rows.rounds),
            accepted=sum(self.rows.accepted),
        )

    @property
    def _run_seconds(self) -> float:
        others = self._compile_seconds - self._compiled_before + self._prepare_seconds - self._prepared_before
        return time.perf_counter() - self._started - others

    @property
    def _compile_seconds(self) -> float:
        return self._generator.costs[1] - self._before[1]


def _next_chunk(chunk: int, seconds: float) -> int:
    """The length of the next chunk, after one that took so long."""
    if seconds < PAUSE / 2:
        return min(2 * chunk, 256)
    return max(chunk // 2, 1) if seconds > 2 * PAUSE else chunk


def joined_costs(costs: Sequence[tuple[int, float, int]]) -> tuple[int, float, int]:
    """The sum of the costs of several programs: XLA programs compiled, the seconds of compiling, XLA programs from the cache on disk."""
    return sum(each[0] for each in costs), sum(each[1] for each in costs), sum(each[2] for each in costs)
