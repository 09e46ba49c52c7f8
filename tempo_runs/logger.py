"""Loggers of each iteration's numbers: a CSV file, and Weights & Biases if the recipe asks for it."""

from __future__ import annotations

import errno
import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from tempo_core.files import write_whole
from tempo_runs.errors import RunError
from tempo_runs.recipe import WandbRecipe

Row = Mapping[str, float]  # one iteration's numbers by column; counts are ints


class CSVLogger:
    """A CSV file with one row per iteration. No column depends on the clock: equal runs give equal files.

    A row is in the file as a whole line, or not at all: what a crash or a full disk leaves of a row is removed. `rows` is the number of
    rows that a resumed run goes on from; later ones are dropped.
    """

    def __init__(self, path: Path, rows: int | None = None):
        self.path = path
        self._rows = rows
        self._columns: tuple[str, ...] = ()
        self._handle: int | None = None
        self._size = 0  # of the whole lines, in bytes

    def log(self, row: Row) -> None:
        """Append `row`; the first row gives the columns their names. Raises `RunError`."""
        if self._handle is None:
            self._handle = self._open(tuple(row))
        if tuple(row) != self._columns:
            raise RunError(f"{self.path} has the columns {', '.join(self._columns)}, a row has {', '.join(row)}")
        self._append((",".join(_text(value) for value in row.values()) + "\n").encode())

    def close(self) -> None:
        if self._handle is not None:
            os.close(self._handle)
            self._handle = None

    def _append(self, line: bytes) -> None:
        assert self._handle is not None
        try:
            if os.write(self._handle, line) != len(line):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        except OSError as error:
            with suppress(OSError):
                os.ftruncate(self._handle, self._size)
            raise RunError(f"{self.path} cannot be written: {error.strerror or error}") from error
        self._size += len(line)

    def _open(self, columns: tuple[str, ...]) -> int:
        header = ",".join(columns) + "\n"
        lines = self.path.read_bytes().splitlines(keepends=True) if self.path.exists() else []
        if lines and not lines[-1].endswith(b"\n"):
            lines.pop()
        if lines and lines[0] != header.encode():
            raise RunError(f"{self.path} has other columns than this run's", hint="log to another file")
        content = b"".join(lines[: None if self._rows is None else self._rows + 1]) or header.encode()
        try:
            write_whole(self.path, content)
            handle = os.open(self.path, os.O_WRONLY | os.O_APPEND)
        except OSError as error:
            raise RunError(f"{self.path} cannot be written: {error.strerror or error}") from error
        self._columns, self._size = columns, len(content)
        return handle


def _text(value: float) -> str:
    return str(value) if isinstance(value, int) else f"{float(value):.9g}"


class WandbLogger:
    """Weights & Biases. Without an API key it records offline, into the run directory."""

    def __init__(self, settings: WandbRecipe, config: Mapping[str, object], directory: Path, count: str):
        """`config` is the recipe as plain values; `count` is the column that W&B counts by."""
        try:
            import wandb
        except ImportError as error:
            raise RunError("track=true needs the package wandb", hint="pip install 'tempo-dl[wandb]', or track=false") from error
        self._count = count
        has_key = bool(os.environ.get("WANDB_API_KEY")) or _netrc_has_key()
        self._run = wandb.init(
            project=settings.project,
            entity=settings.entity,
            group=settings.group,
            tags=settings.tags,
            mode=os.environ.get("WANDB_MODE") or ("online" if has_key else "offline"),
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
