"""The matrices of a model in the form of its weights: float32, half precision, or quantized."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

import tempo_core as tp
from tempo_core import Expr, Tensor
from tempo_llm.checkpoint import HALF, is_placeholder
from tempo_llm.products import ExpertProduct, Form, Half, Int4, Int8, Product, Row, Widened
from tempo_llm.quantized import GROUP, QUANTIZED, STORED, lengths


@dataclass(frozen=True)
class Weights:
    """The form of a model's weights: their dtype, whether the head is tied to the embedding, and how matrices are stored.

    Quantized matrices (int8, int4) are [out, in], by groups of `group` elements; the other numbers are then float32. With int4, the matrices
    that `finer` makes are int8. Matrices of half precision are [out, in] if they are `by_rows`. All others are [in, out].
    """

    dtype: str = "float32"
    tied: bool = False
    by_rows: bool = False
    group: int = GROUP

    @staticmethod
    def of(weights: Mapping[str, Any]) -> Weights:
        """The form of the weights of `checkpoint.load_weights`, for a program that only reads them."""
        head, tied = weights["head.weight"], "embedding.weight" not in weights
        dtype = str(head.dtype)
        if dtype not in STORED:
            return Weights(dtype, tied, by_rows=dtype in HALF)
        kinds = {STORED.get(str(array.dtype)) for array in weights.values()}
        group = head.shape[-1] // weights["head.scale"].shape[-1]
        return Weights("int4" if "int4" in kinds else "int8", tied, group=group)

    def arranged(self, weights: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Weights by the names of a program, as it stores them: those of half precision by rows."""
        return {
            name: self._by_rows(array) if self.by_rows and _is_matrix(name, array) else array for name, array in weights.items()
        }

    def _by_rows(self, array: np.ndarray) -> np.ndarray:
        turned = np.asarray(array).swapaxes(-1, -2)
        return turned if is_placeholder(turned) else np.ascontiguousarray(turned)

    @property
    def is_quantized(self) -> bool:
        return self.dtype in QUANTIZED

    @property
    def computed(self) -> str:
        """The dtype of hidden states, keys and values."""
        return "float32" if self.is_quantized else self.dtype

    def linear(self, n_in: int, n_out: int, domain: tuple[Expr, ...], bias: bool) -> tp.nn.Linear:
        """`x @ matrix + bias`."""
        if self.is_quantized or self.by_rows:
            return NarrowLinear(self, n_in, n_out, domain, bias)
        return tp.nn.Linear(n_in, n_out, domain, bias=bias, fed=True, dtype=self.dtype)

    def exact(self, n_in: int, n_out: int, domain: tuple[Expr, ...], bias: bool) -> tp.nn.Linear:
        """The same for a small matrix whose errors would decide much, such as a router: it is never quantized."""
        if self.is_quantized:
            return tp.nn.Linear(n_in, n_out, domain, bias=bias, fed=True)
        return self.linear(n_in, n_out, domain, bias)

    def normed(self, n_in: int, n_out: int, domain: tuple[Expr, ...], bias: bool, norm: tp.nn.RMSNorm) -> tp.nn.Linear:
        """`norm(x @ matrix + bias)`: a norm of as many elements as the norm is wide, one group after the other."""
        if self.is_quantized or self.by_rows:
            linear: NormedLinear = NormedNarrowLinear(self, n_in, n_out, domain, bias)
        else:
            linear = NormedLinear(n_in, n_out, domain, bias=bias, fed=True, dtype=self.dtype)
        linear.norm = norm
        return linear

    def stacked(self, module: tp.nn.Module[Any], name: str, count: int, n_in: int, n_out: int) -> Stacked:
        """Matrices of experts, as parameters of a module."""
        return Stacked(self, module, name, count, n_in, n_out)

    def head(self, n_in: int, n_out: int) -> tp.nn.Linear:
        """The matrix from the last hidden state to logits."""
        head = self.finer.linear(n_in, n_out, (), False)
        if isinstance(head, NarrowLinear):
            head.result = "float32"  # logits of half precision would be equal too often
        return head

    def table(self, count: int, width: int) -> Table:
        """The embedding."""
        return Table(self.finer, count, width)

    def row(self, head: tp.nn.Linear, token: Tensor) -> Tensor:
        """The row of a token in the embedding that is the head."""
        if isinstance(head, NarrowLinear):
            return self.finer.row_of(head.n_in, head.parts, token)
        return head.weight.index(1, token)

    def row_of(self, width: int, parts: list[Tensor], token: Tensor) -> Tensor:
        """The row of a token in a matrix that has its outputs as rows."""
        if self.is_quantized:
            rows = [part.index(0, token) for part in parts]
            return tp.udf(Widened(self.form(width)), *rows, outputs=[tp.spec((width,))], name="row")[0]
        if self.by_rows:
            return tp.udf(Row(), token, *parts, outputs=[tp.spec((width,), self.dtype)], name="row", cost=(width, 4 * width))[0]
        return parts[0].index(0, token)

    @property
    def finer(self) -> Weights:
        """The form of matrices whose errors go straight into hidden states and logits: values, results, head and embedding."""
        return Weights("int8", self.tied, group=self.group) if self.dtype == "int4" else self

    def form(self, n_in: int) -> Form:
        """What the arrays of a matrix stand for."""
        if self.dtype == "int8":
            return Int8(n_in)
        return Int4(n_in) if self.dtype == "int4" else Half(n_in)

    def arrays(self, n_in: int) -> dict[str, tuple[int, str]]:
        """The arrays of a matrix: the lengths of their rows, and their dtypes."""
        if self.is_quantized:
            return lengths(self.dtype, n_in, self.group)
        return {"weight": (n_in, self.dtype)}


FLOAT32 = Weights()


def _is_matrix(name: str, array: np.ndarray) -> bool:
    """Whether an array is a matrix, or a stack of them, that the program multiplies with."""
    if name.rpartition(".")[2] == "weight":
        return name == "head.weight" or (array.ndim == 3 and "." in name and not name.startswith("embedding."))
    return name.endswith(("experts.gate", "experts.up", "experts.down"))


class NarrowLinear(tp.nn.Linear):
    """`x @ matrix + bias`, with a matrix whose rows are its outputs. The product is summed in float32."""

    def __init__(self, weights: Weights, n_in: int, n_out: int, domain: tuple[Expr, ...] = (), bias: bool = False):
        tp.nn.Module.__init__(self, None, domain, fed=True)
        self.n_in, self.n_out, self.form = n_in, n_out, weights.form(n_in)
        self.result: str | None = None  # the dtype of products; None: that of x
        self.parts = []
        for name, (length, dtype) in weights.arrays(n_in).items():
            self.dtype = dtype
            self.parts.append(self.parameter(name, (n_out, length), tp.nn.zeros()))
        self.weight = self.parts[0]
        self.dtype = weights.computed
        self.bias = self.parameter("bias", (n_out,), tp.nn.zeros()) if bias else None

    def forward(self, x: Tensor) -> Tensor:
        shape: list[int | Expr] = [*x.shape[:-1], self.n_out]
        product = Product(self.form, self.result)
        (y,) = tp.udf(product, x, *self.parts, outputs=[tp.spec(shape, self.result or x.dtype)], name="product")
        return y if self.bias is None else y + self.bias


class NormedLinear(tp.nn.Linear):
    """A projection, and an RMS norm of its result: of each head, or of all heads together."""

    norm: tp.nn.RMSNorm

    def forward(self, x: Tensor) -> Tensor:
        return self.normed(self.projected(x))

    def projected(self, x: Tensor) -> Tensor:
        return super().forward(x)

    def normed(self, y: Tensor) -> Tensor:
        return self.norm(y.reshape(*y.shape[:-1], self.n_out // self.norm.width, self.norm.width)).reshape(*y.shape)


class NormedNarrowLinear(NormedLinear, NarrowLinear):
    """The same, with a matrix whose rows are its outputs."""


class Stacked:
    """The matrices of experts: x [chosen or 1, n_in] times those of the chosen experts is [chosen, n_out]."""

    def __init__(self, weights: Weights, module: tp.nn.Module[Any], name: str, count: int, n_in: int, n_out: int):
        self.n_out, self.form = n_out, weights.form(n_in)
        self.is_narrow = weights.is_quantized or weights.by_rows
        self.names = [f"{name}_matrix"]
        if not self.is_narrow:
            setattr(module, self.names[0], module.parameter(name, (count, n_in, n_out), tp.nn.zeros()))
            return
        self.names = []
        for part, (length, dtype) in weights.arrays(n_in).items():
            module.dtype = dtype
            full = name if part == "weight" else f"{name}_{part}"
            self.names.append(f"{name}_{part}_matrix")
            setattr(module, self.names[-1], module.parameter(full, (count, n_out, length), tp.nn.zeros()))
        module.dtype = weights.computed

    def __call__(self, module: tp.nn.Module[Any], x: Tensor, chosen: Tensor) -> Tensor:
        """The product, with the parameters that `module` has now."""
        parts: list[Tensor] = [getattr(module, name) for name in self.names]
        if not self.is_narrow:
            return (x.expand_dims(1) @ parts[0].index(0, chosen)).spatial[:, 0]
        (count,) = chosen.shape
        shape = (count, self.n_out)
        return tp.udf(ExpertProduct(self.form), x, chosen, *parts, outputs=[tp.spec(shape, x.dtype)], name="product")[0]


class Table(tp.nn.Module):
    """The rows of the embedding: int32 token to [hidden]."""

    def __init__(self, weights: Weights, count: int, width: int):
        super().__init__(fed=True)
        self.weights, self.width = weights, width
        for name, (length, dtype) in weights.arrays(width).items():
            self.dtype = dtype
            setattr(self, name, self.parameter(name, (count, length), tp.nn.zeros()))

    def forward(self, token: Tensor) -> Tensor:
        parts: list[Tensor] = [getattr(self, name) for name in self.weights.arrays(self.width)]
        return self.weights.row_of(self.width, parts, token)
