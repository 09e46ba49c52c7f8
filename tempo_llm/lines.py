"""The prompts of a command. Those that are lines of JSON have ids and settings of their own, and may be wrong one by one."""

from __future__ import annotations

import difflib
import json
import os
import queue
import stat
import sys
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from tempo_llm.errors import RequestError, shown
from tempo_llm.files import MOST, UTF_8, read_bounded, read_prompt
from tempo_llm.json_files import DoubledKeyError, parse_json

if TYPE_CHECKING:
    from tempo_llm.generate import Completion
    from tempo_llm.tokenizer import Tokenizer

KEYS = ("prompt", "id", "max_tokens", "max_new_tokens", "temperature", "seed", "stop")
PATIENCE = 0.05  # seconds to wait for another line of a pipe, so that lines that come together are answered together

STDIN = "-"
NO_ID = object()  # of a line without the key: null is an id


@dataclass(frozen=True)
class Line:
    """A prompt, what its line says besides, and the line's place as text. None is a setting that the line does not have."""

    prompt: str
    id: object = NO_ID
    max_new_tokens: int | None = None
    temperature: float | None = None
    where: str = ""
    seed: int | None = None
    stop: tuple[str, ...] | None = None

    @property
    def has_settings(self) -> bool:
        return any(setting is not None for setting in (self.max_new_tokens, self.temperature, self.seed, self.stop))


def read_prompts(source: str, prompts: Sequence[str], files: Sequence[str], jsonl: str | None) -> list[Line]:
    """The prompts of a command in the order argument, --prompt, --file, `-`. Each file is one prompt, and so is standard input.

    `source` is the command's argument: a prompt, `-`, or empty. `jsonl` is the file of further ones. Raises RequestError.
    """
    names = [*files, *([source] if source == STDIN else [])]
    if [*names, jsonl].count(STDIN) > 1:
        raise RequestError("standard input is named twice, but it can be read only once", hint="leave one `-` out")
    lines = [Line(text) for text in (*([source] if source not in ("", STDIN) else []), *prompts)]
    lines += [Line(_without_newline(_read(name))) for name in names]
    if not lines and jsonl is None:
        raise RequestError(
            "there is no prompt",
            hint='give one: tempo-llm generate "text", --prompt TEXT, --file PATH, or `-` for standard input',
        )
    for line in lines:
        check_text(line)
    return lines


def check_text(line: Line) -> None:
    """Raises RequestError for a prompt that is not text."""
    try:
        line.prompt.encode("utf-8")
    except UnicodeEncodeError:
        what = f"the prompt of {line.where}" if line.where else "a prompt"
        raise RequestError(f"{what} is not UTF-8 text", hint="write it into a UTF-8 file: --file PATH") from None


def _without_newline(text: str) -> str:
    """A text without the newline that ends its last line: editors and `echo` write it, and nobody means it as a part of a prompt."""
    return text[:-2] if text.endswith("\r\n") else text.removesuffix("\n")


def _read(name: str) -> str:
    try:
        return read_bounded(sys.stdin.buffer, "standard input").decode(UTF_8) if name == STDIN else read_prompt(Path(name))
    except (OSError, ValueError) as error:
        raise _unreadable(name, error) from None


def _unreadable(name: str, error: Exception) -> RequestError:
    return RequestError(f"cannot read the prompt in {name}: {error}", hint="prompts are UTF-8 text")


# -- lines of JSON ----------------------------------------------------------------------------------------------------


class Lines:
    """The prompts of a command one by one, as they come: `first`, then the lines of a file of JSON, or of standard input.

    `take` gives a prompt, or the RequestError of a line that is not one, which names it. Raises RequestError for a file that cannot be read.
    """

    def __init__(self, first: Sequence[Line], jsonl: str):
        self._first, self._name = list(first), jsonl
        self._texts: Iterator[bytes | Exception] | None = None
        self._queue: queue.Queue[bytes | Exception | None] = queue.Queue(2**10)
        self._number, self.has_ended = 0, False
        if jsonl != STDIN:
            self._texts = iter(_read_bytes(jsonl).split(b"\n"))
        elif not _comes_slowly(sys.stdin.buffer):
            self._texts = iter(_each(sys.stdin.buffer))
        else:  # a file of its own: Python's end would wait for the thread that reads from `sys.stdin`
            file = open(os.dup(sys.stdin.fileno()), "rb")  # noqa: SIM115
            threading.Thread(target=self._feed, args=(file,), daemon=True).start()

    def take(self, can_wait: bool = True) -> Line | RequestError | None:
        """The next prompt; None at the end, or where `can_wait` is off and none comes at once."""
        if self._first:
            return self._first.pop(0)
        while not self.has_ended:
            try:
                text = self._next(None if can_wait else PATIENCE)
            except queue.Empty:
                return None
            if text is None:
                self.has_ended = True
            elif isinstance(text, Exception):
                self.has_ended = True
                return _unreadable(self._name, text)
            else:
                self._number += 1
                if text.strip(b" \t\r\n\xef\xbb\xbf"):
                    return self._parsed(text)
        return None

    def _parsed(self, text: bytes) -> Line | RequestError:
        where = f"line {self._number} of {self._name}"
        try:
            line = parse_line(text.decode(UTF_8 if self._number == 1 else "utf-8"), where)
            check_text(line)
        except UnicodeDecodeError as error:
            return RequestError(f"{where} is not UTF-8 text: {error}")
        except RequestError as error:
            return error
        return line

    def _next(self, seconds: float | None) -> bytes | Exception | None:
        return self._queue.get(timeout=seconds) if self._texts is None else next(self._texts, None)

    def _feed(self, file: IO[bytes]) -> None:
        for text in _each(file):
            self._queue.put(text)
        self._queue.put(None)


def _read_bytes(name: str) -> bytes:
    try:
        path = Path(name)
        if path.is_fifo():
            return read_prompt(path).encode()
        with open(path, "rb") as file:
            return read_bounded(file, name)
    except (OSError, ValueError) as error:
        raise _unreadable(name, error) from None


def _each(file: IO[bytes]) -> Iterator[bytes | Exception]:
    """The lines of a file; at its end perhaps the reason why the rest cannot be read."""
    try:
        while text := file.readline(MOST):
            yield text
            if len(text) == MOST:
                yield ValueError(f"a line has more than {MOST >> 20} MiB")
                return
    except (OSError, ValueError) as error:
        yield error


def _comes_slowly(file: IO[bytes]) -> bool:
    """Whether a file is a pipe or a terminal, whose lines come when somebody writes them."""
    try:
        return not stat.S_ISREG(os.fstat(file.fileno()).st_mode)
    except (OSError, ValueError):  # it is no file of the system
        return False


def parse_line(text: str, where: str) -> Line:
    """A line of JSON: a text, or an object with `prompt` and other keys of KEYS. Raises RequestError, which names `where` it is."""
    try:
        value = parse_json(text)
    except DoubledKeyError as error:
        raise RequestError(f"{where}: {error}", hint="leave one of them out") from None
    except (ValueError, RecursionError) as error:
        raise RequestError(f"{where} is not JSON: {error}", hint='write {"prompt": "text"}') from None
    values: dict[str, Any] = value if isinstance(value, dict) else {"prompt": value}
    if not isinstance(values.get("prompt"), str):
        raise RequestError(f"{where} has no prompt", hint='write {"prompt": "text"}, or "text"')
    for key in values:
        if key not in KEYS:
            near = difflib.get_close_matches(key, KEYS, 1)
            raise RequestError(
                f"{where} has the unknown key {shown(key)}",
                hint=f"did you mean {near[0]}?" if near else f"the keys are {', '.join(KEYS)}; put your own data under id",
            )
    counts = [values[key] for key in ("max_tokens", "max_new_tokens") if values.get(key) is not None]
    if len(counts) == 2 and counts[0] != counts[1]:
        raise RequestError(f"{where} has both max_tokens and max_new_tokens", hint="leave one of them out")
    count, temperature, seed = counts[0] if counts else None, values.get("temperature"), values.get("seed")
    if count is not None and (not isinstance(count, int) or isinstance(count, bool) or count < 1):
        raise RequestError(f"{where}: max_tokens is {shown(count)}; it must be a whole number of at least 1")
    if seed is not None and (not isinstance(seed, int) or isinstance(seed, bool)):
        raise RequestError(f"{where}: seed is {shown(seed)}; it must be a whole number")
    if temperature is not None:
        from tempo_llm.sampling import Sampling

        try:
            Sampling(temperature)
        except RequestError as error:
            raise RequestError(f"{where}: {error.message}") from None
    stop = values.get("stop")
    stops = None if stop is None else (stop,) if isinstance(stop, str) else stop
    if stops is not None and not (isinstance(stops, (list, tuple)) and all(isinstance(each, str) and each for each in stops)):
        raise RequestError(f"{where}: stop is {shown(stop)}; it must be a text that is not empty, or a list of such texts")
    number = values.get("id", NO_ID)
    try:
        json.dumps(None if number is NO_ID else number, allow_nan=False)
    except ValueError:
        raise RequestError(
            f"{where}: id is {shown(number)}; JSON has no number that is not finite", hint='write it as a string: {"id": "NaN"}'
        ) from None
    return Line(values["prompt"], number, count, temperature, where, seed, None if stops is None else tuple(stops))


def named(line: Line, error: RequestError) -> RequestError:
    """An error of a line, which names it."""
    return RequestError(f"{line.where}: {error.message}", hint=error.hint) if line.where else error


def completion_report(line: Line, completion: Completion, tokenizer: Tokenizer) -> Mapping[str, object]:
    """The JSON object of a completion: what its line says, and what came of it."""
    report: dict[str, Any] = {
        **({} if line.id is NO_ID else {"id": line.id}),
        "prompt": line.prompt,
        "sample": completion.sample,
        "prompt_token_ids": list(completion.prompt_ids),
        "token_ids": list(completion.token_ids),
        "tokens": _texts(tokenizer, completion.token_ids),
        "text": completion.text,
        "finish_reason": completion.finish_reason,
    }
    if completion.logprobs is not None:
        report["logprobs"] = [
            {**asdict(row), "top_tokens": _texts(tokenizer, (token for token, _ in row.top))} for row in completion.logprobs
        ]
    return report


def _texts(tokenizer: Tokenizer, tokens: Iterable[int]) -> list[str]:
    return [tokenizer.token_text(token) for token in tokens]
