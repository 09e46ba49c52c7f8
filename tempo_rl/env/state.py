"""The state of one Gymnasium environment on the host, with its wrappers, as arrays by name, so that a saved run can go on.

A *layer* is the environment itself, or one of its wrappers. The layers of Gymnasium whose state is known are rows of `ATTRIBUTES`.
Layers of your own have `state() -> arrays by name` and `restore(arrays)`. The random generator of the environment
(`self.np_random`) is saved for all environments.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from functools import reduce
from typing import TYPE_CHECKING, Any, TypeAlias

import gymnasium
import numpy as np

from tempo_rl.env.watched import Watched
from tempo_rl.errors import EnvError, own_line

if TYPE_CHECKING:
    Environment: TypeAlias = gymnasium.Env[Any, Any]

Arrays: TypeAlias = Mapping[str, np.ndarray]

# What resets and steps assign: later steps and pictures depend on it.
ATTRIBUTES: dict[str, tuple[str, ...]] = {
    "gymnasium.envs.classic_control.acrobot:AcrobotEnv": ("state",),
    "gymnasium.envs.classic_control.cartpole:CartPoleEnv": ("state", "steps_beyond_terminated"),
    "gymnasium.envs.classic_control.continuous_mountain_car:Continuous_MountainCarEnv": ("state",),
    "gymnasium.envs.classic_control.mountain_car:MountainCarEnv": ("state",),
    "gymnasium.envs.classic_control.pendulum:PendulumEnv": ("state", "last_u"),
    "gymnasium.envs.toy_text.blackjack:BlackjackEnv": (
        "dealer", "player", "dealer_top_card_suit", "dealer_top_card_value_str",
    ),
    "gymnasium.envs.toy_text.cliffwalking:CliffWalkingEnv": ("s", "lastaction"),
    "gymnasium.envs.toy_text.frozen_lake:FrozenLakeEnv": ("s", "lastaction"),
    "gymnasium.envs.toy_text.taxi:TaxiEnv": ("s", "lastaction", "fickle_step", "taxi_orientation"),
    "gymnasium.wrappers.common:OrderEnforcing": ("_has_reset",),
    "gymnasium.wrappers.common:PassiveEnvChecker": ("checked_reset",),
    "gymnasium.wrappers.common:TimeLimit": ("_elapsed_steps",),
    "gymnasium.wrappers.stateful_observation:NormalizeObservation": ("obs_rms.mean", "obs_rms.var", "obs_rms.count"),
    "gymnasium.wrappers.stateful_observation:TimeAwareObservation": ("timesteps",),
    "gymnasium.wrappers.stateful_reward:NormalizeReward": (
        "return_rms.mean", "return_rms.var", "return_rms.count", "discounted_reward",
    ),
    "gymnasium.wrappers.transform_action:ClipAction": (),
    "gymnasium.wrappers.transform_action:RescaleAction": (),
    "gymnasium.wrappers.transform_observation:DtypeObservation": (),
    "gymnasium.wrappers.transform_observation:FlattenObservation": (),
    "gymnasium.wrappers.transform_observation:RescaleObservation": (),
    "gymnasium.wrappers.transform_observation:ReshapeObservation": (),
    "gymnasium.wrappers.transform_reward:ClipReward": (),
}  # fmt: skip
_BIT_GENERATORS: dict[str, type[Any]] = {kind.__name__: kind for kind in np.random.BitGenerator.__subclasses__()}
PLAIN = (type(None), bool, int, float, str)  # Python's own, which JSON keeps exactly; arrays keep the dtypes of all others


def state_of(env: Environment) -> dict[str, np.ndarray]:
    """The state of an environment and its wrappers; `restore_state` takes it back.

    Raises EnvError for a layer that does not say what its state is.
    """
    layers = list(_layers(env))
    values = {f"{at}.{type(layer).__name__}.{name}": value for at, layer in enumerate(layers) for name, value in _values(layer)}
    generator = env.unwrapped._np_random
    text = {
        "layers": [type(layer).__name__ for layer in layers],
        "numbers": {name: value for name, value in values.items() if _is_plain(value)},
        "seed": env.unwrapped._np_random_seed,
        "random": None if generator is None else generator.bit_generator.state,
    }
    arrays = {name: _array(f"{name} of {env}", value) for name, value in values.items() if not _is_plain(value)}
    return {"text": np.frombuffer(json.dumps(text, default=np.ndarray.tolist).encode(), np.uint8), **arrays}


def _is_plain(value: object) -> bool:
    """Whether JSON keeps a value exactly: a number or text of Python's own, or a list of them."""
    return type(value) in PLAIN or isinstance(value, str) or (type(value) is list and all(type(part) in PLAIN for part in value))


def _array(name: str, value: object) -> np.ndarray:
    """A copy of a part of a state. Raises EnvError for what a file of arrays does not hold."""
    with suppress(ValueError):  # lists of different lengths
        array = np.array(value)
        if array.dtype.kind in "biufcmM":
            return array
    raise EnvError(f"{name} is not a number or an array of numbers: {value!r}")


def restore_state(env: Environment, arrays: Arrays) -> None:
    """Put back what `state_of` gave, also in another process. Raises EnvError if it is of other wrappers."""
    layers = list(_layers(env))
    text = json.loads(np.asarray(arrays["text"]).tobytes())
    names = [type(layer).__name__ for layer in layers]
    if text["layers"] != names:
        raise EnvError(
            f"the saved state belongs to {' around '.join(text['layers'])}, but this environment is {' around '.join(names)}",
            hint="make the environment with the same wrappers as then",
        )
    values = {**text["numbers"], **{name: np.array(array)[()] for name, array in arrays.items() if name != "text"}}
    for at, layer in enumerate(layers):
        prefix = f"{at}.{type(layer).__name__}."
        _put_back(layer, {name[len(prefix) :]: value for name, value in values.items() if name.startswith(prefix)})
    inner = env.unwrapped
    inner._np_random, inner._np_random_seed = None, text["seed"]
    if text["random"] is not None:
        bits = _BIT_GENERATORS[text["random"]["bit_generator"]]()
        bits.state = text["random"]
        inner._np_random = np.random.Generator(bits)


class _Remembering(Watched):
    """A layer around all others, whose attribute is the state of all: for environments in other processes."""

    @property
    def saved_state(self) -> Arrays | EnvError:
        """The state, or the reason why there is none: an exception would end the process."""
        try:
            return state_of(self.env)
        except EnvError as error:
            return error

    @saved_state.setter
    def saved_state(self, arrays: Arrays | EnvError) -> None:
        assert not isinstance(arrays, EnvError)
        restore_state(self.env, arrays)


def _layers(env: Environment) -> Iterator[Environment]:
    """The wrappers from the outside in, then the environment."""
    while isinstance(env, gymnasium.Wrapper):
        yield env
        env = env.env
    yield env


def _attributes(layer: Environment) -> tuple[str, ...] | None:
    """The attributes with a layer's state, or None if it has `state` and `restore` of its own. A subclass may have more state."""
    kind = type(layer)
    attributes = ATTRIBUTES.get(f"{kind.__module__}:{kind.__qualname__}")
    if attributes is None and not all(callable(getattr(kind, name, None)) for name in ("state", "restore")):
        what = "wrapper" if isinstance(layer, gymnasium.Wrapper) else "environment"
        spec = layer.unwrapped.spec
        of = f" of {spec.id}" if spec is not None else ""
        raise EnvError(
            f"the {what} {kind.__qualname__}{of} does not say what its state is",
            hint="give the class two methods: state() -> arrays by name, and restore(arrays)",
        )
    return attributes


def _values(layer: Any) -> Iterator[tuple[str, Any]]:
    """The parts of a layer's state. An attribute that is not there yet comes with the first reset."""
    attributes = _attributes(layer)
    if attributes is None:
        state = _called(layer, "state", layer.state)
        if not isinstance(state, Mapping):
            raise EnvError(f"{type(layer).__qualname__}.state() gives {state!r}", hint='return arrays by name: {"place": array}')
        yield from state.items()
        return
    for name in attributes:
        owner, last = _owner(layer, name)
        if hasattr(owner, last):
            yield name, getattr(owner, last)


def _put_back(layer: Any, values: Mapping[str, Any]) -> None:
    if _attributes(layer) is None:
        _called(layer, "restore", lambda: layer.restore(values))
        return
    for name, value in values.items():
        owner, last = _owner(layer, name)
        setattr(owner, last, value)
    if isinstance(layer, gymnasium.wrappers.PassiveEnvChecker) and layer.checked_reset:
        layer.checked_step = layer.checked_data_reuse = True  # it would compare the next step with a reset that it did not see


def _called(layer: object, function: str, call: Callable[[], Any]) -> Any:
    """What a function of a layer gives. Raises EnvError, with the user's line, for what it raises."""
    try:
        return call()
    except Exception as error:
        what = f"{type(error).__name__}: {error}{own_line(error)}"
        raise EnvError(f"{type(layer).__qualname__}.{function}() raised {what}") from error


def _owner(layer: object, name: str) -> tuple[object, str]:
    """The object that has an attribute, and the attribute's last name: `obs_rms.mean` is an attribute of `layer.obs_rms`."""
    *path, last = name.split(".")
    return reduce(getattr, path, layer), last
