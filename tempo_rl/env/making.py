"""The making of environments by code of others: what it may be given, and what its mistakes mean."""

from __future__ import annotations

import difflib
import importlib
import inspect
import re
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from tempo_rl.env.registry import install_for
from tempo_rl.errors import EnvError, own_line
from tempo_rl.references import find_modules

if TYPE_CHECKING:
    from gymnasium.envs.registration import EnvSpec


MOST_MODULES = 200  # of the working directory, which are searched for a class


class MissingEnvironment(EnvError):
    """An id that names nothing which can be found here."""


def import_module(module: str, env_id: str) -> ModuleType:
    """The module of an environment, found from the working directory too. Raises `EnvError`, with the user's line."""
    find_modules()
    try:
        return importlib.import_module(module)
    except (ImportError, ValueError) as error:
        raise MissingEnvironment(
            f"the module of {env_id!r} cannot be imported: {error}{own_line(error)}",
            hint="run the command in the directory where the module is",
        ) from error
    except Exception as error:
        what = f"{type(error).__name__}: {error}{own_line(error)}"
        raise EnvError(f"the import of the module of {env_id!r} raised {what}") from error


def takes(function: Callable[..., object], name: str, by_name: bool = False) -> bool:
    """Whether a function or class takes an argument of that name; `by_name`: as one of its own, not as any other keyword."""
    try:
        parameters = inspect.signature(function).parameters
    except (TypeError, ValueError):
        return False
    return name in parameters or (not by_name and any(p.kind is p.VAR_KEYWORD for p in parameters.values()))


@contextmanager
def explained(env_id: str, keywords: Mapping[str, Any]) -> Iterator[None]:
    """What the making of an environment with these arguments raises, is an `EnvError`."""
    import gymnasium

    try:
        yield
    except EnvError:
        raise
    except gymnasium.error.DependencyNotInstalled as error:
        install = install_for(env_id, getattr(spec_of(env_id), "entry_point", ""))
        hint = f"pip install {install}" if install else None
        raise EnvError(f"{env_id} needs a package that is not installed: {error}", hint=hint) from error
    except gymnasium.error.Error as error:
        install = install_for(env_id, "")
        hint = f"pip install {install}" if install else _did_you_mean(env_id)
        kind = MissingEnvironment if spec_of(env_id) is None else EnvError
        raise kind(f"Gymnasium cannot make {env_id!r}: {error}", hint=hint) from error
    except TypeError as error:
        what = f"Gymnasium cannot make {env_id!r}" if spec_of(env_id) is not None else f"{env_id} cannot be made"
        raise EnvError(
            f"{what} with {dict(keywords)}: {error}{_line_of_user(error)}", hint="check the names in env.kwargs of the recipe"
        ) from error
    except ImportError as error:
        install = install_for(env_id, getattr(spec_of(env_id), "entry_point", ""))
        if install is not None:
            raise EnvError(f"{env_id} needs a package that is not installed: {error}", hint=f"pip install {install}") from error
        raise EnvError(
            f"the module of {env_id!r} cannot be imported: {error}{own_line(error)}",
            hint="run the command in the directory where the module is",
        ) from error
    except Exception as error:  # of code of the environment
        what = f"{type(error).__name__}: {error}{own_line(error)}"
        raise EnvError(f"making {env_id} with {dict(keywords)} raised {what}") from error


def _line_of_user(error: BaseException) -> str:
    """Where an error was raised, if that is in a user's code: a call with wrong arguments never got there."""
    innermost = traceback.extract_tb(error.__traceback__)[-1].filename
    return "" if "site-packages" in innermost or "tempo_rl" in innermost else own_line(error)


def spec_of(env_id: str) -> EnvSpec | None:
    """What Gymnasium knows of an id, whose module is imported."""
    import gymnasium

    return gymnasium.registry.get(env_id.rpartition(":")[2])


def _did_you_mean(env_id: str) -> str | None:
    """A hint for an id that is not registered: a class of that name in a module of the working directory, or an id that is like it."""
    import gymnasium

    if not env_id.isidentifier():
        return nearest(env_id, gymnasium.registry)
    if (reference := like_in_modules(env_id)) is not None:
        return f"did you mean {reference}?"
    versions = [name for name in gymnasium.registry if name.partition("-v")[0].lower() == env_id.lower()]
    if versions:
        return f"did you mean {max(versions)!r}?"
    own = f"a class of your own is named with its module: my_module:{env_id}. In Python, give the class: PPO({env_id})"
    return nearest(env_id, gymnasium.registry) or f"did you mean my_module:{env_id}? {own[0].upper()}{own[1:]}"


def like_in_modules(name: str) -> str | None:
    """The `module:name` of a class or function with this name in a module of the working directory. Nothing is imported."""
    pattern = re.compile(rf"^(?:class|def)\s+{re.escape(name)}\b|^{re.escape(name)}\s*=", re.MULTILINE)
    for path in sorted(Path().glob("*.py"))[:MOST_MODULES]:
        with suppress(OSError, UnicodeDecodeError):
            if path.stem.isidentifier() and pattern.search(path.read_text(encoding="utf-8")):
                return f"{path.stem}:{name}"
    return None


def nearest(name: str, names: Iterable[str]) -> str | None:
    """A hint with the name that is like `name`, if there is one."""
    near = difflib.get_close_matches(name, list(names), n=1)
    return f"did you mean {near[0]!r}?" if near else None
