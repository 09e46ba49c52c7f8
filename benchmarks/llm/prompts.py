"""What prompts cost beside others of their own: next to a capacity, together and apart, behind kept tokens, shared by samples.

Random weights. All sides of a case are Tempo, in turn; a side is a list of requests for one new token each.

- stairs: prompts of lengths below and above where a program or a block ends
- rows: prompts of very different lengths, in one request and in two
- later message: tokens behind a text that is kept (`prefixes`), the same computed whole, and the later tokens alone
- samples: samples of one prompt, and one of it

    python -m benchmarks.llm.prompts [--only stairs] [--quick] [--out FILE]
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from benchmarks.common import Results, arguments, compared, in_turn, say, show
from benchmarks.llm.models import random_prompts

STAIRS = (500, 512, 520, 1020, 1030, 2000)
Requests = list[tuple[list[list[int]], int]]  # prompts, and the samples of each


def main() -> None:
    options = arguments(__doc__ or "")
    results = Results("llm_prompts", options)
    quick = options.quick
    sides = {
        "stairs": lambda model: stairs(model, (10, 20) if quick else STAIRS),
        "rows": lambda model: rows(model, *((30, 5) if quick else (4000, 5))),
        "later message": lambda model: later(model, *((32, 16) if quick else (2000, 2001))),
        "samples": lambda model: samples(model, *((20, 2) if quick else (4000, 8))),
    }
    for name, of in sides.items():
        if results.selects(name):
            compare(results, name, of(Model("tiny" if quick else "100M", 256 if quick else 8192)))
    results.finish()


class Model:
    """A model with random weights; `random` gives tokens that no other call gives."""

    def __init__(self, size: str, positions: int):
        from benchmarks.decode import random_model

        self.config, self.weights = random_model(size, positions)
        self.given = 0

    def generator(self, keeps: bool = False) -> Any:
        from tempo_llm import Generator
        from tempo_llm.prefixes import Prefixes

        for array in self.weights.values():
            array.flags.writeable = False
        return Generator(self.config, self.weights, prefixes=Prefixes(8 * 2**30) if keeps else None)

    def random(self, count: int) -> list[int]:
        self.given += 1
        return random_prompts(self.config.vocab_size, self.given, count)[-1]


def compare(results: Results, name: str, sides: dict[str, Callable[[], None]]) -> None:
    seconds = in_turn(sides, results.options.turns)
    figures = compared(seconds, 1, 1e3)
    show(name, figures, "ms")
    results.add(name, ms=figures)


def first_tokens(generator: Any, requests: Sequence[tuple[list[list[int]], int]]) -> None:
    """One new token of each prompt."""
    for prompts, count in requests:
        sampling = {"temperature": 1.0} if count > 1 else {}
        generator.generate(prompts, 1, samples=count, **sampling)


def stairs(model: Model, lengths: Sequence[int]) -> dict[str, Callable[[], None]]:
    """A prompt of each length."""
    generator = model.generator()
    return {f"prompt of {count}": _side(generator, [([model.random(count)], 1)]) for count in lengths}


def rows(model: Model, long: int, short: int) -> dict[str, Callable[[], None]]:
    """A long prompt and a short one."""
    generator, prompts = model.generator(), [model.random(long), model.random(short)]
    return {
        "together": _side(generator, [(prompts, 1)]),
        "apart": _side(generator, [([prompt], 1) for prompt in prompts]),
    }


def later(model: Model, before: int, count: int) -> dict[str, Callable[[], None]]:
    """Tokens after a text that was computed before."""
    cold, warm = model.generator(), model.generator(keeps=True)
    text = model.random(before)
    first_tokens(warm, [([text], 1)])
    say(f"  {before} tokens are kept, in {warm.prefixes.nbytes / 1e6:.0f} MB")

    def behind() -> None:  # each time other tokens: those of the last time are kept too
        first_tokens(warm, [([[*text, *model.random(count)]], 1)])

    return {
        "behind kept tokens": behind,
        "computed whole": _side(cold, [([[*text, *model.random(count)]], 1)]),
        "alone": _side(cold, [([model.random(count)], 1)]),
    }


def samples(model: Model, length: int, count: int) -> dict[str, Callable[[], None]]:
    """Samples of a prompt."""
    generator, prompt = model.generator(), model.random(length)
    return {f"{each} samples": _side(generator, [([prompt], each)]) for each in (count, 1)}


def _side(generator: Any, requests: Requests) -> Callable[[], None]:
    return lambda: first_tokens(generator, requests)


if __name__ == "__main__":
    main()
