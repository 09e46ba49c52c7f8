"""Data on disk that do not fit into memory: statistics, normalisation into another file, and regression over epochs. By hand: NumPy.

The file is made when the first case needs it, in the directory for temporary files. Both sides read it part by part. The growth is that of
the process over the whole run, from before it opens the file.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import tempo_core as tp
from benchmarks.memory.process import Case, Report, measured

SIDES = ("tempo", "NumPy by hand")
WORKS = {"statistics": "mean and variance", "normalised": "normalised to disk", "regression": "linear regression"}
ROWS, QUICK_ROWS, WIDTH = 40_000, 400, 65_536  # 10.5 GB
PART, EPOCHS, RATE = 50, 3, 1e-5
FILES = Path(tempfile.gettempdir()) / "tempo-benchmark-memory"


def cases(quick: bool) -> list[Case]:
    rows = QUICK_ROWS if quick else ROWS
    sizes = {"rows": rows, "width": WIDTH, "bytes_on_disk": rows * WIDTH * 4}
    return [
        Case(f"{rows * WIDTH * 4 / 1e9:.1f} GB on disk: {name}", "disk", f"{key} {rows}", SIDES, sizes)
        for key, name in WORKS.items()
    ]


def report(side: str, work: str) -> Report:
    """`work` is what is computed, and the number of rows. "ms" is the time of the second run; "result" a number that both sides find."""
    key, rows = work.split()[0], int(work.split()[1])
    _make(rows)
    x = np.memmap(FILES / "x", np.float32, "r", shape=(rows, WIDTH))
    planned, run = (_ours if side == "tempo" else _by_hand)(key, x)
    seconds: list[float] = []
    results: list[float] = []

    def timed() -> None:
        start = time.perf_counter()
        results.append(run())
        seconds.append(time.perf_counter() - start)

    return {**measured(planned, timed), "ms": seconds[-1] * 1e3, "result": results[-1]}


def clean() -> None:
    """Remove the files."""
    for name in ("x", "y"):
        (FILES / name).unlink(missing_ok=True)


def _make(rows: int) -> None:
    FILES.mkdir(exist_ok=True)
    path = FILES / "x"
    if path.exists() and path.stat().st_size == rows * WIDTH * 4:
        return
    random = np.random.default_rng(0)
    with open(path, "wb") as file:
        for first in range(0, rows, PART):
            part = random.normal(size=(min(PART, rows - first), 256)).astype(np.float32)
            scale = np.linspace(0.5, 2.0, WIDTH // 256, dtype=np.float32)
            (part[:, None, :] * scale[:, None] + scale[:, None]).reshape(len(part), WIDTH).tofile(file)
        file.flush()
        os.fsync(file.fileno())


def _ours(key: str, x: Any) -> tuple[Callable[[], int], Callable[[], float]]:
    """The bytes planned, and a run."""
    ctx = tp.Context("i", "t")
    with ctx as ((i, I), (t, T)):
        row = tp.input("x", (WIDTH,), domain=(t,))
        if key == "regression":
            w = tp.recurrence((WIDTH,), domain=(i,), name="w")
            w[0] = tp.zeros((WIDTH,))
            target = tp.input("target", domain=(t,))
            (((row @ w - target) ** 2)[i, 0:T].mean()).backward()
            w[i + 1] = w - RATE * w.grad
            outputs = {"w": w[I - 1]}
        else:
            mean = row[0:T].mean(0)
            variance = ((row - mean) ** 2)[0:T].mean(0)
            outputs = {"mean": mean, "variance": variance}
            if key == "normalised":
                scale = tp.rsqrt(variance + 1e-6)
                outputs = {"y": row * scale - mean * scale}
    options = {"host": {"t": PART}, "tile": {"t": PART}}
    config = tp.Config(**options, disable=("vectorize(t)",) if key == "normalised" else ())
    program = ctx.compile({I: EPOCHS + 1, T: len(x)}, outputs, config)

    def run() -> float:
        if key != "normalised":
            target = {"target": np.cos(np.arange(len(x), dtype=np.float32))} if key == "regression" else {}
            results = program.run({"x": x, **target})
            return float(np.linalg.norm(results["w" if key == "regression" else "variance"]))
        y = np.memmap(FILES / "y", np.float32, "w+", shape=x.shape)
        program.run({"x": x}, out={"y": y})
        y.flush()
        return _some(y)

    return lambda: program.plan().peak_device_bytes, run


def _some(y: Any) -> float:
    """The norm of some rows of a result."""
    return float(np.linalg.norm(np.asarray(y[:: max(len(y) // 10, 1)])))


def _by_hand(key: str, x: Any) -> tuple[Callable[[], int], Callable[[], float]]:
    """Loops over parts, which the file's pages leave again."""
    parts = range(0, len(x), PART)

    def part(first: int) -> Any:
        with open(FILES / "x", "rb") as file:
            file.seek(first * WIDTH * 4)
            return np.fromfile(file, np.float32, min(PART, len(x) - first) * WIDTH).reshape(-1, WIDTH)

    def statistics() -> tuple[Any, Any]:
        mean = sum(part(first).sum(0) for first in parts) / np.float32(len(x))
        return mean, sum(((part(first) - mean) ** 2).sum(0) for first in parts) / np.float32(len(x))

    def run() -> float:
        if key == "regression":
            w = np.zeros(WIDTH, np.float32)
            target = np.cos(np.arange(len(x), dtype=np.float32))
            for _ in range(EPOCHS):
                gradient = np.zeros(WIDTH, np.float32)
                for first in parts:
                    rows = part(first)
                    gradient += (rows @ w - target[first : first + PART]) @ rows
                w -= RATE * 2 / len(x) * gradient
            return float(np.linalg.norm(w))
        mean, variance = statistics()
        if key == "statistics":
            return float(np.linalg.norm(variance))
        with open(FILES / "y", "wb") as file:
            for first in parts:
                ((part(first) - mean) / np.sqrt(variance + 1e-6)).tofile(file)
            file.flush()
            os.fsync(file.fileno())
        return _some(np.memmap(FILES / "y", np.float32, "r", shape=x.shape))

    return lambda: 3 * PART * WIDTH * 4, run
