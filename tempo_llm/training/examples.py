"""Examples to learn from: lines of JSON, as tokens, and which of these count for the loss."""

from __future__ import annotations

import difflib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from tempo_core.runs.commands import RecipeError
from tempo_llm.chat import Message
from tempo_llm.errors import TokenizerError, shown
from tempo_llm.files import UTF_8, check_regular
from tempo_llm.json_files import DoubledKeyError, JsonObject, parse_json
from tempo_llm.tokenizer import Tokenizer
from tempo_llm.training.rows import Rows


@dataclass(frozen=True)
class Forms:
    """What a line may be: `keys` of each form, of which the first one counts whose keys are all there. `wanted` and `hint` say it in errors."""

    keys: Mapping[str, tuple[str, ...]]
    wanted: str
    hint: str


ROLES = ("system", "user", "assistant")
AT_ONCE = 500  # conversations whose template is rendered by one process
FORMS = Forms(
    {"text": ("text",), "completion": ("prompt", "completion"), "messages": ("messages",)},
    "neither a text, nor a prompt with its completion, nor messages",
    'write {"text": ...}, {"prompt": ..., "completion": ...} or {"messages": [{"role": ..., "content": ...}, ...]}',
)


@dataclass(frozen=True)
class Line:
    """A line of the data: an object with the keys of a form, whose values are texts, or `messages`."""

    where: str
    form: str
    texts: Mapping[str, str]
    messages: Sequence[Message] = ()

    @property
    def key(self) -> str:
        """What decides whether it is held out: so lines with the same prompt are on the same side."""
        return json.dumps(self.messages) if self.form == "messages" else next(iter(self.texts.values()))


@dataclass
class Example:
    """Tokens, and whether each of them counts for the loss. A `text` that does not fit into a row goes on in the next one."""

    tokens: list[int]
    counted: list[bool]
    is_text: bool = False

    def add(self, tokens: Sequence[int], counted: bool) -> None:
        self.tokens += tokens
        self.counted += [counted] * len(tokens)


# -- lines ------------------------------------------------------------------------------------------------------------


def read_lines(file: Path, forms: Forms = FORMS) -> list[Line]:
    """The lines of a file that are not empty. Raises RecipeError, which names the first bad line."""
    try:
        check_regular(file)
        with open(file, "rb") as lines:
            read = [_line(f"line {number} of {file}", line, forms) for number, line in enumerate(lines, 1) if line.strip()]
    except OSError as error:
        raise RecipeError(f"data={file} cannot be read: {error.strerror or error}", hint="name a file: data=FILE.jsonl") from None
    if not read:
        raise RecipeError(f"data={file} has no lines", hint=forms.hint)
    return read


def _line(where: str, content: bytes, forms: Forms) -> Line:
    try:
        values = parse_json(content.decode(UTF_8))
    except UnicodeDecodeError as error:
        raise RecipeError(f"{where} is not UTF-8 text: {error.reason} at byte {error.start}") from None
    except DoubledKeyError as error:
        raise RecipeError(f"{where}: {error}", hint="leave one of them out") from None
    except (ValueError, RecursionError) as error:
        raise RecipeError(f"{where} is not JSON: {error}", hint=forms.hint) from None
    if not isinstance(values, dict):
        raise RecipeError(f"{where} is {shown(values)}, and not an object", hint=forms.hint)
    _check_keys(where, values, forms)
    form = next((form for form, keys in forms.keys.items() if set(keys) <= values.keys()), None)
    if form is None:
        raise RecipeError(f"{where} has {forms.wanted}", hint=forms.hint)
    others = [key for key in values if key not in (*forms.keys[form], "id")]
    if others:
        raise RecipeError(f"{where} has {others[0]} beside {' and '.join(forms.keys[form])}", hint=forms.hint)
    if form == "messages":
        _check_messages(where, values["messages"])
        return Line(where, form, {}, values["messages"])
    for key in forms.keys[form]:
        _check_text(where, key, values[key])
    return Line(where, form, {key: values[key] for key in forms.keys[form]})


def _check_keys(where: str, values: JsonObject, forms: Forms) -> None:
    keys = [key for form in forms.keys.values() for key in form]
    for key in values:
        if key not in (*keys, "id"):
            near = difflib.get_close_matches(key, keys, 1)
            raise RecipeError(
                f"{where} has the unknown key {shown(key)}",
                hint=f"did you mean {near[0]}?" if near else f"{forms.hint}; put your own data under id",
            )


def _check_text(where: str, what: str, value: object) -> None:
    if not isinstance(value, str):
        raise RecipeError(f"{where}: {what} is {shown(value)}, and not a text")
    try:
        value.encode("utf-8")
    except UnicodeEncodeError:
        raise RecipeError(f"{where}: {what} is not text: it has half of a surrogate pair") from None


def _check_messages(where: str, messages: object) -> None:
    if not isinstance(messages, list) or not messages:
        raise RecipeError(f"{where}: messages is {shown(messages)}, and not a list of messages", hint=FORMS.hint)
    for number, message in enumerate(messages, 1):
        if not isinstance(message, dict) or set(message) != {"role", "content"}:
            raise RecipeError(
                f"{where}: message {number} is {shown(message)}",
                hint='a message is {"role": ..., "content": ...}, and has no other keys',
            )
        if message["role"] not in ROLES:
            raise RecipeError(
                f"{where}: message {number} has the role {shown(message['role'])}", hint=f"roles are {', '.join(ROLES)}"
            )
        _check_text(where, f"the content of message {number}", message["content"])
    if all(message["role"] != "assistant" for message in messages):
        raise RecipeError(
            f"{where}: no message is of the assistant, so there is nothing to learn", hint='add {"role": "assistant", ...}'
        )


# -- tokens -----------------------------------------------------------------------------------------------------------


def encode_lines(lines: Sequence[Line], tokenizer: Tokenizer, ends: Sequence[int]) -> list[list[Example]]:
    """The examples of each line. `ends` are the model's end tokens: the first is written behind texts and completions.

    A text counts as a whole, of a prompt with its completion the completion, and of messages those of the assistant, with what the chat template
    writes at their ends. Raises RecipeError.
    """
    spoken = iter(_conversations([line for line in lines if line.form == "messages"], tokenizer))
    return [next(spoken) if line.form == "messages" else [_example(line, tokenizer, ends)] for line in lines]


def _example(line: Line, tokenizer: Tokenizer, ends: Sequence[int]) -> Example:
    example = Example([], [], line.form == "text")
    if line.form == "text":
        example.add(tokenizer.encode(line.texts["text"], raw=True), True)
    else:
        before, behind = encode_parts(line.texts["prompt"], line.texts["completion"], tokenizer)
        example.add(before, False)
        example.add(behind, True)
    if ends and (not example.tokens or example.tokens[-1] not in ends):
        example.add([ends[0]], True)
    return example


def encode_parts(prompt: str, completion: str, tokenizer: Tokenizer) -> tuple[list[int], list[int]]:
    """The tokens of a prompt, and those behind them: of both texts together, if they begin with the prompt's."""
    before, whole = tokenizer.encode(prompt, raw=True), tokenizer.encode(prompt + completion, raw=True)
    is_prefix = whole[: len(before)] == before
    return before, whole[len(before) :] if is_prefix else tokenizer.encode_behind(completion)


def _conversations(lines: Sequence[Line], tokenizer: Tokenizer) -> Iterator[list[Example]]:
    """Of each line, a text that grows with each answer; where the template writes earlier messages in another way later, several."""
    for first in range(0, len(lines), AT_ONCE):
        part = lines[first : first + AT_ONCE]
        turns = [[k for k, message in enumerate(line.messages) if message["role"] == "assistant"] for line in part]
        places = [(line, k) for line, ends in zip(part, turns, strict=True) for k in ends]
        befores = iter(_rendered([(line, line.messages[:k]) for line, k in places], tokenizer, True))
        afters = iter(_rendered([(line, line.messages[: k + 1]) for line, k in places], tokenizer, False))
        for line, ends in zip(part, turns, strict=True):
            yield _answers(line, [(next(befores), next(afters)) for _ in ends], tokenizer)


def _answers(line: Line, turns: Sequence[tuple[str, str]], tokenizer: Tokenizer) -> list[Example]:
    """The examples of a conversation from its texts before and after each answer."""
    examples: list[Example] = []
    written = ""  # of the newest example
    for before, after in turns:
        if not after.startswith(before):
            raise RecipeError(
                f"{line.where}: the model's chat template does not write an answer behind the text that asks for it",
                hint="such a model learns from prompts and completions, or from texts",
            )
        if not examples or not before.startswith(written):
            examples.append(Example([], []))
            written = ""
        answer = after[len(before) :].rstrip()
        examples[-1].add(tokenizer.encode_rendered(before[len(written) :], is_first=not written), False)
        examples[-1].add(tokenizer.encode_rendered(answer, is_first=False), True)
        written = before + answer
    return examples


def _rendered(places: Sequence[tuple[Line, Sequence[Message]]], tokenizer: Tokenizer, prompt: bool) -> list[str]:
    """Conversations in the chat template. Raises RecipeError for the first line that it refuses."""
    try:
        return tokenizer.render([messages for _, messages in places], prompt=prompt)
    except TokenizerError as error:
        if tokenizer.template is None or len(places) == 1:
            hint = 'train on {"prompt": ..., "completion": ...}' if tokenizer.template is None else None
            raise RecipeError(f"{places[0][0].where}: {error.message}", hint=hint) from None
    half = len(places) // 2
    return _rendered(places[:half], tokenizer, prompt) + _rendered(places[half:], tokenizer, prompt)


# -- rows -------------------------------------------------------------------------------------------------------------


def rows_of(examples: Sequence[Example], length: int, say: Callable[[str], None]) -> Rows:
    """A row for each example, as wide as the longest one, at most `length` tokens and the one behind; texts take as many rows as they need.

    `say` gets a note on what does not fit. Tokens behind the end of an example do not count.
    """
    pieces: list[tuple[list[int], list[bool]]] = []
    cut = left_out = 0
    for example in examples:
        starts = range(0, max(len(example.tokens) - 1, 1), length) if example.is_text else (0,)
        made = [(example.tokens[k : k + length + 1], example.counted[k + 1 : k + length + 1]) for k in starts]
        kept = [piece for piece in made if any(piece[1])]
        cut += not example.is_text and len(example.tokens) > length + 1
        left_out += not kept
        pieces += kept
    if cut:
        say(f"{cut} of {len(examples)} examples are longer than length={length} tokens: their ends are left out")
    if left_out:
        say(f"{left_out} of {len(examples)} examples have no token to learn within length={length} tokens, and are left out")
    width = max((len(tokens) for tokens, _ in pieces), default=2)
    rows = np.zeros((len(pieces), width), np.int32)
    counted = np.zeros((len(pieces), width - 1), np.bool_)
    for k, (tokens, flags) in enumerate(pieces):
        rows[k, : len(tokens)] = tokens
        counted[k, : len(flags)] = flags
    return Rows(rows, counted)
