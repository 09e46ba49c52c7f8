"""Environments that Python code gives in place of an id: an object, a function that makes one, or functions in JAX."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from types import ModuleType
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeAlias, cast, runtime_checkable

from tempo_rl.env.blocked import TIMEOUT, within
from tempo_rl.env.closing import close_quietly
from tempo_rl.env.making import explained, import_module, nearest, takes
from tempo_rl.env.registry import FUNCTIONAL, adapter_of
from tempo_rl.errors import EnvError
from tempo_rl.references import load_reference

if TYPE_CHECKING:
    import gymnasium
    import jax

    Environment: TypeAlias = gymnasium.Env[Any, Any]
    VectorEnv: TypeAlias = gymnasium.vector.VectorEnv[Any, Any, Any]
    Space: TypeAlias = gymnasium.Space[object]


@runtime_checkable
class JaxEnvironment(Protocol):
    """An environment as pure functions of JAX, in the form of `gymnasium.experimental.functional.FuncEnv`.

    A state is an array, or a pytree of arrays, numbers and keys of `jax.random` (both `key` and `PRNGKey`): tuples, dicts, dataclasses that
    JAX knows. `transition` gives the same structure, shapes and dtypes as `initial`. `rng` is a key. `params` is what `get_default_params`
    returns; both may be ignored. An attribute `max_episode_steps` says after how many steps an episode is truncated.
    """

    @property
    def observation_space(self) -> Space: ...
    @property
    def action_space(self) -> Space: ...
    def initial(self, rng: jax.Array, params: Any = None) -> object: ...
    def transition(self, state: Any, action: jax.Array, rng: jax.Array, params: Any = None) -> object: ...
    def observation(self, state: Any, rng: jax.Array, params: Any = None) -> object: ...
    def reward(self, state: Any, action: jax.Array, next_state: Any, rng: jax.Array, params: Any = None) -> jax.Array: ...
    def terminal(self, state: Any, rng: jax.Array, params: Any = None) -> jax.Array: ...


AnyObject: TypeAlias = "Environment | VectorEnv | JaxEnvironment"
AnyEnvironment: TypeAlias = "str | AnyObject | Callable[..., AnyObject]"
"""An id of Gymnasium's, an environment, a function (or class) that makes one, or an environment in JAX. `env.kwargs` are its arguments."""

UNSET = object()
Kind: TypeAlias = Literal["host", "vector", "jax"]
FUNCTIONS = ("initial", "transition", "observation", "reward", "terminal")  # of an environment in JAX
EXPECTED = (
    "an environment is a class (or a function that makes one) of gymnasium.Env, of gymnasium.vector.VectorEnv, or with the functions of "
    f"tempo_rl.JaxEnvironment: {', '.join(FUNCTIONS)}"
)


@dataclass(frozen=True)
class Source:
    """An environment by its name, with the function that makes one from its arguments.

    `kind` is "host" for an environment of Gymnasium, "vector" for many of them in one object, and "jax" for pure functions. A vector has
    `num_envs` environments, or (None) as many as `make(num_envs=...)` is asked for.
    """

    name: str
    make: Callable[..., object]
    kind: Kind = "host"
    max_episode_steps: int | None = None  # of an environment in JAX; None: its attribute says so
    num_envs: int | None = None
    # With these, Gymnasium makes the same environment by the id `name`; `make` has them already.
    arguments: Mapping[str, object] | None = None

    @property
    def is_functional(self) -> bool:
        return self.kind == "jax"


def named(env_id: str, vectorization: str = "auto", keywords: Mapping[str, Any] | None = None) -> Source:
    """The environment with an id: of a table of Tempo's, of a library (`brax/ant`), of Gymnasium (also `module:Name-v0`, whose module is
    imported first), or the object `module:name`.

    A function `module:name` is called once with `keywords`, to see what it gives. Raises `EnvError` if nothing has that id, or if it is no
    environment.
    """
    import gymnasium

    if env_id in FUNCTIONAL:
        reference, limit = FUNCTIONAL[env_id]
        return Source(env_id, _functional(reference), "jax", limit)
    if adapter_of(env_id) is not None:
        from tempo_rl.env.adapters import make_adapted

        return Source(env_id, partial(make_adapted, env_id), "jax")
    module, colon, name = env_id.partition(":")
    if colon:
        imported = import_module(module, env_id)
        if name not in gymnasium.registry:
            if not hasattr(imported, name):
                raise EnvError(f"the module {module} has no environment {name!r}", hint=_names_in(imported, name))
            return _of_object(getattr(imported, name), env_id, keywords or {})
    spec = gymnasium.registry.get(name if colon else env_id)
    has_vector_alone = spec is not None and spec.entry_point is None
    if vectorization == "vector_entry_point" or (vectorization == "auto" and has_vector_alone):
        return Source(env_id, _by_vector_entry_point(name if colon else env_id), "vector")
    return Source(env_id, partial(gymnasium.make, env_id))


def source_of(env: AnyEnvironment, keywords: Mapping[str, Any] | None = None) -> Source | None:
    """Where copies of an environment come from; None for an id. `keywords` are its arguments: one is made with them, and tried.

    Raises EnvError for what is no environment.
    """
    import gymnasium

    if isinstance(env, str):
        return None
    keywords = keywords or {}
    if isinstance(env, (gymnasium.Env, gymnasium.vector.VectorEnv)):
        name = _name(env)
        if keywords:
            raise EnvError(
                f"{name} is made already, so that it takes no arguments {dict(keywords)}",
                hint="give its class, or a function that makes one",
            )
        if isinstance(env, gymnasium.vector.VectorEnv) and (alone := _alone(env)) is not None:
            return Source(name, alone, num_envs=int(env.num_envs))
        make = _copies_of(env)
        if isinstance(env, gymnasium.vector.VectorEnv):
            return Source(name, make, "vector", num_envs=int(env.num_envs))
        _check(cast("Environment", make()), name)
        name, arguments = _registered(env, name)
        return Source(name, lambda **_: make(), arguments=arguments)
    if not isinstance(env, type) and _is_in_jax(env):
        return Source(type(env).__name__, lambda: env, "jax")
    if not callable(env):
        raise EnvError(
            f"{env!r} is not an environment",
            hint='give an id ("CartPole-v1"), a gymnasium.Env, a function that makes one, or an environment in JAX',
        )
    name = str(getattr(env, "__name__", type(env).__name__))
    if isinstance(env, type) and issubclass(env, gymnasium.vector.VectorEnv):
        return Source(name, env, "vector")
    if isinstance(env, type) and _is_in_jax(env):
        return Source(name, env, "jax")
    return _of_call(env, name, keywords)


def _of_call(function: Callable[..., object], name: str, keywords: Mapping[str, Any]) -> Source:
    """What a class or function makes, from one example."""
    import gymnasium

    ours = {key: value for key, value in keywords.items() if key != "max_episode_steps" or takes(function, key)}
    amount = {"num_envs": 1} if takes(function, "num_envs", by_name=True) else {}
    with explained(name, ours):
        example = within(TIMEOUT, f"{name}()", lambda: function(**amount, **ours))
    if isinstance(example, gymnasium.vector.VectorEnv):
        number, alone = None if amount else int(example.num_envs), _alone(example)
        close_quietly(example, f"the environment {name}")
        if alone is not None:
            return Source(_name(example), alone, num_envs=number)
        return Source(_name(example), function, "vector", num_envs=number)
    if isinstance(example, gymnasium.Env):
        name = _name(example)
        _check(example, name)
        return Source(name, function)
    if not isinstance(example, type) and _is_in_jax(example):
        return Source(type(example).__name__, function, "jax")
    raise EnvError(f"{name}() gives {example!r}, which is not an environment: {_lacks(example)}", hint=EXPECTED)


def _of_object(env: Any, reference: str, keywords: Mapping[str, Any]) -> Source:
    """The environment that a recipe names as `module:name`. What it is, is looked at; a class is not called for it."""
    import gymnasium

    if isinstance(env, type) and issubclass(env, gymnasium.Env):
        return Source(reference, env)
    is_vector = issubclass(env, gymnasium.vector.VectorEnv) if isinstance(env, type) else False
    if isinstance(env, type) and not is_vector and not _is_in_jax(env):
        raise EnvError(f"{reference} is the class {env.__name__}, which is not an environment: {_lacks(env)}", hint=EXPECTED)
    if not callable(env) and not _is_environment(env):
        raise EnvError(f"{reference} is {env!r}, which is not an environment: {_lacks(env)}", hint=EXPECTED)
    return replace(cast("Source", source_of(env, keywords if not _is_in_jax(env) else None)), name=reference)


def _functional(reference: str) -> Callable[..., object]:
    """A class of a table of Tempo's."""
    try:
        return load_reference(reference)
    except EnvError as error:
        if isinstance(error.__cause__, ModuleNotFoundError) and error.__cause__.name == "flax":
            message = f"{reference}: Gymnasium's functional environments need flax"
            raise EnvError(message, hint="pip install 'tempo-dl[rl]'") from error
        raise


def _by_vector_entry_point(env_id: str) -> Callable[..., object]:
    """A function that makes Gymnasium's vector environment of an id, whose episodes restart in the step that ends them if it can do that."""
    import gymnasium
    from gymnasium.envs.registration import load_env_creator

    def make(num_envs: int = 1, **keywords: Any) -> object:
        entry = gymnasium.spec(env_id).vector_entry_point
        creator: Any = load_env_creator(entry) if isinstance(entry, str) else entry
        more: dict[str, Any] = same_step(creator, keywords) if creator is not None else {}
        more |= {"vectorization_mode": "vector_entry_point", **keywords}
        return gymnasium.make_vec(env_id, num_envs, **more)

    return make


def same_step(make: Callable[..., object], keywords: Mapping[str, Any]) -> dict[str, object]:
    """The argument with which a vector environment restarts episodes in the step that ends them, if it takes one."""
    from gymnasium.vector import AutoresetMode

    if "autoreset_mode" in keywords or not takes(make, "autoreset_mode", by_name=True):
        return {}
    return {"autoreset_mode": AutoresetMode.SAME_STEP}


def _registered(env: Environment, name: str) -> tuple[str, dict[str, Any] | None]:
    """The id of an object and the arguments with which Gymnasium makes the same one; or, for one in more wrappers, a name that is no id."""
    import gymnasium

    spec = env.spec
    known = None if spec is None else gymnasium.registry.get(spec.id)
    if spec is None or known is None:
        return name, None
    own = {key: value for key, value in spec.kwargs.items() if value is not None and known.kwargs.get(key, UNSET) != value}
    if spec.max_episode_steps != known.max_episode_steps and spec.max_episode_steps is not None:
        own["max_episode_steps"] = spec.max_episode_steps
    is_plain = all(isinstance(value, (bool, int, float, str, list)) for value in own.values())
    if spec.additional_wrappers or not is_plain:
        return f"{type(env).__name__}({name})", None
    return name, own or None


def _alone(env: VectorEnv) -> Callable[..., object] | None:
    """What makes single environments in place of Gymnasium's vector environment of an id, if that restarts episodes in the next step.

    `gymnasium.make_vec` gives such ones, and learns nothing of another mode. None for other modes, and for an object that was changed: copies
    of it would not be what it is.
    """
    import gymnasium
    from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv

    spec = env.spec
    mode = env.metadata.get("autoreset_mode", AutoresetMode.NEXT_STEP)
    if spec is None or spec.entry_point is None or env.unwrapped is not env or isinstance(env, (SyncVectorEnv, AsyncVectorEnv)):
        return None
    if mode != AutoresetMode.NEXT_STEP or spec.kwargs.get("vectorization_mode") != "vector_entry_point":
        return None
    fresh = gymnasium.make_vec(spec)
    close_quietly(fresh, f"the environment {spec.id}")
    now, first = ({k: v for k, v in vars(each).items() if isinstance(v, (bool, int, float, str))} for each in (env, fresh))
    if now != first:
        return None
    arguments = {key: value for key, value in spec.kwargs.items() if key not in ("num_envs", "vectorization_mode")}
    return partial(gymnasium.make, spec.id, **arguments)


def _is_environment(env: object) -> bool:
    import gymnasium

    return isinstance(env, (gymnasium.Env, gymnasium.vector.VectorEnv)) or _is_in_jax(env)


def _is_in_jax(env: object) -> bool:
    """Whether an object or a class has the functions of an environment in JAX."""
    return all(callable(getattr(env, name, None)) for name in FUNCTIONS)


def _lacks(env: object) -> str:
    """What a thing lacks of an environment."""
    there = [name for name in FUNCTIONS if callable(getattr(env, name, None))]
    if there:
        return f"it has {', '.join(there)}, but lacks {', '.join(name for name in FUNCTIONS if name not in there)}"
    if callable(getattr(env, "step", None)) and callable(getattr(env, "reset", None)):
        return "it has step and reset, but is not derived from gymnasium.Env"
    return "it is neither derived from gymnasium.Env nor has it the functions of an environment in JAX"


def _names_in(module: ModuleType, name: str) -> str:
    """A hint with the environments of a module."""
    import gymnasium

    specs = gymnasium.registry.items()
    ids = [env_id for env_id, spec in specs if _module_of(spec.entry_point or spec.vector_entry_point) == module.__name__]
    classes = [key for key, value in vars(module).items() if isinstance(value, type) and value.__module__ == module.__name__]
    kinds = (gymnasium.Env, gymnasium.vector.VectorEnv)
    names = ids + [key for key in classes if issubclass(vars(module)[key], kinds) or _is_in_jax(vars(module)[key])]
    return nearest(name, names) or (f"it has {', '.join(names)}" if names else EXPECTED)


def _module_of(entry_point: object) -> str:
    return entry_point.partition(":")[0] if isinstance(entry_point, str) else str(getattr(entry_point, "__module__", ""))


def _check(example: Environment, name: str) -> None:
    """Check an example, and close it."""
    from tempo_rl.env.check import check_host

    try:
        within(TIMEOUT, f"a reset or step of {name}", lambda: check_host(example, name))
    finally:
        close_quietly(example, f"the environment {name}")


def _copies_of(env: Environment | VectorEnv) -> Callable[[], Environment | VectorEnv]:
    """A function that makes copies of an environment as it is now: what was changed after it was made is in them too."""
    try:
        original = _copy(env)
    except Exception as error:
        raise EnvError(
            f"{_name(env)} cannot be copied: {error}", hint="give a function that makes one: PPO(lambda: MyEnv(...))"
        ) from error
    return lambda: _copy(original)


def _copy(env: Any) -> Any:
    """A deep copy. Gymnasium's `EzPickle` would make layers anew from their arguments; their attributes are copied instead."""
    from gymnasium.utils import EzPickle

    layers, memo = [env], dict[int, Any]()
    while hasattr(layers[-1], "env"):
        layers.append(layers[-1].env)
    made_anew = [layer for layer in layers if isinstance(layer, EzPickle)]
    for layer in made_anew:
        memo[id(layer)] = object.__new__(type(layer))
    for layer in made_anew:
        vars(memo[id(layer)]).update(copy.deepcopy(vars(layer), memo))
    return copy.deepcopy(env, memo)


def _name(env: Environment | VectorEnv) -> str:
    return str(env.spec.id) if env.spec is not None else type(env.unwrapped).__name__
