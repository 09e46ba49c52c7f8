"""The engine: a thread that runs the programs, for all jobs that are there. Rows are taken and freed between two tokens.

Each turn computes at most one block of one prompt, and then a token of each row whose prompt is read: so a long prompt does not hold up the
others for longer than a block takes. The tokens come from the smallest program that has a place for each of these rows.
"""

from __future__ import annotations

import functools
import logging
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Hashable, Mapping

import numpy as np

import tempo_core as tp
from tempo_core.nn.patterns import Pattern
from tempo_llm.generate import Generator
from tempo_llm.prefixes import Prefixes
from tempo_llm.sampling import Features
from tempo_llm.serve.ahead import Ahead
from tempo_llm.serve.cache import RowCache
from tempo_llm.serve.choice import Choice
from tempo_llm.serve.jobs import Failure, Job, Update
from tempo_llm.serve.programs import Programs
from tempo_llm.serve.rows import Row, choice_of
from tempo_llm.serve.tiles import TILE
from tempo_llm.tokenizer import Tokenizer

LOG = logging.getLogger("tempo.serve")
MOST_COMMON = 2  # ways to choose tokens that are compiled before the first job
REFUSED = Failure(503, "the server is shutting down", "shutting_down")


class Engine:
    """Serves up to `rows` jobs at a time, each of up to `max_context` tokens of prompt and text; others wait, up to `queue` of them.

    `compile()` compiles what every job needs; `start()` starts the thread. `submit`, `drain` and `stop` may be called from any thread.
    """

    def __init__(
        self,
        generator: Generator,
        tokenizer: Tokenizer | None,
        rows: int = 8,
        max_context: int = 2048,
        queue: int = 256,
        prefixes: Prefixes | None = None,
        ahead: bool = True,
        fixed_rows: bool = False,
    ):
        """In `prefixes`, what is computed of prompts is kept. With `ahead`, all programs are compiled before a job wants them.

        With `fixed_rows`, one program computes all rows at each token, however few are in use: so what a row gets is the same beside any others,
        bit for bit. Else there are programs of 1, 2, 4, ... rows, which round otherwise.
        """
        self.generator, self.tokenizer, self.rows, self.queue = generator, tokenizer, rows, queue
        self.max_context = min(max_context, generator.config.max_position_embeddings)
        config = generator.compile_config
        traced = Programs.of(generator, rows, self.max_context, fixed_rows)
        self._tokens, self._blocks = (
            {size: each.bound(generator.weights) for size, each in programs.items()}
            for programs in (traced.tokens, traced.blocks)
        )
        self.cache = RowCache(self._tokens[rows])
        self.prefixes = None if self.cache.states else prefixes  # a state stands for a whole prompt, not for its blocks
        self._choice = Choice(rows, generator.config.vocab_size, config)
        programs: dict[Hashable, Callable[[], object]] = {
            size: functools.partial(self._compile, size) for size in self._tokens if size < rows
        }
        programs |= {features: functools.partial(self._choice.compile, features) for features in self._choice.programs}
        self._ahead, self._failed = Ahead(programs, ahead), set[int]()  # of the numbers of rows
        self.steps: Counter[int] = Counter()  # so far, by the number of rows of the program
        self._places, self._most = traced.places, generator.config.max_position_embeddings
        self._tiles = functools.lru_cache(1 << 14)(self._tiles_of)
        self._free = list(range(rows))[::-1]
        self._busy: dict[int, Row] = {}
        self._waiting: deque[Job] = deque()
        self._condition = threading.Condition()
        self._is_draining = self._is_stopped = False
        self._thread = threading.Thread(target=self._run, name="tempo-engine", daemon=True)
        self.tokens = self.prompt_tokens = self.shared_tokens = 0  # so far
        self.failure: BaseException | None = None  # what ended the thread

    # -- from any thread ----------------------------------------------------------------------------------------------

    def compile(self) -> None:
        """Compile the programs of all rows and of blocks, and the most common ways to choose; the others follow in a thread."""
        self._step({})
        for size in self._blocks:
            nobody = Job([0] * (size + 1), 1, lambda update: None)
            nobody.choice = choice_of(nobody, self.generator.config.vocab_size)
            self._read(Row(0, nobody, None, self.generator.config))
        self.prompt_tokens = 0
        self.steps.clear()
        for features in list(self._choice.programs)[:MOST_COMMON]:
            self._ahead.compile(features)
        self._ahead.start()

    def start(self) -> None:
        self._thread.start()

    def submit(self, job: Job) -> Failure | None:
        """Have a job served. Returns why it is not, if the queue is full or the server is about to end.

        Raises RequestError for a bias of tokens that the model does not know.
        """
        job.choice = choice_of(job, self.generator.config.vocab_size)
        with self._condition:
            if self._is_draining or self._is_stopped:
                return REFUSED
            if len(self._waiting) >= self.queue:
                return Failure(429, f"{self.queue} requests wait already; try again later", "queue_full")
            self._waiting.append(job)
            self._condition.notify()
            return None

    def wake(self) -> None:
        """Have the engine look at its jobs now: one of them was cancelled."""
        with self._condition:
            self._condition.notify()

    def drain(self) -> None:
        """Take no further jobs, and end when those that are there are done."""
        with self._condition:
            self._is_draining = True
            self._condition.notify()

    def stop(self) -> None:
        """End after the present turn. Jobs that are not done fail."""
        with self._condition:
            self._is_stopped = self._is_draining = True
            self._condition.notify()

    def join(self, seconds: float | None = None) -> bool:
        """Wait until the thread has ended. False if it has not after so many seconds."""
        if self._thread.ident is not None:
            self._thread.join(seconds)
        return not self._thread.is_alive()

    @property
    def is_draining(self) -> bool:
        return self._is_draining

    @property
    def is_alive(self) -> bool:
        return self._thread.is_alive()

    @property
    def running(self) -> int:
        """How many rows are taken."""
        return len(self._busy)

    @property
    def waiting(self) -> int:
        """How many jobs wait for a row."""
        return len(self._waiting)

    @property
    def programs_waiting(self) -> int:
        """How many programs are still to be compiled."""
        return self._ahead.waiting

    # -- the thread ---------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            while self._wait():
                self._turn()
        except BaseException as error:
            LOG.exception("the engine has failed")
            self.failure = error
        self._ahead.close()
        failure = Failure(500, "the engine has failed; see the server's log", "engine_error") if self.failure else REFUSED
        with self._condition:
            self._is_stopped = True
            jobs = [*self._waiting, *(row.job for row in self._busy.values())]
            self._waiting.clear()
            self._busy.clear()
        for job in jobs:
            _tell(job, Update(error=failure))

    def _wait(self) -> bool:
        """Wait until there is something to do. False at the end."""
        with self._condition:
            while not (self._waiting or self._busy or self._is_draining):
                self._condition.wait()
            return not self._is_stopped and bool(self._waiting or self._busy)

    def _turn(self) -> None:
        self._drop()
        self._admit()
        reading = [row for row in self._busy.values() if row.is_reading]
        if reading:
            row = min(reading, key=lambda row: row.job.arrived)
            self._read(row)
            if not row.is_reading and self.prefixes is not None:
                self._share(row)
        writing = {number: row for number, row in self._busy.items() if not row.is_reading}
        if writing:
            self._write(writing)
        elif not reading:
            time.sleep(0.002)  # all that wait, wait for a program

    def _drop(self) -> None:
        """Free the rows of jobs that nobody waits for, or that took too long."""
        now = time.monotonic()
        late = Failure(408, "the request took longer than the server allows", "timeout")
        for row in list(self._busy.values()):
            if row.job.is_cancelled or now > row.job.deadline:
                self._finish(row, Update(error=late))
        with self._condition:
            gone = [job for job in self._waiting if job.is_cancelled or now > job.deadline]
            for job in gone:
                self._waiting.remove(job)
        for job in gone:
            _tell(job, Update(error=late))

    def _admit(self) -> None:
        """Give free rows to the jobs that came first. One whose program is not compiled yet lets others pass."""
        with self._condition:
            ready = [job for job in self._waiting if job.choice and self._can_choose(job.choice.features)][: len(self._free)]
            for job in ready:
                self._waiting.remove(job)
        for job in ready:
            row = Row(self._free.pop(), job, self.tokenizer, self.generator.config)
            self._busy[row.number] = row
            self.cache.reset(row.number)
            found = None if self.prefixes is None else self.prefixes.find(row.names, TILE)
            if found is not None:
                for start, block in row.share(*found):
                    self.cache.write_block(block, row.number, start)
                self.shared_tokens += row.filled

    def _compile(self, size: int) -> None:
        """Compile the program of a token of so many rows. If that fails, the one of all rows does its work."""
        try:
            self._tokens[size].program.compile()
        except Exception:
            LOG.exception("the program of %d rows could not be compiled; a larger one takes its place", size)
            self._failed.add(size)

    def _can_choose(self, features: Features) -> bool:
        """Whether the program of a way to choose tokens is compiled. If it is not, it is the next one."""
        is_new = not self._ahead.is_asked(features)
        is_ready = self._ahead.is_ready(features)
        if is_new and not is_ready:
            LOG.info("a request waits until the program of its way to choose tokens is compiled: %s", features)
        return is_ready

    def _read(self, row: Row) -> None:
        """Compute a block of a prompt."""
        start, stop, size = row.next_block()
        traced = self._blocks[size]
        token = np.zeros(size, np.int32)
        token[: stop - start] = row.prompt[start:stop]
        numbers = {"start": start, "stop": stop, "row": row.number, "length": len(row.prompt)}
        inputs: dict[str, np.ndarray] = {
            "token": token,
            **{name: np.asarray(number, np.int32) for name, number in numbers.items()},
            **self._tiles_for(traced.patterns, range(start, stop), start),
            **self.cache.inputs_of(row.number),
        }
        outputs = traced.program.run({name: inputs[name] for name in traced.program.inputs})
        self.cache.write_block(outputs, row.number, start)
        self.prompt_tokens += 0 if row.count else stop - start  # a text that is read anew is no prompt
        row.read(stop, outputs)

    def _share(self, row: Row) -> None:
        prefix = row.prefix()
        if prefix is not None and self.prefixes is not None:
            self.prefixes.keep(prefix)
        row.blocks = []

    def _write(self, rows: Mapping[int, Row]) -> None:
        """Compute a token of each of some rows."""
        logits = self._step(rows)
        choices = {}
        for number, row in rows.items():
            grammar = row.job.grammar
            try:
                choices[number] = row.choice, None if grammar is None else grammar.mask()
            except ValueError as error:
                self._finish(row, Update(error=Failure(500, str(error), "grammar_error")))
        chosen = self._choice.choose(logits, choices)
        for number, token in chosen.items():
            row, update = rows[number], rows[number].take(token)
            self.tokens += 1
            if update.is_last:
                self._finish(row, update)
                continue
            if row.outgrows():
                self.cache.reset(number)
            _tell(row.job, update)

    def _step(self, rows: Mapping[int, Row]) -> np.ndarray:
        """The logits [rows of the engine, vocabulary] after the last token of each of some rows. The other rows write nothing."""
        size = self._size_for(len(rows))
        numbers, token, length, active = np.zeros((4, size), np.int32)
        position = np.full(size, self._places, np.int32)
        for place, number in enumerate(range(self.rows) if size == self.rows else sorted(rows)):
            numbers[place] = number
            if number in rows:
                row = rows[number]
                token[place], position[place], active[place], length[place] = row.token, row.position, 1, len(row.prompt)
        traced = self._tokens[size]
        inputs = {
            "row": numbers,
            "token": token,
            "position": position,
            "length": length,
            "active": active,
            **self._tiles_for(traced.patterns, [row.position for row in rows.values()]),
            **self.cache.inputs_of_rows(numbers),
        }
        outputs = traced.program.run({name: inputs[name] for name in traced.program.inputs})
        is_active = active > 0
        self.cache.write_tokens(outputs, numbers, position, is_active)
        self.steps[size] += 1
        logits: np.ndarray = outputs["logits"]
        if size == self.rows:
            return logits
        spread = np.zeros((self.rows, logits.shape[-1]), logits.dtype)
        spread[numbers[is_active]] = logits[is_active]
        return spread

    def _size_for(self, count: int) -> int:
        """The rows of the smallest program that is compiled and has a place for so many rows. A smaller one that is not is wanted."""
        for size in self._tokens:
            if self.rows > size >= count > 0 and self._ahead.is_ready(size) and size not in self._failed:
                return size
        return self.rows

    def _finish(self, row: Row, update: Update) -> None:
        """Free a row. What it leaves in the cache, the next job does not read."""
        del self._busy[row.number]
        self._free.append(row.number)
        row.job.finished_at = time.monotonic()
        _tell(row.job, update)

    # -- tiles --------------------------------------------------------------------------------------------------------

    def _tiles_for(
        self, patterns: tuple[Pattern, ...], positions: range | list[int], before: int | None = None
    ) -> dict[str, np.ndarray]:
        """The tiles of the cache that queries at some positions need: of all positions `before` one, or before themselves."""
        inputs: dict[str, np.ndarray] = {}
        for number in range(len(patterns)):
            needed = np.zeros(self._places // TILE, bool)
            for position in positions:
                needed |= self._tiles(number, position, position if before is None else before)
            (tiles,) = np.nonzero(needed)
            inputs[f"tiles.{number}"] = (
                np.resize(tiles, len(needed)).astype(np.int32) if len(tiles) else np.zeros(len(needed), np.int32)
            )
            inputs[f"count.{number}"] = np.asarray(len(tiles), np.int32)
        return inputs

    def _tiles_of(self, number: int, position: int, before: int) -> np.ndarray:
        """bool [tiles]: those that a pattern needs at a position."""
        needed = np.zeros(self._places // TILE, bool)
        for part in self._tokens[self.rows].patterns[number].slices(position, self._most):
            start, stop = (0 if end is None else int(tp.Expr.of(end)) for end in (part.start, part.stop))
            needed[np.arange(start, min(stop, before), 1 if part.step is None else int(part.step)) // TILE] = True
        return needed


def _tell(job: Job, update: Update) -> None:
    """A listener that fails is not the engine's end."""
    try:
        job.listener(update)
    except Exception:
        LOG.exception("the listener of a request has failed")
        job.cancel()
