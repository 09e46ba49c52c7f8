"""The command line: `tempo-llm TEXT`, `generate|chat|bench|info|plan --model DIR ...`, `train RECIPE ...`, `doctor`.

What a command needs is imported when it runs.
"""

from __future__ import annotations

import contextlib
import difflib
import json
import os
import sys
import time
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer
from typer.core import TyperGroup

from tempo_llm import completion
from tempo_llm.batches import WAITING, Service, read_waiting
from tempo_llm.command_errors import reported as _errors
from tempo_llm.errors import LlmError, RequestError
from tempo_llm.files import read_text
from tempo_llm.flags import (
    AttentionFlag,
    CacheDir,
    Device,
    Devices,
    DraftModel,
    Dtype,
    FrequencyPenalty,
    LogitBias,
    MaxContext,
    MaxNewTokens,
    MemoryLimit,
    MinP,
    ModelName,
    NoCache,
    PresencePenalty,
    PromptCache,
    RepetitionPenalty,
    Seed,
    Speculate,
    SystemPrompt,
    Temperature,
    TopK,
    TopP,
    Verbose,
)  # fmt: skip
from tempo_llm.json_files import parse_json
from tempo_llm.lines import Lines, completion_report, read_prompts
from tempo_llm.reports import drawn_profile, report_of, timings, with_texts
from tempo_llm.serve.command import serve
from tempo_llm.streams import drop_output, explained, open_streams

if TYPE_CHECKING:
    from tempo_llm.generate import Generation
    from tempo_llm.model import Model
    from tempo_llm.sampling import Sampling


class _Commands(TyperGroup):
    """The commands. What is none is a text, or a flag, of `generate`: `tempo-llm "12 + 30 ="`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        return super().parse_args(ctx, ["generate", *args] if args and self._is_of_generate(ctx, args[0]) else args)

    def _is_of_generate(self, ctx: Any, first: str) -> bool:
        flags = {flag for parameter in self.get_params(ctx) for flag in (*parameter.opts, *parameter.secondary_opts)}
        if first in self.commands or first.partition("=")[0] in flags:
            return False
        return " " in first or not difflib.get_close_matches(first, self.commands, 1, cutoff=0.8)  # else it is mistyped


app = typer.Typer(
    cls=_Commands,
    add_completion=True,
    no_args_is_help=True,
    help="Run Llama models and their relatives, compiled by Tempo. `tempo-llm TEXT` is `tempo-llm generate TEXT`.",
)


def _print_version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        typer.echo(f"tempo-llm {version('tempo-dl')}")
        raise typer.Exit


@app.callback()
def _of_all_commands(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version, and stop.")
    ] = False,
) -> None:
    pass


# -- flags of several commands ------------------------------------------------------------------------------------------


def _from_file(context: typer.Context, path: Path | None) -> Path | None:
    """Take defaults of flags from a JSON file."""
    if path is None:
        return None
    try:
        values = parse_json(read_text(path))
    except (OSError, ValueError, RecursionError) as error:
        raise typer.BadParameter(f"{path} cannot be read as JSON: {error}") from None
    if not isinstance(values, dict):
        raise typer.BadParameter(f'{path} holds no JSON object, such as {{"temperature": 0.7}}')
    option_of = {
        flag.lstrip("-"): parameter
        for parameter in context.command.params
        for flag in parameter.opts
        if flag[:2] == "--" and flag != "--config"
    }
    defaults: dict[str, Any] = {}
    for key, value in values.items():
        flag = key.replace("_", "-")
        if flag not in option_of:
            near = difflib.get_close_matches(flag, option_of, 1)
            raise typer.BadParameter(f"{path}: unknown key {key!r}" + (f"; did you mean {near[0]!r}?" if near else ""))
        name = str(option_of[flag].name)
        if name in defaults:
            raise typer.BadParameter(f"{path}: {key!r} and another key are the same flag")
        is_one_of_several = getattr(option_of[flag], "multiple", False) and not isinstance(value, list) and value is not None
        defaults[name] = [value] if is_one_of_several else value
    context.default_map = defaults
    return path


ConfigFile = Annotated[
    Path | None,
    typer.Option("--config", metavar="FILE", help="Read flags from a JSON object in FILE.", callback=_from_file, is_eager=True),
]


def _say_what_compiles(stack: contextlib.ExitStack) -> None:
    """Print what XLA compiles, if that takes long, until the stack is closed."""
    from tempo_core.runs.commands import announcing

    stack.enter_context(announcing(lambda text: typer.echo(text, err=True)))


def _note(text: str) -> None:
    typer.echo(f"note: {text}", err=True)


def _located(model: str | None) -> Path:
    """The directory of a model; without a name, the one that comes with the package, which a note says."""
    from tempo_llm.hub import IN_THE_BOX, locate, shipped_checkpoints

    if model is not None:
        return locate(model)
    _note(f"the model is {IN_THE_BOX}, which knows a small language; --model DIR takes another")
    return shipped_checkpoints() / IN_THE_BOX


def _load(
    command: contextlib.ExitStack,
    model: Path,
    dtype: str | None,
    attention: str | None,
    cache: Path | None,
    no_cache: bool,
    device: str | None = None,
    devices: str = "1",
    memory_limit: str | None = None,
    prompt_cache: Path | None = None,
    draft_model: str | None = None,
) -> Model:
    """The model, whose weights are read when they are needed: plans, and requests that are refused, need none."""
    from tempo_core.runs.device import use_device

    _say_what_compiles(command)
    count = use_device(device, devices)
    from tempo_llm.model import load

    kept = False if no_cache else True if cache is None else str(cache)
    where = prompt_cache or False
    options: dict[str, Any] = {"cache": kept, "devices": count, "memory_limit": memory_limit}
    return load(model, dtype, attention, prompt_cache=where, draft_model=draft_model, lazily=True, **options)


def _biases(bias: list[str] | None) -> dict[int, float]:
    biases: dict[int, float] = {}
    for text in bias or []:
        token, _, value = text.partition("=")
        try:
            number, amount = int(token), float(value)
        except ValueError:
            raise RequestError(f"the logit bias {text!r} is not of the form TOKEN=NUMBER", hint="--logit-bias 42=-inf") from None
        if biases.get(number, amount) != amount:
            raise RequestError(
                f"the token {number} has two logit biases, {biases[number]:g} and {amount:g}", hint="leave one of them out"
            )
        biases[number] = amount
    return biases


class _Choice:
    """How tokens are chosen: by the flags, then by the model's own settings, then by the `defaults` of the command."""

    def __init__(self, defaults: Mapping[str, float], bias: list[str] | None, **flags: float | None):
        from tempo_llm.sampling import Sampling

        self._flags = {name: value for name, value in flags.items() if value is not None}
        self._defaults, self._bias = defaults, _biases(bias)
        Sampling(**cast(Any, self._flags), logit_bias=self._bias)  # reports a mistake before a model is read

    def drawing(self, samples: int) -> list[str]:
        """The flags that say how tokens are drawn."""
        flags = {"--top-k": self._flags.get("top_k"), "--min-p": self._flags.get("min_p"), "--num-samples": samples > 1}
        flags["--top-p"] = self._flags.get("top_p", 1) != 1
        return [flag for flag, is_given in flags.items() if is_given]

    def of(self, directory: Path) -> Sampling:
        """The settings for a model. A note says what comes from the model."""
        from tempo_llm.sampling import Sampling, model_settings

        own = {name: value for name, value in model_settings(directory).items() if name not in self._flags}
        if not {**self._defaults, **own, **self._flags}["temperature"]:
            own = {name: value for name, value in own.items() if name in ("temperature", "repetition_penalty")}
        said = [
            f"{name.replace('_', '-')} {value:g}"
            for name, value in own.items()
            if value != self._defaults.get(name, getattr(Sampling, name))
        ]
        if said:
            _note(f"{', '.join(said)}, as the model's generation_config.json says; flags change it")
        return Sampling(**cast(Any, {**self._defaults, **own, **self._flags}), logit_bias=self._bias)


# -- generate -----------------------------------------------------------------------------------------------------------


@app.command()
def generate(
    source: Annotated[
        str, typer.Argument(metavar="[TEXT]", help="A prompt; `-` reads it from standard input.", show_default=False)
    ] = "",
    model: ModelName = None,
    prompt: Annotated[list[str] | None, typer.Option("--prompt", "-p", help="A prompt; repeat it for a batch.")] = None,
    file: Annotated[list[str] | None, typer.Option("--file", "-f", help="A file that holds one prompt; `-` is stdin.")] = None,
    jsonl: Annotated[
        str | None,
        typer.Option(
            "--jsonl",
            metavar="FILE",
            help="Read one prompt a line, as JSON: a string, or an object with `prompt`, `id`, `max_tokens`, `temperature`, `seed`, `stop`. `-` is stdin.",
        ),
    ] = None,
    system_prompt: SystemPrompt = None,
    raw: Annotated[bool, typer.Option("--raw", help="Give prompts as they are, without the chat template.")] = False,
    special_tokens: Annotated[
        bool, typer.Option("--special-tokens", help="Read special tokens in prompts, such as </s>, as tokens.")
    ] = False,
    max_new_tokens: MaxNewTokens = 128,
    temperature: Temperature = None,
    top_k: TopK = None,
    top_p: TopP = None,
    min_p: MinP = None,
    repetition_penalty: RepetitionPenalty = None,
    frequency_penalty: FrequencyPenalty = 0.0,
    presence_penalty: PresencePenalty = 0.0,
    logit_bias: LogitBias = None,
    seed: Seed = 0,
    num_samples: Annotated[int, typer.Option(help="How many continuations of each prompt.")] = 1,
    logprobs: Annotated[int, typer.Option(help="With --json or --jsonl: give the K most likely tokens at each position.")] = 0,
    ignore_eos: Annotated[bool, typer.Option("--ignore-eos", help="Do not stop at an end token.")] = False,
    stop: Annotated[list[str] | None, typer.Option(help="Stop when the new text contains this; repeatable.")] = None,
    stop_token_id: Annotated[list[int] | None, typer.Option(help="Stop at this token too; repeatable.")] = None,
    stream: Annotated[
        bool | None, typer.Option("--stream/--no-stream", help="Print text as it comes (default: on a terminal).")
    ] = None,
    dtype: Dtype = None,
    device: Device = None,
    devices: Devices = "1",
    memory_limit: MemoryLimit = None,
    attention: AttentionFlag = None,
    max_context: MaxContext = None,
    speculate: Speculate = 0,
    draft_model: DraftModel = None,
    plan: Annotated[bool, typer.Option("--plan", help="Print what would be stored and run, and stop.")] = False,
    full: Annotated[
        bool, typer.Option("--full", help="With --plan: print each statement and each store on its own line, and XLA's own peak.")
    ] = False,
    memory_picture: Annotated[
        Path | None,
        typer.Option(
            "--memory-picture", metavar="FILE", help="With --plan: draw the memory, moment by moment, as a trace (.json)."
        ),
    ] = None,
    profile: Annotated[
        bool, typer.Option("--profile", help="Print where the time goes to standard error, and draw profile.json.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object instead of text.")] = False,
    verbose: Verbose = False,
    prompt_cache: PromptCache = None,
    cache: CacheDir = None,
    no_cache: NoCache = False,
    config: ConfigFile = None,
) -> None:
    """Continue one or more prompts."""
    with _errors() as command:
        first = read_prompts(source, prompt or [], file or [], jsonl)
        _check_companions({"--full": full, "--memory-picture": memory_picture is not None}, {"--plan": plan})
        _check_companions({"--logprobs": logprobs != 0}, {"--json": as_json, "--jsonl": jsonl is not None})
        _check_companions({"--draft-model": draft_model is not None}, {"--speculate": speculate != 0})
        choice = _Choice(
            {"temperature": 0.0}, logit_bias, temperature=temperature, top_k=top_k, top_p=top_p, min_p=min_p,
            repetition_penalty=repetition_penalty, frequency_penalty=frequency_penalty, presence_penalty=presence_penalty,
        )  # fmt: skip
        is_whole = plan or profile or as_json or jsonl is None  # one batch of all prompts
        refusals = _Refusals(is_whole)
        feed = None if jsonl is None else Lines(first, jsonl)
        lines = first if feed is None else read_waiting(feed, sys.maxsize if is_whole else WAITING, True, refusals)
        if not lines:
            refusals.end()
            raise RequestError("there is no prompt", hint='a line of JSON is {"prompt": "text"}, or "text"')
        own = next((line for line in lines if line.has_settings), None)
        if own is not None and is_whole:
            flag = "--plan" if plan else "--profile" if profile else "--json"
            raise RequestError(
                f"{own.where} has its own settings, but {flag} needs the same settings for all prompts", hint=f"leave {flag} out"
            )
        directory = _located(model)
        sampling = choice.of(directory)
        if sampling.temperature == 0 and not any(line.temperature for line in lines):
            for flag in choice.drawing(num_samples):
                _note(f"{flag} has no effect without --temperature: the most likely token is taken")
        started = time.perf_counter()
        where = (device, devices, memory_limit, prompt_cache, draft_model)
        loaded = _load(command, directory, dtype, attention, cache, no_cache, *where)
        load_seconds = time.perf_counter() - started
        from tempo_llm.generate import Request
        from tempo_llm.model import stop_texts

        if not raw and loaded.tokenizer.template is None:
            _note("this model has no chat template; prompts are given as they are (--raw)")
            raw = True
        ends, stops = loaded.end_ids(stop_token_id or (), ignore_eos), stop_texts(stop or ())
        shared = Request([], max_new_tokens, sampling, seed, ends, max_context, num_samples, logprobs, speculate)
        service = Service(loaded, shared, max_new_tokens, seed, stops, raw, system_prompt, special_tokens, _note)
        if feed is not None and not is_whole:
            from tempo_core.runs.stop import StopRequest

            command.enter_context(StopRequest(lambda text: None).listening())  # a signal ends it as Ctrl-C does
            for answers, cost in service.answers(lines, feed, refusals):
                for task, completion in answers:
                    typer.echo(json.dumps(completion_report(task.line, completion, loaded.tokenizer)))
                if cost is not None:
                    _told(cost, load_seconds + loaded.generator.read_seconds, verbose)
            refusals.end()
            return
        request = service.whole_request(lines)
        if plan:
            typer.echo(loaded.generator.plan_of(request, full=full, as_json=as_json, picture=memory_picture))
            return
        request.needed(loaded.config)
        loaded.generator.read()
        load_seconds += loaded.generator.read_seconds
        if profile:
            result = with_texts(loaded, loaded.generator.profiled(request), stops)
            assert result.profile is not None
            typer.echo(f"{result.profile}\n{drawn_profile(result.profile)}", err=True)
        else:
            pieces = loaded.start(request, [stops] * len(lines))
            if (sys.stdout.isatty() if stream is None else stream) and not as_json and len(request.rows) == 1:
                for piece in pieces:
                    typer.echo(piece.text, nl=False)
                    sys.stdout.flush()
                typer.echo()
                _told(pieces.generation, load_seconds, verbose)
                return
            result = pieces.finished()
        if as_json:
            typer.echo(json.dumps(report_of(loaded, lines, result, load_seconds)))
        elif jsonl is not None:
            for completion in result.completions:
                typer.echo(json.dumps(completion_report(lines[completion.prompt], completion, loaded.tokenizer)))
        else:
            typer.echo("\n\n".join(completion.text or "" for completion in result.completions))
        _told(result, load_seconds, verbose)


class _Refusals:
    """What becomes of lines that are no prompts: each is named, and the rest goes on. Where all prompts are one batch, the first is raised."""

    def __init__(self, is_raised: bool):
        self._is_raised, self._count = is_raised, 0

    def __call__(self, error: LlmError) -> None:
        if self._is_raised:
            raise error
        self._count += 1
        typer.echo(f"error: {error}", err=True)

    def end(self) -> None:
        """Leave with the exit code 1 if there was one."""
        if self._count:
            raise typer.Exit(1)


def _check_companions(flags: dict[str, bool], needed: dict[str, bool]) -> None:
    """Raise RequestError for a flag that changes nothing, because none of those is there that it needs."""
    alone = next((flag for flag, is_given in flags.items() if is_given), None)
    if alone is not None and not any(needed.values()):
        raise RequestError(
            f"{alone} has no effect without {' or '.join(needed)}", hint=f"add {next(iter(needed))}, or leave it out"
        )


def _told(result: Generation, load_seconds: float, verbose: bool) -> None:
    if verbose:
        typer.echo(timings(result, load_seconds), err=True)


# -- chat ---------------------------------------------------------------------------------------------------------------


@app.command()
def chat(
    model: ModelName = None,
    system_prompt: SystemPrompt = None,
    max_new_tokens: MaxNewTokens = 1024,
    temperature: Temperature = None,
    top_k: TopK = None,
    top_p: TopP = None,
    min_p: MinP = None,
    repetition_penalty: RepetitionPenalty = None,
    frequency_penalty: FrequencyPenalty = 0.0,
    presence_penalty: PresencePenalty = 0.0,
    logit_bias: LogitBias = None,
    seed: Seed = 0,
    dtype: Dtype = None,
    device: Device = None,
    devices: Devices = "1",
    memory_limit: MemoryLimit = None,
    attention: AttentionFlag = None,
    max_context: MaxContext = None,
    prompt_cache: PromptCache = None,
    cache: CacheDir = None,
    no_cache: NoCache = False,
    config: ConfigFile = None,
    verbose: Verbose = False,
) -> None:
    """Talk with a model, turn by turn. /help lists the commands; /exit or the end of input ends the program. Ctrl-C stops an answer."""
    with _errors() as command:
        if max_new_tokens < 1:
            raise RequestError(
                f"max_new_tokens is {max_new_tokens}; it must be a whole number of at least 1", hint="--max-new-tokens 1024"
            )
        choice = _Choice(
            {"temperature": 0.7}, logit_bias, temperature=temperature, top_k=top_k, top_p=top_p, min_p=min_p,
            repetition_penalty=repetition_penalty, frequency_penalty=frequency_penalty, presence_penalty=presence_penalty,
        )  # fmt: skip
        directory = _located(model)
        sampling, started = choice.of(directory), time.perf_counter()
        loaded = _load(command, directory, dtype, attention, cache, no_cache, device, devices, memory_limit, prompt_cache)
        from tempo_llm.talk import Talk

        talk = Talk(
            lambda: loaded.chat(system_prompt, sampling=sampling, seed=seed, max_context=max_context), max_new_tokens, verbose
        )
        loaded.generator.read()
        if verbose:
            typer.echo(f"loaded the model in {time.perf_counter() - started:.2f} s", err=True)
        talk.run()


# -- info, plan, bench --------------------------------------------------------------------------------------------------


@app.command()
def info(
    model: ModelName = None, as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False
) -> None:
    """Print what a model directory holds: sizes, parameters, end tokens, attention, tokenizer. Its weights are not read."""
    with _errors():
        from tempo_llm.attention import Attention
        from tempo_llm.checkpoint import count_parameters
        from tempo_llm.config import LlamaConfig
        from tempo_llm.tokenizer import Tokenizer

        directory = _located(model)
        config = LlamaConfig.from_directory(directory)
        tokenizer = Tokenizer.if_there(directory)
        parameters, bytes_in_files = count_parameters(directory)
        patterns = Attention.of_windows(config.windows).by_layer(config.num_hidden_layers)
        facts = {
            "model": str(directory),
            "model_type": config.model_type,
            "parameters": parameters,
            "bytes": bytes_in_files,
            "layers": config.num_hidden_layers,
            "hidden_size": config.hidden_size,
            "intermediate_size": config.intermediate_size,
            "heads": config.num_attention_heads,
            "key_value_heads": config.num_key_value_heads,
            "head_dim": config.head_dim,
            "vocabulary": config.vocab_size,
            "context": config.max_position_embeddings,
            "rope": config.rope.rope_type,
            "attention": sorted({pattern.name for pattern in patterns}),
            "end_tokens": list(config.eos_ids),
            "tokenizer": tokenizer is not None,
            "chat_template": tokenizer is not None and tokenizer.template is not None,
        }
        if as_json:
            typer.echo(json.dumps(facts))
            return
        for name, value in facts.items():
            shown = ", ".join(map(str, value)) or "none" if isinstance(value, list) else _shown(value)
            typer.echo(f"{name.replace('_', ' '):<20}{shown}")


def _shown(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:,}" if isinstance(value, int) else str(value)


@app.command()
def plan(
    model: ModelName = None,
    prompt_tokens: Annotated[int, typer.Option(help="The length of the prompts.")] = 128,
    rows: Annotated[int, typer.Option(help="How many prompts.")] = 1,
    max_new_tokens: MaxNewTokens = 128,
    dtype: Dtype = None,
    attention: AttentionFlag = None,
    max_context: MaxContext = None,
    full: Annotated[
        bool, typer.Option("--full", help="Print each statement and each store on its own line, and XLA's own peak.")
    ] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON object: the memory of all tensors and its peaks.")
    ] = False,
    memory_limit: MemoryLimit = None,
    cache: CacheDir = None,
    no_cache: NoCache = False,
) -> None:
    """Print what generation would store and run, with the bytes of each cache. Nothing runs, and no weights are read."""
    with _errors() as command:
        if prompt_tokens < 1 or rows < 1:
            raise RequestError("a plan needs at least one prompt of at least one token", hint="--rows 1 --prompt-tokens 128")
        loaded = _load(command, _located(model), dtype, attention, cache, no_cache, memory_limit=memory_limit)
        from tempo_llm.bench import random_prompts

        prompts = random_prompts(loaded.config, rows, prompt_tokens)
        typer.echo(loaded.generator.plan(prompts, max_new_tokens, max_context=max_context, full=full, as_json=as_json))


@app.command()
def bench(
    model: ModelName = None,
    prompt_tokens: Annotated[int, typer.Option(help="The length of the prompts.")] = 128,
    rows: Annotated[int, typer.Option(help="How many prompts.")] = 1,
    max_new_tokens: MaxNewTokens = 128,
    repeats: Annotated[int, typer.Option(help="How many runs to measure; the medians are printed.")] = 3,
    dtype: Dtype = None,
    device: Device = None,
    devices: Devices = "1",
    memory_limit: MemoryLimit = None,
    attention: AttentionFlag = None,
    max_context: MaxContext = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
    cache: CacheDir = None,
    no_cache: NoCache = False,
) -> None:
    """Measure the time to the first token and the tokens per second, and compare with the speed of memory."""
    with _errors() as command:
        if prompt_tokens < 1 or rows < 1 or repeats < 1:
            raise RequestError("a measurement needs at least one run of one prompt of one token", hint="--repeats 3 --rows 1")
        loaded = _load(command, _located(model), dtype, attention, cache, no_cache, device, devices, memory_limit)
        from tempo_llm.bench import measure

        figures = measure(loaded.generator, rows, prompt_tokens, max_new_tokens, repeats, max_context)
        if as_json:
            typer.echo(json.dumps(asdict(figures)))
        else:
            typer.echo(str(figures))


# -- serve --------------------------------------------------------------------------------------------------------------


app.command()(serve)


# -- quantize -----------------------------------------------------------------------------------------------------------


@app.command()
def quantize(
    source: Annotated[
        str, typer.Argument(metavar="SOURCE", help="A model, as --model names it.", autocompletion=completion.models)
    ],
    target: Annotated[Path, typer.Argument(metavar="TARGET", help="The directory to write.")],
    dtype: Annotated[str, typer.Option(help="int8 or int4.")] = "int8",
    group: Annotated[int, typer.Option(help="How many numbers of a row share a scale: 16, 32, 64 or 128.")] = 32,
    force: Annotated[bool, typer.Option("--force", help="Replace TARGET.")] = False,
) -> None:
    """Write a model with int8 or int4 matrices: a third or a fifth of float32's bytes. Commands load it as any other model."""
    with _errors():
        from tempo_llm.quantize import quantize_model

        written = quantize_model(_located(source), target, dtype, group, force)
        typer.echo(
            f"{target}: {written.matrices} matrices are {dtype}; {written.bytes_before / 1e6:,.1f} MB became {written.bytes_after / 1e6:,.1f} MB"
        )


# -- doctor -------------------------------------------------------------------------------------------------------------


@app.command()
def doctor() -> None:
    """Print the installed versions beside the tested ones, the devices, and the packages that are missing."""
    with _errors():
        from tempo_core.runs.doctor import Extra, findings, is_able, versions

        extras = (
            Extra("tokenizers", "llm", "tokenizer.json"),
            Extra("sentencepiece", "llm", "tokenizer.model"),
            Extra("jinja2", "llm", "chat templates"),
            Extra("pydantic", "llm", "train"),
            Extra("uvicorn", "serve", "serve"),
            Extra("llguidance", "serve", "answers of serve that follow a schema"),
            Extra("wandb", "wandb", "train --track"),
        )
        numbers = versions(("tempo-dl", "jax", "jaxlib", "numpy", "islpy", "safetensors", *(extra.package for extra in extras)))
        for line in findings(numbers, extras):
            typer.echo(line)
        if not is_able(numbers):
            raise typer.Exit(1)


# -- train --------------------------------------------------------------------------------------------------------------


@app.command()
def train(
    recipe: Annotated[
        str,
        typer.Argument(
            metavar="RECIPE",
            help="A YAML file, or the name of a shipped recipe: tiny_llama makes a model; finetune goes on with one by examples, grpo_tiny by "
            "rewards, dpo_tiny by preferences.",
            autocompletion=completion.recipes,
        ),
    ],
    overrides: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[KEY=VALUE]...",
            help="Change keys of the recipe: learning-rate=1e-3 model.hidden-size=64; of finetune: model=DIR data=FILE.jsonl lora.rank=8.",
            autocompletion=completion.overrides,
        ),
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Run directory (default: runs/RECIPE-seedS-NNN).")] = None,
    seed: Annotated[int | None, typer.Option(help="The recipe's seed.")] = None,
    resume: Annotated[
        str,
        typer.Option(
            metavar="auto|PATH|off",
            help="Go on with a run. auto: the run in --out, else the newest unfinished run of this recipe and seed. PATH: a run directory.",
        ),
    ] = "off",
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace the run that --out already holds.")] = False,
    track: Annotated[
        bool | None, typer.Option("--track/--no-track", help="Log to Weights & Biases (offline without a key).")
    ] = None,
    progress: Annotated[
        bool | None, typer.Option("--progress/--no-progress", help="Show a progress bar (default: on a terminal).")
    ] = None,
    time_limit: Annotated[float | None, typer.Option(min=0.0, help="Stop and save after this many minutes.")] = None,
    plan: Annotated[bool, typer.Option("--plan", help="Print what would be stored and run, and stop.")] = False,
    full: Annotated[
        bool, typer.Option("--full", help="With --plan: print each statement and each store on its own line, and XLA's own peak.")
    ] = False,
    device: Device = None,
    devices: Devices = "1",
    memory_limit: MemoryLimit = None,
    cache: CacheDir = None,
    no_cache: NoCache = False,
) -> None:
    """Train a model by RECIPE. The run directory gets config.yaml, metrics.csv, state.safetensors, result.json and model/."""
    with _errors(prints=plan) as command:
        _check_companions({"--full": full}, {"--plan": plan})
        _check_companions({"--overwrite": overwrite}, {"--out": out is not None})
        try:
            from tempo_core.runs.recipe import check_flags
            from tempo_llm.training.recipe import load_recipe
        except ImportError as error:
            raise RequestError(f"training needs the package {error.name}", hint="pip install 'tempo-dl[llm]'") from None
        flags = {"seed": seed, "track": track}
        given = [f"{key}={str(value).lower()}" for key, value in flags.items() if value is not None]
        check_flags(overrides or [], given)
        loaded = load_recipe(recipe, [*(overrides or []), *given])
        from tempo_core.runs.device import use_device

        _say_what_compiles(command)
        count = use_device(device, devices)
        from tempo_llm.training import run as training
        from tempo_llm.training.rundir import chosen_run, exit_code, summary

        kept = False if no_cache else True if cache is None else str(cache)
        if plan:
            typer.echo(training.plan(loaded, full, cache=kept, devices=count, memory_limit=memory_limit))
            return
        run, goes_on = chosen_run(loaded, Path(recipe).stem, out, overwrite, resume)
        if goes_on and run.is_finished():
            typer.echo(f"{run.path} is finished; try it: tempo-llm generate --model {run.model} --prompt TEXT")
            return
        typer.echo(f"{loaded.updates:,} updates of {loaded.batch}, seed {loaded.seed}, into {run.path}")
        shown = sys.stderr.isatty() if progress is None else progress
        limit = None if time_limit is None else time_limit * 60.0
        outcome = training.train(
            loaded, run, goes_on, shown, typer.echo, limit, cache=kept, devices=count, memory_limit=memory_limit
        )
        typer.echo(summary(outcome))
        if outcome.stopped is not None:
            kept = f"saved in {run.path}" if outcome.updates else "nothing is saved, and it begins again"
            typer.echo(f"stopped by {outcome.stopped} after update {outcome.updates:,}; {kept}", err=True)
            typer.echo(f"go on with: tempo-llm train {recipe} --resume {run.path}, and the same overrides", err=True)
            raise typer.Exit(exit_code(outcome))
        typer.echo(f"try it: tempo-llm generate --model {run.model} --prompt TEXT")


def main() -> None:
    """The console script. GPU memory is allocated as it is needed, unless XLA_PYTHON_CLIENT_PREALLOCATE says otherwise."""
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    open_streams()
    try:
        app()
    except OSError as error:  # the help cannot be written
        drop_output()
        typer.echo(f"error: {explained(error)}", err=True)
        sys.exit(1)
    except SystemExit as end:
        if "tempo_core.compiling" in sys.modules:  # not imported for the help
            from tempo_core.compiling import leave

            leave(end.code if isinstance(end.code, int) else end.code is not None)
        raise


if __name__ == "__main__":
    main()
