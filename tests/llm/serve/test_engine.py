"""The engine in this process: every family and pattern gives what the generator gives, beside others and alone."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

from benchmarks.hlo import parse
from tempo_llm.attention import Attention
from tempo_llm.errors import PatternError
from tempo_llm.generate import Generator
from tempo_llm.prefixes import Prefixes
from tempo_llm.sampling import Sampling
from tempo_llm.serve.engine import Engine
from tempo_llm.serve.jobs import Job, Update
from tempo_llm.serve.programs import sizes_of
from tempo_llm.serve.rows import Row, choice_of
from tests.cases import fast
from tests.llm import models
from tests.llm.model.test_llm_families import ROWS


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
def running(
    generator: Generator, rows: int = 3, queue: int = 100, prefixes: Prefixes | None = None, fixed_rows: bool = False
) -> Iterator[Engine]:
    engine = Engine(generator, None, rows, 256, queue, prefixes, ahead=False, fixed_rows=fixed_rows)
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


def check(generator: Generator, lengths: tuple[int, ...] = (150, 1, 17, 64, 65, 90), fixed_rows: bool = False) -> None:
    """Greedy texts of prompts of several lengths, more than there are rows, are those of the generator; with fixed rows, those alone too."""
    source = np.random.default_rng(1)
    asked = [source.integers(3, 96, length).tolist() for length in lengths]
    with running(generator, fixed_rows=fixed_rows) as engine:
        heard = [Heard(engine, prompt, 12) for prompt in asked]
        texts = [each.wait() for each in heard]
        alone = [Heard(engine, prompt, 12).wait() for prompt in asked[:2]]
    assert texts[:2] == alone or not fixed_rows
    for prompt, text in zip(asked, texts, strict=True):
        logits = logits_of(generator, [*prompt, *text])[len(prompt) - 1 : -1]
        chosen = logits[np.arange(len(text)), text]
        assert (chosen >= logits.max(-1) - 1e-3 * np.abs(logits).max()).all(), prompt


def logits_of(generator: Generator, tokens: list[int]) -> np.ndarray:
    """Those after each token, of the text up to it: with LongRoPE, a short text has other frequencies."""
    whole, short = generator.logits(tokens), min(generator.config.short_context or 0, len(tokens))
    return np.concatenate([generator.logits(tokens[:short]), whole[short:]]) if short else whole


PATTERNS = ["full", "window=20", "window=70+sink=4", "block=32", "dilated=3", "dilated=2+window=30", "0:full,1:window=9"]


@pytest.mark.parametrize(
    "pattern", [PATTERNS[2], *(pytest.param(each, marks=pytest.mark.slow) for each in PATTERNS if each != PATTERNS[2])]
)
@pytest.mark.parametrize("fixed_rows", fast([False, True], True))
def test_patterns(pattern: str, fixed_rows: bool) -> None:
    check(generator_of(pattern), fixed_rows=fixed_rows)


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
    with running(generator, fixed_rows=True) as engine:
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
    with running(generator_of(), 2, 4, Prefixes(2**20), fixed_rows=True) as engine:
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


@pytest.mark.slow
def test_settings_are_of_rows() -> None:
    """Rows that draw, with other seeds, beside rows that take the most likely token."""
    generator = generator_of()
    settings = [(Sampling(), 0), (Sampling(1.0), 1), (Sampling(1.0), 2), (Sampling(0.5), 1)]
    with running(generator, 4, fixed_rows=True) as engine:
        together = [each.wait() for each in [Heard(engine, [5, 6, 7], 12, sampling=s, seed=seed) for s, seed in settings]]
        alone = [Heard(engine, [5, 6, 7], 12, sampling=s, seed=seed).wait() for s, seed in settings]
    assert together == alone and len({*map(tuple, together)}) == 4


# -- programs of 1, 2, 4, ... rows ----------------------------------------------------------------------------------------


def not_running(generator: Generator, rows: int, fixed_rows: bool = False) -> Engine:
    """An engine without its thread, whose programs of tokens are compiled."""
    engine = Engine(generator, None, rows, 128, ahead=False, fixed_rows=fixed_rows)
    engine.compile()
    for size in list(engine._tokens):
        if size < rows:
            engine._ahead.compile(size)
    return engine


@pytest.mark.parametrize("rows, sizes", [(1, (1,)), (2, (1, 2)), (6, (1, 2, 4, 6)), (8, (1, 2, 4, 8))])
def test_the_sizes_of_programs(rows: int, sizes: tuple[int, ...]) -> None:
    assert sizes_of(rows) == sizes


@pytest.mark.parametrize("fixed_rows", fast([False, True], True))
def test_the_smallest_program_that_has_a_place_for_all_rows_runs(fixed_rows: bool) -> None:
    engine = not_running(generator_of(), 5, fixed_rows)
    for clients, size in enumerate((1, 2, 4, 4, 5), 1):
        engine.steps.clear()
        jobs = [Heard(engine, [5 + k], 3) for k in range(clients)]
        for _ in range(3):
            engine._turn()
        assert [len(each.wait()) for each in jobs] == [3] * clients
        assert engine.steps == {5 if fixed_rows else size: 3}
    engine._ahead.close()


@pytest.mark.slow
def test_rows_with_gaps_between_them_share_a_small_program() -> None:
    """Rows 0 and 3 of four write on, and get what the generator gives."""
    generator = generator_of()
    engine = not_running(generator, 4)
    asked = [[5, 6], [7], [9], [11, 12, 13]]
    jobs = [Heard(engine, prompt, count) for prompt, count in zip(asked, (12, 4, 4, 12), strict=True)]
    while engine.waiting or engine.running:
        engine._turn()
    assert engine.steps[2] >= 6 and engine.steps[4] >= 2
    for prompt, job in zip(asked, jobs, strict=True):
        text = job.wait()
        logits = generator.logits([*prompt, *text])[len(prompt) - 1 : -1]
        assert (logits[np.arange(len(text)), text] >= logits.max(-1) - 1e-3 * np.abs(logits).max()).all(), prompt
    engine._ahead.close()


def test_a_program_that_is_not_compiled_yet_is_wanted_and_a_larger_one_runs() -> None:
    engine = Engine(generator_of(), None, 4, 128, ahead=False)
    engine.compile()
    asked: list[int] = []
    engine._ahead.is_ready = lambda key: asked.append(key) or key == 2  # type: ignore[method-assign, assignment, func-returns-value]
    assert [engine._size_for(count) for count in (0, 1, 2, 3, 4)] == [4, 2, 2, 4, 4]
    assert asked == [1, 2, 2, 4][:3]
    engine._ahead.close()


def test_programs_that_wait_are_counted() -> None:
    engine = Engine(generator_of(), None, 4, 128)
    assert engine.programs_waiting == 2 + len(engine._choice.programs)
    for key in list(engine._ahead._programs):
        engine._ahead.compile(key)
    assert engine.programs_waiting == 0


def test_a_program_that_cannot_be_compiled_is_replaced_by_a_larger_one(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = Engine(generator_of(), None, 2, 128, ahead=False)

    def fail() -> None:
        raise RuntimeError("no memory")

    monkeypatch.setattr(type(engine._tokens[1].program), "compile", lambda self: fail())
    engine._ahead.compile(1)
    assert engine._size_for(1) == 2


@pytest.mark.parametrize("fixed_rows", [False, True])
def test_logits_beside_other_rows(fixed_rows: bool) -> None:
    """Bit for bit those alone, with fixed rows; else up to rounding."""
    generator = generator_of()
    engine = not_running(generator, 4, fixed_rows)
    rows = {}
    for number in (0, 2, 3):
        job = Job([5 + number], 4, lambda update: None)
        job.choice = choice_of(job, 96)
        rows[number] = Row(number, job, None, generator.config)
    together, alone = engine._step(rows)[2], engine._step({2: rows[2]})[2]
    assert engine.steps == ({4: 2} if fixed_rows else {4: 1, 1: 1})
    np.testing.assert_allclose(together, alone, rtol=1e-4, atol=1e-5)
    assert not fixed_rows or (together == alone).all()
    engine._ahead.close()


@pytest.mark.skipif(jax.default_backend() != "cpu", reason="loops stay loops elsewhere")
def test_no_program_copies_the_weights_of_a_layer() -> None:
    """Neither in a loop nor elsewhere: no matrix of a layer is copied, sliced, turned or gathered."""
    generator = generator_of(hidden_size=256, intermediate_size=1024, num_hidden_layers=3)
    engine = Engine(generator, None, 3, 64, ahead=False)
    matrix = 256 * 256 * 4 // 2  # keys and values, the smallest ones
    for traced in (*engine._tokens.values(), *engine._blocks.values()):
        staged = traced.program._staged
        assert staged is not None and len(staged.unrolled.loops) == 1
        traced.program.compile()
        (segment,) = staged.segments
        module = parse(segment.compiled.as_text())  # type: ignore[union-attr]
        all_instructions = [i for computation in module.computations.values() for i in computation.instructions]
        moved = [i for i in all_instructions if i.opcode in ("copy", "dynamic-slice", "slice", "transpose", "gather")]
        assert moved and max(i.bytes for i in moved) < matrix
        assert not any(
            shape.sizes[0] == 3 for i in all_instructions for shape in i.shapes if len(shape.sizes) == 3 and i.bytes >= 3 * matrix
        )
