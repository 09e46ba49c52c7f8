"""Attention masks as plain functions of two positions: the oracle of `tempo_llm.attention.PATTERNS`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Sample:
    """A pattern with sizes: its spelling, and its mask, a function of positions q, k and the sizes: does q attend to k?"""

    spelling: str
    mask: Callable[..., bool]
    sizes: dict[str, int] = field(default_factory=dict)

    def attends(self, q: int, k: int) -> bool:
        return self.mask(q, k, **self.sizes)


SAMPLES = {  # a row for each row of PATTERNS, under the same key
    "full": Sample("full", lambda q, k: k <= q),
    "causal": Sample("causal", lambda q, k: k <= q),
    "window=W": Sample("window=3", lambda q, k, window: q - window < k <= q, {"window": 3}),
    "window=W+sink=K": Sample(
        "window=3+sink=2", lambda q, k, window, sink: k <= q and (k < sink or k > q - window), {"window": 3, "sink": 2}
    ),
    "block=B": Sample("block=4", lambda q, k, block: k <= q and k // block == q // block, {"block": 4}),
    "dilated=D": Sample("dilated=3", lambda q, k, gap: k <= q and (q - k) % gap == 0, {"gap": 3}),
    "dilated=D+window=W": Sample(
        "dilated=2+window=3",
        lambda q, k, gap, taps: k <= q and (q - k) % gap == 0 and (q - k) // gap < taps,
        {"gap": 2, "taps": 3},
    ),
}
