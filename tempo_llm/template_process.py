"""The process that renders chat templates, kept for many conversations: a server would wait for its start at each of them."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

WORKER = Path(__file__).with_name("template_worker.py")


class TemplateProcess:
    """Renders one conversation after the other, for threads in turn. A template that takes too long ends the process; the next one has a new one."""

    def __init__(self, seconds: float):
        self._seconds = seconds
        self._process: subprocess.Popen[str] | None = None
        self._lock = threading.Lock()

    def ask(self, request: Mapping[str, Any]) -> str:
        """The worker's answer, a line of JSON; empty if its process ended. Raises subprocess.TimeoutExpired and OSError."""
        with self._lock:
            process = self._started()
            timer = threading.Timer(self._seconds, process.kill)
            timer.start()
            try:
                assert process.stdin is not None and process.stdout is not None
                process.stdin.write(json.dumps(request) + "\n")
                process.stdin.flush()
                answer = process.stdout.readline()
            except BrokenPipeError:
                answer = ""
            finally:
                timed_out = not timer.is_alive()
                timer.cancel()
            if not answer:
                self._end()
                if timed_out:
                    raise subprocess.TimeoutExpired(str(WORKER), self._seconds)
            return answer

    def close(self) -> None:
        """End the process."""
        with self._lock:
            self._end()

    def _started(self) -> subprocess.Popen[str]:
        if self._process is None or self._process.poll() is not None:
            self._end()
            command = [sys.executable, "-I", "-S", str(WORKER), "--many"]
            pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
            self._process = subprocess.Popen(command, **pipes, encoding="utf-8", errors="replace")
        return self._process

    def _end(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.communicate()
            self._process = None
