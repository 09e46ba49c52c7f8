"""The wheel, installed in a place without other files of this repository, for type checkers."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="session")
def users_python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Python in a separate environment, with the wheel, and with the packages that it needs from the tests' environment."""
    missing = [name for name in ("build", "hatchling", "mypy", "basedpyright") if find_spec(name) is None]
    if missing:
        pytest.skip(f"needs {', '.join(missing)}: pip install -e '.[dev]'")
    place = tmp_path_factory.mktemp("user")
    command = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(place), str(ROOT)]
    built = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert built.returncode == 0, built.stdout + built.stderr
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(place / "venv")], check=True, timeout=120)
    python = place / "venv" / "bin" / "python"
    command_for_site = [str(python), "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"]
    site = Path(subprocess.run(command_for_site, capture_output=True, text=True, check=True).stdout.strip())
    (wheel,) = place.glob("*.whl")
    zipfile.ZipFile(wheel).extractall(site)
    (site / "others.pth").write_text(f"{Path(np.__file__).parents[1]}\n", encoding="utf-8")
    return python
