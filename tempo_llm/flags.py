"""Flags that several commands of `tempo-llm` share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tempo_llm import completion

ModelName = Annotated[
    str | None,
    typer.Option(
        "--model",
        "-m",
        help="A checkpoint directory, a name under checkpoints/, or a repository of Hugging Face. Without it: tiny-llama, which comes with this package.",
        autocompletion=completion.models,
    ),
]
Dtype = Annotated[
    str | None,
    typer.Option(
        help="Format of weights and keys: float32, bfloat16, float16; int8 or int4 (weights only).",
        show_default="the model's own if it is quantized, else float32",
    ),
]
AttentionFlag = Annotated[
    str | None,
    typer.Option(
        help="Which past tokens to attend to: full, window=W, window=W+sink=K, block=B, dilated=D or dilated=D+window=W. "
        "For ranges of layers: 0-3:full,4-:window=1024+sink=4. The default is the model's own."
    ),
]
MaxContext = Annotated[int | None, typer.Option(help="The most tokens of prompt and new text together.")]
MaxNewTokens = Annotated[
    int, typer.Option("--max-new-tokens", "--max-tokens", "-n", help="The most tokens to generate; fewer where the context ends.")
]
# How tokens are chosen. Without a flag, the model's own setting counts: what `generation_config.json` says.
Temperature = Annotated[
    float | None,
    typer.Option(
        help="0: always take the most likely token. Above 0: draw tokens at random.",
        show_default="the model's own, else 0; in a chat 0.7",
    ),
]
TopK = Annotated[int | None, typer.Option(help="Draw from the K most likely tokens (0: from all).")]
TopP = Annotated[float | None, typer.Option(help="Draw from the most likely tokens whose probabilities add up to this.")]
MinP = Annotated[float | None, typer.Option(help="Draw from tokens with at least this share of the largest probability.")]
RepetitionPenalty = Annotated[float | None, typer.Option(help="Above 1: make tokens that are already in the text less likely.")]
FrequencyPenalty = Annotated[float, typer.Option(help="Lower the logit of a token by this for each time that it is in the text.")]
PresencePenalty = Annotated[float, typer.Option(help="Lower the logit of a token by this if it is in the text.")]
LogitBias = Annotated[
    list[str] | None,
    typer.Option(metavar="ID=VALUE", help="Add VALUE to the logit of token ID; -inf excludes the token. Repeatable."),
]
Seed = Annotated[int, typer.Option(help="Seed of the random draws. They depend on the seed, the prompt and the position only.")]
SystemPrompt = Annotated[str | None, typer.Option(help="A system message for the chat template.")]
Device = Annotated[str | None, typer.Option(help="cpu, cuda, gpu or tpu (default: the choice of JAX).")]
Devices = Annotated[
    str, typer.Option(metavar="N|auto", help="Spread the texts over N devices (on a CPU: cores); auto: as many as help.")
]
MemoryLimit = Annotated[
    str | None, typer.Option(metavar="SIZE", help="The most memory of a program, such as 2GiB: the fastest form of it that fits.")
]
PromptCache = Annotated[
    Path | None,
    typer.Option(
        "--prompt-cache",
        metavar="DIR",
        help="Keep in this directory what is computed of prompts, for prompts that begin in the same way.",
    ),
]
CacheDir = Annotated[
    Path | None,
    typer.Option(
        "--cache",
        "--compile-cache",
        metavar="DIR",
        help="Directory for compiled programs (default: $TEMPO_CACHE, else ~/.cache/tempo).",
    ),
]
NoCache = Annotated[bool, typer.Option("--no-cache", help="Compile again, and keep no compiled program.")]
Verbose = Annotated[bool, typer.Option("--verbose", "-v", help="Print timings to standard error.")]
Speculate = Annotated[
    int,
    typer.Option(
        "--speculate",
        metavar="K",
        help="Draft K tokens in each round: what the model would choose too is taken at once. The text is the same.",
    ),
]
DraftModel = Annotated[
    str | None,
    typer.Option(
        "--draft-model",
        metavar="NAME",
        help="With --speculate: a smaller model of the same vocabulary that drafts. Without it, n-grams of prompt and text do.",
        autocompletion=completion.models,
    ),
]
