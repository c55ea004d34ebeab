"""What the tests of this folder ask of the product's source files: each is parsed and walked once.

Trees are not kept: a million nodes would make every collection of garbage in the same process dear.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from pathlib import Path

from compiler.hlo.opcodes import OPCODES

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("compiler", "runtime", "tpu_sim", "tpuc")


@dataclass(frozen=True)
class Assigned:
    """Names that a statement of a module itself gives to a constant, or to a tuple of constants."""

    names: tuple[str, ...]
    line: int
    is_one_constant: bool


@dataclass(frozen=True)
class Source:
    """A file: its docstring, imports with their lines in functions, classes, constants, sets of opcodes."""

    docstring: str
    imports: tuple[tuple[str, str], ...]
    """Module and name of each import; without a name where the module itself is imported."""
    inner_imports: tuple[int, ...]
    public_classes: tuple[str, ...]
    constants: tuple[Assigned, ...]
    opcode_sets: frozenset[frozenset[str]]
    """Literal sets, tuples and lists of opcodes, but those that a pattern names (``Op((...), X)``)."""
    unexplained: tuple[str, ...]
    """Names of numbers of the module with neither a comment nor a docstring, their own or their lines'."""


def module_name(path: Path) -> str:
    """The name by which a file is imported."""
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


@cache
def modules() -> dict[str, Path]:
    """Files by the names of their modules."""
    return {
        module_name(path): path
        for package in PACKAGES
        for path in sorted((ROOT / package).rglob("*.py"))
    }


@cache
def source(name: str) -> Source:
    """What there is to know of a module."""
    text = modules()[name].read_text(encoding="utf-8")
    tree = ast.parse(text)
    nodes = list(ast.walk(tree))
    return Source(
        ast.get_docstring(tree) or "",
        tuple(_imports(nodes)),
        tuple(_inner_imports(nodes)),
        tuple(_public_classes(tree)),
        tuple(_constants(tree)),
        frozenset(_opcode_sets(nodes)),
        tuple(_unexplained(tree.body, text.splitlines())),
    )


def _imports(nodes: list[ast.AST]) -> Iterator[tuple[str, str]]:
    for node in nodes:
        if isinstance(node, ast.Import):
            yield from ((alias.name, "") for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield from ((node.module, alias.name) for alias in node.names)


def _inner_imports(nodes: list[ast.AST]) -> Iterator[int]:
    for function in nodes:
        if isinstance(function, ast.FunctionDef):
            for node in ast.walk(function):
                if isinstance(node, ast.Import | ast.ImportFrom):
                    yield node.lineno


def _public_classes(tree: ast.Module) -> Iterator[str]:
    for node in tree.body:
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
            yield node.name


def _constants(tree: ast.Module) -> Iterator[Assigned]:
    for node in tree.body:
        if isinstance(node, ast.Assign):
            value = node.value
            leaves = value.elts if isinstance(value, ast.Tuple) else [value]
            if all(isinstance(leaf, ast.Constant) for leaf in leaves):
                names = [n.id for t in node.targets for n in ast.walk(t) if isinstance(n, ast.Name)]
                yield Assigned(tuple(names), node.lineno, isinstance(value, ast.Constant))


def _opcode_sets(nodes: list[ast.AST]) -> Iterator[frozenset[str]]:
    calls = [node for node in nodes if isinstance(node, ast.Call)]
    patterns = {a for call in calls if getattr(call.func, "id", "") == "Op" for a in call.args}
    for node in nodes:
        if isinstance(node, ast.Set | ast.Tuple | ast.List) and node not in patterns:
            words = [e.value for e in node.elts if isinstance(e, ast.Constant)]
            if 1 < len(words) == len(node.elts) and all(word in OPCODES for word in words):
                yield frozenset(str(word) for word in words)


def _unexplained(body: list[ast.stmt], lines: list[str]) -> Iterator[str]:
    """A docstring explains all numbers in the lines right above it, up to an empty line."""
    for number, statement in enumerate(body):
        if not isinstance(statement, ast.Assign | ast.AnnAssign) or not _is_number(statement.value):
            continue
        first, last = statement.lineno, statement.end_lineno or statement.lineno
        is_commented = first > 1 and lines[first - 2].startswith("#")
        if is_commented or any("#" in line for line in lines[first - 1 : last]):
            continue
        if not _ends_in_docstring(body[number:]):
            targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
            yield from (n.id for t in targets for n in ast.walk(t) if isinstance(n, ast.Name))


def _ends_in_docstring(body: list[ast.stmt]) -> bool:
    """Whether a string follows a statement, with nothing but assignments and no empty line between."""
    for before, statement in pairwise(body):
        if statement.lineno != (before.end_lineno or 0) + 1:
            return False
        if isinstance(statement, ast.Expr):
            return isinstance(statement.value, ast.Constant)
        if not isinstance(statement, ast.Assign | ast.AnnAssign):
            return False
    return False


def _is_number(value: ast.expr | None) -> bool:
    """Whether an expression is a number, arithmetic of numbers, or a tuple of such."""
    match value:
        case ast.Constant():
            return isinstance(value.value, int | float) and not isinstance(value.value, bool)
        case ast.UnaryOp():
            return _is_number(value.operand)
        case ast.BinOp():
            return _is_number(value.left) and _is_number(value.right)
        case ast.Tuple():
            return bool(value.elts) and all(map(_is_number, value.elts))
    return False
