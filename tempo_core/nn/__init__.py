"""Neural network modules, written as recurrent tensors: parameters are recurrences over the steps of `domain`."""
# ruff: noqa: F403, F405

from tempo_core.nn.attention import GroupedQueryAttention, MultiHeadAttention
from tempo_core.nn.containers import Gelu, Lambda, Relu, Sequential, Sigmoid, Silu, Softplus, Tanh
from tempo_core.nn.conv import Conv1d, Conv2d
from tempo_core.nn.initializers import *
from tempo_core.nn.linear import Embedding, Linear, SwiGLU
from tempo_core.nn.module import Module
from tempo_core.nn.norm import Dropout, LayerNorm, RMSNorm
from tempo_core.nn.patterns import Pattern, block, causal, dilated, full, sinks, window
from tempo_core.nn.recurrent import Cell, GRUCell, LSTMCell
from tempo_core.nn.rope import ROPE_TYPES, RoPE, RopeScaling, inverse_frequencies
from tempo_core.nn.ssm import DiagonalSSM

__all__ = [
    "Cell", "Conv1d", "Conv2d", "DiagonalSSM", "Dropout", "Embedding", "GRUCell", "Gelu", "GroupedQueryAttention", "Initializer", "LSTMCell", "Lambda",
    "LayerNorm", "Linear", "Module", "MultiHeadAttention", "Pattern", "RMSNorm", "ROPE_TYPES", "Relu", "RoPE", "RopeScaling",
    "Sequential", "Sigmoid", "Silu", "Softplus", "SwiGLU", "Tanh", "block", "causal", "constant", "dilated", "full", "glorot_normal",
    "glorot_uniform", "he_normal", "he_uniform", "inverse_frequencies", "kaiming_normal", "kaiming_uniform", "normal", "ones",
    "orthogonal", "sinks", "uniform", "uniform_fan_in", "window", "xavier_normal", "xavier_uniform", "zeros",
]  # fmt: skip
