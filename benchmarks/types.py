"""All public names with the types that a type checker infers for them: `python -m benchmarks.types [PREFIX ...]`.

A line begins with `Any` if a user receives a value of type `Any` through its name: the result of a function, an attribute, an
element of a result. If there is such a line, the exit code is 1. The types of parameters are listed, but not judged.
"""

from __future__ import annotations

import argparse
import ast
import os
import pkgutil
import re
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from mypy import build, nodes
from mypy.config_parser import parse_config_file
from mypy.modulefinder import BuildSource
from mypy.options import Options
from mypy.types import (
    AnyType,
    CallableType,
    Instance,
    Overloaded,
    ProperType,
    TupleType,
    Type,
    TypeAliasType,
    TypeType,
    UnionType,
    get_proper_type,
)

ROOT = Path(__file__).resolve().parent.parent
CORE = (
    "tempo_core", "tempo_core.nn", "tempo_core.optim", "tempo_core.optim.schedules", "tempo_core.random", "tempo_core.linalg", "tempo_core.fft",
    "tempo_core.errors",
    "tempo_core.typing",
)  # fmt: skip
PLACES = {
    "tempo_core.random": "tempo_core.frontend.random",
    "tempo_core.linalg": "tempo_core.frontend.library.linalg",
    "tempo_core.fft": "tempo_core.frontend.library.fft",
}  # public modules whose names are defined in another module
PRIVATE_USE = (  # names for Python itself, which users do not write
    "__init__", "__new__", "__post_init__", "__init_subclass__", "__getattr__", "__array_ufunc__", "__array_function__", "__match_args__",
    "__dataclass_fields__", "__mypy-replace", "__all__", "__doc__", "__file__", "__name__", "__path__", "__package__", "__annotations__",
    "__spec__", "__slots__", "__array_priority__", "__version__", "__setattr__",
)  # fmt: skip


@dataclass(frozen=True)
class Name:
    """A public name, its type as text, and whether a user receives an `Any` through it."""

    name: str
    type: str
    is_untyped: bool

    def __str__(self) -> str:
        return f"{'Any' if self.is_untyped else '':<4}{self.name}: {self.type}"


def gives_any(type: Type | None, seen: frozenset[int] = frozenset()) -> bool:
    """Whether a value of this type, or the result of a function of this type, is or holds `Any`.

    The elements of NumPy's arrays do not count: their type is known when a program runs.
    """
    if type is None or id(type) in seen:
        return type is None
    seen = seen | {id(type)}
    proper: ProperType = get_proper_type(type)
    if isinstance(proper, AnyType):
        return not _is_of_jax(proper)
    if isinstance(proper, CallableType):
        return gives_any(proper.ret_type, seen)
    if isinstance(proper, Overloaded):
        return any(gives_any(item.ret_type, seen) for item in proper.items)
    if isinstance(proper, Instance):
        if proper.type.fullname.startswith("numpy."):
            return False
        return any(gives_any(argument, seen) for argument in proper.args)
    if isinstance(proper, (UnionType, TupleType)):
        return any(gives_any(item, seen) for item in proper.items)
    return isinstance(proper, TypeType) and gives_any(proper.item, seen)


def _is_of_jax(type: AnyType) -> bool:
    """Whether a type is one of JAX's, which users see; mypy is told not to read them (`pyproject.toml`)."""
    source = type.source_any or type
    return "jax" in (source.missing_import_name or "").split(".")


def text_of(type: Type | None) -> str:
    """A type as users write it, with the names of aliases."""
    if isinstance(type, TypeAliasType) and type.alias is not None:
        return type.alias.name
    proper = get_proper_type(type) if type is not None else None
    if isinstance(proper, Instance):
        inside = "" if proper.type.fullname.startswith("numpy.") else ", ".join(map(text_of, proper.args))
        return proper.type.name + (f"[{inside}]" if inside else "")
    if isinstance(proper, UnionType):
        return " | ".join(map(text_of, proper.items))
    if isinstance(proper, TupleType):
        return f"tuple[{', '.join(map(text_of, proper.items))}]"
    if isinstance(proper, Overloaded):
        return "  or  ".join(map(text_of, proper.items))
    if isinstance(proper, CallableType):
        shown = ["..."] if proper.is_ellipsis_args else []
        for name, kind, each in zip(proper.arg_names, proper.arg_kinds, proper.arg_types, strict=True):
            if name != "self" and shown[:1] != ["..."]:
                stars = "**" if kind is nodes.ARG_STAR2 else "*" if kind is nodes.ARG_STAR else ""
                shown.append(f"{stars}{name or '_'}: {text_of(each)}" + (" = ..." if kind.is_optional() else ""))
        return f"({', '.join(shown)}) -> {text_of(proper.ret_type)}"
    if isinstance(proper, AnyType) and _is_of_jax(proper):
        return str(proper.missing_import_name)
    if proper is None or isinstance(proper, AnyType):
        return "Any"
    return re.sub(r"\b(?:\w+\.)+(?=[A-Za-z_])", "", str(proper))


def checked(modules: Sequence[str], root: Path = ROOT) -> dict[str, nodes.MypyFile]:
    """The modules, and all modules that they import, with the types that mypy infers."""
    options = Options()
    parse_config_file(options, lambda: None, str(ROOT / "pyproject.toml"))
    options.cache_dir = os.environ.get("MYPY_CACHE_DIR", str(ROOT / ".mypy_cache"))  # what `mypy` left there is not checked again
    options.mypy_path = [str(root)] if root != ROOT else []
    reader = BuildSource(None, "reader", "".join(f"import {module}\n" for module in modules))  # so that mypy loads what it kept
    result = build.build([reader, *(BuildSource(None, module, None) for module in modules)], options)
    return result.files


def public_names(module: str, files: dict[str, nodes.MypyFile]) -> Iterator[Name]:
    """The names in a module's `__all__`, else the names that it defines; with the attributes and methods of classes."""
    file = files[PLACES.get(module, module)]
    listed = [name for name, symbol in sorted(file.names.items()) if symbol.module_public and not name.startswith("_")]
    exported = _all_of(file)
    for name in exported if exported is not None else listed:
        symbol = file.names.get(name)
        node = symbol.node if symbol is not None else None
        if (
            node is None
            or isinstance(node, (nodes.MypyFile, nodes.TypeVarExpr))
            or (isinstance(node, nodes.Var) and node.is_suppressed_import)
        ):
            continue
        if exported is None and not node.fullname.startswith(file.fullname + "."):
            continue  # imported for the module's own use
        yield from names_of(f"{module}.{name}", node)


def _all_of(file: nodes.MypyFile) -> list[str] | None:
    """A module's `__all__`, where it has one."""
    for statement in ast.parse(Path(file.path).read_text(encoding="utf-8")).body:
        if isinstance(statement, ast.Assign) and ast.unparse(statement.targets[0]) == "__all__":
            names: list[str] = ast.literal_eval(statement.value)
            return names
    return None


def names_of(name: str, node: nodes.SymbolNode) -> Iterator[Name]:
    """A name, and for a class the attributes and methods of its instances."""
    if isinstance(node, nodes.TypeAlias):
        yield Name(name, text_of(node.target), False)
    elif isinstance(node, nodes.TypeInfo):
        yield Name(name, f"class({', '.join(base.type.name for base in node.bases)})", False)
        shown: set[str] = set()
        for base in node.mro:
            if not base.fullname.startswith(("tempo_core", "tempo_rl", "tempo_llm")):
                continue
            for member, symbol in sorted(base.names.items()):
                is_private = "-" in member or (
                    member.startswith("_") and not (member.startswith("__") and member not in PRIVATE_USE)
                )
                if is_private or member in shown or symbol.node is None or symbol.plugin_generated:
                    continue
                shown.add(member)
                yield from (Name(f"{name}.{member}", each.type, each.is_untyped) for each in names_of(member, symbol.node))
    else:
        type = type_of(node)
        yield Name(name, text_of(type), gives_any(type))


def type_of(node: nodes.SymbolNode) -> Type | None:
    """The type of a name in use: for a property the type of its value, for a function that of the function."""
    if isinstance(node, nodes.Decorator):
        type = node.var.type if node.var.type is not None else node.func.type
        proper = get_proper_type(type) if type is not None else None
        return proper.ret_type if node.func.is_property and isinstance(proper, CallableType) else type
    if isinstance(node, nodes.OverloadedFuncDef) and node.is_property:
        first = get_proper_type(node.type) if node.type is not None else None
        return first.ret_type if isinstance(first, CallableType) else None
    return node.type if isinstance(node, (nodes.Var, nodes.FuncDef, nodes.OverloadedFuncDef)) else None


def library_modules(package: str) -> list[str]:
    """All modules of a library."""
    spec = find_spec(package)
    assert spec is not None and spec.submodule_search_locations is not None
    inside = [m.name for m in pkgutil.walk_packages(spec.submodule_search_locations, package + ".") if "__main__" not in m.name]
    return [package, *inside]


def listing(modules: Sequence[str], root: Path = ROOT) -> list[Name]:
    """All public names of modules."""
    files = checked([PLACES.get(module, module) for module in modules], root)
    return [name for module in modules for name in public_names(module, files)]


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.types", description=__doc__)
    parser.add_argument("prefix", nargs="*", help="only names that begin so, such as tempo_core.Tensor")
    parser.add_argument("--any", action="store_true", help="only names with an Any")
    options = parser.parse_args(arguments)
    modules = [*CORE, *library_modules("tempo_rl"), *library_modules("tempo_llm")]
    names = [n for n in listing(modules) if not options.prefix or n.name.startswith(tuple(options.prefix))]
    for name in names:
        if name.is_untyped or not options.any:
            print(name)
    untyped = sum(name.is_untyped for name in names)
    print(f"{len(names)} public names; through {untyped} of them a user receives Any")
    return 1 if untyped else 0


if __name__ == "__main__":
    sys.exit(main())
