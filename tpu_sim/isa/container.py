"""The ``.tpux`` file: a program as bytes, untrusted on the way in.

    magic "TPUX\\0" + version:u16     header_bytes:u32     code_bytes:u64     data_bytes:u64
    header    JSON: target, kernels, control flow, buffers, metadata
    code      encoded bundles, referred to by the header's blocks
    data      the constants, one after another
    digest    SHA-256 of everything before

Integers are little-endian. Reading executes nothing; whatever is wrong with a file is a
`TpuxError` that says what.
"""

from __future__ import annotations

import hashlib
import json
import struct
from dataclasses import astuple
from pathlib import Path

from tpu_sim.isa.checker import check_program
from tpu_sim.isa.chips import Chip, ChipError, load_chip
from tpu_sim.isa.errors import ProgramError, TargetError, TpuxError
from tpu_sim.isa.files import write_whole
from tpu_sim.isa.node_json import CodeReader, CodeWriter, Json, read_nodes, take, write_nodes
from tpu_sim.isa.program import DmaDescriptor, DmaDim, HbmBuffer, Kernel, Program, Route, Window

MAGIC = b"TPUX\0"
VERSION = 6
_PREFIX = struct.Struct("<5sHIQQ")
_DIGEST_BYTES = 32


def write_tpux(program: Program, path: Path | str) -> None:
    """Write `program` to `path`, whole or not at all."""
    write_whole(path, dump_program(program))


def read_tpux(path: Path | str, chip: Chip | None = None) -> Program:
    """Read and check the program in `path`; raises `TpuxError` if the file is no good.

    Without `chip`, the program's target is one of the chips that tpuc knows by name; a `chip` that
    is another than the program's is a `TargetError`.
    """
    return checked_program(read_container(path), path, chip)


def read_container(path: Path | str) -> bytes:
    """The bytes of a file; raises `TpuxError` if it cannot be read."""
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise TpuxError(f"cannot be read: {error.strerror}", str(path)) from error


def checked_program(data: bytes, path: Path | str, chip: Chip | None = None) -> Program:
    """The program in the bytes of the file at `path`, as `read_tpux` gives it."""
    try:
        program = load_program(data)
        check_program(program, chip or load_chip(program.target))
    except TargetError as error:
        raise TargetError(error.message, str(path)) from error
    except (ProgramError, ChipError) as error:
        raise TpuxError(str(error), str(path)) from error
    return program


def dump_program(program: Program) -> bytes:
    """The bytes of a ``.tpux`` file."""
    writer = CodeWriter()
    header = _header(program, writer)
    header["sources"] = list(writer.sources)
    text = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode()
    size = sum(len(constant) for _, constant in program.constants)
    prefix = _PREFIX.pack(MAGIC, VERSION, len(text), len(writer.code), size)
    parts = [prefix, text, bytes(writer.code), *(constant for _, constant in program.constants)]
    digest = hashlib.sha256()
    for part in parts:
        digest.update(part)
    return b"".join([*parts, digest.digest()])


def content_digest(data: bytes) -> str:
    """The hexadecimal digest that ends a ``.tpux`` file: a name for the program in it."""
    return data[-_DIGEST_BYTES:].hex()


def load_program(data: bytes, *, lazily: bool = False) -> Program:
    """The program in the bytes of a ``.tpux`` file, decoded but not yet checked for a chip.

    `lazily` leaves bundles encoded until somebody looks at them; it is for files that have been
    checked before.
    """
    text, code, constants = _sections(data)
    try:
        header = json.loads(text)
        if not isinstance(header, dict):
            raise TpuxError("the header is not an object")
        return _program(header, code, constants, lazily=lazily)
    except ValueError as error:  # of json: bad UTF-8, bad JSON, absurd numbers
        raise TpuxError(f"the header is not JSON: {error}") from error
    except KeyError as error:
        raise TpuxError(f"the header has no {error}") from error
    except RecursionError as error:
        raise TpuxError("the control flow is nested too deep") from error
    except ProgramError as error:
        raise TpuxError(f"the file is damaged: {error}") from error


def _sections(data: bytes) -> tuple[bytes, bytes, memoryview]:
    if len(data) < _PREFIX.size or not data.startswith(MAGIC):
        raise TpuxError("not a .tpux file: it does not start with its magic number")
    _, version, header_bytes, code_bytes, data_bytes = _PREFIX.unpack_from(data)
    if version != VERSION:
        raise TpuxError(f"version {version} of the format, this is version {VERSION}")
    end = _PREFIX.size + header_bytes + code_bytes + data_bytes
    if len(data) != end + _DIGEST_BYTES:
        raise TpuxError(f"truncated or extended: {len(data)} bytes, want {end + _DIGEST_BYTES}")
    view = memoryview(data)
    if hashlib.sha256(view[:end]).digest() != data[end:]:
        raise TpuxError("damaged: the digest does not match")
    first, second = _PREFIX.size + header_bytes, _PREFIX.size + header_bytes + code_bytes
    return data[_PREFIX.size : first], data[first:second], view[second:end]


def _header(program: Program, writer: CodeWriter) -> dict[str, Json]:
    return {
        "target": program.target,
        "hbm_bytes": program.hbm_bytes,
        "smem": [program.smem_words, program.smem_args],
        "kernels": [_kernel_json(kernel, writer) for kernel in program.kernels.values()],
        "main": write_nodes(program.main, writer),
        "routes": [[list(r.targets), r.hops, r.load, r.port] for r in program.routes],
        "buffers": [list(astuple(buffer)) for buffer in program.buffers],
        "constants": [[offset, len(constant)] for offset, constant in program.constants],
        "metadata": dict(program.metadata),
    }


def _kernel_json(kernel: Kernel, writer: CodeWriter) -> Json:
    return {
        "name": kernel.name,
        "facts": [
            kernel.arg_count, kernel.spill_slots, kernel.spill_base_row, kernel.flags, kernel.flops,
            kernel.element_ops, kernel.least_bytes, kernel.cores,
        ],
        "note": kernel.note,
        "windows": [[w.name, w.base_row, w.rows, int(w.kept)] for w in kernel.windows],
        "descriptors": [_descriptor_json(descriptor) for descriptor in kernel.descriptors],
        "body": write_nodes(kernel.body, writer),
    }  # fmt: skip


def _descriptor_json(descriptor: DmaDescriptor) -> Json:
    dims: list[Json] = [[dim.count, dim.src_stride, dim.dst_stride] for dim in descriptor.dims]
    spaces = [descriptor.src_space, descriptor.dst_space]
    return [*spaces, descriptor.chunk, descriptor.window, dims, descriptor.route]


def _program(header: dict[str, Json], code: bytes, data: memoryview, *, lazily: bool) -> Program:
    sources = _list(header["sources"])
    reader = CodeReader(code, take(sources, *[str] * len(sources)), lazily)
    smem_words, smem_args = take(header["smem"], int, int)
    target, hbm_bytes = take([header["target"], header["hbm_bytes"]], str, int)
    kernels = [_kernel(item, reader) for item in _list(header["kernels"])]
    metadata = header["metadata"]
    if not isinstance(metadata, dict):
        raise TpuxError("metadata is not an object")
    return Program(
        target=target,
        kernels={kernel.name: kernel for kernel in kernels},
        main=read_nodes(header["main"], reader),
        buffers=[_buffer(item) for item in _list(header["buffers"])],
        constants=_constants(_list(header["constants"]), data),
        hbm_bytes=hbm_bytes,
        smem_words=smem_words,
        smem_args=smem_args,
        routes=[_route(item) for item in _list(header["routes"])],
        metadata={key: take([value], str)[0] for key, value in metadata.items()},
    )


def _list(value: Json) -> list[Json]:
    if not isinstance(value, list):
        raise TpuxError(f"found {type(value).__name__}, want list")
    return value


def _kernel(item: Json, reader: CodeReader) -> Kernel:
    if not isinstance(item, dict):
        raise TpuxError("a kernel is not an object")
    args, spill_slots, spill_base, flags, *work = take(item["facts"], *[int] * 8)
    flops, element_ops, least_bytes, cores = work
    name, note = take([item["name"], item["note"]], str, str)
    return Kernel(
        name=name,
        arg_count=args,
        windows=[_window(window) for window in _list(item["windows"])],
        descriptors=[_descriptor(value) for value in _list(item["descriptors"])],
        body=read_nodes(item["body"], reader),
        spill_slots=spill_slots,
        spill_base_row=spill_base,
        flags=flags,
        cores=cores,
        flops=flops,
        element_ops=element_ops,
        least_bytes=least_bytes,
        note=note,
    )


def _descriptor(item: Json) -> DmaDescriptor:
    source, target, chunk, window, dims, route = take(item, int, int, int, int, list, int)
    levels = tuple(DmaDim(*take(dim, int, int, int)) for dim in dims)
    return DmaDescriptor(source, target, chunk, levels, window, route)


def _route(item: Json) -> Route:
    targets, hops, load, port = take(item, list, int, float, int)
    return Route(tuple(take(targets, *[int] * len(targets))), hops, load, port)


def _window(item: Json) -> Window:
    name, base_row, rows, kept = take(item, str, int, int, int)
    return Window(name, base_row, rows, bool(kept))


def _buffer(item: Json) -> HbmBuffer:
    return HbmBuffer(*take(item, str, str, int, int, str, int, str))


def _constants(items: list[Json], data: memoryview) -> list[tuple[int, bytes]]:
    constants: list[tuple[int, bytes]] = []
    at = 0
    for item in items:
        offset, size = take(item, int, int)
        if size < 0 or at + size > len(data):
            raise TpuxError("a constant lies outside the data section")
        constants.append((offset, bytes(data[at : at + size])))
        at += size
    if at != len(data):
        raise TpuxError(f"{len(data) - at} bytes of data belong to no constant")
    return constants
