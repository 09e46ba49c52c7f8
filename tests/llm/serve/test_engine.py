"""The engine in this process: every family and pattern gives what the generator gives, beside others and alone."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tempo_llm.attention import Attention
from tempo_llm.errors import PatternError
from tempo_llm.generate import Generator
from tempo_llm.prefixes import Prefixes
from tempo_llm.sampling import Sampling
from tempo_llm.serve.engine import Engine
from tempo_llm.serve.jobs import Job, Update
from tests.llm import models
from tests.llm.test_llm_families import ROWS


class Heard:
    """What an engine said of a job."""

    def __init__(self, engine: Engine, prompt: list[int], tokens: int, **settings: Any):
        self.updates: list[Update] = []
        self._is_over, self.engine = threading.Event(), engine
        self.job = Job(prompt, tokens, self._hear, **settings)
        self.failure = engine.submit(self.job)

    def _hear(self, update: Update) -> None:
        self.updates.append(update)
        if update.is_last:
            self._is_over.set()

    def wait(self) -> list[int]:
        assert self.failure is None and self._is_over.wait(120)
        return [token for update in self.updates for token in update.token_ids]


@contextmanager
def running(generator: Generator, rows: int = 3, queue: int = 100, prefixes: Prefixes | None = None) -> Iterator[Engine]:
    engine = Engine(generator, None, rows, 256, queue, prefixes, ahead=False)
    engine.compile()
    engine.start()
    try:
        yield engine
    finally:
        engine.stop()
        assert engine.join(60)


def generator_of(attention: str = "", dtype: str | None = None, **settings: Any) -> Generator:
    import tempfile

    values = {**models.VALUES, **settings}
    with tempfile.TemporaryDirectory() as folder:
        directory = models.write_model(Path(folder) / "model", values, models.random_tensors(values))
        return Generator.from_directory(directory, Attention.parse(attention) if attention else None, dtype)


def prompts(count: int, seed: int = 0, longest: int = 180) -> list[list[int]]:
    source = np.random.default_rng(seed)
    return [source.integers(3, 96, source.integers(1, longest)).tolist() for _ in range(count)]


def check(generator: Generator, lengths: tuple[int, ...] = (150, 1, 17, 64, 65, 90)) -> None:
    """Greedy texts of prompts of several lengths, more than there are rows, are those of the generator."""
    source = np.random.default_rng(1)
    asked = [source.integers(3, 96, length).tolist() for length in lengths]
    with running(generator) as engine:
        heard = [Heard(engine, prompt, 12) for prompt in asked]
        texts = [each.wait() for each in heard]
        alone = [Heard(engine, prompt, 12).wait() for prompt in asked[:2]]
    assert texts[:2] == alone
    for prompt, text in zip(asked, texts, strict=True):
        logits = generator.logits([*prompt, *text])[len(prompt) - 1 : -1]
        chosen = logits[np.arange(len(text)), text]
        assert (chosen >= logits.max(-1) - 1e-3 * np.abs(logits).max()).all(), prompt


PATTERNS = ["full", "window=20", "window=70+sink=4", "block=32", "dilated=3", "dilated=2+window=30", "0:full,1:window=9"]


@pytest.mark.parametrize(
    "pattern", [PATTERNS[2], *(pytest.param(each, marks=pytest.mark.slow) for each in PATTERNS if each != PATTERNS[2])]
)
def test_patterns(pattern: str) -> None:
    check(generator_of(pattern))


FAMILIES = sorted(ROWS)


@pytest.mark.slow
@pytest.mark.parametrize("name", FAMILIES)
def test_families(name: str) -> None:
    check(generator_of(model_type=name, **ROWS[name]))


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["bfloat16", "int8"])
def test_dtypes(dtype: str) -> None:
    generator = generator_of(dtype=dtype)
    asked = prompts(6)
    with running(generator) as engine:
        texts = [each.wait() for each in [Heard(engine, prompt, 8) for prompt in asked]]
        assert texts == [Heard(engine, prompt, 8).wait() for prompt in asked]


def test_a_pattern_that_looks_ahead_is_refused() -> None:
    generator = generator_of()
    import tempo_core as tp
    from tempo_llm.attention import Layers

    ahead = Generator(generator.config, dict(generator.weights), Attention((Layers(0, None, tp.nn.full),)))
    with pytest.raises(PatternError, match="positions after the present one"):
        Engine(ahead, None, 2, 64)


@pytest.fixture(scope="module")
def engine() -> Iterator[Engine]:
    with running(generator_of(), 2, 4, Prefixes(2**20)) as engine:
        yield engine


def test_what_is_shared_changes_nothing(engine: Engine) -> None:
    first = prompts(1, 5, 181)[0] + [7] * 70
    before = engine.shared_tokens
    texts = [Heard(engine, first[:130] + rest, 10).wait() for rest in ([5], [5], [9])]
    assert engine.shared_tokens - before == 2 * 128 and texts[0] == texts[1]
    engine_alone = Heard(engine, [*first[:130], 9], 10)
    assert texts[2] == engine_alone.wait() and engine_alone.job.cached_tokens == 128


def test_a_cancelled_job_frees_its_row(engine: Engine) -> None:
    jobs = [Heard(engine, [5, 6], 250) for _ in range(2)]
    for each in jobs:
        each.job.cancel()
    engine.wake()
    assert len(Heard(engine, [5, 6, 7], 3).wait()) == 3
    assert engine.running == 0


def test_a_late_job_fails(engine: Engine) -> None:
    late = Heard(engine, [5, 6], 5, deadline=0.0)
    late.wait()
    assert late.updates[-1].error is not None and late.updates[-1].error.status == 408


def test_a_full_queue_refuses(engine: Engine) -> None:
    jobs = [Heard(engine, [5, 6], 60) for _ in range(12)]
    failures = [each.failure for each in jobs if each.failure is not None]
    assert failures and {failure.status for failure in failures} == {429}
    for each in jobs:
        if each.failure is None:
            assert len(each.wait()) == 60


def test_a_listener_that_fails_is_not_the_end(engine: Engine) -> None:
    def fail(update: Update) -> None:
        raise RuntimeError("a listener")

    job = Job([5, 6], 20, fail)
    assert engine.submit(job) is None
    assert len(Heard(engine, [5, 6], 3).wait()) == 3


def test_drained_engines_finish_and_refuse() -> None:
    with running(generator_of(), 1) as engine:
        jobs = [Heard(engine, [5, 6], 30) for _ in range(3)]
        engine.drain()
        refused = Heard(engine, [5], 1).failure
        assert refused is not None and refused.status == 503
        assert [len(each.wait()) for each in jobs] == [30] * 3 and engine.join(30)


def test_settings_are_of_rows() -> None:
    """Rows that draw, with other seeds, beside rows that take the most likely token."""
    generator = generator_of()
    settings = [(Sampling(), 0), (Sampling(1.0), 1), (Sampling(1.0), 2), (Sampling(0.5), 1)]
    with running(generator, 4) as engine:
        together = [each.wait() for each in [Heard(engine, [5, 6, 7], 12, sampling=s, seed=seed) for s, seed in settings]]
        alone = [Heard(engine, [5, 6, 7], 12, sampling=s, seed=seed).wait() for s, seed in settings]
    assert together == alone and len({*map(tuple, together)}) == 4
