"""The choice of tokens: the settings against plain NumPy, what draws depend on, and mistakes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tempo_core as tp
from tempo_llm import RequestError, Sampling
from tempo_llm.sampling import NOT_FINITE, Features, choose, drawn, penalized, settings, token_counts, uniform_draws
from tempo_llm.serve.choice import choice_program

VOCABULARY = 12


def plain_choice(
    sampling: Sampling, logits: np.ndarray, prompt: list[int], text: list[int], draw: float
) -> tuple[int, np.ndarray]:
    """The next token, and the probability of each token, one token after the other in float64."""
    scores = logits.astype(np.float64)
    common = min(
        max(sampling.logit_bias.get(token, 0.0) for token in range(VOCABULARY)), 0.0
    )  # what all tokens lose changes nothing
    for token in range(VOCABULARY):
        if token in prompt or token in text:
            penalty = sampling.repetition_penalty
            scores[token] = scores[token] / penalty if scores[token] > 0 else scores[token] * penalty
        scores[token] -= sampling.frequency_penalty * text.count(token) + sampling.presence_penalty * (token in text)
        scores[token] += sampling.logit_bias.get(token, 0.0) - common
    if sampling.temperature == 0:
        return int(scores.argmax()), np.eye(VOCABULARY)[scores.argmax()]
    weights = np.exp((scores - scores.max()) / sampling.temperature)
    weights /= weights.sum()
    order = sorted(range(VOCABULARY), key=lambda token: -weights[token])
    kept, together = np.zeros(VOCABULARY), 0.0
    left = order[: sampling.top_k or VOCABULARY]
    for token in left:
        fits = together < sampling.top_p * sum(weights[left])
        if fits and weights[token] >= sampling.min_p * weights[order[0]]:
            kept[token] = weights[token]
        together += weights[token]
    kept /= kept.sum()
    filtered = sampling.top_k or sampling.top_p < 1 or sampling.min_p
    sequence = order if filtered else range(VOCABULARY)
    reached = 0.0
    for token in sequence:
        reached += kept[token]
        if reached > draw:
            return token, kept
    return token, kept


SETTINGS = {
    "greedy": Sampling(),
    "temperature": Sampling(0.8),
    "top k": Sampling(1.3, top_k=3),
    "top p": Sampling(1.1, top_p=0.7),
    "min p": Sampling(1.5, min_p=0.2),
    "all three": Sampling(2.0, top_k=7, top_p=0.9, min_p=0.05),
    "repetition": Sampling(repetition_penalty=1.8),
    "frequency and presence": Sampling(0.9, frequency_penalty=0.6, presence_penalty=-0.4),
    "bias": Sampling(logit_bias={3: 4.0, 5: float("-inf")}),
    "bias of all": Sampling(1.0, logit_bias=dict.fromkeys(range(VOCABULARY), -1e20)),
    "bias of all but one": Sampling(1.0, logit_bias={token: float("-inf") for token in range(VOCABULARY - 1)}),
    "everything": Sampling(1.2, 6, 0.8, 0.02, 1.3, 0.2, 0.5, {1: -2.0}),
}


def run_choice(
    sampling: Sampling, logits: np.ndarray, prompt: list[int], draws: np.ndarray, executor: str | None = None
) -> list[int]:
    """The tokens that the program chooses, one after the other. `logits` has those of each position."""
    features = sampling.features()
    context = tp.Context("u", "r", "j")
    with context as ((u, U), (r, R), (j, J)):
        given = tp.input("logits", (VOCABULARY,), domain=(u,))
        token = tp.recurrence((), "int32", domain=(u, r, j), name="token")
        scores = given
        if features.is_penalized:
            in_prompt = tp.input("in_prompt", (VOCABULARY,), "bool", domain=(r,))
            scores = penalized(given, token_counts(token, VOCABULARY, u, r, j), in_prompt)
        if features.is_biased:
            scores = scores + tp.input("logit_bias", (VOCABULARY,))
        draw = tp.input("draw", (), domain=(u, r, j)) if features.is_sampled else None
        chosen = choose(scores, settings(features), draw)
        token[u, r, j] = chosen
    feeds = sampling.inputs(features, [prompt], draws[1:, None, None], VOCABULARY)
    config = tp.Config() if executor is None else tp.Config(executor=executor)
    (tokens,) = context.run({U: len(logits), R: 1, J: 1}, [token], {"logits": logits, **feeds}, config)
    return np.asarray(tokens)[:, 0, 0].tolist()


@pytest.mark.parametrize("name", SETTINGS)
def test_tokens_are_those_of_plain_numpy(name: str) -> None:
    sampling, prompt = SETTINGS[name], [4, 7]
    random = np.random.default_rng(list(SETTINGS).index(name))
    logits = random.normal(0, 2, (24, VOCABULARY)).astype(np.float32)
    draws = random.random(25, np.float32)
    text: list[int] = []
    for position, row in enumerate(logits):
        text.append(plain_choice(sampling, row, prompt, text, float(draws[position + 1]))[0])
    assert run_choice(sampling, logits, prompt, draws) == text


def test_settings_change_the_text() -> None:
    """No setting of the table above is without effect on its random numbers."""
    random = np.random.default_rng(8)
    logits = random.normal(0, 2, (24, VOCABULARY)).astype(np.float32)
    draws = random.random(25, np.float32)
    texts = [tuple(run_choice(sampling, logits, [4, 7], draws)) for sampling in SETTINGS.values()]
    assert len(set(texts)) == len(texts)


def test_draws_have_the_probabilities() -> None:
    logits = np.tile(np.log(np.arange(1, VOCABULARY + 1, dtype=np.float32)), (2000, 1))
    draws = uniform_draws(3, [1, 2], 0, 2001)
    counts = np.bincount(run_choice(Sampling(1.0), logits, [0], draws), minlength=VOCABULARY)
    expected = np.arange(1, VOCABULARY + 1) / np.arange(1, VOCABULARY + 1).sum()
    assert np.abs(counts / 2000 - expected).max() < 0.03


# Token by token: the probabilities, the settings, and the shares with which tokens are drawn, by hand.
SHARES = [0.4, 0.2, 0.1, 0.08, 0.07, 0.05, 0.04, 0.03, 0.01, 0.01, 0.005, 0.005]
ORDERS: dict[str, tuple[list[float], Sampling, list[float]]] = {
    "the nucleus is of the K tokens that are left: 4/7, 2/7, 1/7": (SHARES, Sampling(1.0, 3, 0.8), [2 / 3, 1 / 3]),
    "K alone": (SHARES, Sampling(1.0, 3), [4 / 7, 2 / 7, 1 / 7]),
    "the nucleus alone": (SHARES, Sampling(1.0, top_p=0.65), [4 / 7, 2 / 7, 1 / 7]),
    "temperature comes before the nucleus: 16/21, 4/21, 1/21": (SHARES, Sampling(0.5, 3, 0.7), [1.0]),
    "the nucleus comes before min_p": ([0.5, 0.2, 0.2, 0.05, 0.05], Sampling(1.0, 0, 0.75, 0.3), [5 / 9, 2 / 9, 2 / 9]),
    "min_p is of the greatest": ([0.5, 0.2, 0.2, 0.05, 0.05], Sampling(1.0, 4, 1.0, 0.2), [5 / 9, 2 / 9, 2 / 9]),
    "all four": ([0.4, 0.2, 0.2, 0.1, 0.1], Sampling(0.5, 4, 0.97, 0.2), [16 / 24, 4 / 24, 4 / 24]),
    "one token at least": (SHARES, Sampling(1.0, 2, 1e-30, 1.0), [1.0]),
}


def logits_of(shares: list[float]) -> np.ndarray:
    return np.log(np.asarray([*shares, *[1e-9] * (VOCABULARY - len(shares))], np.float32))


@pytest.mark.parametrize("name", ORDERS)
def test_the_order_of_the_settings(name: str) -> None:
    """Temperature, top_k, top_p of those that are left, min_p. Draws are a grid, so that shares are exact up to its width."""
    shares, sampling, expected = ORDERS[name]
    logits, draws = np.tile(logits_of(shares), (700, 1)), (np.arange(701, dtype=np.float32) - 0.5) / 700
    counts = np.bincount(run_choice(sampling, logits, [0], draws), minlength=VOCABULARY)
    np.testing.assert_allclose(counts / 700, np.pad(expected, (0, VOCABULARY - len(expected))), atol=2 / 700)


@pytest.mark.parametrize("name", ORDERS)
def test_a_row_of_the_server_has_the_same_order(name: str, choices: Any) -> None:
    shares, sampling, expected = ORDERS[name]
    names = ("temperature", "top_k", "top_p", "min_p")
    values = dict(zip(names, (sampling.temperature, sampling.top_k or VOCABULARY, sampling.top_p, sampling.min_p), strict=True))
    inputs = {name: np.full(140, value, "int32" if name == "top_k" else "float32") for name, value in values.items()}
    draws = (np.arange(140, dtype=np.float32) + 0.5) / 140
    result = choices.run({"logits": np.tile(logits_of(shares), (140, 1)), "draw": draws, **inputs})
    counts = np.bincount(result["token"], minlength=VOCABULARY)
    np.testing.assert_allclose(counts / 140, np.pad(expected, (0, VOCABULARY - len(expected))), atol=2 / 140)


@pytest.fixture(scope="module")
def choices() -> Any:
    return choice_program(Features(is_sampled=True, is_filtered=True), 140, VOCABULARY, tp.Config())


@pytest.mark.torch
@pytest.mark.filterwarnings("ignore")
def test_shares_are_those_of_transformers() -> None:
    """For settings of all kinds, on random logits, without ties."""
    import torch
    from transformers import MinPLogitsWarper, TemperatureLogitsWarper, TopKLogitsWarper, TopPLogitsWarper

    random = np.random.default_rng(6)
    for _ in range(200):
        logits = random.normal(0, 2, VOCABULARY).astype(np.float32)
        top_k, top_p = int(random.integers(1, VOCABULARY + 1)), float(random.uniform(0.05, 1))
        sampling = Sampling(float(random.uniform(0.3, 2)), top_k, top_p, float(random.choice([0, random.random()])))
        scores = torch.tensor(logits[None])
        rest = [TopKLogitsWarper(top_k), TopPLogitsWarper(top_p), MinPLogitsWarper(sampling.min_p)]
        for warper in (TemperatureLogitsWarper(sampling.temperature), *rest):
            scores = warper(None, scores)
        expected = torch.softmax(scores, -1)[0].numpy()
        np.testing.assert_allclose(plain_choice(sampling, logits, [], [], 0.5)[1], expected, rtol=1e-4, atol=1e-6)


EDGE = np.float32(1 - 2**-24)  # the largest draw


def run_drawn(probabilities: np.ndarray, draws: np.ndarray, **config: Any) -> np.ndarray:
    """The token that `drawn` takes for each row of probabilities and each draw."""
    context = tp.Context("t")
    with context as ((t, T),):
        given = tp.input("probabilities", (probabilities.shape[1],), domain=(t,))
        token = drawn(given, tp.input("draw", (), domain=(t,)))[0:T]
    return np.asarray(context.run({T: len(draws)}, token, {"probabilities": probabilities, "draw": draws}, tp.Config(**config)))


@pytest.mark.parametrize("config", [{"backend": "numpy"}, {"executor": "interpreted"}, {"executor": "staged"}], ids=str)
@pytest.mark.parametrize("vocabulary", [1, 3, 513, 4099])
def test_a_token_without_probability_is_never_drawn(vocabulary: int, config: dict[str, str]) -> None:
    """At the edges of a draw too: 0, numbers near 1, and 1 itself, which a rounded product can be."""
    random = np.random.default_rng(vocabulary)
    draws = np.asarray([0.0, 2**-24, 0.5, 1 - 2**-23, EDGE, 1.0] * 40, np.float32)
    probabilities = random.random((len(draws), vocabulary), np.float32) ** 8
    probabilities *= random.random(probabilities.shape) < random.random((len(draws), 1))
    probabilities[:, -(vocabulary // 2) :] *= vocabulary == 1 or (random.random((len(draws), 1)) < 0.2)  # often, the end is 0
    probabilities[np.arange(len(draws)), random.integers(0, max(vocabulary // 2, 1), len(draws))] = 0.3
    scale = np.where(random.random((len(draws), 1)) < 0.5, probabilities.sum(1, keepdims=True), 1)
    probabilities = (probabilities / scale).astype(np.float32)
    tokens = run_drawn(probabilities, draws, **config)
    assert (tokens >= 0).all() and (tokens < vocabulary).all()
    assert (probabilities[np.arange(len(draws)), tokens] > 0).all()


def test_the_edges_of_a_draw_are_the_first_and_the_last_token_that_can_be_drawn() -> None:
    probabilities = np.tile(np.asarray([0, 0.25, 0, 0.5, 0.25, 0, 0], np.float32), (6, 1))
    draws = np.asarray([0, np.nextafter(np.float32(0.25), np.float32(0)), 0.25, 0.75, EDGE, 1], np.float32)
    assert run_drawn(probabilities, draws, backend="numpy").tolist() == [1, 1, 3, 4, 4, 4]


@pytest.mark.parametrize("top_p", [1e-45, 1e-300])
def test_a_top_p_near_zero_takes_the_most_likely_token(top_p: float) -> None:
    """In float32 it is 0, or a number that XLA takes for 0."""
    logits = np.random.default_rng(2).normal(0, 2, (24, VOCABULARY)).astype(np.float32)
    draws = np.full(25, EDGE)
    assert run_choice(Sampling(1.0, top_p=top_p), logits, [0], draws) == logits.argmax(1).tolist()


@pytest.mark.parametrize("executor", ["interpreted", "staged"])
@pytest.mark.parametrize("temperature", [1e-8, 1e-10, 1e-38, 1e-45, 1e-300])
@pytest.mark.parametrize("top_k", [0, 3])
def test_a_temperature_near_zero_takes_the_most_likely_token(temperature: float, top_k: int, executor: str) -> None:
    random = np.random.default_rng(2)
    logits = random.normal(0, 9, (24, VOCABULARY)).astype(np.float32)
    tokens = run_choice(Sampling(temperature, top_k), logits, [0], random.random(25, np.float32), executor=executor)
    assert tokens == logits.argmax(1).tolist()


@pytest.mark.parametrize(
    "sampling",
    [
        Sampling(1e300),
        Sampling(1.0, frequency_penalty=1e30),
        Sampling(repetition_penalty=1e-30),
        Sampling(logit_bias={3: 1e300}),
    ],
    ids=repr,
)
def test_large_numbers_choose_a_token(sampling: Sampling) -> None:
    logits = np.random.default_rng(2).normal(0, 2, (4, VOCABULARY)).astype(np.float32)
    assert NOT_FINITE not in run_choice(sampling, logits, [0], np.full(5, 0.5, np.float32))


def test_logits_that_are_not_finite_choose_no_token() -> None:
    logits = np.zeros((3, VOCABULARY), np.float32)
    logits[1, 4], logits[2, 5] = np.nan, np.inf
    assert run_choice(Sampling(), logits, [0], np.zeros(4, np.float32)) == [0, NOT_FINITE, NOT_FINITE]


def test_draws_depend_on_seed_prompt_sample_and_position_only() -> None:
    draws = uniform_draws(7, [1, 2, 3], 0, 50)
    assert draws.dtype == np.float32 and (draws >= 0).all() and (draws < 1).all()
    np.testing.assert_array_equal(uniform_draws(7, [1, 2, 3], 0, 20), draws[:20])
    others = [uniform_draws(8, [1, 2, 3], 0, 50), uniform_draws(7, [1, 2, 4], 0, 50), uniform_draws(7, [1, 2, 3], 1, 50)]
    assert all((other != draws).all() for other in others)
    seeds = (-1, 0, 1, 2**32 + 1, 2**63 - 1, 2**63, 2**63 + 1, 2**64)  # none of them is another one
    assert len({uniform_draws(seed, [5], 0, 3).tobytes() for seed in seeds}) == len(seeds)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"temperature": -1.0}, "temperature is -1.0; it must be 0 \\(greedy\\) or a positive number"),
        ({"temperature": float("nan")}, "temperature is nan"),
        ({"temperature": float("inf")}, "temperature is inf"),
        ({"temperature": "hot"}, "temperature is 'hot'"),
        ({"top_k": -1}, "top_k is -1"),
        ({"top_k": 2.5}, "top_k is 2.5; it must be a whole number"),
        ({"top_p": 0}, "top_p is 0; it must be greater than 0"),
        ({"top_p": 1.5}, "top_p is 1.5"),
        ({"min_p": -0.1}, "min_p is -0.1"),
        ({"repetition_penalty": 0}, "repetition_penalty is 0"),
        ({"presence_penalty": float("inf")}, "presence_penalty is inf"),
        ({"presence_penalty": 1e300}, r"presence_penalty is 1e\+300; it must be a number from -1e\+30 to"),
        ({"repetition_penalty": 1e-300}, "repetition_penalty is 1e-300"),
        ({"temperature": 10**400}, "temperature is 1000"),
        ({"logit_bias": 5}, "logit_bias is 5; it must be a dict from tokens to numbers"),
        ({"logit_bias": {3: float("nan")}}, "logit bias of token 3 is nan"),
    ],
)
def test_settings_out_of_range(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(RequestError, match=message):
        Sampling(**settings)


def test_numbers_of_numpy_are_numbers() -> None:
    numbers = Sampling(np.float32(0.5), np.int32(3), np.float16(0.5), logit_bias={np.int64(2): np.float32(1.0)})  # type: ignore[arg-type]
    features = numbers.features()
    draws = np.zeros((1, 1), np.float32)
    inputs = numbers.inputs(features, [[1]], draws, 8)
    plain = Sampling(0.5, 3, 0.5, logit_bias={2: 1.0}).inputs(features, [[1]], draws, 8)
    assert inputs.keys() == plain.keys() and all((inputs[name] == plain[name]).all() for name in inputs)


def test_a_bias_of_an_unknown_token() -> None:
    sampling = Sampling(logit_bias={VOCABULARY: 1.0})
    with pytest.raises(RequestError, match="the logit bias names token 12"):
        sampling.inputs(sampling.features(), [[1]], np.zeros((3, 1), np.float32), VOCABULARY)


def test_a_bias_that_excludes_every_token() -> None:
    sampling = Sampling(logit_bias={token: float("-inf") for token in range(VOCABULARY)})
    with pytest.raises(RequestError, match="the logit bias excludes every token"):
        sampling.inputs(sampling.features(), [[1]], np.zeros((3, 1), np.float32), VOCABULARY)
