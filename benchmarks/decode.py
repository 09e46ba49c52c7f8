"""Decoding of a random Llama: tempo-llm against a hand-written jitted JAX loop with a static cache, and against transformers.

Nothing is downloaded. Milliseconds per token are means over a whole run, prompt included: Tempo and the JAX loop compute a run in
one device program, with a cache of the run's length; the cache of transformers grows. `benchmarks.llm` has the time of a token at a
position, the first token after a prompt, and further systems.

    python -m benchmarks.decode [--quick] [--out FILE]
"""

from __future__ import annotations

import time
from typing import Any

import numpy as np

from benchmarks.common import Results, arguments, compared, in_turn, say, show

SIZES: dict[str, dict[str, int]] = {
    "tiny": {"vocab_size": 256, "hidden_size": 64, "intermediate_size": 128, "layers": 2, "heads": 4, "groups": 2},
    "5M": {"vocab_size": 4096, "hidden_size": 256, "intermediate_size": 768, "layers": 4, "heads": 8, "groups": 4},
    "32 heads": {"vocab_size": 4096, "hidden_size": 1024, "intermediate_size": 2048, "layers": 2, "heads": 32, "groups": 32},
    "100M": {"vocab_size": 16384, "hidden_size": 768, "intermediate_size": 2048, "layers": 12, "heads": 12, "groups": 12},
}
# (size, rows, positions)
CASES = [("tiny", 1, 128), ("5M", 1, 256), ("5M", 1, 1024), ("5M", 4, 256), ("100M", 1, 128), ("100M", 1, 512)]
CURVE = [("5M", length) for length in (128, 256, 512, 1024, 2048, 4096)]  # (size, positions), also with a window
WINDOW = 128
QUICK = [("tiny", 2, 16)]
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
    results: Results, name: str, config: Any, weights: dict[str, np.ndarray], rows: int, length: int, window: int | None = None
) -> None:
    """Milliseconds per token of a greedy run over `length` positions, and compile seconds, for each side; do the tokens agree?

    With `window`, one more side is Tempo whose layers attend to that many positions: another model, whose tokens are not compared.
    """
    import jax

    from benchmarks.peers.jax_llama import make_decoder, split_layers
    from tempo_core.nn import inverse_frequencies
    from tempo_llm.attention import Attention
    from tempo_llm.generate import Generator

    random = np.random.default_rng(1)
    prompts = random.integers(3, config.vocab_size, (rows, PROMPT)).astype(np.int32)
    tokens: dict[str, np.ndarray] = {}

    on_device = {key: jax.device_put(value) for key, value in weights.items()}
    generator = Generator(config, on_device)
    listed, new = prompts.tolist(), length - PROMPT

    def ours() -> None:
        generation = generator.generate(listed, new, max_context=length)
        tokens["tempo"] = np.asarray([completion.token_ids for completion in generation.completions])

    start = time.perf_counter()
    first = generator.generate(listed, new, max_context=length)  # traces and compiles
    compile_seconds = {"tempo": time.perf_counter() - start - first.run_seconds}
    parts = split_layers(weights, config.num_hidden_layers)
    frequencies = inverse_frequencies(config.head_dim, config.rope_theta, config.rope_scaling)
    padded = np.zeros((rows, length), np.int32)
    padded[:, :PROMPT] = prompts
    lengths = np.full(rows, PROMPT, np.int32)
    start = time.perf_counter()
    compiled = make_decoder(config, frequencies, length).lower(parts, padded, lengths).compile()
    compile_seconds["JAX by hand"] = time.perf_counter() - start

    def by_hand() -> None:
        tokens["JAX by hand"] = np.asarray(compiled(parts, padded, lengths))[:, PROMPT:]

    sides: dict[str, Any] = {"tempo": ours, "JAX by hand": by_hand}
    try:
        from benchmarks.peers.torch_llama import Decoding
    except ModuleNotFoundError as error:
        results.skip(f"{name}: transformers ({error}; pip install 'tempo-dl[torch]')")
    else:
        decoding = Decoding(config, weights, "cuda" if jax.default_backend() == "gpu" else "cpu")
        say(
            f"{name}: transformers runs with {decoding.choose_threads(prompts, min(new, 16))} threads, the fastest of what was tried"
        )

        def transformers() -> None:
            tokens["transformers"] = decoding.run(prompts, new)

        sides["transformers"] = transformers
    if window is not None:
        windowed = Generator(config, on_device, Attention.parse(f"window={window}"))
        sides[f"tempo, window of {window}"] = lambda: windowed.generate(listed, new, max_context=length)
    seconds = in_turn(sides, results.options.turns)
    figures = compared(seconds, length, 1e3)
    show(f"{name}: {rows} rows, {length} positions", figures, "ms/token")
    say("  compile seconds: " + ", ".join(f"{who} {each:.1f}" for who, each in compile_seconds.items()))
    same = {who: float((others == tokens["tempo"]).mean()) for who, others in tokens.items() if who != "tempo"}
    say("  tokens as Tempo's: " + ", ".join(f"{who} {share:.0%}" for who, share in same.items()))
    results.add(
        name,
        parameters=sum(w.size for w in weights.values()),
        rows=rows,
        length=length,
        ms_per_token=figures,
        compile_seconds=compile_seconds,
        temporary_bytes={"JAX by hand": compiled.memory_analysis().temp_size_in_bytes},
        same_tokens=same,
    )


if __name__ == "__main__":
    main()
