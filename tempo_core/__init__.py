"""Tempo: recurrent tensors, compiled. See README.md; `tempo_core.Context` is where a program begins.

The public names are those of `tempo_core.api`, which is imported when the first of them is used: commands that compile nothing start fast.
"""

from __future__ import annotations

import importlib
import importlib.util
from typing import TYPE_CHECKING

from tempo_core import versions as _versions

if TYPE_CHECKING:
    from tempo_core.api import *  # noqa: F403
    from tempo_core.frontend.functions import *  # noqa: F403

__version__ = "0.1.0"
_API = f"{__name__}.api"

_versions.require_new_jax()


if not TYPE_CHECKING:  # for which it would be a name for everything

    def __getattr__(name: str) -> object:
        if importlib.util.find_spec(f"{__name__}.{name}") is not None:
            return importlib.import_module(f"{__name__}.{name}")
        if not name.startswith("__") or name == "__all__":
            _versions.check()  # before any other import of JAX fails
            api = importlib.import_module(_API)
            names = getattr(api, "__all__", ())  # none while it is imported: nothing in the core looks for them
            globals().update({each: getattr(api, each) for each in names})
            if name in names or (names and name == "__all__"):
                return getattr(api, name)
            if names and not name.startswith("_"):
                elsewhere = importlib.import_module(f"{__name__}.frontend.elsewhere")
                elsewhere.missing_from("tp", names, elsewhere.INSTEAD)(name)
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(importlib.import_module(_API).__all__)
