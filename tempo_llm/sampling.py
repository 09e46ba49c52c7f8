"""The choice of the next token from the logits, as recurrent tensors."""

from __future__ import annotations

import tempo_core as tp
from tempo_core import Tensor


def greedy(logits: Tensor) -> Tensor:
    """The most likely token (of equally likely ones, the first): int32 scalar from logits of shape (vocabulary,)."""
    return logits.argmax(-1)


def at_temperature(logits: Tensor, temperature: Tensor) -> Tensor:
    """A token drawn with probability softmax(logits / temperature): int32 scalar.

    The draw is a function of the run's seed, the row and the position, so that one seed gives one text. `temperature`
    (> 0) is a tensor, so that one program serves all temperatures.
    """
    return tp.random.categorical(logits / temperature)
