"""A server of `tempo-llm serve` in a process of its own, for benchmarks and tests."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
READY = re.compile(r"^(?P<name>\S+) at (?P<url>http://\S+)/v1 ", re.MULTILINE)


class ServerProcess:
    """`tempo-llm serve` on a free port of this machine. A context: the server ends with it. `said` is what it printed so far."""

    def __init__(self, *options: str, seconds: float = 300.0, env: dict[str, str] | None = None):
        handle, path = tempfile.mkstemp(suffix=".log")
        self._output = Path(path)
        command = [sys.executable, "-m", "tempo_llm", "serve", "--port", "0", *options]
        environment = {**os.environ, "JAX_PLATFORMS": os.environ.get("JAX_PLATFORMS", "cpu"), **(env or {})}
        self.process = subprocess.Popen(command, stdout=handle, stderr=subprocess.STDOUT, cwd=ROOT, env=environment)
        os.close(handle)
        try:
            self.name, self.url = self._ready(seconds)
        except BaseException:
            self.end(1.0)
            raise

    def _ready(self, seconds: float) -> tuple[str, str]:
        begun = time.monotonic()
        while time.monotonic() - begun < seconds:
            ready = READY.search(self.said)
            if ready is not None:
                return ready["name"], ready["url"]
            if self.process.poll() is not None:
                break
            time.sleep(0.05)
        raise RuntimeError(f"the server did not start:\n{self.said}")

    @property
    def said(self) -> str:
        return self._output.read_text(encoding="utf-8", errors="replace")

    def end(self, seconds: float = 60.0) -> int:
        """Ask the server to end, and wait for it. Returns its exit status."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        try:
            return self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            self.process.kill()
            return self.process.wait()

    def __enter__(self) -> ServerProcess:
        return self

    def __exit__(self, *of_exception: Any) -> None:
        self.end()
        self._output.unlink()

    # -- what a leak would show ---------------------------------------------------------------------------------------

    @property
    def resident_bytes(self) -> int:
        lines = Path(f"/proc/{self.process.pid}/status").read_text(encoding="utf-8")
        found = re.search(r"VmRSS:\s+(\d+) kB", lines)
        assert found is not None
        return int(found[1]) * 1024

    @property
    def processor_seconds(self) -> float:
        """What all of its threads have used of processors so far."""
        fields = Path(f"/proc/{self.process.pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    @property
    def open_files(self) -> int:
        return len(os.listdir(f"/proc/{self.process.pid}/fd"))


def metric(text: str, name: str) -> float:
    """A number of the page of metrics."""
    found = re.search(rf"^{re.escape(name)} (\S+)$", text, re.MULTILINE)
    assert found is not None, name
    return float(found[1])
