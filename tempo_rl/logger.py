"""Where an iteration's numbers go: a CSV file, and Weights & Biases where asked."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TextIO

from tempo_rl.checkpoint import write_whole
from tempo_rl.errors import RunError
from tempo_rl.recipe import Recipe

Row = Mapping[str, float]  # one iteration's numbers by column; counts are ints


class CSVLogger:
    """One row an iteration, a whole line, flushed at once. No column depends on the clock: equal runs give equal files.

    The file appears with its header in place; a row that an earlier crash cut short is dropped before the first new one.
    """

    def __init__(self, path: Path):
        self.path = path
        self._columns: tuple[str, ...] = ()
        self._file: TextIO | None = None

    def log(self, row: Row) -> None:
        """Append `row`; the first one names the columns."""
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
            whole = data[: data.rfind(b"\n") + 1]
            if whole and not whole.startswith(header.encode()):
                raise RunError(f"{self.path} has other columns than this run's", hint="log to another file")
            write_whole(self.path, whole or header.encode())
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
