"""A conversation: what was computed of earlier turns is kept from turn to turn, so that it is not computed again."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tempo_llm.chat import Message
from tempo_llm.errors import RequestError, TokenizerError, shown
from tempo_llm.generate import Generator, Request
from tempo_llm.prefixes import Prefixes
from tempo_llm.sampling import Sampling
from tempo_llm.tokenizer import Tokenizer
from tempo_llm.writer import Writer

MOST_BYTES = 2**30  # of what is kept of a conversation

_REPLY = "\ue001"  # stands for a reply in the template, to see what comes after it


class Conversation:
    """`say(text)` is the model's reply, piece by piece. `messages` is what was said.

    `finish_reason` says why the newest whole reply ended: "stop" (an end token) or "length" (the most tokens, or the end of the context).

    Each turn is a request whose prompt is the conversation so far, in the model's own tokens; keys, values and states of its first blocks
    are those of the turn before. The template says what stands between a reply and the next message. If it writes earlier turns otherwise
    than they were said, the whole conversation is read anew (`restarts` counts that).
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
        self.restarts = 0
        self._generator, self._tokenizer, self._seed = generator, tokenizer, seed
        self._sampling = Sampling() if sampling is None else sampling
        self._most = most if max_context is None else max_context
        self._ends = tuple(token for token in generator.config.eos_ids if token < generator.config.vocab_size)
        self._after_reply = self._tokens_after_a_reply()
        self._prefixes = Prefixes(MOST_BYTES) if generator.prefixes is None else generator.prefixes
        self._tokens: list[int] = []  # of the conversation so far, with an end token
        self._compiles, self._setup_seconds = 0, 0.0
        self._turn = 0  # the newest one

    @property
    def compiles(self) -> int:
        """The number of XLA programs compiled so far for its replies."""
        return self._compiles

    @property
    def setup_seconds(self) -> float:
        """The seconds so far that went into programs and not into replies: passes, XLA's compilation, and programs from the cache on disk."""
        return self._setup_seconds

    def say(self, text: str, max_new_tokens: int = 1024) -> Iterator[str]:
        """The reply to a message, piece by piece; after its last piece it is in `messages`. Raises RequestError if it does not fit."""
        if not isinstance(text, str):
            raise RequestError(f"the message is {shown(text)}; it must be a string", hint='chat.say("Hello")')
        if not isinstance(max_new_tokens, int) or isinstance(max_new_tokens, bool) or max_new_tokens < 1:
            raise RequestError(f"max_new_tokens is {shown(max_new_tokens)}; it must be a whole number of at least 1")
        messages: list[Message] = [*self.messages, {"role": "user", "content": text}]
        continued = self._continued(messages)
        tokens = self._tokenizer.encode_conversation(messages) if continued is None else continued
        if len(tokens) + 1 > self._most:
            raise RequestError(
                f"the conversation has {len(tokens)} tokens, which fill the context of {self._most}",
                hint="begin another one: /reset",
            )
        self._turn += 1
        turn = self._turn
        self.restarts += bool(self._tokens) and continued is None
        count = min(max_new_tokens, self._most - len(tokens))
        request = Request([tokens], count, self._sampling, self._seed, self._ends, self._most)
        decoding = self._generator.start(request, self._prefixes)
        writer = Writer(self._tokenizer, (), tokens)
        try:
            for each in decoding.pieces():
                new = each.token_ids[:-1] if each.finish_reason == "stop" else each.token_ids
                piece = writer.write(new, each.finish_reason is not None)
                if piece:
                    yield piece
                    if turn != self._turn:
                        raise RequestError(
                            "another message was sent before this reply was complete",
                            hint="read each reply to its end: for piece in chat.say(text): ...",
                        )
        finally:
            generation = decoding.generation()
            self._compiles += generation.compiles
            self._setup_seconds += generation.prepare_seconds + generation.compile_seconds
        (completion,) = generation.completions
        self.messages = [*messages, {"role": "assistant", "content": writer.text or ""}]
        self.finish_reason = completion.finish_reason
        self._tokens = [*tokens, *completion.token_ids]
        if completion.finish_reason == "length":  # it ends here
            self._tokens += self._after_reply[: min(1, self._most - len(self._tokens))]

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
        """The tokens of a conversation as a continuation of those so far; None if the template does not only go on."""
        if not self._tokens or not self._after_reply or self._tokens[-1] not in self._ends or not self.messages:
            return None
        reply = self.messages[-1]["content"]
        before, whole = self._tokenizer.render([self.messages[:-1], messages])
        if not reply or not whole.startswith(before + reply):
            return None
        tokens = self._tokenizer.encode_rendered(whole[len(before) + len(reply) :])
        return [*self._tokens[:-1], *tokens] if tokens[:2] == self._after_reply[:2] else None
