"""Reading optimized HLO: instructions, what runs in a loop's body, and the sizes of results."""

from __future__ import annotations

from collections import Counter

import jax
import jax.numpy as jnp
import pytest
from jax import lax

from benchmarks.hlo import Module, Shape, parse


@pytest.fixture(scope="module")
def module() -> Module:
    def program(x, w, count):  # type: ignore[no-untyped-def]
        def body(k, state):  # type: ignore[no-untyped-def]
            h, out = state
            h = lax.fori_loop(0, 3, lambda _, h: jnp.tanh(h @ w), h)
            h = lax.cond(h.sum() > 0, lambda: h @ w, lambda: h)
            return h, out.at[k].set(h.sum() + x[k].sum())

        return lax.fori_loop(0, count, body, (jnp.zeros(4), jnp.zeros(10)))

    compiled = jax.jit(program).lower(jnp.zeros((10, 4)), jnp.zeros((4, 4)), 5).compile()
    return parse(compiled.as_text())


def test_loops_are_nested(module: Module) -> None:
    outer, inner = module.loops()
    assert outer.parents == () and inner.parents == (outer,)
    assert outer.instruction.trip_count is None
    assert outer.label.startswith("? (jit(") and inner.label.startswith("? x ")


def test_the_body_of_a_loop_runs_kernels(module: Module) -> None:
    outer, inner = module.loops()
    inside = Counter(i.opcode for i in module.operations(inner.body))
    assert inside["dot"] == 1 and inside["while"] == 0
    around = Counter(i.opcode for i in module.operations(outer.body))
    assert around["dot"] == 1, "the product stands in a branch of the condition"
    assert around["while"] == 1 and not around["parameter"] and not around["conditional"]


def test_results_have_their_bytes(module: Module) -> None:
    _, inner = module.loops()
    (dot,) = (i for i in module.operations(inner.body) if i.opcode == "dot")
    assert dot.bytes == 16 and len(dot.operands) == 2
    assert all(operand in module.computations[inner.body].by_name() for operand in dot.operands)
    fusions = [i for i in module.operations(inner.body) if i.opcode == "fusion"]
    assert any(i.opcode == "tanh" for fusion in fusions for i in module.inside(fusion))


@pytest.mark.parametrize(
    ("dtype", "sizes", "count"),
    [("f32", (2, 3), 24), ("pred", (5,), 5), ("bf16", (), 2), ("s64", (0, 2), 0), ("u8", (7,), 7), ("c64", (2,), 16)],
)
def test_sizes_of_shapes(dtype: str, sizes: tuple[int, ...], count: int) -> None:
    assert Shape(dtype, sizes).bytes == count


def test_types_of_operands_and_tuples_may_be_written_out() -> None:
    text = """HloModule m

ENTRY %main (p: (f32[2,3], s32[])) -> f32[2,3] {
  %p = (f32[2,3]{1,0}, /*index=1*/s32[]) parameter(0)
  ROOT %g = f32[2,3]{1,0} get-tuple-element((f32[2,3]{1,0}, s32[]) %p), index=0, metadata={op_name="jit(f)/x"}
}
"""
    module = parse(text)
    parameter, root = module.computations["main"].instructions
    assert parameter.bytes == 28 and parameter.operands == ()
    assert root is module.computations["main"].root and root.operands == ("p",) and root.op_name == "jit(f)/x"
    assert list(module.operations("main")) == []
