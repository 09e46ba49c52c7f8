"""The parts of docs/fast.md, docs/memory.md and docs/results.md that are recorded elsewhere: `python -m docs.recorded` writes them, after benchmarks ran.

A part stands between `<!-- recorded: WHAT -->` and `<!-- end -->`. WHAT is a name of `PARTS`, perhaps with an argument after ` / `, or the
path of one figure in a record of benchmarks/results/: `classics / heat / ms / tempo`. A test compares the pages with the records.
"""

from __future__ import annotations

import re
import statistics
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from benchmarks.learning import BUDGET, CONTROL, MEMBERS, RECENT, RECIPES, SOLVED
from docs.figures import claims
from docs.figures.charts import BESIDE, CHARTS, MACHINE, record

ROOT = Path(__file__).resolve().parent.parent
PAGES = tuple(ROOT / "docs" / name for name in ("fast.md", "memory.md", "results.md"))
PART = re.compile(r"(?P<start><!-- recorded: (?P<what>.+?) -->)(?P<text>.*?)(?P<end><!-- end -->)", re.DOTALL)


def filled(page: str) -> str:
    """A page with today's records. What is a block stands on lines of its own."""
    return PART.sub(lambda match: match["start"] + _part(match["what"]) + match["end"], page)


def _part(what: str) -> str:
    name, *arguments = what.split(" / ")
    if name in PARTS:
        return f"\n{PARTS[name](*arguments)}\n"
    return short(figure(what), in_bytes="bytes" in arguments)


def figure(path: str) -> float:
    """A number in a record: the benchmark, the case, then the keys. Raises KeyError for a path that leads nowhere."""
    benchmark, case, *keys = path.split(" / ")
    recorded = record(benchmark)
    if recorded is None:
        raise KeyError(f"there is no record of {benchmark}")
    value: Any = next((each for each in recorded["cases"] if each["case"] == case), None)
    for key in keys:
        if value is None or key not in value:
            raise KeyError(f"{path}: no {key}")
        value = value[key]
    return float(value)


def short(value: float, in_bytes: bool = False) -> str:
    """Three digits, or megabytes: 0.0294, 20.5, 10,629."""
    if in_bytes:
        return f"{value / 1e6:,.0f} MB"
    return f"{value:.3g}" if value < 1000 else f"{value:,.0f}"


# -- tables of one record -----------------------------------------------------------------------------------------------


def times(benchmark: str, key: str, unit: str) -> str:
    """A row for each case, a column for each side: medians; and Tempo's time over that of the first peer."""
    recorded = record(benchmark)
    if recorded is None:
        return f"Not recorded yet: `python -m benchmarks.{benchmark}`."
    cases = [case for case in recorded["cases"] if "tempo" in case.get(key, {}) and not case["case"].startswith("curve ")]
    sides = list(dict.fromkeys(side for case in cases for side in case[key]))
    peer = next(side for side in sides if side != "tempo")
    lines = [f"| {unit} | {' | '.join(sides)} | Tempo / {peer} |", "| --- |" + " --- |" * (len(sides) + 1)]
    for case in cases:
        medians = [short(case[key][side]["median"]) if side in case[key] else "" for side in sides]
        ratio = f"{1 / case[key][peer]['ratio_to_first']:.2f}" if peer in case[key] else ""
        lines.append(f"| {case['case']} | {' | '.join(medians)} | {ratio} |")
    return "\n".join([*lines, "", source(benchmark)])


def rows(benchmark: str, key: str, unit: str) -> str:
    """A row for each side of each case: its median."""
    recorded = record(benchmark)
    if recorded is None:
        return f"Not recorded yet: `python -m benchmarks.{benchmark.replace('_', '.')}`."
    lines = [f"| case | side | {unit} |", "| --- | --- | --- |"]
    for case in recorded["cases"]:
        lines += [f"| {case['case']} | {side} | {short(figures['median'])} |" for side, figures in case[key].items()]
    return "\n".join([*lines, "", source(benchmark)])


def memories(benchmark: str) -> str:
    """A row for each case, a column for each side: the megabytes at the peak of a process, over those before it loaded the model."""
    recorded = record(benchmark)
    if recorded is None:
        return f"Not recorded yet: `python -m benchmarks.{benchmark}`."
    cases = [case for case in recorded["cases"] if "tempo" in case.get("bytes", {})]
    sides = list(dict.fromkeys(side for case in cases for side in case["bytes"]))
    lines = [f"| MB, of them to load | {' | '.join(sides)} |", "| --- |" + " --- |" * len(sides)]
    for case in cases:
        figures = [case["bytes"].get(side) for side in sides]
        cells = [f"{short(each['peak'] / 1e6)}, {short(each['loading'] / 1e6)}" if each else "" for each in figures]
        lines.append(f"| {case['case']} | {' | '.join(cells)} |")
    return "\n".join([*lines, "", source(benchmark)])


def serving() -> str:
    """A row for each number of clients of a server: tokens a second, the first token, and the processors' time."""
    recorded = record("serve")
    if recorded is None:
        return "Not recorded yet: `python -m benchmarks.serve`."
    heads = {
        "tokens_per_second": "tokens/s",
        "times_one_client": "times one client",
        "processor_ms_per_token": "ms of processors a token",
        "times_generate": "times generate",
    }
    heads |= {"first_token_ms": "first token, ms", "longest_first_token_ms": "the longest, ms"}
    lines = [f"| work | {' | '.join(heads.values())} |", "| --- |" + " --- |" * len(heads)]
    for case in recorded["cases"]:
        cells = [short(case[key]) if key in case else "" for key in heads]
        lines.append(f"| {case['case']} | {' | '.join(cells)} |")
    return "\n".join([*lines, "", source("serve")])


def planning() -> str:
    """A row for each plan: the processors' seconds of the process, and its memory."""
    recorded = record("plan")
    if recorded is None:
        return "Not recorded yet: `python -m benchmarks.plan`."
    lines = ["| plan | s of processors | MB |", "| --- | --- | --- |"]
    for case in recorded["cases"]:
        lines.append(f"| {case['case']} | {short(case['cpu_seconds'])} | {short(case['bytes'] / 1e6)} |")
    return "\n".join([*lines, "", source("plan")])


def starts(benchmark: str = "second-start") -> str:
    """Seconds to the first result, without and with compiled programs on disk; in brackets those of processors, where recorded."""
    recorded = record(benchmark)
    if recorded is None:
        return "Not recorded yet: `python -m benchmarks.second_start`."
    lines = ["| seconds to the first result | first start | second start |", "| --- | --- | --- |"]
    for case in recorded["cases"]:
        cells = []
        for side in ("empty cache", "filled cache"):
            cpu = f" ({short(case['cpu_seconds'][side]['median'])} of processors)" if "cpu_seconds" in case else ""
            cells.append(f"{short(case['seconds'][side]['median'])}{cpu}")
        lines.append(f"| {case['case']} | {' | '.join(cells)} |")
    return "\n".join([*lines, "", source(benchmark)])


def classical(size: str, order: str = "all") -> str:
    """The classics with their times: all, the slowest first; or, as `slowest`, the five that are slowest beside JAX by hand."""
    benchmark = "classics" if size == "full" else f"classics-{size}"
    recorded = record(benchmark)
    assert recorded
    cases = sorted((case for case in recorded["cases"] if "ratio" in case), key=lambda case: -case["ratio"]["median"])
    lines = ["| program | sizes | Tempo, ms | by hand, ms | ratio |", "| --- | --- | --- | --- | --- |"]
    for case in cases[:5] if order == "slowest" else cases:
        sizes = ", ".join(f"{name} = {number}" for name, number in case["sizes"].items())
        ours, theirs = (short(case["ms"][side]) for side in ("tempo", "by hand"))
        lines.append(f"| {case['case']} | {sizes} | {ours} | {theirs} | {case['ratio']['median']:.2f} |")
    return "\n".join([*lines, "", source(benchmark)])


def pictures() -> str:
    """n-step TD by the number of steps: megabytes planned and measured, and milliseconds of a run."""
    recorded = record("memory")
    assert recorded
    cases = [case for case in recorded["cases"] if case["case"].startswith("n-step TD on pictures")]
    sides = list(cases[0]["bytes"])
    lines = [f"| steps | {' | '.join(sides)} |", "| --- |" + " --- |" * len(sides)]
    for case in cases:
        cells = [f"{_planned_and_measured(case['bytes'][side])}; {short(case['ms'][side])} ms" for side in sides]
        lines.append(f"| {case['steps']:,} | {' | '.join(cells)} |")
    return "\n".join([*lines, "", source("memory")])


def sides(text: str) -> str:
    """Of each case of `memory` with this text in its name, a row a side: megabytes planned and measured, and milliseconds of a run."""
    recorded = record("memory")
    assert recorded
    lines = ["| work | by | planned, measured, MB | ms |", "| --- | --- | --- | --- |"]
    for case in (case for case in recorded["cases"] if text in case["case"]):
        for side, figures in case["bytes"].items():
            lines.append(f"| {case['case']} | {side} | {_planned_and_measured(figures)} | {short(case['ms'][side])} |")
    return "\n".join([*lines, "", source("memory")])


def caches() -> str:
    """Decoding by the number of tokens: for each pattern the bytes of the cache, and the megabytes planned and measured."""
    recorded = record("memory")
    assert recorded
    rows: dict[int, dict[str, Mapping[str, int]]] = {}
    for case in (case for case in recorded["cases"] if "tokens" in case):
        row = rows.setdefault(case["tokens"], {})
        row[case["case"].split(",")[0]] = case["bytes"]["tempo"]
        row["JAX by hand"] = case["bytes"]["JAX by hand"]  # the same for all patterns
    columns = sorted(next(iter(rows.values())), key=lambda column: column == "JAX by hand")
    lines = [f"| tokens | {' | '.join(columns)} |", "| --- |" + " --- |" * len(columns)]
    for tokens, row in rows.items():
        cells = [f"{row[column]['cache'] / 1e6:.1f}; {_planned_and_measured(row[column])}" for column in columns]
        lines.append(f"| {tokens:,} | {' | '.join(cells)} |")
    return "\n".join([*lines, "", source("memory")])


def _planned_and_measured(figures: Mapping[str, int]) -> str:
    return f"{figures['planned'] / 1e6:.1f}, {figures['grown'] / 1e6:.1f}"


def source(benchmark: str) -> str:
    """Where figures are recorded."""
    recorded = record(benchmark)
    assert recorded
    file, machine, versions = f"{benchmark}-{MACHINE}.json", recorded["machine"], recorded["versions"]
    where = f"{recorded['started'][:10]}, {machine['cores']} cores of an {machine['processor']}, jax {versions['jax']}"
    return f"[{file}](../benchmarks/results/{file}): {where}."


REACHED = {"control": CONTROL, "budget": BUDGET}

# -- learning -----------------------------------------------------------------------------------------------------------


def picture(name: str) -> str:
    """A chart, if it is recorded."""
    chart = CHARTS[name]
    if chart.recorded() is None:
        return "The curve is not recorded yet."
    return f"![{chart.about}](figures/{name}.svg)"


def algorithms() -> str:
    """The recipes whose learning is recorded, with the command; the figures, once there are any."""
    return _curves("learning", RECIPES, "python -m benchmarks.learning")


def control(which: str = "control") -> str:
    """The same for classic control besides CartPole, or for continuous control (`budget`)."""
    cases = {name: (recipe, steps) for name, (recipe, steps, _) in REACHED[which].items()}
    return _curves(f"learning-{which}", cases, f"python -m benchmarks.learning --{which}")


def enough(which: str = "control") -> str:
    """The returns that count as solved in the table of `control`."""
    names = {name: name.split(" in JAX")[0].split(" in Brax")[0].split(",")[0] for name in REACHED[which]}
    returns = dict.fromkeys((names[name], least) for name, (_, _, least) in REACHED[which].items())
    listed = ", ".join(f"{least:,g} ({name})" for name, least in returns)
    return f"Solved is a mean return of {listed} over the last {RECENT} iterations in which episodes ended."


def members() -> str:
    """Runs with many members: by the values of a sweep, the members, and the median, least and greatest of their last returns."""
    recorded = record("learning-members")
    if recorded is None:
        return "No run is recorded yet: `python -m benchmarks.learning --members`."
    lines = ["| run | recipe | seconds of all, from a cold start | members | mean return at the end (least to greatest) |"]
    lines.append("| --- | --- | --- | --- | --- |")
    for name, (recipe, _) in MEMBERS.items():
        case = next(case for case in recorded["cases"] if case["case"] == name)
        seconds = {f"{seconds:.0f}" for seconds in case["seconds"].values()}
        cells = []
        for side, runs in case["runs"].items():
            last = [run["curve"][-1][1] for run in runs]
            who = f"{len(runs)}" if side == "tempo" else f"{len(runs)} with {side}"
            cells.append((who, f"{statistics.fmean(last):.0f} ({min(last):.0f} to {max(last):.0f})"))
        who, returns = ("<br>".join(column) for column in zip(*cells, strict=True))
        lines.append(f"| {name} | [{Path(recipe).name}](../{recipe}) | {', '.join(sorted(seconds))} | {who} | {returns} |")
    return "\n".join([*lines, "", source("learning-members")])


def _curves(benchmark: str, cases: Mapping[str, tuple[str, int]], command: str) -> str:
    recorded = record(benchmark)
    lines = ["| algorithm | recipe | steps | seconds, from a cold start | mean return at the end | solved after |"]
    lines.append("| --- | --- | --- | --- | --- | --- |")
    figures_of = {case["case"]: case for case in recorded["cases"]} if recorded else {}
    for name, (recipe, steps) in cases.items():
        row = f"| {name} | [{Path(recipe).name}](../{recipe}) | {steps:,} |"
        sides = figures_of[name]["runs"] if name in figures_of else {}
        figures = [_learned(side, runs) for side, runs in sides.items()] or [("–", "–", "–")]
        lines.append(f"{row} {' | '.join('<br>'.join(column) for column in zip(*figures, strict=True))} |")
    return "\n".join([*lines, "", source(benchmark) if recorded else f"No run is recorded yet: `{command}`."])


def _learned(side: str, runs: list[dict[str, Any]]) -> tuple[str, str, str]:
    """The median seconds, the median of the last returns, and the median number of steps after which the environment was solved."""
    who = "" if side == "tempo" else f"{side}: "
    solved = [run["steps_to_solved"] for run in runs]
    after = (
        f"{statistics.median_high(solved):,} steps"
        if None not in solved
        else f"{len(solved) - solved.count(None)} of {len(solved)} runs"
    )
    last = statistics.median(run["curve"][-1][1] for run in runs)
    return f"{who}{statistics.median(run['seconds'] for run in runs):.0f}", f"{who}{last:.0f}", f"{who}{after}"


def beside() -> str:
    """For each case that a peer runs too, and each side: the steps, seconds and CPU seconds until it was solved, and those of the whole run."""
    recorded = record(BESIDE)
    if recorded is None:
        return "No run is recorded yet: `python -m benchmarks.learning --beside`."
    lines = [
        "| work | by | solved | steps to solved | seconds to solved | seconds of the run | of processors | return at the end |"
    ]
    lines.append("| --- |" + " --- |" * 7)
    for case in recorded["cases"]:
        for side, runs in case["runs"].items():
            solved = [run for run in runs if run["steps_to_solved"] is not None]
            cells = [f"{len(solved)} of {len(runs)}"]
            cells += [_middle(solved, key) for key in ("steps_to_solved", "seconds_to_solved")]
            cells += [_middle(runs, key) for key in ("seconds", "cpu_seconds")]
            last = statistics.median(run["curve"][-1][1] for run in runs)
            lines.append(f"| {case['case']}, {case['steps']:,} steps | {side} | {' | '.join(cells)} | {last:.0f} |")
    return "\n".join([*lines, "", source(BESIDE)])


def _middle(runs: list[dict[str, Any]], key: str) -> str:
    """The median over the seeds, with the least and the greatest."""
    values = [run[key] for run in runs]
    if not values:
        return "–"
    return f"{statistics.median(values):,.0f} ({min(values):,.0f} to {max(values):,.0f})"


def speeds() -> str:
    """Steps a second while PPO trains, ours and the peers', and the seconds of setting up and compiling."""
    recorded = record("training-speed")
    if recorded is None:
        return "Not recorded yet: `python -m benchmarks.training_speed`."
    lines = ["| environments | by | steps a second | steps a second of processors | seconds to set up and compile |"]
    lines.append("| --- |" + " --- |" * 4)
    for case in recorded["cases"]:
        sizes = f"{case['case']}, {case['num_envs']} x {case['num_steps']} steps, {case['iterations']} iterations"
        for side, speed in case["steps_per_second"].items():
            least = case["start_seconds"][side]["least"]
            start = "–" if side == "environments alone" else f"{case['start_seconds'][side]['median']:.1f} ({least:.1f} at least)"
            span = f"{speed['median']:,.0f} ({speed['least']:,.0f} to {speed['greatest']:,.0f})"
            lines.append(f"| {sizes} | {side} | {span} | {case['steps_per_cpu_second'][side]['median']:,.0f} | {start} |")
    return "\n".join([*lines, "", source("training-speed")])


def kills() -> str:
    """How often runs were killed, and what was lost."""
    recorded = record("faults-rl")
    assert recorded
    counts = recorded["counts"]
    lines = [
        f"{recorded['details']['kills']} kills of `tempo-rl train` at random moments, a full disk, a directory that cannot be"
    ]
    lines.append(
        f"written, and two runs in one directory: {counts['run']} checks, {counts['failed']} failed. {source('faults-rl')}"
    )
    return "\n".join(lines)


def requests() -> str:
    """What came of random and of malformed requests to a server."""
    recorded = record("faults-serve")
    if recorded is None:
        return "Not recorded yet: `python -m benchmarks.faults serve`."
    counts, details = recorded["counts"], recorded["details"]
    return "\n".join(
        [
            f"{counts['answered'] + counts['cancelled']:,} random requests, {details['at_a_time']} at a time: {counts['cancelled']:,} were",
            f"cancelled, {counts['answered']:,} answered, and {counts['different_alone']} of the answers differed from that given alone.",
            f"{counts['malformed']} malformed ones: {counts['malformed_without_a_reason']} without a status of 400 to 499 and a reason.",
            f"Left over: {counts['rows_left']} rows, {counts['files_left']} files, {details['megabytes_grown']:.0f} MB. {source('faults-serve')}",
        ]
    )


def recipes() -> str:
    """The other recipes, each with its first line."""
    shown = {case[0] for cases in (RECIPES, CONTROL, BUDGET, MEMBERS) for case in cases.values()}
    lines = ["| recipe | what it trains |", "| --- | --- |"]
    for path in sorted((ROOT / "recipes").glob("*.yaml")):
        about = path.read_text(encoding="utf-8").split("\n", 1)[0].removeprefix("# ")
        if f"recipes/{path.name}" not in shown:
            lines.append(f"| [{path.name}](../recipes/{path.name}) | {about} |")
    return "\n".join(lines)


def solved() -> str:
    return f"{SOLVED:g} is the mean return at which Gymnasium calls CartPole-v1 solved."


# -- growth -------------------------------------------------------------------------------------------------------------

READS: Mapping[str, tuple[str, ...]] = {  # how a row is called on the page, and the rows of the growth table that it stands for
    "a point: `x[t - 1]`, `x[t + 1]`, `x[T - 1 - t]`, `x[t // 2]`, `x[t % 4]`": (
        "previous",
        "next",
        "reversed",
        "halved",
        "modulo",
    ),
    "the past `x[0 : t + 1]` or the future `x[t:T]`, reduced": ("prefix", "suffix"),
    "a window of six, or a block, reduced": ("window back", "window ahead", "block"),
    "a window of W values, where W is a bound: its sum": ("sized window back, sum", "sized window ahead, sum"),
    "the same: its maximum, or its logsumexp": ("sized window back, max", "sized window back, logsumexp"),
    "a recurrence that is linear in itself": ("linear",),
    "another recurrence over values [N]; all its values": (
        "previous value, every value",
        "previous value, gradient of the input",
    ),
    "the same; its last value alone": ("previous value, last value", "previous value, gradient of a parameter"),
    "an RNN with a matrix [N, N]": ("RNN",),
    "attention over the past": ("attention",),
    "attention over a window of six": ("window attention",),
    "linear attention, as a state [N, N]": ("linear attention",),
    "a stencil over I places, K times": ("stencil",),
    "a table of I x J, as in edit distance": ("grid",),
}


def growth() -> str:
    """How operations, memory and runs of statements may grow; a test holds every program to it."""
    from tests.core.growth.table import rows

    table = rows()
    lines = ["| what is read | operations | of the gradient | memory | of the gradient | statements run |"]
    lines.append("| --- | --- | --- | --- | --- | --- |")
    for words, names in READS.items():
        chosen = [row for row in table if any(_is_of(row.name, name) for name in names)]
        assert chosen, words
        forward = [row.wanted for row in chosen if "gradient" not in row.name]
        backward = [row.wanted for row in chosen if "gradient" in row.name]
        cells = [_least_and_most(each, key) for key in ("operations", "memory") for each in (forward, backward)]
        runs = {"1": "once"}.get(runs := _least_and_most(forward, "executions"), f"{runs} times")
        lines.append(f"| {words} | {' | '.join(cells)} | {runs} |")
    return "\n".join(lines)


def _is_of(row: str, name: str) -> bool:
    return row == name or row.startswith(f"{name}, ")


def _least_and_most(costs: list[Mapping[str, str]], key: str) -> str:
    return " or ".join(dict.fromkeys(_as_text(cost[key]) for cost in costs))


def _as_text(cost: str) -> str:
    """`N**2*T + 1` as N² T + 1."""
    return cost.replace("**2", "²").replace("*", " ")


def results() -> str:
    """The table of README.md, without its pictures."""
    return claims.whole_table(claims.rows())


PARTS: Mapping[str, Callable[..., str]] = {
    "results": results, "times": times, "memories": memories, "rows": rows, "starts": starts, "classical": classical, "source": source, "picture": picture,
    "algorithms": algorithms, "control": control, "enough": enough, "members": members, "recipes": recipes, "solved": solved, "growth": growth,
    "beside": beside, "speeds": speeds, "kills": kills, "pictures": pictures, "caches": caches, "sides": sides, "serving": serving, "requests": requests,
    "planning": planning,
}  # fmt: skip


def parts(page: str) -> Iterator[str]:
    """What stands between marks, by name."""
    for match in PART.finditer(page):
        yield match["what"]


def main() -> None:
    for path in PAGES:
        text = path.read_text(encoding="utf-8")
        path.write_text(filled(text), encoding="utf-8")
        print(f"{path.relative_to(ROOT)}: {len(list(parts(text)))} parts from benchmarks/results/ and the growth table")


if __name__ == "__main__":
    main()
