"""Native loops between host arrays and tiled device memory, as LLVM IR text.

A device granule is 128 words of 32 bits; word l holds lane l of 1, 2 or 4 consecutive rows,
the first in its low bits. Granules follow each other: all of a tile, tiles along a row of
tiles, rows of tiles, matrices. The host side is any strided array. Lanes and rows outside of the
array are written as zero and not read.

    void write(ptr host, ptr device, ptr arguments)     host -> device
    void read(ptr host, ptr device, ptr arguments)      device -> host

`arguments` are the i64 fields of `ArgumentField`, then (extent, stride in bytes) of each major
dimension, the fastest first.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum, auto

from tpu_sim.isa.geometry import LANES
from tpu_sim.jit.emitter import FunctionEmitter
from tpu_sim.jit.engine import Engine, NativeModule, UnsupportedHostError, detect_host
from tpu_sim.machine.disk_cache import open_cache
from tpu_sim.machine.fork_lock import Once

GRANULE_BYTES = 4 * LANES
_CODEGEN_LEVEL = 2
_CHUNK = 16
_CHUNKS = LANES // _CHUNK
_WORDS = f"<{_CHUNK} x i32>"
_ALL = f"<{_CHUNK} x i1> splat (i1 true)"

Kernel = Callable[[int, int, int], None]


class ArgumentField(IntEnum):
    """Fields of the argument block."""

    MATRICES = 0
    MAJORS = auto()  # pairs (extent, stride) that follow, at least one
    ROW_TILES = auto()
    COLUMN_TILES = auto()
    GRANULES = auto()  # per tile
    ROWS = auto()
    COLUMNS = auto()
    SKEW = auto()  # how many columns fewer each next row has: 128 for a packed vector
    ROW_STRIDE = auto()
    COLUMN_STRIDE = auto()


@dataclass(frozen=True)
class Kernels:
    """Linked loops of one element width and kind of host row."""

    write: Kernel
    read: Kernel
    module: NativeModule


@Once
def kernels(width: int, *, is_dense: bool, use_cache: bool) -> Kernels | None:
    """Loops for elements of `width` bytes (1, 2, 4); None where the host cannot run native code.

    `is_dense`: elements of a host row follow each other.
    """
    try:
        engine = Engine(detect_host(), open_cache(wanted=use_cache), _CODEGEN_LEVEL)
    except UnsupportedHostError:
        return None
    text = "\n".join(_function(width, is_dense, is_write) for is_write in (True, False))
    module = engine.link(engine.object_code(text))
    signature = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * 3)
    write, read = (signature(module.address(name)) for name in ("write", "read"))
    return Kernels(write, read, module)


def _function(width: int, is_dense: bool, is_write: bool) -> str:
    e = FunctionEmitter()
    arguments = {
        field: e.load("i64", e.offset("%arguments", 8 * field), 8) for field in ArgumentField
    }
    loop = _Granule(e, arguments, width, is_dense, is_write)
    with e.loop(arguments[ArgumentField.MATRICES]) as matrix:
        start = e.offset("%host", _major_offset(e, arguments, matrix))
        with (
            e.loop(arguments[ArgumentField.ROW_TILES]) as row_tile,
            e.loop(arguments[ArgumentField.COLUMN_TILES]) as column_tile,
            e.loop(arguments[ArgumentField.GRANULES]) as granule,
        ):
            loop.emit(start, matrix, row_tile, column_tile, granule)
    name = "write" if is_write else "read"
    header = f"void @{name}(ptr noalias %host, ptr noalias %device, ptr %arguments)"
    slots = " %rest = alloca i64\n %bytes = alloca i64"
    return f"define {header} #0 {{\nentry:\n{slots}\n{e.text()}\n ret void\n}}\n"


def _major_offset(e: FunctionEmitter, arguments: dict[ArgumentField, str], matrix: str) -> str:
    """Host byte offset of a matrix, by its number."""
    e.store("i64", matrix, "%rest", 8)
    e.store("i64", "0", "%bytes", 8)
    with e.loop(arguments[ArgumentField.MAJORS]) as dim:
        pair = e.offset("%arguments", e.value(f"shl i64 {dim}, 4"))
        extent = e.load("i64", e.offset(pair, 8 * len(ArgumentField)), 8)
        stride = e.load("i64", e.offset(pair, 8 * len(ArgumentField) + 8), 8)
        rest = e.load("i64", "%rest", 8)
        index = e.value(f"urem i64 {rest}, {extent}")
        e.store("i64", e.value(f"udiv i64 {rest}, {extent}"), "%rest", 8)
        step = e.value(f"mul i64 {index}, {stride}")
        e.store("i64", e.value(f"add i64 {e.load('i64', '%bytes', 8)}, {step}"), "%bytes", 8)
    return e.load("i64", "%bytes", 8)


class _Granule:
    """Emits the transfer of one granule: whole, or with lanes and rows missing."""

    def __init__(
        self,
        emitter: FunctionEmitter,
        arguments: dict[ArgumentField, str],
        width: int,
        is_dense: bool,
        is_write: bool,
    ) -> None:
        self.e = emitter
        self.arguments = arguments
        self.width = width
        self.packing = 4 // width
        self.is_dense = is_dense
        self.is_write = is_write
        self.type = f"<{_CHUNK} x i{8 * width}>"
        self.suffix = f"v{_CHUNK}i{8 * width}"
        stride = arguments[ArgumentField.COLUMN_STRIDE]
        self.chunk_bytes = emitter.value(f"mul i64 {stride}, {_CHUNK}")
        self.tile_bytes = emitter.value(f"mul i64 {stride}, {LANES}")
        self.lane_offsets = "" if is_dense else self._lane_offsets(stride)

    def emit(self, start: str, matrix: str, row_tile: str, column_tile: str, granule: str) -> None:
        """The granule of the given numbers; `start` points at the host's matrix."""
        e, arguments = self.e, self.arguments
        tile_row = self._scaled(row_tile, arguments[ArgumentField.GRANULES], granule)
        row = e.value(f"mul i64 {tile_row}, {self.packing}")
        number = self._scaled(matrix, arguments[ArgumentField.ROW_TILES], row_tile)
        number = self._scaled(number, arguments[ArgumentField.COLUMN_TILES], column_tile)
        number = self._scaled(number, arguments[ArgumentField.GRANULES], granule)
        device = e.offset("%device", e.value(f"mul i64 {number}, {GRANULE_BYTES}"))
        stride = arguments[ArgumentField.ROW_STRIDE]
        hosts = [e.offset(start, e.value(f"mul i64 {column_tile}, {self.tile_bytes}"))]
        hosts[0] = e.offset(hosts[0], e.value(f"mul i64 {row}, {stride}"))
        for _ in range(1, self.packing):
            hosts.append(e.offset(hosts[-1], stride))
        first = e.value(f"mul i64 {column_tile}, {LANES}")
        left = e.value(f"sub i64 {arguments[ArgumentField.COLUMNS]}, {first}")
        counts = [self._lanes_of_row(row, k, left) for k in range(self.packing)]
        least = counts[-1]  # rows never grow
        whole, edge, done = e.new_label(), e.new_label(), e.new_label()
        e.branch(e.value(f"icmp eq i64 {least}, {LANES}"), whole, edge)
        for label, lanes in ((whole, None), (edge, counts)):
            e.place(label)
            if self.is_dense and lanes is None:
                for chunk in range(_CHUNKS):
                    self._move(device, hosts, chunk, None)
            else:  # a loop, for these bodies are long
                with e.loop(_CHUNKS) as number:
                    self._move(device, hosts, number, lanes)
            e.jump(done)
        e.place(done)

    def _scaled(self, value: str, factor: str, rest: str) -> str:
        return self.e.value(f"add i64 {self.e.value(f'mul i64 {value}, {factor}')}, {rest}")

    def _lanes_of_row(self, first: str, k: int, left: str) -> str:
        """How many lanes of row `first` + k are inside the array: 0 to 128."""
        e = self.e
        row = e.value(f"add i64 {first}, {k}")
        skew = e.value(f"mul i64 {row}, {self.arguments[ArgumentField.SKEW]}")
        lanes = e.value(f"sub i64 {left}, {skew}")
        is_more = e.value(f"icmp sgt i64 {lanes}, {LANES}")
        lanes = e.value(f"select i1 {is_more}, i64 {LANES}, i64 {lanes}")
        is_less = e.value(f"icmp slt i64 {lanes}, 0")
        is_outside = e.value(f"icmp uge i64 {row}, {self.arguments[ArgumentField.ROWS]}")
        is_none = e.value(f"or i1 {is_less}, {is_outside}")
        return e.value(f"select i1 {is_none}, i64 0, i64 {lanes}")

    def _move(
        self, device: str, hosts: list[str], chunk: int | str, lanes: list[str] | None
    ) -> None:
        """Transfer a chunk of a granule's words, with as many lanes of each row as exist."""
        word_at = self.e.offset(device, self._times(chunk, 4 * _CHUNK))
        places = [self._chunk(host, chunk) for host in hosts]
        masks = [self._mask(lanes, k, chunk) for k in range(self.packing)]
        if self.is_write:
            self._write(word_at, places, masks)
        else:
            self._read(word_at, places, masks)

    def _write(self, word_at: str, places: list[str], masks: list[str]) -> None:
        e, word = self.e, ""
        for k, (place, mask) in enumerate(zip(places, masks, strict=True)):
            part = self._load(place, mask)
            if self.packing > 1:
                part = e.value(f"zext {self.type} {part} to {_WORDS}")
            if k:
                part = e.value(f"shl {_WORDS} {part}, splat (i32 {8 * self.width * k})")
            word = e.value(f"or {_WORDS} {word}, {part}") if k else part
        e.store(_WORDS, word, word_at, 1)

    def _read(self, word_at: str, places: list[str], masks: list[str]) -> None:
        e = self.e
        word = e.load(_WORDS, word_at, 1)
        for k, (place, mask) in enumerate(zip(places, masks, strict=True)):
            part = word
            if k:
                part = e.value(f"lshr {_WORDS} {word}, splat (i32 {8 * self.width * k})")
            if self.packing > 1:
                part = e.value(f"trunc {_WORDS} {part} to {self.type}")
            self._store(part, place, mask)

    def _mask(self, lanes: list[str] | None, row: int, chunk: int | str) -> str:
        """Which lanes of a chunk exist; empty when all do."""
        if lanes is None:
            return ""
        e = self.e
        left = e.value(f"sub i64 {lanes[row]}, {self._times(chunk, _CHUNK)}")
        count = e.value(f"trunc i64 {left} to i32")
        first = e.value(f"insertelement {_WORDS} poison, i32 {count}, i64 0")
        limit = e.value(
            f"shufflevector {_WORDS} {first}, {_WORDS} poison, {_WORDS} zeroinitializer"
        )
        numbers = ", ".join(f"i32 {i}" for i in range(_CHUNK))
        mask = e.value(f"icmp slt {_WORDS} <{numbers}>, {limit}")
        return f"<{_CHUNK} x i1> {mask}"

    def _chunk(self, host: str, chunk: int | str) -> str:
        """The address of a chunk's first element."""
        if self.is_dense:
            return self.e.offset(host, self._times(chunk, _CHUNK * self.width))
        return self.e.offset(host, self.e.value(f"mul i64 {self.chunk_bytes}, {chunk}"))

    def _times(self, chunk: int | str, factor: int) -> int | str:
        return (
            chunk * factor if isinstance(chunk, int) else self.e.value(f"mul i64 {chunk}, {factor}")
        )

    def _load(self, host: str, mask: str) -> str:
        if self.is_dense and not mask:
            return self.e.load(self.type, host, 1)
        name, where = self._place("load", "gather", host)
        return self.e.value(
            f"call {self.type} @llvm.masked.{name}({where}, {mask or _ALL}, "
            f"{self.type} zeroinitializer)"
        )

    def _store(self, value: str, host: str, mask: str) -> None:
        if self.is_dense and not mask:
            self.e.store(self.type, value, host, 1)
            return
        name, where = self._place("store", "scatter", host)
        self.e.do(f"call void @llvm.masked.{name}({self.type} {value}, {where}, {mask or _ALL})")

    def _place(self, dense: str, strided: str, host: str) -> tuple[str, str]:
        """The intrinsic's name, and its operand that says where."""
        if self.is_dense:
            return f"{dense}.{self.suffix}.p0", f"ptr align 1 {host}"
        pointers = self.e.value(
            f"getelementptr i8, ptr {host}, <{_CHUNK} x i64> {self.lane_offsets}"
        )
        return f"{strided}.{self.suffix}.v{_CHUNK}p0", f"<{_CHUNK} x ptr> align 1 {pointers}"

    def _lane_offsets(self, stride: str) -> str:
        e, longs = self.e, f"<{_CHUNK} x i64>"
        first = e.value(f"insertelement {longs} poison, i64 {stride}, i64 0")
        every = e.value(f"shufflevector {longs} {first}, {longs} poison, {_WORDS} zeroinitializer")
        numbers = ", ".join(f"i64 {i}" for i in range(_CHUNK))
        return e.value(f"mul {longs} {every}, <{numbers}>")
