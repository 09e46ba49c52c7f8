"""The command `chat`: what a person types, the commands among it, and the model's replies."""

from __future__ import annotations

import difflib
import json
import re
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path

import typer

from tempo_llm.chat import Message
from tempo_llm.conversation import Conversation
from tempo_llm.errors import RequestError, shown
from tempo_llm.files import read_text
from tempo_llm.json_files import parse_json
from tempo_llm.streams import explained

COMMANDS: Mapping[str, str] = {
    "/help": "prints these lines",
    "/reset": "begins a new conversation (also /clear)",
    "/save FILE": "writes the conversation into a file, as JSON",
    "/load FILE": "goes on with the conversation of a file",
    "/exit": "leaves (also Ctrl-D, or Ctrl-C twice); Ctrl-C stops an answer",
}
ROLES = ("system", "user", "assistant")
_COMMAND = re.compile(r"/[A-Za-z]+(\s|$)")


class Talk:
    """A talk on the standard streams. `begin` is a new conversation. Nothing that a person types ends it, but for `/exit` and Ctrl-C twice.

    On a terminal, lines can be edited, and earlier ones come again with the arrow keys, where Python has `readline`.
    """

    def __init__(self, begin: Callable[[], Conversation], max_new_tokens: int = 1024, verbose: bool = False):
        self._begin, self._max_new_tokens, self._verbose = begin, max_new_tokens, verbose
        self._conversation = begin()
        self._is_terminal = sys.stdin.isatty()

    def run(self) -> None:
        """Answer until the end of the input. Raises KeyboardInterrupt after Ctrl-C at an empty prompt, on a terminal after the second."""
        if self._is_terminal:
            with suppress(ImportError):
                import readline  # noqa: F401  `input` uses it once it is imported
            typer.echo("/help lists the commands", err=True)
        while (line := self._next_line()) is not None:
            try:
                if _COMMAND.match(line):
                    if not self._obey(*line.strip().partition(" ")[::2]):
                        return
                elif line.strip():
                    self._answer(line)
            except RequestError as error:
                typer.echo(f"error: {error}", err=True)
            except KeyboardInterrupt:
                typer.echo("\n(stopped; this message and its answer are left out)", err=True)

    # -- lines --------------------------------------------------------------------------------------------------------

    def _next_line(self) -> str | None:
        """The next line; None at the end of the input."""
        was_interrupted = False
        while True:
            try:
                return self._line()
            except RequestError as error:
                typer.echo(f"error: {error}", err=True)
            except KeyboardInterrupt:
                if was_interrupted or not self._is_terminal:
                    raise
                was_interrupted = True
                typer.echo("\n(Ctrl-C once more leaves)", err=True)

    def _line(self) -> str | None:
        """A line of the input; None at its end. Raises RequestError if it is not UTF-8."""
        try:
            if self._is_terminal:
                line = input("> ")
                line.encode("utf-8")  # the terminal's encoding may let other bytes through
                return line
            text = sys.stdin.buffer.readline()
            return text.decode("utf-8").rstrip("\r\n") if text else None
        except EOFError:
            typer.echo()
            return None
        except UnicodeError as error:
            raise RequestError(f"a message is not UTF-8 text: {error}") from None

    # -- commands -----------------------------------------------------------------------------------------------------

    def _obey(self, command: str, rest: str) -> bool:
        """Do what a command says. False for the one that leaves."""
        file = rest.strip()
        if command in ("/exit", "/quit"):
            return False
        if command == "/help":
            for name, effect in COMMANDS.items():
                typer.echo(f"{name:<12}{effect}", err=True)
        elif command in ("/reset", "/clear"):
            self._conversation = self._begin()
        elif command in ("/save", "/load"):
            if not file:
                raise RequestError(f"{command} needs a file", hint=f"{command} talk.json")
            path = Path(file).expanduser()
            typer.echo(self._save(path) if command == "/save" else self._load(path), err=True)
        else:
            names = [name.partition(" ")[0] for name in COMMANDS]
            near = difflib.get_close_matches(command, names, 1)
            raise RequestError(
                f"there is no command {command}",
                hint=f"did you mean {near[0]}?" if near else f"the commands are {', '.join(names)}",
            )
        return True

    def _save(self, path: Path) -> str:
        from tempo_core.files import refusal, write_whole

        if path.exists():
            try:
                read_messages(path)  # what is no conversation is not overwritten
            except RequestError:
                raise RequestError(f"{path} is there, and is not a conversation", hint="save into another file") from None
        messages = self._conversation.messages
        try:
            write_whole(path, (json.dumps({"messages": messages}, indent=1, ensure_ascii=False) + "\n").encode())
        except OSError as error:
            raise RequestError(f"{path} cannot be written: {refusal(error, path)}") from None
        return f"saved {len(messages)} messages in {path}"

    def _load(self, path: Path) -> str:
        messages = read_messages(path)
        self._conversation = self._begin()
        self._conversation.messages = messages
        return f"{len(messages)} messages of {path}; the conversation goes on"

    # -- answers ------------------------------------------------------------------------------------------------------

    def _answer(self, text: str) -> None:
        """Print the reply, as it comes."""
        started, setup, length = time.perf_counter(), self._conversation.setup_seconds, 0
        try:
            for piece in self._conversation.say(text, self._max_new_tokens):
                typer.echo(piece, nl=False)
                sys.stdout.flush()
                length += len(piece)
        finally:
            typer.echo()
        if self._conversation.finish_reason == "length":
            typer.echo("(cut: the most tokens of an answer, or the end of the context; /reset begins anew)", err=True)
        if self._verbose:
            setup = self._conversation.setup_seconds - setup
            seconds = time.perf_counter() - started - setup
            typer.echo(
                f"{length} characters in {seconds:.2f} s, after {setup:.2f} s for the program; "
                f"the run began anew {self._conversation.restarts} times",
                err=True,
            )


def read_messages(path: Path) -> list[Message]:
    """The messages of a file that `/save` wrote, or of a list of messages. Raises RequestError."""
    try:
        value = parse_json(read_text(path))
    except OSError as error:
        raise RequestError(explained(error)) from None
    except (ValueError, RecursionError) as error:
        raise RequestError(f"{path} is not JSON: {error}") from None
    messages = value.get("messages") if isinstance(value, dict) else value
    if not isinstance(messages, list):
        raise RequestError(f'{path} is not a conversation, such as {{"messages": [{{"role": "user", "content": "Hello"}}]}}')
    for number, message in enumerate(messages):
        if not isinstance(message, dict) or message.get("role") not in ROLES or not isinstance(message.get("content"), str):
            raise RequestError(
                f"message {number} of {path} is {shown(message)}", hint=f"a message has a role ({', '.join(ROLES)}) and a content"
            )
    return [{"role": message["role"], "content": message["content"]} for message in messages]
