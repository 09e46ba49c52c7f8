"""Language models as recurrent programs: load a checkpoint, choose the past tokens that each token attends to, generate."""

from tempo_llm.attention import Attention, Layers
from tempo_llm.checkpoint import load_weights
from tempo_llm.config import LlamaConfig
from tempo_llm.errors import CheckpointError, LlmError, ModelConfigError, PatternError, RequestError, TokenizerError
from tempo_llm.generate import Completion, Generation, Generator, Piece, TokenLogprobs
from tempo_llm.model import Model, Stream, load
from tempo_llm.sampling import Sampling
from tempo_llm.tokenizer import Tokenizer

__all__ = [
    "load",
    "Model",
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
    "Piece",
    "RequestError",
    "Sampling",
    "Stream",
    "TokenLogprobs",
    "Tokenizer",
    "TokenizerError",
    "load_weights",
]
