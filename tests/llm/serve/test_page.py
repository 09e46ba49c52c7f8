"""The commands and the code of docs/serve.md run, against the shared server; the code prints what the page says."""

from __future__ import annotations

import contextlib
import io
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from benchmarks.serving import ServerProcess
from tests.llm.serve.conftest import KEY

PAGE = Path(__file__).resolve().parents[3] / "docs" / "serve.md"
CODE = re.compile(r"^```python\n(?P<code>.*?)^```\n(?:```text\n(?P<printed>.*?)^```\n)?", re.DOTALL | re.MULTILINE)
SHELL = re.compile(r"^```\n(.*?)^```\n", re.DOTALL | re.MULTILINE)
URL = "http://127.0.0.1:8000"


def commands() -> list[str]:
    text = CODE.sub("", PAGE.read_text(encoding="utf-8"))
    return [line for block in SHELL.findall(text) for line in block.splitlines()]


def environment(server: ServerProcess) -> dict[str, str]:
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    return {**os.environ, "PATH": path, "TEMPO_API_KEY": KEY, "no_proxy": "127.0.0.1"}


def test_the_commands_are_answered(server: ServerProcess) -> None:
    each = [command for command in commands() if command.startswith("curl")]
    assert len(each) == 5
    for command in each:
        shown = command.replace(URL, server.url).replace("curl -s", "curl -s --fail-with-body")
        done = subprocess.run(["bash", "-c", shown], capture_output=True, text=True, timeout=60, env=environment(server))
        assert done.returncode == 0 and done.stdout, done.stdout + done.stderr


def test_the_page_has_no_other_commands() -> None:
    """The server's own is what the fixture runs, with another port."""
    assert [each for each in commands() if not each.startswith("curl")] == [
        "pip install -e '.[llm,serve]'   # in a checkout of the repository",
        "export TEMPO_API_KEY=secret",
        "tempo-llm serve --port 8000",
    ]


@pytest.mark.slow
def test_the_code_prints_what_the_page_says(
    server: ServerProcess, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    for name, value in environment(server).items():
        monkeypatch.setenv(name, value)
    page, namespace = PAGE.read_text(encoding="utf-8"), dict[str, Any]()
    blocks = list(CODE.finditer(page))
    assert len(blocks) >= 6
    written = page
    for block in blocks:
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(compile(block["code"].replace(URL, server.url), str(PAGE), "exec"), namespace)
        if request.config.getoption("--update-golden"):
            written = written.replace(block[0], f"```python\n{block['code']}```\n```text\n{printed.getvalue()}```\n")
        else:
            assert printed.getvalue() == (block["printed"] or ""), block["code"]
    if written != page:
        PAGE.write_text(written, encoding="utf-8")
    namespace["client"].close()
