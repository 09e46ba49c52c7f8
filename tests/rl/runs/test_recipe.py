"""Recipes: correct ones are accepted, wrong ones are refused with the name of the key."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from tempo_core.runs.plain import read_yaml
from tempo_core.runs.recipe import check_flags
from tempo_rl.errors import RecipeError
from tempo_rl.recipe import PPORecipe, ReinforceRecipe, dump_recipe, load_recipe, make_recipe, shipped_recipes

PPO = {"algorithm": "ppo"}


@pytest.mark.parametrize("name", sorted(shipped_recipes()))
def test_shipped_recipes_are_valid_and_survive_being_dumped(name: str) -> None:
    recipe = load_recipe(str(shipped_recipes()[name]))
    assert make_recipe(yaml.safe_load(dump_recipe(recipe))) == recipe


def test_overrides_take_dashes_dots_and_yaml_values() -> None:
    recipe = make_recipe(
        PPO,
        [
            "learning-rate=1e-3",
            "num_envs=8",
            "anneal-lr=false",
            "env.id=Acrobot-v1",
            "env.kwargs.two-part=3",
            "hidden=[32, 16]",
            "--seed=7",
        ],
    )
    assert isinstance(recipe, PPORecipe)
    assert (recipe.learning_rate, recipe.num_envs, recipe.anneal_lr, recipe.seed) == (1e-3, 8, False, 7)
    assert recipe.env.id == "Acrobot-v1"
    assert recipe.env.kwargs == {"two-part": 3}  # the environment's own spelling is kept
    assert recipe.hidden == [32, 16]


def test_texts_that_look_like_numbers_survive_being_dumped() -> None:
    kwargs = {"a": "08", "b": "1e6", "c": "010", "d": "1:30", "e": 1e6, "f": True}
    recipe = make_recipe(PPO | {"env": {"kwargs": kwargs}})
    again = read_yaml(dump_recipe(recipe), "here")
    assert isinstance(again, dict) and again["env"]["kwargs"] == kwargs and make_recipe(again) == recipe


def test_a_flag_and_an_override_must_not_contradict() -> None:
    check_flags(["seed=3", "--total-timesteps=1e3", "wandb={project: a}"], ["seed=3", "total_timesteps=1000", "wandb.project=a"])
    for override, flag, message in (
        ("seed=4", "seed=3", "the flag --seed sets seed to 3, but an override sets it to 4\n  hint: leave one of them out"),
        (
            "total-timesteps=7",
            "total_timesteps=8",
            "the flag --total-timesteps sets total_timesteps to 8, but an override sets it to 7",
        ),
        (
            "wandb={project: a}",
            "wandb.project=b",
            "the flag --wandb-project sets wandb.project to 'b', but an override sets it to 'a'",
        ),
        ("track=false", "track=true", "the flag --track sets track to true, but an override sets it to false"),
    ):
        with pytest.raises(RecipeError) as raised:
            check_flags([override], [flag])
        assert message in str(raised.value)


def test_later_overrides_win() -> None:
    assert make_recipe(PPO, ["seed=1", "seed=2"]).seed == 2


def test_algorithms_have_their_own_keys() -> None:
    assert isinstance(make_recipe({"algorithm": "reinforce", "norm_returns": False}), ReinforceRecipe)
    with pytest.raises(RecipeError, match="unknown key clip_coef"):
        make_recipe({"algorithm": "reinforce", "clip_coef": 0.2})


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("learning_rat=1", "unknown key learning_rat\n  hint: did you mean learning_rate?"),
        ("env.idd=x", "unknown key env.idd\n  hint: did you mean env.id?"),
        ("kwargs=1", "unknown key kwargs\n  hint: did you mean env.kwargs?"),
        ("gamma=1.5", "gamma is 1.5: input should be less than or equal to 1"),
        ("learning_rate=.inf", "learning_rate is inf"),
        ("num_envs=2.5", "num_envs is 2.5"),
        ("num_envs=0", "num_envs is 0"),
        ("num_minibatches=3", "num_minibatches=3 does not divide the batch of num_envs=16 x num_steps=128 = 2048"),
        ("total_timesteps=100", "total_timesteps=100 is less than one iteration"),
        ("algorithm=trpo", "algorithm is 'trpo'\n  hint: write one of ppo, actor_critic, reinforce, dqn, sac, td3"),
        ("seed", "'seed' is not an override\n  hint: write key=value"),
        ("seed.deep=1", "seed: |seed.deep|seed is"),
        ("hidden=[a", "hidden is not YAML"),
        ("executor=fast", "executor is 'fast'"),
        ("num_envs=true", "num_envs is true: it must be a number, such as num_envs=16"),
        ("learning_rate=yes", "learning_rate is true: it must be a number, such as learning_rate=0.0025"),
        ("hidden=[64, false]", "hidden is [64, False]: it must be a number, such as hidden=[64, 64]"),
        ("memory_limit=true", "memory_limit is true: it must be a number"),
        ("target_kl=false", "target_kl is false: it must be a number"),
        (
            "seed=010",
            "seed: 010 begins with 0, and would be a number in base 8; write 10; or, if it is a string, write it in quotes: '010'",
        ),
        (
            "seed=08",
            "seed: 08 begins with 0, and would be a number in base 8; write 8; or, if it is a string, write it in quotes: '08'",
        ),
        ("seed=1:30", "seed: 1:30 would be minutes and seconds; if it is a string, write it in quotes: '1:30'"),
    ],
)
def test_mistakes_name_the_key(override: str, message: str) -> None:
    with pytest.raises(RecipeError) as error:
        make_recipe(PPO, [override])
    assert any(part in str(error.value) for part in message.split("|"))


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (
            PPO | {"learning-rate": 1e-3, "learning_rate": 1e-4},
            "the key learning_rate appears twice, once with - and once with _",
        ),
        (PPO | {"wandb": {"pro-ject": "a", "pro_ject": "b"}}, "the key pro_ject appears twice"),
        (
            {"algorithm": "dqn", "total_timesteps": 640, "learning_starts": 641},
            "learning_starts=641 is more than total_timesteps=640",
        ),
        (PPO | {"seed": 2**32}, "seed is 4294967296: input should be less than or equal to 4294967295"),  # 0 for a program
        (PPO | {"env": {"kwargs": {"max_episode_steps": 0}}}, r"max_episode_steps is 0: .* at least 1"),
        (PPO | {"env": {"kwargs": {"max_episode_steps": -1}}}, r"max_episode_steps is -1: "),
        (PPO | {"env": {"kwargs": {"max_episode_steps": True}}}, r"max_episode_steps is True: "),
    ],
)
def test_mistakes_that_would_be_silent(data: Any, message: str) -> None:
    with pytest.raises(RecipeError, match=message):
        make_recipe(data)


def test_a_short_run_of_dqn_begins_to_learn() -> None:
    starts = [
        make_recipe({"algorithm": "dqn", "total_timesteps": total}).model_dump()["learning_starts"] for total in (64, 5e3, 1e4)
    ]
    assert starts == [6, 500, 1000]


def test_minibatches_of_one_cannot_be_normalised() -> None:
    small = PPO | {"num_envs": 2, "num_steps": 2, "num_minibatches": 4}
    with pytest.raises(RecipeError, match="norm_adv=true needs minibatches of 2 or more"):
        make_recipe(small)
    assert make_recipe(small, ["norm-adv=false"]).iterations == 100_000


def test_host_options_are_refused_for_functional_environments() -> None:
    with pytest.raises(RecipeError, match=r"env\.vectorization is for environments on the host"):
        make_recipe(PPO, ["env.id=phys2d/CartPole-v1", "env.vectorization=async"])


def test_iterations_are_whole() -> None:
    assert make_recipe(PPO, ["num_envs=4", "num_steps=10", "total_timesteps=119", "num_minibatches=1"]).iterations == 2


def test_unknown_recipe_names_the_nearest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(RecipeError, match=r"there is no recipe ppoo\n  hint: did you mean .*ppo\.yaml"):
        load_recipe("ppoo")


@pytest.mark.parametrize("text", ["a: [", "", "- 1\n"])
def test_files_that_hold_no_keys(tmp_path: Path, text: str) -> None:
    path = tmp_path / "broken.yaml"
    path.write_text(text)
    with pytest.raises(RecipeError, match=r"broken\.yaml"):
        load_recipe(str(path))


# -- YAML -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("text", "number"), [("1e6", 1e6), ("2.5e-3", 2.5e-3), ("-1E+2", -100.0), ("1_000", 1000), ("3", 3)])
def test_numbers(text: str, number: float) -> None:
    assert read_yaml(text, "here") == number


def test_whole_numbers_may_be_written_with_an_exponent() -> None:
    assert make_recipe(PPO, ["total_timesteps=1e6"]).total_timesteps == 1_000_000
    with pytest.raises(RecipeError, match=r"total_timesteps is 1000000\.5"):
        make_recipe(PPO, ["total_timesteps=1000000.5"])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("seed: 1\nseed: 2\n", "the key seed appears twice, in line 1 and again, in line 2$"),
        ("a: 1\nenv:\n  id: x\n\n  id: y\n", "the key id appears twice, in line 3 and again, in line 5$"),
        ("a: 1\nseed: -010\n", "write -10; or, if it is a string, write it in quotes: '-010', in line 2$"),
        ("a: &a [1]\nb: [*a, *a]\n", r"references \(\*name\) are not used in recipes, in line 2"),
        ("a: &a [*a]\n", "references .* are not used"),
        ("[" * 30 + "]" * 30, "more than 20 levels"),
        ("[" * 5000, "more than 20 levels"),
        ("a: [1", "is not YAML"),
        ("x" * 100_001, "has 100,001 characters"),
        ("a: !!python/object/apply:os.getcwd []", "could not determine a constructor"),
    ],
)
def test_what_no_recipe_has_is_one_line(text: str, message: str) -> None:
    with pytest.raises(RecipeError, match=message) as raised:
        read_yaml(text, "mine.yaml")
    assert raised.value.message.startswith("mine.yaml") and "\n" not in raised.value.message


def test_a_name_of_hundreds_of_letters_is_one_line() -> None:
    with pytest.raises(RecipeError, match=r"there is no recipe xxxx.*\.\.\.: File name too long"):
        load_recipe("x" * 300)
