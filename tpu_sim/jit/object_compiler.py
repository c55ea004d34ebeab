"""IR text to object code on several threads.

A module is cut into parts of whole functions, each of which declares what the others define; the
parts are compiled at the same time and linked together again. llvmlite lets one thread at a time
into LLVM, but two threads that share no LLVM context and no target machine need no such order, so
the two long calls, parsing and code generation, go around its lock.
"""

from __future__ import annotations

import ctypes
import os
import re
import struct
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache

import llvmlite.binding as llvm
from llvmlite.binding import ffi

from tpu_sim.isa.verification import is_verifying
from tpu_sim.jit.emitter import TARGET_ATTRIBUTES
from tpu_sim.jit.lanes import intrinsic_declarations

_PART_BYTES = 1 << 19
"""A part has at least so much text: below, a thread costs more than it saves."""
_MAX_PARTS = 8
_BUNDLE = struct.Struct("<Q")
_FUNCTION = re.compile(r"^(?=define )", re.MULTILINE)
_FUNCTION_END = "\n}\n"
_HEADER = re.compile(r"define (?:internal )?([^{]*?)((?: noinline)? #\d+)? *\{")

MachineMaker = Callable[[], llvm.TargetMachine]


def compile_objects(text: str, make_machine: MachineMaker) -> list[bytes]:
    """The object code of a module, in one or more objects that are linked together.

    How many they are depends on the text alone. Raises RuntimeError for text that is no IR.
    """
    parts = split_module(text, min(_MAX_PARTS, 1 + len(text) // _PART_BYTES))
    machines = [make_machine() for _ in parts]
    threads = min(len(parts), _processors())
    if threads == 1:
        return [_compile(part, machine) for part, machine in zip(parts, machines, strict=True)]
    with ThreadPoolExecutor(threads) as pool:
        return list(pool.map(_compile, parts, machines))


def split_module(text: str, count: int) -> list[str]:
    """The module cut into at most `count` modules of about equal length."""
    if count == 1:
        return [text]
    head, *pieces = _FUNCTION.split(text)
    functions: list[str] = []
    for piece in pieces:  # what stands between functions belongs to all parts
        function, end, between = piece.partition(_FUNCTION_END)
        functions.append(function + end)
        head += between
    declarations = [_declaration(function) for function in functions]
    parts: list[list[int]] = [[] for _ in range(min(count, len(functions)))]
    sizes = [0] * len(parts)
    for number in sorted(range(len(functions)), key=lambda n: -len(functions[n])):
        smallest = sizes.index(min(sizes))
        parts[smallest].append(number)
        sizes[smallest] += len(functions[number])
    return [_part(head, functions, declarations, set(part)) for part in parts]


def _part(head: str, functions: list[str], declarations: list[str], own: set[int]) -> str:
    texts = [head]
    texts += [line for number, line in enumerate(declarations) if number not in own]
    texts += [functions[n].replace("define internal ", "define ", 1) for n in sorted(own)]
    return "".join(texts)


def _declaration(function: str) -> str:
    found = _HEADER.match(function)
    if found is None:
        raise RuntimeError(f"a function without a header: {function[:80]}")
    return f"declare {found[1]}\n"


@cache
def _processors() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _unlocked(name: str) -> Callable[..., ctypes.c_void_p]:
    """A function of llvmlite's library without its lock; with it where a version has no other."""
    function = getattr(ffi.lib, name)
    bare: Callable[..., ctypes.c_void_p] = getattr(function, "_cfn", function)
    return bare


def _compile(text: str, machine: llvm.TargetMachine) -> bytes:
    """Object code of one module in a context of its own."""
    module = _parsed(text + intrinsic_declarations(text) + TARGET_ATTRIBUTES)
    try:
        module.triple = llvm.get_default_triple()
        module.data_layout = str(machine.target_data)
        if is_verifying():
            module.verify()
        return _emitted(module, machine)
    finally:
        module.close()


def _parsed(text: str) -> llvm.ModuleRef:
    """The module of a text; LLVM's parser checks names and types on the way."""
    context = llvm.create_context()
    source = ctypes.c_char_p(text.encode())
    with ffi.OutputString() as error:
        found = _unlocked("LLVMPY_ParseAssembly")(context, source, error)
        if error:
            raise RuntimeError(f"LLVM IR parsing error\n{error}")
    return llvm.ModuleRef(found, context)


def _emitted(module: llvm.ModuleRef, machine: llvm.TargetMachine) -> bytes:
    with ffi.OutputString() as error:
        buffer = _unlocked("LLVMPY_TargetMachineEmitToMemory")(machine, module, 1, error)
        if not buffer:
            raise RuntimeError(str(error))
    try:
        start = ffi.lib.LLVMPY_GetBufferStart(buffer)
        return bytes(ctypes.string_at(start, ffi.lib.LLVMPY_GetBufferSize(buffer)))
    finally:
        ffi.lib.LLVMPY_DisposeMemoryBuffer(buffer)


def pack_objects(objects: Sequence[bytes]) -> bytes:
    """Objects as one string of bytes, each behind its length."""
    return b"".join(part for code in objects for part in (_BUNDLE.pack(len(code)), code))


def unpack_objects(data: bytes) -> list[bytes]:
    """What `pack_objects` was given; ValueError for other bytes."""
    objects: list[bytes] = []
    at = 0
    while at < len(data):
        if at + _BUNDLE.size > len(data):
            raise ValueError("a length is cut off")
        (size,) = _BUNDLE.unpack_from(data, at)
        at += _BUNDLE.size
        if at + size > len(data):
            raise ValueError("an object is cut off")
        objects.append(data[at : at + size])
        at += size
    return objects
