"""Decoding of a random Llama: tempo-llm against the best of three loops by hand in JAX, and against transformers.

Nothing is downloaded. Milliseconds per token are means over a whole run, prompt included, or over the positions from 250 to 1,000 (the
difference of a long and a short run). JAX by hand computes the prompt in one call and the other tokens in a second one, with a cache of the run's
length that is written in place: padded, in tiles, or in one of eight static lengths (`benchmarks/peers/jax_cached.py`). A record has all
three, and the fastest is "JAX by hand". The cache of transformers grows. `benchmarks.llm` has the time of a token at a
position, the first token after a prompt, and further systems.

    python -m benchmarks.decode [--quick] [--out FILE]
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np

from benchmarks.common import Results, arguments, compared, in_turn, say, show

SIZES: dict[str, dict[str, int]] = {
    "tiny": {"vocab_size": 256, "hidden_size": 64, "intermediate_size": 128, "layers": 2, "heads": 4, "groups": 2},
    "5M": {"vocab_size": 4096, "hidden_size": 256, "intermediate_size": 768, "layers": 4, "heads": 8, "groups": 4},
    "32 heads": {"vocab_size": 4096, "hidden_size": 1024, "intermediate_size": 2048, "layers": 2, "heads": 32, "groups": 32},
    "107M": {"vocab_size": 32000, "hidden_size": 768, "intermediate_size": 2304, "layers": 12, "heads": 12, "groups": 4},
    "100M": {"vocab_size": 16384, "hidden_size": 768, "intermediate_size": 2048, "layers": 12, "heads": 12, "groups": 12},
}
# (size, rows, positions)
CASES = [("tiny", 1, 128), ("5M", 1, 256), ("5M", 1, 1024), ("5M", 4, 256), ("100M", 1, 128), ("100M", 1, 512)]
LONG = [("107M", 1, 250, 1000), ("107M", 4, 250, 1000)]  # (size, rows, positions from, to)
CURVE = [("5M", length) for length in (128, 256, 512, 1024, 2048, 4096)]  # (size, positions), also with a window
WINDOW = 128
QUICK = [("tiny", 2, 16)]
QUICK_LONG = [("tiny", 2, 12, 24)]
QUICK_CURVE = [("tiny", 24)]
PROMPT = 8


def main() -> None:
    options = arguments(__doc__ or "")
    results = Results("decode", options)
    loaded: dict[str, tuple[Any, dict[str, np.ndarray]]] = {}

    def model(size: str) -> tuple[Any, dict[str, np.ndarray]]:
        if size not in loaded:
            loaded.clear()
            loaded[size] = random_model(size)
        return loaded[size]

    for size, rows, length in QUICK if options.quick else CASES:
        name = f"{size} rows={rows} length={length}"
        if results.selects(name):
            decode(results, name, *model(size), rows, length)
    for size, rows, first, last in QUICK_LONG if options.quick else LONG:
        name = f"{size} rows={rows} positions={first}..{last}"
        if results.selects(name):
            decode(results, name, *model(size), rows, last, first=first)
    for size, length in QUICK_CURVE if options.quick else CURVE:
        name = f"curve {size} length={length}"
        if results.selects(name):
            decode(results, name, *model(size), 1, length, WINDOW if not options.quick else 4)
    results.finish()


def llama_config(size: str, layers: int | None = None, positions: int = 4096) -> Any:
    """The configuration of a size, with that many layers instead of its own, for texts of up to so many positions."""
    from tempo_llm.config import LlamaConfig

    values: dict[str, Any] = dict(SIZES[size])
    own_layers = values.pop("layers")
    values |= {"num_hidden_layers": layers or own_layers, "num_attention_heads": values.pop("heads")}
    values |= {"num_key_value_heads": values.pop("groups"), "model_type": "llama", "max_position_embeddings": positions}
    return LlamaConfig.from_values(values)


def random_model(size: str, positions: int = 4096) -> tuple[Any, dict[str, np.ndarray]]:
    """A configuration and random weights, in the form of `tempo_llm.checkpoint.load_weights`; head and embedding are not tied."""
    from tempo_llm.checkpoint import layer_weights

    config = llama_config(size, positions=positions)
    random = np.random.default_rng(0)

    def matrix(*shape: int) -> np.ndarray:
        return random.standard_normal(shape, dtype=np.float32) * np.float32(0.02)

    weights = {"final_norm.weight": np.ones(config.hidden_size, np.float32)}
    weights["head.weight"] = matrix(config.hidden_size, config.vocab_size)
    weights["embedding.weight"] = matrix(config.vocab_size, config.hidden_size)
    for name, weight in layer_weights(config).items():
        shape = (config.num_hidden_layers, *weight.stored_shape)
        weights[name] = matrix(*shape) if len(shape) > 2 else np.ones(shape, np.float32)
    return config, weights


def decode(
    results: Results,
    name: str,
    config: Any,
    weights: dict[str, np.ndarray],
    rows: int,
    length: int,
    window: int | None = None,
    first: int = 0,
) -> None:
    """Milliseconds per token of a greedy run over `length` positions, from `first` on, and compile seconds, for each side; do the tokens agree?

    With `window`, one more side is Tempo whose layers attend to that many positions: another model, whose tokens are not compared.
    """
    import jax

    from benchmarks.peers.jax_cached import FORMS, CachedLlama
    from tempo_core.nn import inverse_frequencies
    from tempo_llm.attention import Attention
    from tempo_llm.generate import Generator

    prompts = np.random.default_rng(1).integers(3, config.vocab_size, (rows, PROMPT)).astype(np.int32)
    tokens: dict[str, np.ndarray] = {}
    on_device = {key: jax.device_put(value) for key, value in weights.items()}
    frequencies = inverse_frequencies(config.head_dim, config.rope_theta, config.rope_scaling)
    compile_seconds: dict[str, float] = {}
    generator = Generator(config, on_device)

    def generated(by: Generator, positions: int) -> Any:
        return by.generate(prompts.tolist(), positions - PROMPT, max_context=length)

    def ours(positions: int) -> None:
        tokens["tempo"] = np.asarray([completion.token_ids for completion in generated(generator, positions).completions])

    def by_hand(form: str, llama: CachedLlama) -> Callable[[int], None]:
        def run(positions: int) -> None:
            start = llama.start(prompts, length - PROMPT)
            tokens[form] = np.concatenate([start[:, None], llama.advance(positions - PROMPT - 1)], 1)

        return run

    sides: dict[str, Callable[[int], None]] = {"tempo": ours}
    sides |= {f"JAX by hand, {form}": by_hand(form, CachedLlama(config, on_device, frequencies, form)) for form in FORMS}
    for side, run in sides.items():
        start = time.perf_counter()
        run(length)
        compile_seconds[side] = time.perf_counter() - start  # with one run, which is taken off below
    try:
        from benchmarks.peers.torch_llama import Decoding
    except ModuleNotFoundError as error:
        results.skip(f"{name}: transformers ({error}; pip install 'tempo-dl[torch]')")
    else:
        decoding = Decoding(config, weights, "cuda" if jax.default_backend() == "gpu" else "cpu")
        threads = decoding.choose_threads(prompts, min(length - PROMPT, 16))
        say(f"{name}: transformers runs with {threads} threads, the fastest of what was tried")

        def transformers(positions: int) -> None:
            tokens["transformers"] = decoding.run(prompts, positions - PROMPT)

        sides["transformers"] = transformers
    if window is not None:
        windowed = Generator(config, on_device, Attention.parse(f"window={window}"))
        sides[f"tempo, window of {window}"] = lambda positions: generated(windowed, positions)
    short = in_turn({side: partial(run, first) for side, run in sides.items()}, results.options.turns) if first else {}
    long = in_turn({side: partial(run, length) for side, run in sides.items()}, results.options.turns)
    compile_seconds = {side: max(seconds - min(long[side]), 0.0) for side, seconds in compile_seconds.items()}
    beyond = {side: [a - b for a, b in zip(long[side], short.get(side, [0.0] * len(long[side])), strict=True)] for side in sides}
    figures = compared(beyond, length - first, 1e3)
    show(f"{name}: {rows} rows, {length} positions", figures, "ms/token")
    say("  compile seconds: " + ", ".join(f"{who} {each:.1f}" for who, each in compile_seconds.items()))
    same = {who: float((others == tokens["tempo"]).mean()) for who, others in tokens.items() if who != "tempo"}
    say("  tokens as Tempo's: " + ", ".join(f"{who} {share:.0%}" for who, share in same.items()))
    results.add(
        name,
        parameters=sum(w.size for w in weights.values()),
        rows=rows,
        length=length,
        first=first,
        ms_per_token=with_best(figures),
        compile_seconds=compile_seconds,
        same_tokens=same,
    )


def with_best(figures: Mapping[str, Mapping[str, float]]) -> dict[str, Mapping[str, float]]:
    """Figures by side, in which "JAX by hand" are those of the fastest of its forms."""
    forms = [side for side in figures if side.startswith("JAX by hand, ")]
    best = min(forms, key=lambda side: figures[side]["median"])
    ours = {"tempo": figures["tempo"], "JAX by hand": figures[best]}
    return ours | {side: row for side, row in figures.items() if side != "tempo"}


if __name__ == "__main__":
    main()
