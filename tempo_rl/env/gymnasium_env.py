"""Gymnasium environments as recurrent tensors: host functions that step all environments of the batch at once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

import tempo_core as tp
from tempo_rl.env.program import Batch
from tempo_rl.env.transition import Transition
from tempo_rl.env.vector import HostVectorEnvironment
from tempo_rl.errors import EnvError


class GymnasiumEnv:
    """A host vector environment over the batch step `b`.

    `reset(domain)` and `step(action)` give tensors of one environment, with b in their domain. Episodes restart by
    themselves within a rollout. `reset(domain=(b,))` starts once and lets rollouts continue from iteration to iteration;
    `reset(domain=(b, i))` starts afresh every iteration.

    With `may_restart`, a run with environments that do not say what their state is can be saved too: when it is resumed, the episodes that
    were running are truncated, without a reward, and new ones begin. `restarts` says why; it is empty where the state is known.
    """

    def __init__(self, host: HostVectorEnvironment, batch: Batch, may_restart: bool = False, members: int = 1):
        """The environments of many `members` are one vector, those of each member one after the other."""
        self.takes_copies, self._members, host.members = members > 1, members, members
        self.host, self._batch, self._may_restart = host, batch, may_restart
        self.restarts = ""
        self._last: np.ndarray | None = None  # the observations after the last step or reset
        self._lost: Mapping[str, np.ndarray] | None = None  # the end of episodes that a resumed run cannot go on with
        self.num_envs, self.observations, self.actions = host.num_envs // members, host.observations, host.actions
        self._clock: tp.Recurrence | None = None  # counts the steps before a reset; reading it makes the reset run after them
        self._steps_taken = 0

    def never_ends_within(self, num_steps: int) -> bool:
        """Whether no episode that begins with a rollout ends before its last step: Gymnasium does not say."""
        return False

    def reset(self, domain: Sequence[tp.Expr]) -> tp.Tensor:
        """First observations, over `domain`, which must hold the batch step."""
        b, size = self._batch
        outer = tuple(step for step in domain if not step.steps <= b.steps)
        self._clock = tp.recurrence((), "int32", domain=outer, name="clock") if outer else None
        clock = tp.constant(np.int32(0)) if self._clock is None else self._clock
        spec = tp.spec((size, *self.observations.shape), self.observations.dtype)
        (observation,) = tp.udf(self._reset, clock, outputs=[spec], kind="host", stateful=True, name="reset")
        return observation.index(0, b)

    def step(self, action: tp.Tensor, restarts: bool = True) -> Transition[tp.Tensor]:
        """One step of every environment with `action`, whose domain holds the batch step and the loops. Ended episodes always restart."""
        b, size = self._batch
        steps = action.domain.steps
        together = action[tuple(slice(0, size) if step in b.steps else step.expr for step in steps)]
        observation = tp.spec((size, *self.observations.shape), self.observations.dtype)
        number, count, flag = (tp.spec((size,), dtype) for dtype in ("float32", "int32", "bool"))
        outputs = [observation, number, flag, flag, observation, number, count, tp.spec((), "int32")]
        *parts, clock = tp.udf(self._step, together, outputs=outputs, kind="host", stateful=True, name="step")
        if self._clock is not None:
            outer = self._clock.domain.steps
            at_end = [step.expr if step in outer else step.bound_expr - 1 for step in clock.domain.steps]
            tp.carry(self._clock, 0, clock[tuple(at_end)])
        return Transition(*(part.index(0, b) for part in parts))

    def close(self) -> None:
        self.host.close()

    def state(self) -> dict[str, np.ndarray]:
        """The state of all environments, which a saved run holds. Raises EnvError for environments that do not say what it is."""
        try:
            state = self.host.state()
        except EnvError as error:
            if not self._may_restart:
                raise EnvError(f"{error.message}, so that the run cannot be saved", hint=error.hint) from error
            self.restarts = error.message
            last = (
                np.zeros((self.host.num_envs, *self.observations.shape), self.observations.dtype)
                if self._last is None
                else self._last
            )
            state = {"last": last, **self.host.running()}
        return {**state, "steps_taken": np.asarray(self._steps_taken)}

    def restore(self, arrays: Mapping[str, np.ndarray]) -> None:
        """Go on from what `state` gave: a resumed run calls it."""
        self._steps_taken = int(arrays["steps_taken"])
        if "last" in arrays:
            self._lost = arrays
        else:
            self.host.restore({name: array for name, array in arrays.items() if name != "steps_taken"})

    def _reset(self, clock: np.ndarray) -> tuple[np.ndarray]:
        self._steps_taken, self._lost = int(np.ravel(clock)[0]), None
        self._last = self.host.reset(self._steps_taken)
        return (self._by_member(self._last),)

    def _by_member(self, values: np.ndarray) -> np.ndarray:
        """Values of all environments, with the members as first dimension, if there are several."""
        return values.reshape(self._members, self.num_envs, *values.shape[1:]) if self.takes_copies else values

    def _step(self, action: np.ndarray) -> tuple[np.ndarray, ...]:
        self._steps_taken += 1
        flat = action.reshape(self.host.num_envs, *action.shape[2:]) if self.takes_copies else action
        step = self.host.step(flat) if self._lost is None else self._cut(self._lost)
        self._last = step.observation
        clock = np.full((self._members,) if self.takes_copies else (), self._steps_taken, np.int32)
        return (*map(self._by_member, step), clock)

    def _cut(self, lost: Mapping[str, np.ndarray]) -> Transition[np.ndarray]:
        """A step without a reward that truncates all episodes where they were, and begins new ones."""
        self._lost, size = None, self.host.num_envs
        first, no = self.host.reset(self._steps_taken), np.zeros(size, bool)
        returns = lost["returns"].astype(np.float32)
        return Transition(first, np.zeros(size, np.float32), no, ~no, lost["last"], returns, lost["lengths"])
