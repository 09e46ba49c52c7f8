"""A conversation: one run that goes on from turn to turn, so that keys and values of earlier turns are not computed again."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

import tempo_core as tp
from tempo_llm.chat import Message
from tempo_llm.errors import CheckpointError, RequestError, TokenizerError, shown
from tempo_llm.generate import Generator
from tempo_llm.sampling import NOT_FINITE, Sampling, uniform_draws
from tempo_llm.tokenizer import Tokenizer
from tempo_llm.writer import Writer

_REPLY = "\ue001"  # stands for a reply in the template, to see what comes after it


class Conversation:
    """`say(text)` is the model's reply, piece by piece. `messages` is what was said.

    `finish_reason` says why the newest whole reply ended: "stop" (an end token) or "length" (the most tokens, or the end of the context).

    The tokens of all turns are positions of one run. The program asks for each token when it comes to it: one that is given, or the
    model's own choice. The template says what stands between a reply and the next message. If it writes earlier turns otherwise than they
    were said, or if the run has no positions left, another run begins with the whole conversation (`restarts` counts them).
    """

    def __init__(
        self,
        generator: Generator,
        tokenizer: Tokenizer,
        system_prompt: str | None = None,
        sampling: Sampling | None = None,
        seed: int = 0,
        max_context: int | None = None,
    ):
        if tokenizer.template is None:
            raise TokenizerError("this model has no chat template", hint="continue texts instead: tempo-llm generate --raw")
        most = generator.config.max_position_embeddings
        if max_context is not None and not 1 <= max_context <= most:
            raise RequestError(f"max_context is {max_context}; this model takes 1 to {most} tokens")
        self.messages: list[Message] = [] if system_prompt is None else [{"role": "system", "content": system_prompt}]
        self.finish_reason: str | None = None
        self.restarts = -1  # the first run is none
        self._generator, self._tokenizer, self._seed = generator, tokenizer, seed
        self._sampling = Sampling() if sampling is None else sampling
        self._features = self._sampling.features()
        self._most = most if max_context is None else max_context
        self._ends = frozenset(token for token in generator.config.eos_ids if token < generator.config.vocab_size)
        self._after_reply = self._tokens_after_a_reply()
        self._used: dict[tuple[int, int], tp.Program[dict[str, np.ndarray]]] = {}
        self._run: Any = None
        self._capacity = 0
        self._tokens: list[int] = []  # those that the run has reached
        self._given: dict[int, int] = {}  # by position
        self._asked = -1  # the last position for which the program has asked
        self._prepare_seconds = 0.0
        self._turn, self._whole_turn = 0, 0  # the newest one, and the newest one whose reply came to its end

    @property
    def compiles(self) -> int:
        """The number of XLA programs compiled so far for its programs, which conversations with the same model share."""
        return sum(program.compiles for program in self._used.values())

    @property
    def setup_seconds(self) -> float:
        """The seconds so far that went into programs and not into replies: passes, XLA's compilation, and programs from the cache on disk."""
        return self._prepare_seconds + sum(program.compile_seconds for program in self._used.values())

    def say(self, text: str, max_new_tokens: int = 1024) -> Iterator[str]:
        """The reply to a message, piece by piece; after its last piece it is in `messages`. Raises RequestError if it does not fit."""
        if not isinstance(text, str):
            raise RequestError(f"the message is {shown(text)}; it must be a string", hint='chat.say("Hello")')
        if not isinstance(max_new_tokens, int) or isinstance(max_new_tokens, bool) or max_new_tokens < 1:
            raise RequestError(f"max_new_tokens is {shown(max_new_tokens)}; it must be a whole number of at least 1")
        messages: list[Message] = [*self.messages, {"role": "user", "content": text}]
        tokens = self._continued(messages)
        if tokens is None:
            tokens = self._tokenizer.encode_conversation(messages)
        if len(tokens) + 1 > self._most:
            raise RequestError(
                f"the conversation has {len(tokens)} tokens, which fill the context of {self._most}",
                hint="begin another one: /reset",
            )
        self._turn += 1
        turn = self._turn
        last = min(len(tokens) + max_new_tokens, self._most)
        if not self._fits(tokens, last):
            self._begin(tokens, last)
        self._given = dict(enumerate(tokens))
        if self._after_reply and last < self._capacity:
            self._given[last] = self._after_reply[0]  # a reply that is too long ends here
        writer = Writer(self._tokenizer, ())
        while len(self._tokens) <= len(tokens):
            self._advance(max(len(tokens) - len(self._tokens), 1))
        done = len(tokens)
        while True:
            new = self._tokens[done:last]
            end = next((k for k, token in enumerate(new) if token in self._ends), None)
            is_last = end is not None or len(self._tokens) >= last
            piece = writer.write(new if end is None else new[:end], is_last)
            done += len(new)
            if piece:
                yield piece
                if turn != self._turn:
                    raise RequestError(
                        "another message was sent before this reply was complete",
                        hint="read each reply to its end: for piece in chat.say(text): ...",
                    )
            if is_last:
                break
            self._advance(1)
        if end is None and last < self._capacity and last < self._most:
            self._advance(max(last + 1 - len(self._tokens), 1))
        self.messages = [*messages, {"role": "assistant", "content": writer.text or ""}]
        self.finish_reason = "length" if end is None else "stop"
        self._whole_turn = turn

    # -- the run ------------------------------------------------------------------------------------------------------

    def _advance(self, count: int) -> None:
        run, self._run = self._run, None  # a run that is interrupted here does not go on
        run.advance("t", count)
        self._run = run
        text = np.asarray(self._run.results["text"])[:, 0]
        reached = len(text) if text.all() else int(np.argmin(text != 0))
        self._tokens = (text[:reached] - 1).tolist()
        if NOT_FINITE in self._tokens:
            raise CheckpointError(
                "the model's logits are not finite",
                hint="the weights may be damaged; if they are float16, numbers may be too large for it: try --dtype bfloat16",
            )

    def _fits(self, tokens: Sequence[int], last: int) -> bool:
        """Whether the present run can go on with these tokens."""
        if self._run is None or last > self._capacity:
            return False
        fixed = self._asked + 1  # up to there, the program has asked what is given
        tokens_so_far = [*self._tokens, *([self._after_reply[1]] if self._ended and self._after_reply else [])]
        return len(tokens_so_far) >= fixed and list(tokens[:fixed]) == tokens_so_far[:fixed]

    @property
    def _ended(self) -> bool:
        return bool(self._tokens) and self._tokens[-1] in self._ends

    def _begin(self, tokens: Sequence[int], last: int) -> None:
        """Another run, with the whole conversation as its prompt."""
        features, generator = self._features, self._generator
        self._capacity = generator.capacity_for(last)
        self._run, self._given, self._asked, self._tokens = None, {}, -1, []
        self.restarts += 1
        at_once = generator.prompt_capacity(len(tokens), self._capacity)
        begun = time.perf_counter()
        decoder, program = generator.conversation(features, self._capacity, at_once)
        if (self._capacity, at_once) not in self._used:
            self._used[self._capacity, at_once] = program
            self._prepare_seconds += time.perf_counter() - begun - program.compile_seconds
        ends = np.zeros(generator.config.vocab_size, bool)
        ends[list(self._ends)] = True
        draws = uniform_draws(self._seed, (), 0, self._capacity)[:, None] if features.is_sampled else np.zeros((0, 1), np.float32)
        follow = self._after_reply[1] if self._after_reply else 0
        inputs: dict[str, Any] = {
            "prompt": np.asarray(tokens, np.int32)[:, None],
            "given": self._token_at,
            "start": np.asarray([len(tokens)], np.int32),
            "limit": np.asarray([self._capacity], np.int32),
            "ends": ends,
            "follow": np.asarray(follow, np.int32),
            **self._sampling.inputs(features, [tokens], draws, generator.config.vocab_size),
        }
        self._run = program.start(inputs, by="t", bounds={decoder.length: self._capacity})

    def _token_at(self, t: int) -> int:
        """What the program is given at a position: -1 where the model chooses."""
        self._asked = max(self._asked, int(t))
        return self._given.get(int(t), -1)

    # -- the template -------------------------------------------------------------------------------------------------

    def _tokens_after_a_reply(self) -> list[int]:
        """The tokens with which the template goes on after a reply: an end token, and at least one more. Empty if it does not."""
        question, more = {"role": "user", "content": "a"}, {"role": "user", "content": "b"}
        try:
            (text,) = self._tokenizer.render([[question, {"role": "assistant", "content": _REPLY}, more]])
        except TokenizerError:  # it may refuse such a conversation
            return []
        _, mark, after = text.partition(_REPLY)
        tokens = self._tokenizer.encode_rendered(after) if mark else []
        return tokens if len(tokens) > 1 and tokens[0] in self._ends else []

    def _continued(self, messages: Sequence[Message]) -> list[int] | None:
        """The tokens of a conversation as a continuation of those of the run; None if the template does not only go on."""
        if self._run is None or not self._after_reply or not self._ended or self._turn != self._whole_turn:
            return None  # a reply that was left is in the run, and not in the conversation
        reply = self.messages[-1]["content"]
        before, whole = self._tokenizer.render([self.messages[:-1], messages])
        if not reply or not whole.startswith(before + reply):
            return None
        tokens = self._tokenizer.encode_rendered(whole[len(before) + len(reply) :])
        return [*self._tokens[:-1], *tokens] if tokens[:2] == self._after_reply[:2] else None
