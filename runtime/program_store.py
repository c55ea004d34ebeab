"""Compiled programs on disk, found by the model's text before anything is parsed.

The key is a digest of the text, the options, the chip and the compiler's own source; the content
is the program as a ``.tpux`` file. What a hit needs is light: neither the parsers nor the passes
nor the backend are imported for it, and bundles stay encoded unless somebody looks at them.
"""

from __future__ import annotations

import time
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, runtime_checkable

from compiler.options import CompileOptions
from runtime.client import Device
from runtime.executable import Executable, Texts
from runtime.machines import MachineOptions
from runtime.slice_executable import SliceExecutable
from runtime.spreads import DEVICES
from tpu_sim.isa.chips import Chip
from tpu_sim.isa.container import (
    checked_program,
    content_digest,
    dump_program,
    load_program,
    read_container,
    read_tpux,
)
from tpu_sim.isa.errors import ProgramError
from tpu_sim.isa.program import Program
from tpu_sim.isa.source_digest import is_source_as_loaded, source_digest
from tpu_sim.isa.torus import Slice
from tpu_sim.machine.disk_cache import DiskCache, cache_key, open_cache

_SOURCE = ("compiler", "tpu_sim")


@runtime_checkable
class Compilation(Protocol):
    """What the compiler makes of a model (`compiler.driver.CompiledModule`)."""

    program: Program
    timings: dict[str, float]

    def hlo_text(self) -> str:
        """HLO after all passes."""

    def llo_text(self) -> str:
        """LLO of all kernels."""


@dataclass
class _KeptTexts:
    """The texts of a program in the store. HLO is kept beside it once it was asked for; else, and for LLO,
    a program that came from the store is compiled again."""

    cache: DiskCache
    key: str
    compile: Callable[[], Compilation]
    compilation: Compilation | None = None

    def compiled(self) -> Compilation:
        if self.compilation is None:
            self.compilation = self.compile()
        return self.compilation

    def kept_hlo(self) -> bytes | None:
        """What the store has of it, compressed."""
        return self.cache.load(self._hlo_key)

    def hlo_text(self) -> str:
        if self.compilation is None and (kept := self.kept_hlo()) is not None:
            return zlib.decompress(kept).decode()
        text = self.compiled().hlo_text()
        if is_source_as_loaded(*_SOURCE):
            self.cache.store(self._hlo_key, zlib.compress(text.encode(), 1))
        return text

    def llo_text(self) -> str:
        return self.compiled().llo_text()

    @property
    def _hlo_key(self) -> str:
        return cache_key("hlo", self.key)


def has_hlo_at_hand(executable: Executable) -> bool:
    """Whether the program's HLO can be had without compiling it again."""
    texts = executable.texts
    if isinstance(texts, _KeptTexts):
        return texts.compilation is not None or texts.kept_hlo() is not None
    return texts is not None


def compiled_module(executable: Executable) -> Compilation | None:
    """What the compiler made of an executable's model, compiled again if the program came from the store;
    None for a program that was loaded."""
    texts = executable.texts
    if isinstance(texts, _KeptTexts):
        return texts.compiled()
    return texts if isinstance(texts, Compilation) else None


def executable_of(
    text: str | bytes,
    devices: Sequence[Device],
    options: CompileOptions,
    machine: MachineOptions,
    compile: Callable[[], Compilation],
    cores: Slice,
) -> Executable:
    """The executable of a model from the store, else from `compile`, which is then kept.

    `text` determines the program together with the chip, `options` and the `cores` of the target.
    Writing the IR of each stage needs the stages, so `options.dump_dir` compiles always.
    """
    started = time.perf_counter()
    cache = open_cache(wanted=machine.cache)
    key = "" if cache is None else _program_key(text, devices[0].chip, options, cores)
    if cache is not None and options.dump_dir is None:
        found = _load(cache, key)
        if found is not None:
            program, digest = found
            seconds = time.perf_counter() - started
            stages = {"load": seconds}
            texts = _KeptTexts(cache, key, compile)
            return _made(program, devices, machine, texts, seconds, stages, digest, cores)
    compiled = compile()
    kept = None if cache is None else _store(cache, key, compiled.program)
    made = compiled if cache is None else _KeptTexts(cache, key, compile, compiled)
    seconds = time.perf_counter() - started
    stages = dict(compiled.timings)
    return _made(compiled.program, devices, machine, made, seconds, stages, kept, cores)


def read_checked(
    path: Path, chip: Chip | None, machine: MachineOptions
) -> tuple[Program, str | None]:
    """The program in a ``.tpux`` file, and its digest if it can be found by that later.

    A content that was checked on this computer before is not checked again. Raises as `read_tpux`.
    """
    cache = open_cache(wanted=machine.cache)
    if cache is None:
        return read_tpux(path, chip), None
    data = read_container(path)
    source = source_digest("tpu_sim")
    key = cache_key("checked", data, repr(chip), source)
    if cache.load(key) is None:
        program = checked_program(data, path, chip)
        if is_source_as_loaded("tpu_sim"):
            cache.store(key, b"")
    else:
        program = load_program(data, lazily=True)
    return program, content_digest(data)


def _made(
    program: Program,
    devices: Sequence[Device],
    machine: MachineOptions,
    texts: Texts,
    seconds: float,
    stages: dict[str, float],
    digest: str | None,
    cores: Slice,
) -> Executable:
    if DEVICES in program.metadata:
        return SliceExecutable(
            program,
            devices[0],
            machine,
            texts,
            seconds,
            stages,
            digest,
            devices=devices,
            slice=cores,
        )
    return Executable(program, devices[0], machine, texts, seconds, stages, digest=digest)


def _program_key(text: str | bytes, chip: Chip, options: CompileOptions, cores: Slice) -> str:
    source = source_digest(*_SOURCE)
    return cache_key("program", text, options.program_key(), repr(chip), repr(cores), source)


def _load(cache: DiskCache, key: str) -> tuple[Program, str] | None:
    data = cache.load(key)
    if data is None:
        return None
    try:
        return load_program(data, lazily=True), content_digest(data)
    except ProgramError:  # whole, but not as this version writes it
        cache.remove(key)
        return None


def _store(cache: DiskCache, key: str, program: Program) -> str:
    data = dump_program(program)
    if is_source_as_loaded(*_SOURCE):
        cache.store(key, data)
    return content_digest(data)
