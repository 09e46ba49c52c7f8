"""Damaged models, from a seed: each must be one clear error, or work. `python -m benchmarks.faults llm [--count 1000] [--seed 0]`.

A tiny model is written once. Each case takes a copy of its files, damages one of them (weights, configuration, shards, tokenizer, chat
template), or asks for something hostile, and loads it, scores a few tokens, and encodes a prompt, in this process. An exception other than
those of `tempo_llm` and `tempo_core`, a message of more than two lines and a list, or a case of more than a minute is a fault.
"""

from __future__ import annotations

import argparse
import json
import random
import shutil
import struct
import tempfile
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

VALUES: dict[str, Any] = {
    "model_type": "llama",
    "vocab_size": 300,
    "hidden_size": 8,
    "intermediate_size": 12,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "max_position_embeddings": 64,
    "rms_norm_eps": 1e-5,
    "rope_theta": 10000.0,
    "hidden_act": "silu",
    "bos_token_id": 1,
    "eos_token_id": 2,
    "tie_word_embeddings": False,
}
WRONG: list[Any] = [
    None, True, -1, 0, 1, 2.5, 10**9, 10**30, 1e308, -1e308, float("nan"), float("inf"), "", "x", "\0", "a" * 10000, [], [1], [None] * 50, {},
    {"a": {}}, {"rope_type": "yarn"}, {"rope_type": ["llama3"], "factor": {}}, {"rope_type": "linear", "factor": -1},
    {"rope_type": "llama3", "factor": 8, "low_freq_factor": 4, "high_freq_factor": 1, "original_max_position_embeddings": 1},
    {"rope_type": "yarn", "factor": 1e300, "original_max_position_embeddings": 1},
]  # fmt: skip
KEYS = [*VALUES, "head_dim", "rope_scaling", "rope_parameters", "sliding_window", "layer_types", "attention_bias", "mlp_bias", "quantization_config",
        "partial_rotary_factor", "use_sliding_window", "max_window_layers"]  # fmt: skip
TEMPLATES = [
    "{{ raise_exception('no') }}", "{% if %}", "{{ 1 // 0 }}", "{{ messages[7].content }}", "{{ messages[0].content.x.y }}",
    "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", "{{ 'a' * 99999999999 }}", "{{ ''.__class__.__mro__ }}", "{% include 'x' %}",
    "{{ messages | tojson }}", "{{ strftime_now(5) }}", "{{ range(10**9) | list }}", "{{ bos_token.nothing() }}", "{{ messages }}", "\ue000", "\0",
    "{{ raise_exception(messages) }}", "{{ cycler }}", "{{ self }}", "{{ namespace }}", "{% for m in 5 %}{% endfor %}",
]  # fmt: skip
ENDLESS = "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}"
LIMIT = 60  # seconds of a case


@dataclass(frozen=True)
class Fault:
    """A case that was neither an error in a line nor a success."""

    number: int
    kind: str
    what: str


def write_model(directory: Path, seed: int) -> None:
    """A tiny model with a tokenizer and a chat template."""
    from tempo_llm.checkpoint import EMBEDDING, FINAL_NORM, HEAD, layer_weights
    from tempo_llm.config import LlamaConfig

    config, source = LlamaConfig.from_values(VALUES), np.random.default_rng(seed)
    shapes = {EMBEDDING: (300, 8), HEAD: (300, 8), FINAL_NORM: (8,)}
    shapes |= {f"model.layers.0.{weight.source}": weight.shape for weight in layer_weights(config).values()}
    from safetensors.numpy import save_file

    save_file(
        {name: source.normal(0, 0.3, shape).astype("float32") for name, shape in shapes.items()}, directory / "model.safetensors"
    )
    (directory / "config.json").write_text(json.dumps(VALUES))
    settings = {"bos_token": "<s>", "chat_template": "{{ bos_token }}{{ messages[0].content }}"}
    (directory / "tokenizer_config.json").write_text(json.dumps(settings))
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers

    vocabulary = {"<unk>": 0, "<s>": 1, "</s>": 2}
    vocabulary |= {letter: 3 + number for number, letter in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))}
    tokenizer = Tokenizer(models.BPE(vocabulary, []))
    tokenizer.pre_tokenizer, tokenizer.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    tokenizer.add_special_tokens(["<unk>", "<s>", "</s>"])
    tokenizer.save(str(directory / "tokenizer.json"))


# -- ways to damage a model ---------------------------------------------------------------------------------------------


def configuration(directory: Path, source: random.Random) -> str:
    values = dict(VALUES)
    keys = source.sample(KEYS, source.choice((1, 1, 1, 2, 3)))
    for key in keys:
        if source.random() < 0.15:
            values.pop(key, None)
        else:
            values[key] = source.choice(WRONG)
    if source.random() < 0.2:
        values["model_type"] = source.choice(("mistral", "qwen2"))
    (directory / "config.json").write_text(json.dumps(values))
    return f"config.json: { ({key: values.get(key, 'absent') for key in keys})!r:.150}"


def file_bytes(directory: Path, source: random.Random) -> str:
    path = source.choice(sorted(directory.iterdir()))
    data = bytearray(path.read_bytes())
    how = source.choice(("cut", "flip", "insert", "empty", "not UTF-8", "directory", "zeros"))
    if how == "cut":
        data = data[: source.randrange(len(data))]
    elif how == "flip":
        for _ in range(source.choice((1, 3, 20))):
            data[source.randrange(min(len(data), 2000))] ^= 1 << source.randrange(8)
    elif how == "insert":
        data[source.randrange(len(data)) :] += bytes(source.randrange(256) for _ in range(9))
    elif how == "zeros":
        data[: len(data) // 2] = bytes(len(data) // 2)
    else:
        data = bytearray(b"" if how == "empty" else b"\xff\xfe\x80" + bytes(data[:50]))
    if how == "directory":
        path.unlink()
        path.mkdir()
    else:
        path.write_bytes(data)
    return f"{path.name}: {how}"


def numbers(directory: Path, source: random.Random) -> str:
    """NaN, infinite or enormous weights; a header that lies."""
    path = directory / "model.safetensors"
    data = bytearray(path.read_bytes())
    size = struct.unpack("<Q", data[:8])[0]
    how = source.choice(("nan", "inf", "large", "header"))
    if how == "header":
        header = json.loads(data[8 : 8 + size])
        entry = header[source.choice(sorted(set(header) - {"__metadata__"}))]
        entry[source.choice(sorted(entry))] = source.choice([*WRONG, "F8_E4M3", "I64", [-1, 5], [10**18, 10**18]])
        try:
            text = json.dumps(header).encode()
        except ValueError:
            text = b"{}"
        data = bytearray(struct.pack("<Q", len(text)) + text + data[8 + size :])
    else:
        value = {"nan": float("nan"), "inf": float("-inf"), "large": 3e38}[how]
        for _ in range(source.choice((1, 500))):
            place = 8 + size + 4 * source.randrange((len(data) - 8 - size) // 4)
            data[place : place + 4] = struct.pack("<f", value)
    path.write_bytes(data)
    return f"weights: {how}"


def shards(directory: Path, source: random.Random) -> str:
    from safetensors import safe_open

    with safe_open(directory / "model.safetensors", "numpy") as file:
        names = list(file.keys())
    (directory / "model.safetensors").rename(directory / "part.safetensors")
    index: Any = {"weight_map": dict.fromkeys(names, "part.safetensors")}
    wrong = source.choice(["../part.safetensors", "/etc/passwd", "absent.safetensors", "", "\0", ".", "x" * 5000, *WRONG])
    how = source.choice(("one", "whole", "map", "top"))
    if how == "one":
        index["weight_map"][source.choice(names)] = wrong
    elif how == "whole":
        index = wrong
    elif how == "map":
        index["weight_map"] = wrong
    else:
        index["weight_map"][str(wrong)[:50]] = "part.safetensors"
    (directory / "model.safetensors.index.json").write_text(json.dumps(index))
    return f"shards: {how} {wrong!r:.60}"


def template(directory: Path, source: random.Random) -> str:
    text: Any = ENDLESS if source.random() < 0.01 else source.choice([*TEMPLATES, *WRONG])
    settings = {"bos_token": source.choice(["<s>", {"content": "<s>"}, *WRONG]), "chat_template": text}
    if source.random() < 0.3 and isinstance(text, str):
        (directory / "chat_template.jinja").write_text(text, encoding="utf-8")
    (directory / "tokenizer_config.json").write_text(json.dumps(settings))
    return f"template: {settings!r:.120}"


def tokenizer(directory: Path, source: random.Random) -> str:
    path = directory / "tokenizer.json"
    values = json.loads(path.read_text())
    place: Any = values
    keys: list[str] = []
    while isinstance(place, dict) and place and (not keys or source.random() < 0.6):
        keys.append(source.choice(sorted(place)))
        if not isinstance(place[keys[-1]], dict) or source.random() < 0.4:
            break
        place = place[keys[-1]]
    place[keys[-1]] = source.choice(WRONG)
    path.write_text(json.dumps(values))
    return f"tokenizer.json: {'.'.join(keys)}"


def request(directory: Path, source: random.Random) -> str:
    """A model that is right, of which something hostile is asked."""
    kinds: list[tuple[str, Any]] = [("prompts", wrong) for wrong in WRONG]
    kinds += [
        ("prompts", ["\udce9", "\ue000", "</s>" * 50, "\0"]),
        ("attention", "0-:window=0"),
        ("attention", "window=" + "9" * 50),
    ]
    kinds += [
        (key, wrong)
        for wrong in WRONG
        for key in ("max_new_tokens", "seed", "stop", "samples", "logprobs", "temperature", "capacity")
    ]
    key, value = source.choice(kinds)
    (directory / "request.json").write_text(json.dumps({key: value}, default=str))
    return f"request: {key}={value!r:.60}"


DAMAGES: dict[str, tuple[Callable[[Path, random.Random], str], int]] = {  # with how often each comes
    "configuration": (configuration, 40),
    "bytes": (file_bytes, 20),
    "numbers": (numbers, 10),
    "shards": (shards, 8),
    "template": (template, 8),
    "tokenizer": (tokenizer, 8),
    "request": (request, 6),
}


# -- one case -----------------------------------------------------------------------------------------------------------


def use(directory: Path) -> None:
    """What a user does with a model. Raises what it raises."""
    import tempo_llm

    asked: dict[str, Any] = {}
    if (directory / "request.json").is_file():
        asked = json.loads((directory / "request.json").read_text())
    model = tempo_llm.load(
        directory, attention=asked.pop("attention", None), capacity=asked.pop("capacity", None), backend="numpy"
    )
    prompt = model.tokenizer.encode("a dog </s>", raw=model.tokenizer.template is None)
    model.tokenizer.decode(prompt)
    if not asked:
        asked = {"prompts": [prompt[:8] or [1]]}
    model.generate(**{"prompts": [[1, 2]], "max_new_tokens": 2, **asked})


def run_case(number: int, seed: int, model: Path) -> tuple[str, Fault | None]:
    """How a case ended ("works", or the class of its error), and the fault if it is one."""
    from tempo_core.errors import TempoError
    from tempo_llm.errors import LlmError

    source = random.Random(f"{seed}/{number}")
    kind = source.choices(list(DAMAGES), [weight for _, weight in DAMAGES.values()])[0]
    with tempfile.TemporaryDirectory() as folder:
        directory = Path(folder) / "model"
        shutil.copytree(model, directory)
        what = DAMAGES[kind][0](directory, source)
        begun = time.monotonic()
        try:
            use(directory)
            ended, fault = "works", None
        except (LlmError, TempoError) as error:
            ended, text = type(error).__name__, str(error)
            fault = None
            if len(text) > 4000 or not text.strip():
                fault = Fault(number, kind, f"{what}: a message of {len(text)} characters")
        except BaseException:
            ended, fault = "fault", Fault(number, kind, f"{what}:\n{traceback.format_exc()}")
        if time.monotonic() - begun > LIMIT:
            fault = Fault(number, kind, f"{what}: took {time.monotonic() - begun:.0f} seconds")
    return ended, fault


def run(count: int, seed: int, first: int = 0) -> tuple[dict[str, int], list[Fault]]:
    """Cases `first` to `first + count`: how many ended how, and the faults."""
    endings: dict[str, int] = {}
    faults: list[Fault] = []
    with tempfile.TemporaryDirectory() as folder:
        write_model(Path(folder), seed)
        for number in range(first, first + count):
            ended, fault = run_case(number, seed, Path(folder))
            endings[ended] = endings.get(ended, 0) + 1
            if fault is not None:
                faults.append(fault)
                print(f"case {fault.number}, {fault.kind}: {fault.what}", flush=True)
    return endings, faults


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(
        "benchmarks.faults llm", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--first", type=int, default=0, help="the number of the first case")
    options = parser.parse_args(arguments)
    endings, faults = run(options.count, options.seed, options.first)
    print(
        f"{options.count} cases: " + ", ".join(f"{n} {ended}" for ended, n in sorted(endings.items())) + f"; {len(faults)} faults"
    )
    return 1 if faults else 0
