"""Run directories. One process at a time trains in a directory: it holds a lock, which ends with the process."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Self

from tempo_core.files import lock, write_whole
from tempo_core.runs.commands import RunError

LOCK = ".lock"


@dataclass(frozen=True)
class RunDirectory:
    """The files of one run: those that the runs of all libraries have, and what is asked of them."""

    path: Path
    mark: ClassVar[str]  # the first line of config.yaml, which says that it is a recipe of a run
    command: ClassVar[str]  # that writes it
    inner: ClassVar[tuple[str, ...]] = ()  # directories that are made at once

    @property
    def config(self) -> Path:
        return self.path / "config.yaml"

    @property
    def metrics(self) -> Path:
        return self.path / "metrics.csv"

    @property
    def result(self) -> Path:
        return self.path / "result.json"

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the directory for this process alone. It is created, and removed if training does not begin. Raises RunError if it is held."""
        is_new, directories, handle = not self.path.exists(), [self.path, *(self.path / name for name in self.inner)], None
        try:
            try:
                for directory in directories:
                    directory.mkdir(parents=True, exist_ok=True)
                handle = os.open(self.path / LOCK, os.O_RDWR | os.O_CREAT, 0o666)
            except OSError as error:
                raise RunError(
                    f"{self.path} cannot be written: {error.strerror or error}", hint="choose another: --out DIR"
                ) from error
            if not lock(handle):
                owner = os.pread(handle, 32, 0).decode(errors="replace").strip()
                raise RunError(
                    f"another process ({owner or 'on another machine'}) is training in {self.path} now",
                    hint="wait for it, or choose another directory: --out DIR",
                )
            with suppress(OSError, AttributeError):  # the number is for people, and not every system can write it
                os.ftruncate(handle, 0)
                os.pwrite(handle, f"{os.getpid()}\n".encode(), 0)
            yield
        finally:
            if handle is not None:
                os.close(handle)
            if is_new and not self.config.exists():
                with suppress(OSError):
                    (self.path / LOCK).unlink()
                    for directory in reversed(directories):
                        directory.rmdir()

    def check_files(self, files: Iterable[str], folders: Iterable[str]) -> None:
        """Raise RunError for a directory in the place of a file, or the reverse, and for a config.yaml that may be the user's."""
        for names, is_right, kind in ((files, Path.is_file, "file"), (folders, Path.is_dir, "directory")):
            for path in (self.path / name for name in names):
                if path.exists() and not is_right(path):
                    raise RunError(f"{path} is not a {kind}", hint="move it away, or choose another directory: --out DIR")
        if self.config.exists() and not self.config.read_bytes().startswith(self.mark.encode()):
            raise RunError(f"{self.config} was not written by {self.command}", hint="choose another directory: --out DIR")

    def check_same(self, ours: Mapping[str, Any], theirs: Mapping[str, Any], others: Iterable[str] = ()) -> None:
        """Raise RunError if a recipe is not that of the run, `theirs`. `others` are further differences, in words."""
        differing = [*others, *(f"{k} is {v} here, and {theirs.get(k)} there" for k, v in ours.items() if v != theirs.get(k))]
        if differing:
            raise RunError(
                f"the run in {self.path} has another recipe: {'; '.join(differing)}",
                hint="give the same RECIPE and overrides as at first, or another directory: --out DIR",
            )

    def write_result(self, result: Mapping[str, Any]) -> None:
        """Write result.json. Raises RunError."""
        try:
            write_whole(self.result, (json.dumps(result, indent=2) + "\n").encode())
        except OSError as error:
            raise RunError(f"{self.result} cannot be written: {error.strerror or error}") from error

    def is_finished(self) -> bool:
        """Whether the run came to its end."""
        try:
            result = json.loads(self.result.read_bytes())
        except (OSError, ValueError, RecursionError):
            return False
        return isinstance(result, dict) and not any(result.get(key) for key in ("interrupted", "stopped", "error"))

    @classmethod
    def usual(cls, name: str, seed: int, goes_on: bool = False) -> Self:
        """The directory in runs/ of a new run, or of the newest one of this name and seed, if it `goes_on` and did not come to its end."""
        runs = [cls(Path("runs") / f"{name}-seed{seed}-000")]
        while runs[-1].path.exists():
            runs.append(cls(Path("runs") / f"{name}-seed{seed}-{len(runs):03d}"))
        *_, newest, new = (None, *runs)
        return newest if newest is not None and goes_on and not newest.is_finished() else new


def check_one_way(overwrite: bool, resume: str) -> None:
    """Raise RunError for a run that is to be replaced and to go on."""
    if overwrite and resume != "off":
        raise RunError(
            "--overwrite and --resume exclude each other: one replaces the run, the other goes on with it",
            hint="leave one of them out",
        )
