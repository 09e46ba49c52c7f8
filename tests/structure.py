"""The structure of `tempo_core`: its folders, its lines, and its imports as a graph. `python -m tests.structure` prints it."""

from __future__ import annotations

import ast
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
CORE = ROOT / "tempo_core"


def files() -> list[Path]:
    return sorted(CORE.rglob("*.py"))


def folders() -> dict[str, list[Path]]:
    """The files of each folder, by the folder's path below `tempo_core`."""
    inside: dict[str, list[Path]] = {}
    for path in files():
        inside.setdefault(path.parent.relative_to(CORE).as_posix(), []).append(path)
    return inside


def lines(paths: list[Path] | None = None) -> int:
    """The number of lines, as `wc -l` counts them."""
    return sum(path.read_bytes().count(b"\n") for path in (files() if paths is None else paths))


def most_lines() -> int:
    return int(tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["tempo"]["core-lines"])


def docstring(package: Path) -> str:
    return ast.get_docstring(ast.parse((package / "__init__.py").read_text(encoding="utf-8"))) or ""


def imports() -> dict[str, set[str]]:
    """The modules that each module imports: anywhere in the file, also in functions and under TYPE_CHECKING."""
    modules = {_module(path): path for path in files()}
    edges: dict[str, set[str]] = {}
    for name, path in modules.items():
        edges[name] = set()
        for statement in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(statement, ast.Import):
                edges[name] |= {alias.name for alias in statement.names if alias.name in modules}
            elif isinstance(statement, ast.ImportFrom) and statement.module in modules:
                inner = (f"{statement.module}.{alias.name}" for alias in statement.names)
                edges[name] |= {full if full in modules else statement.module for full in inner}
        edges[name].discard(name)
    return edges


def circles() -> list[list[str]]:
    """Groups of modules that import each other, directly or through others (Tarjan, 1972). The facade imports all and is left out."""
    edges = {name: targets - {"tempo_core"} for name, targets in imports().items() if name != "tempo_core"}
    order: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    groups: list[list[str]] = []

    def visit(name: str) -> None:
        order[name] = low[name] = len(order)
        stack.append(name)
        for target in edges[name]:
            if target not in order:
                visit(target)
            if target in stack:
                low[name] = min(low[name], low[target])
        if low[name] == order[name]:
            cut = stack.index(name)
            group, stack[cut:] = stack[cut:], []
            if len(group) > 1:
                groups.append(sorted(group))

    for name in edges:
        if name not in order:
            visit(name)
    return groups


def _module(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


if __name__ == "__main__":
    for folder, paths in folders().items():
        print(f"{lines(paths):6,} lines  {len(paths):2} files  {folder}")
    print(f"tempo_core: {lines():,} lines in {len(files())} files; at most {most_lines():,}")
    for group in circles():
        print(f"a circle of {len(group)} modules: {', '.join(group)}")
