"""The interface of environments inside a program, on the host or on the device: recurrent tensors in, recurrent tensors out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import tempo_core as tp
from tempo_rl.env.spaces import Actions, Observations
from tempo_rl.env.transition import Transition

Batch = tuple[tp.Expr, tp.Expr]  # the step over environments and its bound, as the context gives them


class ProgramEnvironment(Protocol):
    """Environments over a batch step, whose episodes restart by themselves."""

    num_envs: int
    observations: Observations
    actions: Actions

    def reset(self, domain: Sequence[tp.Expr]) -> tp.Tensor:
        """First observations, over `domain`, which holds the batch step. Called once, before `step`."""
        ...

    def step(self, action: tp.Tensor, restarts: bool = True) -> Transition[tp.Tensor]:
        """One step with `action`, whose domain holds the batch step and the loops.

        Without `restarts`, the caller goes on from no step that ends an episode, and it costs nothing to begin new ones: where an episode
        ends, `observation` is its last one.
        """
        ...

    def never_ends_within(self, num_steps: int) -> bool:
        """Whether no episode that begins with a rollout ends before its last step. Values of final observations are then few."""
        ...

    def close(self) -> None: ...
