"""The runs that this user trained with code of his own: his commands play with them without `--trust`.

A list in the user's own folder has one row for each: the run directory, the working directory from which its code was found, and the
references that training imported. No file of a run says this, for a file from elsewhere could say it too.
"""

from __future__ import annotations

import json
import os
from contextlib import suppress
from pathlib import Path

from tempo_core.files import write_whole

MOST = 1000  # runs in the list; the oldest are dropped


def remember(run: Path, references: list[str]) -> bool:
    """Add a run to the list, if it imported code of the user's own. Whether `known` will have them."""
    if not references:
        return True
    row = [str(run.resolve()), os.getcwd(), references]
    others = [other for other in _rows() if other[0] != row[0]]
    with suppress(OSError):
        _file().parent.mkdir(parents=True, exist_ok=True)
        write_whole(_file(), json.dumps([*others, row][-MOST:]).encode())
        return True
    return False


def known(path: Path) -> list[str]:
    """The references that this user's training imported for the run of a checkpoint, from this working directory."""
    folders = {str(folder) for folder in path.resolve().parents}
    return [name for run, here, names in _rows() if run in folders and here == os.getcwd() for name in names]


def _rows() -> list[tuple[str, str, list[str]]]:
    try:
        rows = json.loads(_file().read_bytes())
        return [(str(run), str(here), [str(name) for name in names]) for run, here, names in rows]
    except (OSError, ValueError, TypeError, RecursionError):
        return []


def _file() -> Path:
    state = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return Path(state) / "tempo" / "runs.json"
