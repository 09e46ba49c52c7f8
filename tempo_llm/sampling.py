"""The choice of the next token from the logits, as recurrent tensors, and the settings of that choice."""

from __future__ import annotations

import hashlib
import math
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from numbers import Integral, Real
from pathlib import Path

import numpy as np

import tempo_core as tp
from tempo_core import Expr, Tensor
from tempo_core.typing import Domain
from tempo_llm.errors import ModelConfigError, RequestError, shown
from tempo_llm.files import read_text
from tempo_llm.json_files import parse_json
from tempo_llm.types import FloatArray

NOT_FINITE = -2  # in place of a token, where the logits are not finite
_LARGEST = 1e30  # of settings: sums and products with logits are finite in float32
EXCLUDED = -_LARGEST  # a logit whose probability is 0 beside any other; it is finite


@dataclass(frozen=True)
class Features:
    """The parts of the choice that a program has. Their numbers are inputs, so that one program serves all settings."""

    is_sampled: bool = False  # else the most likely token is taken
    is_filtered: bool = False  # only some of the tokens may be drawn: top-k, top-p, min-p
    is_penalized: bool = False  # by the tokens that were there before
    is_biased: bool = False
    logprobs: int = 0  # how many of the most likely tokens are reported


GREEDY = Features()


@dataclass(frozen=True)
class Sampling:
    """How the next token is chosen from the logits: penalties, then `logit_bias`, then a draw.

    The draw, in this order: logits are divided by `temperature`; the `top_k` most likely tokens are left (0: all); of their probabilities,
    which add up to 1, the smallest set of the greatest that together has `top_p` is left; and of these, those with at least `min_p` times the
    greatest. This is the order of `transformers`. Temperature 0 takes the most likely token. Token ids are the keys of `logit_bias`.
    `repetition_penalty` divides positive logits of tokens of prompt and text, and multiplies negative ones (Keskar et al., 2019,
    arXiv:1909.05858); `frequency_penalty` times the count of a token in the text, and `presence_penalty` if it is there, are subtracted.

    Raises RequestError for a number out of range.
    """

    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    frequency_penalty: float = 0.0
    presence_penalty: float = 0.0
    logit_bias: Mapping[int, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name, low, high, words in _RANGES:
            value = getattr(self, name)
            is_number = isinstance(value, Real) and not isinstance(value, bool)  # NumPy's numbers too
            plain = value.item() if isinstance(value, np.generic) else value  # a bound overflows a small dtype
            if not is_number or not low <= plain <= high:
                raise RequestError(f"{name} is {shown(value)}; it must be {words}", hint=f"{_flag(name)} takes {words}")
        if not isinstance(self.top_k, Integral):
            raise RequestError(f"top_k is {shown(self.top_k)}; it must be a whole number", hint="--top-k 40, for example")
        if self.top_p == 0:
            raise RequestError("top_p is 0; it must be greater than 0", hint="to switch it off, leave --top-p out")
        if not isinstance(self.logit_bias, Mapping):
            raise RequestError(
                f"logit_bias is {shown(self.logit_bias)}; it must be a dict from tokens to numbers", hint="logit_bias={42: -1.0}"
            )
        for token, bias in self.logit_bias.items():
            if not isinstance(bias, Real) or math.isnan(bias) or bias == math.inf:
                raise RequestError(
                    f"the logit bias of token {token} is {shown(bias)}; it must be a number, or -inf to exclude it"
                )

    def features(self, logprobs: int = 0) -> Features:
        """The parts of a program that these settings need."""
        is_sampled = self.temperature > 0
        is_filtered = is_sampled and (self.top_k > 0 or self.top_p < 1 or self.min_p > 0)
        is_penalized = self.repetition_penalty != 1 or self.frequency_penalty != 0 or self.presence_penalty != 0
        return Features(is_sampled, is_filtered, is_penalized, bool(self.logit_bias), logprobs)

    def inputs(
        self, features: Features, prompts: Sequence[Sequence[int]], draws: FloatArray, vocabulary: int
    ) -> dict[str, np.ndarray]:
        """The inputs that a program with these features needs. `draws` [positions, rows] are those of `uniform_draws`."""
        number = np.float32
        inputs: dict[str, np.ndarray] = {}
        if features.is_sampled:
            limits = np.finfo(number)
            temperature = min(max(self.temperature, float(limits.tiny)), float(limits.max))
            inputs |= {"temperature": np.asarray(temperature, number), "draw": draws}
        if features.is_filtered:
            inputs |= {"top_k": np.asarray(min(self.top_k, vocabulary) or vocabulary, np.int32)}
            top_p = max(self.top_p, float(np.finfo(number).tiny))  # a smaller number is 0, which keeps no token
            inputs |= {"top_p": np.asarray(top_p, number), "min_p": np.asarray(self.min_p, number)}
        if features.is_penalized:
            names = ("repetition_penalty", "frequency_penalty", "presence_penalty")
            inputs |= {name: np.asarray(getattr(self, name), number) for name in names}
            in_prompt = np.zeros((len(prompts), vocabulary), bool)
            for row, prompt in zip(in_prompt, prompts, strict=True):
                row[list(prompt)] = True
            inputs["in_prompt"] = in_prompt
        if features.is_biased:
            bias = np.zeros(vocabulary, number)
            for token, value in self.logit_bias.items():
                if not isinstance(token, Integral) or not 0 <= token < vocabulary:
                    raise RequestError(
                        f"the logit bias names token {shown(token)}, but the model knows the tokens 0 to {vocabulary - 1}"
                    )
                bias[token] = min(max(value, EXCLUDED), _LARGEST)
            if (bias == EXCLUDED).all():
                raise RequestError("the logit bias excludes every token", hint="leave at least one token without -inf")
            inputs["logit_bias"] = bias - min(
                bias.max(), number(0)
            )  # what all tokens lose changes nothing, but rounds the logits
        return inputs


_RANGES: Sequence[tuple[str, float, float, str]] = (
    ("temperature", 0, sys.float_info.max, "0 (greedy) or a positive number"),
    ("top_k", 0, math.inf, "a whole number of at least 0 (0: all tokens)"),
    ("top_p", 0, 1, "a number above 0 and at most 1 (1: all tokens)"),
    ("min_p", 0, 1, "a number from 0 to 1"),
    ("repetition_penalty", 1 / _LARGEST, _LARGEST, f"a number from {1 / _LARGEST:g} to {_LARGEST:g} (1: no penalty)"),
    ("frequency_penalty", -_LARGEST, _LARGEST, f"a number from -{_LARGEST:g} to {_LARGEST:g} (0: no penalty)"),
    ("presence_penalty", -_LARGEST, _LARGEST, f"a number from -{_LARGEST:g} to {_LARGEST:g} (0: no penalty)"),
)


FIELDS = ("temperature", "top_k", "top_p", "min_p", "repetition_penalty")  # of generation_config.json, by the names of `Sampling`


def model_settings(directory: Path) -> dict[str, float]:
    """How the model's own `generation_config.json` says that tokens are chosen, by the names of `Sampling`; empty if it says nothing.

    Without `do_sample`, the most likely token is taken: a temperature that stands there has no meaning then. Raises ModelConfigError.
    """
    path = directory / "generation_config.json"
    if not path.exists():
        return {}
    try:
        values = parse_json(read_text(path))
    except (OSError, ValueError, RecursionError) as error:
        raise ModelConfigError(f"{path} is not valid JSON: {error}") from None
    if not isinstance(values, dict) or not isinstance(values.get("do_sample"), bool):
        return {}
    settings = {name: values[name] for name in FIELDS if values.get(name) is not None}
    if not values["do_sample"]:
        settings = {"temperature": 0.0, **{name: each for name, each in settings.items() if name == "repetition_penalty"}}
    settings.setdefault("temperature", 1.0)
    try:
        Sampling(**settings)
    except RequestError as error:
        raise ModelConfigError(f"{path}: {error.message}") from None
    return settings


def chosen_sampling(sampling: Sampling | None, temperature: float) -> Sampling:
    """The settings that a call gives as `sampling`, or as a temperature alone. Raises RequestError if both are there."""
    if sampling is None:
        return Sampling(temperature)
    if temperature != 0:
        raise RequestError(
            "temperature and sampling are both given", hint=f"put it into sampling: sampling=Sampling({shown(temperature)}, ...)"
        )
    return sampling


def _flag(name: str) -> str:
    return "--" + name.replace("_", "-")


def uniform_draws(seed: int, prompt: Sequence[int], sample: int, length: int) -> FloatArray:
    """One number in [0, 1) for each position: float32 [length].

    The numbers are a function of the seed, the prompt, the number of the sample and the position, and of nothing else: neither the other
    prompts of a batch nor the length change them.
    """
    text = np.asarray([seed % 2**63, sample, *prompt], np.int64).astype("<i8").tobytes()
    rest = str(seed // 2**63).encode() if not 0 <= seed < 2**63 else b""  # what the number of 63 bits leaves out
    key = int.from_bytes(hashlib.sha256(text + rest).digest()[:16], "little")
    return np.random.Generator(np.random.Philox(key=key)).random(length, np.float32)


# -- in the program ---------------------------------------------------------------------------------------------------


def greedy(logits: Tensor) -> Tensor:
    """The most likely token (of equally likely ones, the first): int32 scalar from logits of shape (vocabulary,)."""
    return logits.argmax(-1)


def drawn(probabilities: Tensor, draw: Tensor) -> Tensor:
    """The token at which the sum of `probabilities` (vocabulary,), which need not add up to 1, exceeds `draw` (in [0, 1]) times their sum.

    A token of probability 0 is never drawn, unless all are 0. Sums are rounded, and XLA may add the parts of a sum in another order than
    those of the next: a sum may be less than the one before it, and than the draw even at the last token. So the token is the first one
    whose sum exceeds the draw among those that can be drawn, and the last of these where no sum does.
    """
    tokens, count = tp.arange(probabilities.shape[-1]), probabilities.shape[-1]
    sums, can_be_drawn = probabilities.cumsum(-1), probabilities > 0
    exceeds = can_be_drawn & (sums > draw * sums.spatial[-1:].sum(-1))
    first = tp.where(exceeds, tokens, count).min(-1)
    last = tp.where(can_be_drawn, tokens, 0).max(-1)
    return tp.minimum(first, last)


def settings(features: Features, domain: Domain = ()) -> dict[str, Tensor]:
    """The inputs by which tokens are drawn, by the names of the fields of `Sampling`; none if the most likely token is taken.

    There is one of each, or one for each point of `domain`.
    """
    names = ["temperature"] if features.is_sampled else []
    names += ["top_k", "top_p", "min_p"] if features.is_filtered else []
    return {name: tp.input(name, (), "int32" if name == "top_k" else "float32", domain=domain) for name in names}


def choose(logits: Tensor, settings: Mapping[str, Tensor], draw: Tensor | None) -> Tensor:
    """The next token, int32, from logits of shape (vocabulary,), after penalties and bias; NOT_FINITE if a logit is NaN or infinite.

    `draw` is uniform in [0, 1); without it, the most likely token is taken.
    """
    chosen = greedy(logits) if draw is None else _sampled(_tempered(logits, settings), settings, draw)
    return tp.where(tp.isfinite(logits).all(-1), chosen, NOT_FINITE)


def _tempered(logits: Tensor, settings: Mapping[str, Tensor]) -> Tensor:
    """The logits divided by the temperature, the greatest of them 0.

    It is subtracted before the division: divided by a small temperature, logits are so large that their rounding errors have exponentials
    of any size.
    """
    return (logits - logits.max(-1)) / settings["temperature"]


def _sampled(scores: Tensor, settings: Mapping[str, Tensor], draw: Tensor) -> Tensor:
    if "top_k" not in settings:
        return drawn(tp.softmax(scores, -1), draw)
    order = tp.argsort(-scores, -1)  # the most likely token first
    ranks, top_p = tp.arange(scores.shape[-1]), settings["top_p"]
    left = tp.where(ranks < settings["top_k"], scores.take_along_axis(order, -1), EXCLUDED)
    probabilities = tp.softmax(left, -1)  # of the `top_k` tokens alone
    before = probabilities.cumsum(-1) - probabilities
    nucleus = (before < top_p) | (top_p >= 1)  # sums are rounded: without top_p, no token is dropped
    inside = nucleus & (probabilities >= settings["min_p"] * probabilities.max(-1))
    kept = tp.where(inside, probabilities, 0.0)
    return order.index(0, drawn(kept, draw))


def token_counts(token: Tensor, vocabulary: int, u: Expr, r: Expr, j: Expr, before: Tensor | None = None) -> Tensor:
    """How often each token of the vocabulary stands before the token u of a text, after the prompts r, in their samples j.

    `before` [vocabulary] over r is how often it is in a part of the text that stands in the prompt.
    """
    counts = tp.recurrence((vocabulary,), domain=(u, r, j), name="counts")
    counts[u, r, j, u < 1] = tp.zeros((vocabulary,)) if before is None else before
    counts[u, r, j] = (counts + tp.one_hot(token, vocabulary))[u - 1, r, j]
    return counts


def penalized(logits: Tensor, counts: Tensor, in_prompt: Tensor, domain: Domain = ()) -> Tensor:
    """The logits of the next token after the penalties.

    `counts` [vocabulary] are those of the tokens of the text before it, `in_prompt` says which are in its prompt. The penalties are inputs: one
    of each, or one for each point of `domain`.
    """
    is_used = counts > 0
    seen = is_used | in_prompt
    repetition, frequency, presence = (
        tp.input(f"{name}_penalty", (), domain=domain) for name in ("repetition", "frequency", "presence")
    )
    repeated = tp.where(logits > 0, logits / repetition, logits * repetition)
    penalty = frequency * counts + presence * is_used.astype("float32")
    return tp.where(seen, repeated, logits) - penalty


def report(logits: Tensor, token: Tensor, count: int) -> dict[str, Tensor]:
    """The outputs `logprob` of a token, and of the `count` most likely ones `top_logprobs` and `top_tokens`."""
    logprobs = tp.log_softmax(logits, -1)
    values, top = tp.top_k(logprobs, count)
    return {"logprob": logprobs.index(0, token), "top_logprobs": values, "top_tokens": top}
