"""Small changes to the code of a module that is already imported: one literal, operator, guard or statement at a time.

A change is made in memory. The module's source is compiled with the change, and each function that lives in this process
with the code of the original gets the code of the changed one: rows of tables, closures and methods alike, whoever holds them.

Rewrite: `build.add(replace(op, axis=op.axis + 1), x)` -> `build.add(replace(op, axis=op.axis + 2), x)`
"""

from __future__ import annotations

import ast
import copy
import functools
import gc
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import CodeType, FunctionType, ModuleType

Edit = Callable[[ast.AST], ast.AST]  # a node to the node that takes its place

_COMPARISONS: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Eq: ast.NotEq, ast.NotEq: ast.Eq, ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt,
    ast.In: ast.NotIn, ast.NotIn: ast.In, ast.Is: ast.IsNot, ast.IsNot: ast.Is,
}  # fmt: skip
_ARITHMETIC: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Add, ast.Div: ast.Mult, ast.FloorDiv: ast.Mult, ast.Mod: ast.Mult,
}  # fmt: skip


@dataclass(frozen=True)
class Change:
    """One change in the code of `module`, inside the function `function` (its qualified name)."""

    module: ModuleType
    function: str
    text: str  # what it does, for people: "axis + 1 -> axis + 2"
    is_statement: bool  # whether a whole statement goes
    position: int  # of the changed node, in the order of `ast.walk`
    edit: Edit

    def apply(self) -> None:
        """Make the change in this process, for good."""
        before, after = (_compiled(self.module, change) for change in (None, self))
        renewed = dict(_changed_codes(before, after))
        holders = [f for f in gc.get_objects() if isinstance(f, FunctionType) and f.__code__ in renewed]
        if not holders:
            raise LookupError(f"no function of {self.module.__name__} has the code of {self.function}")
        for function in holders:
            function.__code__ = renewed[function.__code__]


def changes(
    module: ModuleType, *, both_ways: bool = False, only: Callable[[str], bool] = lambda function: True
) -> Iterator[Change]:
    """All changes in the functions of a module that `only` accepts. With `both_ways`, numbers become one less, too."""
    tree = _parsed(module)
    position = {id(node): k for k, node in enumerate(ast.walk(tree))}
    seen: Counter[tuple[str, str]] = Counter()
    for function, node, around in _places(tree, ""):
        if not only(function):
            continue
        for edit, said in _edits(node, both_ways):
            text = said or _described(node, around, edit)
            seen[function, text] += 1
            numbered = text if seen[function, text] == 1 else f"{text} (number {seen[function, text]})"
            yield Change(module, function, numbered, isinstance(node, ast.Expr), position[id(node)], edit)


def _places(node: ast.AST, scope: str, function: str = "") -> Iterator[tuple[str, ast.AST, ast.AST]]:
    """Nodes inside functions that may be changed, in the order of the source; not texts, nor annotations.

    Each with its function and the node around it.
    """
    for field, value in ast.iter_fields(node):
        if field in ("annotation", "returns", "decorator_list"):
            continue
        for child in value if isinstance(value, list) else [value]:
            if not isinstance(child, ast.AST) or isinstance(child, (ast.JoinedStr, ast.Raise, ast.Assert, ast.arguments)):
                continue  # texts for people; defaults belong to the code around
            if isinstance(child, ast.Call) and _name(child.func) == "fail":
                continue
            if isinstance(child, ast.keyword) and child.arg == "strict":  # of `zip`: as an assertion
                continue
            if isinstance(child, ast.FunctionDef):
                inner = f"{scope}.{child.name}" if scope else child.name
                yield from _places(child, inner, function or inner)
            elif isinstance(child, ast.ClassDef):
                yield from _places(child, child.name, function)
            elif isinstance(child, ast.Lambda) and not function:
                yield from _places(child, scope, f"{scope}.lambda" if scope else "lambda")
            else:
                if function:
                    yield function, child, node
                yield from _places(child, scope, function)


def _name(function: ast.expr) -> str:
    return function.attr if isinstance(function, ast.Attribute) else function.id if isinstance(function, ast.Name) else ""


def _edits(node: ast.AST, both_ways: bool) -> Iterator[tuple[Edit, str]]:
    """The changes of a node, each with what it does, where "before -> after" would not say it."""
    if isinstance(node, ast.Constant):
        if isinstance(node.value, bool):
            yield lambda n: ast.Constant(not n.value), ""
        elif isinstance(node.value, int):
            yield lambda n: ast.Constant(n.value + 1), ""
            if both_ways:
                yield lambda n: ast.Constant(n.value - 1), ""
        elif isinstance(node.value, float):
            yield lambda n: ast.Constant(n.value * 1.5 or 1.0), ""
    elif isinstance(node, ast.Compare) and len(node.ops) == 1:
        yield lambda n: ast.Compare(n.left, [_COMPARISONS[type(n.ops[0])]()], n.comparators), ""
    elif isinstance(node, ast.BinOp) and type(node.op) in _ARITHMETIC:
        yield lambda n: ast.BinOp(n.left, _ARITHMETIC[type(n.op)](), n.right), ""
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        yield lambda n: n.operand, ""
    elif isinstance(node, ast.BoolOp):
        for k, value in enumerate(node.values):
            yield functools.partial(_without, place=k), f"without {_text(value)}"
    elif isinstance(node, (ast.IfExp, ast.If)) and not isinstance(node.test, (ast.Compare, ast.BoolOp, ast.UnaryOp)):
        yield _negated, ""
    if isinstance(node, ast.If) and _leaves(node.body):
        yield lambda n: ast.If(ast.BoolOp(ast.And(), [n.test, _false()]), n.body, n.orelse), f"without {_text(node)}"
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
        yield lambda n: ast.Expr(ast.BoolOp(ast.And(), [_false(), n.value])), f"without {_text(node.value)}"


def _without(node: ast.AST, place: int) -> ast.AST:
    """`and` or `or` without one of its operands, which is written there still, as are all that goes: names keep their scopes."""
    assert isinstance(node, ast.BoolOp)
    if isinstance(node.op, ast.And):
        ignored = ast.BoolOp(ast.Or(), [ast.UnaryOp(ast.Not(), _false()), node.values[place]])
    else:
        ignored = ast.BoolOp(ast.And(), [_false(), node.values[place]])
    return ast.BoolOp(node.op, [*node.values[:place], ignored, *node.values[place + 1 :]])


def _false() -> ast.expr:
    """`bool()`: what the compiler does not know to be False, so that it keeps what follows."""
    return ast.Call(ast.Name("bool", ast.Load()), [], [])


def _negated(node: ast.AST) -> ast.AST:
    node.test = ast.UnaryOp(ast.Not(), node.test)
    return node


def _leaves(body: list[ast.stmt]) -> bool:
    """Whether a branch only leaves the function or the turn of a loop, with nothing: a guard."""
    (first, *rest) = body
    if rest or not isinstance(first, (ast.Return, ast.Continue, ast.Break)):
        return False
    return not isinstance(first, ast.Return) or first.value is None or isinstance(first.value, (ast.Constant, ast.Name))


def _described(node: ast.AST, around: ast.AST, edit: Edit) -> str:
    """Before and after; of numbers with what is around them, as they alone would not say much."""
    if not isinstance(node, ast.Constant):
        return f"{_text(node)} -> {_text(edit(copy.deepcopy(node)))}"
    place = next(k for k, n in enumerate(ast.walk(around)) if n is node)
    changed = copy.deepcopy(around)
    target = next(n for k, n in enumerate(ast.walk(changed)) if k == place)
    changed = _Replaced(target, ast.copy_location(edit(target), target)).visit(changed)
    return f"{_text(around)} -> {_text(changed)}"


def _text(node: ast.AST) -> str:
    if isinstance(node, ast.If):
        return f"if {ast.unparse(node.test)}: {ast.unparse(node.body[0]) if _leaves(node.body) else '...'}"
    return ast.unparse(node).replace("\n", " ")


# -- from source to code ----------------------------------------------------------------------------------------------


def _parsed(module: ModuleType) -> ast.Module:
    assert module.__file__ is not None
    return ast.parse(Path(module.__file__).read_text(encoding="utf-8"))


def _compiled(module: ModuleType, change: Change | None) -> CodeType:
    tree = _parsed(module)
    if change is not None:
        target = next(node for k, node in enumerate(ast.walk(tree)) if k == change.position)
        tree = ast.fix_missing_locations(_Replaced(target, ast.copy_location(change.edit(target), target)).visit(tree))
    assert module.__file__ is not None
    return compile(tree, module.__file__, "exec", dont_inherit=True)


class _Replaced(ast.NodeTransformer):
    def __init__(self, target: ast.AST, replacement: ast.AST):
        self.target, self.replacement = target, replacement

    def visit(self, node: ast.AST) -> ast.AST:
        return self.replacement if node is self.target else self.generic_visit(node)


def _changed_codes(before: CodeType, after: CodeType) -> Iterator[tuple[CodeType, CodeType]]:
    """Pairs of code objects of the same function that differ, at every depth."""
    inner = [[c for c in code.co_consts if isinstance(c, CodeType)] for code in (before, after)]
    for old, new in zip(*inner, strict=True):
        if old != new:
            yield old, new
            yield from _changed_codes(old, new)
