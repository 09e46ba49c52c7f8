"""The command `tempo-llm`, also as `python -m tempo_llm`."""

MODULES = frozenset({"tokenizers", "sentencepiece", "jinja2", "pydantic", "typer", "rich", "yaml"})  # of the extra `llm`


def main() -> None:
    """Run the command, or say what to install for it."""
    try:
        from tempo_llm.cli import main as command

        command()
    except ModuleNotFoundError as error:
        from tempo_core.runs.commands import name_the_extra

        name_the_extra(error, "tempo-llm", "llm", MODULES)


if __name__ == "__main__":
    main()
