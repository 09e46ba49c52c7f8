"""Language models as recurrent programs: load a checkpoint, choose the past tokens that each token attends to, generate.

Names are imported when they are first used, so that `tempo-llm --help` does not wait for the compiler.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tempo_llm.attention import Attention, Layers
    from tempo_llm.checkpoint import load_weights
    from tempo_llm.config import LlamaConfig
    from tempo_llm.conversation import Conversation
    from tempo_llm.errors import CheckpointError, LlmError, ModelConfigError, PatternError, RequestError, TokenizerError
    from tempo_llm.generate import Completion, Generation, Generator, Piece, TokenLogprobs
    from tempo_llm.model import Model, Stream, load
    from tempo_llm.sampling import Sampling
    from tempo_llm.tokenizer import Tokenizer

_MODULES = {  # the names of each module
    "attention": ("Attention", "Layers"),
    "checkpoint": ("load_weights",),
    "config": ("LlamaConfig",),
    "conversation": ("Conversation",),
    "errors": ("CheckpointError", "LlmError", "ModelConfigError", "PatternError", "RequestError", "TokenizerError"),
    "generate": ("Completion", "Generation", "Generator", "Piece", "TokenLogprobs"),
    "model": ("Model", "Stream", "load"),
    "sampling": ("Sampling",),
    "tokenizer": ("Tokenizer",),
}
_PLACES = {name: module for module, names in _MODULES.items() for name in names}

__all__ = [
    "load",
    "Model",
    "Attention",
    "CheckpointError",
    "Completion",
    "Conversation",
    "Generation",
    "Generator",
    "Layers",
    "LlamaConfig",
    "LlmError",
    "ModelConfigError",
    "PatternError",
    "Piece",
    "RequestError",
    "Sampling",
    "Stream",
    "TokenLogprobs",
    "Tokenizer",
    "TokenizerError",
    "load_weights",
]


def __getattr__(name: str) -> object:
    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_PLACES[name]}"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
