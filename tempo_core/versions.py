"""The versions of Python and JAX with which Tempo is tested. A JAX with which it cannot work is refused."""

from __future__ import annotations

import re
from collections.abc import Iterable
from contextlib import suppress
from importlib import metadata
from typing import NamedTuple


class Tested(NamedTuple):
    """The first and the last version that the tests run with. Older ones do not work; newer ones may."""

    first: tuple[int, int]
    last: tuple[int, int]

    def __str__(self) -> str:
        """`0.10 to 0.12`."""
        return f"{dotted(self.first)} to {dotted(self.last)}"

    def is_too_old(self, version: str) -> bool:
        """Whether Tempo does not work with this version."""
        return _number(version) < self.first

    def is_untested(self, version: str) -> bool:
        """Whether a version is newer than all that are tested."""
        return _number(version) > self.last


TESTED = {"python": Tested((3, 11), (3, 13)), "jax": Tested((0, 10), (0, 12)), "jaxlib": Tested((0, 10), (0, 12))}
FAULTY = {  # versions that work and should not be used; pip does not choose them (pyproject.toml)
    ("jaxlib", "0.11.1"): "on a CPU, each small write in a loop costs a whole array (https://github.com/jax-ml/jax/issues/40101)"
}
INSTALL = f"pip install -U 'jax>={TESTED['jax'].first[0]}.{TESTED['jax'].first[1]}'"


def dotted(version: tuple[int, int]) -> str:
    """`0.10`."""
    return ".".join(map(str, version))


def installed(packages: Iterable[str]) -> dict[str, str | None]:
    """The versions of packages; None for a package that is not installed."""
    versions: dict[str, str | None] = dict.fromkeys(packages)
    for name in versions:
        with suppress(metadata.PackageNotFoundError):
            versions[name] = metadata.version(name)
    return versions


def _number(version: str) -> tuple[int, ...]:
    """The first two numbers of a version: (0, 12) of `0.12.0.1`."""
    return tuple(map(int, re.findall(r"\d+", version)[:2]))


def require_new_jax() -> None:
    """Raise ImportError for a JAX that is installed and too old. It is not imported."""
    version = installed(["jax"])["jax"]
    if version is not None:
        _require(version)


def check() -> None:
    """Raise ImportError for a JAX with which Tempo does not work: one that is too old, or does not fit its jaxlib."""
    try:
        import jax
    except (ImportError, RuntimeError) as error:  # JAX compares the versions itself, and says both
        if "jaxlib" not in str(error):
            raise
        raise ImportError(f"jax and jaxlib do not fit each other: {error} To install both anew: {INSTALL}") from None
    _require(jax.__version__)


def _require(version: str) -> None:
    if TESTED["jax"].is_too_old(version):
        oldest = dotted(TESTED["jax"].first)
        raise ImportError(f"Tempo needs jax {oldest} or newer, and jax {version} is installed: {INSTALL}")
