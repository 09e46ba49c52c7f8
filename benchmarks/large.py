"""Llama-3.2-3B as its user runs it, in a process that has the memory of a small machine: CPU seconds, seconds and bytes.

    python -m benchmarks.large [--model DIR] [--quick] [--out FILE]

The model has the sizes of Llama 3.2 with 3B parameters and random weights in bfloat16 (6.4 GB, written once to DIR, or to a folder that is
removed). Nothing is downloaded. Each run is a process of its own: `tempo-llm generate` with an empty cache of compiled programs, then with a
filled one, with a short and a long text, and with a long prompt; the models of 8 and 4 bits are made by `tempo-llm quantize` before. Beside
it are transformers on PyTorch, and JAX by hand (`benchmarks/peers/jax_cached.py`), whose process computes a short and a long text.
Seconds a token are those between the short and the long text. The peak is the most memory that the process had at a time; weights count
once, whether they were read or mapped. A side that needs more than the machine has is left out by name.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.common import Results, arguments, say
from benchmarks.plan import QUICK, ROOT, SIZES, written

SHORT, LONG, PROMPT = 8, 40, 500  # new tokens, and tokens of the long prompt
DTYPES = ("bfloat16", "int8", "int4")
PEERS = {"transformers, bfloat16": "transformers", "JAX by hand, bfloat16": "jax"}


class Run(NamedTuple):
    """A process that has ended: the processors' seconds, seconds, the most memory in bytes, and what it printed."""

    cpu: float
    wall: float
    peak: int
    output: str


class Failed(Exception):
    """A process that ended with an error, or for want of memory."""


def main() -> None:
    def add(parser: argparse.ArgumentParser) -> None:
        parser.add_argument("--model", type=Path, default=None, metavar="DIR", help="where the model is, or is written")
        parser.add_argument("--side", choices=PEERS.values(), help=argparse.SUPPRESS)
        parser.add_argument("--tokens", type=int, help=argparse.SUPPRESS)

    options = arguments(__doc__ or "", add)
    if options.side is not None:
        print(json.dumps(SIDES[options.side](options.model, options.tokens)))
        return
    results = Results("large", options)
    with tempfile.TemporaryDirectory() as folder:
        place = options.model or Path(folder) / "model"
        if not (place / "config.json").exists():
            place.parent.mkdir(parents=True, exist_ok=True)
            written(
                place, {**(QUICK if options.quick else SIZES), "num_hidden_layers": 2 if options.quick else 28}, is_random=True
            )
        weights = (place / "model.safetensors").stat().st_size
        say(f"weights in bfloat16: {weights / 1e9:.2f} GB")
        for dtype in DTYPES:
            if results.selects(f"tempo, {dtype}"):
                with failing(results, f"tempo, {dtype}"):
                    tempo(results, place, dtype, Path(folder))
        for name, side in PEERS.items():
            if results.selects(name):
                with failing(results, name):
                    peer(results, name, side, place)
    results.finish()


@contextlib.contextmanager
def failing(results: Results, name: str) -> Iterator[None]:
    """A side that fails is left out by name."""
    try:
        yield
    except Failed as error:
        results.skip(f"{name}: {error}")


def ran(command: list[str]) -> Run:
    """Run a command of this Python. Raises Failed."""
    with tempfile.TemporaryFile() as output, tempfile.TemporaryFile() as errors:
        begun = time.perf_counter()
        environment = {**os.environ, "JAX_PLATFORMS": "cpu"}
        process = subprocess.Popen([sys.executable, "-m", *command], cwd=ROOT, stdout=output, stderr=errors, env=environment)
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        wall = time.perf_counter() - begun
        output.seek(0), errors.seek(0)
        if process.returncode:
            lines = errors.read().decode(errors="replace").strip().splitlines()
            raise Failed(f"ended with code {process.returncode}: {lines[-1] if lines else ''}"[:200])
        return Run(used.ru_utime + used.ru_stime, wall, used.ru_maxrss * 1024, output.read().decode())


def tempo(results: Results, model: Path, dtype: str, folder: Path) -> None:
    name, figures = f"tempo, {dtype}", {}
    directory = model
    if dtype != "bfloat16":
        directory = folder / dtype
        made = ran(["tempo_llm", "quantize", str(model), str(directory), "--dtype", dtype])
        figures["quantize"] = {"cpu_seconds": made.cpu, "seconds": made.wall, "peak_bytes": made.peak}
    cache = folder / f"cache-{dtype}"

    def run(tokens: int, prompt: int = 4) -> tuple[Run, dict[str, float]]:
        text = " ".join(f"w{token}" for token in ids(prompt))
        options = [
            "--dtype",
            dtype,
            "--max-new-tokens",
            str(tokens),
            "--max-context",
            str(prompt + LONG),
            "--temperature",
            "0",
            "--raw",
        ]
        command = ["tempo_llm", "generate", "--model", str(directory), "--prompt", text, *options]
        each = ran([*command, "--ignore-eos", "--json", "--cache", str(cache)])
        line = next(line for line in each.output.splitlines() if line.startswith("{"))
        return each, json.loads(line)["timings"]

    for case, tokens, prompt in (
        ("cold", SHORT, 4), ("short", SHORT, 4), ("long", LONG, 4), (f"cold, prompt of {PROMPT}", 1, PROMPT), (f"prompt of {PROMPT}", 1, PROMPT),
    ):  # fmt: skip
        each, timings = run(tokens, prompt)
        seconds = {key: timings[key] for key in ("load_seconds", "compile_seconds", "run_seconds")}
        figures[case] = {"cpu_seconds": each.cpu, "seconds": each.wall, "peak_bytes": each.peak, **seconds}
        say(f"{name}, {case}: {each.cpu:.1f} CPU s, {each.wall:.1f} s, {each.peak / 1e9:.2f} GB")
    long, short = figures["long"], figures["short"]
    added(results, name, figures, long["cpu_seconds"] - short["cpu_seconds"], long["run_seconds"] - short["run_seconds"])


def added(results: Results, name: str, figures: dict[str, Any], cpu: float, seconds: float) -> None:
    token = {"cpu_seconds_per_token": cpu / (LONG - SHORT), "seconds_per_token": seconds / (LONG - SHORT)}
    peak = max(each["peak_bytes"] for case, each in figures.items() if case != "quantize")
    say(
        f"{name}: {token['cpu_seconds_per_token']:.2f} CPU s a token, {token['seconds_per_token']:.2f} s; peak {peak / 1e9:.2f} GB"
    )
    results.add(name, **token, peak_bytes=peak, runs=figures)
    results.save()


def peer(results: Results, name: str, side: str, model: Path) -> None:
    each = ran(["benchmarks.large", "--side", side, "--model", str(model), "--tokens", "0"])
    figures = json.loads(each.output.splitlines()[-1])
    for case, values in figures.items():
        values |= {"peak_bytes": each.peak}
        say(f"{name}, {case}: {values['cpu_seconds']:.1f} CPU s, {values['seconds']:.1f} s")
    cpu, seconds = (figures["long"][key] - figures["short"][key] for key in ("cpu_seconds", "seconds"))
    added(results, name, figures, cpu, seconds)


def ids(count: int) -> list[int]:
    return [3 + 7 * number % 90 for number in range(count)]


def timed(run: Any) -> dict[str, float]:
    cpu, wall = time.process_time(), time.perf_counter()
    run()
    return {"cpu_seconds": time.process_time() - cpu, "seconds": time.perf_counter() - wall}


def of_transformers(model: Path, _: int) -> dict[str, Any]:
    import torch
    from transformers import DynamicCache, LlamaForCausalLM

    figures: dict[str, Any] = {}
    loaded: list[Any] = []
    load = lambda: loaded.append(LlamaForCausalLM.from_pretrained(model, dtype=torch.bfloat16).eval())  # noqa: E731
    figures["load"] = timed(load)

    @torch.inference_mode()
    def run(tokens: int, prompt: int = 4) -> None:
        cache, step = DynamicCache(), torch.tensor([ids(prompt)])
        for _ in range(tokens):
            logits = loaded[0](input_ids=step, past_key_values=cache, use_cache=True, logits_to_keep=1).logits
            step = logits[:, -1].argmax(-1, keepdim=True)

    run(2)
    figures |= {"short": timed(lambda: run(SHORT)), "long": timed(lambda: run(LONG))}
    return figures | {f"prompt of {PROMPT}": timed(lambda: run(1, PROMPT))}


def of_jax(model: Path, _: int) -> dict[str, Any]:
    import jax
    import numpy as np

    from benchmarks.peers.jax_cached import CachedLlama
    from tempo_core.nn import inverse_frequencies
    from tempo_llm import load_weights
    from tempo_llm.config import LlamaConfig

    config = LlamaConfig.from_directory(model)
    weights = load_weights(model, config, "bfloat16")
    weights.setdefault("embedding.weight", weights["head.weight"].T)
    on_device = {name: jax.device_put(array) for name, array in weights.items()}
    frequencies = inverse_frequencies(config.head_dim, config.rope_theta, config.rope_scaling)
    llama = CachedLlama(config, on_device, frequencies, "padded")

    def run(tokens: int, prompt: int = 4) -> None:
        llama.start(np.asarray([ids(prompt)], np.int32), LONG)
        if tokens > 1:
            llama.advance(tokens - 1)

    cases = {"short": (SHORT, 4), "long": (LONG, 4), f"prompt of {PROMPT}": (1, PROMPT)}
    figures = {f"cold, {case}": timed(lambda case=case: run(*cases[case])) for case in cases}
    return figures | {case: timed(lambda case=case: run(*cases[case])) for case in cases}


SIDES = {"transformers": of_transformers, "jax": of_jax}


if __name__ == "__main__":
    main()
