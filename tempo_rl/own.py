"""The runs that this user trained with code of his own: his commands play with them without `--trust`.

A list in the user's own folder has one row for each: the run directory or the file of an agent, the working directory from which its code
was found, the references that training imported, and the files of their modules. No file of a run says this, for a file from elsewhere could say it too.
"""

from __future__ import annotations

import importlib.util
import json
import os
from contextlib import suppress
from pathlib import Path

from tempo_core.files import write_whole
from tempo_rl.references import find_modules

MOST = 1000  # runs in the list; the oldest are dropped


def remember(run: Path, references: list[str]) -> bool:
    """Add a run to the list, if it imported code of the user's own. Whether `known` will have them."""
    if not references:
        return True
    row = [str(run.resolve()), os.getcwd(), references, {name: _origin(name) for name in references}]
    others = [other for other in _rows() if other[0] != row[0] and os.path.exists(other[0])]
    with suppress(OSError):
        _file().parent.mkdir(parents=True, exist_ok=True)
        write_whole(_file(), json.dumps([*others, row][-MOST:]).encode())
        return True
    return False


def known(path: Path) -> list[str]:
    """The references that this user's training imported for a checkpoint: from this working directory, or from modules in the same files."""
    places = {str(place) for place in (path.resolve(), *path.resolve().parents)}
    rows = [row for row in _rows() if row[0] in places]
    if rows:
        find_modules()
    is_here = os.getcwd()
    return [name for _, here, names, files in rows for name in names if here == is_here or _is_file(files.get(name), name)]


def _is_file(file: str | None, reference: str) -> bool:
    return file is not None and file == _origin(reference)


def _origin(reference: str) -> str | None:
    """The file of the module, or of the outermost package, from which a reference would be imported; None if it is not known."""
    with suppress(ImportError, ValueError, AttributeError):
        spec = importlib.util.find_spec(reference.partition(":")[0].partition(".")[0])
        return None if spec is None or spec.origin is None else os.path.realpath(spec.origin)
    return None


def _rows() -> list[tuple[str, str, list[str], dict[str, str | None]]]:
    try:
        rows = json.loads(_file().read_bytes())
        return [(str(run), str(here), [str(name) for name in names], dict(*files)) for run, here, names, *files in rows]
    except (OSError, ValueError, TypeError, RecursionError):
        return []


def _file() -> Path:
    state = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return Path(state) / "tempo" / "runs.json"
