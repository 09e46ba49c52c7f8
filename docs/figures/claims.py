"""What the front page claims, with the file that proves it: the rows of its results, and its sentences.

`python -m docs.figures` writes the table of results into README.md and the whole list to docs/claims.md. A test checks that both are up to
date with the records, that each sentence stands in README.md, that each file is there, and that no number in README.md is without a claim.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from docs.figures.charts import BESIDE, CHARTS, MACHINE, record

ROOT = Path(__file__).resolve().parents[2]
README, PAGE = ROOT / "README.md", ROOT / "docs" / "claims.md"
TABLE = re.compile(r"(<!-- results -->\n).*?(<!-- end of results -->)", re.DOTALL)
SENTENCES = ROOT / "docs" / "figures" / "sentences.txt"

Record = Mapping[str, Any]


@dataclass(frozen=True)
class Row:
    """A ratio: Tempo's figure over that of a peer, so that below 1 Tempo is better; and where it is recorded."""

    work: str
    peer: str
    ratio: float
    figures: str  # Tempo's and the peer's, with their unit
    benchmark: str
    where: str  # of the record, in words

    @property
    def path(self) -> str:
        return f"benchmarks/results/{self.benchmark}-{MACHINE}.json"


def rows() -> list[Row]:
    """All rows whose figures are recorded."""
    all_rows: list[Row] = []
    for benchmark, make in SOURCES:
        recorded = record(benchmark)
        if recorded is not None:
            for work, peer, ratio, figures, where in make(recorded):
                all_rows.append(Row(work, peer, ratio, figures, benchmark, where))
    return all_rows


# -- rows of each record ----------------------------------------------------------------------------------------------

Found = Iterator[tuple[str, str, float, str, str]]


def _classics(recorded: Record) -> Found:
    ratios = [case["ratio"]["median"] for case in recorded["cases"] if "ratio" in case]
    mean = math.exp(sum(map(math.log, ratios)) / len(ratios))
    size = "" if recorded["cases"][0]["size"] == "full" else f", {recorded['cases'][0]['size']} sizes"
    spread = f"geometric mean; {min(ratios):.2f} to {max(ratios):.2f}"
    yield f"{len(ratios)} classical programs{size}: time", "JAX by hand", mean, spread, "the median ratio of each case"


def _sides(name: str, unit: str, key: str, cases: Mapping[str, str]) -> Callable[[Record], Found]:
    """Rows of cases that compare the medians of sides: `cases` gives the case's name and how the row calls the work."""

    def make(recorded: Record) -> Found:
        for case in recorded["cases"]:
            if case["case"] not in cases:
                continue
            ours = case[key]["tempo"]
            for peer in PEERS:
                forms = [side for side in case[key] if side == peer or side.startswith(f"{peer}, ")]
                if forms:  # a peer has several forms: the fastest counts
                    theirs = case[key][min(forms, key=lambda side: case[key][side]["median"])]
                    figures = f"{_short(ours['median'])} and {_short(theirs['median'])} {unit}"
                    ratio = 1 / theirs["ratio_to_first"]
                    yield f"{name}, {cases[case['case']]}: time", peer, ratio, figures, f"{case['case']}, {key}"

    return make


def _memory(recorded: Record) -> Found:
    case = max(recorded["cases"], key=lambda each: int(each.get("envs", 0)))
    ours, theirs = (case["bytes"][side]["grown"] / 1e6 for side in ("tempo", "JAX by hand"))
    work = f"PPO, {case['envs']:,} environments in JAX x {case['steps']} steps: memory"
    yield work, "JAX by hand", ours / theirs, f"{ours:,.0f} and {theirs:,.0f} MB, measured", f"{case['case']}, grown"
    for case in (case for case in recorded["cases"] if "tempo with a limit" in case["bytes"]):
        ours, theirs = (case["bytes"][side]["grown"] / 1e6 for side in ("tempo with a limit", "JAX by hand"))
        work = f"Gradient of a recurrent network, {case['steps']:,} steps, under a limit: memory"
        yield work, "JAX by hand", ours / theirs, f"{ours:,.1f} and {theirs:,.0f} MB, measured", f"{case['case']}, grown"
    for case in (case for case in recorded["cases"] if case["case"] == "n-step TD on pictures, 1000 steps"):
        ours, theirs = (case["bytes"][side]["grown"] / 1e6 for side in ("tempo", "JAX by hand"))
        work = f"n-step TD on {case['rows']} pictures of 3 x 64 x 64 bytes, {case['steps']:,} steps"
        yield (
            f"{work}: memory",
            "JAX by hand",
            ours / theirs,
            f"{ours:,.1f} and {theirs:,.0f} MB, measured",
            f"{case['case']}, grown",
        )
        ours, theirs = (case["ms"][side] for side in ("tempo", "JAX by hand"))
        yield f"{work}: time", "JAX by hand", ours / theirs, f"{ours:,.0f} and {theirs:,.0f} ms", f"{case['case']}, ms"


def _learning(recorded: Record) -> Found:
    for case in recorded["cases"]:
        for peer, seconds in case["seconds"].items():
            if not peer.startswith("tempo"):
                ours = case["seconds"]["tempo"]
                work = f"{case['case']}, {case['steps']:,} steps from a cold start: time"
                yield work, peer, ours / seconds, f"{_short(ours)} and {_short(seconds)} s", f"{case['case']}, seconds"


FRONT = ("learning", "decoding", "memory", "classics")  # the charts of README.md
PEERS = ("JAX by hand", "PyTorch by hand", "transformers")
SOURCES: Sequence[tuple[str, Callable[[Record], Found]]] = (
    ("classics", _classics),
    ("classics-small", _classics),
    ("classics-long", _classics),
    (BESIDE, _learning),
    (
        "ppo",
        _sides(
            "PPO",
            "ms an iteration",
            "ms_per_iteration",
            {
                "functional recipe": "CartPole in JAX, 32 environments x 64 steps",
                "functional 512x250": "CartPole in JAX, 512 x 250",
                "micro 512x250": "one update a rollout, 512 x 250",
                "host recipe": "CartPole on the host, 32 x 64",
            },
        ),
    ),
    ("memory", _memory),
    (
        "decode",
        _sides(
            "Decoding",
            "ms a token",
            "ms_per_token",
            {
                "107M rows=1 positions=250..1000": "107M parameters, one row, positions 250 to 1,000",
                "107M rows=4 positions=250..1000": "107M parameters, four rows, positions 250 to 1,000",
                "tiny rows=1 length=128": "0.1M parameters, 128 positions",
                "5M rows=1 length=1024": "5M parameters, 1,024 positions",
                "5M rows=4 length=256": "5M parameters, four rows of 256 positions",
                "100M rows=1 length=512": "100M parameters, 512 positions",
            },
        ),
    ),
    (
        "decode-curve",
        _sides(
            "Decoding",
            "ms a token",
            "ms_per_token",
            {
                "curve 5M length=256": "5M parameters, 256 positions",
                "curve 5M length=4096": "5M parameters, 4,096 positions",
            },
        ),
    ),
    ("prefill", _sides("First token", "ms", "ms", {"100M rows=1 prompt=512": "100M parameters, a prompt of 512"})),
)


def _short(value: float) -> str:
    """Three digits: 0.0294, 1.02, 20.5, 787."""
    return f"{value:.3g}" if value < 1000 else f"{value:,.0f}"


# -- pages ------------------------------------------------------------------------------------------------------------


# Five sentences of the front page: (the beginnings of the rows' works and their peer) and a text with a place for each ratio, in their order.
HIGHLIGHTS: Sequence[tuple[Sequence[tuple[str, str]], str]] = (
    (
        (("123 classical programs: time", "JAX by hand"), ("123 classical programs, small sizes: time", "JAX by hand")),
        "**Classical programs.** Over 123 of them, Tempo takes {} times as long as JAX by hand at full size, and {} times at tiny sizes, where a call "
        "costs more than the work.",
    ),
    (
        (
            ("PPO, one update a rollout", "JAX by hand"),
            ("PPO, CartPole in JAX, 512 x 250", "JAX by hand"),
            ("CartPole as in PureJaxRL", "JAX by hand"),
        ),
        "**PPO.** An iteration takes {} times as long as in JAX by hand with one update, {} times with epochs of minibatches; from a cold start to the "
        "end of PureJaxRL's CartPole, compiling included, {} times.",
    ),
    (
        (("PPO, 8,192 environments", "JAX by hand"), ("Gradient of a recurrent network", "JAX by hand")),
        "**Memory.** PPO with 8,192 environments takes {} of JAX's memory, and the gradient of a recurrent network over 100,000 steps {} under a limit.",
    ),
    (
        (("Decoding, 100M parameters, 512", "JAX by hand"), ("Decoding, 5M parameters, four rows", "JAX by hand")),
        "**Decoding.** A token of a Llama of 100M parameters takes {} times as long as the best of three forms by hand in JAX, "
        "and of one of 5M, in four rows, {} times.",
    ),
    (
        (("First token, 100M parameters, a prompt of 512", "JAX by hand"),),
        "**Prompts.** The first token behind a prompt of 512 takes {} times as long as in JAX by hand.",
    ),
)


def highlights(rows: Sequence[Row]) -> list[str]:
    """Five results, of which some are losses. Raises ValueError for a sentence whose rows are not recorded."""
    lines = []
    for works, text in HIGHLIGHTS:
        ratios = []
        for work, peer in works:
            row = next((row for row in rows if row.work.startswith(work) and row.peer == peer), None)
            if row is None:
                raise ValueError(f"no record has the row {work!r} against {peer!r}, of which a sentence of the front page speaks")
            ratios.append(f"{row.ratio:.2f}")
        lines.append(f"- {text.format(*ratios)}")
    return lines


def table(rows: Sequence[Row]) -> str:
    """The results as README.md shows them: five sentences, the way to the others, the machine, and the curves that are recorded."""
    where = "[All results](docs/results.md#at-a-glance), [the files behind them](docs/claims.md), and [how they are measured](benchmarks/README.md)."
    shown = [f"![{CHARTS[name].about}](docs/figures/{name}.svg)" for name in FRONT if CHARTS[name].recorded() is not None]
    beside = "A peer is what a practitioner would write for the same work. Both run in turn on one machine."
    return "\n".join([*highlights(rows), "", f"{beside} {machines(rows)} {where}", "", *shown, ""])


def whole_table(rows: Sequence[Row]) -> str:
    """All rows, with the machine, as docs/results.md shows them."""
    lines = ["| work | against | Tempo / peer | figures |", "| --- | --- | --- | --- |"]
    for row in rows:
        ratio = f"**{row.ratio:.2f}**" if row.ratio < 1 else f"{row.ratio:.2f}"
        lines.append(f"| {row.work} | {row.peer} | {ratio} | {row.figures} |")
    return "\n".join([*lines, "", machines(rows)])


def machines(rows: Sequence[Row]) -> str:
    """A sentence on dates, machine and versions of the records."""
    records = [content for name in dict.fromkeys(row.benchmark for row in rows) if (content := record(name))]
    dates = sorted({content["started"][:10] for content in records})
    processors = sorted({f"{content['machine']['cores']} cores of an {content['machine']['processor']}" for content in records})
    packages = {"python": "Python", "jax": "jax", "torch": "PyTorch", "transformers": "transformers"}
    packages |= {"stable-baselines3": "Stable-Baselines3"}
    versions = []
    for key, name in packages.items():
        numbers = sorted({number for content in records if (number := content["versions"].get(key))})
        if numbers:
            versions.append(f"{name} {' and '.join(numbers)}")
    span = dates[0] if len(dates) == 1 else f"{dates[0]} to {dates[-1]}"
    return f"Measured {span} on {' or '.join(processors)}; {', '.join(versions)}; float32."


def sentences() -> list[tuple[str, list[str]]]:
    """The claims of README.md in words, each with the files that prove it."""
    claims: list[tuple[str, list[str]]] = []
    for line in SENTENCES.read_text(encoding="utf-8").splitlines():
        if line.startswith("  "):
            claims[-1][1].append(line.strip())
        elif line.strip() and not line.startswith("#"):
            claims.append((line.strip(), []))
    return claims


def page(rows: Sequence[Row]) -> str:
    """The text of docs/claims.md."""
    lines = [
        "# Claims",
        "",
        "What [the front page](../README.md) claims, and the file that proves it. Written by `python -m docs.figures`;",
    ]
    lines += [
        "`tests/test_claims.py` checks it.",
        "",
        "## Figures",
        "",
        "| work | against | Tempo / peer | recorded in | where |",
    ]
    lines.append("| --- | --- | --- | --- | --- |")
    for row in rows:
        file = Path(row.path).name
        lines.append(f"| {row.work} | {row.peer} | {row.ratio:.2f} | [{file}](../{row.path}) | {row.where} |")
    lines += ["", "## Sentences", "", "| claim | proved by |", "| --- | --- |"]
    for sentence, files in sentences():
        lines.append(f"| {sentence.replace('|', chr(92) + '|')} | {', '.join(f'[{file}](../{file})' for file in files)} |")
    return "\n".join([*lines, ""])


def with_results(readme: str, rows: Sequence[Row]) -> str:
    """README.md with today's table of results."""
    text, count = TABLE.subn(lambda match: match[1] + table(rows) + match[2], readme)
    assert count == 1, "README.md has no <!-- results --> ... <!-- end of results -->"
    return text
