"""A module as lines that can be cut: what the minimiser works on.

Understands the form the generator writes: one instruction a line, names without ``%``. `plain`
brings what XLA prints into this form.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

_LINE = re.compile(r"^\s*(ROOT )?([\w.\-]+) = (\(.*?\)(?= [a-z])|\S+) ([\w\-]+)\((.*)$")
_NAME = re.compile(r"[A-Za-z_][\w.]*")
_CALLED = re.compile(
    r"(?:to_apply|calls|condition|body|select|scatter|true_computation|false_computation)=([\w.\-]+)"
)
_BRANCHES = re.compile(r"branch_computations=\{([^}]*)\}")


@dataclass(frozen=True)
class Line:
    """``name = shape opcode(operands)attributes``."""

    name: str
    shape: str
    opcode: str
    operands: tuple[str, ...]
    attributes: str

    def text(self) -> str:
        """As it stands in a module."""
        return (
            f"{self.name} = {self.shape} {self.opcode}({', '.join(self.operands)}){self.attributes}"
        )

    def called(self) -> list[str]:
        """The computations it names."""
        branches = _BRANCHES.findall(self.attributes)
        return _CALLED.findall(self.attributes) + [
            name.strip() for group in branches for name in group.split(",")
        ]


@dataclass(frozen=True)
class Computation:
    """Its lines in order; the root is named."""

    name: str
    lines: tuple[Line, ...]
    root: str

    def line(self, name: str) -> Line:
        """The line of a name."""
        return next(line for line in self.lines if line.name == name)

    def with_lines(self, lines: Sequence[Line]) -> Computation:
        """With other lines."""
        return replace(self, lines=tuple(lines))


@dataclass(frozen=True)
class Text:
    """A module. The last computation is the entry."""

    header: str
    computations: tuple[Computation, ...] = field(default=())

    @property
    def entry(self) -> Computation:
        """The entry computation."""
        return self.computations[-1]

    def render(self) -> str:
        """The module's text."""
        parts = [self.header, ""]
        for number, computation in enumerate(self.computations):
            mark = "ENTRY " if number == len(self.computations) - 1 else ""
            parts.append(f"{mark}{computation.name} {{")
            for line in computation.lines:
                root = "ROOT " if line.name == computation.root else ""
                parts.append(f"  {root}{line.text()}")
            parts.append("}\n")
        return "\n".join(parts)

    def with_computation(self, changed: Computation) -> Text:
        """With one computation in place of that of its name."""
        kept = tuple(changed if c.name == changed.name else c for c in self.computations)
        return replace(self, computations=kept)


def plain(text: str) -> str:
    """What XLA printed, without what it says beside: numbers of operands, layouts, origins."""
    text = re.sub(r"/\*.*?\*/", "", text)
    text = re.sub(r"(?<=\])\{[\d,]*\}", "", text)
    text = re.sub(r", metadata=\{[^{}]*\}", "", text)
    text = re.sub(r"(?<![\w\"])%(?=[A-Za-z_])", "", text)
    lines = text.splitlines()
    return "\n".join("HloModule m" if s.startswith("HloModule") else s for s in lines)


def read(text: str) -> Text:
    """Split a module's text."""
    header, computations = "HloModule m", []
    name, lines, root = "", [], ""
    for raw in text.splitlines():
        stripped = raw.strip()
        if stripped.startswith("//") or not stripped:
            continue
        if stripped.startswith("HloModule"):
            header = stripped
        elif stripped.endswith("{") and " = " not in stripped:
            name, lines, root = stripped.removeprefix("ENTRY ").rstrip("{ "), [], ""
        elif stripped == "}":
            computations.append(Computation(name, tuple(lines), root or lines[-1].name))
        else:
            line = _read_line(raw)
            lines.append(line)
            root = line.name if stripped.startswith("ROOT ") else root
    return Text(header, tuple(computations))


def _read_line(raw: str) -> Line:
    found = _LINE.match(raw)
    if found is None:
        raise ValueError(f"no instruction: {raw}")
    _, name, shape, opcode, rest = found.groups()
    inside, attributes = _split(rest)
    if opcode in ("constant", "parameter", "iota"):
        return Line(name, shape, opcode, (inside,) if inside else (), attributes)
    operands = tuple(part.strip() for part in inside.split(",")) if inside.strip() else ()
    return Line(name, shape, opcode, operands, attributes)


def _split(rest: str) -> tuple[str, str]:
    depth = 1
    for at, character in enumerate(rest):
        depth += (character == "(") - (character == ")")
        if depth == 0:
            return rest[:at], rest[at + 1 :]
    raise ValueError(f"no end: {rest}")


def used_names(line: Line) -> set[str]:
    """The instructions a line needs."""
    names = set() if line.opcode in ("constant", "parameter", "iota") else set(line.operands)
    edges = re.search(r"control-predecessors=\{([^}]*)\}", line.attributes)
    if edges is not None:
        names |= {name.strip() for name in edges[1].split(",")}
    return names


def cleaned(text: Text) -> Text:
    """Without dead instructions and uncalled computations, entry parameters numbered anew."""
    computations: list[Computation] = []
    called = {text.entry.name}
    for number, computation in enumerate(reversed(text.computations)):
        if computation.name not in called:
            continue
        alive = _alive(computation, keep_parameters=number > 0)
        called |= {name for line in alive.lines for name in line.called()}
        computations.append(_numbered(alive) if number == 0 else alive)
    header = text.header
    if "input_output_alias" in header and text.entry.lines != computations[0].lines:
        header = "HloModule m"
    return Text(header, tuple(reversed(computations)))


def _alive(computation: Computation, keep_parameters: bool) -> Computation:
    needed = {computation.root}
    kept: list[Line] = []
    for line in reversed(computation.lines):
        if line.name in needed or (keep_parameters and line.opcode == "parameter"):
            kept.append(line)
            needed |= used_names(line)
    return computation.with_lines(kept[::-1])


def _numbered(entry: Computation) -> Computation:
    parameters = [line for line in entry.lines if line.opcode == "parameter"]
    places = {line.name: str(i) for i, line in enumerate(parameters)}
    lines = [
        replace(line, operands=(places[line.name],)) if line.name in places else line
        for line in entry.lines
    ]
    return entry.with_lines(lines)


def elements(shape: str) -> list[str]:
    """The elements of a tuple shape's text."""
    parts, depth, start = [], 0, 1
    for at, character in enumerate(shape):
        depth += (character in "([{") - (character in ")]}")
        if (character == "," and depth == 1) or depth == 0:
            parts.append(shape[start:at].strip())
            start = at + 1
    return [part for part in parts if part]
