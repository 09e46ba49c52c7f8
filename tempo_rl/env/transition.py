"""What one step of a vector environment gives, in one order everywhere: for arrays and for recurrent tensors."""

from __future__ import annotations

from typing import Generic, NamedTuple, TypeVar

import numpy as np

import tempo_core as tp

Value = TypeVar("Value", tp.Tensor, np.ndarray)


class Transition(NamedTuple, Generic[Value]):
    """A step of B environments (arrays with B leading), or of one (recurrent tensors over the batch step).

    `observation` is what the next action answers: where an episode ended, already the next episode's first observation.
    `final_observation` is the true successor of the action in every case; values bootstrap from it where `truncated`, and
    nothing bootstraps where `terminated`. `episode_return` and `episode_length` count the episode so far, this step
    included, so that they are the episode's totals where it ended.
    """

    observation: Value
    reward: Value  # float32
    terminated: Value  # bool
    truncated: Value  # bool
    final_observation: Value
    episode_return: Value  # float32
    episode_length: Value  # int32
