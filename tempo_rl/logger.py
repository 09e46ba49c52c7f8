"""Loggers of each iteration's numbers: a CSV file, and Weights & Biases if the recipe asks for it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TextIO

from tempo_core.files import write_whole
from tempo_rl.errors import RunError
from tempo_rl.recipe import Recipe

Row = Mapping[str, float]  # one iteration's numbers by column; counts are ints


class CSVLogger:
    """A CSV file with one row per iteration. No column depends on the clock: equal runs give equal files.

    The file is created with its header, and each row is written as a whole line, at once. If a crash has left a part of a row
    at the end of the file, that part is removed before the first new row.
    """

    def __init__(self, path: Path):
        self.path = path
        self._columns: tuple[str, ...] = ()
        self._file: TextIO | None = None

    def log(self, row: Row) -> None:
        """Append `row`; the first row gives the columns their names."""
        if self._file is None:
            self._file = self._open(tuple(row))
        if tuple(row) != self._columns:
            raise RunError(f"{self.path} has the columns {', '.join(self._columns)}, a row has {', '.join(row)}")
        self._file.write(",".join(_text(value) for value in row.values()) + "\n")
        self._file.flush()

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None

    def _open(self, columns: tuple[str, ...]) -> TextIO:
        header = ",".join(columns) + "\n"
        if self.path.exists():
            data = self.path.read_bytes()
            complete_lines = data[: data.rfind(b"\n") + 1]
            if complete_lines and not complete_lines.startswith(header.encode()):
                raise RunError(f"{self.path} has other columns than this run's", hint="log to another file")
            write_whole(self.path, complete_lines or header.encode())
        else:
            write_whole(self.path, header.encode())
        self._columns = columns
        return open(self.path, "a", encoding="utf-8")


def _text(value: float) -> str:
    return str(value) if isinstance(value, int) else f"{float(value):.9g}"


class WandbLogger:
    """Weights & Biases. Without an API key it records offline, into the run directory."""

    def __init__(self, recipe: Recipe, directory: Path):
        try:
            import wandb
        except ImportError as error:
            raise RunError("track=true needs the package wandb", hint="pip install 'tempo-dl[wandb]', or track=false") from error
        settings = recipe.wandb
        has_key = bool(os.environ.get("WANDB_API_KEY")) or _netrc_has_key()
        self._run = wandb.init(
            project=settings.project,
            entity=settings.entity,
            group=settings.group,
            tags=settings.tags,
            mode=os.environ.get("WANDB_MODE") or ("online" if has_key else "offline"),
            dir=str(directory),
            config=recipe.model_dump(mode="json"),
        )

    def log(self, row: Row) -> None:
        self._run.log(dict(row), step=int(row["env_steps"]))

    def close(self) -> None:
        self._run.finish()


def _netrc_has_key() -> bool:
    import netrc

    try:
        return netrc.netrc().authenticators("api.wandb.ai") is not None
    except (OSError, netrc.NetrcParseError):
        return False
