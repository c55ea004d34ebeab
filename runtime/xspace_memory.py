"""What lies in HBM when, as xprof's memory viewer reads it: an `HloProto` with a buffer assignment.

The module in it is an outline: parameters, and one custom call for each call site, with the buffers that the
program's table names. Which call uses which buffer follows from the main program, which writes kernels'
arguments to SMEM: an argument that is an address within a buffer is a use of it. Where buffers share an
address, in time, a use is of the one that was made last. The messages are those of the public ``hlo.proto``
and ``xla_data.proto``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from compiler.protobuf import bytes_field, encoded, number_field, text_field
from tpu_sim.isa.control_flow import Call, If, Loop, While
from tpu_sim.isa.origins import OriginTable, origin_table
from tpu_sim.isa.program import Block, Bundle, HbmBuffer, Node, Program

_GRANULE = 512
"""Bytes of the unit that kernels' arguments count HBM in."""
_TYPES = (
    "pred", "s8", "s16", "s32", "s64", "u8", "u16", "u32", "u64", "f16", "f32", "f64", "tuple", "opaque",
    "c64", "bf16", "token", "c128", "f8e5m2", "f8e4m3fn", "s4", "u4", "f8e4m3b11fnuz", "f8e5m2fnuz",
    "f8e4m3fnuz", "s2", "u2", "f8e4m3", "f8e3m4", "s1", "u1", "f4e2m1fn", "f8e8m0fnu",
)  # fmt: skip
"""`PrimitiveType` from 1 on."""
_TUPLE = 1 + _TYPES.index("tuple")
_SHAPE = re.compile(r"(\w+)\[([\d,<= ]*)\](?:\{([\d,]*))?")
_ALLOC, _FREE = 0, 1


@dataclass
class Life:
    """A buffer, and the first and last call (numbers from 0) that it is there for."""

    buffer: HbmBuffer
    first: int
    last: int
    is_used: bool = False


@dataclass
class _Arguments:
    """The main program's constants as it runs: registers and words of SMEM, and what calls get."""

    registers: dict[int, int] = field(default_factory=dict)
    words: dict[int, int] = field(default_factory=dict)
    calls: list[tuple[str, tuple[int, ...]]] = field(default_factory=list)

    def walk(self, program: Program, nodes: Iterable[Node]) -> None:
        """Follow each node once, in order."""
        for node in nodes:
            if isinstance(node, Block):
                for bundle in node.bundles:
                    self._issue(bundle)
            elif isinstance(node, Call):
                count = program.kernels[node.kernel].arg_count
                first = program.smem_args
                given = tuple(self.words.get(first + word, -1) for word in range(count))
                self.calls.append((node.site or node.kernel, given))
            elif isinstance(node, Loop):
                self.walk(program, node.body)
            elif isinstance(node, If):
                self.walk(program, [*node.then, *node.orelse])
            elif isinstance(node, While):
                self.walk(program, [*node.test, *node.body])

    def _issue(self, bundle: Bundle) -> None:
        known = dict(self.registers)  # a bundle reads what was there before it
        for instr in bundle:
            name, operands = instr.row.name, instr.operands
            if name == "smovi":
                self.registers[operands[0]] = operands[1]
            elif name == "sst" and operands[0] == 0 and operands[2] in known:
                self.words[operands[1]] = known[operands[2]]


def lives(program: Program) -> tuple[list[str], list[Life]]:
    """The sites of calls in order, and for how many of them each buffer is there."""
    run = _Arguments()
    run.walk(program, program.main)
    sites = [site for site, _ in run.calls]
    made = {site: number for number, site in reversed(list(enumerate(sites)))}
    uses = [[a * _GRANULE for a in given if a > -1] for _, given in run.calls]
    end = max(len(sites) - 1, 0)
    found = []
    for buffer in program.buffers:
        if buffer.kind in ("input", "constant"):
            found.append(Life(buffer, 0, end, is_used=True))
            continue
        touched = [i for i, at in enumerate(uses) if any(_within(buffer, a) for a in at)]
        root = re.split(r"[{ ]", buffer.name, maxsplit=1)[0]
        if buffer.kind == "output":
            found.append(Life(buffer, made.get(root, max(touched, default=0)), end, is_used=True))
        else:
            first = made.get(root, min(touched, default=0))
            found.append(Life(buffer, first, first))
    _extend(uses, [life for life in found if not life.is_used], found)
    return sites, found


def _extend(uses: list[list[int]], temps: list[Life], everything: list[Life]) -> None:
    """Let temporaries live to their last use."""
    for number, addresses in enumerate(uses):
        for address in addresses:
            there = [
                life
                for life in everything
                if life.first <= number and _within(life.buffer, address)
            ]
            last = max(there, key=lambda life: life.first, default=None)
            if last is not None and any(last is temp for temp in temps):
                last.last = max(last.last, number)


def _within(buffer: HbmBuffer, address: int) -> bool:
    return buffer.offset_bytes <= address < buffer.offset_bytes + buffer.size_bytes


def hlo_proto(program: Program) -> bytes:
    """The `HloProto` of a program."""
    sites, found = lives(program)
    outline = _Outline(program, sites, found)
    return bytes_field(1, outline.module()) + bytes_field(3, outline.assignment())


class _Outline:
    """The module, and its buffers by number (from 1) where they are defined."""

    def __init__(self, program: Program, sites: list[str], found: list[Life]) -> None:
        self._name = program.metadata.get("module", "program")
        self._table: OriginTable = origin_table(program.metadata)
        self._sites = list(dict.fromkeys(sites)) or ["nothing"]
        self._order = sites
        self._inputs = [life for life in found if life.buffer.kind in ("input", "constant")]
        self._made = [life for life in found if life.buffer.kind not in ("input", "constant")]
        self._lives = [*self._inputs, *self._made]
        by_site: dict[str, list[Life]] = {site: [] for site in self._sites}
        for life in self._made:
            by_site[sites[life.first] if sites else "nothing"].append(life)
        self._by_site = by_site

    def module(self) -> bytes:
        """The `HloModuleProto`."""
        rows = [
            self._instruction(number, life.buffer.name, "parameter", _shape(life.buffer))
            + number_field(9, number - 1)
            for number, life in enumerate(self._inputs, 1)
        ]
        given = b"".join(encoded(number) for number in range(1, len(self._inputs) + 1))
        result = b""
        for number, site in enumerate(self._sites, len(self._inputs) + 1):
            result = self._result(site)
            row = self._instruction(number, site, "custom-call", result)
            rows.append(row + text_field(28, "tpuc.kernel") + bytes_field(36, given))
        last = len(self._inputs) + len(self._sites)
        shape = b"".join(bytes_field(1, _shape(life.buffer)) for life in self._inputs)
        shape += bytes_field(2, result)
        shape += b"".join(text_field(3, life.buffer.name) for life in self._inputs)
        body = b"".join(bytes_field(2, row) for row in rows) + bytes_field(4, shape)
        entry = text_field(1, "main") + body + number_field(5, 1) + number_field(6, last)
        head = text_field(1, self._name) + text_field(2, "main") + bytes_field(3, entry)
        return head + bytes_field(4, shape) + number_field(5, 1) + number_field(6, 1)

    def _instruction(self, number: int, name: str, opcode: str, shape: bytes) -> bytes:
        about = b""
        for origin in self._table.of(name)[:1]:
            about = text_field(2, origin.op_name) + text_field(3, origin.file)
            about = bytes_field(7, about + number_field(4, origin.line))
        head = text_field(1, name) + text_field(2, opcode) + bytes_field(3, shape)
        return head + about + number_field(35, number)

    def _result(self, site: str) -> bytes:
        shapes = [_shape(life.buffer) for life in self._by_site[site]]
        if len(shapes) == 1:
            return shapes[0]
        return number_field(2, _TUPLE) + b"".join(bytes_field(4, shape) for shape in shapes)

    def assignment(self) -> bytes:
        """The `BufferAssignmentProto`: an allocation for each array given, and a heap for all that is made.

        Results are in the heap too: before they are made, their places hold other things.
        """
        numbers = {id(life): number for number, life in enumerate(self._lives, 1)}
        logical = b"".join(bytes_field(1, self._logical(life, numbers)) for life in self._lives)
        allocations = [
            self._allocation(index, [life], numbers) for index, life in enumerate(self._inputs)
        ]
        if self._made:
            allocations.append(self._allocation(len(self._inputs), self._made, numbers))
        trace = b"".join(self._events(numbers)) + number_field(2, 1)
        trace += number_field(3, len(self._inputs))
        both = logical + b"".join(bytes_field(3, data) for data in allocations)
        return both + (bytes_field(4, trace) if self._made else b"")

    def _logical(self, life: Life, numbers: dict[int, int]) -> bytes:
        if any(life is given for given in self._inputs):
            place = number_field(4, 1 + next(i for i, x in enumerate(self._inputs) if x is life))
        else:
            site = self._order[life.first] if self._order else "nothing"
            together = self._by_site[site]
            at = next(i for i, x in enumerate(together) if x is life)
            place = number_field(4, 1 + len(self._inputs) + self._sites.index(site))
            place += bytes_field(3, encoded(at)) if len(together) > 1 else b""
        size = number_field(2, life.buffer.size_bytes)
        return number_field(1, numbers[id(life)]) + size + bytes_field(3, place)

    def _allocation(self, index: int, held: list[Life], numbers: dict[int, int]) -> bytes:
        base = min(life.buffer.offset_bytes for life in held)
        end = max(life.buffer.offset_bytes + life.buffer.size_bytes for life in held)
        data = number_field(1, index) + number_field(2, end - base)
        kind = held[0].buffer.kind
        if kind == "input":
            number = max(held[0].buffer.index, 0)
            data += number_field(5, 1) + number_field(6, number)
        elif kind == "constant":
            data += number_field(12, 1)
        for life in held:
            row = number_field(1, numbers[id(life)])
            row += number_field(2, life.buffer.offset_bytes - base)
            data += bytes_field(9, row + number_field(3, life.buffer.size_bytes))
        return data

    def _events(self, numbers: dict[int, int]) -> Iterator[bytes]:
        for number, site in enumerate(self._order):
            for kind, life in [
                *((_ALLOC, life) for life in self._made if life.first == number),
                *((_FREE, life) for life in self._made if life.last == number),
            ]:
                event = number_field(1, kind) + number_field(2, numbers[id(life)])
                yield bytes_field(1, event + text_field(3, "main") + text_field(4, site))


def _shape(buffer: HbmBuffer) -> bytes:
    """A `ShapeProto`; of a buffer without one, its bytes."""
    match = _SHAPE.match(buffer.shape)
    if match is None or match[1] not in _TYPES:
        return _array("u8", [buffer.size_bytes], [0])
    dims = [int(re.sub(r"\D", "", dim)) for dim in match[2].split(",") if dim]
    minor = [int(axis) for axis in (match[3] or "").split(",") if axis]
    return _array(match[1], dims, minor or list(reversed(range(len(dims)))))


def _array(dtype: str, dims: list[int], minor_to_major: list[int]) -> bytes:
    layout = bytes_field(1, b"".join(map(encoded, minor_to_major)))
    sizes = bytes_field(3, b"".join(map(encoded, dims)))
    return number_field(2, 1 + _TYPES.index(dtype)) + sizes + bytes_field(5, layout)
