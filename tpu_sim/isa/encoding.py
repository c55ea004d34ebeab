"""Bundles as bits. Encoder and decoder walk the same list of fields, which the row gives.

    bundle       count:6, then `count` instructions, then padding to a whole byte
    count 0      run:16, so many empty bundles (at least one)
    instruction  slot:4 opcode:8, then per operand a field of `KIND_BITS`, lowest bits first

Immediates (I32, F32, IMM) are two's complement; all other fields are unsigned.
"""

from __future__ import annotations

from functools import cache

from tpu_sim.isa import rows as _rows
from tpu_sim.isa.errors import EncodingError
from tpu_sim.isa.instruction import KIND_BITS, ROW_OF_CODE, Instr, Kind, Row, Slot
from tpu_sim.isa.program import Bundle

COUNT_BITS, RUN_BITS, SLOT_BITS, OPCODE_BITS = 6, 16, 4, 8
_SIGNED = (Kind.I32, Kind.F32, Kind.IMM)
_SLOTS = tuple(Slot)
_SLOT_NUMBERS = {slot: number for number, slot in enumerate(Slot)}
_MAX_RUN = (1 << RUN_BITS) - 1
MOST_IN_BUNDLE = (1 << COUNT_BITS) - 1

assert _rows.valu  # importing the rows fills the table


@cache
def fields(row: Row) -> tuple[tuple[int, bool], ...]:
    """Width and signedness of each operand's field."""
    return tuple((KIND_BITS[o.kind], o.kind in _SIGNED) for o in row.operands)


def operand_range(kind: Kind) -> range:
    """The values a field of `kind` can hold."""
    half = 1 << (KIND_BITS[kind] - 1)
    return range(-half, half) if kind in _SIGNED else range(2 * half)


def encode_bundles(bundles: list[Bundle]) -> bytes:
    """The bytes of a block; raises `EncodingError` if an operand does not fit its field."""
    out = bytearray()
    empty = 0
    for bundle in bundles:
        if bundle:
            _encode_run(out, empty)
            empty = 0
            out += _encode_bundle(bundle)
        else:
            empty += 1
    _encode_run(out, empty)
    return bytes(out)


def _encode_run(out: bytearray, empty: int) -> None:
    while empty:
        run = min(empty, _MAX_RUN)
        out += (run << COUNT_BITS).to_bytes((COUNT_BITS + RUN_BITS + 7) // 8, "little")
        empty -= run


def _encode_bundle(bundle: Bundle) -> bytes:
    if len(bundle) > MOST_IN_BUNDLE:
        raise EncodingError(f"a bundle of {len(bundle)} instructions")
    word, at = len(bundle), COUNT_BITS
    for instr in bundle:
        bits, width = _encode_instr(instr)
        word |= bits << at
        at += width
    return word.to_bytes((at + 7) // 8, "little")


def _encode_instr(instr: Instr) -> tuple[int, int]:
    word, width, places = _layout(instr.row)
    for value, (low, high, mask, at) in zip(instr.operands, places, strict=True):
        if not low <= value <= high:
            raise _unfit(instr)
        word |= (value & mask) << at
    return word, width


@cache
def _layout(row: Row) -> tuple[int, int, tuple[tuple[int, int, int, int], ...]]:
    """Slot and opcode bits, bits in all, and per operand least and greatest value, mask, place."""
    places: list[tuple[int, int, int, int]] = []
    at = SLOT_BITS + OPCODE_BITS
    for width, signed in fields(row):
        low = -(1 << (width - 1)) if signed else 0
        places.append((low, low + (1 << width) - 1, (1 << width) - 1, at))
        at += width
    return _SLOT_NUMBERS[row.slot] | row.opcode << SLOT_BITS, at, tuple(places)


def _unfit(instr: Instr) -> EncodingError:
    row = instr.row
    pairs = zip(row.operands, instr.operands, strict=True)
    name, value, kind = next(
        (o.name, value, o.kind) for o, value in pairs if value not in operand_range(o.kind)
    )
    bits = KIND_BITS[kind]
    return EncodingError(f"{row.name}: operand {name} = {value} does not fit {bits} bits")


def decode_bundles(data: bytes, count: int) -> list[Bundle]:
    """The `count` bundles of `data`; raises `EncodingError` unless they use exactly its bytes."""
    reader = _Reader(data)
    bundles: list[Bundle] = []
    while len(bundles) < count:
        size = reader.take(COUNT_BITS)
        if size:
            bundles.append(tuple([_decode_instr(reader) for _ in range(size)]))
        else:
            run = reader.take(RUN_BITS)
            if not 0 < run <= count - len(bundles):
                raise EncodingError(f"a run of {run} empty bundles in a block of {count}")
            bundles.extend([()] * run)
        reader.align()
    if reader.at != 8 * len(data):
        raise EncodingError(f"{len(data) - reader.at // 8} bytes follow the last bundle")
    return bundles


def _decode_instr(reader: _Reader) -> Instr:
    slot = reader.take(SLOT_BITS)
    opcode = reader.take(OPCODE_BITS)
    row = ROW_OF_CODE.get((_SLOTS[slot], opcode)) if slot < len(_SLOTS) else None
    if row is None:
        raise EncodingError(f"no instruction has slot {slot}, opcode {opcode}")
    operands = []
    for width, signed in fields(row):
        value = reader.take(width)
        operands.append(value - (1 << width) if signed and value >> (width - 1) else value)
    return Instr(row, tuple(operands))


class _Reader:
    """Takes bit fields from bytes, lowest bit first."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self.at = 0

    def take(self, width: int) -> int:
        first, shift = divmod(self.at, 8)
        last = (self.at + width + 7) // 8
        if last > len(self._data):
            raise EncodingError("the code ends inside an instruction")
        self.at += width
        word = int.from_bytes(self._data[first:last], "little")
        return word >> shift & ((1 << width) - 1)

    def align(self) -> None:
        padding = -self.at % 8
        if padding and self.take(padding):
            raise EncodingError("padding bits are not zero")
