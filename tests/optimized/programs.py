"""The programs of the set, as users run them: recipes, commands, README's example, classics with gradients, the ledger's programs."""

from __future__ import annotations

import csv
import io
import json
import os
import sys
from collections.abc import Callable, Mapping
from contextlib import redirect_stdout
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from tests.optimized import upstream

ROOT = Path(__file__).resolve().parent.parent.parent
RECIPES = {path.stem: path.read_text(encoding="utf-8") for path in sorted((ROOT / "recipes").glob("*.yaml"))}
Results = dict[str, float | str]


@dataclass(frozen=True)
class Program:
    """`run` compiles and runs it in the current folder, under its bound. `results` makes of what it returns what is compared.

    `imports` are modules that are imported before the clock starts. `needs` is a package that may be missing.
    """

    run: Callable[[], Any]
    results: Callable[[Any], Results]
    imports: tuple[str, ...]
    needs: str | None = None


# -- recipes ------------------------------------------------------------------------------------------------------------


def recipe(name: str) -> Path:
    """Two iterations with the recipe's own sizes: on them depends what LLVM vectorizes."""
    from tempo_rl.cli import app
    from tempo_rl.recipe import load_recipe

    path = str(ROOT / "recipes" / f"{name}.yaml")
    settings = load_recipe(path)
    steps = 2 * settings.num_envs * settings.num_steps
    changes = [f"total_timesteps={steps}", "eval_episodes=1"]
    changes += [f"learning_starts={steps // 2}"] if "learning_starts:" in RECIPES[name] else []  # others take a tenth
    app(["train", path, *changes, "--no-cache", "--no-picture", "--out", "run"], standalone_mode=False)
    return Path("run")


def llm_train(name: str, *changes: str) -> Path:
    """Two updates of a recipe that trains on lessons."""
    from tempo_llm.cli import app

    short = ["updates=2", "warmup=1", "report_every=1", "text.lessons=5000", "eval_prompts=2", *changes]
    app(["train", str(ROOT / f"recipes/{name}.yaml"), *short, "--no-cache", "--out", "run"], standalone_mode=False)
    return Path("run")


def llm_goes_on(name: str) -> Path:
    """Two updates of a recipe that goes on with the model in the box."""
    from tempo_llm.cli import app

    changes = ["updates=2", "warmup=1", "report_every=1"]
    app(["train", str(ROOT / f"recipes/{name}.yaml"), *changes, "--no-cache", "--out", "run"], standalone_mode=False)
    return Path("run")


def of_metrics(run: Path) -> Results:
    """All metrics are numbers, but for those of episodes where none ended. Those of the first iteration are compared: later ones follow from
    rounding."""
    with (run / "metrics.csv").open(encoding="utf-8", newline="") as file:
        rows = [{name: float(value) for name, value in row.items()} for row in csv.DictReader(file)]
    assert len(rows) == 2, f"{len(rows)} rows of metrics"
    for row in rows:
        for name in ("episodic_return", "episodic_length") if row.get("episodes") == 0.0 else ():
            assert np.isnan(row.pop(name)), f"no episode ended, but {name} is a number"
    bad = [name for row in rows for name, value in row.items() if not np.isfinite(value)]
    assert not bad, f"not finite: {bad}"
    assert json.loads((run / "result.json").read_text(encoding="utf-8"))["compiles"] > 0, "nothing was compiled"
    return dict(rows[0])


def of_margins(run: Path) -> Results:
    """The same, without the shares of margins above 0: before the first update, margins are 0 but for rounding."""
    return {name: value for name, value in of_metrics(run).items() if "accuracy" not in name}


# -- language models ----------------------------------------------------------------------------------------------------


def printed(run: Callable[[], object]) -> str:
    text = io.StringIO()
    with redirect_stdout(text):
        run()
    return text.getvalue()


def generate() -> str:
    """README's commands."""
    from tempo_llm.cli import app

    prompts = ["--prompt", "Two geese swim. One goose", "--prompt", "12 + 30 ="]
    flags = ["--max-new-tokens", "8", "--no-cache"]
    commands = (["What is 12 + 30?", *flags], ["generate", "--raw", *prompts, *flags])
    return "".join(printed(partial(app, command, standalone_mode=False)) for command in commands)


def chat() -> str:
    """Two turns with the model in the box."""
    from tempo_llm.cli import app

    sys.stdin = io.TextIOWrapper(io.BytesIO(b"Two geese swim. One goose\nWhat is 12 + 30?\n"))
    return printed(lambda: app(["chat", "--max-new-tokens", "8", "--no-cache"], standalone_mode=False))


def as_text(text: str) -> Results:
    assert text.strip(), "nothing was printed"
    return {"printed": text}


# -- programs in the language -------------------------------------------------------------------------------------------


def readme_example() -> Mapping[str, Any]:
    from tests.test_project import block_after

    namespace: dict[str, Any] = {"__name__": "__main__"}
    code = block_after((ROOT / "README.md").read_text(encoding="utf-8"), "example")
    exec(compile(code, str(ROOT / "README.md"), "exec"), namespace)
    return {"values": namespace["values"]}


def classic(name: str) -> tuple[str, list[Any]]:
    """A classic with its gradients, at the size of the benchmarks."""
    from benchmarks.classics.table import load

    row: Any = load()[name]
    return name, row.program(**row.sizes["full"]).compile().run(row.fed("full"))


def against_the_form_by_hand(ran: tuple[str, list[Any]]) -> Results:
    from benchmarks.classics.classic import difference
    from benchmarks.classics.table import load

    name, ours = ran
    row: Any = load()[name]
    inputs = row.fed("full")
    by_hand = [np.asarray(value) for value in row.jitted(next(iter(row.by_hand)), "full")(inputs)]
    assert difference(ours, by_hand) <= row.tolerance, f"differs from the form by hand by {difference(ours, by_hand):.1e}"
    return {}


def ledger(name: str) -> Mapping[str, Any]:
    from benchmarks.ledger.programs import PROGRAMS

    program = PROGRAMS[name]()
    values = program.run({name: fed(name, spec.whole, spec.dtype) for name, spec in program.inputs.items()})
    return values if isinstance(values, Mapping) else {str(number): value for number, value in enumerate(values)}


def fed(name: str, shape: tuple[int, ...], dtype: str) -> Any:
    """Values of an input of the ledger's programs. A prompt has 60 tokens in 4 blocks, and no token ends a text."""
    if name == "prompt":
        return np.arange(np.prod(shape), dtype=dtype).reshape(shape) % 100
    if dtype != "float32":
        return np.full(shape, {"start": 60, "limit": 124}.get(name, 0), dtype)
    return 0.1 * np.random.default_rng(len(name)).standard_normal(shape, np.float32)


def means(values: Mapping[str, Any]) -> Results:
    """The mean size of each result, whose elements are all finite."""
    bad = [name for name, value in values.items() if not np.isfinite(value).all()]
    assert not bad, f"not finite: {bad}"
    return {name: float(np.abs(np.asarray(value, np.float64)).mean()) for name, value in values.items()}


# -- the table ----------------------------------------------------------------------------------------------------------

CLASSICS = (  # each recurs, or reads the past, in a way of its own
    "soft-DTW",  # over two steps: wavefronts
    "Kalman filter",  # small matrices along a step
    "Cholesky",  # over the rows and the columns of a matrix
    "LSTM",
    "MAML, second order",  # gradients of gradients
    "n-step returns",  # a window of the future
    "linear attention, the past",  # all of the past
    "prefix logsumexp",  # the past in one number
    "heat",  # neighbours
    "WaveNet training",  # dilated convolutions, layer by layer
)
LEDGER = (
    "kalman filter", "llama 1 row", "llama 4 rows", "ppo functional", "ppo host", "reinforce", "rnn gradient", "stencil",
    "window attention", "window max gradient", "stack machine", "Q table, by one-hot product", "average of products",
    "attention, a chosen length", "weather on a ring",
)  # fmt: skip
RL, LLM = ("tempo_rl.cli", "tempo_rl.train"), ("tempo_llm.cli", "tempo_llm.training.run")
EXTRAS = {"brax/": "brax", "HalfCheetah": "mujoco"}  # what the environment of a recipe needs
CORE = ("benchmarks.classics.table", "benchmarks.ledger.programs", "tests.test_project")


def table() -> dict[str, Program]:
    each: dict[str, Program] = {}
    for name, text in RECIPES.items():
        if "algorithm:" in text:
            package = next((needed for env, needed in EXTRAS.items() if f"id: {env}" in text), None)
            each[f"recipe {name}"] = Program(partial(recipe, name), of_metrics, RL, package)
    each["recipe tiny_llama"] = Program(partial(llm_train, "tiny_llama"), of_metrics, LLM)
    each["recipe tiny_llama_chat"] = Program(partial(llm_train, "tiny_llama_chat", "start=tiny-llama"), of_metrics, LLM)
    each |= {f"recipe {name}": Program(partial(llm_goes_on, name), of_metrics, LLM) for name in ("finetune", "grpo_tiny")}
    each["recipe dpo_tiny"] = Program(partial(llm_goes_on, "dpo_tiny"), of_margins, LLM)
    each["generate"] = Program(generate, as_text, LLM)
    each["chat"] = Program(chat, as_text, LLM)
    each["README's example"] = Program(readme_example, means, CORE)
    each |= {f"classic {name}": Program(partial(classic, name), against_the_form_by_hand, CORE) for name in CLASSICS}
    each["random numbers"] = Program(upstream.random_numbers, upstream.equal, CORE)
    each["point stores"] = Program(upstream.point_stores, means, CORE)
    each["shift register"] = Program(upstream.shift_register, upstream.as_shifted, CORE)
    each["second process"] = Program(upstream.second_process, upstream.as_kept, CORE)
    each |= {f"ledger {name}": Program(partial(ledger, name), means, CORE + RL) for name in LEDGER}
    return each


PROGRAMS = table()


# -- programs that must fail --------------------------------------------------------------------------------------------


def complains() -> Mapping[str, Any]:
    """Writes as XLA does: to the file descriptor, not to Python's `sys.stderr`."""
    os.write(
        2, b"E0000 00:00:1.2 3 algebraic_simplifier.cc:1] Algebraic simplifier is likely stuck in a circular simplification\n"
    )
    return {}


FAULTS = {
    "never ends": Program(lambda: sum(range(10**15)), means, ()),  # in C, and with Python's lock
    "complains": Program(complains, means, ()),
    "not finite": Program(lambda: {"x": np.float32("nan")}, means, ()),
}
