"""The LLVM side: IR text to object code, object code to callable addresses.

No LLVM pass pipeline runs: the translator emits the code it wants, and codegen level 0 executes as
fast as level 1 for it while compiling several times quicker.
"""

from __future__ import annotations

import hashlib
import platform
from dataclasses import dataclass

import llvmlite
import llvmlite.binding as llvm

from tpu_sim.jit.code_cache import CodeCache
from tpu_sim.jit.emitter import TARGET_ATTRIBUTES
from tpu_sim.jit.lanes import intrinsic_declarations


class UnsupportedHostError(RuntimeError):
    """The host cannot run native programs; `tpu_sim.interp` still can."""


@dataclass(frozen=True)
class Host:
    """What object code depends on: CPU name, feature string."""

    cpu: str
    features: str

    @property
    def has_bf16_dot(self) -> bool:
        """Whether AVX-512 BF16 dot products exist."""
        return "+avx512bf16" in self.features.split(",")


def detect_host() -> Host:
    """The running machine; raises `UnsupportedHostError` unless it is an x86-64 with FMA."""
    if platform.machine().lower() not in ("x86_64", "amd64"):
        raise UnsupportedHostError(f"native execution needs x86-64, not {platform.machine()}")
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    features = llvm.get_host_cpu_features().flatten()
    if "+fma" not in features.split(","):
        raise UnsupportedHostError("native execution needs a host CPU with fused multiply-add")
    return Host(llvm.get_host_cpu_name(), features)


class NativeModule:
    """Linked code. Keeps the code alive; `address` finds functions."""

    def __init__(self, code: bytes, machine: llvm.TargetMachine) -> None:
        self._engine = llvm.create_mcjit_compiler(llvm.parse_assembly(""), machine)
        self._engine.add_object_file(llvm.ObjectFileRef.from_data(code))
        self._engine.finalize_object()

    def address(self, name: str) -> int:
        """Host address of the function `name`."""
        return int(self._engine.get_function_address(name))


class Engine:
    """Compiles IR text for `host`; objects are kept in `cache` unless it is None."""

    def __init__(self, host: Host, cache: CodeCache | None, codegen_level: int = 0) -> None:
        self.host = host
        self._cache = cache
        self._level = codegen_level

    def _machine(self) -> llvm.TargetMachine:
        target = llvm.Target.from_default_triple()
        return target.create_target_machine(
            cpu=self.host.cpu,
            features=self.host.features,
            opt=self._level,
            codemodel="jitdefault",
            jit=True,
        )

    def object_code(self, text: str) -> bytes:
        """Object code of a module: from the cache, else compiled."""
        key = self._key(text)
        code = self._cache.load(key) if self._cache is not None else None
        if code is not None:
            return code
        machine = self._machine()
        module = llvm.parse_assembly(text + intrinsic_declarations(text) + TARGET_ATTRIBUTES)
        module.triple = llvm.get_default_triple()
        module.data_layout = str(machine.target_data)
        module.verify()
        code = bytes(machine.emit_object(module))
        if self._cache is not None:
            self._cache.store(key, code)
        return code

    def _key(self, text: str) -> str:
        parts = (
            text, TARGET_ATTRIBUTES, self.host.cpu, self.host.features, str(self._level),
            llvmlite.__version__, str(llvm.llvm_version_info), platform.platform(),
        )  # fmt: skip
        return hashlib.sha256("\0".join(parts).encode()).hexdigest()

    def link(self, code: bytes) -> NativeModule:
        """Load object code into the process."""
        return NativeModule(code, self._machine())
