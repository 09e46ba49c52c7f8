"""A plugin of pytest: it runs a share of the chosen tests, and writes each outcome as a line of JSON. `tests.py` starts pytest with it.

The environment says which share (`RELEASE_SHARE=2/4`: the second of four) and into which file (`RELEASE_OUTCOMES`). A test belongs to the
same share in each process, and the tests of one function are spread over all shares.
"""

from __future__ import annotations

import hashlib
import json
import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pytest

OUTCOMES = "RELEASE_OUTCOMES"
SHARE = "RELEASE_SHARE"


def is_in(name: str, share: str) -> bool:
    """Whether the test of this name is in the share `2/4`."""
    number, count = map(int, share.split("/"))
    return int.from_bytes(hashlib.sha256(name.encode()).digest()[:8]) % count == number - 1


class Share:
    """The hooks of one run."""

    def __init__(self, outcomes: str | None, share: str):
        self.outcomes, self.share = outcomes, share
        self.phases: dict[str, dict[str, str]] = {}  # of the tests that run: what each phase came to

    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        left_out = [item for item in items if not is_in(item.nodeid, self.share)]
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if is_in(item.nodeid, self.share)]

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        phases = self.phases.setdefault(report.nodeid, {})
        phases[report.when or ""] = report.outcome
        if report.failed:
            self._write({"failed": report.nodeid, "why": _why(report), "when": report.when})
        if report.when == "teardown":  # the last phase, which each test has
            outcomes = self.phases.pop(report.nodeid).values()
            worst = next((each for each in ("failed", "skipped") if each in outcomes), "passed")
            self._write({"outcome": worst})

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            self._write({"failed": report.nodeid or "collection", "why": _why(report), "when": "collection"})
            self._write({"outcome": "failed"})

    def _write(self, line: dict[str, object]) -> None:
        if self.outcomes is not None:
            with open(self.outcomes, "a", encoding="utf-8") as file:
                file.write(json.dumps(line) + "\n")


def _why(report: pytest.TestReport | pytest.CollectReport) -> str:
    """The message of a failure, which is the first line of pytest's own summary; or its last line."""
    crash = getattr(report.longrepr, "reprcrash", None)
    lines = (crash.message if crash is not None else str(report.longrepr)).strip().splitlines() or [""]
    return lines[0 if crash is not None else -1]


def pytest_configure(config: pytest.Config) -> None:
    is_worker = hasattr(config, "workerinput")  # of pytest-xdist: the process that started it gets its reports
    config.pluginmanager.register(Share(None if is_worker else os.environ[OUTCOMES], os.environ[SHARE]), "share")
