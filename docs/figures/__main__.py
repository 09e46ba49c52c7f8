"""Draw the pictures of the front page, and write its results and claims: `python -m docs.figures`, after benchmarks were recorded."""

from __future__ import annotations

from pathlib import Path

from docs import recorded
from docs.figures import charts, claims, example

FOLDER = Path(__file__).resolve().parent


def main() -> None:
    pictures = {"program": example.picture()}
    for name, chart in charts.CHARTS.items():
        series = chart.recorded()
        if series is None:
            print(f"{name}: not drawn, benchmarks/results/{chart.benchmark}-{charts.MACHINE}.json is not there")
        else:
            pictures[name] = charts.svg(name, series)
    for name, picture in pictures.items():
        _write(FOLDER / f"{name}.svg", picture)
    rows = claims.rows()
    _write(claims.README, claims.with_results(claims.README.read_text(encoding="utf-8"), rows))
    _write(claims.PAGE, claims.page(rows))
    recorded.main()


def _write(path: Path, text: str) -> None:
    path.write_text(text, encoding="utf-8")
    print(f"wrote {path.relative_to(claims.ROOT)}")


if __name__ == "__main__":
    main()
