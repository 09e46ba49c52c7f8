"""Texts that follow a grammar: JSON of a schema, and calls of tools, by masks of the library llguidance. Each job has a matcher of its own."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tempo_llm.serve.problems import Problem
from tempo_llm.tokenizer import Tokenizer

_CALLS = """start: {start}
call: {call}
one: %json {schema}
WS: /[ \\n]*/
text: /[^{other}](.|\\n)*/
"""


class Grammars:
    """The grammars of a model. Raises Problem where the model or its tokenizer has none."""

    def __init__(self, tokenizer: Tokenizer | None, vocabulary: int, end_ids: Sequence[int]):
        self._vocabulary, self._ends = vocabulary, list(end_ids)
        self._text = None if tokenizer is None else tokenizer.as_json()
        self._tokens: Any = None

    def any_object(self) -> TokenGrammar:
        """Any JSON object."""
        return self.of_schema({"type": "object"}, "response_format")

    def of_schema(self, schema: Mapping[str, object], param: str) -> TokenGrammar:
        """JSON that follows a schema, without white space where none is needed."""
        from llguidance import LLMatcher

        text = json.dumps(schema)
        return self._grammar(LLMatcher.grammar_from_json_schema(text, {"whitespace_flexible": False}), param)

    def of_calls(self, schemas: Sequence[Mapping[str, object]], can_be_text: bool, is_wrapped: bool) -> TokenGrammar:
        """A call of one of several tools, each by the schema of its call; or a text that does not begin as one.

        A call that `is_wrapped` may stand between `<tool_call>` and `</tool_call>`.
        """
        schema = schemas[0] if len(schemas) == 1 else {"anyOf": list(schemas)}
        whole = {**schema, "x-guidance": {"whitespace_flexible": False}}
        start = "call | text" if can_be_text else "call"
        call, other = ('"<tool_call>" WS one WS "</tool_call>" | one', "{<") if is_wrapped else ("one", "{")
        return self._grammar(_CALLS.format(start=start, call=call, other=other, schema=json.dumps(whole)), "tools")

    def _grammar(self, grammar: str, param: str) -> TokenGrammar:
        from llguidance import LLMatcher

        tokens = self._tokenizer()
        said = LLMatcher.validate_grammar(grammar, tokens)
        if said:
            raise Problem(
                400, f"`{param}` has a schema that cannot be followed: {' '.join(said.split())[:400]}", param, "invalid_schema"
            )
        return TokenGrammar(LLMatcher(tokens, grammar, log_level=0), self._vocabulary)

    def _tokenizer(self) -> Any:
        if self._tokens is None:
            if self._text is None or not self._ends:
                raise Problem(
                    400,
                    "this model cannot follow a grammar: that needs a tokenizer and an end token",
                    "response_format",
                    "unsupported",
                )
            from llguidance import LLTokenizer

            self._tokens = LLTokenizer(self._text, n_vocab=self._vocabulary, eos_token=self._ends)
        return self._tokens


class TokenGrammar:
    """How far a text has come in its grammar."""

    def __init__(self, matcher: Any, vocabulary: int):
        self._matcher, self._vocabulary = matcher, vocabulary
        self._bits = np.zeros(-(-vocabulary // 32), np.int32)

    def mask(self) -> np.ndarray:
        self._matcher.unsafe_compute_mask_ptr(self._bits.ctypes.data, self._bits.nbytes)
        if self._matcher.is_error():
            raise ValueError(f"the grammar has failed: {self._matcher.get_error()}")
        bits = np.unpackbits(self._bits.view(np.uint8), bitorder="little")
        return bits[: self._vocabulary].astype(bool)

    def take(self, token: int) -> None:
        self._matcher.consume_token(token)

    @property
    def is_complete(self) -> bool:
        return bool(self._matcher.is_stopped())
