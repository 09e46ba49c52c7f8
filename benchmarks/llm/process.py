"""The other side of `serve.py`: a process for a system, which may fail, take too long or need too much memory. Then the reason is known."""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.llm.serve import Answer

ROOT = Path(__file__).resolve().parents[2]
EVERY = 0.05  # seconds between two looks at the memory of a process that works


class Refused(Exception):
    """There is no figure; the message is what the table says instead. `is_final`: nor will there be one for this model."""

    def __init__(self, reason: str, is_final: bool = False):
        super().__init__(reason)
        self.is_final = is_final


@dataclass(frozen=True)
class Limits:
    """Of each request: seconds, and the gibibytes that the process may hold."""

    seconds: float
    memory_gib: float


class Worker:
    """A process that has loaded a model."""

    def __init__(self, system: str, directory: Path, dtype: str, window: int, limits: Limits, python: str = sys.executable):
        """Raises Refused if the system cannot have the model."""
        self.limits = limits
        self._log = tempfile.TemporaryFile("w+")  # noqa: SIM115
        path = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
        command = [python, "-m", "benchmarks.llm.serve", system, str(directory), dtype, str(window)]
        self._process = subprocess.Popen(
            command,
            env={**os.environ, "PYTHONPATH": path},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
        )
        try:
            self.versions: dict[str, str] = self._answer()["versions"]
        except Refused:
            self.stop()
            raise

    def ask(self, what: str, **request: Any) -> Answer:
        """What the process answers. Raises Refused; after it, the worker may have ended: see `alive`."""
        assert self._process.stdin
        try:
            print(json.dumps({"do": what, **request}), file=self._process.stdin, flush=True)
        except BrokenPipeError:
            raise self._ended() from None
        return self._answer()

    @property
    def alive(self) -> bool:
        return self._process.poll() is None

    def stop(self) -> None:
        if self._log.closed:
            return
        self._process.kill()
        self._process.communicate()
        self._log.close()

    def _answer(self) -> Answer:
        assert self._process.stdout
        begun = time.monotonic()
        while not select.select([self._process.stdout], [], [], EVERY)[0]:
            if time.monotonic() - begun > self.limits.seconds:
                self.stop()
                raise Refused(f"longer than {self.limits.seconds:g} s")
            if self._resident() > self.limits.memory_gib * 2**30:
                self.stop()
                raise Refused(f"more than {self.limits.memory_gib:g} GiB")
        line = self._process.stdout.readline()
        if not line:
            raise self._ended()
        answer: Answer = json.loads(line)
        if "refused" in answer:
            raise Refused(answer["refused"], is_final=True)
        if "failed" in answer:
            raise Refused(answer["failed"])
        return answer

    def _resident(self) -> int:
        try:
            return int(Path(f"/proc/{self._process.pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
        except (OSError, IndexError):
            return 0

    def _ended(self) -> Refused:
        """Why the process ended, from the last line that it wrote."""
        code = self._process.wait()
        self._log.seek(0)
        lines = self._log.read().strip().splitlines()
        return Refused(f"the process ended with code {code}: {lines[-1] if lines else ''}"[:200])
