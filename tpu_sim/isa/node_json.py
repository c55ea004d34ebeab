"""Control flow as JSON values whose blocks point into a code section."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from tpu_sim.isa.encoding import decode_bundles, encode_bundles
from tpu_sim.isa.errors import TpuxError
from tpu_sim.isa.instruction import Instr
from tpu_sim.isa.program import Block, Bundle, Call, If, Loop, Node, While

Json = None | bool | int | float | str | list["Json"] | dict[str, "Json"]


@dataclass
class CodeWriter:
    """Collects encoded blocks; `sources` are the distinct instruction sources."""

    code: bytearray = field(default_factory=bytearray)
    sources: dict[str, int] = field(default_factory=lambda: {"": 0})

    def block(self, block: Block) -> Json:
        """Append a block's bundles; returns its JSON node."""
        data = encode_bundles(block.bundles)
        offset = len(self.code)
        self.code += data
        runs = self._source_runs(block.bundles)
        return ["block", block.name, offset, len(data), len(block.bundles), runs]

    def _source_runs(self, bundles: list[Bundle]) -> Json:
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
    """Gives blocks back from a code section; `bundles` counts those read so far."""

    code: bytes
    sources: list[str]
    bundles: int = 0

    def block(self, node: Json) -> Block:
        """The block of a JSON node."""
        name, offset, size, count, runs = take(node, str, int, int, int, list)
        if offset < 0 or size < 0 or offset + size > len(self.code):
            raise TpuxError(f"block {name!r} lies outside the code section")
        self.bundles += max(0, count)
        if count < 0 or self.bundles > MAX_BUNDLES:
            raise TpuxError(f"block {name!r}: too many bundles, at most {MAX_BUNDLES} in a program")
        bundles = decode_bundles(self.code[offset : offset + size], count)
        return Block(self._with_sources(bundles, runs), name)

    def _with_sources(self, bundles: list[Bundle], runs: list[Json]) -> list[Bundle]:
        if not runs:
            return bundles
        names: list[str] = []
        total = sum(len(bundle) for bundle in bundles)
        for number, repeats in zip(runs[::2], runs[1::2], strict=True):
            if not isinstance(number, int) or not isinstance(repeats, int):
                raise TpuxError("instruction sources are not numbers")
            if not 0 <= number < len(self.sources) or not 0 < repeats <= total - len(names):
                raise TpuxError("instruction sources are out of range")
            names += [self.sources[number]] * repeats
        if len(names) != total:
            raise TpuxError(f"{len(names)} instruction sources for {total} instructions")
        supply = iter(names)
        return [
            tuple([_with_source(instr, next(supply)) for instr in bundle]) for bundle in bundles
        ]


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
