"""Gymnasium environments as recurrent tensors: host functions that step all environments of the batch at once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

import tempo_core as tp
from tempo_rl.env.program import Batch
from tempo_rl.env.transition import Transition
from tempo_rl.env.vector import HostVectorEnvironment


class GymnasiumEnv:
    """A host vector environment over the batch step `b`.

    `reset(domain)` and `step(action)` give tensors of one environment, with b in their domain. Episodes restart by
    themselves within a rollout. `reset(domain=(b,))` starts once and lets rollouts continue from iteration to iteration;
    `reset(domain=(b, i))` starts afresh every iteration.
    """

    def __init__(self, host: HostVectorEnvironment, batch: Batch):
        self.host, self._batch = host, batch
        self.num_envs, self.observations, self.actions = host.num_envs, host.observations, host.actions
        self._clock: tp.Recurrence | None = None  # counts the steps before a reset; reading it makes the reset run after them
        self._steps_taken = 0

    def reset(self, domain: Sequence[tp.Expr]) -> tp.Tensor:
        """First observations, over `domain`, which must hold the batch step."""
        b, size = self._batch
        outer = tuple(step for step in domain if not step.steps <= b.steps)
        self._clock = tp.recurrence((), "int32", domain=outer, name="clock") if outer else None
        clock = tp.constant(np.int32(0)) if self._clock is None else self._clock
        spec = tp.spec((size, *self.observations.shape), self.observations.dtype)
        (observation,) = tp.udf(self._reset, clock, outputs=[spec], kind="host", stateful=True, name="reset")
        return observation.index(0, b)

    def step(self, action: tp.Tensor) -> Transition[tp.Tensor]:
        """One step of every environment with `action`, whose domain holds the batch step and the loops."""
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
        return {**self.host.state(), "steps_taken": np.asarray(self._steps_taken)}

    def restore(self, arrays: Mapping[str, np.ndarray]) -> None:
        """Go on from what `state` gave: a resumed run calls it."""
        self.host.restore({name: array for name, array in arrays.items() if name != "steps_taken"})
        self._steps_taken = int(arrays["steps_taken"])

    def _reset(self, clock: np.ndarray) -> tuple[np.ndarray]:
        self._steps_taken = int(clock)
        return (self.host.reset(int(clock)),)

    def _step(self, action: np.ndarray) -> tuple[np.ndarray, ...]:
        self._steps_taken += 1
        return (*self.host.step(action), np.asarray(self._steps_taken, np.int32))
