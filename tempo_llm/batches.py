"""Prompts that wait in a queue, are answered in batches, and come out in their order as they end."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeAlias

from tempo_llm.errors import LlmError, RequestError
from tempo_llm.lines import Line, Lines

if TYPE_CHECKING:
    from tempo_llm.generate import Completion, Generation, Request
    from tempo_llm.model import Model
    from tempo_llm.sampling import Features, Sampling

MOST_ROWS = 32  # completions of a batch: what a batch has finished is out, whatever happens to the next one
WAITING = 4 * MOST_ROWS  # prompts that wait at most


@dataclass(frozen=True)
class Task:
    """A prompt that waits, and its settings. `number` is its place among the prompts that can be served."""

    number: int
    line: Line
    ids: Sequence[int]
    max_new_tokens: int
    sampling: Sampling
    seed: int
    stops: Sequence[str]


Answers: TypeAlias = Iterator[tuple[list[tuple[Task, "Completion"]], "Generation | None"]]
"""What comes out, as it comes; at the end of a batch, its cost too."""


def read_waiting(lines: Lines, count: int, can_wait: bool, refuse: Callable[[LlmError], None]) -> list[Line]:
    """The prompts that wait now, at most `count`; if `can_wait`, at least one until the end. What is no prompt is refused."""
    waiting: list[Line] = []
    while len(waiting) < count and (line := lines.take(can_wait and not waiting)) is not None:
        if isinstance(line, RequestError):
            refuse(line)
        else:
            waiting.append(line)
    return waiting


@dataclass(frozen=True)
class Service:
    """A model, and what the prompts of a command share: a request without prompts, and how texts become tokens. `say` prints notes.

    `max_new_tokens` and `seed` are those of prompts that have none of their own.
    """

    model: Model
    shared: Request
    max_new_tokens: int
    seed: int
    stops: Sequence[str]
    is_raw: bool
    system_prompt: str | None
    special: bool
    say: Callable[[str], None]

    def encoded(self, lines: Sequence[Line]) -> list[list[int]]:
        texts = [line.prompt for line in lines]
        return self.model.tokenizer.encode_all(texts, raw=self.is_raw, system_prompt=self.system_prompt, special=self.special)

    def whole_request(self, lines: Sequence[Line]) -> Request:
        """The request for all prompts at once."""
        ids = self.encoded(lines)
        counts = [self._fitting(*each) for each in zip(lines, ids, strict=True)]
        return replace(self.shared, prompts=ids, max_new_tokens=counts, seed=self.seed)

    def answers(self, lines: list[Line], feed: Lines, refuse: Callable[[LlmError], None]) -> Answers:
        """The completions of lines, and of those that follow them. A line that cannot be served is refused, and the rest goes on."""
        self.shared.check_settings(self.model.config)
        batches, waiting, count = _Batches(self), list[Task](), 0
        while lines or waiting:
            tasks = list(self._tasks(lines, count, refuse))
            waiting, count = waiting + tasks, count + len(tasks)
            if waiting:
                self.model.generator.read()
                yield from batches.answer(waiting)
            lines = read_waiting(feed, WAITING - len(waiting), not waiting, refuse)

    def _tasks(self, lines: Sequence[Line], first: int, refuse: Callable[[LlmError], None]) -> Iterator[Task]:
        shared, encoded = self.shared, None
        with suppress(LlmError):  # of one of them
            encoded = self.encoded(lines)
        for place, line in enumerate(lines):
            try:
                ids = self.encoded([line])[0] if encoded is None else encoded[place]
                sampling = shared.sampling if line.temperature is None else replace(shared.sampling, temperature=line.temperature)
                count, seed = self._fitting(line, ids), self.seed if line.seed is None else line.seed
                request = replace(shared, prompts=[ids], max_new_tokens=count, sampling=sampling, seed=seed)
                request.needed(self.model.config)
            except LlmError as error:
                refuse(type(error)(f"{line.where}: {error.message}" if line.where else error.message, hint=error.hint))
                continue
            stops = self.stops if line.stop is None else line.stop
            yield Task(first, line, ids, count, sampling, seed, stops)
            first += 1

    def _fitting(self, line: Line, ids: Sequence[int]) -> int:
        """How many new tokens a prompt gets: those that are asked for, or fewer where the context ends."""
        limit = self.shared.max_context
        limit = self.model.config.max_position_embeddings if limit is None else limit
        count = line.max_new_tokens if line.max_new_tokens is not None else self.max_new_tokens
        room = limit - len(ids)
        if not 1 <= room < count:
            return count
        where = f"{line.where}: " if line.where else ""
        self.say(f"{where}{room} new tokens at most, not {count}: the prompt has {len(ids)} of the {limit} that fit")
        return room


class _Batches:
    """A batch holds the oldest prompt that waits, and those that are sampled like it. Completions come out in the order of the prompts."""

    def __init__(self, service: Service):
        self._service, self._samples = service, service.shared.samples
        self._sizes: dict[Features, list[int]] = {}  # the numbers of prompts of earlier batches
        self._finished: dict[tuple[int, int], tuple[Task, Completion]] = {}  # by the numbers of prompt and sample
        self._next = 0, 0  # what comes out next

    def answer(self, waiting: list[Task]) -> Answers:
        """Answer a batch, whose prompts no longer wait then. If it is interrupted, all that is finished comes before the exception."""
        fitting = [task for task in waiting if task.sampling == waiting[0].sampling]
        batch = fitting[: max(MOST_ROWS // self._samples, 1)]
        numbers = {task.number for task in batch}
        waiting[:] = [task for task in waiting if task.number not in numbers]
        stream = self._service.model.start(self._request(batch), [task.stops for task in self._filled(batch)])
        finished: set[tuple[int, int]] = set()
        interruption: KeyboardInterrupt | None = None
        try:
            for piece in stream:
                if piece.finish_reason is not None:
                    finished.add((piece.prompt, piece.sample))
                    yield self._out(batch, stream.generation, finished), None
        except KeyboardInterrupt as error:
            interruption = error
        out = self._out(batch, stream.generation, finished)
        if interruption is not None:
            yield [*out, *(self._finished[place] for place in sorted(self._finished))], None
            raise interruption
        own = tuple(each for each in stream.generation.completions if each.prompt < len(batch))
        yield out, replace(stream.generation, completions=own)

    def _request(self, batch: Sequence[Task]) -> Request:
        rows = self._filled(batch)
        counts = [task.max_new_tokens if place < len(batch) else 1 for place, task in enumerate(rows)]
        request = replace(self._service.shared, prompts=[task.ids for task in rows], sampling=batch[0].sampling)
        return replace(request, max_new_tokens=counts, seed=[task.seed for task in rows])

    def _filled(self, batch: Sequence[Task]) -> Sequence[Task]:
        """A batch, and so many copies of its last prompt that the program of an earlier batch serves it: another would be compiled."""
        sizes = self._sizes.setdefault(batch[0].sampling.features(), [])
        size = min((size for size in sizes if size >= len(batch)), default=len(batch))
        sizes.append(size)
        return [*batch, *[batch[-1]] * (size - len(batch))]

    def _out(
        self, batch: Sequence[Task], generation: Generation, finished: set[tuple[int, int]]
    ) -> list[tuple[Task, Completion]]:
        """What can come out now: the finished completions before which none is missing."""
        for each in generation.completions:
            if (each.prompt, each.sample) in finished and each.prompt < len(batch):
                task = batch[each.prompt]
                if (task.number, each.sample) >= self._next:
                    self._finished[task.number, each.sample] = task, each
        out = []
        while self._next in self._finished:
            out.append(self._finished.pop(self._next))
            number, sample = self._next
            self._next = (number, sample + 1) if sample + 1 < self._samples else (number + 1, 0)
        return out
