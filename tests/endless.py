"""Commands for which XLA never ends, each in a process of its own that gets a signal.

In place of XLA's compiler there is a call in C that releases Python's lock, as XLA does, and serves no signals.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

PATIENCE = 10.0  # seconds in which a process ends, on a machine with much to do; the promise is two
SCRIPT = """
import hashlib
import jax
import tempo_core.compiling

def compile(lowered, *arguments, **options):
    hashlib.pbkdf2_hmac("sha256", b"", b"", 2**30)

jax.stages.Lowered.compile = compile
tempo_core.compiling.LONG = 0.2
"""


@dataclass(frozen=True)
class Ended:
    """How a process ended, and what it printed."""

    status: int
    output: str


def ended(code: str, arguments: list[str], number: signal.Signals, place: Path, sign: str = "compiling launch") -> Ended:
    """Run `code`, and send a signal when `sign` is printed. Raises subprocess.TimeoutExpired if the process goes on."""
    printed = place / "printed.txt"
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).resolve().parents[1]), "TEMPO_CACHE": "off", "NO_COLOR": "1"}
    with open(printed, "wb") as file:
        command = [sys.executable, "-c", SCRIPT + code, *arguments]
        process = subprocess.Popen(command, stdout=file, stderr=file, env=environment, cwd=place)
    try:
        for _ in range(1200):
            if sign in printed.read_text() or process.poll() is not None:
                break
            time.sleep(0.1)
        process.send_signal(number)
        process.wait(PATIENCE)
    finally:
        process.kill()
        process.wait()
    return Ended(process.returncode, printed.read_text())
