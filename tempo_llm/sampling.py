"""How the next token is chosen from the logits, as recurrent tensors."""

from __future__ import annotations

import tempo_core as tp
from tempo_core import Tensor


def greedy(logits: Tensor) -> Tensor:
    """The most likely token (the first of equals): int32 scalar from logits of shape (vocabulary,)."""
    return logits.argmax(-1)


def at_temperature(logits: Tensor, temperature: Tensor) -> Tensor:
    """A token drawn with probability softmax(logits / temperature): int32 scalar.

    The draw is a function of the run's seed, the row and the position, so that one seed gives one text. `temperature`
    (> 0) is a tensor, so that another temperature needs no other program.
    """
    return tp.random.categorical(logits / temperature)
