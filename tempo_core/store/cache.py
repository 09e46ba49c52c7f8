"""Compiled programs on disk: what passes and schedules decided, and XLA programs. A second start takes them from there.

Three kinds of entries follow one from the other. The graph after the passes lies under the fingerprint of the source graph, a schedule under
that of the graph and the bounds, and the links to executables under that of the schedule (`store/executables.py`). A fingerprint of a
graph or schedule is that of the *bytes* that were read or written: if two processes decide differently at the same time, their
schedules and executables never mix.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tempo_core.config import Config
from tempo_core.ir.graph import Graph
from tempo_core.schedule import Scheduled
from tempo_core.store import environment, pickled
from tempo_core.store.entries import LOG, Entries
from tempo_core.store.executables import Executables
from tempo_core.store.fingerprint import Functions, Lines, fingerprint
from tempo_core.symbolic.expr import Bounds, Symbol

VARIABLE = "TEMPO_CACHE"  # the directory of the cache; "off" for none
OFF = ("off", "0", "none", "")


def directory(config: Config) -> Path | None:
    """The directory of a config's cache, which need not exist; None if it has none.

    `cache=True` is $TEMPO_CACHE, else the `tempo` directory among the user's caches; TEMPO_CACHE=off switches it off.
    """
    if not config.cache:
        return None
    if config.cache is not True:
        return Path(config.cache).expanduser()
    chosen = os.environ.get(VARIABLE)
    if chosen is not None:
        return None if chosen.lower() in OFF else Path(chosen).expanduser()
    caches = os.environ.get("XDG_CACHE_HOME", "")
    return (Path(caches) if os.path.isabs(caches) else Path.home() / ".cache") / "tempo"


@dataclass(frozen=True)
class Decision:
    """What the compiler decided. `digest` is "" if it cannot be kept; `is_loaded` says whether it came from disk."""

    value: Any
    digest: str = ""
    is_loaded: bool = False


@dataclass(frozen=True)
class Kept:
    """A scheduled program, what of it was `loaded` from disk ("passes", "schedule"), and its XLA programs on disk.

    `loaded` and `executables` are None if there is no cache.
    """

    scheduled: Scheduled
    loaded: tuple[str, ...] | None = None
    executables: Executables | None = None


class Cache:
    """The entries for one source graph."""

    def __init__(self, entries: Entries, source: Graph, config: Config, least: Sequence[tuple[Symbol, int]]):
        self.entries, self.functions, self.lines = entries, Functions(source), Lines(source)
        # Another seed, limit of memory or place of the cache needs no other program.
        options = replace(config, seed=0, memory_limit=None, cache=None, cache_limit=0, target=config.on)
        content = (source.order, tuple(source), source.derived, source.branch_lines, options, tuple(least))
        self._key = fingerprint((content, environment.of_decisions()), self.functions, self.lines)

    def graph(self, bounds: Bounds, make: Callable[[], Graph]) -> Decision:
        """The graph after the passes; `make` runs them. Passes that decided by other bounds have an entry of their own."""
        decision = self._decision(f"graph-{self._key}", make)
        if decision.value.is_for(bounds):
            return decision
        return self._decision(f"graph-{fingerprint((self._key, _numbers(bounds)))}", make)

    def schedule(self, graph: Decision, bounds: Bounds, least: Bounds, make: Callable[[], Scheduled]) -> Kept:
        """The schedule of a graph for bounds, `least` for those that runs choose; `make` computes it."""
        if not graph.digest:
            return Kept(make(), (), Executables(self.entries, ""))
        scheduled: list[Scheduled] = []

        def decided() -> Any:
            scheduled.append(make())
            return scheduled[0].root, scheduled[0].storage

        key = fingerprint((self._key, graph.digest, _numbers(bounds), _numbers(least)))
        decision = self._decision(f"schedule-{key}", decided)
        if not scheduled:
            root, storage = decision.value
            scheduled.append(Scheduled(graph.value, root, storage, dict(bounds)))
        loaded = tuple(what for what, each in (("passes", graph), ("schedule", decision)) if each.is_loaded)
        program = fingerprint((key, decision.digest)) if decision.digest else ""
        return Kept(scheduled[0], loaded, Executables(self.entries, program))

    def _decision(self, name: str, make: Callable[[], Any]) -> Decision:
        data = self.entries.read(name)
        if data is not None:
            try:
                return Decision(pickled.loads(data, self.functions, self.lines), _digest(data), is_loaded=True)
            except pickled.PickleError as error:
                self.entries.discard(name, str(error))
        value = make()
        try:
            data = pickled.dumps(value, self.functions, self.lines)
        except pickled.PickleError as error:
            LOG.debug("a program is not kept: %s", error)
            return Decision(value)
        self.entries.write(name, data)
        return Decision(value, _digest(data))


def _numbers(bounds: Bounds) -> list[tuple[str, int]]:
    return sorted((bound.name, number) for bound, number in bounds.items())


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def opened(config: Config, source: Graph, least: Sequence[tuple[Symbol, int]]) -> Cache | None:
    """The cache of a config, for a source graph. `least` are the bounds that a run chooses, with their least values.

    None if it has none, or if something here has no fingerprint: a message says what.
    """
    try:
        path = directory(config)
        if path is None:
            return None
        if not config.interpreted:
            environment.of_device_programs()
        return Cache(Entries(path, config.cache_bytes), source, config, least)
    except Exception as error:  # the cache is never the reason why a program does not run
        LOG.warning("the program is not kept: %s", error)
        return None
