"""A layer around one environment of Gymnasium: what its functions raise, or give in another form, is one error with the user's line."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, SupportsFloat, TypeAlias

import gymnasium
import numpy as np

from tempo_rl.env.blocked import within
from tempo_rl.env.spaces import misfit
from tempo_rl.errors import EnvError, own_line

if TYPE_CHECKING:
    Wrapper: TypeAlias = gymnasium.Wrapper[Any, Any, Any, Any]
else:
    Wrapper = gymnasium.Wrapper


class Watched(Wrapper):
    """The environment inside, which raises `EnvError` alone. Its functions return within `limit` seconds, or raise it too."""

    def __init__(self, env: gymnasium.Env[Any, Any], name: str, limit: float | None = None):
        require_spaces(env, name)
        super().__init__(env)
        self.name, self.limit = name, limit

    def reset(self, *, seed: int | None = None, options: dict[str, object] | None = None) -> tuple[object, dict[str, object]]:
        result: Any = self._called("reset", lambda: self.env.reset(seed=seed, options=options))
        if not (isinstance(result, tuple) and len(result) == 2):
            raise self._wrong("reset", f"{_shown(result)}", "return observation, {}")
        self._check_observation("reset", result[0])
        return result

    def step(self, action: object) -> tuple[object, SupportsFloat, bool, bool, dict[str, object]]:
        result: Any = self._called("step", lambda: self.env.step(action))
        if not (isinstance(result, tuple) and len(result) == 5):
            raise self._wrong("step", f"{_shown(result)}", "return observation, reward, terminated, truncated, {}")
        observation, reward, terminated, truncated, info = result
        self._check_observation("step", observation)
        if not _is_one(reward, "iuf"):
            raise self._wrong("step", f"the reward {_shown(reward)}", "a reward is one number: float(reward)")
        for what, value in (("terminated", terminated), ("truncated", truncated)):
            if not _is_one(value, "b"):
                raise self._wrong("step", f"{_shown(value)} for {what}", f"write bool({what})")
        return observation, _item(reward), _item(terminated), _item(truncated), info

    def _called(self, function: str, call: Callable[[], Any]) -> Any:
        try:
            return within(self.limit, f"{self.name}.{function}()", call)
        except EnvError:
            raise
        except SystemExit as error:
            what = f"{self.name}.{function}() called sys.exit({error.code!r}){own_line(error)}"
            raise EnvError(what, hint="an environment must not end the process") from error
        except Exception as error:
            what = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
            raise EnvError(f"{self.name}.{function}() raised {what}{own_line(error)}") from error

    def _check_observation(self, function: str, observation: Any) -> None:
        space = self.observation_space
        what = misfit(space, observation)
        if what is not None:
            raise self._wrong(
                function, f"{what}, but its observation_space is {space}", "make both the same: np.asarray(observation, dtype)"
            )

    def _wrong(self, function: str, what: str, hint: str) -> EnvError:
        """The error for what a function gives. It names the function of the user's class, for the line has been left."""
        try:
            code = inspect.unwrap(getattr(type(self.unwrapped), function)).__code__
            place = f"\n  in {code.co_filename}:{code.co_firstlineno}"
        except AttributeError:  # not a function of Python
            place = ""
        return EnvError(f"{self.name}.{function}() gives {what}{place}", hint=hint)


def require_spaces(env: Any, name: str) -> None:
    """Raise `EnvError` unless an environment says what its observations and actions are."""
    for which in ("observation_space", "action_space"):
        space = getattr(env, which, None)
        if not isinstance(space, gymnasium.spaces.Space):
            what = f"has no {which}" if space is None else f"has the {which} {_shown(space)}"
            raise EnvError(
                f"{name} {what}", hint=f"set it in __init__: self.{which} = gymnasium.spaces.Box(...), or another space"
            )


def _is_one(value: object, kinds: str) -> bool:
    """Whether a value is one number, or one truth value, of these kinds of NumPy."""
    if isinstance(value, (float, int)):
        return ("b" if isinstance(value, bool) else "i") in kinds
    if isinstance(value, (str, bytes)) or value is None:
        return False
    try:
        array = np.asarray(value)
    except ValueError:
        return False
    return array.dtype.kind in kinds and array.size == 1


def _item(value: Any) -> Any:
    """A number or truth value itself, also of an array of shape (1,)."""
    return value if np.ndim(value) == 0 else np.asarray(value).item()


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."
