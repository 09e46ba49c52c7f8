"""Llama-3.2-3B's shapes on one GPU in bfloat16, against JAX by hand with a padded cache, beside the ratios of the paper.

The weights are random and drawn on the device; nothing is downloaded. A case is a batch and an attention pattern; a row of the table is the
number of positions T that are decoded. As in the paper, the figure is the mean time between tokens over all of them, and the cache of JAX is
padded to T. The time of a token of ours depends on its position, so it is measured in the middle of each of some parts of T, after a prompt
that fills the positions before (`--parts`). That of JAX does not: a padded cache is read whole. With `--through`, ours decodes from the
first position on instead, as long as there is time. Each side is a process of its own, so that its peak of memory is its own.

    python -m benchmarks.llm.gpu --case batch16 --seconds 300 [--lengths 16384] [--through] [--out FILE]
    python -m benchmarks.llm.gpu --case batch16 --tiny      # on a CPU: does it run?

The paper's GPU is an RTX A6000 (48 GB). Its ratios: section 7.2, with JAX 0.6.2 padded to the length that is decoded.
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.common import Results, arguments, say
from benchmarks.llm.models import random_prompts, write_config
from benchmarks.llm.process import Limits, Refused, Worker
from benchmarks.llm.systems import SYSTEMS

SHAPE: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "vocab_size": 128256,
    "hidden_size": 3072,
    "intermediate_size": 8192,
    "num_hidden_layers": 28,
    "num_attention_heads": 24,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "rms_norm_eps": 1e-5,
    "rope_theta": 500000.0,
    "max_position_embeddings": 131072,
    "tie_word_embeddings": True,
}
TINY = {
    "vocab_size": 256,
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
}
DTYPE = "bfloat16"
SIDES = ("tempo", "jax-padded")
SHORT = 16  # tokens of a prompt where the position makes no difference
COUNT = 16  # tokens of a launch
SPARE = 10.0  # seconds before the deadline that decoding from the first position on leaves for the end
LAUNCHES = 4  # that are timed at a position, after one that may compile


@dataclass(frozen=True)
class GpuCase:
    """`paper` has, by the number of positions, how many times faster than JAX the paper's system is."""

    rows: int
    window: int
    lengths: Sequence[int]
    paper: Mapping[int, float]
    note: str


CASES = {
    "batch16": GpuCase(16, 0, (16384, 4096), {16384: 1.43}, "all systems of the paper run out of memory beyond 16,384 positions"),
    "batch4": GpuCase(4, 0, (65536, 32768), {32768: 2.0, 65536: 2.5}, ""),
    "window1024": GpuCase(
        16, 1024, (16384, 65536), {16384: 7.0}, "the paper's system reaches at least 4 times as many positions as JAX"
    ),
}
TINY_LENGTHS, TINY_WINDOW = (64,), 16


def main() -> None:
    os.environ.setdefault("XLA_PYTHON_CLIENT_MEM_FRACTION", "0.92")  # of what the processes may take as they need it
    options = arguments(__doc__ or "", add_options)
    results = Results("llm.gpu", options)
    deadline = time.monotonic() + options.seconds
    with tempfile.TemporaryDirectory() as folder:
        for name in options.case or list(CASES):
            case = CASES[name]
            window = min(case.window, TINY_WINDOW) if options.quick else case.window
            directory = Path(folder) / name
            write_config(directory, {**SHAPE, **(TINY if options.quick else {})}, window)
            lengths = options.lengths or (TINY_LENGTHS if options.quick else case.lengths)
            for length in lengths:
                measure(results, name, case, directory, window, length, deadline)
    results.finish()


def add_options(parser: argparse.ArgumentParser) -> None:
    def numbers(text: str) -> tuple[int, ...]:
        return tuple(int(number) for number in text.split(","))

    parser.add_argument("--case", action="append", choices=list(CASES), help="what to measure; repeatable [all]")
    parser.add_argument("--seconds", type=float, default=540, help="for all of it; what is not done then is said [540]")
    parser.add_argument("--lengths", type=numbers, metavar="T,...", help="numbers of positions, instead of the case's")
    parser.add_argument("--parts", type=int, default=4, help="of T, in whose middles ours is measured [4]")
    parser.add_argument("--through", action="store_true", help="decode from the first position on, without long prompts")
    parser.add_argument("--tiny", action="store_true", dest="quick", help="a tiny model, which a CPU runs")


def measure(results: Results, name: str, case: GpuCase, directory: Path, window: int, length: int, deadline: float) -> None:
    """A row: both sides, one after the other."""
    title = f"{name} rows={case.rows} T={length}" + (f" window={window}" if window else "")
    figures: dict[str, dict[str, Any]] = {}
    refused: dict[str, str] = {}
    for side in SIDES:
        try:
            figures[side] = Side(side, directory, window, deadline, results.options).decoded(case.rows, length)
        except Refused as refusal:
            refused[side] = "out of memory" if "RESOURCE_EXHAUSTED" in str(refusal) else str(refusal)
            if side == SIDES[0] and not results.options.through:
                refused[side] += " (prompts are in it: --through has none)"
    say(f"\n{title}")
    for side in SIDES:
        say(f"  {SYSTEMS[side].title:12} {shown(figures[side], case.rows) if side in figures else refused[side]}")
    are_whole = len(figures) == len(SIDES) and all(figure["reached"] is None for figure in figures.values())
    ratio = figures[SIDES[1]]["ms"] / figures[SIDES[0]]["ms"] if are_whole else None
    paper = case.paper.get(length)
    stated = "none" if paper is None else f"{paper:g} times (section 7.2, RTX A6000)"
    ours = "no ratio of ours" if ratio is None else f"ours is {ratio:.2f} times as fast as JAX, padded"
    say(f"  {ours}; the paper states {stated}")
    say(f"  ({case.note})" if case.note else "")
    results.add(
        title, rows=case.rows, positions=length, window=window, sides=figures, refused=refused, times_as_fast=ratio, paper=paper
    )
    results.save()


def shown(figure: Mapping[str, Any], rows: int) -> str:
    memory = "" if figure["device_bytes"] is None else f", at most {figure['device_bytes'] / 2**30:.1f} GiB on the device"
    at = ", ".join(f"{ms:.3g} at {t}" for t, ms in figure["ms_at"].items())
    end = "" if figure["reached"] is None else f"; the time ended at position {figure['reached']}"
    return f"{figure['ms']:.4g} ms between tokens ({at}), {rows * 1e3 / figure['ms']:,.0f} tokens/s{memory}{end}"


class Side:
    """A system in a process, until a deadline."""

    def __init__(self, side: str, directory: Path, window: int, deadline: float, options: argparse.Namespace):
        self.side, self.directory, self.window, self.deadline, self.options = side, directory, window, deadline, options
        self.vocabulary = (TINY if options.quick else SHAPE)["vocab_size"]

    def decoded(self, rows: int, length: int) -> dict[str, Any]:
        """Milliseconds between tokens, on average and by position, and the peak of the device's memory. Raises Refused.

        `reached` is the position where the time ended; None if it was enough.
        """
        self.worker = Worker(self.side, self.directory, DTYPE, self.window, self._limits())
        try:
            if self.side == SIDES[0] and self.options.through:
                at, reached = self._through(rows, length)
            else:
                at, reached = {t: self._around(rows, length, t) for t in self._positions(length)}, None
            device_bytes = self.worker.ask("memory")["device"]
            return {"ms": statistics.fmean(at.values()), "ms_at": at, "device_bytes": device_bytes, "reached": reached}
        finally:
            self.worker.stop()

    def _limits(self) -> Limits:
        """What time is left. Raises Refused if it is none."""
        seconds = self.deadline - time.monotonic()
        if seconds <= 0:
            raise Refused("no time is left")
        return Limits(seconds, memory_gib=float("inf"))

    def _positions(self, length: int) -> list[int]:
        """Where tokens are timed: where the time depends on the position, in the middle of each part."""
        if self.side != SIDES[0]:
            return [SHORT]
        if self.window:
            return [min(2 * self.window, length // 2)]  # the window is full, as it is from there on
        parts = self.options.parts
        return [max(length * (2 * part + 1) // (2 * parts), 1) for part in range(parts)]

    def _around(self, rows: int, length: int, position: int) -> float:
        """Milliseconds a token from a position on, in a run that would go on to `length`."""
        count = min(COUNT, max((length - position - 1) // (LAUNCHES + 1), 1))
        self._start(rows, length, position, count)
        self._advance(count)
        return statistics.median(self._advance(count) for _ in range(LAUNCHES))

    def _through(self, rows: int, length: int) -> tuple[dict[int, float], int | None]:
        """Milliseconds a token by position, the means of a sixteenth of the length each; and where the time ended, if it did."""
        count = 4 * COUNT if length > 16 * COUNT else 1
        times = self._start(rows, length, SHORT, count)
        self._advance(count)
        by_part: dict[int, list[float]] = {}
        reached = None
        for k in range(1, times - 1):  # the last launch ends the run, which may compile
            if self.deadline - time.monotonic() < SPARE and by_part:
                reached = SHORT + k * count
                break
            part = (SHORT + k * count) * 16 // length
            by_part.setdefault((2 * part + 1) * length // 32, []).append(self._advance(count))
        return {t: statistics.fmean(each) for t, each in by_part.items()}, reached

    def _start(self, rows: int, length: int, position: int, count: int) -> int:
        """Compute a prompt of so many tokens, in a run of `length` positions. Gives the number of launches to its end."""
        times = max((length - position - 1) // count, 3)
        self.worker.limits = self._limits()
        self.worker.ask("start", prompts=random_prompts(self.vocabulary, rows, position), count=count, times=times)
        return times

    def _advance(self, count: int) -> float:
        """Milliseconds a token of the next launch."""
        self.worker.limits = self._limits()
        return float(self.worker.ask("advance", count=count)["seconds"]) / count * 1e3


if __name__ == "__main__":
    main()
