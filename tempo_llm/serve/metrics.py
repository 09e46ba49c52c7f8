"""The numbers of a server in the form of Prometheus."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from tempo_llm.serve.engine import Engine
from tempo_llm.serve.jobs import Job

_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300)


class _OfEngine(Collector):
    """What the engine counts by itself, read when it is asked for."""

    def __init__(self, engine: Engine):
        self._engine = engine

    def collect(self) -> Iterator[Metric]:
        engine = self._engine
        gauges = {
            "tempo_rows": ("Rows of the engine.", engine.rows),
            "tempo_rows_busy": ("Rows that serve a request.", engine.running),
            "tempo_requests_waiting": ("Continuations that wait for a row.", engine.waiting),
            "tempo_programs_waiting": ("Programs that are still to be compiled.", engine.programs_waiting),
            "tempo_cache_bytes": ("Bytes of keys, values and states of all rows.", engine.cache.nbytes),
            "tempo_shared_prefix_bytes": (
                "Bytes of what is kept of prompts.",
                0 if engine.prefixes is None else engine.prefixes.nbytes,
            ),
        }
        for name, (words, value) in gauges.items():
            yield GaugeMetricFamily(name, words, value)
        counters = {
            "tempo_generated_tokens": ("Tokens that were generated.", engine.tokens),
            "tempo_prompt_tokens_computed": ("Tokens of prompts that were computed.", engine.prompt_tokens),
            "tempo_prompt_tokens_shared": ("Tokens of prompts that an earlier prompt began with.", engine.shared_tokens),
        }
        for name, (words, value) in counters.items():
            yield CounterMetricFamily(name, words, value)


class Metrics:
    """The numbers of one server."""

    def __init__(self, engine: Engine):
        self._registry = CollectorRegistry()
        self._registry.register(_OfEngine(engine))
        self._requests = Counter("tempo_requests", "Requests by path and status.", ["path", "status"], registry=self._registry)
        self._cancelled = Counter("tempo_requests_cancelled", "Requests whose client has gone.", registry=self._registry)
        self._first = Histogram(
            "tempo_time_to_first_token_seconds", "From a request to its first token.", buckets=_SECONDS, registry=self._registry
        )
        self._whole = Histogram(
            "tempo_request_seconds", "From a request to its last token.", buckets=_SECONDS, registry=self._registry
        )

    def answered(self, path: str, status: int) -> None:
        self._requests.labels(path, str(status)).inc()

    def gone(self) -> None:
        self._cancelled.inc()

    def finished(self, job: Job) -> None:
        if job.first_token_at is not None:
            self._first.observe(job.first_token_at - job.arrived)
        if job.finished_at is not None:
            self._whole.observe(job.finished_at - job.arrived)

    def text(self) -> bytes:
        return generate_latest(self._registry)
