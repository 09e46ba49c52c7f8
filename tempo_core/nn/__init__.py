"""Neural network modules, written as recurrent tensors: parameters are recurrences over the steps of `domain`."""

from tempo_core.nn.initializers import constant, orthogonal, uniform_fan_in
from tempo_core.nn.modules import Embedding, Lambda, Linear, Module, Relu, RMSNorm, Sequential, Tanh

__all__ = [
    "Embedding", "Lambda", "Linear", "Module", "RMSNorm", "Relu", "Sequential", "Tanh", "constant", "orthogonal", "uniform_fan_in",
]  # fmt: skip
