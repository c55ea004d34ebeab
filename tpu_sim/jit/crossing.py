"""Primitives that cross lanes or sublanes, on lists of eight 16-lane chunks.

`RowLanes` holds one sublane row (chunk c has lanes 16c..16c+15); `ColumnLanes` holds one chunk
column (chunk s is sublane s). Only the crossing primitives exist here: that is all the meanings of
crossing rows call. Values move between chunks as SSA names, or through a 1 KB row buffer where the
position is not known before the run.
"""

from __future__ import annotations

from collections.abc import Sequence

from tpu_sim.isa.geometry import LANES
from tpu_sim.jit.lanes import CHUNK_BYTES, CHUNK_LANES, LlvmLanes, fold_operation

CHUNKS = LANES // CHUNK_LANES
Chunks = list[str]


def _static(amount: str | int) -> int | None:
    text = str(amount)
    return None if text.startswith("%") else int(text)


def _settled(lanes: LlvmLanes, op: str, result: str) -> str:
    """The result of a fold: its NaN, if it is one of floats, are canonical."""
    return lanes.settle_nan(result) if op.startswith("f") else result


class _Crossing:
    """What both have beside the primitives of their direction."""

    def __init__(self, lanes: LlvmLanes) -> None:
        self._lanes = lanes
        self._emitter = lanes.emitter

    def scalar_add(self, scalar: str | int, k: int) -> str | int:
        """A scalar plus an immediate."""
        return self._lanes.scalar_add(scalar, k)

    def _halved(self, x: Chunks, op: str) -> str:
        """All chunks folded into one, first with those of the other half."""
        operation = fold_operation(self._lanes, op)
        values = list(x)
        while len(values) > 1:
            half = len(values) // 2
            values = [operation(values[i], values[i + half]) for i in range(half)]
        return values[0]


class RowLanes(_Crossing):
    """Lane-crossing primitives on one sublane row. `buffer` names a 1 KB scratch pointer."""

    def __init__(self, lanes: LlvmLanes, buffer: str) -> None:
        super().__init__(lanes)
        self._buffer = buffer

    def _shuffle(self, a: str, b: str, picks: Sequence[int]) -> str:
        chunk = self._lanes.int_type
        mask = ", ".join(f"i32 {pick}" for pick in picks)
        return self._emitter.value(
            f"shufflevector {chunk} {a}, {chunk} {b}, <{CHUNK_LANES} x i32> <{mask}>"
        )

    def _spread(self, chunk: str, lane: int) -> Chunks:
        return [self._shuffle(chunk, chunk, [lane] * CHUNK_LANES)] * CHUNKS

    def lane_fold(self, x: Chunks, op: str) -> Chunks:
        """Halving tree over 128 lanes; lane 0 to all lanes."""
        operation = fold_operation(self._lanes, op)
        result = self._halved(x, op)
        distance = CHUNK_LANES // 2
        while distance:
            picks = [(i + distance) % CHUNK_LANES for i in range(CHUNK_LANES)]
            result = operation(result, self._shuffle(result, result, picks))
            distance //= 2
        return self._spread(_settled(self._lanes, op, result), 0)

    def lane_rotate(self, x: Chunks, amount: str | int) -> Chunks:
        """y[l] = x[(l - amount) mod 128]."""
        number = _static(amount)
        if number is None:
            return self._rotate_in_memory(x, str(amount))
        chunks, lanes = divmod(number % LANES, CHUNK_LANES)
        rotated = [x[(c - chunks) % CHUNKS] for c in range(CHUNKS)]
        if lanes == 0:
            return rotated
        picks = [i + CHUNK_LANES - lanes for i in range(CHUNK_LANES)]
        return [self._shuffle(rotated[c - 1], rotated[c], picks) for c in range(CHUNKS)]

    def _store_row(self, x: Chunks, copies: int) -> None:
        for i in range(copies * CHUNKS):
            pointer = self._emitter.offset(self._buffer, i * CHUNK_BYTES)
            self._emitter.store(self._lanes.int_type, x[i % CHUNKS], pointer, 64)

    def _rotate_in_memory(self, x: Chunks, amount: str) -> Chunks:
        """Two copies of the row in a row, read from lane (-amount) mod 128."""
        self._store_row(x, 2)
        negative = self._emitter.value(f"sub i32 0, {amount}")
        first = self._word_offset(negative)
        pointer = self._emitter.offset(self._buffer, first)
        return [
            self._emitter.load(self._lanes.int_type, self._emitter.offset(pointer, 64 * c), 4)
            for c in range(CHUNKS)
        ]

    def _word_offset(self, lane: str) -> str:
        wrapped = self._emitter.value(f"and i32 {lane}, {LANES - 1}")
        wide = self._emitter.value(f"zext i32 {wrapped} to i64")
        return self._emitter.value(f"shl i64 {wide}, 2")

    def lane_broadcast(self, x: Chunks, lane: str | int) -> Chunks:
        """y[l] = x[lane mod 128]."""
        number = _static(lane)
        if number is not None:
            chunk, within = divmod(number % LANES, CHUNK_LANES)
            return self._spread(x[chunk], within)
        self._store_row(x, 1)
        pointer = self._emitter.offset(self._buffer, self._word_offset(str(lane)))
        return [self._lanes.splat(self._emitter.load("i32", pointer, 4))] * CHUNKS

    def lane_permute(self, x: Chunks, index: Chunks) -> Chunks:
        """y[l] = x[index[l] mod 128], a gather from the row buffer."""
        self._store_row(x, 1)
        return [self._gather(i) for i in index]

    def _gather(self, index: str) -> str:
        chunk = self._lanes.int_type
        wrapped = self._lanes.iand(index, self._lanes.const_i(LANES - 1))
        pointers = self._emitter.value(f"getelementptr i32, ptr {self._buffer}, {chunk} {wrapped}")
        return self._emitter.value(
            f"call {chunk} @llvm.masked.gather.v16i32.v16p0(<16 x ptr> align 4 {pointers}, "
            f"<16 x i1> splat (i1 true), {chunk} zeroinitializer)"
        )


class ColumnLanes(_Crossing):
    """Sublane-crossing primitives on the eight sublanes of one chunk column."""

    def sublane_fold(self, x: Chunks, op: str) -> Chunks:
        """Halving tree over 8 sublanes; sublane 0 to all."""
        return [_settled(self._lanes, op, self._halved(x, op))] * CHUNKS

    def sublane_rotate(self, x: Chunks, amount: str | int) -> Chunks:
        """y[s] = x[(s - amount) mod 8]: static, or three layers of selects."""
        number = _static(amount)
        if number is not None:
            return [x[(s - number) % CHUNKS] for s in range(CHUNKS)]
        rotated = list(x)
        for bit in (1, 2, 4):
            taken = self._bit(str(amount), bit)
            rotated = [
                self._choose(taken, rotated[(s - bit) % CHUNKS], rotated[s]) for s in range(CHUNKS)
            ]
        return rotated

    def _bit(self, scalar: str, bit: int) -> str:
        masked = self._emitter.value(f"and i32 {scalar}, {bit}")
        return self._emitter.value(f"icmp ne i32 {masked}, 0")

    def _choose(self, condition: str, a: str, b: str) -> str:
        chunk = self._lanes.int_type
        return self._emitter.value(f"select i1 {condition}, {chunk} {a}, {chunk} {b}")

    def sublane_broadcast(self, x: Chunks, sublane: str | int) -> Chunks:
        """y[s] = x[sublane mod 8]."""
        number = _static(sublane)
        if number is not None:
            return [x[number % CHUNKS]] * CHUNKS
        values = list(x)
        for bit in (1, 2, 4):
            taken = self._bit(str(sublane), bit)
            values = [
                self._choose(taken, values[i + 1], values[i]) for i in range(0, len(values), 2)
            ]
        return values * CHUNKS

    def sublane_permute(self, x: Chunks, index: Chunks) -> Chunks:
        """y[s, l] = x[index[s, l] mod 8, l]: a select tree per sublane."""
        return [self._pick(list(x), i) for i in index]

    def _pick(self, values: Chunks, index: str) -> str:
        lanes = self._lanes
        for bit in (1, 2, 4):
            masked = lanes.iand(index, lanes.const_i(bit))
            taken = lanes.icmp_u("ne", masked, lanes.const_i(0))
            values = [
                lanes.select(taken, values[i + 1], values[i]) for i in range(0, len(values), 2)
            ]
        return values[0]
