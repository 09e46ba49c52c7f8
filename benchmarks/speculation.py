"""Speculative decoding: tokens one by one beside rounds of 2, 4 and 8 drafted ones, by n-grams of the text and by a draft model.

All sides of a case are Tempo, in turn, and give the same tokens. Milliseconds a token are those of a whole run, prompt included; beside them
stands how many drafted tokens stayed in each round.

- 100M, text that repeats: random weights, after a prompt of a passage four times. The most likely tokens soon go in a circle
- 100M, text that does not repeat: the same, but tokens are drawn, nearly all with the same chance. No draft is right: the cost alone
- 100M, a draft model: the first two of the twelve layers draft
- tiny-llama: the trained model in this package, with its own questions; by n-grams, and with its first layer as a draft model

    python -m benchmarks.speculation [--only tiny] [--quick] [--out FILE]
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from benchmarks.common import Results, arguments, compared, in_turn, say, show

DRAFTED = (2, 4, 8)
ONE_BY_ONE = "one by one"


def main() -> None:
    options = arguments(__doc__ or "")
    results = Results("speculation", options)
    size, new = ("tiny", 12) if options.quick else ("100M", 256)
    cases: dict[str, Any] = {
        f"{size}, text that repeats": lambda: (random_generator(size), repeating(size), new, 0.0),
        f"{size}, text that does not repeat": lambda: (random_generator(size), repeating(size), new // 4, 1.0),
        f"{size}, a draft model of its first layers": lambda: (random_generator(size, 2), repeating(size), new, 0.0),
        "tiny-llama, n-grams": lambda: trained(None),
        "tiny-llama, a draft model of its first layer": lambda: trained(1),
    }
    for name, case in cases.items():
        if results.selects(name):
            compare(results, name, *case())
    results.finish()


def compare(results: Results, name: str, generator: Any, prompt: Sequence[int], new: int, temperature: float) -> None:
    """Milliseconds a token of each number of drafted tokens, and how many of them stayed."""
    texts: dict[str, tuple[int, ...]] = {}
    accepted: dict[str, float] = {}

    def side(label: str, count: int) -> Any:
        def run() -> None:
            generation = generator.generate([prompt], new, temperature=temperature, speculate=count)
            texts[label], accepted[label] = generation.completions[0].token_ids, generation.accepted_per_round

        return run

    sides = {ONE_BY_ONE: side(ONE_BY_ONE, 0), **{f"{count} drafted": side(f"{count} drafted", count) for count in DRAFTED}}
    seconds = in_turn(sides, results.options.turns)
    figures = compared(seconds, len(texts[ONE_BY_ONE]), 1e3)
    show(f"{name}: {len(prompt)} tokens of prompt, {len(texts[ONE_BY_ONE])} new ones", figures, "ms/token")
    stayed = {label: each for label, each in accepted.items() if label != ONE_BY_ONE}
    same = {label: text == texts[ONE_BY_ONE] for label, text in texts.items() if label != ONE_BY_ONE}
    say("  drafted tokens that stayed in a round: " + ", ".join(f"{label} {each:.2f}" for label, each in stayed.items()))
    say("  the same tokens: " + ", ".join(f"{label} {each}" for label, each in same.items()))
    results.add(name, new_tokens=len(texts[ONE_BY_ONE]), ms_per_token=figures, accepted_per_round=stayed, same_tokens=same)


def random_generator(size: str, draft_layers: int | None = None) -> Any:
    """A model with random weights, of which the first layers draft if there is a number of them."""
    from benchmarks.decode import random_model
    from tempo_llm import Generator

    config, weights = random_model(size)
    draft = None if draft_layers is None else first_layers(config, weights, draft_layers)
    return Generator(config, _constant(weights), draft=draft, cache=True)


def first_layers(config: Any, weights: dict[str, np.ndarray], count: int) -> Any:
    """The model of the first layers, with the same embedding and the same head."""
    from dataclasses import replace

    from tempo_llm import Generator

    shared = ("embedding.", "head.", "final_norm.")
    fewer = {name: array if name.startswith(shared) else array[:count] for name, array in weights.items()}
    return Generator(replace(config, num_hidden_layers=count, layers=config.layers[:count]), _constant(fewer))


def trained(draft_layers: int | None) -> tuple[Any, list[int], int, float]:
    """The model in the package, and a question that it answers."""
    import tempo_llm
    from tempo_llm import Generator

    model = tempo_llm.load("tiny-llama")
    weights = {name: np.asarray(array) for name, array in model.generator.weights.items()}
    draft = None if draft_layers is None else first_layers(model.config, weights, draft_layers)
    prompt = model.tokenizer.encode("12 + 30 = 42. 12 + 31 = 43. 12 + 32 =", raw=True)
    return Generator(model.config, weights, draft=draft, cache=True), prompt, 128, 0.0


def repeating(size: str) -> list[int]:
    """A passage of 60 random tokens, four times."""
    from benchmarks.decode import SIZES

    passage: list[int] = np.random.default_rng(1).integers(3, SIZES[size]["vocab_size"], 60).tolist()
    return passage * 4


def _constant(weights: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The weights as programs take them without a copy."""
    for array in weights.values():
        array.flags.writeable = False
    return weights


if __name__ == "__main__":
    main()
