"""The results of one environment step, in one order everywhere: as arrays or as recurrent tensors."""

from __future__ import annotations

from typing import Generic, NamedTuple, TypeVar

import numpy as np

import tempo_core as tp

Value = TypeVar("Value", tp.Tensor, np.ndarray)


class Transition(NamedTuple, Generic[Value]):
    """A step of B environments (arrays with B leading), or of one (recurrent tensors over the batch step).

    `observation` is the observation for the next action: where an episode ended, the first one of the next episode.
    `final_observation` is always the true successor of the action. Values bootstrap from it where `truncated`; nothing
    bootstraps where `terminated`. `episode_return` and `episode_length` count the episode up to and including this step:
    at the end of an episode, they are its totals.
    """

    observation: Value
    reward: Value  # float32
    terminated: Value  # bool
    truncated: Value  # bool
    final_observation: Value
    episode_return: Value  # float32
    episode_length: Value  # int32
