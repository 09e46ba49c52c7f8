"""What one step of a vector environment gives, in one order everywhere: for arrays and for recurrent tensors."""

from __future__ import annotations

from typing import Any, NamedTuple


class Transition(NamedTuple):
    """A step of B environments (arrays with B leading), or of one (recurrent tensors over the batch step).

    `observation` is what the next action answers: where an episode ended, already the next episode's first observation.
    `final_observation` is the true successor of the action in every case; values bootstrap from it where `truncated`, and
    nothing bootstraps where `terminated`. `episode_return` and `episode_length` count the episode so far, this step
    included, so that they are the episode's totals where it ended.
    """

    observation: Any
    reward: Any  # float32
    terminated: Any  # bool
    truncated: Any  # bool
    final_observation: Any
    episode_return: Any  # float32
    episode_length: Any  # int32
