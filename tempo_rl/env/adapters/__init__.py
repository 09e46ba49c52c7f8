"""Environments in JAX of other libraries: each is a row of `ADAPTERS` (`tempo_rl/env/registry.py`), and a class in a file here."""

from __future__ import annotations

import contextlib
import importlib
import io
import sys
import warnings
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any, cast

import jax

from tempo_rl.env.registry import Adapter, adapter_of
from tempo_rl.env.source import JaxEnvironment
from tempo_rl.errors import EnvError
from tempo_rl.references import load_reference


def make_adapted(env_id: str, **keywords: Any) -> JaxEnvironment:
    """The environment of a library that an id names, such as "brax/ant".

    Raises `EnvError` if the library is not installed, does not know the name, or does not take the arguments.
    """
    adapter = adapter_of(env_id)
    assert adapter is not None, f"{env_id} has no adapter"
    with usual_promotion(), quiet():
        package = _imported(env_id, adapter)
        make = cast("Callable[..., JaxEnvironment]", load_reference(adapter.adapter))
        try:
            return make(package, env_id.partition("/")[2], **keywords)
        except EnvError:
            raise
        except ImportError as error:  # of a part of the library
            part = (error.name or adapter.packages[0]).replace("_", "-")
            raise EnvError(f"{env_id} cannot be made: {error}", hint=f"pip install {part}") from error
        except (TypeError, ValueError, KeyError, NotImplementedError, AttributeError) as error:
            raise EnvError(f"{env_id} cannot be made with {keywords}: {type(error).__name__}: {error}") from error


def _imported(env_id: str, adapter: Adapter) -> ModuleType:
    """The module with the environments of a library."""
    try:
        return [importlib.import_module(package) for package in adapter.packages][-1]
    except ImportError as error:
        package = adapter.packages[0]
        is_missing = package not in sys.modules or sys.modules[package] is None
        what = f"{package} is not installed" if is_missing and error.name in (package, None) else str(error)
        raise EnvError(f"{env_id} cannot be made: {what}", hint=f"pip install {adapter.install}") from error


@contextlib.contextmanager
def usual_promotion() -> Iterator[None]:
    """Allow JAX's implicit conversions, which libraries rely on."""
    with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
        yield


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Libraries print what they do not find while they are imported, and warn that they are old."""
    with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        warnings.simplefilter("ignore")
        yield
