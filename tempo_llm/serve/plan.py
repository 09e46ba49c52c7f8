"""The plan of a server: its programs, and what they hold in memory. Nothing runs, and no weights are read."""

from __future__ import annotations

import math

import numpy as np

from tempo_llm.generate import Generator
from tempo_llm.serve.choice import forms
from tempo_llm.serve.programs import Programs, Traced
from tempo_llm.serve.server import SHARED_BYTES, Sizes

COARSE = "XLA was not asked: temporaries are a coarse estimate, and the true peak may be much lower or higher"


def plan_of(generator: Generator, sizes: Sizes) -> str:
    """The plan, a few lines: the device's memory while each program runs, and what all of them share."""
    context = min(sizes.max_context, generator.config.max_position_embeddings)
    programs = Programs.of(generator, sizes.rows, context, sizes.fixed_rows)
    tokens = {f"a token of {_counted(size, 'row')}": traced for size, traced in programs.tokens.items()}
    blocks = {f"{size} places of a prompt": traced for size, traced in programs.blocks.items()}
    peaks = {name: traced.program.plan().coarse().peak_device_bytes for name, traced in {**tokens, **blocks}.items()}
    written_out = programs.tokens[sizes.rows].program.plan().written_out
    rows = _counted(sizes.rows, "row")
    memory = {
        "weights": _megabytes(generator.nbytes),
        f"keys, values and states of {rows} of {context:,} tokens": _megabytes(_cache_bytes(programs.tokens[sizes.rows])),
        "what is kept of prompts": f"up to {_megabytes(SHARED_BYTES)}",
        "peak on the device, but for what is kept": f"about {_megabytes(max(peaks.values()))}",
    }
    parts = {
        "programs": _table({name: f"about {_megabytes(peak)} on the device" for name, peak in peaks.items()}),
        "written out, in each of them": [f"  {line}" for line in written_out.splitlines()],
        f"ways to choose tokens: {len(forms(generator.config.vocab_size))}, a program each": [],
        "memory": [*_table(memory), f"  {COARSE}"],
    }
    return "\n".join(line for title, lines in parts.items() if lines or ":" in title for line in (title, *lines))


def _cache_bytes(traced: Traced) -> int:
    arrays = (*traced.caches().values(), *traced.states().values())
    return sum(math.prod(shape) * np.dtype(dtype).itemsize for shape, dtype in arrays)


def _table(rows: dict[str, str]) -> list[str]:
    width = max(map(len, rows))
    return [f"  {name:<{width}}  {value}" for name, value in rows.items()]


def _counted(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def _megabytes(size: int) -> str:
    return f"{size / 1e6:,.1f} MB"
