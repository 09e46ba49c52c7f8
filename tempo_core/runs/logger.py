"""Loggers of each iteration's numbers: a CSV file, and Weights & Biases if the recipe asks for it."""

from __future__ import annotations

import errno
import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, cast

from tempo_core.files import write_whole
from tempo_core.runs.commands import RunError
from tempo_core.runs.recipe import WandbRecipe

Row = Mapping[str, float]  # one iteration's numbers by column; counts are ints


class LineFile:
    """A file with one line per iteration. No line depends on the clock: equal runs give equal files.

    A line is in the file as a whole, or not at all: what a crash or a full disk leaves of a line is removed. `rows` is the number of
    lines that a resumed run goes on from; later ones are dropped.
    """

    def __init__(self, path: Path, rows: int | None = None):
        self.path = path
        self._rows = rows
        self._handle: int | None = None
        self._size = 0  # of the whole lines, in bytes

    def close(self) -> None:
        if self._handle is not None:
            os.close(self._handle)
            self._handle = None

    def append(self, line: str, header: str = "") -> None:
        """Append `line`. The file begins with `header`, and is opened with the first line. Raises `RunError`."""
        if self._handle is None:
            self._handle = self._open(header.encode())
        data = line.encode()
        try:
            if os.write(self._handle, data) != len(data):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        except OSError as error:
            with suppress(OSError):
                os.ftruncate(self._handle, self._size)
            raise RunError(f"{self.path} cannot be written: {error.strerror or error}") from error
        self._size += len(data)

    def _open(self, header: bytes) -> int:
        try:
            lines = self.path.read_bytes().splitlines(keepends=True) if self.path.exists() else []
        except OSError as error:
            raise RunError(f"{self.path} cannot be read: {error.strerror or error}") from error
        if lines and not lines[-1].endswith(b"\n"):
            lines.pop()
        if lines and header and lines[0] != header:
            raise RunError(f"the columns of {self.path} are not those of this run", hint="write to another file")
        kept = None if self._rows is None else self._rows + bool(header)
        content = b"".join(lines[:kept]) or header
        try:
            write_whole(self.path, content)
            handle = os.open(self.path, os.O_WRONLY | os.O_APPEND)
        except OSError as error:
            raise RunError(f"{self.path} cannot be written: {error.strerror or error}") from error
        self._size = len(content)
        return handle


class CSVLogger(LineFile):
    """A CSV file with one row per iteration."""

    _columns: tuple[str, ...] = ()

    def log(self, row: Row) -> None:
        """Append `row`; the first row gives the columns their names. Raises `RunError`."""
        self._columns = self._columns or tuple(row)
        if tuple(row) != self._columns:
            raise RunError(f"{self.path} has the columns {', '.join(self._columns)}, a row has {', '.join(row)}")
        cells = (str(value) if isinstance(value, int) else f"{float(value):.9g}" for value in row.values())
        self.append(",".join(cells) + "\n", ",".join(self._columns) + "\n")


MODES = ("online", "offline", "disabled", "shared", "dryrun", "run")  # of W&B


class WandbLogger:
    """Weights & Biases. Without an API key it records offline, into the run directory."""

    def __init__(self, settings: WandbRecipe, config: Mapping[str, object], directory: Path, count: str):
        """`config` is the recipe as plain values; `count` is the column that W&B counts by. Raises `RunError`."""
        wanted = os.environ.get("WANDB_MODE") or None
        if wanted is not None and wanted not in MODES:
            raise RunError(f"WANDB_MODE is {wanted!r}", hint=f"it is one of {', '.join(MODES)}")
        try:
            import wandb
        except ImportError as error:
            raise RunError(
                "track=true needs the package wandb",
                hint="leave it out, track=false, or install it: pip install 'tempo-dl[wandb]'",
            ) from error
        self._count = count
        has_key = bool(os.environ.get("WANDB_API_KEY")) or _netrc_has_key()
        self._run = wandb.init(
            project=settings.project,
            entity=settings.entity,
            group=settings.group,
            tags=settings.tags,
            mode=cast("Any", wanted or ("online" if has_key else "offline")),
            dir=str(directory),
            config=dict(config),
        )

    def log(self, row: Row) -> None:
        self._run.log(dict(row), step=int(row[self._count]))

    def close(self) -> None:
        self._run.finish()


def _netrc_has_key() -> bool:
    import netrc

    try:
        return netrc.netrc().authenticators("api.wandb.ai") is not None
    except (OSError, netrc.NetrcParseError):
        return False
