"""alg:experimentation: REINFORCE as recurrent tensors, and the effect of one index (line 13) on its schedule.

Names are as in the listing. `tempo_rl.env` gives Gymnasium's CartPole for its line 4; values are compared on an environment that
is a JAX function, which every executor can run. The paper streams learning through the simulation loop; here this happens if the
time step is not vectorized (for observations that are too large to learn from at once).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

import tempo_core as tp
from tempo_core.ir.ops import Dataflow, Op, Unary
from tests.core.programs import step_environment
from tests.core.running import Case, assert_all_same, compiled, evaluated
from tests.paper.running import index_text, inverse_of

WINDOWS = {"monte_carlo": None, "five_step": 5}
STREAMED = tp.Config(disable=("vectorize(t)",))


@dataclass
class Experiment:
    ctx: tp.Context
    bounds: dict[Any, int]
    rewards: tp.Tensor
    g: tp.Tensor
    lr: tp.Tensor
    loss: tp.Tensor
    params: dict[str, tp.Tensor]
    saved: list[int]

    def program(self, config: tp.Config = STREAMED) -> tp.Program:
        return self.ctx.compile(self.bounds, [self.loss], config)


def reinforce(window: int | None, cart_pole: bool, iterations: int = 20, steps: int = 200) -> Experiment:
    ctx, saved = tp.Context("b", "i", "t"), []
    with ctx as ((b, B), (i, I), (t, T)):
        dnn = tp.nn.Sequential(
            tp.nn.Linear(4, 8, domain=(i,), name="0"), tp.nn.Tanh(),
            tp.nn.Linear(8, 8, domain=(i,), name="1"), tp.nn.Tanh(),
            tp.nn.Linear(8, 2, domain=(i,), name="2"),
        )  # fmt: skip
        o = tp.recurrence((4,), domain=(b, i, t), name="o")
        if cart_pole:
            from tempo_rl.env import make

            env = make("CartPole-v1", (b, B), num_envs=3)
            o[b, i, 0] = env.reset(domain=(b, i))
        else:
            o[b, i, 0] = tp.random.normal((4,), domain=(b, i))
        logits = dnn(o)
        a = tp.random.categorical(logits).named("a")  # acting
        if cart_pole:
            step = env.step(a)
            o[b, i, t + 1], r = step.observation, step.reward
        else:
            o[b, i, t + 1], r = tp.udf(step_environment, o, a, outputs=[tp.spec((4,)), tp.spec()], name="step")

        rewards = r[b, i, t:T] if window is None else r[b, i, t : tp.min(t + window, T)]  # the line that differs
        g = rewards.discounted_sum(0.95).named("g")
        log_prob = (logits.log_softmax(-1) * a.one_hot(2)).sum(-1)
        l = (-log_prob * g.detach()).named("l")  # learning
        loss = l[0:B, i, 0:T].mean()
        loss.backward()
        lr = 1e-3 * 0.99**i  # decaying learning rate
        tp.optim.Adam(dnn.parameters(), lr=lr).step()
        weights = dnn.parameters()
        tp.sink(lambda *_, i: saved.append(i), *(w[(i + 1) % 5 == 0] for w in weights.values()), name="checkpoint")
    return Experiment(ctx, {B: 3, I: iterations, T: steps}, rewards, g, lr, loss, weights, saved)


def loops_over_t(text: str) -> list[tuple[str, list[str]]]:
    """Each loop over t in an iteration: its header, and the tensors that it computes, each at its point."""
    loops: list[tuple[str, list[str]]] = []
    for line in text.splitlines():
        depth = len(line) - len(line.lstrip())
        if line.startswith("  for t in"):
            loops.append((line.strip().rstrip(":"), []))
        elif loops and depth >= 4 and not line.strip().startswith("if "):
            names, bracket, point = line.strip().partition("[")
            loops[-1][1].extend(f"{name}{bracket}{point}" for name in names.split(", "))
        elif depth < 4 and loops and depth == 2:
            loops.append(("", []))
    return [(header, names) for header, names in loops if header]


def ops(program: tp.Program) -> Iterator[Op]:
    for node in program.graph:
        if isinstance(node.op, Dataflow):
            yield from (op for op, _, _ in node.op.body.instructions)
        else:
            yield node.op


@pytest.mark.parametrize(
    "name, dependence, shape, inverse",
    [
        ("monte_carlo", "[b, i, t:T]", "T - t", "[b, i, 0:t + 1]"),
        ("five_step", "[b, i, t:min(t + 5, T)]", "min(t + 5, T) - t", "[b, i, max(t - 4, 0):t + 1]"),
    ],
)
def test_returns_have_dynamic_shapes_and_known_inverses(name, dependence, shape, inverse):
    experiment = reinforce(WINDOWS[name], cart_pole=False)
    assert index_text(experiment.rewards.edge.index) == dependence
    assert [str(size) for size in experiment.rewards.shape] == [shape]
    assert index_text(inverse_of(experiment.g, experiment.rewards).index) == inverse


def test_domains_are_inferred():
    """The loss drops the steps that it reads as a whole; the learning rate has the step of its formula, parameters the network's."""
    experiment = reinforce(None, cart_pole=False)
    assert (str(experiment.g.domain), str(experiment.loss.domain), str(experiment.lr.domain)) == ("(b, i, t)", "(i)", "(i)")
    assert {str(w.domain) for w in experiment.params.values()} == {"(i)"}


@pytest.mark.parametrize("cart_pole", [True, False])
def test_monte_carlo_learns_after_the_simulation(cart_pole):
    acting, learning = loops_over_t(reinforce(None, cart_pole).program().text("program", full=True))
    assert acting[0] == "for t in 0:200" and "step[i, t]" in acting[1] and "l[i, t]" not in acting[1]
    assert learning[0] == "for t in 0:200" and "l[i, t]" in learning[1] and "step[i, t]" not in learning[1]


@pytest.mark.parametrize("cart_pole", [True, False])
def test_five_step_returns_learn_in_the_simulation_loop_after_four_steps(cart_pole):
    first, steady, last = loops_over_t(reinforce(5, cart_pole).program().text("program", full=True))
    assert first[0] == "for t in 0:4" and not any("l[i" in line for line in first[1])
    assert steady[0] == "for t in 0:196" and {"step[i, t + 4]", "l[i, t]"} <= set(steady[1])
    assert last[0] == "for t in 196:200" and "l[i, t]" in last[1] and "step[i, t]" not in last[1]


def test_only_the_last_observations_are_stored():
    """Observations and activations, which acting computes and learning reads, are kept for n steps and not for T."""

    def slots(window: int | None) -> set[int]:
        experiment = reinforce(window, cart_pole=False)
        acted = [t for t in experiment.program().plan().tensors if t.name == "o" or t.name.startswith("step")]
        return {int(np.prod(t.slots)) for t in acted}

    assert max(slots(5)) == 5 and max(slots(None)) == 200


@pytest.mark.parametrize("name", WINDOWS)
def test_the_forward_pass_of_acting_is_the_one_that_is_learned_from(name):
    """Actor-learner systems compute it twice."""
    for config in (STREAMED, tp.Config()):
        assert sum(isinstance(op, Unary) and op.fn == "tanh" for op in ops(reinforce(WINDOWS[name], False).program(config))) == 2


@pytest.mark.parametrize("name", WINDOWS)
def test_the_whole_program(name, golden):
    golden(f"paper/alg_{name}.txt", reinforce(WINDOWS[name], cart_pole=True).program().text("program", full=True))


@pytest.mark.slow
def test_checkpoints_are_saved_where_the_condition_holds():
    made = reinforce(5, cart_pole=True, iterations=11, steps=6)
    made.program(tp.Config()).run()
    assert made.saved == [4, 9]


@pytest.mark.slow
@pytest.mark.parametrize("name", WINDOWS)
def test_values(name):
    experiment = reinforce(WINDOWS[name], cart_pole=False, iterations=3, steps=7)
    case = Case(experiment.ctx, experiment.bounds, [experiment.loss, experiment.params["0.weight"]], [], tolerance=1e-4)
    right = evaluated(case)
    assert len(set(right[0].tolist())) == 3 and not np.array_equal(right[1][0], right[1][2])
    numpy_loops = tp.Config(backend="numpy", disable=("vectorize", "lift"))
    staged, interpreted = (tp.Config(), tp.Config(backend="numpy")) if WINDOWS[name] is None else (STREAMED, numpy_loops)
    for config in (staged, interpreted, tp.Config(executor="interpreted")):
        assert_all_same(compiled(case, config), right, case.tolerance)
