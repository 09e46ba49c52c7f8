"""What the `doctor` of a command prints: versions beside the tested ones, devices, and packages that are missing."""

from __future__ import annotations

import platform
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from tempo_core.versions import FAULTY, INSTALL, TESTED, dotted, installed

WIDTH = 14  # of the column of names


class Extra(NamedTuple):
    """A package that only some uses need: the extra of `pip install 'tempo-dl[extra]'` that has it, and the use."""

    package: str
    extra: str
    use: str


def versions(packages: Iterable[str]) -> dict[str, str | None]:
    """The versions of Python and of packages; None for a package that is not installed."""
    return {"python": platform.python_version(), **installed(packages)}


def findings(numbers: Mapping[str, str | None], extras: Iterable[Extra]) -> Iterator[str]:
    """The lines about `versions`, about devices, and about the extras that are missing."""
    import jax

    for name, version in numbers.items():
        yield f"{name:{WIDTH}} {version or 'not installed':14} {_remark(name, version)}".rstrip()
    yield f"{'devices':{WIDTH}} {', '.join(str(device) for device in jax.devices())}"
    for package, extra, use in extras:
        if numbers.get(package) is None:
            yield f"missing: {package}, for {use}: pip install 'tempo-dl[{extra}]'"


def is_able(numbers: Mapping[str, str | None]) -> bool:
    """Whether no version is one with which Tempo does not work, or is far too slow."""
    return not any(
        (name, version) in FAULTY or (name in TESTED and version and TESTED[name].is_too_old(version))
        for name, version in numbers.items()
    )


def _remark(name: str, version: str | None) -> str:
    if name not in TESTED or version is None:
        return ""
    if (name, version) in FAULTY:
        return f"faulty: {FAULTY[name, version]}: {INSTALL}"
    tested = TESTED[name]
    if tested.is_too_old(version):
        return f"too old: Tempo does not work with it; needed is {dotted(tested.first)} or newer, tested are {tested}"
    return f"newer than the tested versions, {tested}: untested" if tested.is_untested(version) else f"tested are {tested}"
