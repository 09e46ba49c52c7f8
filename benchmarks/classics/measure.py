"""One row of the table: both sides of a classic, compared and timed in turn; in a process of its own, which may fail."""

from __future__ import annotations

import multiprocessing
import statistics
import time
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any

SHORTEST = 0.01  # seconds of a turn: faster runs are repeated
LONGEST = 20.0  # seconds of all turns of a side: slower runs have fewer turns, at least one

Row = dict[str, Any]


def measured(classic: Any, size: str, turns: int) -> Row:
    """Milliseconds of both sides, the ratios turn by turn, compile seconds, and the greatest difference of the results.

    Of several forms by hand, the one that is fastest in the warm-up is timed.
    """
    from benchmarks.classics.classic import difference

    sides = classic.sides(size)
    ours, guess = _timed(sides.tempo)
    differences, warm = {}, {}
    for form, run in sides.by_hand.items():
        results, warm[form] = _timed(run)
        differences[form] = difference(ours, results)
    form = min(warm, key=lambda form: warm[form])
    runs = {"tempo": sides.tempo, "by hand": sides.by_hand[form]}
    guesses = {"tempo": guess, "by hand": warm[form]}
    repeats = {side: max(1, round(SHORTEST / seconds)) for side, seconds in guesses.items()}
    turns = max(1, min(turns, int(LONGEST / max(guesses.values()))))
    seconds: dict[str, list[float]] = {side: [] for side in runs}
    for _ in range(turns):
        for side, run in runs.items():
            seconds[side].append(_seconds(run, repeats[side]))
    ratios = [a / b for a, b in zip(seconds["tempo"], seconds["by hand"], strict=True)]
    return {
        "ms": {side: statistics.median(each) * 1e3 for side, each in seconds.items()},
        "ratio": {"median": statistics.median(ratios), "least": min(ratios), "greatest": max(ratios)},
        "form": form,
        "turns": turns,
        "compile_seconds": {
            "tempo": max(0.0, sides.first_seconds["tempo"] - guess),
            "by hand": max(0.0, sides.first_seconds[form] - warm[form]),
        },
        "difference": max(differences.values()),
        "agrees": max(differences.values()) <= classic.tolerance,
    }


def _timed(run: Callable[[], Any]) -> tuple[Any, float]:
    """The results of a run, and its seconds; of a fast one the lesser of two."""
    start = time.perf_counter()
    results = run()
    seconds = time.perf_counter() - start
    return results, seconds if seconds > 1 else min(seconds, _seconds(run))


def _seconds(run: Callable[[], object], repeats: int = 1) -> float:
    start = time.perf_counter()
    for _ in range(repeats):
        run()
    return (time.perf_counter() - start) / repeats


class Worker:
    """A process that measures one classic after the other. If one ends it or takes too long, a fresh one measures the next.

    So both sides of a classic share one process, and a row that runs out of memory is a row that says so.
    """

    def __init__(self, seconds: float, memory_gib: float):
        self.seconds, self.memory_gib = seconds, memory_gib
        self.process: Any = None

    def row(self, name: str, size: str, turns: int) -> Row:
        """The row of a classic; `{"error": text}` if it fails."""
        if self.process is None:
            spawn = multiprocessing.get_context("spawn")
            self.connection, theirs = spawn.Pipe()
            self.process = spawn.Process(target=_serve, args=(theirs, self.memory_gib), daemon=True)
            self.process.start()
            theirs.close()
        self.connection.send((name, size, turns))
        try:
            if self.connection.poll(self.seconds):
                row: Row = self.connection.recv()
                return row
            error = f"longer than {self.seconds:g} s"
        except EOFError:
            self.process.join()
            error = f"the process ended with code {self.process.exitcode}"
        self.stop()
        return {"error": error}

    def stop(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.join()
            self.process = None


def _serve(connection: Connection, memory_gib: float) -> None:
    """Measure what the connection names, until it ends."""
    import resource

    import jax

    from benchmarks.classics.table import load

    jax.config.update("jax_enable_compilation_cache", False)
    limit = int(memory_gib * 2**30)
    resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))
    classics = load()
    while True:
        try:
            name, size, turns = connection.recv()
        except EOFError:
            return
        try:
            row = measured(classics[name], size, turns)
        except Exception as error:  # any failure is a row
            row = {"error": f"{type(error).__name__}: {str(error).strip().splitlines()[0] if str(error).strip() else ''}"[:300]}
        jax.clear_caches()
        connection.send(row)
