"""Tokenizers of every form give the ids, texts and chats of `transformers`: against recorded values, and against itself where it is installed."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest

from tempo_llm import Tokenizer
from tests.llm.texts.vocabularies import FORMS, LETTERS, WORDS, write_form

pytest.importorskip("tokenizers")

RECORDED = json.loads(Path(__file__).with_name("tokenizer_forms.json").read_text())
TEXTS = RECORDED["texts"]
TALK = [
    {"role": "user", "content": "the  fox"},
    {"role": "assistant", "content": " go "},
    {"role": "user", "content": "x"},
]


@pytest.mark.parametrize("form", FORMS)
def test_each_form_gives_the_recorded_ids_texts_and_chats(form: str, tmp_path: Path) -> None:
    pytest.importorskip("jinja2")
    tokenizer = Tokenizer.from_directory(write_form(tmp_path / "model", form))
    expected = RECORDED["forms"][form]
    ids = [tokenizer.encode(text, raw=True, special=True) for text in TEXTS]
    assert ids == expected["ids"]
    assert [tokenizer.decode(each) for each in ids] == expected["decoded"]
    alone = [tokenizer.encode(text, raw=True) for text in TEXTS]
    if (
        form == "unigram"
    ):  # to transformers, the special tokens of such a vocabulary are pieces as any others, which a text may spell
        assert all({1, 2}.isdisjoint(each[1:]) for each in alone)
    else:
        assert alone == expected["ids of text alone"]
    assert tokenizer.encode_conversation(TALK) == expected["chat"]


@pytest.mark.torch
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("form", FORMS)
def test_each_form_gives_what_transformers_gives(form: str, tmp_path: Path) -> None:
    directory = write_form(tmp_path / "model", form)
    found, ours = of_transformers(directory), Tokenizer.from_directory(directory)
    assert found == RECORDED["forms"][form]
    from transformers import AutoTokenizer

    theirs, draw = AutoTokenizer.from_pretrained(directory), random.Random(form)
    for _ in range(50):
        text = "".join(draw.choice([*WORDS, *LETTERS, " ", "\n", "é", "日", "😀", "▁"]) for _ in range(draw.randrange(12)))
        ids = ours.encode(text, raw=True)
        assert ids == theirs(text)["input_ids"], text
        assert ours.decode(ids) == theirs.decode(ids, skip_special_tokens=True), text


def of_transformers(directory: Path) -> dict[str, Any]:
    """What is recorded: `python -m tests.llm.texts.test_llm_tokenizer_forms` does it again."""
    from transformers import AutoTokenizer

    tokenizer, plain = (AutoTokenizer.from_pretrained(directory, split_special_tokens=split) for split in (False, True))
    ids = [tokenizer(text)["input_ids"] for text in TEXTS]
    return {
        "ids": ids,
        "decoded": [tokenizer.decode(each, skip_special_tokens=True) for each in ids],
        "ids of text alone": [plain(text)["input_ids"] for text in TEXTS],
        "chat": tokenizer.apply_chat_template(TALK, add_generation_prompt=True, tokenize=True, return_dict=False),
    }


if __name__ == "__main__":
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        forms = {form: of_transformers(write_form(Path(folder) / str(k), form)) for k, form in enumerate(FORMS)}
    rows = ",\n".join(f"{json.dumps(form)}: {json.dumps(row)}" for form, row in forms.items())
    text = f'{{"texts": {json.dumps(TEXTS)},\n"forms": {{\n{rows}\n}}}}\n'
    Path(__file__).with_name("tokenizer_forms.json").write_text(text)
