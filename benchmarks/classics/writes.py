"""Machines, queues, tables and caches: each step writes a few elements of a large state, at positions that data decide.

By hand, each step writes first, and then reads what the next step needs: so XLA writes in place. If it reads before it writes, XLA copies
the whole state twice a step.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

import tempo_core as tp
from benchmarks.classics.classic import Array, Classic, Traced

# -- a machine with a tape --------------------------------------------------------------------------------------------------


STATES = 8


def rules(random: Any, T: int, N: int) -> dict[str, Array]:
    """A rule for each state and symbol: what is written, where the head goes, the state that follows."""
    size = 2 * STATES
    return {
        "write": random.integers(0, 2, (size,)),
        "move": random.integers(1, 4, (size,)),
        "next": random.integers(0, STATES, (size,)),
        "start": random.integers(0, 2, (N,)),
    }


def tape_machine(T: int, N: int) -> Traced:
    """The tape is a ring."""
    ctx = tp.Context("t")
    with ctx as ((t, n_t),):
        write, move, following = (tp.input(name, (2 * STATES,), "int32") for name in ("write", "move", "next"))
        tape = tp.recurrence((N,), "int32", domain=(t,), name="tape")
        place, state = (tp.recurrence((), "int32", domain=(t,), name=name) for name in ("place", "state"))
        rule = 2 * state + tape.index(0, place)
        tape[0], place[0], state[0] = tp.input("start", (N,), "int32"), 0, 0
        tape[t + 1] = tp.where(tp.arange(N) == place, write.index(0, rule), tape)
        place[t + 1] = (place + move.index(0, rule)) % N
        state[t + 1] = following.index(0, rule)
        last = tape[n_t - 1]
    return Traced(ctx, {n_t: T}, [last, place])


def tape_machine_by_hand(write: Array, move: Array, next: Array, start: Array, T: int, N: int) -> Any:
    def step(carry: Any, _: None) -> Any:
        tape, place, state, symbol = carry
        rule = 2 * state + symbol
        tape = tape.at[place].set(write[rule])
        following = (place + move[rule]) % N
        return (tape, following, next[rule], tape[following]), place

    nothing = jnp.int32(0)
    (tape, place, _, _), places = lax.scan(step, (start, nothing, nothing, start[0]), None, length=T - 1)
    return tape, jnp.concatenate([places, place[None]])


# -- a machine with a stack ---------------------------------------------------------------------------------------------------


def operations(random: Any, T: int, N: int) -> dict[str, Array]:
    """A value is pushed, or the two uppermost become one."""
    return {"pushes": random.uniform(size=(T,)) < 0.55, "value": random.normal(size=(T,))}


def stack_machine(T: int, N: int) -> Traced:
    """The last values of the stack, and the gradient of their sum by the pushed values."""
    ctx = tp.Context("t")
    with ctx as ((t, n_t),):
        asked, value = tp.input("pushes", (), "bool", domain=(t,)), tp.input("value", domain=(t,))
        stack = tp.recurrence((N,), domain=(t,), name="stack")
        height = tp.recurrence((), "int32", domain=(t,), name="height")
        pushes = tp.logical_or(tp.logical_and(asked, height < N), height < 2)
        top, below = stack.index(0, tp.maximum(height - 1, 0)), stack.index(0, tp.maximum(height - 2, 0))
        chosen = tp.where(pushes, height, height - 2).one_hot(N)
        new = tp.where(pushes, value, tp.tanh(top - 0.5 * below))
        tp.carry(stack, tp.zeros((N,)), (1.0 - chosen) * stack + chosen * new)
        tp.carry(height, 0, tp.where(pushes, height + 1, height - 1))
        last = stack[n_t - 1]
        (gradient,) = tp.grad(last.sum(), wrt=[value])
    return Traced(ctx, {n_t: T}, [last, gradient])


def stack_machine_by_hand(pushes: Array, value: Array, N: int) -> Any:
    """The gradient has a stack too: what a step wrote is read there, and what it read is added."""

    def step(carry: Any, at: Any) -> Any:
        stack, height, top, below = carry
        asked, value = at
        pushes = (asked & (height < N)) | (height < 2)
        new = jnp.where(pushes, value, jnp.tanh(top - 0.5 * below))
        stack = stack.at[jnp.where(pushes, height, height - 2)].set(new)
        after = jnp.where(pushes, height + 1, height - 1)
        return (stack, after, new, stack[jnp.maximum(after - 2, 0)]), (pushes, height, new)

    nothing = jnp.float32(0.0)
    (last, _, _, _), steps = lax.scan(step, (jnp.zeros(N), jnp.int32(0), nothing, nothing), (pushes[:-1], value[:-1]))

    def back(carry: Any, at: Any) -> Any:
        by_stack, by_new = carry
        pushes, height, new, next_place = at
        by_sum = jnp.where(pushes, 0.0, by_new * (1 - new**2))
        by_stack = by_stack.at[jnp.where(pushes, height, height - 2)].set(-0.5 * by_sum)
        by_stack = by_stack.at[jnp.maximum(height - 1, 0)].add(by_sum)
        return (by_stack, by_stack[next_place]), jnp.where(pushes, by_new, 0.0)

    was_pushed, height, _ = steps
    places = jnp.where(was_pushed, height, height - 2)
    before = jnp.concatenate([places[:1], places[:-1]])
    _, gradient = lax.scan(back, (jnp.ones(N), jnp.float32(1.0)), (*steps, before), reverse=True)
    return last, jnp.concatenate([gradient, jnp.zeros(1)])


# -- a queue in a ring ----------------------------------------------------------------------------------------------------------


def jobs(random: Any, T: int, N: int) -> dict[str, Array]:
    return {"arrives": random.uniform(size=(T,)) < 0.3, "work": random.integers(1, 7, (T,))}


def queue(T: int, N: int) -> Traced:
    """Jobs wait for one server; a job that finds N waiting is lost."""
    ctx = tp.Context("t")
    with ctx as ((t, n_t),):
        arrives, work = tp.input("arrives", (), "bool", domain=(t,)), tp.input("work", (), "int32", domain=(t,))
        waiting = tp.recurrence((N,), "int32", domain=(t,), name="waiting")
        head, tail, busy = (tp.recurrence((), "int32", domain=(t,), name=name) for name in ("head", "tail", "busy"))
        enters = tp.logical_and(arrives, tail - head < N)
        after = waiting.scatter(tp.where(enters, tail % N, N), work)
        tail_after = tp.where(enters, tail + 1, tail)
        takes = tp.logical_and(busy == 0, head < tail_after)
        tp.carry(waiting, tp.zeros((N,), "int32"), after)
        tp.carry(tail, 0, tail_after)
        tp.carry(head, 0, tp.where(takes, head + 1, head))
        tp.carry(busy, 0, tp.maximum(tp.where(takes, after.index(0, head % N), busy) - 1, 0))
        length = tail - head
    return Traced(ctx, {n_t: T}, [length, waiting[n_t - 1]])


def queue_by_hand(arrives: Array, work: Array, N: int) -> Any:
    def step(carry: Any, at: Any) -> Any:
        waiting, head, tail, busy = carry
        arrives, work = at
        length = tail - head
        enters = arrives & (length < N)
        after = waiting.at[jnp.where(enters, tail % N, N)].set(work, mode="drop")
        tail = jnp.where(enters, tail + 1, tail)
        takes = (busy == 0) & (head < tail)
        busy = jnp.maximum(jnp.where(takes, after[head % N], busy) - 1, 0)
        return (after, jnp.where(takes, head + 1, head), tail, busy), length

    nothing = jnp.int32(0)
    start = jnp.zeros(N, jnp.int32), nothing, nothing, nothing
    (waiting, head, tail, _), lengths = lax.scan(step, start, (arrives[:-1], work[:-1]))
    return jnp.concatenate([lengths, (tail - head)[None]]), waiting


# -- Q-learning with a table ------------------------------------------------------------------------------------------------------

RATE, GAMMA = 0.2, 0.9


def chain(random: Any, T: int, S: int, A: int) -> dict[str, Array]:
    return {"reward": random.normal(size=(S,)), "jump": random.integers(0, 3, (T,)), "start": 0.1 * random.normal(size=(S, A))}


def q_table(update: Any) -> Any:
    """The program in which `update(table, state, action, change)` is the table after a step."""

    def program(T: int, S: int, A: int) -> Traced:
        ctx = tp.Context("t")
        with ctx as ((t, n_t),):
            reward, jump = tp.input("reward", (S,)), tp.input("jump", (), "int32", domain=(t,))
            table = tp.recurrence((S, A), domain=(t,), name="table")
            state = tp.recurrence((), "int32", domain=(t,), name="state")
            values = table.index(0, state)
            action = values.argmax(0)
            following = (state * 7 + action * 3 + jump) % S
            target = reward.index(0, following) + GAMMA * table.index(0, following).max(0)
            error = target - values.index(0, action)
            table[0], state[0] = tp.input("start", (S, A)), 0
            table[t + 1] = update(table, state, action, RATE * error)
            state[t + 1] = following
        return Traced(ctx, {n_t: T}, [error, table[n_t - 1]])

    return program


def by_row(table: tp.Tensor, state: tp.Tensor, action: tp.Tensor, change: tp.Tensor) -> tp.Tensor:
    return table.index_add(state, change * action.one_hot(table.shape[1]))


def by_product(table: tp.Tensor, state: tp.Tensor, action: tp.Tensor, change: tp.Tensor) -> tp.Tensor:
    states, actions = (place.one_hot(size) for place, size in zip((state, action), table.shape, strict=True))
    return table + change * states.expand_dims(1) * actions


def q_table_by_hand(reward: Array, jump: Array, start: Array, S: int) -> Any:
    def step(carry: Any, jump: Array) -> Any:
        table, state, values = carry
        action = values.argmax()
        following = (state * 7 + action.astype(jnp.int32) * 3 + jump) % S
        error = reward[following] + GAMMA * table[following].max() - values[action]
        table = table.at[state, action].add(RATE * error)
        return (table, following, table[following]), error

    carry, errors = lax.scan(step, (start, jnp.int32(0), start[0]), jump[:-1])
    _, last = step(carry, jump[-1])
    return jnp.concatenate([errors, last[None]]), carry[0]


# -- vectors of words ----------------------------------------------------------------------------------------------------------------


def words(random: Any, T: int, V: int, D: int, K: int) -> dict[str, Array]:
    """A word, one beside it, and K - 1 that are not; two tables of vectors."""
    return {
        "word": random.integers(0, V, (T,)),
        "others": random.integers(0, V, (T, K)),
        "inner": random.normal(size=(V, D)) / np.sqrt(D),
        "outer": random.normal(size=(V, D)) / np.sqrt(D),
    }


def word_vectors(by_grad: bool) -> Any:
    """word2vec, one pair a step; the gradient is one of tables, or written for the rows."""

    def program(T: int, V: int, D: int, K: int) -> Traced:
        ctx = tp.Context("t")
        with ctx as ((t, n_t),):
            word, others = tp.input("word", (), "int32", domain=(t,)), tp.input("others", (K,), "int32", domain=(t,))
            inner, outer = (tp.recurrence((V, D), domain=(t,), name=name) for name in ("inner", "outer"))
            inner[0], outer[0] = tp.input("inner", (V, D)), tp.input("outer", (V, D))
            vector, beside = inner.index(0, word), outer.take(others, 0)
            is_beside = tp.arange(K) == 0
            logits = beside @ vector
            loss = tp.softplus(tp.where(is_beside, -logits, logits)).sum(0)
            if by_grad:
                by_inner, by_outer = tp.grad(loss, wrt=[inner, outer])
                inner[t + 1], outer[t + 1] = inner - RATE * by_inner, outer - RATE * by_outer
            else:
                change = tp.sigmoid(logits) - tp.where(is_beside, 1.0, 0.0)
                inner[t + 1] = inner.index_add(word, -RATE * (change @ beside))
                outer[t + 1] = outer.index_add(others, -RATE * change.expand_dims(1) * vector)
        return Traced(ctx, {n_t: T}, [loss, inner[n_t - 1]])

    return program


def word_vectors_by_hand(word: Array, others: Array, inner: Array, outer: Array) -> Any:
    is_beside = jnp.arange(others.shape[1]) == 0

    def loss_of(vector: Array, beside: Array) -> Any:
        logits = beside @ vector
        return jax.nn.softplus(jnp.where(is_beside, -logits, logits)).sum()

    def step(carry: Any, at: Any) -> Any:
        inner, outer, vector, beside = carry
        word, others, next_word, next_others = at
        loss, (by_vector, by_beside) = jax.value_and_grad(loss_of, (0, 1))(vector, beside)
        inner, outer = inner.at[word].add(-RATE * by_vector), outer.at[others].add(-RATE * by_beside)
        return (inner, outer, inner[next_word], outer[next_others]), loss

    start = inner, outer, inner[word[0]], outer[others[0]]
    (inner, _, *vectors), losses = lax.scan(step, start, (word[:-1], others[:-1], word[1:], others[1:]))
    return jnp.concatenate([losses, loss_of(*vectors)[None]]), inner


# -- a cache that drops what was used least recently ------------------------------------------------------------------------------


def requests(random: Any, T: int, C: int) -> dict[str, Array]:
    return {"request": random.geometric(1.0 / C, (T,)) - 1}


def cache(T: int, C: int) -> Traced:
    """Whether each request was in the cache, and what is in it at the end."""
    ctx = tp.Context("t")
    with ctx as ((t, n_t),):
        request = tp.input("request", (), "int32", domain=(t,))
        keys, used = (tp.recurrence((C,), "int32", domain=(t,), name=name) for name in ("keys", "used"))
        same = keys == request
        is_hit = same.any(0)
        slot = tp.where(is_hit, same.argmax(0), used.argmin(0))
        is_slot = tp.arange(C) == slot
        tp.carry(keys, tp.full((C,), -1, "int32"), tp.where(is_slot, request, keys))
        tp.carry(used, tp.full((C,), -1, "int32"), tp.where(is_slot, t, used))
        last = keys[n_t - 1]
    return Traced(ctx, {n_t: T}, [is_hit, last])


def cache_by_hand(request: Array, C: int) -> Any:
    def step(carry: Any, at: Any) -> Any:
        keys, used = carry
        t, request = at
        same = keys == request
        is_hit = same.any()
        slot = jnp.where(is_hit, same.argmax(), used.argmin())
        return (keys.at[slot].set(request), used.at[slot].set(t)), is_hit

    nothing = jnp.full((C,), -1)
    times = jnp.arange(len(request), dtype=jnp.int32)
    (keys, _), hits = lax.scan(step, (nothing, nothing), (times[:-1], request[:-1]))
    return jnp.concatenate([hits, (keys == request[-1]).any()[None]]), keys


MACHINE = {
    "tiny": {"T": 9, "N": 5},
    "small": {"T": 500, "N": 100},
    "full": {"T": 10_000, "N": 10_000},
    "long": {"T": 100_000, "N": 1000},
}
TABLE = {
    "tiny": {"T": 9, "S": 5, "A": 2},
    "small": {"T": 500, "S": 100, "A": 4},
    "full": {"T": 10_000, "S": 10_000, "A": 4},
    "long": {"T": 100_000, "S": 1000, "A": 2},
}
WORDS = {
    "tiny": {"T": 6, "V": 7, "D": 3, "K": 2},
    "small": {"T": 500, "V": 100, "D": 8, "K": 4},
    "full": {"T": 10_000, "V": 10_000, "D": 32, "K": 6},
    "long": {"T": 100_000, "V": 1000, "D": 4, "K": 4},
}
CACHE = {
    "tiny": {"T": 9, "C": 3},
    "small": {"T": 500, "C": 32},
    "full": {"T": 10_000, "C": 1000},
    "long": {"T": 100_000, "C": 64},
}
LEARNING = {"tolerance": 1e-3, "reason": "a loop of learning makes rounding errors grow"}
CLASSICS = [
    Classic("tape machine", tape_machine, {"scan": tape_machine_by_hand}, rules, MACHINE),
    Classic("stack machine", stack_machine, {"scan": stack_machine_by_hand}, operations, MACHINE),
    Classic("queue", queue, {"scan": queue_by_hand}, jobs, MACHINE),
    Classic("Q table, by row", q_table(by_row), {"scan": q_table_by_hand}, chain, TABLE, **LEARNING),
    Classic("Q table, by one-hot product", q_table(by_product), {"scan": q_table_by_hand}, chain, TABLE, **LEARNING),
    Classic("word vectors, by row", word_vectors(False), {"scan": word_vectors_by_hand}, words, WORDS, **LEARNING),
    Classic("word vectors, gradients of tables", word_vectors(True), {"scan": word_vectors_by_hand}, words, WORDS, **LEARNING),
    Classic("least-recently-used cache", cache, {"scan": cache_by_hand}, requests, CACHE),
]
