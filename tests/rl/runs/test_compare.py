"""Groups of runs, their names, and the comparison of their scores."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from tempo_rl.cli import app
from tempo_rl.compare import compare, draw, interquartile_mean, probability_of_improvement
from tempo_rl.errors import RunError
from tempo_rl.groups import groups_of, title_of
from tempo_rl.recipe import make_recipe
from tempo_rl.rundir import RunDirectory

TINY: dict[str, Any] = {"algorithm": "reinforce", "num_envs": 2, "num_steps": 4, "total_timesteps": 40, "hidden": [4]}

# The scores of 5 and 4 runs in two environments, and what rliable 1.2.0 says of them with 20,000 resamples.
X = [[0.9, 0.7, 1.0, 0.3, 0.8], [0.2, 0.5, 0.4, 0.6, 0.1]]
Y = [[0.5, 0.6, 0.4, 0.2], [0.3, 0.2, 0.4, 0.1]]
RLIABLE = {"x": (0.55, 0.36667, 0.7), "y": (0.325, 0.2, 0.45), "x, y": (0.7625, 0.5125, 0.9625)}


def run_with(path: Path, score: float | None, returns: tuple[float, ...] = (1.0, 2.0), **keys: Any) -> Path:
    """A run directory whose evaluation had this return, and with returns of training 10 steps apart."""
    run = RunDirectory(path)
    run.checkpoints.mkdir(parents=True)
    run.begin(make_recipe(TINY | keys))
    rows = [f"{k},{10 * k + 10},{value}" for k, value in enumerate(returns)]
    run.metrics.write_text("\n".join(["iteration,env_steps,episodic_return", *rows]) + "\n")
    if score is not None:
        run.write_result({"eval_return_mean": score})
    return path


def two_groups(folder: Path) -> list[Path]:
    """`X` and `Y` as runs in two environments, with the ranges 0 to 500 and 100 to 200."""
    runs = []
    for name, strata, gamma in (("x", X, 0.9), ("y", Y, 0.8)):
        for env, scores in zip(("CartPole-v1", "Acrobot-v1"), strata, strict=True):
            for seed, score in enumerate(scores):
                outward = 500 * score if env == "CartPole-v1" else 100 + 100 * score
                runs.append(run_with(folder / f"{name}{env}{seed}", outward, seed=seed, gamma=gamma, env={"id": env}))
    return runs


RANGES = {"CartPole-v1": (0.0, 500.0), "Acrobot-v1": (100.0, 200.0)}


def test_the_numbers_are_those_of_rliable(tmp_path: Path) -> None:
    compared = compare(two_groups(tmp_path), ranges=RANGES, resamples=20_000)
    assert [each.group.label for each in compared.groups] == ["gamma=0.9", "gamma=0.8"] and compared.is_scaled
    for each, name in zip(compared.groups, "xy", strict=True):
        assert each.interval is not None
        np.testing.assert_allclose((each.mean, *each.interval), RLIABLE[name], atol=0.0101)
    found = compared.improvement
    assert found is not None and found.interval is not None and (found.better, found.other) == ("gamma=0.9", "gamma=0.8")
    np.testing.assert_allclose((found.probability, *found.interval), RLIABLE["x, y"], atol=0.0126)


def test_statistics_by_hand() -> None:
    assert interquartile_mean(np.array([0.0, 1.0]), np.array([2.0, 100.0])) == 1.5
    assert interquartile_mean(np.array([1.0, 2.0, 6.0])) == 3.0  # less than a score at each end
    assert probability_of_improvement(np.array([1.0, 2.0]), np.array([1.0, 0.0])) == 3.5 / 4
    assert probability_of_improvement(np.array([1.0]), np.array([5.0]), np.array([0.0]), np.array([9.0])) == 0.5


def test_the_bootstrap_draws_from_each_environment_alone(tmp_path: Path) -> None:
    """All runs of an environment have one score, so no resample differs, although the environments do."""
    runs = [
        run_with(tmp_path / f"{env}{seed}", score, seed=seed, env={"id": env})
        for env, score in (("CartPole-v1", 250.0), ("Acrobot-v1", 100.0))
        for seed in range(3)
    ]
    (group,) = compare(runs, ranges=RANGES).groups
    assert group.mean == 0.25 and group.interval == (0.25, 0.25)


def test_environments_are_groups_where_there_is_no_range(tmp_path: Path) -> None:
    compared = compare(two_groups(tmp_path))
    labels = {each.group.label for each in compared.groups}
    assert labels == {f"on {env}, gamma={gamma}" for env in ("CartPole-v1", "Acrobot-v1") for gamma in (0.9, 0.8)}
    assert compared.improvement is None and len(compared.groups[0].scores) in (4, 5)


def test_the_score_of_training_is_that_of_the_last_tenth(tmp_path: Path) -> None:
    run = run_with(tmp_path / "run", None, returns=tuple(range(20)))
    assert compare([run], score="training").groups[0].scores == (18.5,)
    with pytest.raises(RunError, match=r"run has no evaluation at its end\n.*--score training"):
        compare([run])
    with pytest.raises(RunError, match="no episode has ended"):
        compare([run_with(tmp_path / "none", 1.0, returns=(float("nan"),))], score="training")


def test_names_say_what_differs_and_no_more(tmp_path: Path) -> None:
    runs = [
        run_with(tmp_path / "a", 1.0, env={"kwargs": {"gravity": 9.8}}, jsonl=True, wandb={"project": "mine"}),
        run_with(tmp_path / "b", 1.0, hidden=[8, 8]),
        run_with(tmp_path / "c", 1.0, algorithm="ppo"),
        run_with(tmp_path / "d", 1.0, algorithm="ppo", env={"id": "Acrobot-v1"}, gamma=0.5),
    ]
    kwargs, hidden, ppo, acrobot = groups_of(runs)
    assert kwargs.label == "reinforce on CartPole-v1, env.kwargs.gravity=9.8, hidden=[4]"
    assert hidden.label == "reinforce on CartPole-v1, env.kwargs.gravity unset, hidden=[8, 8]"
    assert (ppo.label, acrobot.label) == ("ppo on CartPole-v1", "ppo on Acrobot-v1")
    titles = [title_of(groups) for groups in ([kwargs, hidden], [ppo, acrobot], [kwargs, ppo], [kwargs, acrobot])]
    assert titles == ["reinforce on CartPole-v1", "ppo", "CartPole-v1", ""]
    assert [group.label for group in groups_of(runs[:2])] == [
        label.label.removeprefix("reinforce on CartPole-v1, ") for label in (kwargs, hidden)
    ]


def test_seeds_and_what_has_no_effect_are_one_group(tmp_path: Path) -> None:
    runs = [run_with(tmp_path / f"{k}", 1.0, seed=k, track=bool(k), keep=k + 1, eval_every=k) for k in range(3)]
    (group,) = groups_of([*runs, runs[0]])
    assert group.runs == tuple(runs) and group.seeds == (0, 1, 2) and group.label == "reinforce on CartPole-v1"
    config = RunDirectory(runs[0]).config
    text = config.read_text()
    config.write_text("\n".join(line for line in text.splitlines() if not line.startswith("swap")))  # a run from before this key
    assert len(groups_of(runs)) == 1
    config.write_text("\n".join(line for line in text.splitlines() if not line.startswith("gamma")))
    assert len(groups_of(runs)) == 1


def test_the_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name, strata, gamma in (("x", X, 0.9), ("y", Y, 0.8)):
        for seed, score in enumerate(strata[0]):
            run_with(Path(f"{name}{seed}"), score, seed=seed, gamma=gamma)
    runs = [f"x{seed}" for seed in range(5)] + [f"y{seed}" for seed in range(4)]
    command = CliRunner().invoke(app, ["compare", *runs])
    assert command.exit_code == 0, command.output
    table = [line.split() for line in command.stdout.splitlines()]
    assert table[0] == ["group", "runs", "interquartile", "mean", "95", "%", "interval"]
    assert table[1][:3] == ["gamma=0.9", "5", "0.8"] and table[2][:3] == ["gamma=0.8", "4", "0.5"]
    assert command.stdout.splitlines()[3].startswith(
        "a run of gamma=0.9 is better than one of gamma=0.8 with the probability 0.85 (95 % "
    )
    assert Path("x0/plots/comparison.png").read_bytes().startswith(b"\x89PNG")
    one = CliRunner().invoke(app, ["compare", "x0", "y0", "--out", "one.svg", "--json"])
    assert one.exit_code == 0 and "0.9: one run in CartPole-v1 gives no interval" in one.stderr
    values = json.loads(one.stdout)
    assert values["groups"][0]["low"] is None and values["improvement"]["probability"] == 1.0
    assert "<!-- reinforce on CartPole-v1 -->" in Path("one.svg").read_text()
    twice = run_with(Path("again"), 0.7, seed=1, gamma=0.9)
    assert "several runs have the seed 1" in CliRunner().invoke(app, ["compare", *runs, str(twice), "--no-picture"]).stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nowhere"], "nowhere"),
        (["run", "--score", "last"], "--score is 'last'\n  hint: write --score evaluation or --score training"),
        (["run", "--range", "CartPole-v1=0"], "write --range CartPole-v1=0:500"),
        (["run", "--range", "CartPole-v1=1:1"], "write --range CartPole-v1=0:500"),
        (["run", "--range", "Acrobot-v1=0:1"], "run is a run in CartPole-v1, which has no --range"),
        (["run", "--out", "x.txt"], "x.txt cannot be written"),
    ],
)
def test_what_cannot_be_compared(arguments: list[str], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    run_with(Path("run"), 1.0)
    command = CliRunner().invoke(app, ["compare", *arguments])
    assert command.exit_code == 1 and message in command.output and "Traceback" not in command.output


def test_no_label_of_the_picture_is_cut_off(tmp_path: Path) -> None:
    """Nothing is drawn at the edge, also with labels that are longer than the picture was wide once."""
    import matplotlib.image

    env = {"id": "CartPole-v1", "kwargs": {"sutton_barto_reward": True}}
    runs = [
        run_with(tmp_path / f"{gamma}{seed}", 100.0 + seed, seed=seed, gamma=gamma, hidden=[size] * 40, env=env)
        for gamma, size in ((0.987654321, 12), (0.912345678, 34))
        for seed in range(2)
    ]
    picture = matplotlib.image.imread(draw(compare(runs), tmp_path / "comparison.png"))
    assert picture.shape[1] > 1200
    edges = [picture[:3], picture[-3:], picture[:, :3], picture[:, -3:]]
    assert all((edge == 1.0).all() for edge in edges)
