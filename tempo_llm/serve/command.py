"""The command `tempo-llm serve`."""

from __future__ import annotations

import logging
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tempo_llm import completion
from tempo_llm.command_errors import reported
from tempo_llm.errors import RequestError
from tempo_llm.flags import AttentionFlag, CacheDir, Device, Dtype, NoCache, PromptCache

if TYPE_CHECKING:
    from tempo_llm.model import Model

LEVELS = ("debug", "info", "warning", "error", "critical")


def serve(
    source: Annotated[
        str | None, typer.Argument(metavar="[MODEL]", help="The model, as --model names it.", autocompletion=completion.models)
    ] = None,
    model: Annotated[
        str | None,
        typer.Option(
            "--model",
            "-m",
            help="A checkpoint directory, a name under checkpoints/, or a repository of Hugging Face. Without it: tiny-llama.",
            autocompletion=completion.models,
        ),
    ] = None,
    host: Annotated[str, typer.Option(help="The address to listen at; 0.0.0.0 is all of this machine.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="The port; 0 takes a free one.")] = 8000,
    api_key: Annotated[
        str | None,
        typer.Option(envvar="TEMPO_API_KEY", help="A key that clients must send. Better in $TEMPO_API_KEY: others see flags."),
    ] = None,
    rows: Annotated[int, typer.Option(help="How many texts are written at a time; others wait.")] = 8,
    fixed_rows: Annotated[
        bool,
        typer.Option(
            "--fixed-rows",
            help="Compute all rows at each token, in one program: an answer is then the same beside any others, bit for bit, and costs more.",
        ),
    ] = False,
    max_context: Annotated[
        int, typer.Option(help="The most tokens of prompt and new text together, of each row; no more than the model's own.")
    ] = 2048,
    max_new_tokens: Annotated[int, typer.Option("--max-new-tokens", help="The most tokens that a request may ask for.")] = 1024,
    queue: Annotated[int, typer.Option(help="How many texts may wait for a row; further requests get the status 429.")] = 256,
    max_bytes: Annotated[int, typer.Option(help="The longest body of a request.")] = 2**20,
    timeout: Annotated[float, typer.Option(help="The most seconds that a request may take, its wait included.")] = 600.0,
    served_model_name: Annotated[
        str | None, typer.Option(help="The name by which clients ask for the model.", show_default="that of its directory")
    ] = None,
    dtype: Dtype = None,
    device: Device = None,
    attention: AttentionFlag = None,
    prompt_cache: PromptCache = None,
    plan: Annotated[bool, typer.Option("--plan", help="Print the programs and the memory of the server, and stop.")] = False,
    log_level: Annotated[str, typer.Option(help=f"What is printed: {', '.join(LEVELS)}.")] = "info",
    cache: CacheDir = None,
    no_cache: NoCache = False,
) -> None:
    """Serve a model over HTTP, in the form of OpenAI's interface; clients share its programs."""
    with reported() as command:
        if source is not None and model is not None and source != model:
            raise RequestError(f"two models are named, {source} and {model}", hint="leave one of them out")
        if log_level not in LEVELS:
            raise RequestError(f"there is no log level {log_level!r}", hint=f"one of {', '.join(LEVELS)}")
        for flag, value in (("--max-new-tokens", max_new_tokens), ("--max-bytes", max_bytes), ("--timeout", timeout)):
            if not value > 0:
                raise RequestError(f"{flag} is {value:g}; it must be above 0")
        if api_key is not None and not (api_key and api_key.isascii() and api_key.isprintable() and " " not in api_key):
            raise RequestError(
                "the key must be ASCII text without spaces, and not empty", hint="leave it out to serve without a key"
            )
        try:
            from tempo_llm.serve.server import Settings, Sizes, bound, engine_of, is_loopback
            from tempo_llm.serve.server import serve as run
        except ImportError as error:
            raise RequestError(f"serving needs the package {error.name}", hint="pip install 'tempo-dl[serve]'") from None
        logging.basicConfig(level=log_level.upper(), format="%(levelname)s: %(message)s")
        logging.getLogger("jax").setLevel(logging.WARNING)
        sizes = Sizes(rows, max_context, queue, fixed_rows)
        sizes.check()
        if plan:
            from tempo_llm.serve.plan import plan_of

            typer.echo(plan_of(_loaded(command, source or model, dtype, attention, cache, no_cache, device).generator, sizes))
            return
        listener = bound(host, port)  # before the model is read: that may take long
        command.callback(listener.close)
        if not is_loopback(host) and api_key is None:
            typer.echo(f"warning: {host} is open to other machines, and no key is set: --api-key, or $TEMPO_API_KEY", err=True)
        loaded = _loaded(command, source or model, dtype, attention, cache, no_cache, device)
        name = served_model_name or loaded.directory.stem
        engine = engine_of(loaded, sizes, prompt_cache)
        if engine.prefixes is None:
            typer.echo("note: prompts share nothing: this model has layers with a state", err=True)
        settings = Settings(name, api_key, max_new_tokens, max_bytes, timeout)
        run(loaded, engine, settings, listener, log_level, typer.echo)


def _loaded(
    command: ExitStack,
    model: str | None,
    dtype: str | None,
    attention: str | None,
    cache: Path | None,
    no_cache: bool,
    device: str | None,
) -> Model:
    from tempo_core.runs.commands import announcing
    from tempo_core.runs.device import use_device
    from tempo_llm.hub import IN_THE_BOX, locate, shipped_checkpoints
    from tempo_llm.model import load

    command.enter_context(announcing(lambda text: typer.echo(text, err=True)))
    use_device(device, "1")
    if model is None:
        typer.echo(f"note: the model is {IN_THE_BOX}, which knows a small language; --model DIR takes another", err=True)
    directory = shipped_checkpoints() / IN_THE_BOX if model is None else locate(model)
    kept = False if no_cache else True if cache is None else str(cache)
    return load(directory, dtype, attention, lazily=True, cache=kept)
