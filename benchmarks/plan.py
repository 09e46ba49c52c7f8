"""The plan of a model of 3 billion parameters, by its number of layers: the processors' seconds and the memory of `tempo-llm plan`.

    python -m benchmarks.plan [--layers 4 28] [--quick] [--out FILE]

The model has the sizes of Llama 3.2 with 3B parameters, in bfloat16. Its file is sparse: a header, and zeros that take no room on the disk. Each
plan is a process of its own, from its start to its end, with an empty cache of compiled programs; with `--full`, XLA compiles the program. The
figures are the least of all turns.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from benchmarks.common import Results, arguments, say

ROOT = Path(__file__).resolve().parent.parent
SIZES: dict[str, Any] = {
    "model_type": "llama", "vocab_size": 128256, "hidden_size": 3072, "intermediate_size": 8192, "num_attention_heads": 24,
    "num_key_value_heads": 8, "head_dim": 128, "max_position_embeddings": 8192, "tie_word_embeddings": True,
}  # fmt: skip
QUICK = {**SIZES, "vocab_size": 256, "hidden_size": 96, "intermediate_size": 128}
LAYERS = (4, 28)
PIECE = 1 << 24  # random numbers at a time


def main() -> None:
    def add(parser: argparse.ArgumentParser) -> None:
        parser.add_argument("--layers", type=int, nargs="+", default=LAYERS, help="numbers of layers [4 28]")

    options = arguments(__doc__ or "", add)
    results = Results("plan", options)
    turns = min(options.turns, 3)
    for layers in (1,) if options.quick else options.layers:
        for flags in ((), ("--full",)):
            name = f"3B, {layers} layers{''.join(f', {flag}' for flag in flags)}"
            if not results.selects(name):
                continue
            with tempfile.TemporaryDirectory() as folder:
                directory = written(Path(folder) / "model", {**(QUICK if options.quick else SIZES), "num_hidden_layers": layers})
                figures = [planned(directory, flags) for _ in range(turns)]
            least = {key: min(each[key] for each in figures) for key in figures[0]}
            results.add(name, **least)
            results.save()
            say(f"{name}: {least['cpu_seconds']:.2f} CPU s, {least['bytes'] / 1e6:.0f} MB")
    results.finish()


def written(directory: Path, values: dict[str, Any], is_random: bool = False) -> Path:
    """A checkpoint in bfloat16, whose weights are zeros that take no room on the disk, or random ones, with a tokenizer of words `w3 w4 ...`."""
    import ml_dtypes
    import numpy as np

    from tempo_llm.checkpoint import file_shapes
    from tempo_llm.config import LlamaConfig

    directory.mkdir()
    (directory / "config.json").write_text(json.dumps(values), encoding="utf-8")
    header: dict[str, Any] = {}
    end = 0
    for name, shape in file_shapes(LlamaConfig.from_directory(directory), True).items():
        start, end = end, end + 2 * _product(shape)
        header[name] = {"dtype": "BF16", "shape": list(shape), "data_offsets": [start, end]}
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with (directory / "model.safetensors").open("wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        file.truncate(8 + len(text) + end)
        random = np.random.default_rng(0)
        for name, each in header.items() if is_random else ():
            count = _product(tuple(each["shape"]))
            for first in range(0, count, PIECE):
                size = min(PIECE, count - first)
                is_norm = name.endswith("norm.weight")
                piece = np.ones(size, np.float32) if is_norm else random.standard_normal(size, np.float32) * np.float32(0.02)
                file.write(piece.astype(ml_dtypes.bfloat16).tobytes())
    if is_random:
        words = {f"w{number}": number for number in range(3, values["vocab_size"])} | {"<unk>": 0, "<s>": 1, "</s>": 2}
        model = {"type": "WordLevel", "vocab": words, "unk_token": "<unk>"}
        tokenizer = {"version": "1.0", "added_tokens": [], "pre_tokenizer": {"type": "WhitespaceSplit"}, "model": model}
        (directory / "tokenizer.json").write_text(json.dumps(tokenizer), encoding="utf-8")
    return directory


def _product(shape: tuple[int, ...]) -> int:
    size = 1
    for each in shape:
        size *= each
    return size


def planned(directory: Path, flags: tuple[str, ...]) -> dict[str, float]:
    """The processors' seconds and the greatest memory of a plan, in a process of its own."""
    command = [sys.executable, "-m", "tempo_llm", "plan", "--model", str(directory), "--dtype", "bfloat16", "--no-cache", *flags]
    with tempfile.TemporaryFile() as output:
        process = subprocess.Popen(
            command, cwd=ROOT, stdout=output, stderr=subprocess.STDOUT, env={**os.environ, "JAX_PLATFORMS": "cpu"}
        )
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        output.seek(0)
        assert process.returncode == 0, output.read().decode()
    return {"cpu_seconds": used.ru_utime + used.ru_stime, "bytes": used.ru_maxrss * 1024}


if __name__ == "__main__":
    main()
