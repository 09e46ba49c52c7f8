"""Prompts as lines of JSON, each with an id and settings of its own, and their completions in the order of the lines."""

from __future__ import annotations

import difflib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from tempo_llm.errors import RequestError, shown

if TYPE_CHECKING:
    from tempo_llm.generate import Completion, Generation
    from tempo_llm.model import Model, Stream
    from tempo_llm.sampling import Sampling

MOST_ROWS = 32  # completions of a batch: what a batch has finished is out, whatever happens to the next one
KEYS = ("prompt", "id", "max_tokens", "max_new_tokens", "temperature")

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


def parse_line(text: str, where: str) -> Line:
    """A line of JSON: a text, or an object with `prompt` and other keys of KEYS. Raises RequestError, which names `where` it is."""
    try:
        value = json.loads(text)
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
                hint=f"did you mean {near[0]}?" if near else f"the keys are {', '.join(KEYS)}; put what is yours under id",
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
            f"{where}: id is {shown(number)}; JSON has no number that is not finite", hint="write it as a text"
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
