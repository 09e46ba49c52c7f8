"""The command `tempo-rl`, also as `python -m tempo_rl`."""

MODULES = frozenset({"gymnasium", "flax", "pydantic", "typer", "rich", "yaml", "matplotlib", "PIL", "scipy"})  # of the extra `rl`


def main() -> None:
    """Run the command, or say what to install for it."""
    try:
        from tempo_rl.cli import main as command

        command()
    except ModuleNotFoundError as error:
        from tempo_core.runs.commands import name_the_extra

        name_the_extra(error, "tempo-rl", "rl", MODULES)


if __name__ == "__main__":
    main()
