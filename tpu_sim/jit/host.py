"""The host that native code is made for: architecture, CPU, features, matrix unit.

``TPUC_HOST_FEATURES`` selects a lower feature set than the host has: ``avx512`` or ``avx2`` on
x86-64, ``neon`` on aarch64; ``native`` (the default) is all the host has. Values and cycles do not
depend on it.
"""

from __future__ import annotations

import ctypes
import os
import platform
import sys
from dataclasses import dataclass
from enum import Enum
from functools import cache

import llvmlite.binding as llvm

from tpu_sim.isa.errors import TpucError
from tpu_sim.jit.uninterrupted import uninterrupted

FEATURES_VARIABLE = "TPUC_HOST_FEATURES"
NATIVE = "native"

_ARCH_PRCTL = 158
_REQUEST_PERMISSION = 0x1023  # ARCH_REQ_XCOMP_PERM
_TILE_DATA = 18  # the number of the tile registers among the CPU's extended states


class UnsupportedHostError(TpucError, RuntimeError):
    """The host cannot run native programs; `tpu_sim.interp` still can."""


def processor_count() -> int:
    """Processors this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


class Arch(Enum):
    """Instruction sets that native code is made for, by LLVM's name."""

    X86_64 = "x86_64"
    AARCH64 = "aarch64"


@dataclass(frozen=True)
class Host:
    """What object code depends on.

    `cpu` and `features` are LLVM's names; `has_matrix_unit`: tiles with a bf16 product exist and
    the operating system lets this process use them.
    """

    arch: Arch
    cpu: str
    features: str
    has_matrix_unit: bool = False

    @property
    def vector_lanes(self) -> int:
        """f32 lanes of a vector register."""
        if self.arch is Arch.AARCH64:
            return 4
        return 16 if self.has("avx512f") else 8

    def has(self, feature: str) -> bool:
        """Whether code may use a feature, by LLVM's name."""
        return f"+{feature}" in self.features.split(",")


@dataclass(frozen=True)
class _FeatureSet:
    arch: Arch
    cpu: str
    features: tuple[str, ...]


_AVX2 = ("avx2", "fma", "bmi", "bmi2", "f16c", "lzcnt", "movbe", "popcnt")
_AVX512 = (*_AVX2, "avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl")
_FEATURE_SETS = {
    "avx2": _FeatureSet(Arch.X86_64, "x86-64-v3", _AVX2),
    "avx512": _FeatureSet(Arch.X86_64, "x86-64-v4", _AVX512),
    "neon": _FeatureSet(Arch.AARCH64, "generic", ("neon",)),
}
LEVELS = tuple(_FEATURE_SETS)
"""Names of feature sets, beside `NATIVE`."""
_LEAST = {Arch.X86_64: "avx2", Arch.AARCH64: "neon"}
_ARCHITECTURES = {
    "x86_64": Arch.X86_64, "amd64": Arch.X86_64, "aarch64": Arch.AARCH64, "arm64": Arch.AARCH64,
}  # fmt: skip


def detect_host() -> Host:
    """The running machine, reduced to ``TPUC_HOST_FEATURES``.

    Raises `UnsupportedHostError` for an architecture without native code, a host without the
    features of the chosen set, or an unknown set.
    """
    return _detect(os.environ.get(FEATURES_VARIABLE) or NATIVE)


@cache
@uninterrupted
def _detect(chosen: str) -> Host:
    arch = _ARCHITECTURES.get(platform.machine().lower())
    if arch is None:
        raise UnsupportedHostError(
            f"native execution needs x86-64 or aarch64, not {platform.machine()}"
        )
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    flat = llvm.get_host_cpu_features().flatten()
    present = frozenset(flat.split(","))
    _require(present, _LEAST[arch])
    if chosen == NATIVE:
        has_tiles = {"+amx-tile", "+amx-bf16"} <= present and _may_use_tiles()
        return Host(arch, llvm.get_host_cpu_name(), flat, has_tiles)
    if chosen not in _FEATURE_SETS or _FEATURE_SETS[chosen].arch is not arch:
        names = [name for name, known in _FEATURE_SETS.items() if known.arch is arch]
        known = ", ".join([NATIVE, *names])
        raise UnsupportedHostError(f"{FEATURES_VARIABLE}={chosen}: want one of {known}")
    _require(present, chosen)
    return host_of(chosen)


def host_of(name: str) -> Host:
    """The least host with the feature set `name`."""
    found = _FEATURE_SETS[name]
    return Host(found.arch, found.cpu, ",".join(f"+{feature}" for feature in found.features))


def _require(present: frozenset[str], name: str) -> None:
    missing = [f for f in _FEATURE_SETS[name].features if f"+{f}" not in present]
    if missing:
        raise UnsupportedHostError(
            f"native execution with {name} needs a host CPU with {', '.join(missing)}"
        )


def _may_use_tiles() -> bool:
    """Ask the operating system for tile registers, for all threads of the process."""
    if not sys.platform.startswith("linux") or ctypes.sizeof(ctypes.c_void_p) != 8:
        return False
    syscall = ctypes.CDLL(None).syscall
    syscall.restype = ctypes.c_long
    arguments = (_ARCH_PRCTL, _REQUEST_PERMISSION, _TILE_DATA)
    return bool(syscall(*(ctypes.c_long(argument) for argument in arguments)) == 0)
