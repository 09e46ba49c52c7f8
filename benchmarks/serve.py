"""Servers and their clients: tokens per second of 1, 2, 4 and 8 at a time, and how long the first token takes under load.

    python -m benchmarks.serve [--model SIZE] [--quick] [--out FILE]

The server is `tempo-llm serve` in a process of its own, of a model with random weights (`benchmarks/decode.py` has the sizes): with one row, with
eight rows, whose programs have 1, 2, 4 and 8, and with eight rows in one program. All programs are compiled before clients come. Each client sends
one request, streamed, without an end token, with a prompt of its own. A last case sends one short request again and again while
the other rows write, and while long prompts come in: its time to the first token is what a new client waits. Beside them stands
`Model.generate` with such a prompt, in the process of the benchmark.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import threading
import time
from itertools import pairwise
from pathlib import Path

from benchmarks.common import Results, arguments, say
from benchmarks.serving import ServerProcess, metric

CLIENTS = (1, 2, 4, 8)
LARGE = "8 rows"
SERVERS = {"1 row": ("--rows", "1"), LARGE: ("--rows", "8"), "8 fixed rows": ("--rows", "8", "--fixed-rows")}


def main() -> None:
    def add(parser: argparse.ArgumentParser) -> None:
        parser.add_argument("--model", default="", metavar="SIZE", help="of benchmarks.decode [100M; quick: tiny]")
        parser.add_argument("--tokens", type=int, default=0, help="new tokens of each request [64; quick: 8]")
        parser.add_argument("--prompt", type=int, default=64, help="tokens of each prompt [64]")
        parser.add_argument("--long", type=int, default=512, help="tokens of the long prompts of the last case [512]")

    options = arguments(__doc__ or "", add)
    size = options.model or ("tiny" if options.quick else "100M")
    tokens, turns = options.tokens or (8 if options.quick else 64), options.turns if options.quick else min(options.turns, 3)
    results = Results("serve", options)
    with tempfile.TemporaryDirectory() as folder:
        from benchmarks.decode import random_model
        from tempo_llm.saving import save_model

        directory = Path(folder) / "random"
        config, weights = random_model(size, 2048)
        save_model(directory, config, weights, "float32")
        alone: dict[str, float] | None = None
        if results.selects(f"{size}, generate"):
            alone = generated(directory, config.vocab_size, options.prompt, tokens, turns)
            results.add(f"{size}, generate", prompt_tokens=options.prompt, new_tokens=tokens, **alone)
            _say(f"{size}, generate", alone)
        for kind, flags in SERVERS.items():
            names = {count: f"{size}, {kind}, {count} {'client' if count == 1 else 'clients'}" for count in CLIENTS}
            loaded = f"{size}, {kind}, a request under load"
            chosen = [count for count, name in names.items() if results.selects(name)]
            if not chosen and not results.selects(loaded):
                continue
            with ServerProcess("--model", str(directory), *flags, "--log-level", "warning") as server:
                compiled(server)
                first: float | None = None
                for count in chosen:
                    figures = throughput(server, config.vocab_size, count, options.prompt, tokens, turns)
                    first = first or figures["tokens_per_second"]
                    figures["times_one_client"] = figures["tokens_per_second"] / first
                    if alone is not None:
                        figures["times_generate"] = figures["processor_ms_per_token"] / alone["processor_ms_per_token"]
                    results.add(names[count], clients=count, prompt_tokens=options.prompt, new_tokens=tokens, **figures)
                    _say(names[count], figures)
                if results.selects(loaded) and kind == LARGE:
                    figures = under_load(server, config.vocab_size, 8, options.prompt, options.long, tokens, turns)
                    results.add(
                        loaded, prompt_tokens=options.prompt, long_prompt_tokens=options.long, new_tokens=tokens, **figures
                    )
                    _say(loaded, figures)
    results.finish()


def compiled(server: ServerProcess, seconds: float = 600.0) -> None:
    """Wait until a server has compiled all its programs."""
    import httpx

    begun = time.monotonic()
    while metric(httpx.get(f"{server.url}/metrics", trust_env=False).text, "tempo_programs_waiting"):
        assert time.monotonic() - begun < seconds, "the server still compiles"
        time.sleep(0.5)


def generated(directory: Path, vocabulary: int, prompt: int, tokens: int, turns: int) -> dict[str, float]:
    """Tokens per second of `Model.generate` in this process, prompt included, and processors' seconds for each token: the best turn."""
    import tempo_llm

    model, rates, processors = tempo_llm.load(directory), [], []
    for turn in range(turns + 1):
        begun, used = time.perf_counter(), time.process_time()
        model.generate(random_prompt(vocabulary, prompt, 1000 * turn), tokens, ignore_eos=True)
        if turn:  # the first one compiles
            rates.append(tokens / (time.perf_counter() - begun))
            processors.append((time.process_time() - used) / tokens)
    return {"tokens_per_second": max(rates), "processor_ms_per_token": 1000 * min(processors)}


def _say(name: str, figures: dict[str, float]) -> None:
    say(f"{name}: " + ", ".join(f"{key.replace('_', ' ')} {value:.4g}" for key, value in figures.items()))


def ask(server: ServerProcess, prompt: list[int], tokens: int, times: list[list[float]] | None = None) -> None:
    """One streamed request. `times` gets those of its tokens, from its start."""
    import httpx

    body = {"model": server.name, "prompt": prompt, "max_tokens": tokens, "temperature": 0, "ignore_eos": True, "stream": True}
    begun, seen = time.perf_counter(), list[float]()
    with httpx.stream("POST", f"{server.url}/v1/completions", json=body, timeout=600, trust_env=False) as response:
        for line in response.iter_lines():
            if line.startswith("data: {"):
                assert "error" not in json.loads(line[6:]), line
                seen.append(time.perf_counter() - begun)
    assert len(seen) == tokens, (len(seen), tokens)
    if times is not None:
        times.append(seen)


def random_prompt(vocabulary: int, length: int, seed: int) -> list[int]:
    import numpy as np

    prompt: list[int] = np.random.default_rng(seed).integers(3, vocabulary, length).tolist()
    return prompt


def throughput(server: ServerProcess, vocabulary: int, clients: int, prompt: int, tokens: int, turns: int) -> dict[str, float]:
    """Tokens per second of so many clients together, prompts included: the best turn, and the median. Processors' seconds for each token."""
    rates, processors, times = [], [], list[list[float]]()
    for turn in range(turns + 1):
        prompts = [random_prompt(vocabulary, prompt, 1000 * turn + client + 100_000 * clients) for client in range(clients)]
        threads = [threading.Thread(target=ask, args=(server, each, tokens, times)) for each in prompts]
        begun, used = time.perf_counter(), server.processor_seconds
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if turn:  # the first one warms up
            rates.append(clients * tokens / (time.perf_counter() - begun))
            processors.append((server.processor_seconds - used) / (clients * tokens))
    gaps = [b - a for seen in times[clients:] for a, b in pairwise(seen)]
    return {
        "tokens_per_second": max(rates),
        "median_tokens_per_second": statistics.median(rates),
        "processor_ms_per_token": 1000 * min(processors),
        "first_token_ms": 1000 * statistics.median(seen[0] for seen in times[clients:]),
        "ms_between_tokens": 1000 * statistics.median(gaps) if gaps else 0.0,
    }


def under_load(
    server: ServerProcess, vocabulary: int, rows: int, prompt: int, long: int, tokens: int, turns: int
) -> dict[str, float]:
    """The time to the first token of a short request, while other rows write, and one client sends long prompts."""
    is_over, others = threading.Event(), list[list[float]]()

    def busy(client: int, length: int) -> None:
        number = 0
        while not is_over.is_set():
            number += 1
            ask(server, random_prompt(vocabulary, length, 7_000_000 + 1000 * client + number), tokens, others)

    threads = [threading.Thread(target=busy, args=(client, prompt)) for client in range(rows - 2)]
    threads.append(threading.Thread(target=busy, args=(rows, long)))
    for thread in threads:
        thread.start()
    times: list[list[float]] = []
    for turn in range(turns * 4):
        time.sleep(0.1)
        ask(server, random_prompt(vocabulary, prompt, 9_000_000 + turn), 4, times)
    is_over.set()
    for thread in threads:
        thread.join()
    firsts = sorted(1000 * seen[0] for seen in times)
    gaps = sorted(1000 * (b - a) for seen in others for a, b in pairwise(seen))
    return {
        "first_token_ms": statistics.median(firsts),
        "longest_first_token_ms": firsts[-1],
        "ms_between_tokens_of_others": statistics.median(gaps),
        "longest_ms_between_tokens_of_others": gaps[-1],
    }


if __name__ == "__main__":
    main()
