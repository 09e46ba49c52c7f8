"""The first token after a prompt: Tempo, with and without the pass `split`, against a hand-written batched prefill in JAX.

The program writes prompt and text as one tensor: `token[t] = prompt[t]` for t < P, chosen by the model after it. Without `split`, it takes the
prompt token by token. Random weights; all sides choose the same token.

    python -m benchmarks.prefill [--quick] [--out FILE]
"""

from __future__ import annotations

import time
from typing import Any

import numpy as np

from benchmarks.common import Results, arguments, compared, in_turn, say, show

# (size, rows, positions of the prompt, new tokens)
CASES = [("5M", 1, 512, 1), ("100M", 1, 128, 1), ("100M", 1, 512, 1), ("100M", 4, 128, 1)]
QUICK = [("tiny", 2, 16, 2)]


def main() -> None:
    from benchmarks.decode import random_model

    options = arguments(__doc__ or "")
    results = Results("prefill", options)
    for size, rows, prompt, new in QUICK if options.quick else CASES:
        name = f"{size} rows={rows} prompt={prompt}"
        if results.selects(name):
            prefill(results, name, *random_model(size), rows, prompt, new)
    results.finish()


def prefill(results: Results, name: str, config: Any, weights: dict[str, np.ndarray], rows: int, count: int, new: int) -> None:
    """Milliseconds to the first token, for each side; are the tokens the same?"""
    import jax

    import tempo_core as tp
    from benchmarks.decode import with_best
    from benchmarks.peers.jax_cached import FORMS, CachedLlama
    from tempo_core.nn import inverse_frequencies

    prompt = np.random.default_rng(1).integers(3, config.vocab_size, (rows, count)).astype(np.int32)
    tokens: dict[str, np.ndarray] = {}
    ctx, bounds, token = traced(config)
    numbers = dict(zip(bounds, (rows, count, count + new, config.num_hidden_layers), strict=True))
    device = {key: jax.device_put(value) for key, value in weights.items()}

    def ours(side: str, disable: tuple[str, ...]) -> Any:
        start = time.perf_counter()
        program = ctx.compile(numbers, [token], tp.Config(disable=disable)).bind(device)
        program.run({"prompt": prompt})
        say(f"  {name}: {side} compiled and run once in {time.perf_counter() - start:.1f} s")

        def run() -> None:
            tokens[side] = np.asarray(program.run({"prompt": prompt})[0])[:, count]

        return run

    frequencies = inverse_frequencies(config.head_dim, config.rope_theta, config.rope_scaling)

    def by_hand(form: str, llama: CachedLlama) -> Any:
        def run() -> None:
            tokens[form] = llama.start(prompt, new)
            jax.block_until_ready(llama.caches)

        return run

    sides = {"tempo": ours("tempo", ())}
    sides |= {f"JAX by hand, {form}": by_hand(form, CachedLlama(config, device, frequencies, form)) for form in FORMS}
    sides["tempo, not split"] = ours("tempo, not split", ("split",))
    figures = compared(in_turn(sides, results.options.turns), 1, 1e3)
    show(f"{name}: the first token", figures, "ms")
    same = all(np.array_equal(each, tokens["tempo"]) for each in tokens.values())
    say(f"  all sides choose the same token: {same}")
    results.add(name, rows=rows, prompt=count, ms=with_best(figures), same_tokens=same)


def traced(config: Any) -> tuple[Any, tuple[Any, ...], Any]:
    """The decoding program of a model: its context, its bounds (rows, prompt, positions, layers), and the tokens."""
    import tempo_core as tp
    from tempo_llm.attention import Attention
    from tempo_llm.llama import FLOAT32, Llama
    from tempo_llm.stacks import stacks_of
    from tempo_llm.times import Points

    context = tp.Context("b", "p", "t", "l")
    with context as ((b, B), (p, P), (t, T), (layer, L)):
        prompt = tp.input("prompt", (), "int32", domain=(b, p))
        model = Llama(config, stacks_of(config, Attention()), [layer], FLOAT32)
        token = tp.recurrence((), "int32", domain=(b, t), name="token")
        token[b, t < P] = prompt[b, t]
        token[b, t] = model.logits(model.after(token, (b, t), Points(t, T))).argmax(-1).astype("int32")[b, t - 1]
    return context, (B, P, T, L), token


if __name__ == "__main__":
    main()
