"""Brax's environments in the form of `gymnasium.experimental.functional.FuncEnv`: `brax/ant`, `brax/hopper`, ..."""

from __future__ import annotations

import contextlib
import difflib
import io
import warnings
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np

from tempo_rl.errors import EnvError

if TYPE_CHECKING:
    from types import ModuleType

PREFIX = "brax/"
BACKENDS = ("generalized", "spring", "positional", "mjx")


class Brax:
    """An environment of Brax by its name, such as "inverted_pendulum"; `backend` is one of its physics engines.

    The state is one float32 vector: all arrays of `brax.envs.State`, one after the other. Each episode begins with a reset of its own random
    numbers; Brax's own `AutoResetWrapper`, which goes back to the first state of each row, is not used. Actions are between -1 and 1.
    Other keywords go to the environment's class. Raises EnvError if Brax is not installed, or has no such environment or backend.
    """

    max_episode_steps = 1000  # as in Brax's own training

    def __init__(self, name: str, backend: str = "generalized", **keywords: Any) -> None:
        envs = _brax_envs(name)
        names = sorted(envs._envs)
        if name not in names:
            close = difflib.get_close_matches(name, names, 1)
            hint = f"did you mean {PREFIX}{close[0]}?" if close else f"the names are {', '.join(names)}"
            raise EnvError(f"Brax has no environment {name!r}", hint=hint)
        if backend not in BACKENDS:
            raise EnvError(f"Brax has no backend {backend!r}", hint=f"env.kwargs.backend is one of {', '.join(BACKENDS)}")
        try:
            with warnings.catch_warnings(), _usual_promotion():
                warnings.simplefilter("ignore")  # that Brax's engines are no longer developed
                self._env: Any = envs.get_environment(name, backend=backend, **keywords)
                example = jax.eval_shape(self._env.reset, jax.ShapeDtypeStruct((2,), "uint32"))
        except (TypeError, NotImplementedError, ValueError) as error:
            raise EnvError(f"Brax cannot make {name} with backend={backend} and {keywords}: {error}") from error
        infinite = np.full(example.obs.shape, np.inf, np.float32)  # `observation_size` would run a reset
        self.observation_space = gymnasium.spaces.Box(-infinite, infinite, dtype=np.float32)
        self.action_space = gymnasium.spaces.Box(-1.0, 1.0, (int(self._env.action_size),), np.float32)
        self._leaves, self._structure = jax.tree.flatten(example)

    def initial(self, rng: jax.Array, params: None = None) -> jax.Array:
        return self._packed(self._env.reset(jax.random.key_data(rng)))

    def transition(self, state: jax.Array, action: jax.Array, rng: jax.Array, params: None = None) -> jax.Array:
        return self._packed(self._env.step(self._unpacked(state), action))

    def observation(self, state: jax.Array, rng: jax.Array, params: None = None) -> jax.Array:
        return self._unpacked(state).obs

    def reward(
        self, state: jax.Array, action: jax.Array, next_state: jax.Array, rng: jax.Array, params: None = None
    ) -> jax.Array:
        return self._unpacked(next_state).reward

    def terminal(self, state: jax.Array, rng: jax.Array, params: None = None) -> jax.Array:
        return self._unpacked(state).done > 0

    def _packed(self, state: Any) -> jax.Array:
        return jnp.concatenate([jnp.asarray(leaf, jnp.float32).reshape(-1) for leaf in jax.tree.leaves(state)])

    def _unpacked(self, packed: jax.Array) -> Any:
        """The `brax.envs.State` in a vector."""
        leaves, at = [], 0
        for leaf in self._leaves:
            size = int(np.prod(leaf.shape))
            leaves.append(packed[at : at + size].reshape(leaf.shape).astype(leaf.dtype))
            at += size
        return jax.tree.unflatten(self._structure, leaves)


@contextlib.contextmanager
def _usual_promotion() -> Iterator[None]:
    with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
        yield


def _brax_envs(name: str) -> ModuleType:
    """The module `brax.envs`, which prints what it does not find while it is imported."""
    try:
        with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            warnings.simplefilter("ignore")
            from brax import envs
    except ImportError as error:
        missing = "brax is not installed" if error.name in ("brax", None) and "brax" in str(error) else str(error)
        raise EnvError(f"{PREFIX}{name} cannot be made: {missing}", hint="pip install 'tempo-dl[brax]'") from error
    return envs
