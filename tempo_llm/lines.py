"""The prompts of a command; those that are lines of JSON have ids and settings of their own. Their completions in the order of the lines."""

from __future__ import annotations

import difflib
import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tempo_llm.errors import RequestError, shown
from tempo_llm.files import UTF_8, read_bounded, read_prompt
from tempo_llm.json_files import DoubledKeyError, parse_json

if TYPE_CHECKING:
    from tempo_llm.generate import Completion, Generation
    from tempo_llm.model import Model, Stream
    from tempo_llm.sampling import Sampling

MOST_ROWS = 32  # completions of a batch: what a batch has finished is out, whatever happens to the next one
KEYS = ("prompt", "id", "max_tokens", "max_new_tokens", "temperature")

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

    @property
    def has_settings(self) -> bool:
        return self.max_new_tokens is not None or self.temperature is not None


def read_lines(source: str, prompts: Sequence[str], files: Sequence[str], jsonl: str | None) -> list[Line]:
    """The prompts of a command in the order --prompt, --file, `-`, --jsonl. Each file is one prompt, and so is standard input.

    `source` is the command's argument: `-`, or empty. Raises RequestError.
    """
    if source not in ("", STDIN):
        raise RequestError(f"unexpected argument {source!r}", hint="give the prompt with --prompt TEXT, --file PATH or `-`")
    names = [*files, *([source] if source else [])]
    if [*names, jsonl].count(STDIN) > 1:
        raise RequestError("standard input is named twice, but it can be read only once", hint="leave one `-` out")
    lines = [Line(text) for text in prompts]
    lines += [Line(_without_newline(_read(name))) for name in names]
    if jsonl is not None:
        for number, line in enumerate(_read(jsonl).split("\n"), 1):  # a text may hold other ends of lines, such as U+2028
            if line.strip():
                lines.append(parse_line(line, f"line {number} of {jsonl}"))
    if not lines:
        raise RequestError("there is no prompt", hint="give one with --prompt TEXT, --file PATH, or `-` for standard input")
    for each in lines:
        try:
            each.prompt.encode("utf-8")
        except UnicodeEncodeError:
            what = f"the prompt of {each.where}" if each.where else "a prompt"
            raise RequestError(f"{what} is not UTF-8 text", hint="write it into a UTF-8 file: --file PATH") from None
    return lines


def _without_newline(text: str) -> str:
    """A text without the newline that ends its last line: editors and `echo` write it, and nobody means it as a part of a prompt."""
    return text[:-2] if text.endswith("\r\n") else text.removesuffix("\n")


def _read(name: str) -> str:
    try:
        return read_bounded(sys.stdin.buffer, "standard input").decode(UTF_8) if name == STDIN else read_prompt(Path(name))
    except (OSError, ValueError) as error:
        raise RequestError(f"cannot read the prompt in {name}: {error}", hint="prompts are UTF-8 text") from None


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
    count, temperature = counts[0] if counts else None, values.get("temperature")
    if count is not None and (not isinstance(count, int) or isinstance(count, bool) or count < 1):
        raise RequestError(f"{where}: max_tokens is {shown(count)}; it must be a whole number of at least 1")
    if temperature is not None:
        from tempo_llm.sampling import Sampling

        try:
            Sampling(temperature)
        except RequestError as error:
            raise RequestError(f"{where}: {error.message}") from None
    number = values.get("id", NO_ID)
    try:
        json.dumps(None if number is NO_ID else number, allow_nan=False)
    except ValueError:
        raise RequestError(
            f"{where}: id is {shown(number)}; JSON has no number that is not finite", hint='write it as a string: {"id": "NaN"}'
        ) from None
    return Line(values["prompt"], number, count, temperature, where)


@dataclass(frozen=True)
class Batch:
    """Lines that follow one another and have equal settings. `first` is the number of the first one."""

    first: int
    where: Sequence[str]
    ids: Sequence[Sequence[int]]
    max_new_tokens: int
    sampling: Sampling


def batches(
    lines: Sequence[Line], ids: Sequence[Sequence[int]], max_new_tokens: int, sampling: Sampling, samples: int
) -> list[Batch]:
    """The lines in batches of at most MOST_ROWS completions. What a line does not say is `max_new_tokens` and `sampling`."""
    made: list[Batch] = []
    for number, (line, tokens) in enumerate(zip(lines, ids, strict=True)):
        count = max_new_tokens if line.max_new_tokens is None else line.max_new_tokens
        chosen = sampling if line.temperature is None else replace(sampling, temperature=line.temperature)
        last = made[-1] if made else None
        fits = last is not None and (last.max_new_tokens, last.sampling) == (count, chosen)
        if last is not None and fits and (len(last.ids) + 1) * samples <= MOST_ROWS:
            made[-1] = replace(last, ids=[*last.ids, tokens], where=[*last.where, line.where])
        else:
            made.append(Batch(number, [line.where], [tokens], count, chosen))
    return made


def completions(
    model: Model, made: Sequence[Batch], request: Mapping[str, Any]
) -> Iterator[tuple[list[tuple[int, Completion]], Generation | None]]:
    """What is finished, in the order of the lines, as it comes: the numbers of lines and their completions; at a batch's end, its cost too.

    If it is interrupted, what is finished of the batch comes before the exception. Raises RequestError before anything runs.
    """
    from tempo_llm.generate import Request

    limits = {key: request[key] for key in ("seed", "max_context", "samples", "logprobs")}
    for batch in made:
        Request(batch.ids, batch.max_new_tokens, batch.sampling, **limits).check_settings(model.config)
        for where, ids in zip(batch.where, batch.ids, strict=True):
            try:
                Request([ids], batch.max_new_tokens, batch.sampling, **limits).needed(model.config)
            except RequestError as error:
                raise RequestError(f"{where}: {error.message}" if where else error.message, hint=error.hint) from None
    for batch in made:
        stream: Stream = model.generate(batch.ids, batch.max_new_tokens, **{**request, "sampling": batch.sampling}, stream=True)
        finished: set[tuple[int, int]] = set()
        rows = [(prompt, sample) for prompt in range(len(batch.ids)) for sample in range(request["samples"])]
        out = 0
        interruption: KeyboardInterrupt | None = None
        try:
            for piece in stream:
                if piece.finish_reason is not None:
                    finished.add((piece.prompt, piece.sample))
                last = next((k for k in range(out, len(rows)) if rows[k] not in finished), len(rows))
                if last > out:
                    yield [(batch.first + each.prompt, each) for each in stream.generation.completions[out:last]], None
                    out = last
        except KeyboardInterrupt as error:
            interruption = error
        if interruption is not None:
            rest = [each for each in stream.generation.completions[out:] if (each.prompt, each.sample) in finished]
            yield [(batch.first + each.prompt, each) for each in rest], None
            raise interruption
        yield [(batch.first + each.prompt, each) for each in stream.generation.completions[out:]], stream.generation


def completion_report(line: Line, completion: Completion) -> Mapping[str, object]:
    """The JSON object of a completion: what its line says, and what came of it."""
    report: dict[str, Any] = {
        **({} if line.id is NO_ID else {"id": line.id}),
        "prompt": line.prompt,
        "sample": completion.sample,
        "prompt_token_ids": list(completion.prompt_ids),
        "token_ids": list(completion.token_ids),
        "text": completion.text,
        "finish_reason": completion.finish_reason,
    }
    if completion.logprobs is not None:
        report["logprobs"] = [asdict(row) for row in completion.logprobs]
    return report
