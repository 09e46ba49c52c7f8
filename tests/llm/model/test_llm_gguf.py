"""GGUF files: every kind of block against the package `gguf`, models against the oracle, tokenizers, and every kind of damage."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

import tempo_llm
from tempo_llm import CheckpointError, LlamaConfig, ModelConfigError, RequestError, TokenizerError, load_weights
from tempo_llm.cli import app
from tempo_llm.gguf import KINDS, GgufFile
from tempo_llm.quantized import dequantize
from tests.cases import slow
from tests.llm import models, oracle

gguf = pytest.importorskip("gguf")

IDS = [1, 17, 5, 40, 9, 77, 3, 60]
SIZES: dict[str, Any] = {
    **models.VALUES,
    "hidden_size": 256,
    "intermediate_size": 512,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "rope_theta": 5000.0,
}
NUMBERS = {kind.name: number for number, kind in KINDS.items()}
NAMES = {
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
    "model.embed_tokens": "token_embd",
    "model.norm": "output_norm",
    "lm_head": "output",
}


def random_blocks(kind: str, rows: int, width: int, seed: int = 0) -> np.ndarray:
    """The bytes of rows: every bit of the numbers and of their scales is drawn; only the float16 factors are of a usual size."""
    random = np.random.default_rng(seed)
    row = KINDS[NUMBERS[kind]]
    blocks = random.integers(0, 256, (rows, width // row.elements, row.size), dtype=np.uint8)
    size = {"Q8_0": 0.002, "Q4_0": 0.03, "Q4_K": 0.001, "Q6_K": 0.0001}[kind]
    for place in {"Q4_K": (0, 2), "Q6_K": (208,)}.get(kind, (0,)):
        factors = (size * random.uniform(0.5, 1.5, blocks.shape[:2]) * random.choice([-1, 1], blocks.shape[:2])).astype(
            np.float16
        )
        blocks[..., place : place + 2] = factors[..., None].view(np.uint8)
    return blocks.reshape(rows, -1)


def permuted(rows: np.ndarray, heads: int) -> np.ndarray:
    """Rows of queries or keys in the order of llama.cpp's files: its converter's `permute`."""
    return rows.reshape(heads, 2, len(rows) // heads // 2, *rows.shape[1:]).swapaxes(1, 2).reshape(rows.shape)


def unpermuted(rows: np.ndarray, heads: int) -> np.ndarray:
    turned = permuted(np.arange(len(rows)), heads)
    result = np.empty_like(rows)
    result[turned] = rows
    return result


def source_name(name: str) -> str:
    stem, _, kind = name.rpartition(".")
    if stem.startswith("model.layers."):
        _, _, number, inner = stem.split(".", 3)
        return f"blk.{number}.{NAMES[inner]}.{kind}"
    return f"{NAMES[stem]}.{kind}"


def write(path: Path, values: dict[str, Any], kinds: Any = "Q8_0", seed: int = 0, **metadata: Any) -> dict[str, np.ndarray]:
    """A GGUF file of a model, whose matrices are of the kind `kinds`, or `kinds(name)`. Gives what the package `gguf` reads of it, in float64, by
    Hugging Face's names."""
    kind = values["model_type"]
    writer = gguf.GGUFWriter(path, kind)
    writer.add_block_count(values["num_hidden_layers"])
    writer.add_context_length(values["max_position_embeddings"])
    writer.add_embedding_length(values["hidden_size"])
    writer.add_feed_forward_length(values["intermediate_size"])
    writer.add_head_count(values["num_attention_heads"])
    writer.add_head_count_kv(values["num_key_value_heads"])
    writer.add_layer_norm_rms_eps(values["rms_norm_eps"])
    writer.add_rope_freq_base(values["rope_theta"])
    writer.add_eos_token_id(2)
    writer.add_bos_token_id(1)
    for key, value in metadata.items():
        getattr(writer, f"add_{key}")(value)
    exact: dict[str, np.ndarray] = {}
    for number, (name, tensor) in enumerate(models.random_tensors(values, seed).items()):
        heads = {"q_proj": values["num_attention_heads"], "k_proj": values["num_key_value_heads"]}.get(name.split(".")[-2])
        chosen = (kinds(name) if callable(kinds) else kinds) if tensor.ndim == 2 else "F32"
        if KINDS[NUMBERS[chosen]].plain is None:
            blocks = random_blocks(chosen, *tensor.shape, seed=number)
            written, exact[name] = blocks, gguf.quants.dequantize(blocks, gguf.GGMLQuantizationType[chosen]).astype(np.float64)
            if heads and kind == "llama":
                exact[name] = unpermuted(exact[name], heads)
        else:
            array = (tensor * 0.3 if tensor.ndim == 2 else tensor).astype(KINDS[NUMBERS[chosen]].plain)
            exact[name] = array.astype(np.float64)
            written = permuted(array, heads) if heads and kind == "llama" else array
            if chosen == "BF16":
                written = written.view(np.uint8)
        writer.add_tensor(source_name(name), np.ascontiguousarray(written), raw_dtype=gguf.GGMLQuantizationType[chosen])
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return exact


def close_to_the_oracle(path: Path, values: dict[str, Any], exact: dict[str, np.ndarray], error: float, dtype: str | None) -> Any:
    model = tempo_llm.load(path, dtype, capacity=64)
    logits = model.logits(IDS)
    for position in (0, len(IDS) - 1):
        expected = oracle.logits(values, exact, IDS[: position + 1])
        assert np.abs(logits[position] - expected).max() <= error * np.abs(expected).max()
    return model


# -- blocks -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["Q8_0", "Q4_0", "Q4_K", "Q6_K"])
def test_blocks_are_read_as_the_package_gguf_reads_them(kind: str) -> None:
    blocks = random_blocks(kind, 6, 1024)
    expected = gguf.quants.dequantize(blocks, gguf.GGMLQuantizationType[kind])
    row = KINDS[NUMBERS[kind]]
    values = row.values(blocks) if row.values is not None else dequantize(row.groups(blocks), 1024)  # type: ignore[misc]
    np.testing.assert_allclose(values, expected, rtol=2e-6, atol=2e-6 * np.abs(expected).max())
    assert values.dtype == np.float32


def test_every_kind_is_tested() -> None:
    assert {kind.name for kind in KINDS.values() if kind.plain is None} == {"Q8_0", "Q4_0", "Q4_K", "Q6_K"}
    assert {number: kind.name for number, kind in KINDS.items()} == {
        number: gguf.GGMLQuantizationType(number).name for number in KINDS
    }
    assert {number: (kind.elements, kind.size) for number, kind in KINDS.items()} == {
        number: gguf.GGML_QUANT_SIZES[gguf.GGMLQuantizationType(number)] for number in KINDS
    }


# -- models -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "dtype", "error"),
    [
        slow(("Q8_0", "int8", 1e-4)),
        ("Q4_0", "int4", 1e-4),
        ("Q4_K", "int4", 0.05),
        ("Q6_K", "int8", 0.05),
        ("F16", "float32", 1e-4),
    ],
)
def test_a_model_keeps_the_form_of_its_blocks(tmp_path: Path, kind: str, dtype: str, error: float) -> None:
    """Q8_0 and Q4_0 are kept exactly, Q6_K and some matrices of Q4_K by the nearest int8. The embedding and the head are Q8_0 in all."""
    exact = write(tmp_path / "model.gguf", SIZES, lambda name: "Q8_0" if ".layers." not in name else kind)
    model = close_to_the_oracle(tmp_path / "model.gguf", SIZES, exact, error, None)
    assert model.generator.form.dtype == dtype
    assert model.config.eos_ids == (2,) and model.config.bos_id == 1 and model.config.max_position_embeddings == 256


@pytest.mark.parametrize("kind", ["F32", "BF16", "Q8_0", "Q4_K", "Q6_K"])
def test_floats_of_all_kinds_are_exact(tmp_path: Path, kind: str) -> None:
    exact = write(tmp_path / "model.gguf", SIZES, kind)
    close_to_the_oracle(tmp_path / "model.gguf", SIZES, exact, 1e-4, "float32")


def test_a_file_of_several_kinds_is_int8(tmp_path: Path) -> None:
    """As files named Q4_K_M are: some matrices of Q6_K. Those of four bits become int8 numbers."""
    exact = write(tmp_path / "model.gguf", SIZES, lambda name: "Q6_K" if "down" in name or "head" in name else "Q4_K")
    model = close_to_the_oracle(tmp_path / "model.gguf", SIZES, exact, 0.05, None)
    assert model.generator.form.dtype == "int8"


@pytest.mark.parametrize("name", ["qwen2", "qwen3"])
def test_other_architectures(tmp_path: Path, name: str) -> None:
    values = {**SIZES, "model_type": name, "head_dim": 64}
    exact = write(tmp_path / "model.gguf", values, key_length=64)
    model = close_to_the_oracle(tmp_path / "model.gguf", values, exact, 1e-4, None)
    assert model.config.model_type == name


def test_frequencies_of_llama_3_are_divided_by_the_files_factors(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    values = {**SIZES, "rope_scaling": models.LLAMA3_SCALING}
    plain = np.array([SIZES["rope_theta"] ** (-k / 64) for k in range(0, 64, 2)])
    factors = (plain / oracle.inverse_frequencies(values)).astype(np.float32)
    original = gguf.GGUFWriter.write_header_to_file

    def with_factors(writer: Any, *arguments: Any) -> None:
        writer.add_tensor("rope_freqs.weight", factors)
        original(writer, *arguments)

    monkeypatch.setattr(gguf.GGUFWriter, "write_header_to_file", with_factors)
    exact = write(tmp_path / "model.gguf", SIZES)
    close_to_the_oracle(tmp_path / "model.gguf", values, exact, 1e-4, None)


@pytest.mark.slow
def test_commands_take_a_file(tmp_path: Path) -> None:
    write(tmp_path / "model.gguf", SIZES, "Q4_0")
    runner = CliRunner()
    info = runner.invoke(app, ["info", "--model", str(tmp_path / "model.gguf"), "--json"])
    assert info.exit_code == 0, info.output
    facts = json.loads(info.stdout)
    assert facts["parameters"] == sum(tensor.size for tensor in models.random_tensors(SIZES).values())
    assert facts["bytes"] == (tmp_path / "model.gguf").stat().st_size and facts["tokenizer"] is False
    bench = runner.invoke(
        app, ["bench", "--model", str(tmp_path / "model.gguf"), "--max-new-tokens", "4", "--prompt-tokens", "4"]
    )
    assert bench.exit_code == 0, bench.output
    refused = runner.invoke(app, ["quantize", str(tmp_path / "model.gguf"), str(tmp_path / "out")])
    assert refused.exit_code == 1 and "is a GGUF file" in refused.output
    (tmp_path / "model.bin").write_bytes(b"GGUF")
    with pytest.raises(RequestError, match=r"model.bin is a file, but a model is a directory, or a .gguf file"):
        tempo_llm.load(tmp_path / "model.bin")


# -- tokenizers -------------------------------------------------------------------------------------------------------

TEXTS = ["a lazy dog", " two  spaces", "dogs, 12 + 345 = 357!\nnext line", "ünï ▁ 日本", ""]


def test_byte_pair_vocabularies(tmp_path: Path) -> None:
    pytest.importorskip("tokenizers")
    count = models.train_tokenizer(tmp_path)
    described = json.loads((tmp_path / "tokenizer.json").read_text())
    vocabulary = described["model"]["vocab"] | {token["content"]: token["id"] for token in described["added_tokens"]}
    tokens = sorted(vocabulary, key=vocabulary.get)  # type: ignore[arg-type]
    special = {token["content"] for token in described["added_tokens"]}
    merges = [pair if isinstance(pair, str) else " ".join(pair) for pair in described["model"]["merges"]]
    write(
        tmp_path / "model.gguf",
        {**SIZES, "vocab_size": count},
        tokenizer_model="gpt2",
        tokenizer_pre="default",
        token_list=tokens,
        token_types=[3 if token in special else 1 for token in tokens],
        token_merges=merges,
        add_bos_token=True,
        chat_template="{{ bos_token }}{{ messages[0].content }}",
    )
    ours, own = tempo_llm.Tokenizer.if_there(tmp_path / "model.gguf"), tempo_llm.Tokenizer.from_directory(tmp_path)
    assert ours is not None and ours.template is not None
    for text in TEXTS:
        assert ours.encode(text, raw=True) == own.encode(text, raw=True)
        assert ours.decode(ours.encode(text, raw=True)) == own.decode(own.encode(text, raw=True))
    assert ours.encode("dog", raw=False) == ours.encode("dog", raw=True)
    result = CliRunner().invoke(app, ["generate", "-m", str(tmp_path / "model.gguf"), "a lazy dog", "-n", "2", "--json"])
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout)["completions"][0]["prompt_token_ids"] == own.encode("a lazy dog", raw=True)


def test_sentencepiece_vocabularies(tmp_path: Path) -> None:
    pytest.importorskip("tokenizers")
    sentencepiece = pytest.importorskip("sentencepiece")
    (tmp_path / "text").write_text("\n".join(models.TEXT * 20))
    sentencepiece.SentencePieceTrainer.train(
        input=str(tmp_path / "text"), model_prefix=str(tmp_path / "tokenizer"), vocab_size=330, model_type="bpe", byte_fallback=True,
        minloglevel=2, hard_vocab_limit=False, character_coverage=1.0, normalization_rule_name="identity", remove_extra_whitespaces=False,
    )  # fmt: skip
    pieces = sentencepiece.SentencePieceProcessor(model_file=str(tmp_path / "tokenizer.model"))
    numbers = range(pieces.get_piece_size())
    kinds = [2 if pieces.is_unknown(k) else 3 if pieces.is_control(k) else 6 if pieces.is_byte(k) else 1 for k in numbers]
    write(
        tmp_path / "model.gguf",
        {**SIZES, "vocab_size": len(numbers)},
        tokenizer_model="llama",
        token_list=[pieces.id_to_piece(k) for k in numbers],
        token_scores=[pieces.get_score(k) for k in numbers],
        token_types=kinds,
    )
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"add_bos_token": True}))
    ours, own = tempo_llm.Tokenizer.if_there(tmp_path / "model.gguf"), tempo_llm.Tokenizer.from_directory(tmp_path)
    assert ours is not None
    for text in TEXTS:
        assert ours.encode(text, raw=True) == own.encode(text, raw=True), text
        assert ours.decode(ours.encode(text, raw=True)) == own.decode(own.encode(text, raw=True))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (
            {"tokenizer_model": "rwkv", "token_list": ["a"]},
            "the tokenizer 'rwkv' is not supported; the tokenizers are gpt2 and llama",
        ),
        (
            {"tokenizer_model": "gpt2", "tokenizer_pre": "other", "token_list": ["a"]},
            "texts are cut in the way 'other', which is not",
        ),
        ({"tokenizer_model": "gpt2", "token_list": ["a"]}, "its tokenizer cannot be read"),
        ({"tokenizer_model": "gpt2"}, "its tokenizer has no list of tokens"),
        ({"tokenizer_model": "llama", "token_list": ["a", "b"], "token_scores": [1.0]}, "2 tokens, but not as many scores"),
        ({"tokenizer_model": "llama", "token_list": ["a", "b"], "token_types": [1]}, "2 tokens, but 1 kinds of tokens"),
    ],
)
def test_tokenizers_that_are_refused(tmp_path: Path, settings: dict[str, Any], message: str) -> None:
    write(tmp_path / "model.gguf", SIZES, "F32", **settings)
    with pytest.raises(TokenizerError, match=message):
        tempo_llm.load(tmp_path / "model.gguf")


# -- damage -----------------------------------------------------------------------------------------------------------


def test_truncated_files_are_refused(tmp_path: Path) -> None:
    write(tmp_path / "model.gguf", SIZES, "Q4_0")
    content = (tmp_path / "model.gguf").read_bytes()
    start = min(entry.first for entry in GgufFile(tmp_path / "model.gguf").entries.values())
    for length in [*range(5, start, 97), start, start + 1000, len(content) - 40]:
        (tmp_path / "cut.gguf").write_bytes(content[:length])
        with pytest.raises(CheckpointError, match=r"cut\.gguf is damaged or truncated"):
            GgufFile(tmp_path / "cut.gguf")


def test_damaged_headers_are_errors_of_the_file(tmp_path: Path) -> None:
    """Whatever single byte of the header is wrong: the file is read, or it is an error that names it."""
    write(tmp_path / "model.gguf", {**SIZES, "num_hidden_layers": 1}, "Q4_0", token_list=["a", "b"])
    content = (tmp_path / "model.gguf").read_bytes()
    start = min(entry.first for entry in GgufFile(tmp_path / "model.gguf").entries.values())
    random = np.random.default_rng(0)
    refused = 0
    for place in random.integers(0, start, 400):
        damaged = bytearray(content[: start + 100])
        damaged[place] = int(random.integers(256))
        (tmp_path / "bad.gguf").write_bytes(bytes(damaged) + content[start + 100 :])
        try:
            LlamaConfig.from_directory(tmp_path / "bad.gguf")
        except (CheckpointError, ModelConfigError) as error:
            assert "bad.gguf" in str(error)
            refused += 1
    assert refused > 100


def header(tensors: list[tuple[str, tuple[int, ...], int]], version: int = 3, architecture: str = "llama") -> bytes:
    def text(value: str) -> bytes:
        return struct.pack("<Q", len(value)) + value.encode()

    data = b"GGUF" + struct.pack("<IQQ", version, len(tensors), 1)
    data += text("general.architecture") + struct.pack("<I", 8) + text(architecture)
    for name, shape, kind in tensors:
        data += text(name) + struct.pack(f"<I{len(shape)}QIQ", len(shape), *shape, kind, 0)
    return data + bytes(4096)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"PK\3\4 and more", "is not a GGUF file: it does not begin with GGUF"),
        (b"", "model.gguf cannot be read"),
        (header([], version=1), "has version 1 of GGUF; versions 2 and 3 are read"),
        (
            header([("token_embd.weight", (256, 8), 11)]),
            "'token_embd.weight' is of the kind Q3_K, which is not supported; the kinds are F32, F16",
        ),
        (header([("token_embd.weight", (256, 8), 999)]), "'token_embd.weight' is of the kind 999, which is not supported"),
        (header([("token_embd.weight", (40, 2), 8)]), r"has the shape \[2, 40\], but blocks of 32 elements"),
        (header([("token_embd.weight", (1 << 40, 1 << 20), 0)]), "ends at byte"),
        (
            header([], architecture="mamba"),
            "the architecture 'mamba' is not supported in GGUF files; these are: llama, qwen2, qwen3",
        ),
        (header([]), "has no tensor token_embd.weight"),
        (
            header([("token_embd.weight", (8, 8), 0)]),
            "lacks hidden_size, intermediate_size, num_hidden_layers, num_attention_heads",
        ),
    ],
)
def test_files_that_are_refused(tmp_path: Path, content: bytes, message: str) -> None:
    (tmp_path / "model.gguf").write_bytes(content)
    with pytest.raises((CheckpointError, ModelConfigError), match=message):
        tempo_llm.load(tmp_path / "model.gguf")


def test_tensors_that_do_not_fit_are_listed(tmp_path: Path) -> None:
    write(tmp_path / "model.gguf", {**SIZES, "num_hidden_layers": 3}, "Q8_0")
    described = LlamaConfig.from_values({**SIZES, "num_hidden_layers": 2})
    with pytest.raises(CheckpointError, match=r"9 unused: model.layers.2.input_layernorm.weight"):
        load_weights(tmp_path / "model.gguf", described)
