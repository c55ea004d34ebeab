"""Bundles to bytes and back, and what the encoder and decoder refuse."""

from __future__ import annotations

import random

import pytest

from tpu_sim.isa.encoding import decode_bundles, encode_bundles, operand_range
from tpu_sim.isa.errors import EncodingError
from tpu_sim.isa.instruction import KIND_BITS, ROWS, Instr, Row, Slot, define

ALL_ROWS = sorted(ROWS.values(), key=lambda row: row.name)


def random_instr(row: Row, rng: random.Random) -> Instr:
    values = []
    for operand in row.operands:
        legal = operand_range(operand.kind)
        values.append(
            rng.choice([legal.start, legal.stop - 1, rng.randrange(legal.start, legal.stop)])
        )
    return Instr(row, tuple(values))


@pytest.mark.parametrize("row", ALL_ROWS, ids=lambda row: row.name)
def test_every_row_round_trips_with_random_fields(row: Row) -> None:
    rng = random.Random(row.name)
    bundles = [(random_instr(row, rng),) for _ in range(20)]
    assert decode_bundles(encode_bundles(bundles), len(bundles)) == bundles


def test_blocks_of_random_bundles_round_trip() -> None:
    rng = random.Random(1)
    bundles = []
    for _ in range(200):
        size = rng.choice([0, 0, 1, 2, 5, 20])
        bundles.append(tuple(random_instr(rng.choice(ALL_ROWS), rng) for _ in range(size)))
    assert decode_bundles(encode_bundles(bundles), len(bundles)) == bundles


def test_runs_of_empty_bundles_are_short_and_round_trip() -> None:
    bundles = [()] * 70_000
    data = encode_bundles(bundles)
    assert len(data) == 6
    assert decode_bundles(data, 70_000) == bundles


@pytest.mark.parametrize("row", ALL_ROWS, ids=lambda row: row.name)
def test_operands_past_their_field_are_refused(row: Row) -> None:
    for index, operand in enumerate(row.operands):
        for value in (operand_range(operand.kind).start - 1, operand_range(operand.kind).stop):
            values = [0] * len(row.operands)
            values[index] = value
            with pytest.raises(EncodingError, match=f"operand {operand.name}"):
                encode_bundles([(Instr(row, tuple(values)),)])


def test_two_rows_of_a_slot_cannot_share_an_opcode() -> None:
    taken = ROWS["vadd.f32"]
    with pytest.raises(AssertionError, match=r"rows vadd.f32 and vnew share opcode"):
        define("vnew", taken.opcode, Slot.VALU, "d:vd", "valu", "", taken.does)
    assert "vnew" not in ROWS


def test_a_row_cannot_be_defined_twice() -> None:
    with pytest.raises(AssertionError, match=r"vadd.f32 is defined twice"):
        define("vadd.f32", 255, Slot.VALU, "d:vd", "valu", "", ROWS["vadd.f32"].does)


def test_opcodes_fit_and_kinds_have_widths() -> None:
    assert all(0 < row.opcode < 256 for row in ALL_ROWS)
    assert {o.kind for row in ALL_ROWS for o in row.operands} <= set(KIND_BITS)


def test_truncated_code_is_refused() -> None:
    data = encode_bundles([(Instr(ROWS["vmovi"], (1, 2)),)])
    for size in range(len(data)):
        with pytest.raises(EncodingError, match="ends inside"):
            decode_bundles(data[:size], 1)


def test_bytes_after_the_last_bundle_are_refused() -> None:
    data = encode_bundles([(Instr(ROWS["vmovi"], (1, 2)),)])
    with pytest.raises(EncodingError, match="1 bytes follow"):
        decode_bundles(data + b"\0", 1)


def test_padding_bits_must_be_zero() -> None:
    data = bytearray(encode_bundles([(Instr(ROWS["vlane"], (1,)),)]))
    assert len(data) == 3 and not data[-1] & 0x80 and data[-1] & 0x02 == 0
    unused = encode_bundles([(Instr(ROWS["vmov"], (1, 2)),)])
    damaged = bytearray(unused)
    damaged[-1] |= 0x80  # 6 + 12 + 12 = 30 bits are used
    with pytest.raises(EncodingError, match="padding"):
        decode_bundles(bytes(damaged), 1)


def test_unknown_opcodes_are_refused() -> None:
    word = 1 | 1 << 6 | 250 << 10  # one instruction: slot 1, opcode 250
    with pytest.raises(EncodingError, match="no instruction has slot 1, opcode 250"):
        decode_bundles(word.to_bytes(3, "little"), 1)


def test_a_run_longer_than_its_block_is_refused() -> None:
    with pytest.raises(EncodingError, match="run of 5"):
        decode_bundles(encode_bundles([()] * 5), 4)
