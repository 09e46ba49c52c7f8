"""The choice of the next token of each row, as programs of their own: logits of all rows in, a token of each row out.

A row's token comes from the program of the row's own features, and never from that of its neighbours: so it is the same beside any others. A
program runs when a row needs it, so nobody pays for another row's sorting.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

import tempo_core as tp
from tempo_core import Tensor
from tempo_llm.sampling import EXCLUDED, Features, Sampling, choose, penalized, report, settings

Program = tp.Program[dict[str, np.ndarray]]

MOST_LOGPROBS = 20  # of OpenAI's interface
_OTHERS: Mapping[str, float] = {"temperature": 1, "top_p": 1, "repetition_penalty": 1}  # of a row that asks for nothing; else 0


@dataclass(frozen=True)
class Chosen:
    """The token of a row, with the logarithms of probabilities if they were asked for."""

    token: int
    logprob: float = 0.0
    top: tuple[tuple[int, float], ...] = ()


def form_of(sampling: Sampling, has_mask: bool, has_logprobs: bool, vocabulary: int) -> Features:
    """The features of the program of a row: one of `forms`."""
    features = sampling.features()
    is_adjusted = features.is_penalized or features.is_biased or has_mask
    logprobs = min(MOST_LOGPROBS, vocabulary) if has_logprobs else 0
    return Features(features.is_sampled, features.is_filtered, is_adjusted, is_adjusted, logprobs)


def forms(vocabulary: int) -> list[Features]:
    """The features of all programs."""
    return [
        Features(is_sampled, is_filtered, is_adjusted, is_adjusted, logprobs)
        for logprobs in (0, min(MOST_LOGPROBS, vocabulary))
        for is_adjusted in (False, True)
        for is_sampled, is_filtered in ((False, False), (True, False), (True, True))
    ]


class RowChoice:
    """What a row asks of the choice, as numbers: those of `Sampling.inputs`, its draws, and the tokens that it has had."""

    def __init__(self, sampling: Sampling, features: Features, prompt: Sequence[int], draws: np.ndarray, vocabulary: int):
        self.features, self.draws, self.count = features, draws, 0
        inputs = sampling.inputs(features, [prompt], draws, vocabulary)
        inputs.pop("draw", None)
        self.in_prompt, self.bias = (inputs.pop(name, None) for name in ("in_prompt", "logit_bias"))
        self.in_prompt = None if self.in_prompt is None else self.in_prompt[0]
        self.numbers: dict[str, float] = {name: value.item() for name, value in inputs.items()}
        self.counts = np.zeros(vocabulary, np.float32) if features.is_penalized else None

    @property
    def draw(self) -> float:
        return float(self.draws[self.count]) if self.features.is_sampled else 0.0

    def biased(self, mask: np.ndarray | None) -> np.ndarray:
        """The bias of each token; those that are not in the mask are excluded."""
        assert self.bias is not None
        return self.bias if mask is None else np.where(mask, self.bias, np.float32(2 * EXCLUDED))

    def took(self, token: int) -> None:
        self.count += 1
        if self.counts is not None:
            self.counts[token] += 1


class Choice:
    """The programs, by what they can do; `compile` compiles one of them."""

    def __init__(self, rows: int, vocabulary: int, config: tp.Config):
        self.rows, self.vocabulary = rows, vocabulary
        self.programs = {features: choice_program(features, rows, vocabulary, config) for features in forms(vocabulary)}

    def compile(self, features: Features) -> None:
        nobody = RowChoice(Sampling(1.0, top_k=1), features, [0], np.zeros(1, np.float32), self.vocabulary)
        self.choose(np.zeros((self.rows, self.vocabulary), np.float32), {0: (nobody, None)})

    def choose(self, logits: np.ndarray, rows: Mapping[int, tuple[RowChoice, np.ndarray | None]]) -> dict[int, Chosen]:
        """The token of each of some rows, from the logits [rows, vocabulary], and a mask bool [vocabulary] of each row or None."""
        by_form: dict[Features, list[int]] = {}
        for row, (choice, _) in rows.items():
            by_form.setdefault(choice.features, []).append(row)
        chosen: dict[int, Chosen] = {}
        for features, members in by_form.items():
            program = self.programs[features]
            inputs = {"logits": logits}
            for name, spec in program.inputs.items():
                if name != "logits":
                    inputs[name] = np.full(spec.whole, _OTHERS.get(name, 0), spec.dtype)
            for row in members:
                choice, mask = rows[row]
                for name, value in choice.numbers.items():
                    inputs[name][row] = value
                if features.is_sampled:
                    inputs["draw"][row] = choice.draw
                if features.is_penalized:
                    inputs["counts"][row], inputs["in_prompt"][row] = choice.counts, choice.in_prompt
                    inputs["logit_bias"][row] = choice.biased(mask)
            results = program.run(inputs)
            for row in members:
                chosen[row] = _chosen(results, row)
        return chosen


def _chosen(results: Mapping[str, np.ndarray], row: int) -> Chosen:
    token = int(results["token"][row])
    if "logprob" not in results:
        return Chosen(token)
    top = zip(results["top_tokens"][row].tolist(), results["top_logprobs"][row].tolist(), strict=True)
    return Chosen(token, float(results["logprob"][row]), tuple(top))


def choice_program(features: Features, rows: int, vocabulary: int, config: tp.Config) -> Program:
    """`logits` [rows, vocabulary] to `token` int32 [rows], by settings of each row; and what `report` gives if it is asked for."""
    context = tp.Context("r")
    with context as ((r, R),):
        logits = tp.input("logits", (vocabulary,), domain=(r,))
        scores: Tensor = logits
        if features.is_penalized:
            counts = tp.input("counts", (vocabulary,), domain=(r,))
            in_prompt = tp.input("in_prompt", (vocabulary,), "bool", domain=(r,))
            scores = penalized(scores, counts, in_prompt, (r,))
        if features.is_biased:
            scores = scores + tp.input("logit_bias", (vocabulary,), domain=(r,))
        draw = tp.input("draw", (), domain=(r,)) if features.is_sampled else None
        token = choose(scores, settings(features, (r,)), draw)
        outputs = {"token": token}
        if features.logprobs:
            outputs |= report(logits, tp.maximum(token, 0), features.logprobs)
        return context.compile({R: rows}, outputs, config)
