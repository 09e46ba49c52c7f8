"""Where a model is: a directory, a name under checkpoints/, or a repository in the cache of Hugging Face or on its hub."""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Mapping, Sequence
from importlib import resources
from pathlib import Path

from tempo_llm.errors import RequestError, shown

CHECKPOINTS = Path("checkpoints")
IN_THE_BOX = "tiny-llama"  # the model that comes with this package
REPOSITORIES: Mapping[str, str] = {  # short names
    "llama-2-7b": "meta-llama/Llama-2-7b-hf",
    "llama-3-8b": "meta-llama/Meta-Llama-3-8B",
    "llama-3.1-8b": "meta-llama/Llama-3.1-8B",
    "llama-3.1-8b-instruct": "meta-llama/Llama-3.1-8B-Instruct",
    "llama-3.2-1b": "meta-llama/Llama-3.2-1B",
    "llama-3.2-1b-instruct": "meta-llama/Llama-3.2-1B-Instruct",
    "llama-3.2-3b": "meta-llama/Llama-3.2-3B",
    "llama-3.2-3b-instruct": "meta-llama/Llama-3.2-3B-Instruct",
    "mistral-7b": "mistralai/Mistral-7B-v0.1",
    "mistral-7b-instruct": "mistralai/Mistral-7B-Instruct-v0.3",
    "qwen2-0.5b": "Qwen/Qwen2-0.5B",
    "qwen2-0.5b-instruct": "Qwen/Qwen2-0.5B-Instruct",
    "tinyllama": "TinyLlama/TinyLlama-1.1B-Chat-v1.0",
    "smollm-135m": "HuggingFaceTB/SmolLM-135M",
    "smollm-135m-instruct": "HuggingFaceTB/SmolLM-135M-Instruct",
}
FILES = ("*.json", "*.jinja", "*.safetensors", "tokenizer.model")  # what is read of a repository
_REPOSITORY = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")


def locate(model: str | Path) -> Path:
    """The directory of a model, or its GGUF file. A directory comes first, then `checkpoints/NAME`, then a model of that name that comes with this package
    (`tiny-llama`), then the repository in Hugging Face's cache or hub.

    Raises RequestError, which says where it looked, and how to get the weights.
    """
    if not isinstance(model, (str, Path)):
        raise RequestError(f"{shown(model)} is not the name of a model", hint='tempo_llm.load("path/to/a/checkpoint")')
    name = str(model)
    if not name.strip() or "\0" in name:
        raise RequestError("there is no model", hint="give a checkpoint directory with --model DIR")
    for candidate in (Path(model), CHECKPOINTS / name, shipped_checkpoints() / name):
        if os.path.isdir(candidate):  # unlike Path.is_dir, False for a name that is too long for a file
            return candidate
    if os.path.isfile(name):
        if name.lower().endswith(".gguf"):
            return Path(name)
        raise RequestError(
            f"{name} is a file, but a model is a directory, or a .gguf file",
            hint=f"give the directory: --model {Path(name).parent}",
        )
    name = name if len(name) < 200 else f"{name[:197]}..."
    looked = [f"the directory {name}", f"{CHECKPOINTS}/{name}", "the models of this package"]
    repository = REPOSITORIES.get(name.lower(), name if _REPOSITORY.fullmatch(name) else None)
    if repository is None:
        raise _missing(name, looked, f"it is not a short name either: {', '.join(REPOSITORIES)}")
    try:
        from huggingface_hub import snapshot_download
    except ImportError:
        reason = "to look in the cache and on the hub of Hugging Face: pip install huggingface_hub"
        raise _missing(name, looked, reason, repository) from None
    looked.append(f"the cache of Hugging Face, for {repository}")
    try:
        return Path(snapshot_download(repository, local_files_only=True, allow_patterns=list(FILES)))
    except Exception:  # the package has an error class for each way in which it is not there
        looked.append(f"https://huggingface.co/{repository}")
    try:
        return Path(snapshot_download(repository, allow_patterns=list(FILES)))
    except Exception as error:
        first = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise _missing(name, looked, f"the hub says: {first[:200]}", repository) from None


def shipped_checkpoints() -> Path:
    """The folder of the models that come with this package: inside of it in a wheel, beside it in a checkout."""
    package = Path(str(resources.files("tempo_llm")))
    in_wheel = package / "checkpoints"
    return in_wheel if in_wheel.is_dir() else package.parent / "checkpoints"


def _missing(name: str, looked: list[str], reason: str, repository: str | None = None) -> RequestError:
    """The error for a model that is nowhere. With a repository, the hint is the command that downloads its weights to where they are found."""
    folders = (CHECKPOINTS, shipped_checkpoints())
    models = sorted({path.parent.name for folder in folders for path in folder.glob("*/config.json")})
    here = f"; the models here are: {', '.join(models)}" if models else ""
    if repository is not None:
        hint = (
            f"give a directory, --model DIR, or download the weights: hf download {repository} --local-dir {CHECKPOINTS}/{name}"
        )
    else:
        near = _near(name, [*models, *REPOSITORIES])
        meant = f"did you mean {' or '.join(near)}? " if near else ""
        hint = f"{meant}Give a directory, --model DIR, or a repository of Hugging Face, --model OWNER/NAME"
    return RequestError(f"{name} is not a model: looked for {', '.join(looked)}{here}; {reason}", hint=hint)


def _near(name: str, names: Sequence[str]) -> list[str]:
    """The names that a misspelled one may stand for, the nearest first. Case and punctuation do not count."""
    plain = {each: re.sub(r"[^a-z0-9]", "", each.lower()) for each in names}
    wanted = re.sub(r"[^a-z0-9]", "", name.lower())
    begun = [each for each, text in plain.items() if wanted and text.startswith(wanted)]
    close = difflib.get_close_matches(wanted, [*plain.values()], 3, 0.7)
    return list(dict.fromkeys([*begun, *(each for text in close for each in plain if plain[each] == text)]))[:4]
