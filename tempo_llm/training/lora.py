"""Low-rank adapters (Hu et al., 2021, arXiv:2106.09685): the weights of a model stay, and products of two small matrices learn."""

from __future__ import annotations

import difflib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import safetensors.numpy

import tempo_core as tp
from tempo_core import Expr, Tensor
from tempo_core.runs.commands import RecipeError
from tempo_llm.checkpoint import Weight, layer_weights
from tempo_llm.config import LlamaConfig
from tempo_llm.llama import Llama
from tempo_llm.stacks import Stack, prefix
from tempo_llm.training.recipe import LoraRecipe
from tempo_llm.weights import NormedLinear

ALL = "all-linear"  # of the targets: every matrix of the layers
Arrays = Mapping[str, np.ndarray]


class Adapted(tp.nn.Module):
    """`linear(x) + x @ lora_a @ lora_b * scale`: lora_a [n_in, rank] and lora_b [rank, n_out], float32. A norm of the result comes behind."""

    def __init__(self, linear: tp.nn.Linear, rank: int, scale: float):
        super().__init__(domain=linear.domain, fed=True)
        self.linear, self.scale = linear, scale
        self.lora_a = self.parameter("lora_a", (linear.n_in, rank), tp.nn.zeros())
        self.lora_b = self.parameter("lora_b", (rank, linear.n_out), tp.nn.zeros())

    def forward(self, x: Tensor) -> Tensor:
        change = x @ self.lora_a.astype(x.dtype) @ self.lora_b.astype(x.dtype) * self.scale
        if isinstance(self.linear, NormedLinear):
            return self.linear.normed(self.linear.projected(x) + change)
        return self.linear(x) + change


@dataclass(frozen=True)
class Target:
    """A matrix that gets adapters: its name in the program, without `.weight`, and where it is in the files: in which layers, and as what."""

    name: str
    layers: range
    weight: Weight

    @property
    def source(self) -> str:
        return self.weight.source.removesuffix(".weight")

    @property
    def short(self) -> str:
        return self.source.rpartition(".")[2]


def targets_of(config: LlamaConfig, stacks: Sequence[Stack], recipe: LoraRecipe) -> list[Target]:
    """The matrices that get adapters. Raises RecipeError for a target that the model does not have."""
    matrices: list[Target] = []
    for body, repeats in ((body, stack.repeats) for stack in stacks for body in stack.bodies):
        layers = range(body.first, body.first + repeats * body.stride, body.stride)
        at = prefix(body, stacks)
        for name, weight in layer_weights(config, body.first).items():
            if len(weight.shape) == 2 and name.endswith(".weight"):
                stem = name.removesuffix(".weight")
                matrices.append(Target(f"{at}.{stem}" if at else stem, layers, weight))
    names = list(dict.fromkeys(matrix.short for matrix in matrices))
    for target in recipe.targets:
        if target not in (ALL, *names):
            near = difflib.get_close_matches(target, names, 1)
            raise RecipeError(
                f"lora.targets: the model has no matrix {target}",
                hint=f"did you mean {near[0]}?" if near else f"its matrices are {', '.join(names)}; {ALL} names them all",
            )
    return [matrix for matrix in matrices if ALL in recipe.targets or matrix.short in recipe.targets]


def with_adapters(
    model: Llama, targets: Sequence[Target], recipe: LoraRecipe, over: tuple[Expr, ...]
) -> tuple[Llama, dict[str, tp.Recurrence]]:
    """The model with adapters that an optimizer updates over the steps `over`, and these by name. They begin as the values that are fed."""
    names = {target.name for target in targets}
    for module in model.modules():
        for attribute, linear in list(vars(module).items()):
            if isinstance(linear, tp.nn.Linear) and linear.name in names and not attribute.startswith("_"):
                setattr(module, attribute, Adapted(linear, recipe.rank, recipe.alpha / recipe.rank))
    trained: dict[str, tp.Recurrence] = {}
    for name, fed in model.parameters().items():
        if name.endswith((".lora_a", ".lora_b")):
            inner = tuple(step.expr for step in fed.domain.steps)
            trained[name] = tp.recurrence(fed.shape, fed.dtype, domain=(*over, *inner), name=name)
            tp.carry(trained[name], fed, kept=inner)
    return model.using(trained), trained


def first_adapters(targets: Sequence[Target], recipe: LoraRecipe, seed: int) -> dict[str, np.ndarray]:
    """lora_a [layers, in, rank] is uniform in +-1/sqrt(in), and lora_b [layers, rank, out] zero, so that training begins with the model."""
    random = np.random.default_rng(seed)
    adapters: dict[str, np.ndarray] = {}
    for target in targets:
        n_in, n_out = target.weight.stored_shape
        bound, count = n_in**-0.5, len(target.layers)
        adapters[f"{target.name}.lora_a"] = random.uniform(-bound, bound, (count, n_in, recipe.rank)).astype(np.float32)
        adapters[f"{target.name}.lora_b"] = np.zeros((count, recipe.rank, n_out), np.float32)
    return adapters


def merged(weights: Arrays, adapters: Arrays, recipe: LoraRecipe) -> dict[str, np.ndarray]:
    """The weights of the model that computes the same without adapters, float32."""
    scale = np.float32(recipe.alpha / recipe.rank)
    result = dict(weights)
    for name in (name.removesuffix(".lora_a") for name in adapters if name.endswith(".lora_a")):
        result[f"{name}.weight"] = weights[f"{name}.weight"] + adapters[f"{name}.lora_a"] @ adapters[f"{name}.lora_b"] * scale
    return result


def adapter_files(targets: Sequence[Target], adapters: Arrays, recipe: LoraRecipe, model: str) -> dict[str, bytes]:
    """The adapters of `model` alone, as the files that the package peft reads, by name.

    Matrices that are one in the files have one adapter there, whose rank is the sum of theirs.
    """
    parts: dict[str, list[tuple[Target, int]]] = {}  # by the matrix of a file: what is in it, and the row of each
    for target in targets:
        for row, layer in enumerate(target.layers):
            parts.setdefault(f"model.layers.{layer}.{target.source}", []).append((target, row))
    tensors: dict[str, np.ndarray] = {}
    patterns: dict[str, int] = {}  # how many matrices are one in the files
    for source, group in parts.items():
        rank = recipe.rank * len(group)
        ((height, _),) = group[0][0].weight.files.values()
        up = np.zeros((height, rank), np.float32)
        for number, (target, row) in enumerate(group):
            part = target.weight.part(up[:, number * recipe.rank : (number + 1) * recipe.rank])
            part[...] = adapters[f"{target.name}.lora_b"][row].T.reshape(part.shape)
        downs = [adapters[f"{target.name}.lora_a"][row].T for target, row in group]
        tensors[f"base_model.model.{source}.lora_A.weight"] = np.ascontiguousarray(np.concatenate(downs))
        tensors[f"base_model.model.{source}.lora_B.weight"] = up
        patterns[group[0][0].short] = len(group)
    several = {name: count for name, count in patterns.items() if count > 1}
    alpha = int(recipe.alpha) if recipe.alpha == int(recipe.alpha) else recipe.alpha
    settings = {
        "peft_type": "LORA",
        "task_type": "CAUSAL_LM",
        "base_model_name_or_path": model,
        "r": recipe.rank,
        "lora_alpha": alpha,
        "lora_dropout": 0.0,
        "target_modules": sorted(patterns),
        "rank_pattern": {name: recipe.rank * count for name, count in several.items()},
        "alpha_pattern": {name: alpha * count for name, count in several.items()},
        "bias": "none",
        "fan_in_fan_out": False,
        "inference_mode": True,
        "init_lora_weights": True,
    }
    return {
        "adapter_model.safetensors": safetensors.numpy.save(tensors, metadata={"format": "pt"}),
        "adapter_config.json": (json.dumps(settings, indent=2) + "\n").encode(),
    }
