"""A paused run as bytes: what `Run.save` gives and `restore` of a machine takes.

    magic "TPUR\\0" + version:u16     header_bytes:u32     header     parts     digest

The header is JSON: chip, digest of the program, and of each part its name and size. A part is an
array, of which only pages that hold something are kept. The bytes are untrusted on the way in:
whatever they say, a run that goes on from them touches emulated memory alone.
"""

from __future__ import annotations

import hashlib
import json
import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from tpu_sim.isa.causes import Cause
from tpu_sim.isa.chips import Chip
from tpu_sim.isa.container import content_digest, dump_program
from tpu_sim.isa.errors import ProgramError
from tpu_sim.isa.program import Program
from tpu_sim.machine.memory import HbmMemory
from tpu_sim.machine.node_table import MAIN, NodeTable
from tpu_sim.machine.schema import OFFSETS
from tpu_sim.machine.state import CoreState

MAGIC = b"TPUR\0"
VERSION = 3
_PREFIX = struct.Struct("<5sHI")
_DIGEST_BYTES = 32
_PAGE_BYTES = 4096
_LEVEL = 1

Array = npt.NDArray[Any]


class CheckpointError(ProgramError):
    """Bytes that are no paused run of this program on this chip."""


@dataclass(frozen=True)
class Checkpoint:
    """A paused run."""

    program: Program
    state: CoreState
    hbm: HbmMemory
    is_done: bool


def dump_checkpoint(paused: Checkpoint) -> bytes:
    """The bytes of a paused run."""
    arrays = dict(_arrays(paused.program, paused.state, paused.hbm))
    arrays["words"] = arrays["words"].copy()
    arrays["words"][[OFFSETS["until"], OFFSETS["until_call"]]] = 0
    arrays["results"] = _waiting_results(paused.state)
    parts = {name: _packed(array) for name, array in arrays.items()}
    header = {
        "chip": _chip_digest(paused.state.chip),
        "program": content_digest(dump_program(paused.program)),
        "is_done": paused.is_done,
        "parts": [[name, len(data)] for name, data in parts.items()],
    }
    text = json.dumps(header).encode()
    body = b"".join([_PREFIX.pack(MAGIC, VERSION, len(text)), text, *parts.values()])
    return body + hashlib.sha256(body).digest()


def load_checkpoint(
    data: bytes, program: Program, table: NodeTable, state: CoreState, hbm: HbmMemory
) -> bool:
    """Fill a new `state` and the program's part of `hbm`; returns whether the run was over.

    Raises `CheckpointError` and changes nothing if the bytes belong to something else.
    """
    header, rest = _sections(data)
    if header.get("chip") != _chip_digest(state.chip):
        raise CheckpointError("the run was on another chip")
    if header.get("program") != content_digest(dump_program(program)):
        raise CheckpointError("the run was of another program")
    packed: dict[str, bytes] = {}
    for name, size in header["parts"]:
        packed[name], rest = rest[:size], rest[size:]
    arrays = dict(_arrays(program, state, hbm))
    if packed.keys() != arrays.keys():
        raise CheckpointError("parts of the run are missing")
    words = np.zeros_like(state.words)
    _unpack(packed["words"], words)
    is_done = bool(header.get("is_done"))
    _check_position(words, table, state, is_done)
    for name, array in arrays.items():
        _unpack(packed[name], array)
    return is_done


def _arrays(program: Program, state: CoreState, hbm: HbmMemory) -> Iterator[tuple[str, Array]]:
    yield "words", state.words
    yield "vmem", state.vmem
    yield "smem", state.smem
    yield "weights", state.weights
    yield "transposes", state.transposes
    yield "results", state.results
    yield "records", state.records
    yield "totals", state.totals
    yield "hbm", hbm.view(0, program.hbm_bytes)


def _waiting_results(state: CoreState) -> Array:
    """The rings of results without those that were popped."""
    kept = np.zeros_like(state.results)
    size = kept.shape[1]
    for unit in range(len(kept)):
        waiting = range(int(state.mrf_popped[unit]), int(state.mrf_pushed[unit]))
        places = [number % size for number in waiting]
        kept[unit, places] = state.results[unit, places]
    return kept


def _chip_digest(chip: Chip) -> str:
    return hashlib.sha256(repr(chip).encode()).hexdigest()


def _packed(array: Array) -> bytes:
    """Numbers of the pages that hold something, and their bytes."""
    flat = array.reshape(-1).view(np.uint8)
    whole = len(flat) // _PAGE_BYTES * _PAGE_BYTES
    pages = flat[:whole].reshape(-1, _PAGE_BYTES)
    used = _held(pages)
    head = np.array([len(flat), len(used), *used], np.int64).tobytes()
    return zlib.compress(head + pages[used].tobytes() + flat[whole:].tobytes(), _LEVEL)


def _held(pages: Array) -> npt.NDArray[np.int64]:
    """The numbers of the pages that hold anything but zeros."""
    return np.flatnonzero(pages.view(np.uint64).any(axis=1))


def _unpack(data: bytes, array: Array) -> None:
    flat = array.reshape(-1).view(np.uint8)
    most = len(flat) + 8 * (2 + len(flat) // _PAGE_BYTES)
    raw = zlib.decompressobj().decompress(data, most)
    size, count = np.frombuffer(raw[:16], np.int64).tolist() if len(raw) >= 16 else (-1, 0)
    whole = len(flat) // _PAGE_BYTES
    start, tail = 16 + 8 * count, len(flat) - whole * _PAGE_BYTES
    if size != len(flat) or not 0 <= count <= whole:
        raise CheckpointError("a part of the run has another size")
    if len(raw) != start + count * _PAGE_BYTES + tail:
        raise CheckpointError("a part of the run has another size")
    used = np.frombuffer(raw[16:start], np.int64)
    if count and not (used.min() >= 0 and used.max() < whole):
        raise CheckpointError("a page of the run lies outside its memory")
    content = np.frombuffer(raw[start:], np.uint8)
    pages = flat[: whole * _PAGE_BYTES].reshape(-1, _PAGE_BYTES)
    pages[_held(pages)] = 0  # no others: what was never written to takes no memory of the host
    pages[used] = content[: count * _PAGE_BYTES].reshape(-1, _PAGE_BYTES)
    flat[whole * _PAGE_BYTES :] = content[count * _PAGE_BYTES :]


def _sections(data: bytes) -> tuple[dict[str, Any], bytes]:
    if len(data) < _PREFIX.size + _DIGEST_BYTES or not data.startswith(MAGIC):
        raise CheckpointError("not a saved run: it does not start with its magic number")
    _, version, header_bytes = _PREFIX.unpack_from(data)
    if version != VERSION:
        raise CheckpointError(f"version {version} of saved runs, this is version {VERSION}")
    body = data[:-_DIGEST_BYTES]
    if hashlib.sha256(body).digest() != data[-_DIGEST_BYTES:]:
        raise CheckpointError("damaged: the digest does not match")
    end = _PREFIX.size + header_bytes
    try:
        header = json.loads(body[_PREFIX.size : end])
        parts = [(str(name), int(size)) for name, size in header["parts"]]
    except (ValueError, TypeError, KeyError) as error:
        raise CheckpointError(f"the header is damaged: {error}") from error
    header["parts"] = parts
    return header, body[end:]


def _check_position(
    words: npt.NDArray[np.int64], table: NodeTable, state: CoreState, is_done: bool
) -> None:
    """That the run can go on from where it says it stands, or that it stands at its end.

    The end of main need not be a node to go on with: no time passes between it and the test of a
    loop, or the branch, that led to it.
    """
    told = CoreState(state.chip, words=words, vmem=state.vmem, smem=state.smem,
                     records=state.records, totals=state.totals)  # fmt: skip
    bodies = table.bodies
    if is_done:
        is_known = told.body == MAIN and told.node == len(bodies[MAIN].nodes) - 1
    else:
        is_known = 0 <= told.body < len(bodies) and told.node in bodies[told.body].pauses
    if is_known and told.body != MAIN:
        is_known = told.return_node in bodies[MAIN].pauses and 0 <= told.call < len(table.calls)
    waiting = told.mrf_pushed - told.mrf_popped
    is_known &= (
        bool(((waiting >= 0) & (waiting <= state.chip.mrf_entries)).all())
        and told.record_count >= 0
    )
    is_known &= bool(((told.flag_cause >= 0) & (told.flag_cause < len(Cause))).all())
    if not is_known:
        raise CheckpointError("the run stands nowhere in this program")
