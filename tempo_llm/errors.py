"""Mistakes in a model directory or a request, as exceptions that say what is wrong and what to do."""

from __future__ import annotations


class LlmError(Exception):
    """Base of the errors of `tempo_llm`. `message` says what is wrong, `hint` what to do about it.

    Training raises the errors of `tempo_core.runs` too, which this module does not import: the command's help should not wait for the compiler.
    """

    def __init__(self, message: str, *, hint: str | None = None):
        self.message, self.hint = message, hint
        super().__init__(message if hint is None else f"{message}\n  hint: {hint}")


class ModelConfigError(LlmError):
    """A config.json or generation_config.json that is missing, damaged, or describes another kind of model."""


class CheckpointError(LlmError):
    """Weights that are missing, damaged, unused, or of the wrong shape or dtype."""


class TokenizerError(LlmError):
    """A tokenizer or chat template that is missing, damaged, or does not fit the model."""


class PatternError(LlmError):
    """An unknown attention pattern, a wrong size of one, or layers that do not fit the model."""


class RequestError(LlmError):
    """A generation request that cannot be served: no prompt, for example, or more tokens than the context holds."""


def shown(value: object, limit: int = 80) -> str:
    """A value of a file or a request as text for an error, cut where it is long."""
    try:
        text = repr(value)
    except ValueError:  # an integer with thousands of digits
        return "a very long number"
    return text if len(text) <= limit else f"{text[: limit - 3]}..."
