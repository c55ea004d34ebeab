"""The LLVM side: IR text to object code, object code to callable addresses.

No LLVM pass pipeline runs: the translator emits the code it wants, and codegen level 0 executes as
fast as level 1 for most of it while compiling several times quicker. Functions of which that is not
so are marked as tuned (`tpu_sim.jit.object_compiler`).
"""

from __future__ import annotations

import itertools
import os
import platform
import sys
from _thread import start_new_thread
from collections.abc import Callable
from queue import SimpleQueue

import llvmlite
import llvmlite.binding as llvm

from tpu_sim.isa.source_digest import is_source_as_loaded, source_digest
from tpu_sim.jit.emitter import TARGET_ATTRIBUTES
from tpu_sim.jit.host import Host, UnsupportedHostError, detect_host
from tpu_sim.jit.object_compiler import ObjectCompiler, pack_objects, unpack_objects
from tpu_sim.jit.uninterrupted import uninterrupted
from tpu_sim.machine.disk_cache import DiskCache, cache_key
from tpu_sim.machine.fork_lock import Once

__all__ = ["Engine", "Host", "NativeModule", "UnsupportedHostError", "detect_host"]


_CODE_MODEL, _RELOCATION = "small", "pic"
"""LLVM's fast instruction selector does calls in this code model only: codegen takes half the time."""


_TUNED_LEVEL = 1

_symbols: dict[str, int] = {}
_numbers = itertools.count()


def define_symbol(name: str, address: int) -> None:
    """Let modules linked from now on call the function `name` at a host address."""
    _symbols[name] = address


@Once
def _linker() -> llvm.LLJIT:
    """The one linker of the process; it never goes, as code that it linked may be running.

    JITLink gives the sections of an object one piece of memory, so that they can address each
    other in the small code model however full the address space is.
    """
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    return llvm.create_lljit_compiler(use_jit_link=True)


_released: SimpleQueue[list[object]] = SimpleQueue()


def _reap() -> None:
    """Unload code that nobody needs any more.

    On a thread of its own: in the main thread a Ctrl-C that comes meanwhile would be lost in the
    destructor of an object.
    """
    while True:
        _released.get().clear()


@Once
def _reaper() -> int:
    return start_new_thread(_reap, ())  # not threading's: no handler may raise in between


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_reaper.clear)  # a child has no such thread


@uninterrupted
def _linked(code: bytes, library: str) -> llvm.ResourceTracker:
    """Object code in the process, under the name of a library."""
    builder = llvm.JITLibraryBuilder().add_current_process()
    for part in unpack_objects(code):
        builder.add_object_img(part)
    for name, address in _symbols.items():
        builder.import_symbol(name, address)
    return builder.link(_linker(), library)


@uninterrupted
def _looked_up(library: str, name: str) -> llvm.ResourceTracker:
    """A function of a library, whose address the tracker knows."""
    return _linker().lookup(library, name)


class NativeModule:
    """Linked code. Keeps the code alive; `address` finds functions."""

    def __init__(self, code: bytes) -> None:
        _reaper()
        self._name = f"tpuc{next(_numbers)}"
        self._handles: list[object] = [_linked(code, self._name)]
        self._found: dict[str, int] = {}

    def address(self, name: str) -> int:
        """Host address of the function `name`."""
        if name not in self._found:
            tracker = _looked_up(self._name, name)
            self._handles.append(tracker)
            self._found[name] = int(tracker[name])
        return self._found[name]

    def __del__(self) -> None:
        if not sys.is_finalizing() and hasattr(self, "_handles"):
            _released.put(self.__dict__.pop("_handles"))


def _whole_text(head: str, *texts: str) -> str:
    return "\n".join((head, *texts))


class Engine:
    """Compiles IR text for `host`; objects are kept in `cache` unless it is None."""

    def __init__(self, host: Host, cache: DiskCache | None, codegen_level: int = 0) -> None:
        self.host = host
        self._cache = cache
        self._level = codegen_level

    def target_machine(self, for_tuned: bool = False) -> llvm.TargetMachine:
        """A new target machine: one compiles for one thread at a time."""
        target = llvm.Target.from_default_triple()
        return target.create_target_machine(
            cpu=self.host.cpu,
            features=self.host.features,
            opt=max(self._level, _TUNED_LEVEL) if for_tuned else self._level,
            codemodel=_CODE_MODEL,
            reloc=_RELOCATION,
            jit=True,
        )

    def compiler(self, head: str) -> ObjectCompiler:
        """What compiles a module whose functions are still being made, its parts not yet kept."""
        return ObjectCompiler(head, self.target_machine)

    def object_code(self, *texts: str, head: str = "") -> bytes:
        """Object code of a module, ready for `link`: from the cache, else compiled.

        See `ObjectCompiler` for what `head` and `texts` may be.
        """
        text = _whole_text(head, *texts)
        code = self._cache.load(self.object_key(text)) if self._cache is not None else None
        if code is not None:
            return code
        with self.compiler(head) as compiler:
            for functions in texts:
                compiler.add(functions)
            return self.keep(text, compiler.objects())

    def own_code(self, name: str, make_text: Callable[[], str]) -> bytes:
        """Object code of a module of ours: its text is made only if this source did not make it before."""
        if self._cache is None:
            return self.object_code(make_text())
        key = cache_key(name, source_digest("tpu_sim"), *self.identity())
        object_key = self._cache.load(key)
        code = None if object_key is None else self._cache.load(object_key.decode())
        if code is None:
            text = make_text()
            code = self.object_code(text)
            if is_source_as_loaded("tpu_sim"):
                self._cache.store(key, self.object_key(_whole_text("", text)).encode())
        return code

    def keep(self, text: str, objects: list[bytes]) -> bytes:
        """The objects of a module as code for `link`, which is kept in the cache."""
        code = pack_objects(objects)
        if self._cache is not None:
            self._cache.store(self.object_key(text), code)
        return code

    def object_key(self, text: str) -> str:
        """The key under which the object code of a module is kept."""
        return cache_key("objects", text, TARGET_ATTRIBUTES, *self.identity())

    def identity(self) -> tuple[str, ...]:
        """What object code depends on beside its IR text."""
        return (
            repr(self.host), f"{self._level} {_TUNED_LEVEL}", _CODE_MODEL, _RELOCATION,
            llvmlite.__version__, str(llvm.llvm_version_info), platform.platform(),
        )  # fmt: skip

    def link(self, code: bytes) -> NativeModule:
        """Load object code into the process."""
        return NativeModule(code)
