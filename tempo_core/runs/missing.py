"""Commands in an environment that lacks packages of their extra: one line says what to install."""

from __future__ import annotations

import sys
from collections.abc import Collection
from typing import NoReturn


def name_the_extra(error: ModuleNotFoundError, command: str, extra: str, modules: Collection[str]) -> NoReturn:
    """End with exit status 1 and a line on standard error if the module is one of an extra's `modules`. Else raise the error again."""
    if (error.name or "").partition(".")[0] not in modules:
        raise error
    print(f"error: {command} needs {error.name}, which is not installed: pip install 'tempo-dl[{extra}]'", file=sys.stderr)
    raise SystemExit(1)
