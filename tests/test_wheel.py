"""The wheel holds what the commands need: they find it where no checkout is near. The sdist holds all that is in the repository."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest
from hatchling.builders.sdist import SdistBuilder
from hatchling.builders.wheel import WheelBuilder

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture(scope="module")
def unpacked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The packages of a wheel that is built from this checkout."""
    folder = tmp_path_factory.mktemp("wheel")
    (wheel,) = WheelBuilder(str(ROOT)).build(directory=str(folder), versions=["standard"])
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder / "site")
    return folder / "site"


@pytest.mark.slow
@pytest.mark.parametrize("command", [["ls"], ["validate", "ppo"]], ids=" ".join)
def test_the_command_finds_its_recipes_from_an_empty_folder(unpacked: Path, tmp_path: Path, command: list[str]) -> None:
    environment = os.environ | {"PYTHONPATH": str(unpacked)}
    run = [sys.executable, "-m", "tempo_rl", *command]
    result = subprocess.run(run, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    if command == ["ls"]:
        recipes = {p.stem for p in (ROOT / "recipes").glob("*.yaml") if "algorithm:" in p.read_text(encoding="utf-8")}
        assert {line.split()[0] for line in result.stdout.splitlines()} == recipes
        assert str(unpacked) in result.stdout
    else:
        assert "algorithm: ppo" in result.stdout


@pytest.mark.slow
@pytest.mark.parametrize("flags", [["--model", "tiny-llama"], []], ids=" ".join)
def test_the_model_in_the_box_is_found_from_an_empty_folder(unpacked: Path, tmp_path: Path, flags: list[str]) -> None:
    environment = os.environ | {"PYTHONPATH": str(unpacked)}
    run = [sys.executable, "-m", "tempo_llm.cli", "info", *flags, "--json"]
    result = subprocess.run(run, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    facts = json.loads(result.stdout)
    assert facts["model"].startswith(str(unpacked)) and facts["tokenizer"]
    assert facts["chat_template"]
    assert all((unpacked / f"tempo_core/runs/recipes/{name}.yaml").is_file() for name in ("tiny_llama", "tiny_llama_chat"))


def test_the_sdist_holds_the_whole_repository(tmp_path: Path) -> None:
    """Its tests read pages, benchmarks and scripts too."""
    if not (ROOT / ".git").exists() or shutil.which("git") is None:
        pytest.skip("this is no checkout")
    tracked = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.split("\0")
    (sdist,) = SdistBuilder(str(ROOT)).build(directory=str(tmp_path), versions=["standard"])
    with tarfile.open(sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert "PKG-INFO" in names
    assert [name for name in tracked if name and (ROOT / name).is_file() and name not in names] == []
