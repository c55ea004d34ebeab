"""The CPU state that translated code assumes, set on entry and put back on the way out.

Every thread that runs translated code calls `ENTER` first and `LEAVE` last, with the same
`STATE_BYTES` of memory. In between, floating point is IEEE with round to nearest even and
denormals kept, and where the host has a matrix unit its eight tiles are 16 rows of 64 bytes.
"""

from __future__ import annotations

from tpu_sim.jit.emitter import FunctionEmitter
from tpu_sim.jit.host import Arch, Host
from tpu_sim.jit.kernel_builtins import Native

ENTER = Native("tpuc_kernel_v1_enter", ("ptr",))
LEAVE = Native("tpuc_kernel_v1_leave", ("ptr",))
PAUSE = Native("tpuc_kernel_v1_pause")
"""Lets the core of a thread that waits for another one rest for a moment."""
STATE_BYTES = 128
TILES = 8

_STANDARD_MXCSR = 0x1F80  # round to nearest even, denormals kept, exceptions masked
_STANDARD_FPCR = 0
_MODE_AT = 64  # of the state; the tiles' configuration stands before it
_NEW_MODE_AT = 72
_TILE_ROWS = 16
_TILE_ROW_BYTES = 64
_CONFIGURATION = "@tile_configuration"


def host_state_text(host: Host) -> str:
    """`ENTER`, `LEAVE` and `PAUSE` for `host`."""
    enter, leave = FunctionEmitter(), FunctionEmitter()
    if host.arch is Arch.X86_64:
        _swap_mxcsr(enter, leave)
    else:
        _swap_fpcr(enter, leave)
    texts = []
    if host.has_matrix_unit:
        texts.append(_configuration_text())
        enter.do("call void @llvm.x86.sttilecfg(ptr %state)")
        enter.do(f"call void @llvm.x86.ldtilecfg(ptr {_CONFIGURATION})")
        leave.do("call void @llvm.x86.ldtilecfg(ptr %state)")
    for function, parameter, body in (
        (ENTER, "ptr %state", enter.text()),
        (LEAVE, "ptr %state", leave.text()),
        (PAUSE, "", f" {_pause(host)}"),
    ):
        header = f"void @{function.symbol}({parameter})"
        texts.append(f"define {header} #0 {{\nentry:\n{body}\n ret void\n}}\n")
    return "\n".join(texts)


def _swap_mxcsr(enter: FunctionEmitter, leave: FunctionEmitter) -> None:
    enter.do(f"call void @llvm.x86.sse.stmxcsr(ptr {enter.offset('%state', _MODE_AT)})")
    standard = enter.offset("%state", _NEW_MODE_AT)
    enter.store("i32", str(_STANDARD_MXCSR), standard, 4)
    enter.do(f"call void @llvm.x86.sse.ldmxcsr(ptr {standard})")
    leave.do(f"call void @llvm.x86.sse.ldmxcsr(ptr {leave.offset('%state', _MODE_AT)})")


def _swap_fpcr(enter: FunctionEmitter, leave: FunctionEmitter) -> None:
    mode = enter.value("call i64 @llvm.aarch64.get.fpcr()")
    enter.store("i64", mode, enter.offset("%state", _MODE_AT), 8)
    enter.do(f"call void @llvm.aarch64.set.fpcr(i64 {_STANDARD_FPCR})")
    saved = leave.load("i64", leave.offset("%state", _MODE_AT), 8)
    leave.do(f"call void @llvm.aarch64.set.fpcr(i64 {saved})")


def _configuration_text() -> str:
    """Palette 1, then 16 numbers of bytes per row and 16 numbers of rows."""
    row_bytes = [_TILE_ROW_BYTES if tile < TILES else 0 for tile in range(16)]
    rows = [_TILE_ROWS if tile < TILES else 0 for tile in range(16)]
    head = [1, *[0] * 15]
    data = bytes(head) + b"".join(n.to_bytes(2, "little") for n in row_bytes) + bytes(rows)
    text = ", ".join(f"i8 {byte}" for byte in data)
    return f"{_CONFIGURATION} = internal constant [{len(data)} x i8] [{text}], align 64\n"


def _pause(host: Host) -> str:
    if host.arch is Arch.X86_64:
        return "call void @llvm.x86.sse2.pause()"
    return "call void @llvm.aarch64.hint(i32 1)"
