"""Crossing operations that only move data: rotations and broadcasts, read from where the operand lies.

A rotated value whose operand is in memory (a load, a leaf, a value kept for another level) needs no
pass of its own: its chunk is read from a shifted place, so that it costs little more than a load.
Dynamic lane rotations are left to `tpu_sim.jit.crossing`.
"""

from __future__ import annotations

from collections.abc import Callable

from tpu_sim.isa.geometry import LANES
from tpu_sim.jit.crossing import CHUNKS
from tpu_sim.jit.lanes import CHUNK_BYTES, CHUNK_LANES, LlvmLanes
from tpu_sim.jit.values import Argument, Scalar, Use

ALWAYS_MOVES = frozenset({"vbcast.lane", "vrot.slane", "vbcast.slane"})
"""Rows that only move data, whatever the amount."""

Place = Callable[[str, str], str]
"""Pointer to the chunk at a sublane and a column (i64 names or numbers) of the operand."""


def is_move(row_name: str, arguments: tuple[Argument, ...]) -> bool:
    """Whether an operation only moves data, by an amount that can be turned into an address."""
    if row_name == "vrot.lane":
        return _static_amount(arguments) is not None
    return row_name in ALWAYS_MOVES


def moved(arguments: tuple[Argument, ...]) -> int:
    """The value that a move reads."""
    source = arguments[0]
    assert isinstance(source, Use)
    return source.value


def _static_amount(arguments: tuple[Argument, ...]) -> int | None:
    scalar, immediate = arguments[1:3]
    assert isinstance(scalar, Scalar) and isinstance(immediate, int)
    return None if scalar.text.startswith("%") else int(scalar.text) + immediate


def move_chunk(
    lanes: LlvmLanes,
    row_name: str,
    arguments: tuple[Argument, ...],
    position: tuple[str, str],
    place: Place,
) -> str:
    """The chunk at `position` (sublane, column) of a move, its operand lying at `place`."""
    return _Mover(lanes, arguments, position, place).chunk(row_name)


class _Mover:
    def __init__(
        self,
        lanes: LlvmLanes,
        arguments: tuple[Argument, ...],
        position: tuple[str, str],
        place: Place,
    ) -> None:
        self._lanes = lanes
        self._emitter = lanes.emitter
        self._arguments = arguments
        self._sublane, self._column = position
        self._place = place

    def chunk(self, row_name: str) -> str:
        """The moved chunk."""
        match row_name:
            case "vrot.lane":
                return self._rotated_lanes()
            case "vbcast.lane":
                return self._spread_lane()
            case "vrot.slane":
                return self._load(self._minus(self._sublane, self._amount()), self._column)
        return self._load(self._wrapped(self._amount()), self._column)

    def _load(self, sublane: str, column: str) -> str:
        pointer = self._place(sublane, column)
        return self._emitter.load(self._lanes.int_type, pointer, CHUNK_BYTES)

    def _amount(self) -> str:
        """The amount as an i64."""
        number = _static_amount(self._arguments)
        if number is not None:
            return str(number)
        scalar, immediate = self._arguments[1:3]
        assert isinstance(scalar, Scalar) and isinstance(immediate, int)
        text = str(self._lanes.scalar_add(scalar.text, immediate))
        return self._emitter.value(f"zext i32 {text} to i64")

    def _wrapped(self, index: str) -> str:
        """An index of eight sublanes or columns, wrapped around."""
        if not index.startswith("%"):
            return str(int(index) % CHUNKS)
        return self._emitter.value(f"and i64 {index}, {CHUNKS - 1}")

    def _minus(self, index: str, amount: str) -> str:
        if not (index.startswith("%") or amount.startswith("%")):
            return self._wrapped(str(int(index) - int(amount)))
        if amount in ("0", str(-CHUNKS), str(CHUNKS)):
            return index
        return self._wrapped(self._emitter.value(f"sub i64 {index}, {amount}"))

    def _rotated_lanes(self) -> str:
        number = _static_amount(self._arguments)
        assert number is not None
        chunks, shift = divmod(number % LANES, CHUNK_LANES)
        high = self._load(self._sublane, self._minus(self._column, str(chunks)))
        if shift == 0:
            return high
        low = self._load(self._sublane, self._minus(self._column, str(chunks + 1)))
        picks = ", ".join(f"i32 {i + CHUNK_LANES - shift}" for i in range(CHUNK_LANES))
        chunk = self._lanes.int_type
        return self._emitter.value(
            f"shufflevector {chunk} {low}, {chunk} {high}, <{CHUNK_LANES} x i32> <{picks}>"
        )

    def _spread_lane(self) -> str:
        e = self._emitter
        amount = self._amount()
        if amount.startswith("%"):
            byte_offset = e.value(f"shl i64 {e.value(f'and i64 {amount}, {LANES - 1}')}, 2")
        else:
            byte_offset = str(int(amount) % LANES * 4)
        pointer = e.offset(self._place(self._sublane, "0"), byte_offset)
        return self._lanes.splat(e.load("i32", pointer, 4))
