"""Control flow as JSON values whose blocks point into a code section."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from tpu_sim.isa.control_flow import Call, If, Loop, While
from tpu_sim.isa.encoding import decode_bundles, encode_bundles
from tpu_sim.isa.errors import TpuxError
from tpu_sim.isa.instruction import Instr
from tpu_sim.isa.program import Block, Bundle, Node

Json = None | bool | int | float | str | list["Json"] | dict[str, "Json"]


@dataclass(frozen=True)
class _Encoded:
    """A block as a file has it: bundles, how many, and (source, repeats) of their instructions."""

    code: bytes
    count: int
    runs: list[tuple[str, int]]

    def bundles(self) -> list[Bundle]:
        """The bundles; raises `ProgramError` for damaged code."""
        bundles = decode_bundles(self.code, self.count)
        return _with_sources(bundles, self.runs) if self.runs else bundles


class _StoredBlock(Block):
    """A block whose bundles are decoded when somebody asks for them."""

    encoded: _Encoded

    @classmethod
    def of(cls, name: str, encoded: _Encoded) -> _StoredBlock:
        """The block of these bundles."""
        block = cls.__new__(cls)
        block.name = name
        block.encoded = encoded
        return block

    def __getattr__(self, name: str) -> list[Bundle]:
        """Called for an attribute that is not there yet."""
        if name != "bundles":
            raise AttributeError(name)
        self.bundles = self.encoded.bundles()
        return self.bundles

    @property
    def is_untouched(self) -> bool:
        """Whether nobody has looked at the bundles, or could have changed them."""
        return "bundles" not in self.__dict__


@dataclass
class CodeWriter:
    """Collects encoded blocks; `sources` are the distinct instruction sources."""

    code: bytearray = field(default_factory=bytearray)
    sources: dict[str, int] = field(default_factory=lambda: {"": 0})

    def block(self, block: Block) -> Json:
        """Append a block's bundles; returns its JSON node."""
        offset = len(self.code)
        if isinstance(block, _StoredBlock) and block.is_untouched:
            encoded = block.encoded
            self.code += encoded.code
            runs: list[Json] = []
            for source, repeats in encoded.runs:
                runs += [self.sources.setdefault(source, len(self.sources)), repeats]
            return ["block", block.name, offset, len(encoded.code), encoded.count, runs]
        data = encode_bundles(block.bundles)
        self.code += data
        runs = self._source_runs(block.bundles)
        return ["block", block.name, offset, len(data), len(block.bundles), runs]

    def _source_runs(self, bundles: list[Bundle]) -> list[Json]:
        """Sources of the instructions in order, as [source number, repeats, ...]."""
        runs: list[Json] = []
        previous, repeats = -1, 0
        for bundle in bundles:
            for instr in bundle:
                number = self.sources.setdefault(instr.source, len(self.sources))
                if number != previous and repeats:
                    runs += [previous, repeats]
                    repeats = 0
                previous = number
                repeats += 1
        return [*runs, previous, repeats] if repeats and (runs or previous) else runs


def write_nodes(nodes: list[Node], writer: CodeWriter) -> Json:
    """The JSON of a body."""
    return [_write_node(node, writer) for node in nodes]


def _write_node(node: Node, writer: CodeWriter) -> Json:
    match node:
        case Block():
            return writer.block(node)
        case Loop():
            body = write_nodes(node.body, writer)
            return ["loop", node.name, node.trip, node.index, node.trip_sreg, node.parallel, body]
        case If():
            then = write_nodes(node.then, writer)
            return ["if", node.condition, then, write_nodes(node.orelse, writer)]
        case While():
            test = write_nodes(node.test, writer)
            body = write_nodes(node.body, writer)
            return ["while", node.name, node.expected_trips, test, node.condition, body]
        case Call():
            return ["call", node.kernel, node.site]


MAX_BUNDLES = 1 << 24
"""Of a program: a run of empty bundles is 3 bytes in a file but 64 K entries in memory."""


@dataclass
class CodeReader:
    """Gives blocks back from a code section; `bundles` counts those read so far.

    With `is_lazy`, bundles are decoded, and their damage found, when a block is first looked into.
    """

    code: bytes
    sources: list[str]
    is_lazy: bool = False
    bundles: int = 0

    def block(self, node: Json) -> Block:
        """The block of a JSON node."""
        name, offset, size, count, runs = take(node, str, int, int, int, list)
        if offset < 0 or size < 0 or offset + size > len(self.code):
            raise TpuxError(f"block {name!r} lies outside the code section")
        self.bundles += max(0, count)
        if count < 0 or self.bundles > MAX_BUNDLES:
            raise TpuxError(f"block {name!r}: too many bundles, at most {MAX_BUNDLES} in a program")
        code = self.code[offset : offset + size]
        encoded = _Encoded(code, count, self._named(runs))
        return _StoredBlock.of(name, encoded) if self.is_lazy else Block(encoded.bundles(), name)

    def _named(self, runs: list[Json]) -> list[tuple[str, int]]:
        """Pairs of source number and repeats as pairs of source and repeats."""
        if len(runs) % 2:
            raise TpuxError("instruction sources are no pairs")
        named: list[tuple[str, int]] = []
        for number, repeats in zip(runs[::2], runs[1::2], strict=True):
            if type(number) is not int or type(repeats) is not int:
                raise TpuxError("instruction sources are not numbers")
            if not 0 <= number < len(self.sources) or repeats <= 0:
                raise TpuxError("instruction sources are out of range")
            named.append((self.sources[number], repeats))
        return named


def _with_sources(bundles: list[Bundle], runs: list[tuple[str, int]]) -> list[Bundle]:
    total = sum(len(bundle) for bundle in bundles)
    if sum(repeats for _, repeats in runs) != total:
        raise TpuxError(f"other than {total} instruction sources for {total} instructions")
    supply = iter([source for source, repeats in runs for _ in range(repeats)])
    return [tuple([_with_source(instr, next(supply)) for instr in bundle]) for bundle in bundles]


def _with_source(instr: Instr, source: str) -> Instr:
    return replace(instr, source=source) if source else instr


def read_nodes(nodes: Json, reader: CodeReader) -> list[Node]:
    """The body of a JSON list; raises `TpuxError`."""
    if not isinstance(nodes, list):
        raise TpuxError("a body is not a list")
    return [_read_node(node, reader) for node in nodes]


def _read_node(node: Json, reader: CodeReader) -> Node:
    if not isinstance(node, list) or not node:
        raise TpuxError("a control-flow node is not a list")
    kind, rest = node[0], node[1:]
    match kind:
        case "block":
            return reader.block(rest)
        case "loop":
            name, trip, index, trip_sreg, parallel, body = take(
                rest, str, int, int, int, bool, list
            )
            return Loop(trip, index, read_nodes(body, reader), trip_sreg, parallel, name)
        case "if":
            condition, then, orelse = take(rest, int, list, list)
            return If(condition, read_nodes(then, reader), read_nodes(orelse, reader))
        case "while":
            name, trips, test, condition, body = take(rest, str, int, list, int, list)
            tests, bodies = read_nodes(test, reader), read_nodes(body, reader)
            return While(tests, condition, bodies, name, trips)
        case "call":
            kernel, site = take(rest, str, str)
            return Call(kernel, site)
        case _:
            raise TpuxError(f"control-flow node {kind!r} is unknown")


def take(values: Json, *types: type) -> list:  # type: ignore[type-arg]  # of the types asked for
    """`values` as a list of exactly these types (int does not pass for bool, nor bool for int)."""
    if not isinstance(values, list) or len(values) != len(types):
        raise TpuxError(f"a list of {len(types)} values is missing")
    for value, want in zip(values, types, strict=True):
        if type(value) is not want:
            raise TpuxError(f"found {type(value).__name__}, want {want.__name__}")
    return values
