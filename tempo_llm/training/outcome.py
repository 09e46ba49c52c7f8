"""What came of a run of training: the content of result.json, a sentence, and the exit code of the command."""

from __future__ import annotations

import math
import signal
from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Outcome:
    """What came of a run. `stopped` says why it ended early: a signal, or the time. Losses are None before the first report.

    `figures` are further numbers of the newest report by their columns of metrics.csv; those of held-out rows are of the saved model, once it is
    finished. `first` are some of them before the first update.
    """

    updates: int
    loss: float | None
    held_out_loss: float | None
    tokens_per_second: float
    seconds: float
    compiles: int
    compile_seconds: float
    stopped: str | None = None
    exact: int | None = None  # of `prompts` held-out lessons, how many the model completes exactly
    prompts: int | None = None
    kinds: Mapping[str, tuple[int, int]] | None = None  # of these, the exact ones and all, by their kinds
    figures: Mapping[str, float] = field(default_factory=dict)
    first: Mapping[str, float] = field(default_factory=dict)


def summary(outcome: Outcome) -> str:
    """What came of a run, in words."""
    text = (
        f"{outcome.updates:,} updates in {outcome.seconds:.1f} s ({outcome.tokens_per_second:,.0f} tokens/s while training); compiled "
        f"{outcome.compiles} XLA programs in {outcome.compile_seconds:.1f} s"
    )
    for name, value in {**outcome.figures, "held_out_loss": outcome.held_out_loss}.items():
        if name in outcome.first:
            text = f"{text}; {name.replace('held_out_', 'held-out ')} {value:.3f} (before the first update: {outcome.first[name]:.3f})"
    if outcome.held_out_loss is not None and not outcome.first:
        text = f"{text}; perplexity of held-out text {math.exp(outcome.held_out_loss):.3f}"
    return text if outcome.prompts is None else f"{text}; {outcome.exact} of {outcome.prompts} held-out prompts completed exactly"


def exit_code(outcome: Outcome) -> int:
    """Of a process that was stopped: 128 and the number of the signal; 0 if its time was up."""
    name = outcome.stopped or ""
    return 128 + signal.Signals[name] if name in signal.Signals.__members__ else 0
