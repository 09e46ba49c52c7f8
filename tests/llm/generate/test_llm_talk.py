"""The command `chat` on a terminal and in a pipe: lines that are edited, commands, bytes that are no text, Ctrl-C."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tempo_llm.errors import RequestError
from tempo_llm.talk import read_messages

if sys.platform == "win32":
    pytest.skip("needs terminals", allow_module_level=True)

# A chat with a conversation that needs no model: it repeats what it hears, in capitals, and never ends if it hears "wait".
CODE = """
import time
import typer
from tempo_llm.cli import _errors
from tempo_llm.talk import Talk

class Echo:
    setup_seconds, restarts, finish_reason = 0.0, 0, "stop"

    def __init__(self):
        self.messages = []

    def say(self, text, most):
        yield "<"
        while text == "wait":
            time.sleep(0.01)
        yield f"{text.upper()}>"
        self.finish_reason = "length" if text == "long" else "stop"
        self.messages += [{"role": "user", "content": text}, {"role": "assistant", "content": text.upper()}]

try:
    with _errors():
        Talk(Echo).run()
except typer.Exit as end:
    raise SystemExit(end.exit_code)
"""
UP = b"\x1b[A"


class Terminal:
    """A chat on a terminal of its own."""

    def __init__(self, folder: Path):
        self._end, inner = os.openpty()
        environment = {**os.environ, "PYTHONPATH": str(Path(__file__).resolve().parents[3]), "TERM": "dumb", "LC_ALL": "C.UTF-8"}
        command = [sys.executable, "-c", CODE]
        self.process = subprocess.Popen(
            command, stdin=inner, stdout=inner, stderr=inner, cwd=folder, env=environment, start_new_session=True
        )
        os.close(inner)

    def __enter__(self) -> Terminal:
        return self

    def __exit__(self, *error: object) -> None:
        self.process.kill()
        self.process.wait()
        os.close(self._end)

    def type(self, keys: bytes, sign: str) -> str:
        """Type keys, and wait for a text; what comes up to it."""
        os.write(self._end, keys)
        return self.wait_for(sign)

    def interrupt(self, sign: str) -> None:
        """Press Ctrl-C, and wait for a text.

        `input` of Python sees a signal that comes between the prompt and its wait for keys with the next key, or with the next signal: it
        takes both for one. So a person presses Ctrl-C again, and so does this.
        """
        for seconds in (10, 60):
            self.process.send_signal(signal.SIGINT)
            heard = self.hear(sign, seconds)
            if sign in heard:
                return
        raise AssertionError(f"no {sign!r} in {heard!r}")

    def wait_for(self, sign: str) -> str:
        text = self.hear(sign, 60)
        assert sign in text, f"no {sign!r} in {text!r}"
        return text

    def hear(self, sign: str, seconds: float) -> str:
        """What comes up to a text, or in so many seconds."""
        text, until = "", time.monotonic() + seconds
        while sign not in text and select.select([self._end], [], [], max(until - time.monotonic(), 0))[0]:
            text += os.read(self._end, 4096).decode("utf-8", "replace")
        return text


@pytest.mark.slow
def test_a_talk_on_a_terminal(tmp_path: Path) -> None:
    pytest.importorskip("readline")
    with Terminal(tmp_path) as terminal:
        terminal.wait_for("> ")
        terminal.type(b"a dog\n", "<A DOG>")
        terminal.type(UP + b"s\n", "<A DOGS>")  # the line before, with a letter more
        terminal.type(b"\xff\n", "error: a message is not UTF-8 text")
        terminal.type(b"wait\n", "<")
        terminal.interrupt("(stopped; this message and its answer are left out)")
        terminal.type(b"/help\n", "/save FILE")
        terminal.type(b"/save talk.json\n", "saved 4 messages in talk.json")
        terminal.interrupt("(Ctrl-C once more leaves)")
        terminal.type(b"go on\n", "<GO ON>")
        terminal.interrupt("(Ctrl-C once more leaves)")
        terminal.interrupt("interrupted")
        assert terminal.process.wait(30) == 128 + signal.SIGINT
    assert [message["content"] for message in read_messages(tmp_path / "talk.json")] == ["a dog", "A DOG", "a dogs", "A DOGS"]


def test_the_end_of_a_terminal_ends_the_talk(tmp_path: Path) -> None:
    with Terminal(tmp_path) as terminal:
        terminal.wait_for("> ")
        terminal.type(b"a dog\n", "<A DOG>\r\n> ")
        os.write(terminal._end, b"\x04")
        assert terminal.process.wait(30) == 0


def talked(stdin: str, folder: Path) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).resolve().parents[3])}
    return subprocess.run(
        [sys.executable, "-c", CODE],
        input=stdin,
        capture_output=True,
        text=True,
        cwd=folder,
        env=environment,
        timeout=60,
        check=False,
    )


@pytest.mark.slow
def test_a_talk_is_saved_and_goes_on(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    (tmp_path / "odd.json").write_text('[{"role": "cat", "content": "meow"}]')
    first = talked(
        "one\n/save talk.json\n/reset\ntwo\n/save other.json\n/save notes.txt\n/save none/talk.json\n/load odd.json\n/exit\nx\n",
        tmp_path,
    )
    assert first.returncode == 0 and first.stdout == "<ONE>\n<TWO>\n", first.stderr
    assert "error: notes.txt is there, and is not a conversation\n  hint: save into another file\n" in first.stderr
    assert "error: none/talk.json cannot be written: there is no directory none\n" in first.stderr
    assert "error: message 0 of odd.json is {'role': 'cat', 'content': 'meow'}" in first.stderr
    assert (tmp_path / "notes.txt").read_text() == "mine"
    assert [each["content"] for each in read_messages(tmp_path / "other.json")] == ["two", "TWO"], "/reset forgets"
    assert "cut" not in first.stderr and "(cut: the most tokens of an answer" in talked("long\n", tmp_path).stderr
    second = talked("/load talk.json\nthree\n/save talk.json\n/load none.json\n/load\n/lod x\n/usr/bin is a path\n", tmp_path)
    assert second.stdout == "<THREE>\n</USR/BIN IS A PATH>\n"
    assert "2 messages of talk.json; the conversation goes on" in second.stderr
    assert [each["content"] for each in read_messages(tmp_path / "talk.json")] == ["one", "ONE", "three", "THREE"]
    for line in ("none.json cannot be used", "/load needs a file", "there is no command /lod\n  hint: did you mean /load?"):
        assert f"error: {line}" in second.stderr


@pytest.mark.parametrize("text", ["{", "3", '{"messages": 1}', '[{"role": "user"}]'])
def test_a_file_that_is_no_conversation(text: str, tmp_path: Path) -> None:
    (tmp_path / "talk.json").write_text(text)
    with pytest.raises(RequestError, match=r"talk\.json"):
        read_messages(tmp_path / "talk.json")


def test_messages_of_another_program_are_read(tmp_path: Path) -> None:
    messages = [{"role": "user", "content": "hello", "name": "Anna"}]
    (tmp_path / "talk.json").write_text(json.dumps(messages))
    assert read_messages(tmp_path / "talk.json") == [{"role": "user", "content": "hello"}]
