"""``.tpux`` files: whatever the bytes, a program or one clear error."""

from __future__ import annotations

import hashlib
import random
import struct
from pathlib import Path

import pytest

from tests.isa.test_assembly import random_program
from tests.support.isa_programs import block, kernel_program
from tpu_sim.isa.container import (
    MAGIC,
    VERSION,
    dump_program,
    load_program,
    read_tpux,
    write_tpux,
)
from tpu_sim.isa.errors import TpuxError

DIGEST_BYTES = 32


def with_digest(body: bytes) -> bytes:
    return body + hashlib.sha256(body).digest()


def test_a_file_round_trips(tmp_path: Path) -> None:
    program = kernel_program(block("smovi s1 = 1"))
    write_tpux(program, tmp_path / "p.tpux")
    assert read_tpux(tmp_path / "p.tpux") == program
    assert [path.name for path in tmp_path.iterdir()] == ["p.tpux"]


def test_reading_checks_the_program(tmp_path: Path) -> None:
    write_tpux(kernel_program(block("smov s1 = s2")), tmp_path / "p.tpux")
    with pytest.raises(TpuxError, match="s2 is read but not written"):
        read_tpux(tmp_path / "p.tpux")


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(TpuxError, match=r"none.tpux: cannot be read"):
        read_tpux(tmp_path / "none.tpux")


def test_a_foreign_file_is_named() -> None:
    for data in (b"", b"\x7fELF", b"HloModule x", b"TPU"):
        with pytest.raises(TpuxError, match=r"not a \.tpux file"):
            load_program(data)


def test_a_truncated_file_is_named() -> None:
    data = dump_program(random_program(0))
    for size in range(len(MAGIC), len(data), 97):
        with pytest.raises(TpuxError, match=r"truncated|not a \.tpux"):
            load_program(data[:size])


def test_another_version_is_named() -> None:
    data = bytearray(dump_program(random_program(0)))
    struct.pack_into("<H", data, len(MAGIC), VERSION + 1)
    with pytest.raises(TpuxError, match=f"version {VERSION + 1} of the format"):
        load_program(bytes(data))


def test_every_flipped_bit_is_found() -> None:
    data = dump_program(random_program(0))
    rng = random.Random(2)
    for _ in range(200):
        damaged = bytearray(data)
        damaged[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
        with pytest.raises(TpuxError):
            load_program(bytes(damaged))


def test_hostile_files_with_a_good_digest_give_a_program_or_an_error() -> None:
    data = dump_program(random_program(3))[:-DIGEST_BYTES]
    rng = random.Random(4)
    refused = 0
    for _ in range(300):
        damaged = bytearray(data)
        for _ in range(rng.randrange(1, 4)):
            damaged[rng.randrange(len(MAGIC) + 2, len(data))] = rng.randrange(256)
        try:
            load_program(with_digest(bytes(damaged)))
        except TpuxError:
            refused += 1
    assert refused > 50


def header_file(header: str) -> bytes:
    text = header.encode()
    return with_digest(struct.pack("<5sHIQQ", MAGIC, VERSION, len(text), 0, 0) + text)


@pytest.mark.parametrize(
    ("header", "message"),
    [
        ("{", "not JSON"),
        ("[]", "not an object"),
        ("{}", "has no 'sources'"),
        ('{"sources":[1]}', "found int, want str"),
        ('{"sources":[],"smem":[1,true]}', "found bool, want int"),
        ("[" * 100_000, "nested too deep|not JSON"),
        ('{"sources":[],"smem":[1,1],"target":"v5e","hbm_bytes":' + "9" * 5000 + "}", "not JSON"),
    ],
)
def test_bad_headers_are_named(header: str, message: str) -> None:
    with pytest.raises(TpuxError, match=message):
        load_program(header_file(header))


def test_a_file_cannot_ask_for_endless_bundles() -> None:
    node = '["block","",0,0,99999999999,[]]'
    header = (
        '{"sources":[],"smem":[1,1],"target":"v5e","hbm_bytes":0,"metadata":{},"kernels":[],'
        f'"constants":[],"buffers":[],"main":[{node}]}}'
    )
    with pytest.raises(TpuxError, match="too many bundles"):
        load_program(header_file(header))
