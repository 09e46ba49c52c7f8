"""The command line: `tempo-llm generate --model DIR --prompt TEXT`."""

from __future__ import annotations

import json
import os
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from tempo_core.errors import TempoError
from tempo_llm.attention import PATTERNS, Attention
from tempo_llm.errors import LlmError, RequestError
from tempo_llm.generate import Completion, Generation, Generator
from tempo_llm.json_files import JsonObject
from tempo_llm.tokenizer import Tokenizer

app = typer.Typer(add_completion=False, no_args_is_help=True, help="Generate text with Llama models, compiled by Tempo.")

CHECKPOINTS = Path("checkpoints")
STDIN = "-"
PROFILE = Path("profile.svg")  # in the working directory
_ATTENTION = f"The past tokens to attend to: {', '.join(PATTERNS)}; by layers as in 0-3:full,4-:window=1024+sink=4."

_CACHE = "Where compiled programs are kept [default: $TEMPO_CACHE, else ~/.cache/tempo]."


@app.callback()
def _root() -> None:
    """Generate text with Llama models, compiled by Tempo."""  # a callback keeps `generate` a command of its own


@app.command()
def generate(
    source: Annotated[str, typer.Argument(help="`-` reads a prompt from standard input.", show_default=False)] = "",
    model: Annotated[str, typer.Option("--model", "-m", help="A checkpoint directory, or a name under checkpoints/.")] = "",
    prompt: Annotated[list[str] | None, typer.Option("--prompt", "-p", help="A prompt; repeat it for a batch.")] = None,
    file: Annotated[list[str] | None, typer.Option("--file", "-f", help="A file that holds one prompt; `-` is stdin.")] = None,
    system_prompt: Annotated[str | None, typer.Option(help="A system message for the chat template.")] = None,
    raw: Annotated[bool, typer.Option("--raw", help="Give prompts as they are, without the chat template.")] = False,
    max_new_tokens: Annotated[int, typer.Option("--max-new-tokens", "--max-tokens", "-n", help="Tokens to generate.")] = 128,
    temperature: Annotated[float, typer.Option(help="0 takes the most likely token; above 0 tokens are drawn.")] = 0.0,
    seed: Annotated[int, typer.Option(help="Draws are a function of the seed, the prompt's place and the position.")] = 0,
    ignore_eos: Annotated[bool, typer.Option("--ignore-eos", help="Go on after an end token.")] = False,
    stop_token_id: Annotated[list[int] | None, typer.Option(help="A further token that ends the text; repeatable.")] = None,
    attention: Annotated[str | None, typer.Option(help=_ATTENTION)] = None,
    max_context: Annotated[int | None, typer.Option(help="Most tokens of prompt and continuation together.")] = None,
    plan: Annotated[bool, typer.Option("--plan", help="Print what would be stored and run, and stop.")] = False,
    full: Annotated[
        bool, typer.Option("--full", help="With --plan: each statement and each store on a line of its own.")
    ] = False,
    profile: Annotated[
        bool, typer.Option("--profile", help="Print where the time goes to standard error, and draw profile.svg.")
    ] = False,
    memory_picture: Annotated[
        Path | None,
        typer.Option("--memory-picture", metavar="FILE", help="With --plan: draw the memory over its order, as .svg."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object instead of text.")] = False,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Print timings to standard error.")] = False,
    cache: Annotated[Path | None, typer.Option("--cache", metavar="DIR", help=_CACHE)] = None,
    no_cache: Annotated[bool, typer.Option("--no-cache", help="Compile anew, and keep nothing.")] = False,
) -> None:
    """Continue one or more prompts."""
    try:
        texts = _prompts(source, prompt or [], file or [])
        request = _Request(
            max_new_tokens, temperature, seed, frozenset(stop_token_id or ()), ignore_eos, raw, system_prompt, max_context
        )
        started = time.perf_counter()
        directory = _model_directory(model)
        tokenizer = Tokenizer.from_directory(directory)
        ids = _encode(tokenizer, texts, request)
        kept = False if no_cache else True if cache is None else str(cache)
        patterns = None if attention is None else Attention.parse(attention)
        generator = Generator.from_directory(directory, patterns, cache=kept)
        load_seconds = time.perf_counter() - started
        if plan:
            made = generator.plan(
                ids, max_new_tokens, temperature=temperature, max_context=max_context, full=full, as_json=as_json,
                picture=memory_picture,
            )  # fmt: skip
            typer.echo(made)
            return
        result = request.run(generator, ids, profile)
        if result.profile is not None:
            result.profile.draw(PROFILE)
    except (LlmError, TempoError) as error:
        typer.echo(f"error: {error}", err=True)
        raise typer.Exit(1) from None
    answers = [tokenizer.decode(completion.token_ids) for completion in result.completions]
    if as_json:
        typer.echo(json.dumps(_report(str(directory), texts, answers, result, load_seconds)))
    else:
        typer.echo("\n\n".join(answers))
    if result.profile is not None:
        typer.echo(f"{result.profile}\nthe flame picture is {PROFILE}", err=True)
    if verbose:
        typer.echo(_timings(result, load_seconds), err=True)


@dataclass(frozen=True)
class _Request:
    """A request, as the flags describe it."""

    max_new_tokens: int
    temperature: float
    seed: int
    stop_ids: frozenset[int]
    ignore_eos: bool
    raw: bool
    system_prompt: str | None
    max_context: int | None

    def run(self, generator: Generator, ids: list[list[int]], profile: bool) -> Generation:
        stops = self.stop_ids if self.ignore_eos else self.stop_ids | set(generator.config.eos_ids)
        return generator.generate(
            ids,
            self.max_new_tokens,
            temperature=self.temperature,
            seed=self.seed,
            stop_ids=stops,
            max_context=self.max_context,
            profile=profile,
        )


def _prompts(source: str, prompts: list[str], files: list[str]) -> list[str]:
    """The prompts in the order --prompt, --file, `-`. Each file is one prompt, and so is standard input."""
    if source not in ("", STDIN):
        raise RequestError(f"unexpected argument {source!r}", hint="give the prompt with --prompt TEXT, --file PATH or `-`")
    texts = list(prompts)
    for name in [*files, *([source] if source else [])]:
        try:
            texts.append(sys.stdin.read() if name == STDIN else Path(name).read_text(encoding="utf-8"))
        except (OSError, UnicodeDecodeError) as error:
            raise RequestError(f"cannot read the prompt in {name}: {error}") from None
    if not texts:
        raise RequestError("there is no prompt", hint="give one with --prompt TEXT, --file PATH, or `-` for standard input")
    return texts


def _model_directory(model: str) -> Path:
    """The directory `model` itself, else the model of that name under checkpoints/."""
    if not model:
        raise RequestError("there is no model", hint="give a checkpoint directory with --model DIR")
    for candidate in (Path(model), CHECKPOINTS / model):
        if candidate.is_dir():
            return candidate
    names = sorted(path.parent.name for path in CHECKPOINTS.glob("*/config.json"))
    raise RequestError(
        f"{model} is neither a directory nor a model under {CHECKPOINTS}/",
        hint=f"the models there are: {', '.join(names) or 'none'}; nothing is downloaded, so give a directory: --model DIR",
    )


def _encode(tokenizer: Tokenizer, texts: list[str], request: _Request) -> list[list[int]]:
    """Token ids of the prompts, through the model's chat template. If it has none, a note says so."""
    raw = request.raw
    if not raw and tokenizer.template is None:
        typer.echo("note: this model has no chat template; prompts are given as they are (--raw)", err=True)
        raw = True
    return [tokenizer.encode(text, raw=raw, system_prompt=request.system_prompt) for text in texts]


def _report(model: str, texts: list[str], answers: list[str], result: Generation, load_seconds: float) -> JsonObject:
    """The object of --json. If there is one prompt, its `token_ids` and `text` are at the top level too."""
    completions = [
        _completion(text, answer, completion) for text, answer, completion in zip(texts, answers, result.completions, strict=True)
    ]
    only_completion = {key: completions[0][key] for key in ("token_ids", "text")} if len(completions) == 1 else {}
    return {
        "model": model,
        **only_completion,
        "completions": completions,
        "positions": result.length,
        "compiles": result.compiles,
        "loads": result.loads,
        "timings": {
            "load_seconds": load_seconds,
            "compile_seconds": result.compile_seconds,
            "run_seconds": result.run_seconds,
        },
    }


def _completion(prompt: str, text: str, completion: Completion) -> JsonObject:
    return {
        "prompt": prompt,
        "prompt_token_ids": list(completion.prompt_ids),
        "token_ids": list(completion.token_ids),
        "text": text,
        "finish_reason": completion.finish_reason,
    }


def _timings(result: Generation, load_seconds: float) -> str:
    rate = result.length * len(result.completions) / max(result.run_seconds, 1e-9)
    kept = f", {result.loads} more came from the cache" if result.loads else ""
    return (
        f"loaded in {load_seconds:.2f} s; compiled {result.compiles} programs in {result.compile_seconds:.2f} s{kept}; "
        f"{result.length} positions of {len(result.completions)} prompts in {result.run_seconds:.2f} s ({rate:.1f} positions/s)"
    )


def main() -> None:
    """The console script. GPU memory is allocated as it is needed, unless XLA_PYTHON_CLIENT_PREALLOCATE says otherwise."""
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    app()


if __name__ == "__main__":
    main()
