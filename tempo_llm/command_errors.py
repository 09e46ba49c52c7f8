"""How commands report errors: as one line on standard error, with the exit code 1."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import typer

from tempo_llm.errors import LlmError
from tempo_llm.streams import check_output, drop_output, explained


@contextlib.contextmanager
def reported(prints: bool = True) -> Iterator[contextlib.ExitStack]:
    """What a user can do wrong, and what a machine lacks, is one line on standard error and the exit code 1.

    What is entered into the stack lasts as long as the command. A command that `prints` what it computes needs a standard output.
    """
    try:
        if prints:
            check_output()
        with contextlib.ExitStack() as stack:
            yield stack
    except LlmError as error:
        fail(str(error))
    except (typer.Exit, typer.BadParameter):
        raise
    except KeyboardInterrupt as error:
        from tempo_core.runs.stop import exit_status

        typer.echo("interrupted", err=True)
        raise typer.Exit(exit_status(error)) from None
    except BrokenPipeError:  # the reader has seen enough
        drop_output()
        raise typer.Exit(0) from None
    except OSError as error:
        drop_output()
        fail(explained(error))
    except MemoryError:
        fail("this machine has too little memory for the request\n  hint: ask for fewer tokens or samples, or --dtype int8")
    except Exception as error:
        from tempo_core.errors import TempoError
        from tempo_core.runs.commands import UserError

        if not isinstance(error, (TempoError, UserError)):
            raise
        fail(str(error))


def fail(message: str) -> None:
    typer.echo(f"error: {message}", err=True)
    raise typer.Exit(1)
