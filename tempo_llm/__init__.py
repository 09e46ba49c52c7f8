"""Language models as recurrent programs: load a Llama checkpoint, choose the past tokens that each token attends to, generate."""

from tempo_llm.attention import Attention, Layers
from tempo_llm.checkpoint import load_weights
from tempo_llm.config import LlamaConfig
from tempo_llm.errors import CheckpointError, LlmError, ModelConfigError, PatternError, TokenizerError
from tempo_llm.generate import Completion, Generation, Generator
from tempo_llm.tokenizer import Tokenizer

__all__ = [
    "Attention",
    "CheckpointError",
    "Completion",
    "Generation",
    "Generator",
    "Layers",
    "LlamaConfig",
    "LlmError",
    "ModelConfigError",
    "PatternError",
    "Tokenizer",
    "TokenizerError",
    "load_weights",
]
