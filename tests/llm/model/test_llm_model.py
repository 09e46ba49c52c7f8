"""`tempo_llm.load`: texts and ids, streams, samples, stops, logarithms of probabilities, dtypes, and one program for all lengths."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tempo_llm
from tempo_core.errors import ConfigError
from tempo_llm import CheckpointError, Model, RequestError, Sampling, TokenizerError
from tempo_llm.writer import Writer
from tests.llm import models, oracle

pytest.importorskip("tokenizers")

IDS = [1, 17, 5, 140, 8, 261, 3]


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any], dict[str, np.ndarray]]:
    return models.whole_model(tmp_path_factory.mktemp("models") / "model")


@pytest.fixture(scope="module")
def model(checkpoint: tuple[Path, Any, Any]) -> Model:
    return tempo_llm.load(checkpoint[0], capacity=64)


def expected(checkpoint: tuple[Path, Any, Any], prompt: list[int], count: int) -> list[int]:
    return oracle.greedy(checkpoint[1], checkpoint[2], prompt, count)


def test_texts_and_ids(model: Model, checkpoint: Any) -> None:
    ids = model.tokenizer.encode("the lazy dog", raw=True)
    of_text = model.generate("the lazy dog", 6, ignore_eos=True)
    assert list(of_text.completions[0].token_ids) == expected(checkpoint, ids, 6)
    assert model.generate(ids, 6, ignore_eos=True).completions == model.generate([ids], 6, ignore_eos=True).completions
    assert of_text.text == of_text.completions[0].text == model.tokenizer.decode(of_text.completions[0].token_ids)
    assert np.asarray(ids).shape and model.generate(np.asarray(ids), 2).completions[0].prompt_ids == tuple(ids)


@pytest.mark.slow
@pytest.mark.usefixtures("fresh_programs")
def test_one_program_serves_all_prompts_and_lengths(checkpoint: Any) -> None:
    model = tempo_llm.load(checkpoint[0], capacity=64)
    model.generate(IDS, 4)
    before = model.compiles
    assert before >= 1
    for prompt, count in ((IDS[:1], 30), (IDS * 8, 8), (IDS, 57)):
        result = model.generate(prompt, count, ignore_eos=True)
        assert result.compiles == 0 and result.capacity == 64
        assert list(result.completions[0].token_ids) == expected(checkpoint, prompt, count)
    assert model.compiles == before


def test_capacities_double(checkpoint: Any) -> None:
    growing = tempo_llm.load(checkpoint[0])
    assert [growing.generator.capacity_for(n) for n in (1, 64, 65, 128, 129, 256)] == [64, 64, 128, 128, 256, 256]
    with pytest.raises(RequestError, match="100 positions do not fit the capacity of 64"):
        tempo_llm.load(checkpoint[0], capacity=64).generate([1] * 90, 10)
    with pytest.raises(RequestError, match="the capacity is 257; this model takes 1 to 256 tokens"):
        tempo_llm.load(checkpoint[0], capacity=257)


@pytest.mark.parametrize("chunk", [1, 3, None])
def test_a_stream_is_the_whole_in_pieces(model: Model, chunk: int | None) -> None:
    prompts = ["the quick brown fox", "all day"]
    whole = model.generate(prompts, 9, ignore_eos=True)
    stream = model.generate(prompts, 9, ignore_eos=True, stream=True, chunk=chunk)
    pieces = list(stream)
    for number, completion in enumerate(whole.completions):
        mine = [piece for piece in pieces if piece.prompt == number]
        assert tuple(token for piece in mine for token in piece.token_ids) == completion.token_ids
        assert "".join(piece.text for piece in mine) == completion.text
        assert [piece.finish_reason for piece in mine] == [*[None] * (len(mine) - 1), "length"]
    assert stream.generation.completions == whole.completions and len(pieces) > 2
    assert stream.generation.first_token_seconds is not None and whole.first_token_seconds is None


def test_a_stream_may_be_left(model: Model) -> None:
    stream = model.generate(IDS, 40, stream=True, ignore_eos=True, chunk=2)
    first = next(stream)
    assert 1 <= len(first.token_ids) <= 2
    assert stream.generation.completions[0].token_ids == first.token_ids and stream.generation.length < 20


def test_generation_ends_when_all_rows_have_ended(model: Model, checkpoint: Any) -> None:
    tokens = expected(checkpoint, IDS, 40)
    stop = tokens[5]
    at = tokens.index(stop)
    result = model.generate([IDS, IDS[:5]], 40, ignore_eos=True, stop_ids=[stop])
    assert result.completions[0].token_ids == tuple(tokens[: at + 1]) and result.completions[0].finish_reason == "stop"
    alone = model.generate(IDS, 40, ignore_eos=True, stop_ids=[stop])
    assert alone.length == len(IDS) + at + 1  # and not 47: the loop ended


@pytest.mark.slow
def test_end_tokens_of_the_configuration(checkpoint: Any, tmp_path: Path) -> None:
    tokens = expected(checkpoint, IDS, 12)
    directory, _, _ = models.whole_model(tmp_path / "ends", eos_token_id=[tokens[3], 299])
    result = tempo_llm.load(directory, capacity=64).generate(IDS, 12)
    assert result.completions[0].token_ids == tuple(tokens[: tokens.index(tokens[3]) + 1])


def test_stop_strings(model: Model) -> None:
    whole = model.generate(IDS, 20, ignore_eos=True).text
    stop = whole[4:7]
    result = model.generate(IDS, 20, ignore_eos=True, stop=["never there", stop])
    assert result.text == whole[: whole.index(stop)] and result.completions[0].finish_reason == "stop"
    stream = model.generate(IDS, 20, ignore_eos=True, stop=stop, stream=True, chunk=1)
    assert "".join(piece.text for piece in stream) == result.text


def test_the_token_that_completes_a_stop_string_is_the_last_one_whatever_comes_at_once(model: Model) -> None:
    common: dict[str, Any] = {"ignore_eos": True, "logprobs": 2}
    whole = model.generate(IDS, 20, **common)
    ids = whole.completions[0].token_ids
    stop = whole.text[4:7]
    last = next(k for k in range(1, 20) if stop in model.tokenizer.decode(ids[:k]))
    for chunk in (1, 3, 20):
        stream = model.generate(IDS, 20, stop=stop, stream=True, chunk=chunk, **common)
        pieces = list(stream)
        (completion,) = stream.generation.completions
        assert completion.token_ids == ids[:last] == sum((piece.token_ids for piece in pieces), ())
        assert [len(piece.logprobs or ()) for piece in pieces] == [len(piece.token_ids) for piece in pieces]
        assert len(completion.logprobs or ()) == last and completion.finish_reason == pieces[-1].finish_reason == "stop"
        assert completion.text == whole.text[: whole.text.index(stop)]


def test_the_first_stop_string_that_is_whole_ends_the_text(model: Model) -> None:
    ids = model.tokenizer.encode("abcdefgh", raw=True)
    for size in (1, len(ids)):
        writer = Writer(model.tokenizer, ("bcdefg", "cd"))
        for first in range(0, len(ids), size):
            writer.write(ids[first : first + size], False)
        assert writer.text == "ab" and writer.is_stopped, size


def test_text_waits_while_it_may_be_a_part_of_a_character_or_of_a_stop_string(model: Model) -> None:
    ids = model.tokenizer.encode("a €uro STOP it", raw=True)
    for stops, text in (((), "a €uro STOP it"), (("STOP",), "a €uro "), (("STOPS",), "a €uro STOP it")):
        writer = Writer(model.tokenizer, stops)
        parts = [writer.write([token], k == len(ids) - 1) for k, token in enumerate(ids)]
        assert "".join(parts) == text == writer.text
        assert all("\ufffd" not in part for part in parts) and sum(bool(part) for part in parts) > 2


@pytest.mark.slow
def test_samples_follow_seed_prompt_and_position_and_not_the_batch(model: Model) -> None:
    sampling = Sampling(1.5, top_k=40)
    prompts = [IDS, [9, 9], [1, 4, 200]]
    together = model.generate(prompts, 10, sampling=sampling, samples=2, seed=5, ignore_eos=True).completions
    assert [(c.prompt, c.sample) for c in together] == [(p, s) for p in range(3) for s in range(2)]
    assert len({c.token_ids for c in together}) == 6
    alone = model.generate(prompts[1], 10, sampling=sampling, seed=5, ignore_eos=True).completions[0]
    assert alone.token_ids == together[2].token_ids
    assert (
        model.generate(prompts[1], 4, sampling=sampling, seed=5, ignore_eos=True).completions[0].token_ids == alone.token_ids[:4]
    )
    assert model.generate(prompts[1], 10, sampling=sampling, seed=6, ignore_eos=True).completions[0].token_ids != alone.token_ids


def test_logprobs_are_those_of_the_logits(model: Model, checkpoint: Any) -> None:
    result = model.generate([IDS, IDS[:3]], 5, logprobs=3, ignore_eos=True)
    stream = model.generate([IDS, IDS[:3]], 5, logprobs=3, ignore_eos=True, stream=True, chunk=2)
    streamed = [row for piece in stream if piece.prompt == 1 for row in piece.logprobs or ()]
    assert streamed == list(result.completions[1].logprobs or ())
    for completion in result.completions:
        assert completion.logprobs is not None and len(completion.logprobs) == 5
        for k, row in enumerate(completion.logprobs):
            logits = oracle.logits(checkpoint[1], checkpoint[2], [*completion.prompt_ids, *completion.token_ids[:k]])
            logs = logits - np.log(np.exp(logits - logits.max()).sum()) - logits.max()
            assert [token for token, _ in row.top] == np.argsort(-logs)[:3].tolist()
            np.testing.assert_allclose([value for _, value in row.top], np.sort(logs)[::-1][:3], atol=1e-4)
            assert row.logprob == pytest.approx(logs[completion.token_ids[k]], abs=1e-4)


def test_logits_at_every_position(model: Model, checkpoint: Any) -> None:
    logits = model.logits(IDS)
    assert logits.shape == (len(IDS), 300) and logits.dtype == np.float32
    for k in range(len(IDS)):
        row = oracle.logits(checkpoint[1], checkpoint[2], IDS[: k + 1])
        assert np.abs(logits[k] - row).max() < 1e-4 * np.abs(row).max()
    np.testing.assert_allclose(model.logits(IDS[:2]), logits[:2], atol=1e-4)
    assert model.logits("a dog").shape[0] == len(model.tokenizer.encode("a dog", raw=True))


@pytest.mark.parametrize(
    ("dtype", "error"),
    [
        pytest.param("bfloat16", 0.05, marks=pytest.mark.slow),
        pytest.param("float16", 0.005, marks=pytest.mark.slow),
        pytest.param("int8", 0.05, marks=pytest.mark.slow),
        pytest.param("int4", 0.5, marks=pytest.mark.slow),
    ],
)
def test_dtypes_are_close_to_float32(model: Model, checkpoint: Any, dtype: str, error: float) -> None:
    """`error` is relative to the largest logit of a position. The program computes with the weights that it has, and nothing else."""
    narrow = tempo_llm.load(checkpoint[0], dtype=dtype, capacity=64)
    exact, logits = model.logits(IDS), narrow.logits(IDS)
    distance = np.abs(exact - logits).max(-1) / np.abs(exact).max(-1)
    assert 0 < distance.max() < error
    result = narrow.generate(IDS, 3, ignore_eos=True).completions[0]
    assert result.token_ids[0] == logits[-1].argmax()
    names = {str(array.dtype) for name, array in narrow.generator._weights.items() if array.ndim > 1 and name.endswith("weight")}
    assert {"int4": "uint8"}.get(dtype, dtype) in names


def test_weights_that_are_not_finite(tmp_path: Path) -> None:
    tensors = models.random_tensors(models.VALUES)
    tensors["model.layers.1.mlp.up_proj.weight"][3, 4] = np.nan
    directory = models.write_model(tmp_path / "nan", models.VALUES, tensors)
    with pytest.raises(
        CheckpointError, match=r"model.layers.1.mlp.up_proj.weight is nan at \[3, 4\], and 1 of its 1536 numbers are not"
    ):
        tempo_llm.load(directory)


def test_logits_that_are_not_finite(tmp_path: Path) -> None:
    tensors = models.random_tensors(models.VALUES)
    for name in ("model.norm.weight", "lm_head.weight"):
        tensors[name] *= np.float32(1e30)
    directory = models.write_model(tmp_path / "large", models.VALUES, tensors)
    with pytest.raises(CheckpointError, match="the model's logits are not finite after token 2 of prompt 0"):
        tempo_llm.load(directory, backend="numpy").generate([1, 2, 3], 4)


def test_a_model_without_a_tokenizer_takes_ids(tmp_path: Path) -> None:
    directory = models.write_model(tmp_path / "bare", models.VALUES, models.random_tensors(models.VALUES))
    bare = tempo_llm.load(directory, capacity=32, backend="numpy")
    result = bare.generate([1, 2, 3], 3, ignore_eos=True)
    assert result.completions[0].text is None and result.text == "" and len(result.completions[0].token_ids) == 3
    for call in (lambda: bare.generate("text", 3), lambda: bare.logits("text")):
        with pytest.raises(TokenizerError, match=r"no tokenizer.json or tokenizer.model in .*bare"):
            call()
    with pytest.raises(TokenizerError, match="stop strings need a tokenizer"):
        bare.generate([1], 3, stop="x")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"prompts": []}, "there is no prompt"),
        ({"prompts": ["a", [1]]}, "prompts are strings or token ids, not both"),
        ({"prompts": [[1, 2.5]]}, "prompt 0 has token 2.5"),
        ({"prompts": [1, 300]}, "prompt 0 has token 300, but the model knows 300 tokens"),
        ({"max_new_tokens": 0}, "max_new_tokens is 0; it must be a whole number of at least 1"),
        ({"max_new_tokens": 2.5}, "max_new_tokens is 2.5"),
        ({"samples": 0}, "samples is 0"),
        ({"samples": 10**9}, "samples is 1000000000; it must be a whole number of at least 1 and at most 4096"),
        ({"logprobs": -1}, "logprobs is -1"),
        ({"logprobs": 301}, "logprobs is 301; it must be a whole number of at least 0 and at most 300"),
        ({"seed": "x"}, "seed is 'x'"),
        ({"stop": [""]}, "stop is \\[''\\]; it must be strings that are not empty"),
        ({"stop": 5}, "stop is 5"),
        ({"prompts": 7}, "the prompts are 7"),
        ({"prompts": {1, 7}}, "the prompts are {1, 7}"),
        ({"prompts": {"a": 1}}, "the prompts are {'a': 1}"),
        ({"prompts": np.array(5)}, r"the prompts are array\(5\)"),
        ({"prompts": [b"ab"]}, "prompt 0 is b'ab'; it must be token ids"),
        ({"stop_ids": [999]}, "stop_ids has token 999"),
        ({"chunk": 0}, "a chunk is 0 positions"),
        ({"temperature": -1.0}, "temperature is -1.0"),
    ],
)
def test_requests_that_mean_nothing(model: Model, arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(RequestError, match=message):
        model.generate(**{"prompts": [1, 2], "max_new_tokens": 3, **arguments})


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda model: model.generate([1], 2, stop_ids=None), r"stop_ids is None; it must be token ids\n.*stop_ids=\[2\]"),
        (lambda model: model.generate([1], 2, stop_ids=5), "stop_ids is 5; it must be token ids"),
        (lambda model: model.generate([1], 2, stop_ids="ab"), "stop_ids is 'ab'; it must be token ids"),
        (lambda model: model.generate([1], 2, stop_ids=[2, None]), "stop_ids has token None, but the model knows 300 tokens"),
        (
            lambda model: model.generate([1], 2, sampling="x"),
            r"sampling is 'x'; it must be a Sampling\n.*Sampling\(0.8, top_k=10\)",
        ),
        (lambda model: model.generate([1], 2, sampling=Sampling(), temperature=0.5), "temperature and sampling are both given"),
        (lambda model: model.generate([1], 2, chunk=True), "a chunk is True positions"),
        (lambda model: model.generate(b"abc", 2), "the prompts are b'abc'"),
        (lambda model: model.generate([True], 2), "prompt 0 has token True"),
        (lambda model: model.generator.generate([[1]], 2, stop_ids=None), "stop_ids is None"),
        (lambda model: model.generator.generate(None, 2), "prompts is None; it must be lists of token ids"),
        (lambda model: model.generator.generate([5], 2), "prompt 0 is 5; it must be token ids"),
        (lambda model: model.generator.generate([[1]], 2, sampling="x"), "sampling is 'x'"),
        (lambda model: model.generator.plan([[1]], 2, sampling="x"), "sampling is 'x'"),
        (lambda model: model.logits(5), r"ids is 5; it must be token ids\n.*logits\(\[1, 2, 3\]\)"),
        (lambda model: model.logits(None), "ids is None; it must be token ids"),
        (lambda model: model.logits([[1, 2]]), r"ids has token \[1, 2\]"),
        (lambda model: tempo_llm.load(None), r"None is not the name of a model\n.*load\("),
        (lambda model: tempo_llm.load(b"x"), "b'x' is not the name of a model"),
        (lambda model: tempo_llm.load(model.directory, ["float32"]), r"the dtype \['float32'\] is unknown"),
        (lambda model: tempo_llm.load(model.directory, capacity=True), "the capacity is True"),
    ],
)
def test_arguments_of_another_kind(model: Model, call: Callable[[Model], object], message: str) -> None:
    with pytest.raises(RequestError, match=message):
        call(model)


def test_a_model_says_what_it_is(model: Model) -> None:
    with pytest.raises(ConfigError, match="Config has no option `cach`"):
        tempo_llm.load(model.directory, cach=True)
    assert str(model.directory) in repr(model) and "llama, 2 layers of 32, float32" in repr(model)
    with pytest.raises(RequestError, match="the dtype 'int2' is unknown; weights can be float32, bfloat16, float16, int8, int4"):
        tempo_llm.load(model.directory, dtype="int2")


# -- names ------------------------------------------------------------------------------------------------------------


def test_names_of_models(checkpoint: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from tempo_llm.hub import REPOSITORIES, locate

    monkeypatch.chdir(tmp_path)
    (tmp_path / "checkpoints").mkdir()
    (tmp_path / "checkpoints" / "mine").symlink_to(checkpoint[0])
    assert locate("mine") == Path("checkpoints/mine") and locate(checkpoint[0]) == checkpoint[0]
    assert json.loads((locate("mine") / "config.json").read_text())["vocab_size"] == 300
    for name in ("other", "", "a\0b", "x" * 5000):
        with pytest.raises(RequestError) as caught:
            locate(name)
        assert "\n  hint: " in str(caught.value)
    with pytest.raises(
        RequestError,
        match="other is not a model: looked for the directory other, checkpoints/other, the models of this package; the models here",
    ):
        locate("other")
    (tmp_path / "file").write_text("")
    with pytest.raises(RequestError, match="file is a file, but a model is a directory"):
        locate("file")
    assert all(name == name.lower() for name in REPOSITORIES)


@pytest.mark.parametrize(
    ("name", "near"),
    [
        ("llama3.2", "llama-3.2-1b or llama-3.2-1b-instruct or llama-3.2-3b or llama-3.2-3b-instruct"),
        ("Llama_3.1_8B_instruct", "llama-3.1-8b-instruct"),
        ("mistal-7b", "mistral-7b"),
        ("tinylama", "tiny-llama or tinyllama"),
        ("tiny_llama", "tiny-llama or tinyllama"),
        ("qwen", "qwen2-0.5b or qwen2-0.5b-instruct"),
        ("nothing-like-it", None),
    ],
)
def test_names_that_are_near(name: str, near: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from tempo_llm.hub import locate

    monkeypatch.chdir(tmp_path)
    with pytest.raises(RequestError) as caught:
        locate(name)
    assert f"hint: did you mean {near}" in str(caught.value) if near else "did you mean" not in str(caught.value)
    assert "--model OWNER/NAME" in str(caught.value)


def test_a_repository_is_downloaded_to_where_it_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the package of the hub too. The same command finds the weights then."""
    from tempo_llm.hub import locate

    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    for name, repository in (("Llama-3.2-3B", "meta-llama/Llama-3.2-3B"), ("someone/some-model", "someone/some-model")):
        with pytest.raises(RequestError, match=f"hf download {repository} --local-dir checkpoints/{name}$"):
            locate(name)
        (tmp_path / "checkpoints" / name).mkdir(parents=True)
        assert locate(name) == Path("checkpoints") / name


def test_names_in_the_cache_of_hugging_face(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hub = pytest.importorskip("huggingface_hub")
    from tempo_llm.hub import locate

    monkeypatch.chdir(tmp_path)
    asked: list[tuple[str, bool]] = []

    def snapshot_download(repository: str, local_files_only: bool = False, allow_patterns: Any = None) -> str:
        asked.append((repository, local_files_only))
        if "SmolLM" in repository:
            return str(tmp_path / "snapshot")
        raise OSError("offline\nand more")

    monkeypatch.setattr(hub, "snapshot_download", snapshot_download)
    assert locate("SmolLM-135M") == tmp_path / "snapshot" and asked == [("HuggingFaceTB/SmolLM-135M", True)]
    with pytest.raises(RequestError) as caught:
        locate("llama-3.2-3b")
    text = str(caught.value)
    assert "the cache of Hugging Face, for meta-llama/Llama-3.2-3B, https://huggingface.co/meta-llama/Llama-3.2-3B" in text
    assert "the hub says: offline\n" in text
    assert "download the weights: hf download meta-llama/Llama-3.2-3B --local-dir checkpoints/llama-3.2-3b" in text
    assert asked[1:] == [("meta-llama/Llama-3.2-3B", True), ("meta-llama/Llama-3.2-3B", False)]
