"""IR text to object code on several threads.

A module is compiled in parts of whole functions while its later functions are still being made;
each part declares what the parts before it define, and all are linked together again. llvmlite lets
one thread at a time into LLVM, but threads that share no LLVM context and no target machine need no
such order, so the long calls, parsing and code generation, go around its lock.
"""

from __future__ import annotations

import ctypes
import os
import struct
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from types import TracebackType

import llvmlite.binding as llvm
from llvmlite.binding import ffi

from tpu_sim.isa.verification import is_verifying
from tpu_sim.jit.emitter import TARGET_ATTRIBUTES, TUNED
from tpu_sim.jit.host import processor_count
from tpu_sim.jit.lanes import intrinsic_declarations
from tpu_sim.jit.uninterrupted import uninterrupted

_PART_BYTES = 1 << 17
"""A part has at least so much text: below, setting up LLVM costs more than a thread saves."""
_BUNDLE = struct.Struct("<Q")
_DEFINE = "\ndefine "

_TUNED_DEFINITION = f" {TUNED} {{"

MachineMaker = Callable[[bool], llvm.TargetMachine]
"""Makes a target machine, for tuned functions or for others."""


class ObjectCompiler:
    """Compiles the functions of a module as they are added. Use it as a context.

    `head` is declarations and metadata that every part starts with. A text may define functions that
    have no linkage of their own, and constants that it alone uses; it may call what texts before it
    define. How many parts there are depends on the texts alone.

    Texts of tuned functions make a part of their own, for which LLVM takes three times as long. They
    call nothing but what the head declares.
    """

    def __init__(self, head: str, make_machine: MachineMaker) -> None:
        self._head = head
        self._make_machine = make_machine
        self._declarations: list[str] = []
        self._texts: list[str] = []
        self._tuned: list[str] = []
        self._size = 0
        self._parts: list[Future[bytes]] = []
        self._pool: ThreadPoolExecutor | None = None

    def __enter__(self) -> ObjectCompiler:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._pool is not None:
            self._pool.shutdown(cancel_futures=True)

    def add(self, text: str) -> None:
        """Add functions; compiling them may begin at once."""
        if _TUNED_DEFINITION in text:
            self._tuned.append(text)
            self._declarations += _declarations(text)
            return
        self._texts.append(text)
        self._size += len(text)
        if self._size >= _PART_BYTES:
            part = self._take_part()
            if self._pool is None:
                self._pool = ThreadPoolExecutor(processor_count())
            self._parts.append(self._pool.submit(_compile, part, self._make_machine))

    def _take_part(self) -> str:
        texts = self._texts
        part = "\n".join([self._head, *self._declarations, *texts])
        for text in texts:
            self._declarations += _declarations(text)
        self._texts, self._size = [], 0
        return part

    @uninterrupted
    def objects(self) -> list[bytes]:
        """The object code of what was added; raises RuntimeError for text that is no IR."""
        last = []
        if self._tuned:
            text = "\n".join([self._head, *self._tuned])
            last.append(_compile(text, self._make_machine, for_tuned=True))
        if self._texts:
            last.append(_compile(self._take_part(), self._make_machine))
        return [part.result() for part in self._parts] + last


def _declarations(text: str) -> Iterator[str]:
    """What declares the functions that a text defines."""
    text = "\n" + text
    at = text.find(_DEFINE)
    while at >= 0:
        start, end = at + len(_DEFINE), text.find("\n", at + 1)
        yield f"declare {text[start : text.rfind(')', start, end) + 1]}"
        at = text.find(_DEFINE, start)


def _unlocked(name: str) -> Callable[..., ctypes.c_void_p]:
    """A function of llvmlite's library without its lock; with it where a version has no other."""
    function = getattr(ffi.lib, name)
    bare: Callable[..., ctypes.c_void_p] = getattr(function, "_cfn", function)
    return bare


def _hold_llvm_while_forking() -> None:
    """A fork waits for a thread within llvmlite: its lock would stay taken in the new process."""
    lock = getattr(getattr(ffi.lib, "_lock", None), "_lock", None)
    if lock is not None and hasattr(os, "register_at_fork"):
        os.register_at_fork(
            before=lock.acquire, after_in_parent=lock.release, after_in_child=lock.release
        )


_hold_llvm_while_forking()


def _compile(text: str, make_machine: MachineMaker, for_tuned: bool = False) -> bytes:
    """Object code of one module in a context of its own."""
    machine = make_machine(for_tuned)
    module = _parsed(text + intrinsic_declarations(text) + TARGET_ATTRIBUTES)
    try:
        module.triple = llvm.get_default_triple()
        module.data_layout = str(machine.target_data)
        if is_verifying():
            module.verify()
        return _emitted(module, machine)
    finally:
        pointer = module._ptr
        module.detach()  # first: an interrupt between the two must not free it twice
        _unlocked("LLVMPY_DisposeModule")(pointer)


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
