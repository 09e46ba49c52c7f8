"""The command line itself: its options, and mistakes as messages."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Annotated

import typer

from tempo_core.runs.commands import announcing
from tempo_core.runs.recipe import check_flags
from tempo_core.runs.stop import exit_status
from tempo_rl import completion
from tempo_rl.errors import RLError
from tempo_rl.streams import aside, echo, kept

app = typer.Typer(
    name="tempo-rl",
    help="Train and evaluate reinforcement-learning agents. A recipe says what to train; Tempo compiles it to one program.",
    no_args_is_help=True,
    add_completion=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)

RecipeArgument = Annotated[
    str,
    typer.Argument(
        metavar="RECIPE",
        help="A YAML file, or the name of a shipped recipe (`tempo-rl ls` lists them).",
        autocompletion=completion.recipes,
    ),
]
Overrides = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[KEY=VALUE]...",
        help="Change keys of the recipe: learning-rate=1e-3 env.kwargs.gravity=9.8.",
        autocompletion=completion.overrides,
    ),
]


CacheDirectory = Annotated[
    Path | None,
    typer.Option("--cache", metavar="DIR", help="Directory for compiled programs [default: $TEMPO_CACHE, else ~/.cache/tempo]."),
]
NoCache = Annotated[bool, typer.Option("--no-cache", help="Compile again, and keep no compiled program.")]
MemoryLimit = Annotated[
    str | None,
    typer.Option(metavar="SIZE", help="The most memory of the program, such as 2GiB: the fastest form of it that fits."),
]
Devices = Annotated[
    str,
    typer.Option(metavar="N|auto", help="Spread the environments over N devices (on a CPU: cores); auto: as many as help."),
]
AsJson = Annotated[
    bool, typer.Option("--json", help="Print the result as JSON, one object a line, and everything else to standard error.")
]

_show_traceback = False


def chosen_cache(directory: Path | None, off: bool) -> str | bool:
    """The `cache` of a `tempo_core.Config`: the usual place, unless flags say otherwise."""
    return False if off else True if directory is None else str(directory)


@contextmanager
def errors_as_messages() -> Iterator[None]:
    """Turn a user's mistake into its message and exit status 1, without a traceback, and say what XLA compiles for long."""
    try:
        with announcing(lambda text: echo(text, err=True)):
            yield
    except KeyboardInterrupt as error:
        echo("interrupted; nothing was changed", fg=typer.colors.RED, err=True)
        raise typer.Exit(exit_status(error)) from error
    except OSError as error:
        if _show_traceback:
            raise
        echo(f"error: {of_the_system(error)}", fg=typer.colors.RED, err=True)
        raise typer.Exit(1) from error
    except Exception as error:
        if _show_traceback:
            raise
        compiler = sys.modules.get("tempo_core.errors")  # not imported for commands that need no compiler
        if not isinstance(error, (RLError, compiler.TempoError) if compiler else RLError):
            raise
        echo(f"error: {error}", fg=typer.colors.RED, err=True)
        raise typer.Exit(1) from error


def of_the_system(error: OSError) -> str:
    """What the system refuses: a name of hundreds of letters, a full disk behind the standard output."""
    name = str(error.filename or "the output")
    return f"{name if len(name) <= 80 else name[:77] + '...'}: {error.strerror or error}"


def _show_version(is_wanted: bool) -> None:
    if is_wanted:
        from importlib.metadata import version

        echo(f"tempo-rl {version('tempo-dl')}")
        raise typer.Exit


@app.callback(help=app.info.help)
def before_any_command(
    context: typer.Context,
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version and exit.")
    ] = False,
    show_traceback: Annotated[bool, typer.Option("--traceback", help="Show errors with their Python traceback.")] = False,
) -> None:
    """Set the options that JAX reads when it is imported."""
    global _show_traceback
    _show_traceback = show_traceback
    context.with_resource(kept())
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")  # allocate GPU memory only as it is needed


def shows_traceback() -> bool:
    """Whether the user asked for Python's tracebacks."""
    return _show_traceback


def with_limit(overrides: list[str] | None, memory_limit: str | None) -> list[str]:
    """Overrides with that of the flag --memory-limit."""
    flags = [] if memory_limit is None else [f"memory_limit={memory_limit}"]
    check_flags(overrides or [], flags)
    return [*(overrides or []), *flags]


def others_aside(as_json: bool) -> AbstractContextManager[object]:
    """Inside, what environments print goes to the standard error, if the standard output is for JSON."""
    return aside() if as_json else nullcontext()


def say_imports(references: list[str]) -> None:
    echo(f"note: this recipe imports {', '.join(references)}", err=True)
