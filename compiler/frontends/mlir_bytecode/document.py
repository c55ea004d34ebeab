"""MLIR bytecode as a document: what parsing its text would give."""

from __future__ import annotations

from collections.abc import Iterator

from compiler.diagnostics import CompileError, SourceText
from compiler.frontends.mlir_bytecode import (
    builtin_forms,
    sdy_forms,
    stablehlo_forms,
    vhlo_forms,
)
from compiler.frontends.mlir_bytecode.builtin_forms import place
from compiler.frontends.mlir_bytecode.container import Container
from compiler.frontends.mlir_bytecode.ir import Block, Node, Reader
from compiler.frontends.mlir_bytecode.stablehlo_operations import properties
from compiler.frontends.mlir_bytecode.vhlo_operations import ATTRIBUTES, as_stablehlo, plain_name
from compiler.frontends.stablehlo.parser import generic_function
from compiler.frontends.stablehlo.syntax import Attribute, Document, Operation, Raw, Region

_FUNCTIONS = {"func": "func.func", "call": "func.call", "return": "return"}
"""VHLO's operations that StableHLO has no own ones for."""
_FORMS = {
    "builtin": builtin_forms.FORMS,
    "chlo": stablehlo_forms.CHLO_FORMS,
    "sdy": sdy_forms.FORMS,
    "stablehlo": stablehlo_forms.FORMS,
    "vhlo": vhlo_forms.FORMS,
}
_OTHERS = {
    "builtin.module": ("sym_name?", "sym_visibility?"),
    "sdy.manual_computation": ("in_shardings", "manual_axes", "out_shardings"),
    "sdy.mesh": ("mesh", "sym_name"),
    "sdy.propagation_barrier": ("allowed_direction",),
    "sdy.sharding_constraint": ("sharding",),
    "sdy.sharding_group": ("group_id",),
}
"""Operations of dialects beside StableHLO's, with what is in their properties."""


def read_document(data: bytes, file: str = "<bytes>") -> Document:
    """Read what `stablehlo.serialize_portable_artifact`, `jax.export` or `write_bytecode` of a module gave.

    Raises CompileError, for what a dialect that is not known says too.
    """
    try:
        container = Container(data, _FORMS)
        return _Writer(container, file).document(Reader(container, _properties).read())
    except (ValueError, IndexError, KeyError, RecursionError, OverflowError) as error:
        message = error if isinstance(error, ValueError) else "it is damaged"
        raise CompileError(f"{file}: cannot read this bytecode: {message}") from error


def _properties(name: str, count: int) -> tuple[str, ...]:
    dialect, _, rest = name.partition(".")
    names = ATTRIBUTES.get(rest) if dialect == "vhlo" else properties(name, count)
    names = _OTHERS.get(name) if names is None else names
    if names is None:
        raise ValueError(f"operation {name} is not known")
    return names


class _Writer:
    """Makes a document of nodes, and a text with a line for each operation, for messages to point at."""

    def __init__(self, container: Container, file: str) -> None:
        self._container = container
        self._file = file
        self._lines: list[str] = []
        self._size = 0
        self._nothing = SourceText(file, "")
        self._locations: set[int] = set()
        self._meshes: dict[str, str] = {}

    def document(self, nodes: list[Node]) -> Document:
        operations = [self._operation(node, 0) for node in nodes]
        source = SourceText(self._file, "".join(self._lines))
        for op in _all(operations):
            op.source = source
        return Document(source, tuple(operations), {}, {}, self._meshes, self._aliases())

    def _operation(self, node: Node, depth: int) -> Operation:
        name, attributes = _named(node)
        op = Operation(name, self._nothing, self._size + 2 * depth)
        self._note(node, name, depth)
        op.results = [] if node.results is None else [node.results]
        op.operands = [value.name for value in node.operands]
        inputs = ", ".join(value.kind for value in node.operands)
        op.signature = f": ({inputs}) -> ({', '.join(node.result_kinds)})"
        op.location = self._location(node.location)
        op.attributes = attributes
        op.regions = [self._region(block, depth + 1) for block in node.regions]
        if name == "func.func":
            generic_function(op)
        elif name == "sdy.mesh":
            mesh = attributes.get("mesh")
            if isinstance(mesh, Raw):
                self._meshes[str(attributes["sym_name"])] = mesh.text
        return op

    def _region(self, block: Block | None, depth: int) -> Region:
        if block is None:
            return Region([], [])
        arguments = [(value.name, value.kind) for value in block.arguments]
        region = Region(arguments, [self._operation(node, depth) for node in block.operations])
        pairs = zip(block.arguments, block.argument_locations, strict=True)
        region.locations = {v.name: self._location(n) for v, n in pairs if n is not None}
        return region

    def _note(self, node: Node, name: str, depth: int) -> None:
        results = "" if node.results is None else f"{node.results[0]} = "
        operands = ", ".join(value.name for value in node.operands)
        line = f"{'  ' * depth}{results}{name}({operands})\n"
        self._lines.append(line)
        self._size += len(line)

    def _location(self, number: int) -> str:
        self._locations.add(number)
        return place(number)

    def _aliases(self) -> dict[str, str]:
        """The texts of all locations that are named, and of those that they name."""
        found: dict[str, str] = {}
        waiting = list(self._locations)
        while waiting:
            number = waiting.pop()
            if place(number) in found:
                continue
            value = self._container.attribute(number)
            text = found[place(number)] = value.text if isinstance(value, Raw) else "unknown"
            waiting += [int(part[4:]) for part in _places(text)]
        return found


def _named(node: Node) -> tuple[str, dict[str, Attribute]]:
    """StableHLO's name of an operation and its attributes."""
    dialect, _, rest = node.name.partition(".")
    if node.name == "builtin.module":
        return "module", node.attributes
    if dialect != "vhlo":
        return node.name, node.attributes
    name = plain_name(rest)
    return _FUNCTIONS.get(name, f"stablehlo.{name}"), as_stablehlo(name, node.attributes)


def _places(text: str) -> Iterator[str]:
    """The locations that a location's text names, outside of strings."""
    outside = text.split('"')[::2] if "\\" not in text else [text]
    for part in outside:
        yield from (
            word
            for word in part.replace("[", " ")
            .replace("]", " ")
            .replace("(", " ")
            .replace(")", " ")
            .replace(",", " ")
            .split()
            if word.startswith("#loc")
        )


def _all(operations: list[Operation]) -> Iterator[Operation]:
    for op in operations:
        yield op
        for region in op.regions:
            yield from _all(region.operations)
