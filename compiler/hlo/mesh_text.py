"""Named shardings and replica groups over the axes of a mesh, in XLA's form.

A mesh is ``mesh['x'=2,'y'=4]``, with ``device_ids=(...)`` when devices are not in order, or
``maximal_mesh[device_id=3]``. Axes are named by strings, parts of an axis as ``'x':(1)2``.

>>> canonical_mesh_sharding('{mesh["x"=2] [{"x"},{}]}')
"{mesh['x'=2], [{'x'}, {}]}"
>>> canonical_mesh_groups("mesh['x'=2,'y'=4] {'x', 'y'}")
"mesh['x'=2,'y'=4] {'x','y'}"
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from compiler.hlo.iota_order import canonical_iota
from compiler.hlo.json_text import object_end
from compiler.hlo.metadata_text import canonical_metadata

_PIECE = re.compile(
    r"\s*(?:(?P<string>'[^']*'|\"[^\"]*\")|(?P<word>[A-Za-z_]\w*)|(?P<number>-?\d+)|(?P<mark>\S))"
)
_AXIS_LISTS = ("replicated", "unreduced", "manual")
_REDUCTIONS = ("sum", "max", "min")


def is_mesh_sharding(text: str) -> bool:
    """Whether the sharding of one array is over a mesh's axes."""
    return re.match(r"\{\s*(?:maximal_)?mesh\b", text) is not None


def canonical_mesh_sharding(text: str, with_metadata: bool = True) -> str:
    """XLA's text of ``{mesh[...], ...}``; raises ValueError saying what is malformed."""
    reader = _Reader(text)
    reader.expect("{")
    mesh = reader.mesh()
    found = _Named(mesh.text)
    if not mesh.is_maximal:
        reader.take(",")
        reader.sharding(found, mesh)
    while reader.take(","):
        reader.field(found, mesh)
    reader.expect("}")
    return found.text(mesh, with_metadata)


def canonical_mesh_groups(text: str) -> str:
    """XLA's text of ``replica_groups=mesh[...] {axes}``; ValueError when malformed."""
    reader = _Reader(text)
    mesh = reader.mesh()
    axes = reader.axes(mesh)
    return f"{mesh.text} {{{','.join(axes)}}}"


@dataclass(frozen=True)
class _Mesh:
    text: str
    axes: dict[str, int]
    is_maximal: bool

    def axis(self, name: str) -> str:
        """An axis by name or by number, as it is printed."""
        if name not in self.axes:
            if not (name.isdecimal() and int(name) < len(self.axes)):
                raise ValueError(f"{self.text} has no axis {name!r}")
            name = list(self.axes)[int(name)]
        return f"'{name}'"

    def is_all(self, axes: list[str]) -> bool:
        """Whether these are all axes of the mesh in order; those of size 1 may be missing."""
        wanted = [f"'{name}'" for name in self.axes]
        needed = [f"'{name}'" for name, size in self.axes.items() if size != 1]
        in_order = [name for name in wanted if name in axes] == axes
        return bool(axes) and in_order and set(needed) <= set(axes)


class _Named:
    """What a named sharding says; `dims` is None for one that is not by dimensions."""

    def __init__(self, mesh: str) -> None:
        self.mesh = mesh
        self.dims: list[str] = []
        self.lists: dict[str, list[str]] = {}
        self.reduction = "sum"
        self.metadata: list[str] = []

    def text(self, mesh: _Mesh, with_metadata: bool) -> str:
        """The normal form."""
        parts = [self.mesh]
        if not mesh.is_maximal:
            parts += self.body(mesh)
        if with_metadata and self.metadata:
            parts.append(f"metadata={{{', '.join(self.metadata)}}}")
        return "{" + ", ".join(parts) + "}"

    def body(self, mesh: _Mesh) -> list[str]:
        """What follows the mesh: one word where the whole array is treated alike."""
        unreduced, manual = self.lists.get("unreduced", []), self.lists.get("manual", [])
        operation = "" if self.reduction == "sum" else self.reduction
        if not self.dims:
            if not any(self.lists.values()):
                return ["replicated"]
            if mesh.is_all(unreduced):
                return [f"unreduced{'=' if operation else ''}{operation}"]
            if mesh.is_all(manual):
                return ["manual"]
        parts = [f"[{', '.join(self.dims)}]"]
        for name in _AXIS_LISTS:
            axes_of = self.lists.get(name)
            if axes_of:
                head = operation if name == "unreduced" else ""
                parts.append(f"{name}={head}{{{', '.join(axes_of)}}}")
        return parts


class _Reader:
    """Takes a text apart from left to right."""

    def __init__(self, text: str) -> None:
        self.source = text
        self.position = 0

    def peek(self) -> str:
        """The next piece, empty at the end."""
        found = _PIECE.match(self.source, self.position)
        return "" if found is None else found[0].strip()

    def next(self) -> str:
        """Take the next piece."""
        found = _PIECE.match(self.source, self.position)
        if found is None:
            raise ValueError(f"{self.source[:60]!r} ends early")
        self.position = found.end()
        return found[0].strip()

    def take(self, piece: str) -> bool:
        """Take `piece` if it comes next."""
        if self.peek() != piece:
            return False
        self.next()
        return True

    def expect(self, piece: str) -> None:
        """Take `piece`, which must come next."""
        at = self.position
        found = self.next()
        if found != piece:
            raise ValueError(f"want {piece!r} at {self.source[at:].strip()[:40]!r}")

    def string(self) -> str:
        """A name in single or double quotes."""
        piece = self.next()
        if piece[0] not in "'\"":
            raise ValueError(f"want the name of an axis in quotes, found {piece!r}")
        return piece[1:-1]

    def number(self) -> int:
        """A number."""
        piece = self.next()
        if not piece.lstrip("-").isdecimal():
            raise ValueError(f"want a number, found {piece!r}")
        return int(piece)

    def mesh(self) -> _Mesh:
        """``mesh['x'=2,'y'=4], device_ids=(...)`` or ``maximal_mesh[device_id=0]``."""
        kind = self.next()
        self.expect("[")
        if kind == "maximal_mesh":
            self.expect("device_id")
            self.expect("=")
            device = self.number()
            self.expect("]")
            return _Mesh(f"maximal_mesh[device_id={device}]", {}, True)
        if kind != "mesh":
            raise ValueError(f"want mesh or maximal_mesh, found {kind!r}")
        axes: dict[str, int] = {}
        while not self.take("]"):
            name = self.string()
            self.expect("=")
            axes[name] = self.number()
            self.take(",")
        text = "mesh[" + ",".join(f"'{name}'={size}" for name, size in axes.items()) + "]"
        if re.match(r"\s*,\s*device_ids\s*=", self.source[self.position :]):
            text += self.devices()
        return _Mesh(text, axes, False)

    def devices(self) -> str:
        """``, device_ids=(...)``: numbers, or a transposed iota, empty when that is in order."""
        for piece in (",", "device_ids", "=", "("):
            self.expect(piece)
        if not self.take("["):
            return f", device_ids=({','.join(map(str, self.numbers(')')))})"
        sizes = self.numbers("]")
        order = tuple(range(len(sizes)))
        if self.take("T"):
            self.expect("(")
            order = self.numbers(")")
        self.expect(")")
        if sorted(order) != list(range(len(sizes))):
            raise ValueError(f"T{order} does not order {len(sizes)} dimensions")
        sizes, order = canonical_iota(sizes, order)
        if len(sizes) == 1:
            return ""
        return f", device_ids=([{','.join(map(str, sizes))}]T({','.join(map(str, order))}))"

    def numbers(self, end: str) -> tuple[int, ...]:
        """Numbers up to a closing mark."""
        found = []
        while not self.take(end):
            found.append(self.number())
            self.take(",")
        return tuple(found)

    def axis(self, mesh: _Mesh) -> str:
        """An axis or a part of one."""
        name = mesh.axis(self.string())
        if not self.take(":"):
            return name
        self.expect("(")
        before = self.number()
        self.expect(")")
        return f"{name}:({before}){self.number()}"

    def axes(self, mesh: _Mesh) -> list[str]:
        """``{axis, axis}``; a question mark stands for axes that may be added."""
        self.expect("{")
        found = []
        while not self.take("}"):
            found.append("?" if self.take("?") else self.axis(mesh))
            self.take(",")
        return found

    def sharding(self, found: _Named, mesh: _Mesh) -> None:
        """What follows the mesh: a word, or one list of axes for each dimension."""
        word = self.peek()
        if word == "[":
            self.next()
            while not self.take("]"):
                found.dims.append(f"{{{', '.join(self.axes(mesh))}}}")
                self.take(",")
        elif word in _AXIS_LISTS:
            self.next()
            if word != "replicated":
                found.lists[word] = [f"'{name}'" for name in mesh.axes]
            if word == "unreduced":
                self.unreduced(found, mesh)
        else:
            raise ValueError(f"want [axes of each dimension] or a word, found {word!r}")

    def unreduced(self, found: _Named, mesh: _Mesh) -> None:
        """What may follow the word: ``=max`` and a list of axes."""
        if self.take("=") or self.peek() in _REDUCTIONS:
            self.reduction(found)
        if self.peek() == "{":
            found.lists["unreduced"] = self.axes(mesh)

    def reduction(self, found: _Named) -> None:
        """``sum``, ``max`` or ``min``."""
        word = self.next()
        if word not in _REDUCTIONS:
            raise ValueError(f"want sum, max or min, found {word!r}")
        found.reduction = word

    def field(self, found: _Named, mesh: _Mesh) -> None:
        """``name={axes}`` or metadata, after a comma."""
        name = self.next()
        self.expect("=")
        if name == "metadata":
            found.metadata = self.metadata()
        elif name in _AXIS_LISTS:
            if name == "unreduced" and self.peek() in _REDUCTIONS:
                self.reduction(found)
            found.lists[name] = self.axes(mesh)
        else:
            raise ValueError(f"unknown word {name!r} in a sharding over a mesh")

    def metadata(self) -> list[str]:
        """One metadata in braces, or a list of them in further braces."""
        self.position = self.source.index("{", self.position)
        end = object_end(self.source, self.position)
        if end < 0:
            raise ValueError("braces of metadata do not match")
        text = self.source[self.position : end]
        self.position = end
        if not re.match(r"\{\s*\{", text):
            return [canonical_metadata(text)]
        found, at = [], text.index("{", 1)
        while at >= 0:
            stop = object_end(text, at)
            found.append(canonical_metadata(text[at:stop]))
            at = text.find("{", stop)
        return found
