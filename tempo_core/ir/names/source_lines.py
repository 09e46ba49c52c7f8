"""Names in the user's source at a line: the variables that the statement assigns, or the function that it returns from.

`loss = (y - x).mean()` gives `loss`, `a, b = f(x)` gives `a` and `b`, `return x + 1` in `def f` gives `f`, and `loss.backward()` gives
`loss.backward`. A line that cannot be read, or that holds two statements, gives nothing.
"""

from __future__ import annotations

import ast
import linecache
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from os.path import basename

_NESTED = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)


@dataclass
class _Source:
    """One parsed file: the names that each line assigns, and for each function the lines that assign its variables."""

    lines: Sequence[str]
    targets: dict[int, tuple[str, ...]] = field(default_factory=dict)
    spans: dict[tuple[str, int], dict[str, list[tuple[int, int]]]] = field(default_factory=dict)  # first and last line


_SOURCES: dict[str, _Source] = {}


def split_line(where: str) -> tuple[str, int]:
    """The file and the number of a `file:line`; 0 where there is none."""
    file, _, line = where.rpartition(":")
    return (file, int(line)) if line.isdigit() else (where, 0)


def short_file(file: str) -> str:
    """The last part of a file's name; of a cell in a notebook its number, `In[3]`: its file has a long number for a name."""
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    cell = None if shell is None else shell.compile.format_code_name(file)
    return cell[1] if cell else basename(file)


def targets(where: str) -> tuple[str, ...]:
    """The variables that the statement at a `file:line` assigns, from left to right."""
    file, line = split_line(where)
    return _source(file).targets.get(line, ())


def assignment(file: str, function: str, first: int, name: str, where: str = "") -> str:
    """The `file:line` that assigns variable `name` in the function whose code begins at line `first` of `file`.

    Of several such statements it is the one that contains `where`. Gives "" unless exactly one is left.
    """
    spans = _source(file).spans.get((function, 0 if function == "<module>" else first), {}).get(name, [])
    if len(spans) > 1:
        in_file, line = split_line(where)
        spans = [span for span in spans if in_file == file and span[0] <= line <= span[1]]
    return f"{file}:{spans[0][0]}" if len(spans) == 1 else ""


def _source(file: str) -> _Source:
    lines = linecache.getlines(file)
    source = _SOURCES.get(file)
    if source is None or source.lines is not lines:
        source = _SOURCES[file] = _Source(lines)
        try:
            tree = ast.parse("".join(lines))
        except (SyntaxError, ValueError, RecursionError, MemoryError):  # a notebook's magic, a binary file, ...
            return source
        _read(source, tree, "<module>", 0)
    return source


def _read(source: _Source, scope: ast.AST, function: str, first: int) -> None:
    """Note the statements of a module, a class or a function, and of the classes and functions inside it."""
    spans = source.spans.setdefault((function, first), {})
    twice: set[int] = set()
    for statement in _statements(scope):
        if isinstance(statement, _NESTED):
            decorators = [d.lineno for d in statement.decorator_list]
            _read(source, statement, statement.name, min([statement.lineno, *decorators]))
            continue
        span = (statement.lineno, statement.end_lineno or statement.lineno)
        for name in _variables(statement):
            spans.setdefault(name, []).append(span)
        if isinstance(statement, (ast.With, ast.For, ast.AsyncFor, ast.AsyncWith)):
            continue
        names = _value_names(statement, function)
        for line in range(span[0], span[1] + 1):
            if line in source.targets:
                twice.add(line)
            source.targets[line] = names
    source.targets.update(dict.fromkeys(twice, ()))


def _statements(scope: ast.AST) -> Iterator[ast.stmt]:
    """The statements of a scope, without those inside its functions and classes. `with` and `for` are the only compound ones."""
    for child in ast.iter_child_nodes(scope):
        if isinstance(child, _NESTED):
            yield child
        elif isinstance(child, (ast.stmt, ast.ExceptHandler, ast.match_case)):
            if isinstance(child, ast.stmt) and (
                not hasattr(child, "body") or isinstance(child, (ast.With, ast.For, ast.AsyncWith, ast.AsyncFor))
            ):
                yield child
            yield from _statements(child)


def _variables(statement: ast.stmt) -> list[str]:
    """The plain variables that a statement assigns."""
    if isinstance(statement, ast.Assign):
        places: list[ast.expr] = list(statement.targets)
    elif isinstance(statement, (ast.AnnAssign, ast.AugAssign, ast.For)):
        places = [statement.target]
    elif isinstance(statement, ast.With):
        places = [item.optional_vars for item in statement.items if item.optional_vars is not None]
    else:
        places = []
    return [n.id for place in places for n in ast.walk(place) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)]


def _value_names(statement: ast.stmt, function: str) -> tuple[str, ...]:
    """The names for the values that a statement computes."""
    if isinstance(statement, ast.Assign):
        return _names_in(statement.targets[0])
    if isinstance(statement, (ast.AnnAssign, ast.AugAssign)):
        return _names_in(statement.target)
    if isinstance(statement, ast.Return):
        return (function,) if function != "<module>" else ()
    if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call):
        call = ".".join(_call(statement.value.func)[-2:])
        return (call,) if call else ()
    return ()


def _call(function: ast.expr) -> list[str]:
    """The words of a called function: `loss`, `backward` for `loss.backward()`; `Adam`, `step` for `tp.optim.Adam(...).step()`."""
    if isinstance(function, ast.Attribute):
        return [*_call(function.value), function.attr]
    if isinstance(function, ast.Call):
        return _call(function.func)[-1:]
    return [function.id] if isinstance(function, ast.Name) else []


def _names_in(target: ast.expr) -> tuple[str, ...]:
    if isinstance(target, (ast.Tuple, ast.List)):
        return tuple(name for part in target.elts for name in _names_in(part))
    if isinstance(target, (ast.Subscript, ast.Starred)):
        return _names_in(target.value)
    if isinstance(target, ast.Attribute):
        return (target.attr,)
    return (target.id,) if isinstance(target, ast.Name) else ()
