"""Tokens to text: the same whole, piece by piece, with stop strings and from the server, whatever bytes the tokens are."""

from __future__ import annotations

import random
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from tempo_llm import Tokenizer
from tempo_llm.config import LlamaConfig
from tempo_llm.serve.answers import Answer, ChatAnswer
from tempo_llm.serve.asked import Asked
from tempo_llm.serve.choice import Chosen
from tempo_llm.serve.jobs import Job, Update
from tempo_llm.serve.rows import Row
from tempo_llm.writer import Writer
from tests.llm import models
from tests.llm.texts.vocabularies import FORMS, FOX, GO, PIECES, THE, byte_level, byte_of, write_form

pytest.importorskip("tokenizers")

CONFIG = LlamaConfig.from_values(models.VALUES)
KINDS = ["json of bytes", "json of pieces", "both", "pieces alone", "pieces, no first space", "unigram"]
LEVEL = byte_level()["model"]["vocab"]
FALLBACK = {f"<0x{byte:02X}>": byte for byte in range(256)}


def bytes_by_hand(form: str, ids: list[int]) -> bytes:
    """What the tokens of a form are, from its vocabulary alone."""
    if form == "json of bytes":
        names = {k: name for name, k in LEVEL.items()}
        return b"".join(bytes(map(byte_of, names[k])) for k in ids if k > 3)
    parts = [
        bytes([FALLBACK[PIECES[k]]]) if PIECES[k] in FALLBACK else PIECES[k].replace("▁", " ").encode() for k in ids if k > 2
    ]
    whole = b"".join(parts)
    return whole if form == "pieces, no first space" else whole.removeprefix(b" ")


@pytest.fixture(scope="module")
def tokenizers(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Tokenizer]:
    folder = tmp_path_factory.mktemp("forms")
    return {form: Tokenizer.from_directory(write_form(folder / str(k), form)) for k, form in enumerate(FORMS) if form in KINDS}


def draws(form: str, count: int = 150) -> Any:
    """Random tokens, many of them bytes of no character, and a random cut into prompt and text."""
    draw, size = random.Random(form), len(LEVEL) if form == "json of bytes" else len(PIECES)
    few = [*range(size - 20, size), *range(4), 3 + 0xE2, 3 + 0x82, 3 + 0xAC, 3 + 0xFF, 3 + 0x20, 3 + 0x41, 3 + 0xF0, 3 + 0x9F]
    for _ in range(count):
        ids = [draw.choice(few) if draw.random() < 0.7 else draw.randrange(size) for _ in range(draw.randrange(1, 14))]
        yield draw, ids


def written(tokenizer: Tokenizer, ids: list[int], stops: tuple[str, ...], draw: random.Random, prompt: Any = ()) -> Writer:
    """The writer of these tokens, in random pieces, which are its text together."""
    writer, pieces, at = Writer(tokenizer, stops, prompt), [], 0
    while at < len(ids) and not writer.is_stopped:
        count = draw.choice([1, 1, 2, 5])
        pieces.append(writer.write(ids[at : at + count], at + count >= len(ids)))
        at += count
    assert "".join(pieces) == writer.text
    return writer


@pytest.mark.parametrize("form", KINDS)
def test_each_kind_of_tokenizer_has_one_text_of_any_tokens(form: str, tokenizers: dict[str, Tokenizer]) -> None:
    tokenizer = tokenizers[form]
    for draw, ids in draws(form):
        text = bytes_by_hand(form, ids).decode("utf-8", "replace")
        assert tokenizer.decode(ids) == text
        assert written(tokenizer, ids, (), draw).text == text
        assert written(tokenizer, ids, ("never",), draw).text == text
        assert served(tokenizer, ids).choices[0].text == text
        if text:
            at = draw.randrange(len(text))
            stop = text[at : at + draw.choice([1, 2, 3])]
            stopped = written(tokenizer, ids, (stop,), draw)
            assert stopped.text == text[: text.index(stop)] and stopped.is_stopped
            assert stopped.length == next((k for k in range(len(ids)) if stop in certain(tokenizer, ids[:k])), len(ids))
            assert served(tokenizer, ids, stops=(stop,)).choices[0].text == stopped.text


def certain(tokenizer: Tokenizer, ids: list[int]) -> str:
    """The characters of tokens that no further token changes."""
    decoder = tokenizer.decoder()
    return "".join(map(decoder.write, ids))


@pytest.mark.parametrize("form", KINDS)
def test_each_kind_of_tokenizer_goes_on_behind_a_prompt(form: str, tokenizers: dict[str, Tokenizer]) -> None:
    """Prompt and text are what all tokens decode to; of a character that begins in the prompt, the text has all of it."""
    tokenizer = tokenizers[form]
    for draw, ids in draws(form):
        cut = draw.randrange(len(ids) + 1)
        prompt, text = ids[:cut], ids[cut:]
        assert (
            certain(tokenizer, prompt) + (written(tokenizer, text, (), draw, prompt).text or "") == tokenizer.decode(ids)
            or not text
        )
        assert served(tokenizer, text, prompt=prompt).choices[0].text == written(tokenizer, text, (), draw, prompt).text


def test_the_space_behind_a_prompt_stays(tokenizers: dict[str, Tokenizer]) -> None:
    for form in ("json of pieces", "pieces alone", "both"):
        tokenizer = tokenizers[form]
        prompt = tokenizer.encode("go", raw=True)
        writer = Writer(tokenizer, (), prompt)
        assert writer.write([FOX, THE], True) == " fox the" and tokenizer.decode([*prompt, FOX, THE]) == "go fox the"
        writer = Writer(tokenizer, (), [1])
        assert writer.write([GO, FOX], True) == "go fox" == tokenizer.decode([1, GO, FOX])


def test_each_form_encodes_a_text_behind_another_without_a_space_of_its_own(tmp_path: Path) -> None:
    for number, form in enumerate(FORMS):
        tokenizer = Tokenizer.from_directory(write_form(tmp_path / str(number), form))
        before = tokenizer.encode("go", raw=True)
        for text in ("fox", " fox", "ing\n", "</s>", "<s> the", "日", " "):
            ids = tokenizer.encode_behind(text)
            assert {1, 2}.isdisjoint(ids), (form, text)
            if form != "unigram" or "fox" in text:  # its spaces at the ends are dropped
                assert tokenizer.decode(ids, before) == text, (form, text)
        assert tokenizer.decode(tokenizer.encode_rendered("fox</s>", is_first=False), before) == "fox"


# -- the server -----------------------------------------------------------------------------------------------------------


def served(
    tokenizer: Tokenizer,
    ids: list[int],
    prompt: Any = (),
    stops: tuple[str, ...] = (),
    top: Any = (),
    kind: type[Answer] = ChatAnswer,
    chunks: list[Any] | None = None,
) -> Answer:
    """The answer of these tokens, as the engine's rows and the interface make it."""
    prompt = list(prompt) or [1]
    asked = Asked([prompt], [len(ids)], cast(Any, None), 0, 1, frozenset([2]), stops, 5, chunks is not None, False, False)
    job = Job(prompt, len(ids), lambda update: None, stop_ids=frozenset(), stops=stops, has_logprobs=True)
    job.choice = cast(Any, SimpleNamespace(took=lambda token: None))
    row, answer = Row(0, job, tokenizer, CONFIG), kind(asked, "model", tokenizer)
    for token in ids:
        update: Update = row.take(Chosen(token, -1.0, tuple(top) or ((token, -1.0),)))
        answer.take(0, update)
        if chunks is not None:
            chunks += [chunk["choices"][0] for chunk in cast(Any, answer.chunks(0, update))]
        if update.is_last:
            break
    return answer


@pytest.mark.parametrize("form", KINDS)
def test_each_kind_of_tokenizer_has_bytes_that_are_the_answer(form: str, tokenizers: dict[str, Tokenizer]) -> None:
    tokenizer = tokenizers[form]
    for _, ids in draws(form, 60):
        chunks: list[Any] = []
        whole = cast(Any, served(tokenizer, ids, kind=ChatAnswer).whole())["choices"][0]
        served(tokenizer, ids, kind=ChatAnswer, chunks=chunks)
        content = whole["logprobs"]["content"]
        assert content == [each for chunk in chunks for each in chunk["logprobs"]["content"]]
        joined = b"".join(bytes(each["bytes"]) for each in content)
        assert joined == bytes_by_hand(form, ids) and joined.decode("utf-8", "replace") == whole["message"]["content"]
        assert [each["top_logprobs"][0]["bytes"] for each in content] == [each["bytes"] for each in content]


def test_log_probabilities_by_text_lose_nothing(tokenizers: dict[str, Tokenizer]) -> None:
    """Two bytes of no character, and two tokens of one text: the letter `t`, and its byte."""
    tokenizer = tokenizers["both"]
    letter, byte = PIECES.index("t"), PIECES.index("<0x74>")
    top = [(3 + 0xE2, -1.0), (3 + 0xE3, -2.0), (letter, -3.0), (byte, -4.0), (2, -5.0)]
    answer = served(tokenizer, [3 + 0xE2, 3 + 0x82, 3 + 0xAC, letter], [1, GO], top=top, kind=Answer)
    (choice,) = cast(Any, answer.whole())["choices"]
    assert choice["text"] == "€t" and choice["logprobs"]["text_offset"] == [0, 0, 0, 1]
    assert choice["logprobs"]["tokens"] == [r"bytes:\xe2", r"bytes:\x82", r"bytes:\xac", "t"]
    expected = {r"bytes:\xe2": -1.0, r"bytes:\xe3": -2.0, "t": -3.0, f"token_id:{byte}": -4.0, "</s>": -5.0}
    assert choice["logprobs"]["top_logprobs"] == [expected] * 4


def test_tokens_behind_a_stop_string_are_not_told(tokenizers: dict[str, Tokenizer]) -> None:
    ids = [GO, FOX, THE]
    for stop, count in ((" fox", 1), ("x", 2), ("o f", 1)):
        chunks: list[Any] = []
        whole = cast(Any, served(tokenizers["both"], ids, [1, GO], (stop,)).whole())["choices"][0]
        served(tokenizers["both"], ids, [1, GO], (stop,), chunks=chunks)
        content = whole["logprobs"]["content"]
        assert len(content) == count
        assert content == [each for chunk in chunks for each in chunk["logprobs"]["content"]]


def test_one_token_has_its_bytes(tokenizers: dict[str, Tokenizer]) -> None:
    tokenizer = tokenizers["both"]
    assert tokenizer.token_bytes(3 + 0xFF) == b"\xff" and tokenizer.token_text(3 + 0xFF) == "\ufffd"
    assert tokenizer.token_bytes(FOX) == b" fox" and tokenizer.token_bytes(1) == b"" and tokenizer.token_text(1) == "<s>"
    assert tokenizer.token_bytes(10**6) == b"" and tokenizer.token_text(10**6) == ""
