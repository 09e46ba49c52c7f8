"""The other side of `trace.py`: starts the process of a side, and reads what it says."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.common import Results
from benchmarks.rl.trace import Trace

ROOT = Path(__file__).resolve().parents[2]
LONGEST = 7200  # seconds of a process


@dataclass(frozen=True)
class Program:
    """A module that trains, what it needs, and how the option `--python` calls it."""

    module: str
    needs: str = ""  # a module that it imports
    install: str = ""
    short: str = ""


PROGRAMS: Mapping[str, Program] = {
    "tempo": Program("benchmarks.rl.ours"),
    "Stable-Baselines3": Program("benchmarks.peers.sb3", "stable_baselines3", "pip install stable-baselines3", "SB3"),
    "JAX by hand": Program("benchmarks.peers.jax_training"),
    "brax.training": Program("benchmarks.peers.brax_training", "brax.training.agents.ppo.train", "pip install brax", "brax"),
    "environments alone": Program("benchmarks.peers.gymnasium_alone"),
}


@dataclass
class Sides:
    """Starts training processes. `pythons` are interpreters by program; a program whose package is missing is skipped once, with a note."""

    results: Results
    pythons: Mapping[str, str]
    missing: dict[str, bool] = field(default_factory=dict)

    def available(self, sides: Iterable[str]) -> list[str]:
        """Those that can run here."""
        return [side for side in sides if not self._is_missing(program_of(side))]

    def run(self, side: str, recipe: Mapping[str, Any]) -> tuple[Trace, float]:
        """The reports of a process, and the seconds that it lived. Ends the program if the process fails."""
        program = program_of(side)
        command = [self._python(program), "-m", PROGRAMS[program].module, json.dumps(dict(recipe)), "--began", repr(time.time())]
        began = time.perf_counter()
        try:
            ended = subprocess.run(command, env=_environment(), capture_output=True, text=True, check=False, timeout=LONGEST)
        except subprocess.TimeoutExpired:
            raise SystemExit(f"{side}: not done after {LONGEST} s: {' '.join(command)}") from None
        seconds = time.perf_counter() - began
        if ended.returncode:
            raise SystemExit(f"{side}: {' '.join(command)}: {ended.stderr}")
        trace = Trace.read(ended.stdout)
        if program != "tempo":
            self.results.peer_versions |= trace.versions
        return trace, seconds

    def _python(self, program: str) -> str:
        return self.pythons.get(PROGRAMS[program].short, sys.executable)

    def _is_missing(self, program: str) -> bool:
        needs = PROGRAMS[program].needs
        if needs and program not in self.missing:
            command = [self._python(program), "-c", f"import {needs}"]
            try:
                self.missing[program] = (
                    subprocess.run(command, env=_environment(), capture_output=True, check=False).returncode != 0
                )
            except OSError:  # no such interpreter
                self.missing[program] = True
            if self.missing[program]:
                entry = PROGRAMS[program]
                self.results.skip(f"{program} ({entry.install}; or --python {entry.short}=PATH, an interpreter that has it)")
        return self.missing.get(program, False)


def program_of(side: str) -> str:
    """`tempo, environment in JAX` is the program `tempo` on another environment."""
    return side.partition(",")[0]


def add_python(parser: argparse.ArgumentParser) -> None:
    """The option `--python`."""
    names = [program.short for program in PROGRAMS.values() if program.short]

    def pair(text: str) -> tuple[str, str]:
        name, sign, path = text.partition("=")
        if not sign or name not in names:
            raise argparse.ArgumentTypeError(f"{text}: write PEER=PATH, with a PEER of {', '.join(names)}")
        return name, path

    parser.add_argument(
        "--python", type=pair, action="append", default=[], metavar="PEER=PATH", help="the interpreter of SB3, or of brax"
    )


def values_of(recipe: str, settings: Iterable[str]) -> dict[str, Any]:
    """A recipe of `recipes/` with `key=value` settings, as plain values."""
    from tempo_rl.recipe import load_recipe

    return load_recipe(str(ROOT / recipe), settings).model_dump(mode="json")


def _environment() -> dict[str, str]:
    paths = [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
