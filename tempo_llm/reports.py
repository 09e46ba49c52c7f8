"""What `tempo-llm generate` says of what came: the object of --json, the figures of --verbose, the picture of a profile."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from tempo_llm.json_files import JsonObject
from tempo_llm.lines import Line, completion_report

if TYPE_CHECKING:
    from tempo_core import Profile
    from tempo_llm.generate import Generation
    from tempo_llm.model import Model

PROFILE = Path("profile.json")  # in the working directory


def with_texts(model: Model, result: Generation, stops: Sequence[str]) -> Generation:
    """A result with the texts of its tokens, each up to a stop string."""
    from dataclasses import replace

    from tempo_llm.writer import Writer

    completions = []
    for each in result.completions:
        writer = Writer(model.tokenizer, stops, each.prompt_ids)
        writer.write(each.token_ids, True)
        if writer.is_stopped:
            logprobs = None if each.logprobs is None else each.logprobs[: writer.length]
            each = replace(each, token_ids=each.token_ids[: writer.length], finish_reason="stop", logprobs=logprobs)
        completions.append(replace(each, text=writer.text))
    return replace(result, completions=tuple(completions))


def drawn_profile(profile: Profile) -> str:
    """Draw the flame picture of a profile; what came of it, as a line."""
    from tempo_core.errors import ConfigError

    try:
        profile.draw(PROFILE)
    except ConfigError as error:  # the texts are printed all the same
        return f"note: {str(error).splitlines()[0]}"
    return f"the flame picture is {PROFILE}"


def report_of(model: Model, lines: Sequence[Line], result: Generation, load_seconds: float) -> JsonObject:
    """The object of --json. If there is one completion, its `token_ids` and `text` are at the top level too."""
    reports = [completion_report(lines[each.prompt], each, model.tokenizer) for each in result.completions]
    only_completion = {key: reports[0][key] for key in ("token_ids", "text")} if len(reports) == 1 else {}
    return {
        "model": str(model.directory),
        **only_completion,
        "completions": reports,
        "positions": result.length,
        "capacity": result.capacity,
        "compiles": result.compiles,
        "loads": result.loads,
        **_speculation(result),
        "timings": {
            "load_seconds": load_seconds,
            "prepare_seconds": result.prepare_seconds,
            "compile_seconds": result.compile_seconds,
            "run_seconds": result.run_seconds,
        },
    }


def _speculation(result: Generation) -> JsonObject:
    """What came of speculation, if there was any."""
    if not result.rounds:
        return {}
    counts = {"rounds": result.rounds, "accepted": result.accepted, "accepted_per_round": result.accepted_per_round}
    return {"speculation": counts}


def timings(result: Generation, load_seconds: float) -> str:
    tokens = sum(len(completion.token_ids) for completion in result.completions)
    compiled = f"compiled {result.compiles} programs" if result.compiles or not result.loads else ""
    kept = f"loaded {result.loads} programs from the cache" if result.loads else ""
    first = "" if result.first_token_seconds is None else f"first token after {result.first_token_seconds:.3f} s; "
    each = f"{result.accepted_per_round:.2f} drafted tokens stayed in each of {result.rounds} rounds; "
    rounds = each if result.rounds else ""
    return (
        f"loaded the model in {load_seconds:.2f} s; prepared its program in {result.prepare_seconds:.2f} s; "
        f"{' and '.join(filter(None, (compiled, kept)))} in {result.compile_seconds:.2f} s; {first}"
        f"{tokens} tokens in {result.run_seconds:.2f} s ({tokens / max(result.run_seconds, 1e-9):.1f} tokens/s); "
        f"{result.length} positions of {result.capacity}; {rounds}peak memory {peak_memory()}"
    )


def peak_memory() -> str:
    try:
        import resource
    except ImportError:  # not on this system
        return "unknown"
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
    return f"{peak / 2**20:.0f} MiB"
