"""Which code made a figure: a hash of the definitions of a benchmark and of its peers that a case runs.

Each case of a record carries the hash (`code`). It is made of syntax trees without docstrings and comments: of a benchmark's own modules the
definitions that the case reaches, of a peer's module all of them. Tempo is not in it, nor is what only prints or writes. A test fails where a
figure on a page comes from a case whose code has changed since; it names the command that records the case anew. A change that measures the
same is listed in `benchmarks/results/unchanged.txt`: the recorded hash, the hash of today, and the reason.

    python -m benchmarks.sources         # cases whose code has changed, with the commands
"""

from __future__ import annotations

import ast
import functools
import hashlib
import json
import shlex
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "benchmarks" / "results"
UNCHANGED = RESULTS / "unchanged.txt"
ALL = "*"  # all definitions of a module
PEERS = "benchmarks/peers/"
# What starts a benchmark, prints and writes; the rest of common.py measures.
NEVER_MEASURES = {
    "benchmarks/common.py": {"Results", "arguments", "say", "show", "machine", "versions"},
    "benchmarks/rl/sides.py": {"LONGEST", "add_python"},
}

# The definitions that make the cases of a benchmark, by the beginnings of their names. `{family}`: the module that has the case's name.
MADE_BY: Mapping[str, Mapping[str, tuple[str, ...]]] = {
    "ablation": {"": ("benchmarks.ablation:*", "benchmarks.variants:*")},
    "classics": {"": ("benchmarks.classics.measure:*", "benchmarks.classics.classic:*", "{family}:*")},
    "compile_time": {"": ("benchmarks.compile_time:measure", "benchmarks.compile_time:cases")},
    "decode": {"": ("benchmarks.decode:decode", "benchmarks.decode:random_model")},
    "faults rl": {"": ("benchmarks.faults.rl:*",)},
    "faults serve": {"": ("benchmarks.faults.serve:*",)},
    "learning": {"": ("benchmarks.learning:learn",)},
    "llm": {"second start": ("benchmarks.second_start:compare",), "": ("benchmarks.llm:Bench",)},
    "llm_prompts": {"": ("benchmarks.llm.prompts:*",)},
    "memory": {
        beginning: ("benchmarks.memory.process:*", f"benchmarks.memory.{module}:*")
        for beginning, module in {
            "PPO micro": "ppo",
            "gradient of": "network",
            "n-step TD": "td",
            "REINFORCE and 5-step": "episodes",
            "window attention": "caches",
            "attention with sinks": "caches",
            "causal attention": "caches",
            "10.5 GB": "disk",
            "": "limits",
        }.items()
    },
    "ppo": {kind: (f"benchmarks.ppo:{kind}",) for kind in ("functional", "micro", "host")},
    "prefill": {"": ("benchmarks.prefill:prefill", "benchmarks.decode:random_model")},
    "reach": {"": ("benchmarks.reach:programs", "benchmarks.reach:of_core", "benchmarks.reach:Watch")},
    "rewards": {"": ("benchmarks.rewards:in_a_process", "benchmarks.rewards:measured")},
    "second_start": {"": ("benchmarks.second_start:compare", "benchmarks.second_start:CASES")},
    "speculation": {
        "": tuple(
            f"benchmarks.speculation:{name}" for name in ("compare", "random_generator", "first_layers", "trained", "repeating")
        )
    },
    "training_speed": {"": ("benchmarks.training_speed:compare",)},
    "versions": {"": ("benchmarks.versions:rows_of", "benchmarks.versions:measured_again", "benchmarks.versions:PARTS")},
}

# What a record's command has beside `--only`, by the beginning of the record's name.
OPTIONS = {
    "classics-small": " --sizes small",
    "classics-long": " --sizes long",
    "learning-beside": " --beside --python SB3=PYTHON",
    "learning-budget": " --budget",
    "learning-control": " --control",
    "learning-members": " --members",
    "versions": " --other PYTHON",
}


@dataclass
class Module:
    """A module's definitions by name, its other statements, and what it imports: (module, name or None) by the local name; and its texts."""

    definitions: dict[str, list[ast.stmt]] = field(default_factory=dict)
    others: list[ast.stmt] = field(default_factory=list)
    imports: dict[str, tuple[str, str | None]] = field(default_factory=dict)
    texts: frozenset[str] = frozenset()


class Tree:
    """The benchmarks of the working tree, or of a commit; with some texts of modules, by path, in place of its own."""

    def __init__(self, commit: str = "", texts: Mapping[str, str] | None = None):
        self.commit, self.texts = commit, texts or {}
        self._modules: dict[str, Module] = {}
        self._texts: dict[str, dict[str, str]] = {}  # by folder: the module in which a text is written
        listed = _git("ls-tree", "-r", "--name-only", commit, "benchmarks").split() if commit else ()
        self._paths = {*listed} or {path.relative_to(ROOT).as_posix() for path in (ROOT / "benchmarks").rglob("*.py")}

    def code(self, benchmark: str, case: str) -> tuple[str, list[str]]:
        """The hash of what makes a case, and the definitions that are in it. Empty if the tree does not have the benchmark."""
        reached = self._reached(self._entries(benchmark, case))
        digest = hashlib.sha256()
        for path, name in sorted(reached):
            for statement in self._statements(path, name):
                digest.update(f"{path} {name} {_canonical(statement)}\n".encode())
        return (digest.hexdigest()[:12] if reached else ""), [f"{path}: {name}" for path, name in sorted(reached)]

    def _entries(self, benchmark: str, case: str) -> list[tuple[str, str]]:
        kinds = MADE_BY.get(benchmark, {"": (f"benchmarks.{benchmark}:{ALL}",)})
        made_by = next((made_by for beginning, made_by in kinds.items() if case.startswith(beginning)), ())
        entries = []
        for entry in made_by:
            module, _, name = entry.partition(":")
            path = self._family(benchmark, case) if module == "{family}" else self._path(module)
            while path is None and module.count(".") > 1:  # an older benchmark may be one file, without a folder
                module = module.rpartition(".")[0]
                path = self._path(module)
            if path is not None:  # an older module may lack the definition
                entries.append((path, name if name in self._module(path).definitions else ALL))
        return entries

    def _family(self, benchmark: str, case: str) -> str | None:
        """The module of the benchmark's folder in which the case's name is written."""
        folder = f"benchmarks/{benchmark}/"
        if folder not in self._texts:
            paths = sorted(path for path in self._paths if path.startswith(folder))
            self._texts[folder] = {text: path for path in reversed(paths) for text in self._module(path).texts}
        return self._texts[folder].get(case)

    def _reached(self, entries: list[tuple[str, str]]) -> set[tuple[str, str]]:
        reached: set[tuple[str, str]] = set()
        waiting = [*entries]
        while waiting:
            path, name = waiting.pop()
            name = ALL if path.startswith(PEERS) else name
            if (path, name) in reached or (path, ALL) in reached or name in NEVER_MEASURES.get(path, ()):
                continue
            reached.add((path, name))
            waiting += self._read_by(path, self._statements(path, name))
        return {(path, name) for path, name in reached if name == ALL or (path, ALL) not in reached}

    def _read_by(self, path: str, statements: list[ast.stmt]) -> Iterator[tuple[str, str]]:
        """The definitions that statements name: of their module, and of the benchmarks that it or they import."""
        module = self._module(path)
        imports = module.imports | _imports(statements)
        for node in (node for statement in statements for node in ast.walk(statement)):
            if not isinstance(node, ast.Name):
                continue
            if node.id in module.definitions:
                yield path, node.id
            elif node.id in imports:
                yield from self._imported(*imports[node.id])

    def _imported(self, module: str, name: str | None) -> Iterator[tuple[str, str]]:
        if name is not None and (path := self._path(f"{module}.{name}")) is not None:
            yield path, ALL
        elif (path := self._path(module)) is not None:
            known = self._module(path)
            if name in known.imports:
                yield from self._imported(*known.imports[name])
            else:
                yield path, name if name in known.definitions else ALL

    def _statements(self, path: str, name: str) -> list[ast.stmt]:
        module = self._module(path)
        every = [statement for statements in module.definitions.values() for statement in statements]
        return [*every, *module.others] if name == ALL else module.definitions.get(name, [])

    def _path(self, module: str) -> str | None:
        at = module.replace(".", "/")
        return next((path for path in (f"{at}.py", f"{at}/__main__.py", f"{at}/__init__.py") if path in self._paths), None)

    def _module(self, path: str) -> Module:
        if path not in self._modules:
            self._modules[path] = _module(ast.parse(self.texts.get(path) or self._text(path)))
        return self._modules[path]

    def _text(self, path: str) -> str:
        return _git("show", f"{self.commit}:{path}") if self.commit else (ROOT / path).read_text(encoding="utf-8")


def _module(tree: ast.Module) -> Module:
    texts = frozenset(node.value for node in ast.walk(tree) if isinstance(node, ast.Constant) and isinstance(node.value, str))
    module = Module(imports=_imports(tree.body), texts=texts)
    for statement in tree.body:
        if isinstance(statement, (ast.FunctionDef, ast.ClassDef)):
            module.definitions.setdefault(statement.name, []).append(statement)
        elif isinstance(statement, (ast.Assign, ast.AnnAssign)):
            targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
            for name in {node.id for target in targets for node in ast.walk(target) if isinstance(node, ast.Name)}:
                module.definitions.setdefault(name, []).append(statement)
        elif (
            not isinstance(statement, (ast.Import, ast.ImportFrom))
            and not _starts_the_program(statement)
            and not _is_text(statement)
        ):
            module.others.append(statement)
    return module


def _starts_the_program(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.If) and "__main__" in ast.unparse(statement.test)


def _is_text(statement: ast.stmt) -> bool:
    """Whether a statement is a docstring."""
    return (
        isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant) and isinstance(statement.value.value, str)
    )


def _imports(statements: list[ast.stmt]) -> dict[str, tuple[str, str | None]]:
    """What statements, and the functions in them, import of the benchmarks."""
    imports: dict[str, tuple[str, str | None]] = {}
    for node in (node for statement in statements for node in ast.walk(statement)):
        if isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] == "benchmarks":
            imports |= {alias.asname or alias.name: (node.module or "", alias.name) for alias in node.names}
        elif isinstance(node, ast.Import):
            imports |= {
                alias.asname: (alias.name, None) for alias in node.names if alias.asname and alias.name.startswith("benchmarks.")
            }
    return imports


def _canonical(node: Any) -> str:
    """A syntax tree as text, the same for all versions of Python: without places, docstrings, and fields that are empty."""
    if isinstance(node, list):
        return f"[{','.join(_canonical(each) for each in node if not (isinstance(each, ast.stmt) and _is_text(each)))}]"
    if not isinstance(node, ast.AST):
        return repr(node)
    fields = [
        (name, value)
        for name, value in ast.iter_fields(node)
        if value not in (None, []) and name not in ("ctx", "kind", "type_comment")
    ]
    return f"{type(node).__name__}({','.join(f'{name}={_canonical(value)}' for name, value in fields)})"


def _git(*words: str) -> str:
    return subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=True).stdout


@functools.cache
def today() -> Tree:
    return Tree()


def code_of(benchmark: str, case: str) -> str:
    """The hash that a case gets when it is recorded today."""
    return today().code(benchmark, case)[0]


# -- records ------------------------------------------------------------------------------------------------------------


def unchanged() -> set[tuple[str, str]]:
    """Pairs of a recorded hash and today's that measure the same. Raises ValueError for a line without a reason."""
    pairs = set()
    for line in UNCHANGED.read_text(encoding="utf-8").splitlines():
        if line and not line.startswith("#"):
            recorded, now, _reason = line.split(maxsplit=2)
            pairs.add((recorded, now))
    return pairs


def outdated(path: Path, tree: Tree | None = None) -> dict[str, list[str]]:
    """The cases of a record whose code has changed since they were recorded, with the definitions that make them today.

    A record without cases, of counts, is one case without a name.
    """
    recorded = json.loads(path.read_text(encoding="utf-8"))
    tree, same = tree or today(), unchanged()
    cases = {}
    for case in recorded.get("cases", [{"case": "", "code": recorded.get("code")}]):
        code, definitions = tree.code(recorded["benchmark"], case["case"])
        if case.get("code") != code and (case.get("code"), code) not in same:
            cases[case["case"]] = definitions
    return cases


def command(path: Path, case: str) -> str:
    """The command that records a case anew."""
    recorded = json.loads(path.read_text(encoding="utf-8"))
    name = path.name.removesuffix("-two-core-cpu.json")
    options = next((options for beginning, options in OPTIONS.items() if name.startswith(beginning)), "")
    module = {"llm_prompts": "llm.prompts"}.get(recorded["benchmark"], recorded["benchmark"])
    only = f" --only {shlex.quote(case)} --add" if case else ""
    return f"python -m benchmarks.{module}{options}{only} --out benchmarks/results/{path.name}"


def main() -> None:
    for path in sorted(RESULTS.glob("*-two-core-cpu.json")):
        for case in outdated(path):
            print(command(path, case))


if __name__ == "__main__":
    main()
