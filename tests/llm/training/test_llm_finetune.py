"""Going on with a model: examples and what counts of them, adapters, updates against an oracle, memory, and the model that is written."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file
from typer.testing import CliRunner

from tempo_core.runs.commands import RecipeError, RunError
from tempo_llm.checkpoint import load_weights
from tempo_llm.cli import app
from tempo_llm.config import LlamaConfig
from tempo_llm.errors import LlmError
from tempo_llm.tokenizer import Tokenizer
from tempo_llm.training import run as training
from tempo_llm.training.examples import Example, encode_lines, read_lines, rows_of
from tempo_llm.training.finetune import Finetuning
from tempo_llm.training.recipe import FinetuneRecipe, load_recipe, make_recipe
from tempo_llm.training.rundir import RunFiles, chosen_run
from tests.cases import slow
from tests.llm import models, oracle
from tests.llm.model import test_llm_families as families
from tests.llm.training.steps import trained_by_jax

pytest.importorskip("tokenizers")

TEMPLATE = (
    "{% for m in messages %}{% if m.role == 'system' %}{{ raise_exception('no system prompt') }}{% elif m.role == 'user' %}"
    "<user>{{ m.content }}{% else %}<answer>{{ m.content }}</s>\n{% endif %}{% endfor %}{% if add_generation_prompt %}<answer>{% endif %}"
)
LINES: Sequence[dict[str, Any]] = [
    *({"prompt": f"the fox {word}", "completion": f" and the dog {word}"} for word in ("runs", "sleeps", "jumps", "barks")),
    {"text": "a lazy dog sleeps all day long and the quick fox jumps over it"},
    {"messages": [{"role": "user", "content": "who?"}, {"role": "assistant", "content": "a fox"}]},
]
FAMILIES: dict[str, dict[str, Any]] = {  # what differs from the rows of `test_llm_families`
    "phi3": {"rope_scaling": None},  # whose frequencies differ with the length of a text
    "gemma3_text": {"num_hidden_layers": 3, "sliding_window_pattern": 2},
    "olmo3": {"num_hidden_layers": 4},
}
NUMPY: dict[str, Any] = {"backend": "numpy"}  # which compiles nothing


@pytest.fixture(autouse=True, scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Equal programs go through the passes once."""
    NUMPY["cache"] = str(tmp_path_factory.mktemp("cache"))


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model with a tokenizer and a chat template."""
    directory = models.whole_model(tmp_path_factory.mktemp("models") / "model", hidden_size=16, intermediate_size=24)[0]
    (directory / "chat_template.jinja").write_text(TEMPLATE)
    return directory


@pytest.fixture(scope="module")
def tokenizer(model: Path) -> Tokenizer:
    return Tokenizer.from_directory(model)


def write_lines(path: Path, lines: Sequence[object]) -> Path:
    path.write_text("".join(f"{line if isinstance(line, str) else json.dumps(line)}\n" for line in lines), encoding="utf-8")
    return path


def recipe_of(model: Path, folder: Path, *overrides: str, lines: Sequence[object] = LINES) -> FinetuneRecipe:
    data = write_lines(folder / "data.jsonl", lines)
    recipe = make_recipe(
        {
            "model": str(model), "data": str(data), "held_out": 0.4, "updates": 4, "report_every": 2, "warmup": 1, "length": 12,
            "batch_size": 4, "learning_rate": 0.01,
        },
        overrides,
    )  # fmt: skip
    assert isinstance(recipe, FinetuneRecipe)
    return recipe


def trained(recipe: FinetuneRecipe, path: Path, **arguments: Any) -> training.Outcome:
    return training.train(recipe, RunFiles(path), say=arguments.pop("say", lambda text: None), **{**NUMPY, **arguments})


# -- examples ---------------------------------------------------------------------------------------------------------


def encoded(tokenizer: Tokenizer, folder: Path, *lines: object) -> list[list[Example]]:
    return encode_lines(read_lines(write_lines(folder / "data.jsonl", lines)), tokenizer, (2,))


def learned(tokenizer: Tokenizer, example: Example) -> tuple[str, str]:
    """The texts of the tokens that do not count, and of those that do, with their special tokens."""
    names = {1: "<s>", 2: "</s>", 3: "<user>", 4: "<answer>"}

    def text(flag: bool) -> str:
        tokens = [token for token, counted in zip(example.tokens, example.counted, strict=True) if counted is flag]
        return "".join(names.get(token) or tokenizer.decode([token]) for token in tokens)

    return text(False), text(True)


def test_what_counts_of_an_example(tokenizer: Tokenizer, tmp_path: Path) -> None:
    spoken = [("user", "who?"), ("assistant", "a fox"), ("user", "and?"), ("assistant", "a dog ")]
    messages = [{"role": role, "content": content} for role, content in spoken]
    examples = encoded(
        tokenizer, tmp_path, {"text": "a fox", "id": 7}, {"prompt": "the fox", "completion": " runs"}, {"messages": messages}
    )
    assert [len(each) for each in examples] == [1, 1, 1]
    text, completion, chat = (each[0] for each in examples)
    assert learned(tokenizer, text) == ("", "<s>a fox</s>")
    assert learned(tokenizer, completion) == ("<s>the fox", " runs</s>")
    assert learned(tokenizer, chat) == ("<user>who?<answer>\n<user>and?<answer>", "a fox</s>a dog </s>")
    prompt = tokenizer.encode("who?", raw=False)
    assert chat.tokens[: len(prompt)] == prompt and not any(chat.counted[: len(prompt)])  # as the model is asked


def test_special_tokens_in_data_are_text(tokenizer: Tokenizer, tmp_path: Path) -> None:
    messages = [{"role": "user", "content": "<answer>"}, {"role": "assistant", "content": "</s> no"}]
    examples = encoded(tokenizer, tmp_path, {"prompt": "a", "completion": " </s> b"}, {"messages": messages})
    assert [each[0].tokens.count(2) for each in examples] == [1, 1] and examples[1][0].tokens.count(4) == 1


def test_a_template_that_writes_earlier_answers_in_another_way_gives_an_example_for_each_answer(
    model: Path, tmp_path: Path
) -> None:
    for name in ("tokenizer.json", "config.json"):
        (tmp_path / name).write_bytes((model / name).read_bytes())
    (tmp_path / "chat_template.jinja").write_text(
        "{% for m in messages %}{% if m.role == 'user' %}<user>{{ m.content }}{% elif loop.last %}<answer>{{ m.content }}</s>"
        "{% endif %}{% endfor %}{% if add_generation_prompt %}<answer>{% endif %}"
    )
    tokenizer = Tokenizer.from_directory(tmp_path)
    spoken = [("user", "who?"), ("assistant", "a fox"), ("user", "and?"), ("assistant", "a dog")]
    examples = encoded(tokenizer, tmp_path, {"messages": [{"role": role, "content": content} for role, content in spoken]})[0]
    assert [learned(tokenizer, each) for each in examples] == [
        ("<user>who?<answer>", "a fox</s>"),
        ("<user>who?<user>and?<answer>", "a dog</s>"),
    ]


def test_rows_are_as_wide_as_the_longest_example(capsys: pytest.CaptureFixture[str]) -> None:
    answer = Example([5, 6, 7, 8], [False, False, True, True])
    rows = rows_of([answer, Example([5, 6], [True, True], True)], 10, print)
    assert rows.tokens.tolist() == [[5, 6, 7, 8], [5, 6, 0, 0]] and capsys.readouterr().out == ""
    assert rows.counted is not None and rows.counted.tolist() == [[False, True, True], [True, False, False]]
    long = Example(list(range(1, 8)), [True] * 7, True)
    assert rows_of([long], 3, print).tokens.tolist() == [[1, 2, 3, 4], [4, 5, 6, 7]]  # each token behind another one counts once
    rows = rows_of([answer, answer, Example([5, 6, 7, 8], [False] * 3 + [True])], 2, print)
    assert rows.tokens.tolist() == [[5, 6, 7]] * 2
    assert capsys.readouterr().out.splitlines() == [
        "3 of 3 examples are longer than length=2 tokens: their ends are left out",
        "1 of 3 examples have no token to learn within length=2 tokens, and are left out",
    ]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("{", r"line 2 of .*data.jsonl is not JSON"),
        ("[1]", r"line 2 of .* is \[1\], and not an object\n  hint: write \{\"text\""),
        ({"promt": "a", "completion": "b"}, r"line 2 of .* has the unknown key 'promt'\n  hint: did you mean prompt\?"),
        ({"prompt": "a"}, "line 2 of .* has neither a text, nor a prompt with its completion, nor messages"),
        ({"text": "a", "prompt": "b"}, "line 2 of .* has prompt beside text"),
        ({"text": 3}, "line 2 of .*: text is 3, and not a text"),
        ('{"text": "a", "text": "b"}', "line 2 of .*: the key 'text' is there twice"),
        ('{"text": "\\ud800"}', "line 2 of .*: text is not text"),
        ({"messages": []}, r"line 2 of .*: messages is \[\], and not a list of messages"),
        ({"messages": [{"role": "user"}]}, r"line 2 of .*: message 1 is \{'role': 'user'\}"),
        (
            {"messages": [{"role": "bot", "content": "a"}]},
            "line 2 of .*: message 1 has the role 'bot'\n  hint: roles are system, user",
        ),
        ({"messages": [{"role": "user", "content": "a"}]}, "line 2 of .*: no message is of the assistant"),
        (
            {"messages": [{"role": "system", "content": "a"}, {"role": "assistant", "content": "b"}]},
            "line 2 of .*: the model's chat template refuses this conversation: no system prompt",
        ),
    ],
)
def test_a_bad_line_is_named_with_its_reason(line: object, message: str, tokenizer: Tokenizer, tmp_path: Path) -> None:
    good = {"messages": [{"role": "user", "content": "who?"}, {"role": "assistant", "content": "a fox"}]}
    with pytest.raises(RecipeError, match=message):
        encoded(tokenizer, tmp_path, good, line, good)


def test_bytes_that_are_not_utf_8_are_a_bad_line(tmp_path: Path) -> None:
    (tmp_path / "data.jsonl").write_bytes(b'{"text": "a"}\n\n{"text": "\xff"}\n')
    with pytest.raises(RecipeError, match=r"line 3 of .* is not UTF-8 text: invalid start byte at byte 10"):
        read_lines(tmp_path / "data.jsonl")


# -- recipes ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("lora.rnk=4", r"unknown key lora.rnk\n  hint: did you mean lora.rank\?"),
        ("rank=4", r"unknown key rank\n  hint: did you mean lora.rank\?"),
        ("lora.targets=[q_prj]", r"lora.targets: the model has no matrix q_prj\n  hint: did you mean q_proj\?"),
        ("lora.targets=[]", r"lora.targets is empty; name matrices: lora.targets=\[q_proj, v_proj\]"),
        ("data=null", "there is nothing to learn from: data=FILE.jsonl"),
        ("data=none.jsonl", "data=none.jsonl cannot be read: No such file"),
        ("length=300", "length=300 is more than the 256 positions of .*\n  hint: length=256"),
        ("held_out=0.001", r"6 lines cannot be divided: examples to learn from: 6, held out: 0\n  hint: .*held_out=0.2"),
        ("model=none-such", "none-such is not a model"),
        ("micro_batches=3", "micro_batches=3 does not divide batch_size=4"),
    ],
)
def test_a_wrong_recipe_is_an_error_before_anything_is_computed(override: str, message: str, model: Path, tmp_path: Path) -> None:
    with pytest.raises((RecipeError, LlmError), match=message):
        Finetuning(recipe_of(model, tmp_path, "lora.rank=2", override), lambda note: None)


def test_messages_need_a_template(model: Path, tmp_path: Path) -> None:
    for name in ("tokenizer.json", "config.json", "model.safetensors"):
        (tmp_path / name).write_bytes((model / name).read_bytes())
    with pytest.raises(LlmError, match=r"the data have messages, but .* has no chat template\n  hint: train on"):
        Finetuning(recipe_of(tmp_path, tmp_path), lambda note: None)


# -- updates ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "overrides", [("lora.rank=2", "lora.targets=[q_proj, down_proj]", "micro_batches=2"), slow((("micro_batches=2",),))]
)
def test_updates_are_those_of_an_oracle(overrides: tuple[str, ...], model: Path, tmp_path: Path) -> None:
    """Of loss, gradient and AdamW, with tokens that do not count, and gradients of parts of a batch that are added up."""
    recipe = recipe_of(model, tmp_path, *overrides, "updates=2", "report_every=1", "weight_decay=0.1")
    task, reports = Finetuning(recipe, lambda note: None), training._Reports()
    live = training.compiled(task, reports.receive, NUMPY).start(task.inputs(), by="e")
    values = json.loads((model / "config.json").read_text())
    for loss, norm, parameters in trained_by_jax(task, values):
        live.advance("e")
        np.testing.assert_allclose(reports.metrics["loss"], loss, rtol=2e-5)
        np.testing.assert_allclose(reports.metrics["gradient_norm"], norm, rtol=1e-4)
        assert reports.parameters.keys() == parameters.keys()
        for name, value in parameters.items():
            np.testing.assert_allclose(reports.parameters[name], value, atol=2e-5, err_msg=name)


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    [
        "phi3",
        *(
            pytest.param(name, marks=pytest.mark.slow)
            for name in ("qwen3", "olmo3", "smollm3", "gemma3_text", "qwen3_5_text", "gpt_oss")
        ),
    ],
)
def test_adapters_of_a_family_learn_and_are_merged(name: str, tmp_path: Path) -> None:
    """The first loss is that of an oracle, and the adapter's file, put into the weights' file by hand, is the model that is written."""
    values = families.config(name, {"vocab_size": 300, "hidden_size": 16, "intermediate_size": 24, **FAMILIES.get(name, {})})
    tensors = models.random_tensors(values, tied=name in families.TIED)
    models.train_tokenizer(models.write_model(tmp_path / "base", values, tensors))
    recipe = recipe_of(tmp_path / "base", tmp_path, "lora.rank=2", "updates=1", "report_every=1", "warmup=0", lines=LINES[:5])
    task = Finetuning(recipe, lambda note: None)
    trained(recipe, tmp_path / "run")

    losses = []
    for row in task.inputs()["row"].ravel():
        tokens, counted = task.rows.tokens[row].tolist(), task.rows.inputs()["counted"][row]
        for place in np.flatnonzero(counted):
            logits = oracle.logits(values, tensors, tokens[: place + 1])
            losses.append(np.log(np.exp(logits - logits.max()).sum()) + logits.max() - logits[tokens[place + 1]])
    first = json.loads((tmp_path / "run/result.json").read_text())["loss"]
    assert first == pytest.approx(float(np.mean(losses)), rel=1e-4)

    adapter = load_file(tmp_path / "run/adapter/adapter_model.safetensors")
    settings = json.loads((tmp_path / "run/adapter/adapter_config.json").read_text())
    after = load_file(tmp_path / "run/model/model.safetensors")
    sources = {key.removeprefix("base_model.model.").rpartition(".lora_")[0] for key in adapter}
    assert len(sources) == sum(
        len(tensor.shape) == 2 and source.endswith(".weight") and ".layers." in source for source, tensor in tensors.items()
    )
    for source, tensor in tensors.items():
        stem = source.removesuffix(".weight")
        if stem in sources:
            up, down = (adapter[f"base_model.model.{stem}.lora_{part}.weight"] for part in "BA")
            short = stem.rpartition(".")[2]
            rank = settings["rank_pattern"].get(short, settings["r"])
            assert up.shape == (tensor.shape[0], rank) and down.shape == (rank, tensor.shape[1]) and np.any(up)
            tensor = tensor + settings["alpha_pattern"].get(short, settings["lora_alpha"]) / rank * up @ down
        np.testing.assert_allclose(after[source], tensor, atol=1e-6, err_msg=source)


@pytest.mark.slow
def test_a_memory_limit_makes_parts_of_a_batch(model: Path, tmp_path: Path) -> None:
    overrides = "lora.rank=1", "lora.targets=[q_proj]", "updates=2", "batch_size=8"
    task = Finetuning(recipe_of(model, tmp_path, *overrides), lambda note: None)

    def peak(task: Any) -> int:
        return training.compiled(task, training._Reports().receive, NUMPY).plan().peak_host_bytes

    whole = peak(task)
    fitted = training.fitted(task, {**NUMPY, "memory_limit": whole * 2 // 3})
    assert training.fitted(task, {**NUMPY, "memory_limit": whole}) is task
    assert fitted.recipe.micro_batches == 2 and peak(fitted) <= whole * 2 // 3 < whole
    metrics = []
    for each in (task, fitted):
        reports = training._Reports()
        training.compiled(each, reports.receive, NUMPY).start(each.inputs()).finish()
        metrics.append(reports.metrics)
    for name in ("loss", "gradient_norm"):
        np.testing.assert_allclose(metrics[0][name], metrics[1][name], rtol=1e-5)


# -- runs -------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def whole(model: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, FinetuneRecipe]:
    """A run of adapters without a stop."""
    folder = tmp_path_factory.mktemp("whole")
    recipe = recipe_of(model, folder, "lora.rank=2", "lora.alpha=6", "lora.targets=[q_proj, down_proj]")
    assert trained(recipe, folder / "run").updates == 4
    return folder / "run", recipe


@pytest.mark.slow
def test_adapters_alone_have_optimizer_state(whole: tuple[Path, FinetuneRecipe]) -> None:
    names = {name.partition("@")[0] for name in load_file(whole[0] / "state.safetensors")}
    adapters = [f"{matrix}.{part}" for matrix in ("attention.query", "mlp.down") for part in ("lora_a", "lora_b")]
    assert {name for name in names if name.startswith("store/adamw.m")} == {f"store/adamw.m({name})" for name in adapters}
    assert not any("weight" in name for name in names)


def test_the_adapter_is_written_as_peft_has_it(whole: tuple[Path, FinetuneRecipe], model: Path) -> None:
    settings = json.loads((whole[0] / "adapter/adapter_config.json").read_text())
    assert (settings["peft_type"], settings["task_type"], settings["r"], settings["lora_alpha"]) == ("LORA", "CAUSAL_LM", 2, 6)
    assert settings["target_modules"] == ["down_proj", "q_proj"] and settings["base_model_name_or_path"] == str(model)
    tensors = load_file(whole[0] / "adapter/adapter_model.safetensors")
    shapes = {}
    for layer in range(2):
        at = f"base_model.model.model.layers.{layer}"
        shapes |= {f"{at}.self_attn.q_proj.lora_A.weight": (2, 16), f"{at}.self_attn.q_proj.lora_B.weight": (16, 2)}
        shapes |= {f"{at}.mlp.down_proj.lora_A.weight": (2, 24), f"{at}.mlp.down_proj.lora_B.weight": (16, 2)}
    assert {name: tensor.shape for name, tensor in tensors.items()} == shapes


def test_the_model_has_the_adapters_in_its_weights(whole: tuple[Path, FinetuneRecipe], model: Path) -> None:
    before, after = load_file(model / "model.safetensors"), load_file(whole[0] / "model/model.safetensors")
    adapters = load_file(whole[0] / "adapter/adapter_model.safetensors")
    assert before.keys() == after.keys()
    for name, weight in before.items():
        at = f"base_model.model.{name.removesuffix('.weight')}"
        change = (
            6 / 2 * adapters[f"{at}.lora_B.weight"] @ adapters[f"{at}.lora_A.weight"] if f"{at}.lora_A.weight" in adapters else 0
        )
        np.testing.assert_allclose(after[name], weight + change, atol=1e-6, err_msg=name)
        assert np.any(change) == name.endswith(("q_proj.weight", "down_proj.weight"))
    for name in ("tokenizer.json", "chat_template.jinja"):
        assert (whole[0] / "model" / name).read_bytes() == (model / name).read_bytes()
    described = [json.loads((folder / "config.json").read_text()) for folder in (model, whole[0] / "model")]
    assert described[1] == {**described[0], "dtype": "float32", "torch_dtype": "float32", "tie_word_embeddings": False}
    config = LlamaConfig.from_directory(whole[0] / "model")
    assert load_weights(whole[0] / "model", config).keys() == load_weights(model, config).keys()
    assert "Adapters of rank 2" in (whole[0] / "model/README.md").read_text()


def test_a_run_that_was_stopped_goes_on_bit_for_bit(whole: tuple[Path, FinetuneRecipe], tmp_path: Path) -> None:
    def stop(text: str) -> None:
        if text.startswith("2/4"):
            os.kill(os.getpid(), signal.SIGTERM)

    recipe, path = whole[1], tmp_path / "run"
    assert trained(recipe, path, say=stop).stopped == "SIGTERM"
    assert chosen_run(recipe, "finetune", path, False, "auto")[1]
    assert trained(recipe, path, resume=True).updates == 4
    for name in ("metrics.csv", "model/model.safetensors", "adapter/adapter_model.safetensors"):
        assert (path / name).read_bytes() == (whole[0] / name).read_bytes(), name


def test_another_model_or_other_data_do_not_go_on(model: Path, tmp_path: Path) -> None:
    copy = tmp_path / "model"
    copy.mkdir()
    for file in model.iterdir():
        (copy / file.name).write_bytes(file.read_bytes())
    recipe = recipe_of(copy, tmp_path, "lora.rank=1", "lora.targets=[q_proj]")
    run = RunFiles(tmp_path / "run")
    run.path.mkdir()
    run.begin(recipe, Finetuning(recipe, lambda note: None).digest)
    write_lines(tmp_path / "data.jsonl", [*LINES, {"text": "one more"}])
    with pytest.raises(RunError, match=r"the text of the run in .* was another one"):
        trained(recipe, run.path, resume=True)
    write_lines(tmp_path / "data.jsonl", LINES)
    tensors = load_file(copy / "model.safetensors")
    tensors["model.norm.weight"][0] += 1
    (copy / "model.safetensors").write_bytes(models.tensor_bytes(tensors))
    with pytest.raises(RunError, match=r"the text of the run in .* was another one"):
        trained(recipe, run.path, resume=True)


def test_training_that_diverges_says_so(model: Path, tmp_path: Path) -> None:
    recipe = recipe_of(
        model, tmp_path, "lora.rank=2", "lora.targets=[q_proj, down_proj]", "learning_rate=1e38", "max_grad_norm=null"
    )
    with np.errstate(all="ignore"), pytest.raises(RunError, match=r"training diverged: .*\(counted from 0\)"):
        trained(recipe, tmp_path / "run")


@pytest.mark.slow
def test_the_shipped_recipe_trains_the_model_in_the_box(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)  # its data lie beside it
    recipe = load_recipe("finetune", ["updates=2", "report_every=1", "warmup=1", "batch_size=4"])
    assert isinstance(recipe, FinetuneRecipe)
    notes: list[str] = []
    trained(recipe, tmp_path / "run", say=notes.append)
    assert notes[0] == "51 rows of up to 15 tokens to learn from, 9 held out; 74,752 of 803,968 parameters are trained"
    held_out = [float(line.split(",")[3]) for line in (tmp_path / "run/metrics.csv").read_text().splitlines()[1:]]
    assert held_out[1] < held_out[0] < 6
    model = json.loads((tmp_path / "run/model/config.json").read_text())
    assert model["dtype"] == "bfloat16" and (tmp_path / "run/adapter/adapter_model.safetensors").exists()
    assert all(adapter.any() for adapter in load_file(tmp_path / "run/adapter/adapter_model.safetensors").values())


@pytest.mark.slow
def test_the_command_trains_on_a_device(model: Path, tmp_path: Path) -> None:
    data = write_lines(tmp_path / "data.jsonl", LINES)
    changes = [
        f"model={model}",
        f"data={data}",
        "held_out=0.4",
        "updates=2",
        "report_every=1",
        "warmup=1",
        "length=12",
        "batch_size=2",
    ]
    result = CliRunner().invoke(app, ["train", "finetune", *changes, "--no-cache", "--out", str(tmp_path / "run")])
    assert result.exit_code == 0, result.output
    assert "parameters are trained" in result.output and (tmp_path / "run/model/model.safetensors").exists()


@pytest.mark.torch
def test_transformers_reads_what_is_written(whole: tuple[Path, FinetuneRecipe]) -> None:
    import torch
    from transformers import AutoModelForCausalLM

    from tempo_llm import load

    ids = [1, 17, 5, 40, 8, 61, 3]
    with torch.no_grad():
        logits = AutoModelForCausalLM.from_pretrained(whole[0] / "model")(torch.tensor([ids])).logits[0].numpy()
    np.testing.assert_allclose(load(whole[0] / "model", **NUMPY).logits(ids), logits, atol=2e-4)


def test_adapters_begin_with_the_model(model: Path, tmp_path: Path) -> None:
    values = Finetuning(recipe_of(model, tmp_path, "lora.rank=3"), lambda note: None).first_values()
    adapters = {name: value for name, value in values.items() if ".lora_" in name}
    assert len(adapters) == 14 and all(np.any(value) == name.endswith("lora_a") for name, value in adapters.items())
    assert adapters["mlp.down.lora_a"].shape == (2, 24, 3) and adapters["mlp.down.lora_b"].shape == (2, 3, 16)
